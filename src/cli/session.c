/* The way from settings to a loaded worker, and back to an outcome. SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/jsonl.h"
#include "cli/model_path.h"
#include "cli/stop.h"
#include "model/checkpoint.h"
#include "tp/agree.h"
#include "tp/boot_mpi.h"
#include "tpworker/mpi.h"

#define DRAIN_WAIT_MS 1000 /* for readers that are only a little behind; peers wait meanwhile */

static const char *get_environment(const char *name)
{
    return getenv(name);
}

static int64_t timeout_ms(const tpw_values *values)
{
    return (int64_t)(values->timeout * 1000.0 + 0.5);
}

/* One name on all ranks, also where the launcher gave none. */
static tpw_status name_job(tpw_session *s, tpw_error *err)
{
    char *job = s->out->job;
    tpw_launcher_job(get_environment, job);
    if (job[0] == '\0')
        snprintf(job, TPW_JOB_NAME_MAX, "%lld", (long long)getpid());
    return s->boot->ops->broadcast(s->boot, job, TPW_JOB_NAME_MAX, 0, err);
}

static void log_line(void *data, int level, const char *line)
{
    tpw_log_line(data, (tpw_log_level)level, "%s", line);
}

static void open_log(tpw_session *s)
{
    s->log = (tpw_log){.sink = tpw_log_to_fd,
                       .data = (void *)(intptr_t)STDERR_FILENO,
                       .level = (tpw_log_level)s->values->log_level,
                       .prefix = s->boot->size > 1 && s->values->log_prefix == TPW_LOG_PREFIX_AUTO,
                       .rank = s->boot->rank};
    memcpy(s->log.host, s->boot->host, sizeof s->log.host);
}

tpw_status tpw_session_open(tpw_session *out, const tpw_values *values, tpw_outcome *outcome, tpw_error *err)
{
    *outcome = (tpw_outcome){.step = -1, .people = {.fd = -1}, .json = {.fd = -1}};
    *out = (tpw_session){.values = values, .out = outcome};
    MPI_Comm_rank(MPI_COMM_WORLD, &outcome->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &outcome->size);
    TPW_TRY(tpw_boot_check_singleton(outcome->size, get_environment, err));
    TPW_TRY(tpw_boot_mpi_create(MPI_COMM_WORLD, timeout_ms(values), &out->boot, err));
    memcpy(outcome->host, out->boot->host, sizeof outcome->host);
    TPW_TRY(name_job(out, err));
    open_log(out);
    return TPW_OK;
}

/* mpirun gives every rank a terminal of its own as standard output, whatever its own output is; only standard error tells. */
static bool on_terminal(int fd)
{
    return isatty(fd) && isatty(STDERR_FILENO);
}

/* Text for people goes to standard output, unless JSON has it. */
static tpw_status open_sinks(tpw_session *s, tpw_error *err)
{
    const tpw_values *v = s->values;
    bool json_out = v->json && strcmp(v->json, "-") == 0;
    int fd = json_out ? STDERR_FILENO : STDOUT_FILENO;
    if (!(v->quiet && v->json))
        tpw_sink_init_fd(&s->out->people, fd, json_out ? "standard error" : "standard output");
    s->terminal = on_terminal(fd);
    if (json_out)
        tpw_sink_init_fd(&s->out->json, STDOUT_FILENO, "standard output");
    else if (v->json)
        return tpw_sink_init_file(&s->out->json, v->json, err);
    return TPW_OK;
}

static tpw_status find_model(tpw_session *s, tpw_error *err)
{
    if (s->values->dummy)
        return TPW_OK;
    s->model = s->values->model;
    return s->model ? TPW_OK : tpw_model_path_pocket(&s->model, err);
}

tpw_status tpw_session_prepare(tpw_session *session, tpw_error *err)
{
    session->ranks = calloc((size_t)session->boot->size, sizeof *session->ranks);
    if (!session->ranks)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %d ranks", session->boot->size);
    TPW_TRY(find_model(session, err));
    if (session->boot->rank != 0)
        return TPW_OK;
    TPW_TRY(open_sinks(session, err));
    if (!session->model)
        return TPW_OK;
    TPW_TRY(tpw_model_path_check(session->model, err));
    tpw_status st = tpw_tokenizer_load(session->model, &session->tokenizer, err);
    return st == TPW_ERR_MISSING ? TPW_OK : st;
}

/* "rank 0 (host):" tells nobody anything on rank 0. */
tpw_status tpw_session_agree(tpw_session *session, tpw_status mine, tpw_error *err)
{
    tpw_error own = *err;
    tpw_status st = tpw_agree_status(session->boot, mine, err);
    if (st != TPW_OK && st == mine && session->boot->rank == 0)
        *err = own;
    return st;
}

tpw_status tpw_session_find_mtp(tpw_session *session, bool *out, tpw_error *err)
{
    int found = session->values->dummy != NULL;
    tpw_status st = TPW_OK;
    if (session->model && session->boot->rank == 0) {
        tpw_checkpoint *checkpoint = NULL;
        tpw_tensor_info info;
        st = tpw_checkpoint_open(session->model, &checkpoint, err);
        found = st == TPW_OK && tpw_checkpoint_find(checkpoint, "mtp.fc.weight", &info);
        tpw_checkpoint_close(checkpoint);
    }
    TPW_TRY(tpw_session_agree(session, st, err));
    TPW_TRY(session->boot->ops->broadcast(session->boot, &found, sizeof found, 0, err));
    *out = found != 0;
    return TPW_OK;
}

void tpw_session_options(tpw_session *session, tpw_options *out)
{
    const tpw_values *v = session->values;
    tpw_options_init(out);
    tpw_values_choice(v, TPW_SETTING_ISA, session->isa, sizeof session->isa);
    out->model = session->model;
    out->dummy = v->dummy;
    out->dummy_layers = (int32_t)v->layers;
    out->dummy_vocab = (int32_t)v->vocab;
    out->compute = (tpw_compute)v->compute;
    out->sequences_max = (int32_t)v->batch.data[0];
    out->rows_max = (int32_t)v->rows;
    out->chunk = (int32_t)v->chunk;
    out->page_size = (int32_t)v->page;
    out->pages = (int32_t)v->pages;
    out->context_max = (int32_t)v->context;
    out->draft_max = (int32_t)v->k.data[0];
    (void)!tpw_values_check(v, &out->check, &out->check_every, NULL); /* was checked with the settings */
    out->timeout_ms = timeout_ms(v);
    out->isa = session->isa;
    out->backend = (tpw_backend)v->backend;
    out->ranks_per_gpu = (int32_t)v->ranks_per_gpu;
    out->binding = (tpw_binding_mode)v->bind;
    out->log = log_line;
    out->log_data = &session->log;
    out->log_level = v->log_level;
    if (session->boot->rank == 0 && !v->quiet) {
        out->progress = tpw_progress_show;
        out->progress_data = &session->progress;
    }
}

static tpw_status start(tpw_session *session, const tpw_options *options, MPI_Comm comm, tpw_worker **out,
                        tpw_error *err)
{
    TPW_TRY(tpw_worker_create(options, comm, out, err));
    tpw_progress_init(&session->progress, STDERR_FILENO, isatty(STDERR_FILENO));
    tpw_status st = tpw_worker_load(*out, err);
    tpw_progress_end(&session->progress);
    return st;
}

tpw_status tpw_session_start(tpw_session *session, const tpw_options *options, tpw_worker **out, tpw_error *err)
{
    *out = NULL;
    return start(session, options, MPI_COMM_WORLD, out, err);
}

tpw_status tpw_session_start_group(tpw_session *session, const tpw_options *options, int size, tpw_worker **out,
                                   tpw_error *err)
{
    int range[1][3] = {{0, size - 1, 1}};
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group first = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    *out = NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, range, &first);
    int code = MPI_Comm_create_group(MPI_COMM_WORLD, first, 0, &comm);
    MPI_Group_free(&first);
    MPI_Group_free(&world);
    if (code != MPI_SUCCESS || comm == MPI_COMM_NULL)
        return tpw_fail(err, TPW_ERR_DEVICE, "no communicator of the first %d of %d ranks", size, session->out->size);
    tpw_status st = start(session, options, comm, out, err);
    MPI_Comm_free(&comm); /* the worker has its own */
    return st;
}

void tpw_session_keep_ring(tpw_session *session, const tpw_worker *worker)
{
    session->out->ring_count = tpw_worker_ring(worker, session->out->ring, TPW_RING_ENTRIES);
}

bool tpw_session_gpu_is_shared(const tpw_rank_info *ranks, int size)
{
    for (int b = 1; b < size; b++)
        for (int a = 0; a < b; a++)
            if (strncmp(ranks[a].device, "host", 4) != 0 && strcmp(ranks[a].host, ranks[b].host) == 0 &&
                strcmp(ranks[a].device, ranks[b].device) == 0)
                return true;
    return false;
}

/* With the flag the command gave each rank an NCCL_HOSTID: for nothing, if each has a GPU of its own. */
static void warn_of_hosts(tpw_session *session)
{
    const int size = session->boot->size, limit = (int)session->values->ranks_per_gpu;
    if (session->warned || limit == 1 || size == 1 || session->boot->rank != 0 ||
        strncmp(session->ranks[0].device, "host", 4) == 0 || tpw_session_gpu_is_shared(session->ranks, size))
        return;
    session->warned = true;
    tpw_log_line(
        &session->log, TPW_LOG_WARN,
        "--ranks-per-gpu %d: every rank has a GPU of its own, but NCCL takes them for ranks of different hosts, "
        "and NVLink is not used: leave the flag out",
        limit);
}

tpw_status tpw_session_ranks(tpw_session *session, const tpw_worker *worker, tpw_error *err)
{
    for (int i = 0; i < session->boot->size; i++)
        TPW_TRY(tpw_worker_rank_info(worker, i, &session->ranks[i], err));
    warn_of_hosts(session);
    return TPW_OK;
}

bool tpw_session_reader_gone(const tpw_session *session)
{
    const tpw_sink *people = &session->out->people;
    const tpw_sink *json = &session->out->json;
    return (people->fd == STDOUT_FILENO && people->error != 0) || (json->fd == STDOUT_FILENO && json->error != 0);
}

const char *tpw_session_signal_name(void)
{
    int number = tpw_stop_signal();
    return number == SIGUSR1 ? "SIGUSR1" : number == SIGINT ? "SIGINT" : "SIGTERM";
}

void tpw_session_drain(tpw_session *session)
{
    tpw_error ignored;
    (void)!tpw_sink_drain(&session->out->people, DRAIN_WAIT_MS, &ignored);
    (void)!tpw_sink_drain(&session->out->json, DRAIN_WAIT_MS, &ignored);
}

void tpw_session_conclude(tpw_session *session, tpw_status status)
{
    tpw_outcome *out = session->out;
    out->status = status;
    if (status == TPW_ERR_PEER || status == TPW_ERR_DIVERGED)
        out->broken = true;
    if (status != TPW_OK && status != TPW_ERR_STOPPED)
        tpw_jsonl_error(&out->json, status, out->error.text);
    if (out->broken && status != TPW_OK) { /* the process ends without a last wait */
        tpw_sink_flush(&out->people);
        tpw_sink_flush(&out->json);
    }
}

void tpw_session_close(tpw_session *session)
{
    tpw_tokenizer_destroy(session->tokenizer);
    free(session->ranks);
    tpw_boot_destroy(session->boot);
}
