/* Creates a worker over a communicator: boot, agreement on options, node, binding, backend, comm.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tpworker/mpi.h"

#include "kernels/cuda/cuda.h"
#include "kernels/host/host.h"
#include "tp/agree.h"
#include "tp/boot_mpi.h"
#include "tp/comm_nccl.h"
#include "tp/gpus.h"
#include "tp/node.h"
#include "worker/worker.h"

/* Translates the public log callback to the inner one. */
static void log_sink(void *data, tpw_log_level level, const char *line)
{
    const tpw_options *o = data;

    o->log(o->log_data, (int)level, line);
}

static void open_log(tpw_worker *w)
{
    const tpw_options *o = &w->settings.options;

    if (o->log == NULL)
        return;
    w->log = (tpw_log){.sink = log_sink,
                       .data = (void *)o,
                       .level = (tpw_log_level)o->log_level,
                       .prefix = false,
                       .rank = w->boot->rank};
    memcpy(w->log.host, w->boot->host, sizeof w->log.host);
}

static tpw_bind_mode bind_mode(const tpw_worker *w)
{
    const tpw_bind_mode modes[] = {TPW_BIND_NONE, TPW_BIND_AUTO, TPW_BIND_STRICT};

    return modes[w->settings.options.binding];
}

/* What this process sees of GPUs. */
static tpw_status list_gpus(tpw_gpu *gpus, int *count, tpw_error *err)
{
    *count = tpw_cuda_count(NULL, 0);
    if (*count > TPW_PLACE_GPUS_MAX)
        *count = TPW_PLACE_GPUS_MAX;
    for (int i = 0; i < *count; i++)
        TPW_TRY(tpw_cuda_gpu(i, &gpus[i], err));
    return TPW_OK;
}

/* Collective. Decides for all ranks whether GPUs do the work, and which is whose. With AUTO, what speaks against it is logged. */
static tpw_status take_seat(tpw_worker *w, tpw_error *err)
{
    const tpw_options *o = &w->settings.options;
    const bool automatic = o->backend == TPW_BACKEND_AUTO;
    tpw_gpu gpus[TPW_PLACE_GPUS_MAX];
    int count = 0;
    tpw_status st;

    if (o->backend == TPW_BACKEND_HOST || (automatic && o->compute != TPW_COMPUTE_BF16))
        return TPW_OK;
    TPW_TRY(tpw_agree_status(w->boot, list_gpus(gpus, &count, err), err));
    st = tpw_gpus_agree(w->boot, w->topology, gpus, count, o->ranks_per_gpu, &w->seat, err);
    w->on_gpu = st == TPW_OK;
    if (st == TPW_ERR_RESOURCE && automatic) {
        tpw_log_line(&w->log, TPW_LOG_INFO, "host backend: %s", err != NULL ? err->text : "no GPU for every rank");
        return TPW_OK;
    }
    return st;
}

/* Local rank -> CPUs (near its GPU, if it has one), then bind and read back. */
static tpw_status place_and_bind(tpw_worker *w, const tpw_node *node, tpw_error *err)
{
    char cpus[TPW_MASK_TEXT_MAX];

    if (w->on_gpu)
        snprintf(cpus, sizeof cpus, "%s", w->seat.cpus);
    else
        TPW_TRY(tpw_place_cpus(w->topology, node->rank, node->size, cpus, err));
    TPW_TRY(tpw_bind_cpus(w->topology, cpus, bind_mode(w), &w->binding, err));
    if (w->on_gpu) /* before CUDA allocates anything on the host */
        TPW_TRY(tpw_bind_memory(w->topology, w->seat.nodes, bind_mode(w), &w->memory, err));
    tpw_log_line(&w->log, TPW_LOG_DEBUG, "rank %d of %d on %s: asked for CPUs %s, has %s", w->boot->rank, w->boot->size,
                 w->boot->host, w->binding.requested, w->binding.obtained);
    if (w->on_gpu && w->seat.warnings[0] != '\0')
        tpw_log_line(&w->log, TPW_LOG_WARN, "rank %d: %s", w->boot->rank, w->seat.warnings);
    return TPW_OK;
}

/* Everything that each rank does alone. */
static tpw_status create_local(tpw_worker *w, const tpw_node *node, tpw_error *err)
{
    tpw_backing backing;

    TPW_TRY(place_and_bind(w, node, err));
    if (w->on_gpu) {
        const tpw_cuda_options o = {.device = w->seat.gpu.index, .spin_ms = w->settings.options.timeout_ms};

        TPW_TRY(tpw_cuda_create(&o, &w->exec, err));
    } else {
        TPW_TRY(tpw_host_create(w->settings.isa, &w->exec, err));
    }
    backing = tpw_backing_of(w->exec);
    TPW_TRY(tpw_pool_create(&backing, false, &w->pool, err));
    w->ranks = calloc((size_t)w->boot->size, sizeof *w->ranks);
    if (w->ranks == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the table of %d ranks", w->boot->size);
    return TPW_OK;
}

/* The reference communicator, with the ring of its last exchanges around it. */
static tpw_status create_comm(tpw_worker *w, tpw_error *err)
{
    tpw_comm *inner = NULL;
    tpw_status st;

    TPW_TRY(tpw_comm_mpi_create(w->boot, &inner, err));
    st = tpw_comm_noted_create(inner, &w->ring, w->settings.options.check == TPW_CHECK_STEP, &w->comm, err);
    if (st != TPW_OK)
        tpw_comm_destroy(inner);
    return tpw_agree_status(w->boot, st, err); /* a rank without memory must not leave the others to the load */
}

/* Options must be equal on all ranks; the first that is not is named. */
static tpw_status agree_on_settings(tpw_worker *w, tpw_error *err)
{
    int64_t mine[TPW_SETTINGS_COUNT], *all = calloc((size_t)w->boot->size * TPW_SETTINGS_COUNT, sizeof *all);
    tpw_status st = all != NULL ? TPW_OK : tpw_fail(err, TPW_ERR_MEMORY, "no memory to compare the options");

    for (int i = 0; i < TPW_SETTINGS_COUNT; i++)
        (void)tpw_settings_list(&w->settings, i, &mine[i]);
    TPW_TRY_GOTO(st, tpw_agree_status(w->boot, st, err), done);
    TPW_TRY_GOTO(st, w->boot->ops->allgather(w->boot, mine, all, sizeof mine, err), done);
    for (int r = 1; st == TPW_OK && r < w->boot->size; r++)
        for (int i = 0; st == TPW_OK && i < TPW_SETTINGS_COUNT; i++) {
            long long there = all[r * TPW_SETTINGS_COUNT + i], here = all[i];
            const char *name = tpw_settings_list(&w->settings, i, &mine[i]);

            if (there != here)
                st = tpw_fail(
                    err, TPW_ERR_DIVERGED,
                    "option %s differs between ranks: %lld on rank %d, %lld on rank 0: give all ranks the same", name,
                    there, r, here);
        }
done:
    free(all);
    return st;
}

static tpw_status create_collective(tpw_worker *w, const tpw_options *options, tpw_error *err)
{
    tpw_node node;

    TPW_TRY(tpw_agree_status(w->boot, tpw_settings_init(&w->settings, options, err), err));
    open_log(w);
    TPW_TRY(agree_on_settings(w, err));
    if (!tpw_tp_size_ok(w->boot->size))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%d ranks: tensor-parallel sizes are 1, 2, 4 and 8", w->boot->size);
    TPW_TRY(tpw_node_find(w->boot, &node, err));
    TPW_TRY(tpw_agree_status(w->boot, tpw_topology_load(NULL, &w->topology, err), err));
    TPW_TRY(take_seat(w, err));
    TPW_TRY(tpw_agree_status(w->boot, create_local(w, &node, err), err));
    return create_comm(w, err);
}

tpw_status tpw_worker_create(const tpw_options *options, MPI_Comm comm, tpw_worker **out, tpw_error *err)
{
    int64_t timeout_ms = options != NULL && options->size == sizeof *options && options->timeout_ms > 0
                             ? options->timeout_ms
                             : ((tpw_options)TPW_OPTIONS_INIT).timeout_ms;
    tpw_worker *w;
    tpw_status st;

    if (out == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "create: out is NULL");
    *out = NULL;
    w = calloc(1, sizeof *w);
    if (w == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a worker");
    TPW_TRY_GOTO(st, tpw_boot_mpi_create(comm, timeout_ms, &w->boot, err), fail);
    w->boot->step = -1;
    w->boot->phase = "create";
    TPW_TRY_GOTO(st, create_collective(w, options, err), fail);
    *out = w;
    return TPW_OK;
fail:
    tpw_worker_destroy(w);
    return st;
}

void tpw_worker_destroy(tpw_worker *worker)
{
    if (worker == NULL)
        return;
    if (worker->stage == TPW_FAILED)
        tpw_comm_nccl_abort(worker->gpu_comm); /* a peer may never come: nothing is waited for */
    tpw_pass_destroy(worker->pass);
    tpw_state_destroy(worker->state);
    tpw_model_destroy(worker->model);
    tpw_pool_destroy_force(worker->pool);
    tpw_sequences_fini(&worker->sequences);
    tpw_control_fini(&worker->control);
    tpw_events_fini(&worker->events);
    free(worker->record);
    free(worker->buf.candidates);
    free(worker->buf.planned);
    free(worker->buf.segments);
    free(worker->buf.ids);
    free(worker->buf.chain_segments);
    free(worker->buf.drafts);
    free(worker->buf.who);
    free(worker->buf.taken);
    free(worker->buf.groups);
    free(worker->buf.over);
    free(worker->buf.hidden);
    free(worker->buf.scopes);
    free(worker->buf.scopes_all);
    free(worker->buf.traced);
    tpw_carry_fini(&worker->carry);
    tpw_digest_list_fini(&worker->digests);
    tpw_weight_sums_fini(&worker->weights);
    free(worker->weight_digests);
    free(worker->ranks);
    tpw_comm_destroy(worker->gpu_noted != NULL ? worker->gpu_noted : worker->gpu_comm);
    tpw_comm_destroy(worker->comm);
    if (worker->on_gpu)
        tpw_cuda_destroy(worker->exec);
    else
        tpw_host_destroy(worker->exec);
    tpw_topology_destroy(worker->topology);
    tpw_boot_destroy(worker->boot);
    tpw_settings_fini(&worker->settings);
    free(worker);
}
