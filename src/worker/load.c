/* Loads the model into a worker and plans all memory; gathers what every rank is and holds.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/host/host.h"
#include "kernels/rope.h"
#include "tp/agree.h"
#include "tp/comm_nccl.h"
#include "worker/draft.h"
#include "worker/plan.h"
#include "worker/scopes.h"
#include "worker/worker.h"

#define LOAD_TIMEOUT_FACTOR 20 /* a rank on a slow disk may take this much longer than a step may */

/* Limits that follow from options and config, the same on all ranks, and what they take on this one. */
static tpw_status plan(tpw_worker *w, tpw_state_limits *state, tpw_pass_limits *pass, tpw_error *err)
{
    tpw_plan_limits limits;

    TPW_TRY(tpw_plan_limits_make(&w->settings.options, &w->config, &limits, err));
    w->context_max = limits.context_max;
    *state = limits.state;
    *pass = limits.pass;
    TPW_TRY(tpw_partition_make(&w->config, w->boot->rank, w->boot->size, &w->part, err));
    TPW_TRY(tpw_state_plan(&w->config, &w->part, state, &w->state_bytes, err));
    return tpw_pass_bytes(&w->config, &w->part, pass, &w->workspace_bytes, err);
}

static tpw_status make_buffers(tpw_worker *w, tpw_error *err)
{
    const tpw_options *o = &w->settings.options;
    tpw_step_buffers *b = &w->buf;
    size_t n = (size_t)o->sequences_max, rows = (size_t)o->rows_max;

    w->scope_count = tpw_scope_count(&w->config, tpw_worker_uses_mtp(w));
    b->candidates = calloc(n, sizeof *b->candidates);
    b->planned = calloc(n, sizeof *b->planned);
    b->segments = calloc(n, sizeof *b->segments);
    b->ids = calloc(rows, sizeof *b->ids);
    b->chain_segments = calloc(n * TPW_K_MAX, sizeof *b->chain_segments);
    b->drafts = calloc(n * TPW_K_MAX, sizeof *b->drafts);
    b->who = calloc(n, sizeof *b->who);
    b->taken = calloc(n, sizeof *b->taken);
    b->groups = calloc(rows, sizeof *b->groups);
    b->over = calloc(n, sizeof *b->over);
    b->hidden = calloc(rows * (size_t)w->config.layers, sizeof *b->hidden);
    b->scopes = calloc((size_t)w->scope_count, sizeof *b->scopes);
    b->scopes_all = calloc((size_t)w->scope_count * (size_t)w->boot->size, sizeof *b->scopes_all);
    b->traced = calloc((size_t)w->scope_count, sizeof *b->traced);
    if (b->traced == NULL || b->candidates == NULL || b->planned == NULL || b->segments == NULL || b->ids == NULL ||
        b->chain_segments == NULL || b->drafts == NULL || b->who == NULL || b->taken == NULL || b->groups == NULL ||
        b->over == NULL || b->hidden == NULL || b->scopes == NULL || b->scopes_all == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the buffers of %d sequences", o->sequences_max);
    return TPW_OK;
}

/* What each rank does alone once the limits stand. */
static tpw_status load_local(tpw_worker *w, tpw_checkpoint *checkpoint, const tpw_state_limits *state,
                             const tpw_pass_limits *pass, const float *rope, tpw_error *err)
{
    const tpw_options *o = &w->settings.options;

    TPW_TRY(tpw_weight_sums_init(&w->weights, checkpoint, o->weight_digests, err));
    TPW_TRY(tpw_model_load_summed(&w->config, &w->part, checkpoint, w->exec, w->pool, rope, w->context_max, o->progress,
                                  o->progress_data, &w->weights, &w->model, err));
    if (tpw_worker_uses_mtp(w) && !w->model->has_mtp)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "%s has no MTP weights: draft_max must be 0 without a drafter of your own",
                        tpw_checkpoint_path(checkpoint));
    w->file_bytes = tpw_checkpoint_bytes_read(checkpoint);
    TPW_TRY(tpw_state_create(&w->config, &w->part, state, w->exec, w->pool, &w->state, err));
    TPW_TRY(tpw_pass_create(w->model, w->state, w->on_gpu ? w->gpu_noted : w->comm, pass, &w->pass, err));
    TPW_TRY(tpw_sequences_init(&w->sequences, state->slots, state->pages, state->page_size, w->config.layers,
                               w->settings.options.draft_max, err));
    TPW_TRY(tpw_carry_init(&w->carry, w->state, err));
    w->stats.pages_total = state->pages;
    return make_buffers(w, err);
}

/* The rotary table is made once, on rank 0, and copied: sines of two hosts might differ. */
static tpw_status share_rope(tpw_worker *w, float **out, tpw_error *err)
{
    size_t bytes = (size_t)w->context_max * (size_t)w->config.rope_dim * sizeof(float);
    float *rope = malloc(bytes);
    tpw_status st = rope != NULL ? TPW_OK : tpw_fail(err, TPW_ERR_MEMORY, "no memory for the rotary table");

    if (st == TPW_OK && w->boot->rank == 0)
        st = tpw_rope_fill(rope, w->context_max, w->config.rope_dim, w->config.rope_theta, err);
    st = tpw_agree_status(w->boot, st, err);
    if (st == TPW_OK)
        st = w->boot->ops->broadcast(w->boot, rope, bytes, 0, err);
    if (st != TPW_OK) {
        free(rope);
        return st;
    }
    *out = rope;
    return TPW_OK;
}

/* Collective. The communicator of the GPUs' memory, for steps of this size. */
static tpw_status join_gpus(tpw_worker *w, const tpw_pass_limits *pass, tpw_error *err)
{
    const tpw_nccl_options o = {.rows_max = pass->rows_max, .cols_max = w->config.hidden};

    if (!w->on_gpu)
        return TPW_OK;
    if (w->boot->size == 1)
        TPW_TRY(tpw_comm_solo_create(w->boot, &w->gpu_comm, err));
    else
        TPW_TRY(tpw_comm_nccl_create(w->boot, w->exec, &o, &w->gpu_comm, err));
    /* the ring notes when exchanges are enqueued; digests of their results would have to wait for them */
    return tpw_agree_status(w->boot, tpw_comm_noted_create(w->gpu_comm, &w->ring, false, &w->gpu_noted, err), err);
}

static tpw_status load(tpw_worker *w, tpw_checkpoint **checkpoint, float **rope, tpw_error *err)
{
    tpw_state_limits state;
    tpw_pass_limits pass;

    TPW_TRY(tpw_agree_status(w->boot, tpw_plan_open(&w->settings.options, &w->config, checkpoint, err), err));
    TPW_TRY(tpw_agree_digest(w->boot, tpw_config_digest(&w->config), "config.json", err));
    TPW_TRY(tpw_agree_digest(w->boot, tpw_checkpoint_digest(*checkpoint), "the checkpoint's headers", err));
    TPW_TRY(tpw_agree_status(w->boot, plan(w, &state, &pass, err), err));
    TPW_TRY(share_rope(w, rope, err));
    TPW_TRY(join_gpus(w, &pass, err));
    TPW_TRY(tpw_agree_status(w->boot, load_local(w, *checkpoint, &state, &pass, *rope, err), err));
    TPW_TRY(tpw_worker_gather_ranks(w, err));
    return tpw_worker_compare_weights(w, err);
}

tpw_status tpw_worker_load(tpw_worker *worker, tpw_error *err)
{
    tpw_checkpoint *checkpoint = NULL;
    float *rope = NULL;
    int64_t timeout_ms;
    tpw_status st;

    if (worker == NULL || worker->stage != TPW_CREATED)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "load: the worker is already loaded or has failed");
    timeout_ms = worker->boot->timeout_ms;
    worker->boot->phase = "load";
    worker->boot->timeout_ms = timeout_ms * LOAD_TIMEOUT_FACTOR;
    st = load(worker, &checkpoint, &rope, err);
    worker->boot->timeout_ms = timeout_ms;
    worker->boot->phase = "step";
    worker->stage = st == TPW_OK ? TPW_LOADED : TPW_FAILED;
    tpw_checkpoint_close(checkpoint);
    free(rope);
    return st;
}

tpw_status tpw_worker_gather_ranks(tpw_worker *worker, tpw_error *err)
{
    tpw_rank_info mine = {.rank = worker->boot->rank,
                          .pid = getpid(),
                          .numa_node = worker->binding.numa_node,
                          .weight_bytes = worker->model != NULL ? (int64_t)worker->model->arena.bytes : 0,
                          .kv_bytes = (int64_t)worker->state_bytes.kv,
                          .state_bytes = (int64_t)(worker->state_bytes.recurrent + worker->state_bytes.conv),
                          .workspace_bytes = (int64_t)worker->workspace_bytes,
                          .peak_bytes = (int64_t)worker->exec->device->bytes_peak(worker->exec),
                          .file_bytes = worker->file_bytes};

    snprintf(mine.host, sizeof mine.host, "%s", worker->boot->host);
    if (worker->on_gpu)
        snprintf(mine.device, sizeof mine.device, "%s %.40s", worker->seat.gpu.bus, worker->seat.gpu.name);
    else
        snprintf(mine.device, sizeof mine.device, "host (%s)", tpw_host_isa(worker->exec));
    snprintf(mine.cpus_requested, sizeof mine.cpus_requested, "%s", worker->binding.requested);
    snprintf(mine.cpus_obtained, sizeof mine.cpus_obtained, "%s", worker->binding.obtained);
    return worker->boot->ops->allgather(worker->boot, &mine, worker->ranks, sizeof mine, err);
}
