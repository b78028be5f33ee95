/* The queue in front of a descriptor: push, flush without waiting, drain with waiting. SPDX-License-Identifier: Apache-2.0 */
#include "cli/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"

void tpw_sink_init_fd(tpw_sink *out, int fd, const char *name)
{
    *out = (tpw_sink){.fd = fd};
    snprintf(out->name, sizeof out->name, "%s", name);
}

tpw_status tpw_sink_init_file(tpw_sink *out, const char *path, tpw_error *err)
{
    *out = (tpw_sink){.fd = -1};
    /* without waiting, so that a FIFO nobody reads is an error and not a hang */
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return tpw_fail(err, TPW_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    tpw_sink_init_fd(out, fd, path);
    out->owned = true;
    return TPW_OK;
}

void tpw_sink_fini(tpw_sink *sink)
{
    if (sink->owned && sink->fd >= 0)
        close(sink->fd);
    free(sink->data);
    *sink = (tpw_sink){.fd = -1};
}

/* After the first failure nothing more is kept or tried. */
void tpw_sink_fail(tpw_sink *sink, int code)
{
    if (sink->fd < 0 || sink->error != 0)
        return;
    sink->error = code;
    sink->bytes = 0;
    sink->start = 0;
}

static bool reserve(tpw_sink *sink, size_t more)
{
    size_t wanted;
    if (!tpw_add_size(sink->bytes, more, &wanted))
        return false;
    if (wanted > sink->capacity - sink->start && sink->start > 0) {
        memmove(sink->data, sink->data + sink->start, sink->bytes);
        sink->start = 0;
    }
    if (wanted <= sink->capacity)
        return true;
    size_t room = sink->capacity < 4096 ? 4096 : sink->capacity;
    while (room < wanted)
        if (!tpw_mul_size(room, 2, &room))
            return false;
    char *grown = realloc(sink->data, room);
    if (!grown)
        return false;
    sink->data = grown;
    sink->capacity = room;
    return true;
}

void tpw_sink_push(tpw_sink *sink, const char *text, size_t bytes)
{
    if (sink->fd < 0 || sink->error != 0 || bytes == 0)
        return;
    if (!reserve(sink, bytes)) {
        tpw_sink_fail(sink, ENOMEM);
        return;
    }
    memcpy(sink->data + sink->start + sink->bytes, text, bytes);
    sink->bytes += bytes;
}

void tpw_sink_printf(tpw_sink *sink, const char *format, ...)
{
    char *line = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&line, format, args);
    va_end(args);
    if (length < 0) {
        tpw_sink_fail(sink, ENOMEM);
        return;
    }
    tpw_sink_push(sink, line, (size_t)length);
    free(line);
}

/* Waits until the descriptor takes at least PIPE_BUF bytes or has failed: POLLERR counts, write then says what is wrong.
 * deadline_ns 0: does not wait; negative: for as long as it takes. */
static bool writable(const tpw_sink *sink, int64_t deadline_ns)
{
    struct pollfd wait = {.fd = sink->fd, .events = POLLOUT};
    for (;;) {
        int timeout_ms = deadline_ns < 0 ? -1 : 0;
        if (deadline_ns > 0) {
            int64_t left = deadline_ns - tpw_clock_ns();
            timeout_ms = left > 0 ? (int)(left / 1000000) + 1 : 0;
        }
        int ready = poll(&wait, 1, timeout_ms);
        if (ready > 0)
            return true;
        if (ready == 0 || errno != EINTR || timeout_ms == 0)
            return false;
    }
}

/* Writes pieces of at most PIPE_BUF bytes, which a pipe that polls writable takes whole. */
static void write_pieces(tpw_sink *sink, int64_t deadline_ns)
{
    while (sink->bytes > 0 && sink->error == 0) {
        if (!writable(sink, sink->bytes > TPW_SINK_HELD_MAX ? -1 : deadline_ns))
            return;
        size_t piece = sink->bytes < PIPE_BUF ? sink->bytes : PIPE_BUF;
        ssize_t done = write(sink->fd, sink->data + sink->start, piece);
        if (done > 0) {
            sink->start += (size_t)done;
            sink->bytes -= (size_t)done;
            if (sink->bytes == 0)
                sink->start = 0;
        } else if (done < 0 && errno != EINTR && errno != EAGAIN) {
            tpw_sink_fail(sink, errno);
        }
    }
}

void tpw_sink_flush(tpw_sink *sink)
{
    write_pieces(sink, 0);
}

tpw_status tpw_sink_drain(tpw_sink *sink, int wait_ms, tpw_error *err)
{
    int64_t deadline_ns = wait_ms > 0 ? tpw_clock_ns() + (int64_t)wait_ms * 1000000 : wait_ms;
    write_pieces(sink, deadline_ns);
    if (sink->error != 0)
        return tpw_fail(err, TPW_ERR_IO, "%s: cannot be written: %s", sink->name, strerror(sink->error));
    return TPW_OK;
}
