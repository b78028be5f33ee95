/* Runs the cells of the matrix one by one, each with a worker of its own on as many ranks as it wants.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "cli/exit.h"
#include "cli/jsonl.h"
#include "cli/metrics.h"
#include "cli/trial.h"
#include "cli/verify.h"

#define SEQUENCES   8
#define PROMPT_MAX  96
#define OUTPUT_MAX  24
#define PATIENCE_MS ((int64_t)24 * 3600 * 1000) /* of ranks that have nothing to do in a cell */

static const int32_t lengths[SEQUENCES] = {33, 3, 64, 17, PROMPT_MAX, 5, 48, 21};
static const int32_t outputs[SEQUENCES] = {12, OUTPUT_MAX, 9, 17, 11, 20, 13, 16};

/* What the oracle knows, and what every drafter may propose. */
typedef struct drafting {
    tpw_cell_drafter kind;
    int32_t vocab;
    int32_t truth[SEQUENCES][OUTPUT_MAX];
} drafting;

typedef struct verifying {
    tpw_session session;
    const tpw_values *values;
    tpw_outcome *out;
    tpw_cell *cells;
    int count;
    drafting drafting;
    int done;
    int64_t different;
    /* rank 0 */
    int32_t *ids; /* [SEQUENCES, PROMPT_MAX] */
    tpw_request requests[SEQUENCES];
    tpw_cell_result *results; /* [count] */
    tpw_results reference;
    tpw_results drafts[TPW_K_MAX + 1]; /* of the first cell with the MTP drafter and this K */
} verifying;

/* A tpw_draft_function. */
static int32_t propose(void *data, uint64_t id, const int32_t *tokens, int32_t count, int32_t k, int32_t *drafts)
{
    const drafting *d = data;
    int32_t done = count - lengths[id];
    (void)tokens;
    for (int32_t i = 0; i < k; i++) {
        if (d->kind == TPW_CELL_ORACLE && done + i >= outputs[id])
            return i;
        drafts[i] = d->kind == TPW_CELL_ORACLE
                        ? d->truth[id][done + i]
                        : (int32_t)(tpw_digest_term(4711 + id, (uint64_t)count, (uint64_t)i) % (uint64_t)d->vocab);
    }
    return k;
}

static void set_options(verifying *v, const tpw_cell *cell, tpw_options *o)
{
    tpw_session_options(&v->session, o);
    o->sequences_max = cell->batch;
    o->draft_max = cell->k;
    if (o->rows_max < cell->batch * (cell->k + 1))
        o->rows_max = cell->batch * (cell->k + 1);
    o->chunk = cell->chunk > 0 ? cell->chunk : PROMPT_MAX;
    if (cell->chunk == 0 && o->rows_max < PROMPT_MAX)
        o->rows_max = PROMPT_MAX;
    o->page_size = cell->page;
    o->pages = 0;
    o->context_max = PROMPT_MAX + OUTPUT_MAX;
    o->check = TPW_CHECK_STEP;
    o->progress = NULL;
    if (cell->k > 0 && cell->drafter != TPW_CELL_MTP) {
        v->drafting.kind = cell->drafter;
        o->drafter = propose;
        o->drafter_data = &v->drafting;
    }
}

/* Rank 0, when the vocabulary is known. */
static tpw_status make_requests(verifying *v, tpw_error *err)
{
    TPW_TRY(tpw_trial_prompts(&v->session, v->drafting.vocab, SEQUENCES, PROMPT_MAX, &v->ids, err));
    for (int i = 0; i < SEQUENCES; i++)
        v->requests[i] = (tpw_request){.size = sizeof v->requests[i],
                                       .id = (uint64_t)i,
                                       .ids = v->ids + (size_t)i * PROMPT_MAX,
                                       .count = lengths[i],
                                       .max_tokens = outputs[i],
                                       .ignore_eos = true};
    return TPW_OK;
}

static void say_progress(void *data, const tpw_trial *t)
{
    verifying *v = data;
    if (!v->values->quiet)
        tpw_progress_say(&v->session.progress, "verify, cell %d of %d: %zu of %d sequences finished", v->done + 1,
                         v->count, t->results.finished, t->count);
}

/* Collective over the ranks of the cell: the whole life of its worker. */
static tpw_status run_inside(verifying *v, const tpw_cell *cell, tpw_results *results, tpw_error *err)
{
    tpw_options options;
    tpw_model_info info;
    tpw_worker *worker = NULL;
    tpw_trial t = {
        .session = &v->session, .requests = v->requests, .count = SEQUENCES, .before = say_progress, .data = v};
    bool leader = v->out->rank == 0;
    set_options(v, cell, &options);
    tpw_status st = tpw_session_start_group(&v->session, &options, cell->tp, &worker, err);
    if (st == TPW_OK && leader && !v->ids) {
        tpw_worker_model_info(worker, &info);
        v->drafting.vocab = info.vocab;
        st = make_requests(v, err);
    }
    t.worker = worker;
    if (st == TPW_OK)
        st = tpw_trial_run(&t, err);
    if (st == TPW_OK && cell->tp > 1) {
        v->out->broken = true;
        st = tpw_worker_finalize(worker, err);
        v->out->broken = st != TPW_OK;
    }
    if (st != TPW_OK && v->out->broken)
        tpw_session_keep_ring(&v->session, worker);
    if (!v->out->broken || st == TPW_ERR_DIVERGED)
        tpw_worker_destroy(worker);
    *results = t.results; /* the caller's now */
    return st;
}

/* Collective over all ranks, of which the first run the cell. Ranks that disagree inside of it are a finding, not an end. */
static tpw_status run_cell(verifying *v, const tpw_cell *cell, tpw_results *results, tpw_error *err)
{
    tpw_status st = TPW_OK;
    *results = (tpw_results){0};
    if (v->out->rank < cell->tp)
        st = run_inside(v, cell, results, err);
    if (v->out->broken && st != TPW_ERR_DIVERGED)
        return st;
    v->out->broken = false;
    return tpw_session_agree(&v->session, st, err);
}

/* Collective. The oracle and the random drafter must propose the same on all ranks. */
static tpw_status share_truth(verifying *v, tpw_error *err)
{
    if (v->out->rank == 0)
        for (int i = 0; i < SEQUENCES; i++)
            memcpy(v->drafting.truth[i], v->reference.data[i].ids, (size_t)outputs[i] * sizeof(int32_t));
    return v->session.boot->ops->broadcast(v->session.boot, &v->drafting, sizeof v->drafting, 0, err);
}

static void say(verifying *v, const tpw_cell_result *r)
{
    char name[TPW_CELL_NAME_MAX];
    tpw_cell_name(&r->cell, name);
    tpw_progress_rest(&v->session.progress);
    if (!v->values->quiet || r->different)
        tpw_sink_printf(&v->out->people, "%-52s %7lld %8lld  %s\n", name, (long long)r->tokens, (long long)r->digests,
                        v->done == 0 && !r->different ? "reference"
                        : r->different                ? r->text
                                                      : "equal");
    if (v->out->json.fd >= 0)
        tpw_jsonl_push(&v->out->json,
                       json_pack("{s:s, s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:I, s:I, s:b, s:o, s:f}", "type",
                                 "verify_cell", "schema", TPW_JSONL_SCHEMA, "name", name, "tp", r->cell.tp, "k",
                                 r->cell.k, "batch", r->cell.batch, "chunk", r->cell.chunk, "page", r->cell.page,
                                 "drafter", tpw_cell_drafter_name(&r->cell), "tokens", (json_int_t)r->tokens, "digests",
                                 (json_int_t)r->digests, "equal", !r->different, "difference",
                                 r->different ? tpw_json_text(r->text, strlen(r->text)) : json_null(), "seconds",
                                 (double)r->nanoseconds * 1e-9));
    tpw_sink_flush(&v->out->people);
    tpw_sink_flush(&v->out->json);
}

/* Rank 0. Takes over the results of a cell. */
static void judge(verifying *v, tpw_results *now, const tpw_error *inside, tpw_cell_result *r)
{
    bool mtp = r->cell.k > 0 && r->cell.drafter == TPW_CELL_MTP;
    tpw_results *drafts = &v->drafts[r->cell.k];
    if (inside) {
        r->different = true;
        snprintf(r->text, sizeof r->text, "%.190s", inside->text);
    } else if (v->done > 0) {
        tpw_cell_compare(&v->reference, mtp && drafts->count > 0 ? drafts : NULL, now, r);
    }
    v->different += r->different;
    if (v->done == 0)
        v->reference = *now;
    else if (mtp && drafts->count == 0 && !r->different)
        *drafts = *now;
    else
        tpw_results_fini(now);
    say(v, r);
}

static tpw_status run_all(verifying *v, tpw_error *err)
{
    for (v->done = 0; v->done < v->count; v->done++) {
        tpw_results now;
        int64_t begin_ns = tpw_clock_ns();
        tpw_status st = run_cell(v, &v->cells[v->done], &now, err);
        bool apart = st == TPW_ERR_DIVERGED && v->done > 0;
        if (st != TPW_OK && !apart) {
            tpw_results_fini(&now);
            return st;
        }
        if (v->out->rank == 0) {
            tpw_cell_result *r = &v->results[v->done];
            r->cell = v->cells[v->done];
            r->nanoseconds = tpw_clock_ns() - begin_ns;
            judge(v, &now, apart ? err : NULL, r);
        }
        if (v->done == 0)
            TPW_TRY(share_truth(v, err));
    }
    return TPW_OK;
}

/* Rank 0. */
static tpw_status write_junit(const verifying *v, tpw_error *err)
{
    if (!v->values->junit)
        return TPW_OK;
    char *text = tpw_cells_junit(v->results, v->done);
    if (!text)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for the report", v->values->junit);
    tpw_status st = tpw_metrics_replace(v->values->junit, text, err);
    free(text);
    return st;
}

/* Rank 0. */
static tpw_status verdict(const verifying *v, int64_t compared, tpw_error *err)
{
    for (int i = 0; i < v->done; i++) {
        char name[TPW_CELL_NAME_MAX];
        if (!v->results[i].different)
            continue;
        tpw_cell_name(&v->cells[i], name);
        return tpw_fail(err, TPW_ERR_DIVERGED, "verify: %lld of %d cells differ; first: %s: %s",
                        (long long)v->different, v->done, name, v->results[i].text);
    }
    if (compared == 0)
        return tpw_fail(err, TPW_ERR_INTERNAL, "verify: nothing was compared");
    return TPW_OK;
}

/* Rank 0: what there is, also of a part. */
static tpw_status report(verifying *v, tpw_status st, tpw_error *err)
{
    int64_t tokens = 0;
    int64_t digests = 0;
    tpw_error own = {0};
    tpw_progress_end(&v->session.progress);
    for (int i = 0; i < v->done; i++) {
        tokens += v->results[i].tokens;
        digests += v->results[i].digests;
    }
    tpw_status agreed = verdict(v, tokens + digests, st == TPW_OK ? err : &own);
    if (st == TPW_OK)
        st = agreed;
    tpw_sink_printf(&v->out->people, "%d cells, %lld tokens and %lld digests compared: %s\n", v->done,
                    (long long)tokens, (long long)digests,
                    v->different > 0        ? "CELLS DIFFER"
                    : tokens + digests == 0 ? "nothing to compare"
                                            : "all equal");
    if (v->out->json.fd >= 0)
        tpw_jsonl_push(&v->out->json,
                       json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:I, s:I, s:I}", "type", "verdict", "schema",
                                 TPW_JSONL_SCHEMA, "command", "verify", "status", tpw_status_name(st), "exit",
                                 tpw_exit_code(st), "cells", v->done, "tokens", (json_int_t)tokens, "digests",
                                 (json_int_t)digests, "different", (json_int_t)v->different));
    tpw_session_drain(&v->session);
    tpw_status written = write_junit(v, &own);
    if (st == TPW_OK && written != TPW_OK) {
        *err = own;
        st = written;
    }
    return st;
}

static tpw_status prepare(verifying *v, tpw_error *err)
{
    TPW_TRY(tpw_session_prepare(&v->session, err));
    v->session.boot->timeout_ms = PATIENCE_MS; /* a rank that is lost meanwhile ends the job by itself */
    return TPW_OK;
}

static tpw_status make_cells(verifying *v, tpw_error *err)
{
    tpw_cell_space space = {.ranks = v->out->size};
    TPW_TRY(tpw_session_find_mtp(&v->session, &space.mtp, err));
    v->cells = tpw_cells_make(&space, v->values->quick ? 0 : v->values->cells, (uint64_t)v->values->seed, &v->count);
    v->results = v->cells ? calloc((size_t)v->count, sizeof *v->results) : NULL;
    return tpw_session_agree(
        &v->session, v->results ? TPW_OK : tpw_fail(err, TPW_ERR_MEMORY, "no memory for the cells of verify"), err);
}

static tpw_status together(verifying *v, tpw_error *err)
{
    bool leader = v->out->rank == 0;
    TPW_TRY(tpw_session_agree(&v->session, prepare(v, err), err));
    TPW_TRY(make_cells(v, err));
    if (leader && !v->values->quiet)
        tpw_sink_printf(&v->out->people, "verify   %d cells of %d sequences, compared with the first\n%-52s %7s %8s\n",
                        v->count, SEQUENCES, "cell", "tokens", "digests");
    tpw_status st = run_all(v, err);
    if (v->out->broken)
        return st;
    return tpw_session_agree(&v->session, leader ? report(v, st, err) : st, err);
}

void tpw_cmd_verify(const tpw_values *values, tpw_outcome *out)
{
    verifying v = {.values = values, .out = out};
    tpw_status st = tpw_session_open(&v.session, values, out, &out->error);
    if (st == TPW_OK)
        st = together(&v, &out->error);
    tpw_session_conclude(&v.session, st);
    if (out->broken)
        return; /* peers may still be inside of what this would free; the process ends anyway */
    free(v.cells);
    free(v.results);
    free(v.ids);
    tpw_results_fini(&v.reference);
    for (int k = 0; k <= TPW_K_MAX; k++)
        tpw_results_fini(&v.drafts[k]);
    tpw_session_close(&v.session);
}
