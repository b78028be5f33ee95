/* Runs prompts through a worker: prepares on rank 0, agrees, steps, shows what comes out. SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "cli/fault.h"
#include "cli/jsonl.h"
#include "cli/metrics.h"
#include "cli/output.h"
#include "cli/prompts.h"
#include "cli/results.h"
#include "cli/stop.h"
#include "cli/summary.h"
#include "cli/tracer.h"
#include "cli/weights_file.h"
#include "tpworker/version.h"
#include "worker/worker.h"

#define DEMO_K 2 /* what a first run drafts, so that a newcomer sees acceptance */

/* All that a run holds. What is rank 0's is empty elsewhere. */
typedef struct run {
    tpw_session session;
    const tpw_values *values;
    tpw_outcome *out;
    int32_t k;
    tpw_worker *worker;
    tpw_model_info info;
    tpw_fault fault;
    json_t *weights; /* what --expect-weights holds */
    tpw_tracer tracer;
    /* rank 0 */
    tpw_prompts prompts;
    int64_t prompt_tokens; /* of all prompts */
    tpw_results results;
    tpw_stream stream;
    tpw_metrics_file metrics;
    size_t admitted;
    bool stopping;
    tpw_status own; /* what rank 0 alone found while stepping; it stops the run */
    tpw_error own_error;
    tpw_status traced; /* whether the trace is whole, and what is expected was there */
    tpw_error traced_error;
    int64_t decode_tokens;
    int64_t loop_ns;
} run;

static tpw_status read_prompts(run *r, tpw_error *err)
{
    const tpw_values *v = r->values;
    if (v->prompts)
        return tpw_prompts_read(v->prompts, (int32_t)v->max_tokens, &r->prompts, err);
    if (v->prompt.count > 0)
        return tpw_prompts_from_texts(&v->prompt, (int32_t)v->max_tokens, &r->prompts, err);
    return TPW_OK; /* the built-in ones: which, depends on the model */
}

static int32_t demo_tokens(const tpw_values *v)
{
    return v->source[TPW_SETTING_MAX_TOKENS] == TPW_SOURCE_DEFAULT ? TPW_DEMO_MAX_TOKENS : (int32_t)v->max_tokens;
}

static tpw_status encode_one(run *r, size_t index, tpw_error *err)
{
    tpw_prompt *p = &r->prompts.data[index];
    char where[300];
    size_t count = 0;
    tpw_prompt_where(&r->prompts, index, where, sizeof where);
    if (!r->session.tokenizer)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: the model has no tokenizer.json; give \"ids\" in a --prompts file",
                        where);
    tpw_status st = tpw_tokenizer_encode(r->session.tokenizer, p->text, p->text_bytes, &p->ids, &count, err);
    if (st != TPW_OK) {
        tpw_error_prefix(err, "%s", where);
        return st;
    }
    if (count == 0 || count > TPW_PROMPT_IDS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: the text gives %zu tokens; a prompt has 1..%d", where, count,
                        TPW_PROMPT_IDS_MAX);
    p->count = (int32_t)count;
    return TPW_OK;
}

/* Everything that rank 0 can find wrong before anybody spends time on weights. */
static tpw_status prepare(run *r, tpw_error *err)
{
    TPW_TRY(tpw_session_prepare(&r->session, err));
    if (r->values->fault)
        TPW_TRY(tpw_fault_parse(r->values->fault, &r->fault, err));
    if (r->out->rank != 0)
        return TPW_OK;
    if (r->values->expect_weights)
        TPW_TRY(tpw_weights_file_read(r->values->expect_weights, &r->weights, err));
    TPW_TRY(tpw_tracer_open(&r->tracer, r->values, err));
    TPW_TRY(read_prompts(r, err));
    if (r->prompts.count == 0 && r->session.tokenizer)
        TPW_TRY(tpw_prompts_demo(demo_tokens(r->values), &r->prompts, err));
    for (size_t i = 0; i < r->prompts.count; i++)
        if (r->prompts.data[i].text)
            TPW_TRY(encode_one(r, i, err));
    return TPW_OK;
}

/* Collective. K as set; a demonstration (nothing of model, prompts or K is set) drafts if the model can and the rows allow. */
static tpw_status choose_k(run *r, tpw_error *err)
{
    const tpw_values *v = r->values;
    bool mtp = false;
    r->k = (int32_t)v->k.data[0];
    if (v->source[TPW_SETTING_K] != TPW_SOURCE_DEFAULT || v->model || v->dummy || v->prompts || v->prompt.count > 0)
        return TPW_OK;
    TPW_TRY(tpw_session_find_mtp(&r->session, &mtp, err));
    int64_t fits = v->rows / v->batch.data[0] - 1;
    if (mtp)
        r->k = fits < DEMO_K ? (int32_t)fits : DEMO_K;
    return TPW_OK;
}

static tpw_status load(run *r, tpw_error *err)
{
    tpw_options options;
    TPW_TRY(choose_k(r, err));
    tpw_session_options(&r->session, &options);
    options.draft_max = r->k;
    options.weight_digests = r->values->expect_weights != NULL;
    if (tpw_tracer_wanted(r->values)) {
        options.trace = tpw_tracer_take;
        options.trace_data = &r->tracer;
        options.trace_every = (int32_t)r->values->trace_every;
    }
    return tpw_session_start(&r->session, &options, &r->worker, err);
}

/* A prompt that can never run is said with its place before the first one runs. */
static tpw_status check_prompt(const run *r, size_t index, const tpw_stats *stats, tpw_error *err)
{
    const tpw_prompt *p = &r->prompts.data[index];
    char where[300];
    int64_t length = (int64_t)p->count + p->max_tokens;
    int64_t pages = (length + r->k + r->values->page - 1) / r->values->page;
    tpw_prompt_where(&r->prompts, index, where, sizeof where);
    for (int32_t i = 0; i < p->count; i++)
        if (p->ids[i] >= r->info.vocab)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: token %d at place %d is not in the vocabulary of %d", where,
                            p->ids[i], i, r->info.vocab);
    if (length > r->info.context_max)
        return tpw_fail(err, TPW_ERR_LIMIT,
                        "%s: %d prompt and %d output tokens exceed the context of %d (see --context)", where, p->count,
                        p->max_tokens, r->info.context_max);
    if (pages > stats->pages_total)
        return tpw_fail(err, TPW_ERR_LIMIT, "%s: needs %lld KV pages, there are %d (see --pages)", where,
                        (long long)pages, stats->pages_total);
    return TPW_OK;
}

/* Renews the metrics file; at a failure the run goes on. */
static void write_metrics(run *r)
{
    tpw_metrics m = {.slots_total = (int32_t)r->values->batch.data[0],
                     .size = r->out->size,
                     .model = r->info.name,
                     .version = TPW_VERSION};
    if (!r->metrics.path)
        return;
    tpw_worker_stats(r->worker, &m.stats);
    for (size_t i = 0; i < r->results.count; i++)
        if (r->results.data[i].finished)
            m.finished[r->results.data[i].finish]++;
    tpw_metrics_file_write(&r->metrics, &m);
    if (r->metrics.status != TPW_OK && !r->metrics.warned) {
        tpw_log_line(&r->session.log, TPW_LOG_WARN, "%s; the run goes on", r->metrics.error.text);
        r->metrics.warned = true;
    }
}

static uint64_t prompts_digest(const tpw_prompts *prompts)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < prompts->count; i++)
        sum += tpw_digest_block(tpw_digest_key("prompts"), prompts->data[i].ids, TPW_I32, 1, prompts->data[i].count, 0,
                                (uint64_t)i << 32, 0);
    return sum;
}

/* What a trace says of the run before its records. */
static tpw_trace_head trace_head(const run *r)
{
    tpw_trace_head head = {.ranks = r->out->size,
                           .k = r->k,
                           .model_digest = tpw_config_digest(&r->worker->config),
                           .prompts = (int64_t)r->prompts.count,
                           .prompts_digest = prompts_digest(&r->prompts)};
    tpw_values_choice(r->values, TPW_SETTING_COMPUTE, head.compute, sizeof head.compute);
    snprintf(head.drafter, sizeof head.drafter, "%s", r->k > 0 ? "mtp" : "none");
    snprintf(head.model, sizeof head.model, "%s", r->info.name);
    return head;
}

static tpw_status check_weights(const run *r, tpw_error *err)
{
    const tpw_weight_digest *list;
    int32_t count;
    tpw_worker_weight_digests(r->worker, &list, &count);
    return tpw_weights_compare(r->values->expect_weights, r->weights, list, count, err);
}

/* Rank 0, after loading: the last checks, then the head of the output. */
static tpw_status begin(run *r, tpw_error *err)
{
    tpw_stats stats;
    tpw_worker_stats(r->worker, &stats);
    if (r->weights)
        TPW_TRY(check_weights(r, err));
    if (r->prompts.count == 0)
        TPW_TRY(tpw_prompts_demo_ids(r->info.vocab, demo_tokens(r->values), &r->prompts, err));
    for (size_t i = 0; i < r->prompts.count; i++) {
        TPW_TRY(check_prompt(r, i, &stats, err));
        r->prompt_tokens += r->prompts.data[i].count;
    }
    TPW_TRY(tpw_results_init(&r->results, r->prompts.count, r->session.tokenizer, err));
    const tpw_trace_head head = trace_head(r);
    TPW_TRY(tpw_tracer_begin(&r->tracer, &head, err));
    if (!r->values->quiet) {
        tpw_output_ranks(&r->out->people, r->session.ranks, r->out->size);
        tpw_output_model(&r->out->people, &r->info);
    }
    tpw_jsonl_run(&r->out->json, r->values, &r->info, r->session.ranks, r->out->size);
    r->metrics.path = r->values->metrics_file;
    write_metrics(r);
    return TPW_OK;
}

static void note_own(run *r, tpw_status st, const tpw_error *err)
{
    if (r->own == TPW_OK) {
        r->own = st;
        r->own_error = *err;
    }
}

/* Rank 0 keeps more sequences with the worker than run at once, so that one always waits until the last has been
 * admitted: the worker counts as busy as long as prompts are left. Not all of them, since each is copied. */
static tpw_status admit(run *r, tpw_error *err)
{
    size_t ahead = 2 * (size_t)r->values->batch.data[0];
    while (r->admitted < r->prompts.count && r->admitted - r->results.finished < ahead) {
        const tpw_prompt *p = &r->prompts.data[r->admitted];
        tpw_request request = {.size = sizeof request,
                               .id = r->admitted,
                               .ids = p->ids,
                               .count = p->count,
                               .max_tokens = p->max_tokens,
                               .ignore_eos = r->values->ignore_eos};
        TPW_TRY(tpw_worker_admit(r->worker, &request, err));
        r->admitted++;
    }
    return TPW_OK;
}

static tpw_status lead(run *r, tpw_error *err)
{
    if (r->stopping)
        return TPW_OK;
    if (tpw_stop_signal() == 0 && !tpw_session_reader_gone(&r->session) && r->own == TPW_OK) {
        tpw_error own = {0};
        tpw_status st = admit(r, &own);
        if (st == TPW_OK)
            return TPW_OK;
        note_own(r, st, &own);
    }
    r->stopping = true;
    return tpw_worker_stop(r->worker, err);
}

static void take_events(run *r, bool decode_only)
{
    tpw_event event;
    while (tpw_worker_poll(r->worker, &event)) {
        if (r->out->rank != 0)
            continue;
        tpw_error own = {0};
        tpw_status st = tpw_results_take(&r->results, &event, &own);
        if (st != TPW_OK)
            note_own(r, st, &own);
        else if (event.type == TPW_EVENT_FINISHED)
            tpw_jsonl_result(&r->out->json, &r->prompts, &r->results, event.id, r->values->digests);
        else if (decode_only)
            r->decode_tokens++;
    }
}

static void show(run *r, bool last)
{
    size_t queued = r->out->people.bytes;
    tpw_output_stream(&r->out->people, &r->stream, &r->prompts, &r->results, r->session.terminal, last);
    if (r->out->people.bytes > queued)
        tpw_progress_rest(&r->session.progress);
    tpw_sink_flush(&r->out->people);
    tpw_sink_flush(&r->out->json);
    tpw_sink_flush(&r->tracer.sink);
}

/* While there is no text to show: a long prompt, or text that goes elsewhere. */
static void show_progress(run *r, const tpw_stats *s)
{
    if (r->values->quiet || r->stream.opened)
        return; /* a text stands unfinished on the line */
    tpw_progress_say(&r->session.progress,
                     "step %lld, %lld of %lld prompt tokens, %lld output tokens, %zu of %zu prompts finished",
                     (long long)s->steps, (long long)s->prompt_tokens, (long long)r->prompt_tokens,
                     (long long)s->output_tokens, r->results.finished, r->results.count);
}

static tpw_status step_all(run *r, tpw_error *err)
{
    bool leader = r->out->rank == 0;
    bool busy = true;
    tpw_stats before;
    tpw_stats after;
    int64_t begin_ns = tpw_clock_ns();
    tpw_worker_stats(r->worker, &before);
    while (busy) {
        if (leader)
            TPW_TRY(lead(r, err));
        TPW_TRY(tpw_fault_before_step(&r->fault, err));
        TPW_TRY(tpw_worker_step(r->worker, &busy, err));
        tpw_worker_stats(r->worker, &after);
        r->out->step = after.steps;
        take_events(r, after.prefill_ns == before.prefill_ns);
        before = after;
        if (leader) {
            show(r, false);
            show_progress(r, &after);
            if (tpw_metrics_file_due(&r->metrics))
                write_metrics(r);
        }
    }
    r->loop_ns = tpw_clock_ns() - begin_ns;
    return TPW_OK;
}

/* Why rank 0 did not do all it was asked for. */
static tpw_status verdict(run *r, tpw_error *err)
{
    if (r->own != TPW_OK) {
        *err = r->own_error;
        return r->own;
    }
    TPW_TRY(tpw_session_reader_gone(&r->session) ? tpw_sink_drain(&r->out->people, 0, err) : TPW_OK);
    TPW_TRY(tpw_sink_drain(&r->out->json, 0, err));
    if (r->traced != TPW_OK) {
        *err = r->traced_error;
        return r->traced;
    }
    if (r->metrics.status != TPW_OK) {
        *err = r->metrics.error;
        return r->metrics.status;
    }
    if (r->stopping && r->results.finished < r->prompts.count)
        return tpw_fail(err, TPW_ERR_STOPPED, "stopped by %s after step %lld: %zu of %zu prompts finished",
                        tpw_session_signal_name(), (long long)r->out->step, r->results.finished, r->prompts.count);
    return TPW_OK;
}

static void summarize(const run *r, tpw_summary *s)
{
    *s = (tpw_summary){.prompts = r->prompts.count,
                       .finished = r->results.finished,
                       .k = r->k,
                       .decode_tokens = r->decode_tokens,
                       .seconds = (double)r->loop_ns * 1e-9,
                       .digest = tpw_results_digest(&r->results),
                       .ranks = r->session.ranks,
                       .size = r->out->size};
    tpw_worker_stats(r->worker, &s->stats);
    for (size_t i = 0; i < r->results.count; i++)
        s->digested += r->results.data[i].digest_count > 0;
}

/* Rank 0: the rest of the output, partial results included, and its verdict. */
static tpw_status end(run *r, tpw_error *err)
{
    tpw_summary summary;
    show(r, true);
    tpw_progress_end(&r->session.progress);
    for (size_t i = 0; i < r->results.count; i++)
        if (!r->results.data[i].finished)
            tpw_jsonl_result(&r->out->json, &r->prompts, &r->results, i, r->values->digests);
    write_metrics(r);
    r->traced = tpw_tracer_end(&r->tracer, &r->traced_error);
    if (r->stopping && r->traced == TPW_ERR_ARGUMENT)
        r->traced = TPW_OK; /* stopped before there was anything to compare */
    summarize(r, &summary);
    if (!r->values->quiet) {
        tpw_tracer_say(&r->tracer, &r->out->people);
        tpw_output_summary(&r->out->people, &summary);
    }
    tpw_error ignored;
    tpw_jsonl_summary(&r->out->json, &summary, verdict(r, &ignored));
    tpw_session_drain(&r->session);
    return verdict(r, err);
}

static tpw_status together(run *r, tpw_error *err)
{
    bool leader = r->out->rank == 0;
    TPW_TRY(tpw_session_agree(&r->session, prepare(r, err), err));
    TPW_TRY(load(r, err));
    tpw_worker_model_info(r->worker, &r->info);
    tpw_status st = tpw_session_ranks(&r->session, r->worker, err);
    if (st == TPW_OK && r->values->fault)
        st = tpw_fault_attach(&r->fault, r->worker, err);
    TPW_TRY(tpw_session_agree(&r->session, st != TPW_OK || !leader ? st : begin(r, err), err));
    /* from here on a failure of one rank leaves the others where they are */
    r->out->broken = true;
    TPW_TRY(step_all(r, err));
    TPW_TRY(tpw_worker_finalize(r->worker, err));
    r->out->broken = false;
    st = tpw_session_ranks(&r->session, r->worker, err);
    return tpw_session_agree(&r->session, st != TPW_OK || !leader ? st : end(r, err), err);
}

/* What there is, before the process ends. */
static void show_rest(run *r)
{
    show(r, true);
    if (r->tracer.objected)
        tpw_tracer_say(&r->tracer, &r->out->people);
    tpw_sink_flush(&r->out->people);
}

static void fini(run *r)
{
    tpw_worker_destroy(r->worker);
    tpw_results_fini(&r->results);
    tpw_prompts_fini(&r->prompts);
    tpw_tracer_fini(&r->tracer);
    json_decref(r->weights);
    tpw_session_close(&r->session);
}

void tpw_cmd_run(const tpw_values *values, tpw_outcome *out)
{
    run r = {.values = values, .out = out};
    tpw_tracer_init(&r.tracer);
    tpw_status st = tpw_session_open(&r.session, values, out, &out->error);
    if (st == TPW_OK)
        st = together(&r, &out->error);
    if (st != TPW_OK && r.worker)
        tpw_session_keep_ring(&r.session, r.worker);
    tpw_session_conclude(&r.session, st);
    if (out->broken && st != TPW_OK && r.results.data)
        show_rest(&r);
    if (!out->broken)
        fini(&r); /* else peers may still be inside of what this would free; the process ends anyway */
}
