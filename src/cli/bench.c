/* Counts, compares and shows what bench measured. SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/jsonl.h"
#include "cli/summary.h"

void tpw_bench_add_step(tpw_bench_sample *sample, const tpw_stats *before, const tpw_stats *after)
{
    sample->prompt_tokens += after->prompt_tokens - before->prompt_tokens;
    sample->drafts += after->drafts - before->drafts;
    sample->draft_tokens += after->draft_tokens - before->draft_tokens;
    sample->accepted_tokens += after->accepted_tokens - before->accepted_tokens;
    if (after->prefill_ns != before->prefill_ns) {
        sample->prefill_ns += after->prefill_ns - before->prefill_ns;
        return;
    }
    sample->decode_ns += after->step_ns - before->step_ns;
    sample->decode_tokens += after->output_tokens - before->output_tokens;
    sample->decode_steps += after->steps - before->steps;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

double tpw_bench_median(double *values, size_t count)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, ascending);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

tpw_status tpw_bench_evaluate(const tpw_bench_cell *cell, tpw_bench_row *out, tpw_error *err)
{
    size_t count = (size_t)cell->count;
    double *values = malloc((count + 1) * sizeof *values);
    tpw_stats all = {0};
    *out = (tpw_bench_row){0};
    if (!values)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %zu runs", count);
    for (size_t i = 0; i < count; i++) {
        all.drafts += cell->samples[i].drafts;
        all.draft_tokens += cell->samples[i].draft_tokens;
        all.accepted_tokens += cell->samples[i].accepted_tokens;
        values[i] = 1e3 * tpw_share(cell->samples[i].decode_ns, cell->samples[i].decode_steps) * 1e-9;
    }
    out->ms_per_step = tpw_bench_median(values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = tpw_rate(cell->samples[i].prompt_tokens, (double)cell->samples[i].prefill_ns * 1e-9);
    out->prefill_tokens_per_second = tpw_bench_median(values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = tpw_rate(cell->samples[i].decode_tokens, (double)cell->samples[i].decode_ns * 1e-9);
    out->tokens_per_second = tpw_bench_median(values, count);
    out->slowest = count > 0 ? values[0] : 0;
    out->fastest = count > 0 ? values[count - 1] : 0;
    out->tokens_per_step = tpw_tokens_per_step(&all);
    out->acceptance = tpw_share(all.accepted_tokens, all.draft_tokens);
    free(values);
    return TPW_OK;
}

/* Holds a value of sequence `i` against the first there was. True when there was one. */
static bool hold(tpw_bench_known *known, int32_t i, uint64_t value, bool *other)
{
    if (i == known->known) {
        known->values[known->known++] = value;
        return false;
    }
    *other = *other || value != known->values[i];
    return true;
}

void tpw_bench_compare(tpw_bench_reference *reference, tpw_bench_cell *cell, const uint64_t *tokens,
                       const uint64_t *digests)
{
    cell->digest = cell->digested ? digests[0] : 0;
    for (int32_t i = 0; i < cell->batch; i++) {
        bool other = false;
        bool held = hold(&reference->tokens, i, tokens[i], &other);
        if (cell->digested)
            held = hold(&reference->digests, i, digests[i], &other) || held;
        cell->compared += held;
        cell->different += other;
    }
}

/* The first cell that the cost of `cell` is measured against: without checks, of the same K and batch. */
static const tpw_bench_cell *find_free(const tpw_bench_cell *cells, int32_t count, const tpw_bench_cell *cell)
{
    for (int32_t i = 0; i < count; i++)
        if (!cells[i].digested && cells[i].k == cell->k && cells[i].batch == cell->batch)
            return &cells[i];
    return NULL;
}

static double step_ns(const tpw_bench_sample *s)
{
    return tpw_share(s->decode_ns, s->decode_steps);
}

/* The median over the runs of two cells; false when no run of either has decode steps. */
static bool cell_cost(const tpw_bench_cell *without, const tpw_bench_cell *with, double *room, double *out)
{
    size_t n = 0;
    for (int32_t i = 0; i < with->count && i < without->count; i++)
        if (step_ns(&without->samples[i]) > 0 && step_ns(&with->samples[i]) > 0)
            room[n++] = step_ns(&with->samples[i]) / step_ns(&without->samples[i]) - 1;
    *out = tpw_bench_median(room, n);
    return n > 0;
}

tpw_status tpw_bench_compare_cost(const tpw_bench_cell *cells, int32_t count, const char *check, tpw_bench_cost *out,
                                  tpw_error *err)
{
    size_t runs = 1;
    *out = (tpw_bench_cost){0};
    for (int32_t i = 0; i < count; i++)
        runs = (size_t)cells[i].count > runs ? (size_t)cells[i].count : runs;
    double *room = malloc(((size_t)count + runs) * sizeof *room);
    if (!room)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the cost of %d cells", count);
    double *costs = room + runs;
    for (int32_t i = 0; i < count; i++) {
        const tpw_bench_cell *without = find_free(cells, count, &cells[i]);
        if (without && cells[i].digested && strcmp(cells[i].check, check) == 0 &&
            cell_cost(without, &cells[i], room, &costs[out->cells]))
            out->cells++;
    }
    out->median = tpw_bench_median(costs, (size_t)out->cells);
    out->least = out->cells > 0 ? costs[0] : 0;
    out->most = out->cells > 0 ? costs[out->cells - 1] : 0;
    free(room);
    return TPW_OK;
}

int tpw_bench_cpus(const char *mask)
{
    int count = 0;
    for (const char *at = mask; *at != '\0';) {
        char *end;
        if (!isdigit((unsigned char)*at))
            return 0;
        long first = strtol(at, &end, 10);
        long last = first;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1]))
                return 0;
            last = strtol(end + 1, &end, 10);
        }
        if (last < first || last > 1 << 20)
            return 0;
        count += (int)(last - first + 1);
        if (*end == ',' && end[1] != '\0')
            end++;
        else if (*end != '\0')
            return 0;
        at = end;
    }
    return count;
}

void tpw_bench_title(tpw_sink *sink)
{
    tpw_sink_printf(sink, "  K  batch  check         tokens/s  slowest  fastest  ms/step  tokens/step  accepted  "
                          "prefill tokens/s  digest of the first\n");
}

void tpw_bench_line(tpw_sink *sink, const tpw_bench_cell *cell, const tpw_bench_row *row)
{
    char accepted[16] = "-";
    char digest[24] = "-";
    if (cell->k > 0)
        snprintf(accepted, sizeof accepted, "%.1f %%", 100 * row->acceptance);
    if (cell->digested)
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)cell->digest);
    tpw_sink_printf(sink, "%3d  %5d  %-10s  %10.1f  %7.1f  %7.1f  %7.3f  %11.2f  %8s  %16.1f  %-16s%s\n", cell->k,
                    cell->batch, cell->check, row->tokens_per_second, row->slowest, row->fastest, row->ms_per_step,
                    row->tokens_per_step, accepted, row->prefill_tokens_per_second, digest,
                    cell->different > 0 ? "  DIFFERS" : "");
}

void tpw_bench_json(tpw_sink *sink, const tpw_bench_cell *cell, const tpw_bench_row *row)
{
    if (sink->fd < 0)
        return;
    tpw_jsonl_push(sink,
                   json_pack("{s:s, s:i, s:i, s:i, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:I, s:I}", "type",
                             "cell", "schema", TPW_JSONL_SCHEMA, "k", cell->k, "batch", cell->batch, "check",
                             cell->check, "runs", cell->count, "decode_tokens_per_second", row->tokens_per_second,
                             "slowest", row->slowest, "fastest", row->fastest, "ms_per_step", row->ms_per_step,
                             "tokens_per_step", row->tokens_per_step, "acceptance", row->acceptance,
                             "prefill_tokens_per_second", row->prefill_tokens_per_second, "digest",
                             cell->digested ? tpw_json_hex(cell->digest) : json_null(), "compared",
                             (json_int_t)cell->compared, "different", (json_int_t)cell->different));
}

void tpw_bench_say_cost(tpw_sink *people, tpw_sink *json, const char *check, const tpw_bench_cost *cost)
{
    if (cost->cells == 0)
        return;
    tpw_sink_printf(people, "checks   %s costs %.1f %% of decode (median over %d cell%s; from %.1f %% to %.1f %%)\n",
                    check, 100 * cost->median, cost->cells, cost->cells == 1 ? "" : "s", 100 * cost->least,
                    100 * cost->most);
    if (json->fd >= 0)
        tpw_jsonl_push(json, json_pack("{s:s, s:i, s:s, s:i, s:f, s:f, s:f}", "type", "cost", "schema",
                                       TPW_JSONL_SCHEMA, "check", check, "cells", cost->cells, "median", cost->median,
                                       "least", cost->least, "most", cost->most));
}
