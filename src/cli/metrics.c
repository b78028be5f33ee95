/* Builds the Prometheus text and puts it into its file. SPDX-License-Identifier: Apache-2.0 */
#include "cli/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/replace_file.h"

#define EVERY_NS 10000000000LL

static void family(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP tpworker_%s %s\n# TYPE tpworker_%s %s\n", name, help, name, type);
}

static void single(FILE *out, const char *name, const char *type, const char *help, double value)
{
    family(out, name, type, help);
    fprintf(out, "tpworker_%s{rank=\"0\"} %.17g\n", name, value);
}

/* A label value: backslash, quote and line break are escaped. */
static void put_label(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '\\' || *text == '"')
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void put_build(FILE *out, const tpw_metrics *m)
{
    family(out, "build_info", "gauge", "What runs; always 1.");
    fprintf(out, "tpworker_build_info{rank=\"0\",ranks=\"%d\",version=\"", m->size);
    put_label(out, m->version);
    fputs("\",model_name=\"", out);
    put_label(out, m->model);
    fputs("\"} 1\n", out);
}

static void put_requests(FILE *out, const tpw_metrics *m)
{
    static const char *const reasons[] = {[TPW_FINISH_LENGTH] = "length",
                                          [TPW_FINISH_STOP] = "stop",
                                          [TPW_FINISH_CANCELLED] = "abort",
                                          [TPW_FINISH_ERROR] = "error"};
    single(out, "num_requests_running", "gauge", "Sequences that hold a state slot.", m->stats.sequences_running);
    single(out, "num_requests_waiting", "gauge", "Sequences that wait for a slot or for pages.",
           m->stats.sequences_waiting);
    family(out, "request_success_total", "counter", "Sequences that ended, by reason.");
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        fprintf(out, "tpworker_request_success_total{rank=\"0\",finished_reason=\"%s\"} %lld\n", reasons[i],
                (long long)m->finished[i]);
}

static void put_drafts(FILE *out, const tpw_stats *s)
{
    single(out, "spec_decode_num_drafts_total", "counter", "Verified runs that held drafts.", (double)s->drafts);
    single(out, "spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", (double)s->draft_tokens);
    single(out, "spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens accepted.",
           (double)s->accepted_tokens);
    family(out, "spec_decode_num_accepted_tokens_per_pos_total", "counter",
           "Drafted tokens accepted, by position in the draft from 0.");
    for (int i = 0; i < TPW_K_MAX; i++)
        fprintf(out, "tpworker_spec_decode_num_accepted_tokens_per_pos_total{rank=\"0\",position=\"%d\"} %lld\n", i,
                (long long)s->accepted_at[i]);
}

char *tpw_metrics_text(const tpw_metrics *metrics)
{
    const tpw_stats *s = &metrics->stats;
    char *text = NULL;
    size_t bytes = 0;
    double used = s->pages_total > 0 ? 1 - (double)s->pages_free / (double)s->pages_total : 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    put_build(out, metrics);
    put_requests(out, metrics);
    single(out, "prompt_tokens_total", "counter", "Prompt tokens run.", (double)s->prompt_tokens);
    single(out, "generation_tokens_total", "counter", "Tokens generated.", (double)s->output_tokens);
    put_drafts(out, s);
    single(out, "kv_cache_usage_perc", "gauge", "Share of KV pages in use, 0 to 1.", used);
    single(out, "state_slots_used", "gauge", "State slots in use.", metrics->slots_total - s->slots_free);
    single(out, "state_slots_total", "gauge", "State slots.", metrics->slots_total);
    single(out, "steps_total", "counter", "Steps.", (double)s->steps);
    single(out, "step_seconds_total", "counter", "Time spent in steps.", (double)s->step_ns * 1e-9);
    single(out, "prefill_seconds_total", "counter", "Part of it in steps that held prompt rows.",
           (double)s->prefill_ns * 1e-9);
    single(out, "rank_checks_total", "counter", "Comparisons across ranks, all equal so far.", (double)s->checks);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

tpw_status tpw_metrics_replace(const char *path, const char *text, tpw_error *err)
{
    return tpw_file_replace(path, "the metrics file", text, err);
}

void tpw_metrics_file_write(tpw_metrics_file *file, const tpw_metrics *metrics)
{
    if (!file->path)
        return;
    char *text = tpw_metrics_text(metrics);
    file->tried_ns = tpw_clock_ns();
    file->status = text ? tpw_metrics_replace(file->path, text, &file->error)
                        : tpw_fail(&file->error, TPW_ERR_MEMORY, "%s: no memory for the metrics", file->path);
    free(text);
}

bool tpw_metrics_file_due(const tpw_metrics_file *file)
{
    return file->path && tpw_clock_ns() - file->tried_ns >= EVERY_NS;
}
