/* Measures every K, batch and check in turn: a worker for each K and check stays loaded, and the repeats go round all cells, so
 * that noise hits all of them alike. SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "cli/bench.h"
#include "cli/exit.h"
#include "cli/jsonl.h"
#include "cli/output.h"
#include "cli/trial.h"

#define WORKERS_MAX (TPW_INTS_MAX * TPW_CHECKS_MAX)
#define CELLS_MAX   (WORKERS_MAX * TPW_INTS_MAX)
#define WARM_TOKENS 4 /* of a run before the first one, which touches all memory */

/* All that a bench holds. What is rank 0's is empty elsewhere. */
typedef struct bench {
    tpw_session session;
    const tpw_values *values;
    tpw_outcome *out;
    tpw_ints k; /* those that the model can do */
    tpw_check_modes checks;
    tpw_worker *workers[WORKERS_MAX]; /* [k.count, checks.count], with room for the largest batch */
    tpw_model_info info;
    tpw_bench_cell
        cells[CELLS_MAX]; /* [k.count, batch.count, checks.count]: what is to be compared lies side by side */
    int count;
    int32_t batch_max;
    /* rank 0 */
    int32_t *ids;      /* [batch_max, prompt_tokens] */
    uint64_t *tokens;  /* [batch_max]: digests of the output tokens of the run being made */
    uint64_t *digests; /* [batch_max]: and of all its scopes */
    tpw_bench_reference reference;
    tpw_request *requests; /* [batch_max] */
    int runs;
} bench;

/* A run being made. */
typedef struct running {
    bench *bench;
    const tpw_bench_cell *cell;
    tpw_bench_sample *sample;
} running;

static tpw_status no_memory(tpw_error *err)
{
    return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the cells of the bench");
}

static int64_t last_position(const tpw_values *v)
{
    return v->prompt_tokens + v->max_tokens;
}

/* Which K there are. Of the default ones those above 0 are left out when the model cannot; of given ones load complains. */
static tpw_status choose_k(bench *b, tpw_error *err)
{
    bool mtp = true;
    b->k = b->values->k;
    if (b->values->source[TPW_SETTING_K] == TPW_SOURCE_DEFAULT)
        TPW_TRY(tpw_session_find_mtp(&b->session, &mtp, err));
    if (!mtp)
        b->k = (tpw_ints){.data = {0}, .count = 1};
    return TPW_OK;
}

static tpw_status make_cells(bench *b, tpw_error *err)
{
    const tpw_ints *batch = &b->values->batch;
    int rows = b->k.count * batch->count;
    for (int i = 0; i < rows * b->checks.count; i++) {
        int row = i / b->checks.count;
        const tpw_check_mode *check = &b->checks.data[i % b->checks.count];
        tpw_bench_cell *cell = &b->cells[b->count++];
        *cell = (tpw_bench_cell){.k = (int32_t)b->k.data[row / batch->count],
                                 .batch = (int32_t)batch->data[row % batch->count],
                                 .check = check->name,
                                 .digested = check->check != TPW_CHECK_OFF};
        cell->samples = calloc((size_t)b->values->repeat, sizeof *cell->samples);
        if (!cell->samples)
            return no_memory(err);
    }
    return TPW_OK;
}

static int worker_count(const bench *b)
{
    return b->k.count * b->checks.count;
}

/* The worker of a cell. */
static tpw_worker *worker_of(const bench *b, int cell)
{
    int k = cell / (b->values->batch.count * b->checks.count);
    return b->workers[k * b->checks.count + cell % b->checks.count];
}

static tpw_status load(bench *b, tpw_error *err)
{
    int64_t context = last_position(b->values);
    for (int i = 0; i < worker_count(b); i++) {
        tpw_options options;
        tpw_status st;
        tpw_session_options(&b->session, &options);
        options.draft_max = (int32_t)b->k.data[i / b->checks.count];
        options.check = b->checks.data[i % b->checks.count].check;
        options.check_every = b->checks.data[i % b->checks.count].every;
        options.sequences_max = b->batch_max;
        if (b->values->context == 0)
            options.context_max = (int32_t)context;
        st = tpw_session_start(&b->session, &options, &b->workers[i], err);
        if (st == TPW_ERR_MEMORY && i > 0)
            tpw_error_prefix(err, "worker %d of %d (bench holds one for each K and check: measure fewer at a time)",
                             i + 1, worker_count(b));
        TPW_TRY(st);
    }
    tpw_worker_model_info(b->workers[0], &b->info);
    return tpw_session_ranks(&b->session, b->workers[0], err);
}

static tpw_status fill_prompts(bench *b, tpw_error *err)
{
    size_t most = (size_t)b->batch_max;
    TPW_TRY(
        tpw_trial_prompts(&b->session, b->info.vocab, b->batch_max, (int32_t)b->values->prompt_tokens, &b->ids, err));
    b->tokens = calloc(most, sizeof *b->tokens);
    b->digests = calloc(most, sizeof *b->digests);
    b->requests = calloc(most, sizeof *b->requests);
    b->reference.tokens.values = calloc(most, sizeof *b->tokens);
    b->reference.digests.values = calloc(most, sizeof *b->digests);
    return b->tokens && b->digests && b->requests && b->reference.tokens.values && b->reference.digests.values
               ? TPW_OK
               : no_memory(err);
}

static void say_head(bench *b)
{
    const tpw_values *v = b->values;
    const tpw_rank_info *ranks = b->session.ranks;
    int cpus = tpw_bench_cpus(ranks[0].cpus_obtained);
    char shown[160] = "CPUs unknown";
    if (cpus > 0)
        snprintf(shown, sizeof shown, "%d CPUs each (rank 0: %s)", cpus, ranks[0].cpus_obtained);
    tpw_sink_printf(&b->out->people,
                    "bench    %lld prompt and %lld output tokens a sequence, median of %lld runs, %s compute; "
                    "%d ranks, %s, %s\n",
                    (long long)v->prompt_tokens, (long long)v->max_tokens, (long long)v->repeat,
                    v->compute == TPW_COMPUTE_F32 ? "F32" : "BF16", b->out->size, ranks[0].device, shown);
    tpw_output_model(&b->out->people, &b->info);
    tpw_sink_flush(&b->out->people);
}

/* Rank 0, after loading. */
static tpw_status begin(bench *b, tpw_error *err)
{
    TPW_TRY(fill_prompts(b, err));
    if (!b->values->quiet)
        say_head(b);
    tpw_jsonl_run(&b->out->json, b->values, &b->info, b->session.ranks, b->out->size);
    return TPW_OK;
}

static void make_requests(bench *b, int32_t batch, int32_t max_tokens)
{
    for (int32_t i = 0; i < batch; i++)
        b->requests[i] = (tpw_request){.size = sizeof *b->requests,
                                       .id = (uint64_t)i,
                                       .ids = b->ids + (size_t)i * (size_t)b->values->prompt_tokens,
                                       .count = (int32_t)b->values->prompt_tokens,
                                       .max_tokens = max_tokens,
                                       .ignore_eos = true};
}

static void say_progress(void *data, const tpw_trial *t)
{
    const running *r = data;
    bench *b = r->bench;
    if (!b->values->quiet)
        tpw_progress_say(&b->session.progress,
                         "bench, run %d of %d: K = %d, batch %d, check %s, %zu of %d sequences finished", b->runs + 1,
                         b->count * (int)b->values->repeat, r->cell->k, t->count, r->cell->check, t->results.finished,
                         t->count);
}

static void add_step(void *data, const tpw_stats *before, const tpw_stats *after)
{
    const running *r = data;
    tpw_bench_add_step(r->sample, before, after);
}

/* Collective. One run; *sample is set when it went through. Leaves `broken` when the ranks have parted. */
static tpw_status run_cell(bench *b, tpw_worker *worker, const tpw_bench_cell *cell, int32_t batch, int32_t max_tokens,
                           tpw_bench_sample *sample, tpw_error *err)
{
    running now = {b, cell, sample};
    tpw_trial t = {.session = &b->session,
                   .worker = worker,
                   .requests = b->requests,
                   .count = batch,
                   .before = say_progress,
                   .after = add_step,
                   .data = &now};
    if (b->out->rank == 0)
        make_requests(b, batch, max_tokens);
    tpw_status st = tpw_trial_run(&t, err);
    if (b->out->broken) {
        tpw_session_keep_ring(&b->session, worker);
    } else {
        if (st == TPW_ERR_STOPPED)
            (void)tpw_fail(err, st, "stopped by %s in run %d of %d", tpw_session_signal_name(), b->runs + 1,
                           b->count * (int)b->values->repeat);
        for (int32_t i = 0; st == TPW_OK && b->out->rank == 0 && i < batch; i++) {
            const tpw_result *r = &t.results.data[i];
            b->tokens[i] = tpw_digest_block(tpw_digest_key("output"), r->ids, TPW_I32, 1, r->count, 0, 0, 0);
            b->digests[i] = tpw_result_digest(r);
        }
        st = tpw_session_agree(&b->session, st, err);
    }
    tpw_trial_fini(&t);
    return st;
}

static tpw_status measure(bench *b, tpw_error *err)
{
    int32_t tokens = (int32_t)b->values->max_tokens;
    for (int i = 0; i < b->count; i++) {
        tpw_bench_sample ignored = {0};
        int32_t few = tokens < WARM_TOKENS ? tokens : WARM_TOKENS;
        if (i / b->checks.count % b->values->batch.count == 0) /* the first cell of its worker */
            TPW_TRY(run_cell(b, worker_of(b, i), &b->cells[i], 1, few, &ignored, err));
    }
    for (int64_t repeat = 0; repeat < b->values->repeat; repeat++) {
        for (int i = 0; i < b->count; i++) {
            tpw_bench_cell *cell = &b->cells[i];
            tpw_bench_sample sample = {0};
            TPW_TRY(run_cell(b, worker_of(b, i), cell, cell->batch, tokens, &sample, err));
            cell->samples[cell->count++] = sample;
            b->runs++;
            if (b->out->rank == 0)
                tpw_bench_compare(&b->reference, cell, b->tokens, b->digests);
        }
    }
    return TPW_OK;
}

/* Rank 0: do all cells agree? */
static tpw_status verdict(const bench *b, int64_t *compared, tpw_error *err)
{
    *compared = 0;
    for (int i = 0; i < b->count; i++)
        *compared += b->cells[i].compared;
    for (int i = 0; i < b->count; i++)
        if (b->cells[i].different > 0)
            return tpw_fail(err, TPW_ERR_DIVERGED,
                            "K = %d, batch %d, check %s: %lld of %lld sequences have other tokens or another digest "
                            "than in the first run that had them",
                            b->cells[i].k, b->cells[i].batch, b->cells[i].check, (long long)b->cells[i].different,
                            (long long)b->cells[i].compared);
    return TPW_OK;
}

/* Rank 0: what each check costs, where cells without any were measured, too. */
static tpw_status report_costs(const bench *b, tpw_error *err)
{
    for (int i = 0; i < b->checks.count; i++) {
        const char *check = b->checks.data[i].name;
        tpw_bench_cost cost;
        bool again = false;
        for (int j = 0; j < i; j++)
            again = again || strcmp(check, b->checks.data[j].name) == 0;
        if (again)
            continue;
        TPW_TRY(tpw_bench_compare_cost(b->cells, b->count, check, &cost, err));
        tpw_bench_say_cost(&b->out->people, &b->out->json, check, &cost);
    }
    return TPW_OK;
}

/* Rank 0: the table of what was measured, also of a part, and the verdict. */
static tpw_status report(bench *b, tpw_status st, tpw_error *err)
{
    tpw_sink *people = &b->out->people;
    tpw_sink *json = &b->out->json;
    bool titled = false;
    int64_t compared = 0;
    tpw_error own = {0};
    tpw_progress_end(&b->session.progress);
    for (int i = 0; i < b->count; i++) {
        tpw_bench_row row;
        if (b->cells[i].count == 0)
            continue;
        TPW_TRY(tpw_bench_evaluate(&b->cells[i], &row, err));
        if (!titled)
            tpw_bench_title(people);
        titled = true;
        tpw_bench_line(people, &b->cells[i], &row);
        tpw_bench_json(json, &b->cells[i], &row);
    }
    tpw_status agreed = verdict(b, &compared, &own);
    if (compared == 0)
        tpw_sink_printf(people, "digests  nothing to compare: no sequence was run twice\n");
    else
        tpw_sink_printf(people, "digests  %s (%lld sequences compared)\n",
                        agreed == TPW_OK ? "all cells agree" : "CELLS DIFFER", (long long)compared);
    TPW_TRY(report_costs(b, err));
    if (st == TPW_OK && agreed != TPW_OK) {
        *err = own;
        st = agreed;
    }
    if (json->fd >= 0)
        tpw_jsonl_push(json, json_pack("{s:s, s:i, s:s, s:i, s:i, s:i, s:I, s:o}", "type", "bench", "schema",
                                       TPW_JSONL_SCHEMA, "status", tpw_status_name(st), "exit", tpw_exit_code(st),
                                       "cells", b->count, "runs", b->runs, "compared", (json_int_t)compared, "agree",
                                       compared == 0 ? json_null() : json_boolean(agreed == TPW_OK)));
    tpw_session_drain(&b->session);
    return st;
}

static tpw_status finalize(bench *b, tpw_error *err)
{
    b->out->broken = true;
    for (int i = 0; i < worker_count(b); i++)
        TPW_TRY(tpw_worker_finalize(b->workers[i], err));
    b->out->broken = false;
    return TPW_OK;
}

static tpw_status together(bench *b, tpw_error *err)
{
    bool leader = b->out->rank == 0;
    b->batch_max = (int32_t)tpw_ints_max(&b->values->batch);
    TPW_TRY(tpw_values_checks(b->values, &b->checks, err)); /* was checked with the settings, the same on all ranks */
    TPW_TRY(tpw_session_agree(&b->session, tpw_session_prepare(&b->session, err), err));
    TPW_TRY(choose_k(b, err));
    TPW_TRY(tpw_session_agree(&b->session, make_cells(b, err), err));
    TPW_TRY(load(b, err));
    TPW_TRY(tpw_session_agree(&b->session, leader ? begin(b, err) : TPW_OK, err));
    tpw_status st = measure(b, err);
    if (b->out->broken)
        return st;
    tpw_status last = leader ? report(b, st, err) : st;
    st = tpw_session_agree(&b->session, last, err);
    return st == TPW_OK ? finalize(b, err) : st;
}

static void fini(bench *b)
{
    for (int i = 0; i < worker_count(b); i++)
        tpw_worker_destroy(b->workers[i]);
    for (int i = 0; i < b->count; i++)
        free(b->cells[i].samples);
    free(b->ids);
    free(b->tokens);
    free(b->digests);
    free(b->requests);
    free(b->reference.tokens.values);
    free(b->reference.digests.values);
    tpw_session_close(&b->session);
}

void tpw_cmd_bench(const tpw_values *values, tpw_outcome *out)
{
    bench b = {.values = values, .out = out};
    tpw_status st = tpw_session_open(&b.session, values, out, &out->error);
    if (st == TPW_OK)
        st = together(&b, &out->error);
    tpw_session_conclude(&b.session, st);
    if (!out->broken)
        fini(&b); /* else peers may still be inside of what this would free; the process ends anyway */
}
