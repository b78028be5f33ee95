/* The monotonic clock and the back-off of polling loops. SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <sched.h>
#include <time.h>

/* Short, since ranks may outnumber cores: a spinning waiter then takes the core from the rank it waits for. */
#define SPIN_POLLS  256u
#define YIELD_POLLS 1024u
#define SLEEP_NS    50000

int64_t tpw_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock and a valid pointer */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void tpw_backoff_wait(tpw_backoff *backoff)
{
    if (backoff->polls < SPIN_POLLS) {
        backoff->polls++;
        pause_core();
    } else if (backoff->polls < SPIN_POLLS + YIELD_POLLS) {
        backoff->polls++;
        sched_yield();
    } else { /* the count stays: it must not wrap to spinning in a long wait */
        const struct timespec rest = {.tv_nsec = SLEEP_NS};
        nanosleep(&rest, NULL);
    }
}
