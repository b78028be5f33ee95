/* Tests of the output queue: nothing waits that should not, nothing is lost that could be written.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/sink.h"
#include "temp_folder.h"

#define BYTES ((size_t)1 << 20) /* more than any pipe holds */

static char *pattern(void)
{
    char *data = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (char)('a' + i % 23);
    return data;
}

Test(sink, a_flush_does_not_wait_for_a_full_pipe, .timeout = 20)
{
    int ends[2];
    tpw_sink sink;
    char *data = pattern();
    cr_assert_eq(pipe(ends), 0);
    tpw_sink_init_fd(&sink, ends[1], "pipe");
    tpw_sink_push(&sink, data, BYTES);
    tpw_sink_flush(&sink); /* returns although nobody reads */
    cr_assert_eq(sink.error, 0);
    cr_assert(sink.bytes > 0 && sink.bytes < BYTES, "%zu left", sink.bytes);
    tpw_error err;
    cr_assert_eq(tpw_sink_drain(&sink, 50, &err), TPW_OK, "a slow reader is no failure");
    cr_assert_gt(sink.bytes, 0u);
    /* what is read arrives in order, however the pieces fell */
    size_t got = 0;
    while (got < BYTES) {
        char piece[3001];
        ssize_t n = read(ends[0], piece, sizeof piece);
        cr_assert_gt(n, 0);
        cr_assert_eq(memcmp(piece, data + got, (size_t)n), 0, "at %zu", got);
        got += (size_t)n;
        tpw_sink_push(&sink, "", 0);
        tpw_sink_flush(&sink);
    }
    cr_assert_eq(sink.bytes, 0u);
    tpw_sink_fini(&sink);
    close(ends[0]);
    close(ends[1]);
    free(data);
}

static void *read_slowly(void *data)
{
    int fd = *(int *)data;
    size_t *got = malloc(sizeof *got);
    char piece[8192];
    *got = 0;
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;) {
        *got += (size_t)n;
        usleep(100);
    }
    return got;
}

Test(sink, a_drain_waits_for_a_slow_reader, .timeout = 20)
{
    int ends[2];
    tpw_sink sink;
    pthread_t reader;
    void *got;
    tpw_error err = {0};
    char *data = pattern();
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(pthread_create(&reader, NULL, read_slowly, &ends[0]), 0);
    tpw_sink_init_fd(&sink, ends[1], "pipe");
    tpw_sink_push(&sink, data, BYTES);
    cr_assert_eq(tpw_sink_drain(&sink, -1, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(sink.bytes, 0u);
    close(ends[1]);
    pthread_join(reader, &got);
    cr_assert_eq(*(size_t *)got, BYTES);
    free(got);
    tpw_sink_fini(&sink);
    close(ends[0]);
    free(data);
}

Test(sink, a_gone_reader_is_an_error_and_stays_one)
{
    int ends[2];
    tpw_sink sink;
    tpw_error err = {0};
    signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(pipe(ends), 0);
    close(ends[0]);
    tpw_sink_init_fd(&sink, ends[1], "standard output");
    tpw_sink_printf(&sink, "%d tokens", 3);
    tpw_sink_flush(&sink);
    cr_assert_eq(sink.error, EPIPE);
    tpw_sink_push(&sink, "more", 4);
    cr_assert_eq(sink.bytes, 0u, "nothing is kept for nobody");
    cr_assert_eq(tpw_sink_drain(&sink, -1, &err), TPW_ERR_IO);
    cr_assert_not_null(strstr(err.text, "standard output"), "%s", err.text);
    tpw_sink_fini(&sink);
    close(ends[1]);
}

Test(sink, a_full_disk_is_an_error)
{
    tpw_sink sink;
    tpw_error err = {0};
    cr_assert_eq(tpw_sink_init_file(&sink, "/dev/full", &err), TPW_OK, "%s", err.text);
    tpw_sink_push(&sink, "x", 1);
    cr_assert_eq(tpw_sink_drain(&sink, -1, &err), TPW_ERR_IO);
    cr_assert_not_null(strstr(err.text, "/dev/full: cannot be written: No space"), "%s", err.text);
    tpw_sink_fini(&sink);
}

Test(sink, a_descriptor_that_cannot_be_written_is_an_error)
{
    tpw_sink sink;
    tpw_error err = {0};
    int fd = open("/dev/null", O_RDONLY);
    tpw_sink_init_fd(&sink, fd, "closed output");
    tpw_sink_push(&sink, "x", 1);
    cr_assert_eq(tpw_sink_drain(&sink, -1, &err), TPW_ERR_IO);
    tpw_sink_fini(&sink);
    close(fd);
}

Test(sink, files_are_cut_and_written, .timeout = 20)
{
    temp_folder temp;
    tpw_sink sink;
    tpw_error err = {0};
    char back[64] = "";
    temp_make(&temp);
    temp_write_text(&temp, "o", "something longer than what comes");
    cr_assert_eq(tpw_sink_init_file(&sink, temp_path(&temp, "o"), &err), TPW_OK, "%s", err.text);
    tpw_sink_printf(&sink, "%s-%d\n", "line", 1);
    cr_assert_eq(tpw_sink_drain(&sink, 0, &err), TPW_OK);
    tpw_sink_fini(&sink);
    FILE *file = fopen(temp_path(&temp, "o"), "rb");
    cr_assert_eq(fread(back, 1, sizeof back - 1, file), 7u);
    fclose(file);
    cr_assert_str_eq(back, "line-1\n");
    cr_assert_eq(tpw_sink_init_file(&sink, "/nonexistent/o", &err), TPW_ERR_IO);
    cr_assert_eq(tpw_sink_init_file(&sink, temp.path, &err), TPW_ERR_IO);
    /* a FIFO that nobody reads must not stop the job at its start */
    cr_assert_eq(mkfifo(temp_path(&temp, "f"), 0600), 0);
    cr_assert_eq(tpw_sink_init_file(&sink, temp_path(&temp, "f"), &err), TPW_ERR_IO);
    temp_remove(&temp);
}

Test(sink, without_a_descriptor_everything_is_dropped)
{
    tpw_sink sink = {.fd = -1};
    tpw_error err;
    tpw_sink_push(&sink, "x", 1);
    tpw_sink_fail(&sink, EIO);
    cr_assert_eq(sink.bytes, 0u);
    cr_assert_eq(tpw_sink_drain(&sink, -1, &err), TPW_OK);
    tpw_sink_fini(&sink);
}
