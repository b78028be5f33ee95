/* Runs prompts through a worker: prepares on rank 0, agrees, steps, shows what comes out. SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/jsonl.h"
#include "cli/model_path.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/prompts.h"
#include "cli/results.h"
#include "cli/stop.h"
#include "cli/summary.h"
#include "tp/agree.h"
#include "tp/boot_mpi.h"
#include "tpworker/mpi.h"

#define DRAIN_WAIT_MS 1000 /* for readers that are only a little behind; peers wait meanwhile */

/* All that a run holds. What is rank 0's is empty elsewhere. */
typedef struct run {
    const tpw_values *values;
    tpw_outcome *out;
    const char *model; /* folder, NULL with a dummy */
    tpw_boot *boot;
    tpw_worker *worker;
    tpw_log log;
    tpw_progress progress;
    tpw_model_info info;
    tpw_rank_info *ranks; /* [size] */
    /* rank 0 */
    tpw_tokenizer *tokenizer;
    tpw_prompts prompts;
    tpw_results results;
    tpw_stream stream;
    bool terminal;
    size_t admitted;
    bool stopping;
    tpw_status own; /* what rank 0 alone found while stepping; it stops the run */
    tpw_error own_error;
    int64_t decode_tokens;
    int64_t loop_ns;
} run;

static const char *get_environment(const char *name)
{
    return getenv(name);
}

/* All ranks take the worst status. Rank 0 keeps its own words: "rank 0 (host):" tells nobody anything there. */
static tpw_status agree(run *r, tpw_status mine, tpw_error *err)
{
    tpw_error own = *err;
    tpw_status st = tpw_agree_status(r->boot, mine, err);
    if (st != TPW_OK && st == mine && r->boot->rank == 0)
        *err = own;
    return st;
}

/* One name on all ranks, also where the launcher gave none. */
static tpw_status name_job(run *r, tpw_error *err)
{
    char *job = r->out->job;
    tpw_launcher_job(get_environment, job);
    if (job[0] == '\0')
        snprintf(job, TPW_JOB_NAME_MAX, "%lld", (long long)getpid());
    return r->boot->ops->broadcast(r->boot, job, TPW_JOB_NAME_MAX, 0, err);
}

static void log_line(void *data, int level, const char *line)
{
    tpw_log_line(data, (tpw_log_level)level, "%s", line);
}

static void open_log(run *r)
{
    r->log = (tpw_log){.sink = tpw_log_to_fd,
                       .data = (void *)(intptr_t)STDERR_FILENO,
                       .level = (tpw_log_level)r->values->log_level,
                       .prefix = r->boot->size > 1 && r->values->log_prefix == TPW_LOG_PREFIX_AUTO,
                       .rank = r->boot->rank};
    memcpy(r->log.host, r->boot->host, sizeof r->log.host);
}

/* mpirun gives every rank a terminal of its own as standard output, whatever its own output is; only standard error tells. */
static bool on_terminal(int fd)
{
    return isatty(fd) && isatty(STDERR_FILENO);
}

/* Text for people goes to standard output, unless JSON has it. */
static tpw_status open_sinks(run *r, tpw_error *err)
{
    const tpw_values *v = r->values;
    bool json_out = v->json && strcmp(v->json, "-") == 0;
    int fd = json_out ? STDERR_FILENO : STDOUT_FILENO;
    if (!(v->quiet && v->json))
        tpw_sink_init_fd(&r->out->people, fd, json_out ? "standard error" : "standard output");
    r->terminal = on_terminal(fd);
    if (json_out)
        tpw_sink_init_fd(&r->out->json, STDOUT_FILENO, "standard output");
    else if (v->json)
        return tpw_sink_init_file(&r->out->json, v->json, err);
    return TPW_OK;
}

static tpw_status find_model(run *r, tpw_error *err)
{
    if (r->values->dummy)
        return TPW_OK;
    r->model = r->values->model;
    return r->model ? TPW_OK : tpw_model_path_pocket(&r->model, err);
}

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
    if (!r->tokenizer)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: the model has no tokenizer.json; give \"ids\" in a --prompts file",
                        where);
    tpw_status st = tpw_tokenizer_encode(r->tokenizer, p->text, p->text_bytes, &p->ids, &count, err);
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
    TPW_TRY(open_sinks(r, err));
    TPW_TRY(read_prompts(r, err));
    if (r->model) {
        TPW_TRY(tpw_model_path_check(r->model, err));
        tpw_status st = tpw_tokenizer_load(r->model, &r->tokenizer, err);
        if (st != TPW_OK && st != TPW_ERR_MISSING)
            return st;
    }
    if (r->prompts.count == 0 && r->tokenizer)
        TPW_TRY(tpw_prompts_demo(demo_tokens(r->values), &r->prompts, err));
    for (size_t i = 0; i < r->prompts.count; i++)
        if (r->prompts.data[i].text)
            TPW_TRY(encode_one(r, i, err));
    return TPW_OK;
}

static void fill_options(run *r, char isa[32], tpw_options *o)
{
    const tpw_values *v = r->values;
    tpw_options_init(o);
    tpw_values_choice(v, TPW_SETTING_ISA, isa, 32);
    o->model = r->model;
    o->dummy = v->dummy;
    o->dummy_layers = (int32_t)v->layers;
    o->dummy_vocab = (int32_t)v->vocab;
    o->compute = (tpw_compute)v->compute;
    o->sequences_max = (int32_t)v->batch;
    o->rows_max = (int32_t)v->rows;
    o->chunk = (int32_t)v->chunk;
    o->page_size = (int32_t)v->page;
    o->pages = (int32_t)v->pages;
    o->context_max = (int32_t)v->context;
    o->timeout_ms = (int64_t)(v->timeout * 1000.0 + 0.5);
    o->isa = isa;
    o->binding = (tpw_binding_mode)v->bind;
    o->log = log_line;
    o->log_data = &r->log;
    o->log_level = v->log_level;
    if (r->boot->rank == 0 && !v->quiet) {
        o->progress = tpw_progress_show;
        o->progress_data = &r->progress;
    }
}

static tpw_status load(run *r, tpw_error *err)
{
    char isa[32];
    tpw_options options;
    fill_options(r, isa, &options);
    TPW_TRY(tpw_worker_create(&options, MPI_COMM_WORLD, &r->worker, err));
    tpw_progress_init(&r->progress, STDERR_FILENO, isatty(STDERR_FILENO));
    tpw_status st = tpw_worker_load(r->worker, err);
    tpw_progress_end(&r->progress);
    return st;
}

static tpw_status read_ranks(run *r, tpw_error *err)
{
    for (int i = 0; i < r->boot->size; i++)
        TPW_TRY(tpw_worker_rank_info(r->worker, i, &r->ranks[i], err));
    return TPW_OK;
}

/* A prompt that can never run is said with its place before the first one runs. */
static tpw_status check_prompt(const run *r, size_t index, const tpw_stats *stats, tpw_error *err)
{
    const tpw_prompt *p = &r->prompts.data[index];
    char where[300];
    int64_t length = (int64_t)p->count + p->max_tokens;
    int64_t pages = (length + r->values->page - 1) / r->values->page;
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

/* Rank 0, after loading: the last checks, then the head of the output. */
static tpw_status begin(run *r, tpw_error *err)
{
    tpw_stats stats;
    tpw_worker_stats(r->worker, &stats);
    if (r->prompts.count == 0)
        TPW_TRY(tpw_prompts_demo_ids(r->info.vocab, demo_tokens(r->values), &r->prompts, err));
    for (size_t i = 0; i < r->prompts.count; i++)
        TPW_TRY(check_prompt(r, i, &stats, err));
    TPW_TRY(tpw_results_init(&r->results, r->prompts.count, r->tokenizer, err));
    if (!r->values->quiet) {
        tpw_output_ranks(&r->out->people, r->ranks, r->boot->size);
        tpw_output_model(&r->out->people, &r->info);
    }
    tpw_jsonl_run(&r->out->json, r->values, &r->info, r->ranks, r->boot->size);
    return TPW_OK;
}

static void note_own(run *r, tpw_status st, const tpw_error *err)
{
    if (r->own == TPW_OK) {
        r->own = st;
        r->own_error = *err;
    }
}

/* Nobody reads any more: going on would be work for nothing. A file that cannot be written is no reason to stop. */
static bool reader_gone(const run *r)
{
    const tpw_sink *people = &r->out->people;
    const tpw_sink *json = &r->out->json;
    return (people->fd == STDOUT_FILENO && people->error != 0) || (json->fd == STDOUT_FILENO && json->error != 0);
}

/* Rank 0 keeps more sequences with the worker than run at once, so that one always waits until the last has been
 * admitted: the worker counts as busy as long as prompts are left. Not all of them, since each is copied. */
static tpw_status admit(run *r, tpw_error *err)
{
    size_t ahead = 2 * (size_t)r->values->batch;
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
    if (tpw_stop_signal() == 0 && !reader_gone(r) && r->own == TPW_OK) {
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
        if (r->boot->rank != 0)
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
    tpw_output_stream(&r->out->people, &r->stream, &r->prompts, &r->results, r->terminal, last);
    tpw_sink_flush(&r->out->people);
    tpw_sink_flush(&r->out->json);
}

static tpw_status step_all(run *r, tpw_error *err)
{
    bool leader = r->boot->rank == 0;
    bool busy = true;
    tpw_stats before;
    tpw_stats after;
    int64_t begin_ns = tpw_clock_ns();
    tpw_worker_stats(r->worker, &before);
    while (busy) {
        if (leader)
            TPW_TRY(lead(r, err));
        TPW_TRY(tpw_worker_step(r->worker, &busy, err));
        tpw_worker_stats(r->worker, &after);
        r->out->step = after.steps;
        take_events(r, after.prefill_ns == before.prefill_ns);
        before = after;
        if (leader)
            show(r, false);
    }
    r->loop_ns = tpw_clock_ns() - begin_ns;
    return TPW_OK;
}

/* Why rank 0 did not do all it was asked for. */
static tpw_status verdict(run *r, tpw_error *err)
{
    int number = tpw_stop_signal();
    if (r->own != TPW_OK) {
        *err = r->own_error;
        return r->own;
    }
    TPW_TRY(reader_gone(r) ? tpw_sink_drain(&r->out->people, 0, err) : TPW_OK);
    TPW_TRY(tpw_sink_drain(&r->out->json, 0, err));
    if (r->stopping && r->results.finished < r->prompts.count)
        return tpw_fail(err, TPW_ERR_STOPPED, "stopped by %s after step %lld: %zu of %zu prompts finished",
                        number == SIGUSR1  ? "SIGUSR1"
                        : number == SIGINT ? "SIGINT"
                                           : "SIGTERM",
                        (long long)r->out->step, r->results.finished, r->prompts.count);
    return TPW_OK;
}

static void summarize(const run *r, tpw_summary *s)
{
    tpw_stats stats;
    tpw_worker_stats(r->worker, &stats);
    *s = (tpw_summary){.prompts = r->prompts.count,
                       .finished = r->results.finished,
                       .prompt_tokens = stats.prompt_tokens,
                       .output_tokens = stats.output_tokens,
                       .decode_tokens = r->decode_tokens,
                       .steps = stats.steps,
                       .seconds = (double)r->loop_ns * 1e-9,
                       .prefill_seconds = (double)stats.prefill_ns * 1e-9,
                       .decode_seconds = (double)(stats.step_ns - stats.prefill_ns) * 1e-9,
                       .digest = tpw_results_digest(&r->results),
                       .checks = stats.checks,
                       .ranks = r->ranks,
                       .size = r->boot->size};
    for (size_t i = 0; i < r->results.count; i++)
        s->digested += r->results.data[i].digest_count > 0;
}

/* Rank 0: the rest of the output, partial results included, and its verdict. */
static tpw_status end(run *r, tpw_error *err)
{
    tpw_summary summary;
    show(r, true);
    for (size_t i = 0; i < r->results.count; i++)
        if (!r->results.data[i].finished)
            tpw_jsonl_result(&r->out->json, &r->prompts, &r->results, i, r->values->digests);
    summarize(r, &summary);
    if (!r->values->quiet)
        tpw_output_summary(&r->out->people, &summary);
    tpw_error ignored;
    tpw_jsonl_summary(&r->out->json, &summary, verdict(r, &ignored));
    (void)!tpw_sink_drain(&r->out->people, DRAIN_WAIT_MS, &ignored); /* failures stay in the sinks */
    (void)!tpw_sink_drain(&r->out->json, DRAIN_WAIT_MS, &ignored);
    return verdict(r, err);
}

static tpw_status together(run *r, tpw_error *err)
{
    bool leader = r->boot->rank == 0;
    TPW_TRY(name_job(r, err));
    open_log(r);
    r->ranks = calloc((size_t)r->boot->size, sizeof *r->ranks);
    tpw_status st =
        r->ranks ? find_model(r, err) : tpw_fail(err, TPW_ERR_MEMORY, "no memory for %d ranks", r->boot->size);
    TPW_TRY(agree(r, st != TPW_OK || !leader ? st : prepare(r, err), err));
    TPW_TRY(load(r, err));
    tpw_worker_model_info(r->worker, &r->info);
    st = read_ranks(r, err);
    TPW_TRY(agree(r, st != TPW_OK || !leader ? st : begin(r, err), err));
    /* from here on a failure of one rank leaves the others where they are */
    r->out->broken = true;
    TPW_TRY(step_all(r, err));
    TPW_TRY(tpw_worker_finalize(r->worker, err));
    r->out->broken = false;
    st = read_ranks(r, err);
    return agree(r, st != TPW_OK || !leader ? st : end(r, err), err);
}

static void fini(run *r)
{
    tpw_worker_destroy(r->worker);
    tpw_results_fini(&r->results);
    tpw_prompts_fini(&r->prompts);
    tpw_tokenizer_destroy(r->tokenizer);
    free(r->ranks);
    tpw_boot_destroy(r->boot);
}

void tpw_cmd_run(const tpw_values *values, tpw_outcome *out)
{
    *out = (tpw_outcome){.step = -1, .people = {.fd = -1}, .json = {.fd = -1}};
    run r = {.values = values, .out = out};
    MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &out->size);
    int64_t timeout_ms = (int64_t)(values->timeout * 1000.0 + 0.5);
    out->status = tpw_boot_check_singleton(out->size, get_environment, &out->error);
    if (out->status == TPW_OK)
        out->status = tpw_boot_mpi_create(MPI_COMM_WORLD, timeout_ms, &r.boot, &out->error);
    if (out->status == TPW_OK) {
        memcpy(out->host, r.boot->host, sizeof out->host);
        out->status = together(&r, &out->error);
    }
    if (out->status == TPW_ERR_PEER || out->status == TPW_ERR_DIVERGED)
        out->broken = true;
    if (out->status != TPW_OK && out->status != TPW_ERR_STOPPED)
        tpw_jsonl_error(&out->json, out->status, out->error.text);
    if (out->broken && out->status != TPW_OK && r.results.data)
        show(&r, true); /* what there is, before the process ends */
    if (!out->broken)
        fini(&r); /* else peers may still be inside of what this would free; the process ends anyway */
}
