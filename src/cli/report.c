/* Writes the report of a rank. SPDX-License-Identifier: Apache-2.0 */
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/exit.h"
#include "cli/jsonl.h"
#include "tpworker/version.h"

bool tpw_report_wanted(tpw_status status)
{
    return status == TPW_ERR_PEER || status == TPW_ERR_DIVERGED || status == TPW_ERR_DEVICE ||
           status == TPW_ERR_INTERNAL;
}

bool tpw_report_speaks(int rank, tpw_status status, const char *text)
{
    char own[32];
    if (rank == 0)
        return true;
    /* "rank 1 (a) waited 30.0 s in broadcast for rank 0 (b): no answer": rank 0 is not there to say it */
    snprintf(own, sizeof own, "rank %d (", rank);
    return status == TPW_ERR_PEER && strncmp(text, own, strlen(own)) == 0 && strstr(text, " for rank 0 (") != NULL;
}

static void utc(char out[32])
{
    time_t now = time(NULL);
    struct tm parts;
    if (!gmtime_r(&now, &parts) || strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        snprintf(out, 32, "unknown");
}

/* The first line without its line break, malloc'ed; NULL when there is no memory. */
static char *make_line(const tpw_report *r)
{
    char now[32];
    utc(now);
    json_t *line =
        json_pack("{s:s, s:i, s:s, s:s, s:o, s:i, s:i, s:o, s:I, s:I, s:s, s:i, s:o}", "type", "report", "schema",
                  TPW_JSONL_SCHEMA, "version", TPW_VERSION, "time", now, "job", tpw_json_text(r->job, strlen(r->job)),
                  "rank", r->rank, "size", r->size, "host", tpw_json_text(r->host, strlen(r->host)), "pid",
                  (json_int_t)getpid(), "step", (json_int_t)r->step, "status", tpw_status_name(r->status), "exit",
                  tpw_exit_code(r->status), "text", tpw_json_text(r->text, strlen(r->text)));
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    return text;
}

#define RING_LINE_MAX 320 /* six numbers of 20 digits, a name of 15, and the keys */

static size_t make_ring_line(const tpw_ring_entry *e, char out[RING_LINE_MAX])
{
    return (size_t)snprintf(out, RING_LINE_MAX,
                            "{\"type\":\"ring\",\"schema\":%d,\"seq\":%" PRIu64 ",\"step\":%" PRId64
                            ",\"op\":\"%.15s\",\"bytes\":%" PRIu64 ",\"digest\":\"%016" PRIx64
                            "\",\"begin_ns\":%" PRId64 ",\"end_ns\":%" PRId64 "}\n",
                            TPW_JSONL_SCHEMA, e->seq, e->step, e->op, e->bytes, e->digest, e->begin_ns, e->end_ns);
}

/* All lines, malloc'ed: the report, then as many of the newest exchanges as fit, oldest first. */
static char *make_lines(const tpw_report *r, size_t *bytes)
{
    char line[RING_LINE_MAX];
    char *first = make_line(r);
    size_t used = first ? strlen(first) + 1 : 0;
    int32_t begin = r->ring_count;
    char *out = NULL;
    if (first)
        out = realloc(first, used + TPW_REPORT_BYTES_MAX + RING_LINE_MAX);
    if (!out) {
        free(first);
        return NULL;
    }
    out[used - 1] = '\n';
    for (size_t all = used; begin > 0; begin--) {
        all += make_ring_line(&r->ring[begin - 1], line);
        if (all > TPW_REPORT_BYTES_MAX)
            break;
    }
    for (int32_t i = begin; i < r->ring_count; i++)
        used += make_ring_line(&r->ring[i], out + used);
    *bytes = used;
    return out;
}

tpw_status tpw_report_write(const char *folder, const tpw_report *report, tpw_error *err)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/tpworker.%s.%d.jsonl", folder, report->job[0] ? report->job : "job",
                          report->rank);
    if (length < 0 || (size_t)length >= sizeof path)
        return tpw_fail(err, TPW_ERR_IO, "%.200s: the path of the report is too long", folder);
    size_t bytes = 0;
    char *lines = make_lines(report, &bytes);
    if (!lines)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for the report", path);
    tpw_status st = TPW_OK;
    /* appended, so that the steps of one scheduler job do not overwrite each other */
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0 || write(fd, lines, bytes) != (ssize_t)bytes)
        st = tpw_fail(err, TPW_ERR_IO, "%s: the report cannot be written: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(lines);
    return st;
}
