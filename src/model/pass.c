/* Plans the workspace of a pass and runs the trunk and the MTP module. SPDX-License-Identifier: Apache-2.0 */
#include "model/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "model/head.h"
#include "model/layers.h"

/* Both mixers and the MLP start from the same mark: they are never alive together. */
static void carve_blocks(const tpw_config *c, const tpw_partition *p, const tpw_pass_limits *l, tpw_arena *arena,
                         tpw_workspace *ws)
{
    int32_t M = l->rows_max, C = tpw_conv_channels(c, p), Kd = tpw_key_width(c, p), Vd = tpw_value_width(c, p);
    int32_t hv = p->v_heads.count, D = c->head_dim, hq = p->heads.count, hkv = p->kv_heads.count;
    size_t mark = arena->used;

    ws->qkv = tpw_arena_mat(arena, l->act, M, C);
    ws->conv = tpw_arena_mat(arena, l->act, M, C);
    ws->z = tpw_arena_mat(arena, l->act, M, Vd);
    ws->a = tpw_arena_mat(arena, TPW_F32, M, hv);
    ws->b = tpw_arena_mat(arena, TPW_F32, M, hv);
    ws->decay = tpw_arena_mat(arena, TPW_F32, M, hv);
    ws->beta = tpw_arena_mat(arena, TPW_F32, M, hv);
    ws->q32 = tpw_arena_mat(arena, TPW_F32, M, Kd);
    ws->k32 = tpw_arena_mat(arena, TPW_F32, M, Kd);
    ws->o = tpw_arena_mat(arena, l->act, M, Vd);
    ws->gated = tpw_arena_mat(arena, l->act, M, Vd);
    arena->used = mark;
    ws->qg = tpw_arena_mat(arena, l->act, M, (int64_t)hq * 2 * D);
    ws->k = tpw_arena_mat(arena, l->act, M, (int64_t)hkv * D);
    ws->v = tpw_arena_mat(arena, l->act, M, (int64_t)hkv * D);
    ws->q = tpw_arena_mat(arena, l->act, M, (int64_t)hq * D);
    ws->attended = tpw_arena_mat(arena, l->act, M, (int64_t)hq * D);
    arena->used = mark;
    ws->gate = tpw_arena_mat(arena, TPW_F32, M, p->inter.count);
    ws->up = tpw_arena_mat(arena, TPW_F32, M, p->inter.count);
    ws->act = tpw_arena_mat(arena, l->act, M, p->inter.count);
    arena->used = arena->peak;
}

static void carve(const tpw_config *c, const tpw_partition *p, const tpw_pass_limits *l, tpw_arena *arena,
                  tpw_workspace *ws)
{
    int32_t M = l->rows_max, R = l->logits_max, H = c->hidden;

    ws->ids = tpw_arena_take(arena, M, sizeof *ws->ids);
    ws->h = tpw_arena_mat(arena, l->act, M, H);
    ws->y = tpw_arena_mat(arena, l->act, M, H);
    ws->sum = tpw_arena_mat(arena, TPW_F32, M, H);
    ws->carry = tpw_arena_mat(arena, l->act, M, H);
    ws->join = tpw_arena_mat(arena, l->act, M, 2 * (int64_t)H);
    ws->rows = tpw_arena_take(arena, M > R ? M : R, sizeof *ws->rows);
    ws->head_in = tpw_arena_mat(arena, l->act, R, H);
    ws->logits = tpw_arena_mat(arena, TPW_F32, R, p->vocab.count);
    ws->value = tpw_arena_take(arena, R, sizeof *ws->value);
    ws->best = tpw_arena_take(arena, R, sizeof *ws->best);
    carve_blocks(c, p, l, arena, ws);
}

tpw_status tpw_pass_bytes(const tpw_config *config, const tpw_partition *part, const tpw_pass_limits *limits,
                          size_t *bytes, tpw_error *err)
{
    tpw_arena arena = tpw_arena_measure();
    tpw_workspace ws;

    if (limits->rows_max < 1 || limits->logits_max < 1)
        return tpw_fail(err, TPW_ERR_LIMIT, "a pass of %d rows and %d logit rows: both must be at least 1",
                        limits->rows_max, limits->logits_max);
    carve(config, part, limits, &arena, &ws);
    TPW_TRY(tpw_arena_check(&arena, "workspace", err));
    *bytes = arena.peak;
    return TPW_OK;
}

tpw_status tpw_pass_create(tpw_model *model, tpw_state *state, tpw_comm *comm, const tpw_pass_limits *limits,
                           tpw_pass **out, tpw_error *err)
{
    tpw_pass *p;
    size_t bytes;
    tpw_status st;

    TPW_TRY(tpw_pass_bytes(&model->config, &model->part, limits, &bytes, err));
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a pass");
    p->model = model;
    p->state = state;
    p->exec = model->exec;
    p->comm = comm;
    p->records = comm;
    p->limits = *limits;
    p->exchange = malloc(tpw_exchange_bytes(limits->logits_max) * (size_t)(comm->size + 1));
    p->hidden_keys = calloc((size_t)model->config.layers, sizeof *p->hidden_keys);
    if (p->exchange == NULL || p->hidden_keys == NULL) {
        st = tpw_fail(err, TPW_ERR_MEMORY, "no memory for the exchange of %d rows", limits->logits_max);
        goto fail;
    }
    for (int32_t i = 0; i < model->config.layers; i++) {
        char name[32];

        snprintf(name, sizeof name, "hidden.%d", i);
        p->hidden_keys[i] = tpw_digest_key(name);
    }
    TPW_TRY_GOTO(st, tpw_arena_init(&p->arena, p->exec, bytes, err), fail);
    carve(&model->config, &model->part, limits, &p->arena, &p->ws);
    TPW_TRY_GOTO(st, tpw_arena_check(&p->arena, "workspace", err), fail);
    *out = p;
    return TPW_OK;
fail:
    tpw_pass_destroy(p);
    return st;
}

void tpw_pass_destroy(tpw_pass *pass)
{
    if (pass == NULL)
        return;
    tpw_arena_fini(&pass->arena, pass->exec);
    free(pass->exchange);
    free(pass->hidden_keys);
    free(pass);
}

/* Rows of the embedding table from their owners: every rank fills its part, the merge copies bits and sums nothing. */
static tpw_status embed(tpw_pass *pass, const int32_t *ids, int32_t rows, tpw_mat out, tpw_error *err)
{
    const tpw_embed_args args = {
        .ids = pass->ws.ids, .table = pass->model->embed, .vocab0 = pass->model->part.vocab.begin, .out = out};
    size_t bytes = (size_t)rows * (size_t)out.cols * tpw_dtype_size(out.dtype);

    for (int32_t i = 0; i < rows; i++)
        if (ids[i] < 0 || ids[i] >= pass->model->config.vocab)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "token %d is outside the vocabulary of %d", ids[i],
                            pass->model->config.vocab);
    TPW_TRY(pass->exec->device->upload(pass->exec, pass->ws.ids, ids, (size_t)rows * sizeof *ids, err));
    TPW_TRY(pass->exec->ops->embed(pass->exec, &args, err));
    return pass->comm->ops->merge(pass->comm, out.data, bytes, err);
}

static void tap(tpw_pass *pass, int32_t layer, tpw_mat rows)
{
    if (pass->tap != NULL)
        pass->tap(pass->tap_data, layer, &rows);
}

/* Adds the digest of every group's rows of the residual stream after `layer`. */
static tpw_status digest_hidden(tpw_pass *pass, int32_t layer, const tpw_hidden_group *groups, int32_t group_count,
                                uint64_t *sums, tpw_error *err)
{
    const tpw_config *c = &pass->model->config;
    tpw_mat h = pass->ws.h;

    for (int32_t g = 0; g < group_count; g++) {
        tpw_digest_args args = {.x = h,
                                .key = pass->hidden_keys[layer],
                                .index0 = (uint64_t)groups[g].pos * (uint64_t)c->hidden,
                                .index_stride = (uint64_t)c->hidden,
                                .sum = &sums[(size_t)g * (size_t)c->layers + (size_t)layer]};

        args.x.rows = groups[g].rows;
        args.x.data = (char *)h.data + (size_t)groups[g].row0 * (size_t)h.stride * tpw_dtype_size(h.dtype);
        TPW_TRY(pass->exec->ops->digest(pass->exec, &args, err));
    }
    return TPW_OK;
}

/* Checks the rows and makes them known to the device. */
static tpw_status begin(const tpw_pass *pass, const tpw_batch *batch, tpw_error *err)
{
    const tpw_device *device = pass->exec->device;

    if (batch->rows < 1 || batch->rows > pass->limits.rows_max)
        return tpw_fail(err, TPW_ERR_LIMIT, "a pass of %d rows: 1..%d are planned", batch->rows, pass->limits.rows_max);
    for (int32_t s = 0; s < batch->segment_count; s++)
        if (batch->segments[s].pos + batch->segments[s].rows > pass->model->rope_positions)
            return tpw_fail(err, TPW_ERR_LIMIT, "position %lld is past the planned %d",
                            (long long)(batch->segments[s].pos + batch->segments[s].rows - 1),
                            pass->model->rope_positions);
    if (device->stage != NULL)
        return device->stage(pass->exec, batch, pass->state->limits.page_size, err);
    return TPW_OK;
}

tpw_status tpw_pass_trunk(tpw_pass *pass, const tpw_batch *batch, const int32_t *ids, const tpw_hidden_group *groups,
                          int32_t group_count, uint64_t *sums, tpw_error *err)
{
    const tpw_model *m = pass->model;
    int32_t rows = batch->rows, layers = m->config.layers;
    tpw_mat h = tpw_head_rows(pass->ws.h, rows);

    TPW_TRY(begin(pass, batch, err));
    TPW_TRY(embed(pass, ids, rows, h, err));
    tap(pass, -1, h);
    TPW_TRY(tpw_layer_norm(pass, rows, m->layers[0].input_norm, false, err));
    for (int32_t i = 0; i < layers; i++) {
        const float *next = i + 1 < layers ? m->layers[i + 1].input_norm : m->final_norm;
        const tpw_layer_state *state = &pass->state->layers[i];

        TPW_TRY(tpw_layer_run(pass, batch, &m->layers[i], state, &state->kv, err));
        TPW_TRY(tpw_layer_norm(pass, rows, next, true, err));
        TPW_TRY(digest_hidden(pass, i, groups, group_count, sums, err));
        tap(pass, i, h);
    }
    tap(pass, layers, tpw_head_rows(pass->ws.y, rows));
    return TPW_OK;
}

tpw_status tpw_pass_commit(tpw_pass *pass, int32_t slot, int64_t pos_before, int64_t pos, tpw_error *err)
{
    const tpw_config *c = &pass->model->config;

    for (int32_t i = 0; pos / TPW_GRID != pos_before / TPW_GRID && i < c->layers; i++) {
        const tpw_delta_commit_args args = {
            .state = pass->state->layers[i].gdn, .slot = slot, .pos_before = pos_before, .pos = pos};

        if (c->kind[i] == TPW_LAYER_DELTANET)
            TPW_TRY(pass->exec->ops->delta_commit(pass->exec, &args, err));
    }
    return TPW_OK;
}

/* y = norm(x) with the zero-centred norm, into a part of a wider row. */
static tpw_status norm_into(tpw_pass *pass, tpw_mat x, const float *weight, tpw_mat y, tpw_error *err)
{
    const tpw_add_norm_args args = {.h = x, .weight = weight, .eps = pass->model->config.rms_eps, .y = y};

    return pass->exec->ops->add_norm(pass->exec, &args, err);
}

tpw_status tpw_pass_mtp(tpw_pass *pass, const tpw_batch *batch, const int32_t *ids, const tpw_mat *hidden,
                        tpw_error *err)
{
    const tpw_mtp_weights *w = &pass->model->mtp;
    tpw_workspace *ws = &pass->ws;
    int32_t rows = batch->rows, H = pass->model->config.hidden;
    tpw_mat h = tpw_head_rows(ws->h, rows);
    tpw_mat left = tpw_head_rows(ws->join, rows), right = left;
    tpw_gemm_args fc = {.x = left, .w = w->fc, .kind = TPW_GEMM_COLUMN, .y = h};

    if (!pass->model->has_mtp || !pass->state->limits.mtp)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "the checkpoint has no MTP module");
    TPW_TRY(begin(pass, batch, err));
    left.cols = H;
    right.cols = H;
    right.data = (char *)right.data + (size_t)H * tpw_dtype_size(right.dtype);
    TPW_TRY(embed(pass, ids, rows, h, err));
    TPW_TRY(norm_into(pass, h, w->norm_embedding, left, err));
    TPW_TRY(norm_into(pass, tpw_head_rows(*hidden, rows), w->norm_hidden, right, err));
    TPW_TRY(pass->exec->ops->gemm(pass->exec, &fc, err));
    TPW_TRY(tpw_layer_norm(pass, rows, w->layer.input_norm, false, err));
    TPW_TRY(tpw_layer_run(pass, batch, &w->layer, NULL, &pass->state->mtp, err));
    return tpw_layer_norm(pass, rows, w->norm, true, err);
}

/* y[i] = x[rows[i]] with host indices. */
static tpw_status gather(tpw_pass *pass, tpw_mat x, const int32_t *rows, int32_t count, tpw_mat y, tpw_error *err)
{
    const tpw_gather_args args = {.x = x, .rows = pass->ws.rows, .y = tpw_head_rows(y, count)};

    if (count < 0 || count > pass->limits.rows_max)
        return tpw_fail(err, TPW_ERR_LIMIT, "%d rows to gather: at most %d are planned", count, pass->limits.rows_max);
    TPW_TRY(pass->exec->device->upload(pass->exec, pass->ws.rows, rows, (size_t)count * sizeof *rows, err));
    return pass->exec->ops->gather(pass->exec, &args, err);
}

tpw_status tpw_pass_carry(tpw_pass *pass, const int32_t *rows, int32_t count, tpw_error *err)
{
    return gather(pass, pass->ws.y, rows, count, pass->ws.carry, err);
}

tpw_status tpw_pass_keep_mtp(tpw_pass *pass, int32_t row, int32_t slot, tpw_error *err)
{
    tpw_mat to = pass->state->mtp_hidden;

    to.data = (char *)to.data + (size_t)slot * (size_t)to.stride * tpw_dtype_size(to.dtype);
    return gather(pass, pass->ws.y, &row, 1, to, err);
}

tpw_status tpw_pass_recall_mtp(tpw_pass *pass, const int32_t *slots, int32_t count, tpw_error *err)
{
    return gather(pass, pass->state->mtp_hidden, slots, count, pass->ws.y, err);
}
