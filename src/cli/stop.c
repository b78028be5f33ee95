/* The signal flag. The only mutable state outside a function here: a handler has no other place to write to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/stop.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/exit.h"

static volatile sig_atomic_t stop_signal;
static volatile sig_atomic_t stop_urgent; /* a SIGTERM or SIGINT came: the next one does not wait for the step */

static void take(int number)
{
    if (number != SIGUSR1) {
        if (stop_urgent)
            _exit(tpw_exit_code(TPW_ERR_STOPPED));
        stop_urgent = 1;
    }
    stop_signal = number;
}

void tpw_stop_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    action.sa_handler = take;
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

int tpw_stop_signal(void)
{
    return stop_signal;
}
