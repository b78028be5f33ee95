/* A model on some ranks with everything it needs, for tests. SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "kernels/cuda/cuda.h"
#include "kernels/host/host.h"
#include "tp/comm_nccl.h"

#define PAGE 64

static tpw_status open_model(engine *e, const char *folder, int32_t positions, tpw_error *err)
{
    tpw_checkpoint *checkpoint = NULL;
    float *rope = calloc((size_t)positions * (size_t)e->config.rope_dim, sizeof *rope);
    tpw_status st;

    TPW_TRY_GOTO(st, tpw_rope_fill(rope, positions, e->config.rope_dim, e->config.rope_theta, err), done);
    TPW_TRY_GOTO(st, tpw_checkpoint_open(folder, &checkpoint, err), done);
    st =
        tpw_model_load(&e->config, &e->part, checkpoint, e->exec, e->pool, rope, positions, NULL, NULL, &e->model, err);
done:
    tpw_checkpoint_close(checkpoint);
    free(rope);
    return st;
}

/* This rank's place to run; with GPUs, rank i takes GPU i of this machine, or one with others. */
static tpw_status open_place(engine *e, int32_t rows, tpw_error *err)
{
    const tpw_cuda_options cuda = {.device = e->boot->rank / test_ranks_per_gpu()};
    const tpw_nccl_options nccl = {.rows_max = rows, .cols_max = e->config.hidden};

    if (!test_on_gpu())
        return tpw_host_create("auto", &e->exec, err);
    TPW_TRY(tpw_cuda_create(&cuda, &e->exec, err));
    if (e->boot->size == 1)
        return tpw_comm_solo_create(e->boot, &e->gpu_comm, err);
    return tpw_comm_nccl_create(e->boot, e->exec, &nccl, &e->gpu_comm, err);
}

tpw_status engine_open(engine *e, const char *folder, tpw_dtype act, int32_t positions, int32_t rows, int32_t logits,
                       MPI_Comm comm, tpw_error *err)
{
    int32_t pages = (positions + PAGE - 1) / PAGE;
    const tpw_pass_limits limits = {.rows_max = rows, .logits_max = logits, .entries_max = 1, .act = act};
    tpw_state_limits state = {.slots = 1, .pages = pages, .page_size = PAGE, .act = act};
    tpw_backing backing;

    *e = (engine){0};
    TPW_TRY(tpw_boot_mpi_create(comm, 30000, &e->boot, err));
    TPW_TRY(tpw_comm_mpi_create(e->boot, &e->comm, err));
    TPW_TRY(tpw_config_load(folder, &e->config, err));
    TPW_TRY(open_place(e, rows, err));
    backing = tpw_backing_of(e->exec);
    TPW_TRY(tpw_pool_create(&backing, false, &e->pool, err));
    TPW_TRY(tpw_partition_make(&e->config, e->boot->rank, e->boot->size, &e->part, err));
    TPW_TRY(open_model(e, folder, positions, err));
    state.mtp = e->model->has_mtp;
    TPW_TRY(tpw_state_create(&e->config, &e->part, &state, e->exec, e->pool, &e->state, err));
    TPW_TRY(tpw_state_fill_slot(e->state, 1, 0xFF, err)); /* NaN: nothing may be read that was not written */
    for (int32_t p = 1; p <= pages; p++)
        TPW_TRY(tpw_state_fill_page(e->state, p, 0xFF, err));
    e->pages = calloc((size_t)pages, sizeof *e->pages);
    for (int32_t p = 0; p < pages; p++)
        e->pages[p] = p + 1;
    TPW_TRY(tpw_pass_create(e->model, e->state, test_on_gpu() ? e->gpu_comm : e->comm, &limits, &e->pass, err));
    return TPW_OK;
}

void engine_close(engine *e)
{
    tpw_pass_destroy(e->pass);
    tpw_state_destroy(e->state);
    tpw_model_destroy(e->model);
    tpw_pool_destroy_force(e->pool);
    tpw_comm_destroy(e->gpu_comm);
    tpw_comm_destroy(e->comm);
    if (test_on_gpu())
        tpw_cuda_destroy(e->exec);
    else
        tpw_host_destroy(e->exec);
    tpw_boot_destroy(e->boot);
    free(e->pages);
}

/* Rows with these tokens, in the order in which they stand. */
static tpw_status send_tokens(engine *e, const tpw_batch *batch, const int32_t *tokens, tpw_error *err)
{
    tpw_step_io *io = &e->pass->io.host;

    for (int32_t i = 0; i < batch->rows; i++) {
        io->tokens[i] = tokens[i];
        io->row_ids[i] = i;
    }
    TPW_TRY(tpw_pass_stage(e->pass, batch, err));
    return tpw_pass_send(e->pass, batch->rows, 0, err);
}

tpw_status engine_run(engine *e, const int32_t *tokens, int32_t count, int64_t pos, tpw_error *err)
{
    const tpw_segment segment = {.rows = count, .rows_certain = count, .slot = 1, .pos = pos, .pages = e->pages};
    const tpw_batch batch = {.rows = count, .segment_count = 1, .segments = &segment};

    TPW_TRY(send_tokens(e, &batch, tokens, err));
    return tpw_pass_trunk(e->pass, &batch, e->pass->io.device.row_ids, false, err);
}

tpw_status engine_mtp(engine *e, const int32_t *tokens, int32_t count, int64_t pos, const tpw_mat *hidden,
                      tpw_error *err)
{
    const tpw_segment segment = {.rows = count, .rows_certain = count, .slot = 1, .pos = pos, .pages = e->pages};
    const tpw_batch batch = {.rows = count, .segment_count = 1, .segments = &segment};

    TPW_TRY(send_tokens(e, &batch, tokens, err));
    return tpw_pass_mtp(e->pass, &batch, e->pass->io.device.row_ids, hidden, err);
}

tpw_status engine_head(engine *e, const int32_t *rows, int32_t count, int32_t *best, tpw_error *err)
{
    tpw_step_io *io = &e->pass->io.host;

    for (int32_t i = 0; i < count; i++) {
        io->logit_rows[i] = rows[i];
        io->best_to[i] = tpw_io_best(&e->pass->io_limits, i);
    }
    TPW_TRY(tpw_pass_send(e->pass, 0, 0, err));
    TPW_TRY(tpw_pass_head(e->pass, 0, e->pass->io.device.logit_rows, count, e->pass->io.device.best_to, err));
    TPW_TRY(tpw_pass_fetch(e->pass, 0, err));
    memcpy(best, io->best, (size_t)count * sizeof *best);
    return tpw_pass_compare(e->pass, 0, count, err);
}

int32_t *engine_ints(const struct json_t *list, int32_t *count)
{
    int32_t *out;

    *count = (int32_t)json_array_size(list);
    out = calloc((size_t)*count + 1, sizeof *out);
    for (int32_t i = 0; i < *count; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return out;
}
