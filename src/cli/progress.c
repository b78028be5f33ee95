/* Draws the bar or writes the line. SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define BAR_WIDTH     32
#define BAR_EVERY_NS  100000000LL /* 0.1 s; what loads faster than that shows nothing */
#define LINE_EVERY_NS 5000000000LL

void tpw_progress_init(tpw_progress *out, int fd, bool terminal)
{
    int64_t now = tpw_clock_ns();
    *out = (tpw_progress){.fd = fd, .terminal = terminal, .begin_ns = now, .shown_ns = now};
}

/* Progress is a courtesy: what cannot be written is dropped. */
static void put(const tpw_progress *p, const char *text)
{
    if (write(p->fd, text, strlen(text)) < 0)
        return;
}

/* Is it time to show something? Then the clock starts anew. */
static bool due(tpw_progress *p)
{
    int64_t now = tpw_clock_ns();
    if (now - p->shown_ns < (p->terminal ? BAR_EVERY_NS : LINE_EVERY_NS))
        return false;
    p->shown_ns = now;
    return true;
}

void tpw_progress_say(tpw_progress *progress, const char *format, ...)
{
    char text[256];
    char line[300];
    if (!due(progress))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(line, sizeof line, progress->terminal ? "\r\033[K%s" : "tpworker: %s\n", text);
    put(progress, line);
    progress->drawn = progress->terminal;
}

void tpw_progress_rest(tpw_progress *progress)
{
    tpw_progress_end(progress);
    progress->shown_ns = tpw_clock_ns();
}

void tpw_progress_show(void *data, size_t bytes_done, size_t bytes_total)
{
    tpw_progress *p = data;
    if (bytes_total == 0 || !due(p))
        return;
    double seconds = (double)(p->shown_ns - p->begin_ns) * 1e-9;
    double share = (double)bytes_done / (double)bytes_total;
    double done_mib = (double)bytes_done / 1048576.0;
    double total_mib = (double)bytes_total / 1048576.0;
    char text[256];
    if (!p->terminal) {
        snprintf(text, sizeof text, "tpworker: loading, rank 0 has %.0f of %.0f MiB (%.0f %%), %.0f MiB/s\n", done_mib,
                 total_mib, 100 * share, done_mib / seconds);
        put(p, text);
        return;
    }
    char bar[BAR_WIDTH + 1];
    int filled = share >= 1 ? BAR_WIDTH : (int)(share * BAR_WIDTH);
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '=', (size_t)filled);
    bar[BAR_WIDTH] = '\0';
    snprintf(text, sizeof text, "\rloading [%s] %3.0f %%  %.0f MiB/s ", bar, 100 * share, done_mib / seconds);
    put(p, text);
    p->drawn = true;
}

void tpw_progress_end(tpw_progress *progress)
{
    if (progress->drawn)
        put(progress, "\r\033[K");
    progress->drawn = false;
}
