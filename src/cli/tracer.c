/* Takes the worker's digests while it runs. SPDX-License-Identifier: Apache-2.0 */
#include "cli/tracer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/diff.h"

void tpw_tracer_init(tpw_tracer *out)
{
    *out = (tpw_tracer){.sink = {.fd = -1}};
}

void tpw_tracer_fini(tpw_tracer *tracer)
{
    tpw_sink_fini(&tracer->sink);
    tpw_trace_file_fini(&tracer->expect);
}

bool tpw_tracer_wanted(const tpw_values *values)
{
    return values->trace || values->expect;
}

tpw_status tpw_tracer_open(tpw_tracer *tracer, const tpw_values *values, tpw_error *err)
{
    tracer->expect_path = values->expect;
    if (values->expect)
        TPW_TRY(tpw_trace_read(values->expect, &tracer->expect, err));
    return values->trace ? tpw_sink_init_file(&tracer->sink, values->trace, err) : TPW_OK;
}

tpw_status tpw_tracer_begin(tpw_tracer *tracer, const tpw_trace_head *head, tpw_error *err)
{
    if (tracer->expect_path) {
        TPW_TRY(tpw_trace_comparable(&tracer->expect.head, tracer->expect_path, head, "this run", err));
        tracer->drafts = tpw_trace_same_drafts(&tracer->expect.head, head);
    }
    if (tracer->sink.fd < 0)
        return TPW_OK;
    char *line = tpw_trace_head_line(head);
    if (!line)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for the first line", tracer->sink.name);
    tpw_sink_push(&tracer->sink, line, strlen(line));
    free(line);
    return TPW_OK;
}

/* Names the ranks whose own values differ, when there are equally many. */
static void note_ranks(tpw_tracer *t, const tpw_trace_record *r)
{
    uint64_t values[TPW_TRACE_RANKS_MAX] = {0};
    for (int32_t i = 0; i < r->rank_count && i < TPW_TRACE_RANKS_MAX; i++)
        values[i] = r->ranks[i];
    const tpw_trace_file now = {.head = {.ranks = r->rank_count}, .ranks = values};
    t->found.ranks = 0;
    tpw_diff_ranks_between(&t->expect, t->wanted, &now, &t->found, t->ranks, sizeof t->ranks);
}

static bool expected(tpw_tracer *t, const tpw_trace_record *r)
{
    tpw_trace_entry key = {
        .seq = r->id, .pos = r->position, .step = r->step, .global = r->global, .layer = r->layer < 0 ? -1 : r->layer};
    if (!tpw_trace_scope_find(r->scope, &key.scope) || (key.scope == TPW_TRACE_MTP && !t->drafts))
        return true;
    const tpw_trace_entry *twin = tpw_trace_find(&t->expect, &key);
    if (!twin)
        return true;
    t->compared++;
    if (twin->global == key.global)
        return true;
    if (t->objected && tpw_trace_before(&t->found, &key) < 0)
        return false; /* what is noted comes first */
    t->objected = true;
    t->found = key;
    t->wanted = twin;
    note_ranks(t, r);
    return false;
}

bool tpw_tracer_take(void *data, const tpw_trace_record *record)
{
    tpw_tracer *t = data;
    char line[TPW_TRACE_LINE_MAX];
    t->records++;
    if (t->sink.fd >= 0) {
        size_t bytes = tpw_trace_record_line(record, line);
        tpw_sink_push(&t->sink, line, bytes);
    }
    return !t->expect_path || expected(t, record);
}

tpw_status tpw_tracer_end(tpw_tracer *tracer, tpw_error *err)
{
    tpw_sink_printf(&tracer->sink, "{\"type\":\"end\",\"schema\":1,\"records\":%lld}\n", (long long)tracer->records);
    TPW_TRY(tpw_sink_drain(&tracer->sink, -1, err));
    if (tracer->expect_path && tracer->compared == 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "--expect %.200s: none of the %lld records of this run has a twin there (sequence, position, "
                        "scope and layer): nothing was compared",
                        tracer->expect_path, (long long)tracer->records);
    return TPW_OK;
}

void tpw_tracer_say(const tpw_tracer *tracer, tpw_sink *people)
{
    char what[48];
    if (!tracer->expect_path)
        return;
    if (!tracer->objected) {
        tpw_sink_printf(people, "expect   %lld of %lld records compared with %s, all equal\n",
                        (long long)tracer->compared, (long long)tracer->records, tracer->expect_path);
        return;
    }
    tpw_trace_entry_name(&tracer->found, what, sizeof what);
    tpw_sink_printf(people,
                    "expect   %lld records compared with %s; %s of sequence %" PRIu64 " at position %lld is %016" PRIx64
                    ", expected %016" PRIx64 "%s%s\n",
                    (long long)tracer->compared, tracer->expect_path, what, tracer->found.seq,
                    (long long)tracer->found.pos, tracer->found.global, tracer->wanted->global,
                    tracer->ranks[0] != '\0' ? ", on rank " : "", tracer->ranks);
}
