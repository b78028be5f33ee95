/* Tests of log lines: levels, prefix, cutting, and whole lines on a file descriptor.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define LINE_LIMIT 1000

typedef struct capture {
    int lines;
    tpw_log_level level;
    char text[4096];
} capture;

static void capture_sink(void *data, tpw_log_level level, const char *line)
{
    capture *seen = data;
    seen->lines++;
    seen->level = level;
    cr_assert_lt(strlen(line), sizeof seen->text);
    memcpy(seen->text, line, strlen(line) + 1);
}

static const char *run_of(char c, size_t n)
{
    static char text[4096];
    cr_assert_lt(n, sizeof text);
    memset(text, c, n);
    text[n] = '\0';
    return text;
}

Test(log, levels_above_the_limit_are_dropped)
{
    for (int limit = TPW_LOG_ERROR; limit <= TPW_LOG_DEBUG; limit++) {
        for (int level = TPW_LOG_ERROR; level <= TPW_LOG_DEBUG; level++) {
            capture seen = {0};
            tpw_log log = {.sink = capture_sink, .data = &seen, .level = (tpw_log_level)limit};
            tpw_log_line(&log, (tpw_log_level)level, "value %d", level);
            cr_expect_eq(seen.lines, level <= limit, "level %d under limit %d", level, limit);
            if (seen.lines != 0) {
                cr_expect_eq((int)seen.level, level);
                cr_expect_eq(seen.text[6], '0' + level);
            }
        }
    }
}

Test(log, silent_without_a_log_or_a_sink)
{
    tpw_log zeroed = {0};
    tpw_log_line(NULL, TPW_LOG_ERROR, "%d", 1);
    tpw_log_line(&zeroed, TPW_LOG_ERROR, "%d", 1);
}

Test(log, prefix_names_rank_and_host)
{
    capture seen = {0};
    tpw_log log = {.sink = capture_sink, .data = &seen, .level = TPW_LOG_INFO, .prefix = true, .rank = 3};
    tpw_log_line(&log, TPW_LOG_INFO, "loaded %d layers", 24);
    cr_assert_str_eq(seen.text, "[rank 3] loaded 24 layers");
    strcpy(log.host, "node-a");
    tpw_log_line(&log, TPW_LOG_WARN, "slow");
    cr_assert_str_eq(seen.text, "[rank 3 node-a] slow");
    log.prefix = false;
    tpw_log_line(&log, TPW_LOG_INFO, "plain");
    cr_assert_str_eq(seen.text, "plain");
}

Test(log, a_host_without_terminator_is_not_read_past)
{
    capture seen = {0};
    struct {
        tpw_log log;
        char guard[16];
    } box;
    memset(&box, 'h', sizeof box); /* padding too: nothing ends the host but its size */
    box.guard[15] = '\0';
    box.log.sink = capture_sink;
    box.log.data = &seen;
    box.log.level = TPW_LOG_INFO;
    box.log.prefix = true;
    box.log.rank = 0;
    tpw_log_line(&box.log, TPW_LOG_ERROR, "x");
    cr_assert_eq(strlen(seen.text), strlen("[rank 0 ") + sizeof box.log.host + strlen("] x"));
}

Test(log, one_line_whatever_the_text)
{
    capture seen = {0};
    tpw_log log = {.sink = capture_sink, .data = &seen};
    tpw_log_line(&log, TPW_LOG_ERROR, "a\nb\x1b[0m%s", "c\r\n");
    cr_assert_str_eq(seen.text, "a b [0mc  ");
    tpw_log_line(&log, TPW_LOG_ERROR, "%s", "");
    cr_assert_str_eq(seen.text, "");
    cr_assert_eq(seen.lines, 2);
}

Test(log, long_lines_are_cut_with_dots)
{
    capture seen = {0};
    tpw_log log = {.sink = capture_sink, .data = &seen, .rank = 7};
    for (int prefix = 0; prefix <= 1; prefix++) {
        log.prefix = prefix != 0;
        size_t head = prefix ? strlen("[rank 7] ") : 0;
        for (size_t n = LINE_LIMIT - head - 3; n < LINE_LIMIT - head + 4; n++) {
            tpw_log_line(&log, TPW_LOG_ERROR, "%s", run_of('y', n));
            bool cut = head + n > LINE_LIMIT;
            cr_expect_eq(strlen(seen.text), cut ? LINE_LIMIT : head + n, "n = %zu", n);
            cr_expect_eq(strcmp(seen.text + strlen(seen.text) - 3, cut ? "..." : "yyy"), 0, "n = %zu", n);
        }
    }
}

Test(log, a_cut_does_not_split_a_character)
{
    capture seen = {0};
    tpw_log log = {.sink = capture_sink, .data = &seen};
    tpw_log_line(&log, TPW_LOG_ERROR, "%s\xE2\x82\xAC%s", run_of('y', 995), "zzzzzzzz");
    cr_assert_eq(strlen(seen.text), 998);
    cr_assert_str_eq(seen.text + 994, "y...");
}

/* Reads what is in a pipe after its writer was closed. */
static size_t drain(int fd, char *text, size_t room)
{
    size_t bytes = 0;
    ssize_t n;
    while ((n = read(fd, text + bytes, room - 1 - bytes)) > 0)
        bytes += (size_t)n;
    text[bytes] = '\0';
    return bytes;
}

Test(log, fd_sink_writes_whole_lines)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    tpw_log log = {.sink = tpw_log_to_fd, .data = (void *)(intptr_t)ends[1], .level = TPW_LOG_INFO};
    tpw_log_line(&log, TPW_LOG_INFO, "first %d", 1);
    tpw_log_line(&log, TPW_LOG_DEBUG, "not this");
    tpw_log_line(&log, TPW_LOG_INFO, "%s", "");
    tpw_log_line(&log, TPW_LOG_ERROR, "last");
    close(ends[1]);
    char text[4096];
    drain(ends[0], text, sizeof text);
    close(ends[0]);
    cr_assert_str_eq(text, "first 1\n\nlast\n");
}

/* A packet pipe keeps write boundaries: each read returns what one write(2) gave. */
Test(log, fd_sink_uses_one_write_a_line)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_DIRECT), 0);
    tpw_log log = {.sink = tpw_log_to_fd, .data = (void *)(intptr_t)ends[1], .level = TPW_LOG_INFO};
    log.prefix = true;
    tpw_log_line(&log, TPW_LOG_INFO, "%s", run_of('a', 3000));
    tpw_log_line(&log, TPW_LOG_INFO, "b");
    char text[4096];
    cr_assert_eq(read(ends[0], text, sizeof text), LINE_LIMIT + 1);
    cr_assert_eq(memcmp(text + LINE_LIMIT - 4, "a...\n", 5), 0);
    ssize_t n = read(ends[0], text, sizeof text);
    cr_assert(n == 11 && memcmp(text, "[rank 0] b\n", 11) == 0, "read %zd bytes", n);
    close(ends[0]);
    close(ends[1]);
}

Test(log, fd_sink_called_directly_cuts_too)
{
    const size_t lengths[] = {0, 1, LINE_LIMIT - 1, LINE_LIMIT, LINE_LIMIT + 1, 3000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        int ends[2];
        cr_assert_eq(pipe(ends), 0);
        tpw_log_to_fd((void *)(intptr_t)ends[1], TPW_LOG_ERROR, run_of('q', lengths[i]));
        close(ends[1]);
        char text[4096];
        size_t bytes = drain(ends[0], text, sizeof text);
        close(ends[0]);
        bool cut = lengths[i] > LINE_LIMIT;
        cr_expect_eq(bytes, (cut ? LINE_LIMIT : lengths[i]) + 1, "length %zu gave %zu", lengths[i], bytes);
        cr_expect_eq(text[bytes - 1], '\n');
        cr_expect(!cut || strcmp(text + LINE_LIMIT - 3, "...\n") == 0);
    }
}

Test(log, a_dead_descriptor_is_survived_and_errno_kept)
{
    errno = ERANGE;
    tpw_log_to_fd((void *)(intptr_t)-1, TPW_LOG_ERROR, "nobody reads this");
    cr_assert_eq(errno, ERANGE);

    int ends[2]; /* full and non-blocking: the line is dropped, the caller is not held up */
    cr_assert_eq(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], run_of('f', 4000), 4000) > 0)
        ;
    while (write(ends[1], "f", 1) > 0)
        ;
    errno = ERANGE;
    tpw_log_to_fd((void *)(intptr_t)ends[1], TPW_LOG_ERROR, "dropped");
    cr_assert_eq(errno, ERANGE);
    close(ends[0]);
    close(ends[1]);
}

Test(log, level_names)
{
    const char *names[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++) {
        tpw_log_level level = (tpw_log_level)((i + 1) % 4);
        cr_assert(tpw_log_level_parse(names[i], &level), "%s", names[i]);
        cr_assert_eq((int)level, i, "%s", names[i]);
    }
    const char *others[] = {"", "Error", "warning", "inf", "info ", " info", "3", "errordebug"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        tpw_log_level level = TPW_LOG_DEBUG;
        cr_expect(!tpw_log_level_parse(others[i], &level), "\"%s\" was taken", others[i]);
        cr_expect_eq(level, TPW_LOG_DEBUG);
    }
    tpw_log_level level = TPW_LOG_WARN;
    cr_assert(!tpw_log_level_parse(NULL, &level) && level == TPW_LOG_WARN);
}
