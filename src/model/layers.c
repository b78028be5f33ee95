/* One decoder layer as a sequence of ops. SPDX-License-Identifier: Apache-2.0 */
#include "model/layers.h"

#include <math.h>

/* Rows of the workspace matrix `m` that this step uses. */
#define ROWS(m) tpw_head_rows((m), batch->rows)

static tpw_status project(tpw_pass *pass, tpw_mat x, const tpw_weight *w, tpw_gemm_kind kind, tpw_mat y, tpw_error *err)
{
    const tpw_gemm_args args = {.x = x, .w = *w, .kind = kind, .y = y};

    return pass->exec->ops->gemm(pass->exec, &args, err);
}

/* The row-parallel end of a block: local slices, then the upper part of the same tree over ranks. */
static tpw_status project_and_reduce(tpw_pass *pass, tpw_mat x, const tpw_weight *w, tpw_error *err)
{
    tpw_mat sum = tpw_head_rows(pass->ws.sum, x.rows);

    TPW_TRY(project(pass, x, w, TPW_GEMM_ROW, sum, err));
    return pass->comm->ops->allreduce(pass->comm, sum.data, (size_t)sum.rows * (size_t)sum.cols, err);
}

/* Columns [col0, col0 + cols) of a matrix. */
static tpw_mat columns(tpw_mat m, int32_t col0, int32_t cols)
{
    m.data = (char *)m.data + (size_t)col0 * tpw_dtype_size(m.dtype);
    m.cols = cols;
    return m;
}

static tpw_status deltanet_recurrence(tpw_pass *pass, const tpw_batch *batch, const tpw_layer_weights *w,
                                      const tpw_layer_state *state, tpw_error *err)
{
    const tpw_config *c = &pass->model->config;
    const tpw_ops *ops = pass->exec->ops;
    tpw_workspace *ws = &pass->ws;
    int32_t Kd = tpw_key_width(c, &pass->model->part), Vd = tpw_value_width(c, &pass->model->part);
    int32_t k_heads = pass->model->part.k_heads.count;
    tpw_mat conv = ROWS(ws->conv);
    const tpw_l2norm_args q = {
        .x = columns(conv, 0, Kd), .heads = k_heads, .scale = 1.0f / sqrtf((float)c->linear_k_dim), .y = ROWS(ws->q32)};
    const tpw_l2norm_args k = {.x = columns(conv, Kd, Kd), .heads = k_heads, .scale = 1.0f, .y = ROWS(ws->k32)};
    const tpw_gates_args gates = {.a = ROWS(ws->a),
                                  .b = ROWS(ws->b),
                                  .a_log = w->a_log,
                                  .dt_bias = w->dt_bias,
                                  .decay = ROWS(ws->decay),
                                  .beta = ROWS(ws->beta)};
    const tpw_delta_args delta = {.batch = batch,
                                  .q = q.y,
                                  .k = k.y,
                                  .v = columns(conv, 2 * Kd, Vd),
                                  .decay = gates.decay,
                                  .beta = gates.beta,
                                  .state = state->gdn,
                                  .o = ROWS(ws->o)};

    TPW_TRY(ops->l2norm(pass->exec, &q, err));
    TPW_TRY(ops->l2norm(pass->exec, &k, err));
    TPW_TRY(ops->gates(pass->exec, &gates, err));
    return ops->delta(pass->exec, &delta, err);
}

tpw_status tpw_layer_deltanet(tpw_pass *pass, const tpw_batch *batch, const tpw_layer_weights *w,
                              const tpw_layer_state *state, tpw_error *err)
{
    const tpw_config *c = &pass->model->config;
    tpw_workspace *ws = &pass->ws;
    tpw_mat y = ROWS(ws->y);
    const tpw_conv_args conv = {.batch = batch,
                                .x = ROWS(ws->qkv),
                                .weight = w->conv,
                                .width = c->conv_width,
                                .state = state->conv,
                                .y = ROWS(ws->conv)};
    const tpw_gated_norm_args norm = {.x = ROWS(ws->o),
                                      .z = ROWS(ws->z),
                                      .weight = w->linear_norm,
                                      .heads = pass->model->part.v_heads.count,
                                      .eps = c->rms_eps,
                                      .sigmoid_gate = c->sigmoid_gate,
                                      .y = ROWS(ws->gated)};

    TPW_TRY(project(pass, y, &w->qkv, TPW_GEMM_COLUMN, ROWS(ws->qkv), err));
    TPW_TRY(project(pass, y, &w->z, TPW_GEMM_COLUMN, ROWS(ws->z), err));
    TPW_TRY(project(pass, y, &w->a, TPW_GEMM_COLUMN, ROWS(ws->a), err));
    TPW_TRY(project(pass, y, &w->b, TPW_GEMM_COLUMN, ROWS(ws->b), err));
    TPW_TRY(pass->exec->ops->conv(pass->exec, &conv, err));
    TPW_TRY(deltanet_recurrence(pass, batch, w, state, err));
    TPW_TRY(pass->exec->ops->gated_norm(pass->exec, &norm, err));
    return project_and_reduce(pass, norm.y, &w->out, err);
}

tpw_status tpw_layer_attention(tpw_pass *pass, const tpw_batch *batch, const tpw_layer_weights *w, const tpw_kv *kv,
                               tpw_error *err)
{
    const tpw_config *c = &pass->model->config;
    const tpw_ops *ops = pass->exec->ops;
    tpw_workspace *ws = &pass->ws;
    tpw_mat y = ROWS(ws->y);
    const tpw_attn_prepare_args prepare = {.batch = batch,
                                           .qg = ROWS(ws->qg),
                                           .k = ROWS(ws->k),
                                           .v = ROWS(ws->v),
                                           .q_heads = pass->model->part.heads.count,
                                           .q_norm = w->q_norm,
                                           .k_norm = w->k_norm,
                                           .eps = c->rms_eps,
                                           .rope = pass->model->rope,
                                           .rope_dim = c->rope_dim,
                                           .kv = *kv,
                                           .q = ROWS(ws->q)};
    const tpw_attention_args attention = {.batch = batch,
                                          .q = prepare.q,
                                          .qg = prepare.qg,
                                          .q_heads = prepare.q_heads,
                                          .kv = *kv,
                                          .out = ROWS(ws->attended)};

    TPW_TRY(project(pass, y, &w->q, TPW_GEMM_COLUMN, prepare.qg, err));
    TPW_TRY(project(pass, y, &w->k, TPW_GEMM_COLUMN, prepare.k, err));
    TPW_TRY(project(pass, y, &w->v, TPW_GEMM_COLUMN, prepare.v, err));
    TPW_TRY(ops->attn_prepare(pass->exec, &prepare, err));
    TPW_TRY(ops->attention(pass->exec, &attention, err));
    return project_and_reduce(pass, attention.out, &w->o, err);
}

tpw_status tpw_layer_mlp(tpw_pass *pass, const tpw_batch *batch, const tpw_layer_weights *w, tpw_error *err)
{
    tpw_workspace *ws = &pass->ws;
    tpw_mat y = ROWS(ws->y);
    const tpw_swiglu_args swiglu = {.gate = ROWS(ws->gate), .up = ROWS(ws->up), .y = ROWS(ws->act)};

    TPW_TRY(project(pass, y, &w->gate, TPW_GEMM_COLUMN, swiglu.gate, err));
    TPW_TRY(project(pass, y, &w->up, TPW_GEMM_COLUMN, swiglu.up, err));
    TPW_TRY(pass->exec->ops->swiglu(pass->exec, &swiglu, err));
    return project_and_reduce(pass, swiglu.y, &w->down, err);
}

tpw_status tpw_layer_norm(tpw_pass *pass, int32_t rows, const float *weight, bool add, tpw_error *err)
{
    tpw_workspace *ws = &pass->ws;
    const tpw_add_norm_args args = {.h = tpw_head_rows(ws->h, rows),
                                    .sum = add ? ws->sum.data : NULL,
                                    .weight = weight,
                                    .eps = pass->model->config.rms_eps,
                                    .y = tpw_head_rows(ws->y, rows)};

    return pass->exec->ops->add_norm(pass->exec, &args, err);
}

tpw_status tpw_layer_run(tpw_pass *pass, const tpw_batch *batch, const tpw_layer_weights *w,
                         const tpw_layer_state *state, const tpw_kv *kv, tpw_error *err)
{
    if (w->kind == TPW_LAYER_ATTENTION)
        TPW_TRY(tpw_layer_attention(pass, batch, w, kv, err));
    else
        TPW_TRY(tpw_layer_deltanet(pass, batch, w, state, err));
    TPW_TRY(tpw_layer_norm(pass, batch->rows, w->post_norm, true, err));
    return tpw_layer_mlp(pass, batch, w, err);
}
