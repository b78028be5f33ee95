/* Leveled log lines, whole lines at a time, with a rank prefix that can be turned off.
 *
 * The library logs nothing unless its host sets a sink. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BASE_LOG_H
#define TPW_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef enum tpw_log_level { TPW_LOG_ERROR, TPW_LOG_WARN, TPW_LOG_INFO, TPW_LOG_DEBUG } tpw_log_level;

/* Receives one finished line without its line break. `data` is what the setter gave. Must not block for long. */
typedef void tpw_log_sink(void *data, tpw_log_level level, const char *line);

/* One log, owned by its user (a worker or the command); no global state. A zeroed struct is a silent log. */
typedef struct tpw_log {
    tpw_log_sink *sink;
    void *data;
    tpw_log_level level; /* lines above this level are dropped before they are formatted */
    bool prefix;         /* put "[rank R host] " before each line */
    int rank;
    char host[64];
} tpw_log;

/* Formats and sends one line; does nothing when `log` is NULL, has no sink, or the level is too low. Thread-safe if the
 * sink is. Lines longer than 1,000 bytes are cut with "..."; control characters become spaces. */
void tpw_log_line(const tpw_log *log, tpw_log_level level, const char *format, ...) TPW_PRINTF(3, 4);

/* A ready sink: writes the line and '\n' to a file descriptor (data = (void *)(intptr_t)fd) with one write(2). */
void tpw_log_to_fd(void *data, tpw_log_level level, const char *line);

/* "error" | "warn" | "info" | "debug" to a level. False for anything else. */
bool tpw_log_level_parse(const char *text, tpw_log_level *out);

#endif
