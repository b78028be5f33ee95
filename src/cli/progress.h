/* Progress of loading and of long work: a bar or a status on a terminal, else a line every few seconds. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_PROGRESS_H
#define TPW_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tpw_progress {
    int fd;
    bool terminal;
    int64_t begin_ns;
    int64_t shown_ns;
    bool drawn; /* a bar stands on the line */
} tpw_progress;

/* Begins the clock. */
void tpw_progress_init(tpw_progress *out, int fd, bool terminal);
/* A tpw_progress_function; data is the tpw_progress. */
void tpw_progress_show(void *data, size_t bytes_done, size_t bytes_total);
/* A line on how far other work has come; most calls only look at the clock. Standard error, unless something of the caller's
 * stands there already. */
void tpw_progress_say(tpw_progress *progress, const char *format, ...) TPW_PRINTF(2, 3);
/* Something else was shown: the next line is due as long after that as after a line. */
void tpw_progress_rest(tpw_progress *progress);
/* Takes the bar off the line. */
void tpw_progress_end(tpw_progress *progress);

#endif
