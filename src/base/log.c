/* Log lines: level filter, prefix, cutting, and the sink that writes to a file descriptor.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1000
#define CUT_MARK       "..."

/* Shortens a line that did not fit into LINE_MAX_BYTES, so that the mark does. */
static void mark_cut(char *line)
{
    size_t kept = tpw_text_cut(line, LINE_MAX_BYTES - strlen(CUT_MARK));
    memcpy(line + kept, CUT_MARK, sizeof CUT_MARK);
}

void tpw_log_line(const tpw_log *log, tpw_log_level level, const char *format, ...)
{
    if (log == NULL || log->sink == NULL || level > log->level)
        return;

    char line[LINE_MAX_BYTES + 1];
    int length = 0;
    if (log->prefix) {
        const char *space = log->host[0] == '\0' ? "" : " ";
        length = snprintf(line, sizeof line, "[rank %d%s%.*s] ", log->rank, space, (int)sizeof log->host, log->host);
        if (length < 0)
            length = 0;
    }
    size_t room = sizeof line - (size_t)length;
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(line + length, room, format, args);
    va_end(args);
    if (wanted < 0)
        snprintf(line + length, room, "(a log line that could not be formatted)");
    else if ((size_t)wanted >= room)
        mark_cut(line);
    tpw_text_clean(line);
    log->sink(log->data, level, line);
}

void tpw_log_to_fd(void *data, tpw_log_level level, const char *line)
{
    (void)level;
    int fd = (int)(intptr_t)data;
    int errno_before = errno; /* logging on an error path must not change the error */

    char out[LINE_MAX_BYTES + 2];
    size_t bytes = strnlen(line, LINE_MAX_BYTES + 1);
    memcpy(out, line, bytes);
    out[bytes] = '\0';
    if (bytes > LINE_MAX_BYTES) {
        mark_cut(out);
        bytes = strlen(out);
    }
    out[bytes++] = '\n';

    /* one write, so that lines of several ranks do not mix; a second only after a signal or a short write */
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, out + done, bytes - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            break; /* nobody is left to be told */
    }
    errno = errno_before;
}

bool tpw_log_level_parse(const char *text, tpw_log_level *out)
{
    static const struct {
        const char *name;
        tpw_log_level level;
    } levels[] = {{"error", TPW_LOG_ERROR}, {"warn", TPW_LOG_WARN}, {"info", TPW_LOG_INFO}, {"debug", TPW_LOG_DEBUG}};

    if (text == NULL)
        return false;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcmp(text, levels[i].name) == 0) {
            *out = levels[i].level;
            return true;
        }
    }
    return false;
}
