/* Output that never makes the step loop wait: text is queued and written as far as the reader takes it.
 *
 * A rank that sleeps in write(2) because somebody pages through its output would look stalled to its peers. So pushing
 * only queues, flushing writes what the descriptor takes now, and only draining waits. The first failure is kept;
 * everything after it is dropped. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_SINK_H
#define TPW_CLI_SINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* More than this much unread text makes even a flush wait for the reader: memory has an end, too. */
#define TPW_SINK_HELD_MAX ((size_t)64 << 20)

/* A zeroed sink with fd = -1 drops everything. */
typedef struct tpw_sink {
    int fd;
    bool owned; /* close it in fini */
    char *data; /* queued bytes are data[start .. start + bytes) */
    size_t start;
    size_t bytes;
    size_t capacity;
    int error;      /* errno of the first failure, 0 if none */
    char name[256]; /* for messages: "standard output" or a path */
} tpw_sink;

/* A sink on an open descriptor, which stays the caller's. */
void tpw_sink_init_fd(tpw_sink *out, int fd, const char *name);
/* Creates or truncates a file. ERR_IO. */
tpw_status tpw_sink_init_file(tpw_sink *out, const char *path, tpw_error *err) TPW_MUST_CHECK;
/* Drops what was not drained. */
void tpw_sink_fini(tpw_sink *sink);

/* Queue; failures show in sink->error. */
void tpw_sink_push(tpw_sink *sink, const char *text, size_t bytes);
void tpw_sink_printf(tpw_sink *sink, const char *format, ...) TPW_PRINTF(2, 3);

/* Writes what the reader takes without waiting. */
void tpw_sink_flush(tpw_sink *sink);
/* Writes what is queued, waiting for the reader up to wait_ms in all (-1: for as long as it takes). ERR_IO with the name and
 * the cause when anything in this sink's life failed; text that still waits for its reader is no failure. */
tpw_status tpw_sink_drain(tpw_sink *sink, int wait_ms, tpw_error *err) TPW_MUST_CHECK;

/* Marks the sink as failed, as if writing had. */
void tpw_sink_fail(tpw_sink *sink, int code);

#endif
