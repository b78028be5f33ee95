/* Counts, compares and shows what bench measured. SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

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

void tpw_bench_compare(tpw_bench_reference *reference, tpw_bench_cell *cell, const uint64_t *digests)
{
    cell->digest = digests[0];
    for (int32_t i = 0; i < cell->batch; i++) {
        if (i == reference->known) {
            reference->digests[reference->known++] = digests[i];
            continue;
        }
        cell->compared++;
        cell->different += digests[i] != reference->digests[i];
    }
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
    tpw_sink_printf(sink, "  K  batch    tokens/s  slowest  fastest  ms/step  tokens/step  accepted  prefill tokens/s  "
                          "digest of the first\n");
}

void tpw_bench_line(tpw_sink *sink, const tpw_bench_cell *cell, const tpw_bench_row *row)
{
    char accepted[16] = "-";
    if (cell->k > 0)
        snprintf(accepted, sizeof accepted, "%.1f %%", 100 * row->acceptance);
    tpw_sink_printf(sink, "%3d  %5d  %10.1f  %7.1f  %7.1f  %7.3f  %11.2f  %8s  %16.1f  %016llx%s\n", cell->k,
                    cell->batch, row->tokens_per_second, row->slowest, row->fastest, row->ms_per_step,
                    row->tokens_per_step, accepted, row->prefill_tokens_per_second, (unsigned long long)cell->digest,
                    cell->different > 0 ? "  DIFFERS" : "");
}

void tpw_bench_json(tpw_sink *sink, const tpw_bench_cell *cell, const tpw_bench_row *row)
{
    if (sink->fd < 0)
        return;
    tpw_jsonl_push(sink,
                   json_pack("{s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:I, s:I}", "type",
                             "cell", "schema", TPW_JSONL_SCHEMA, "k", cell->k, "batch", cell->batch, "runs",
                             cell->count, "decode_tokens_per_second", row->tokens_per_second, "slowest", row->slowest,
                             "fastest", row->fastest, "ms_per_step", row->ms_per_step, "tokens_per_step",
                             row->tokens_per_step, "acceptance", row->acceptance, "prefill_tokens_per_second",
                             row->prefill_tokens_per_second, "digest", tpw_json_hex(cell->digest), "compared",
                             (json_int_t)cell->compared, "different", (json_int_t)cell->different));
}
