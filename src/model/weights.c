/* The weights of this rank: which tensors, in which shapes. How one tensor is read is in tensor_load.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/tensor_load.h"

/* A layer's two row-parallel cuts and the rest, by kind. `prefix` ends in '.'. */
static tpw_status load_mlp(tpw_loader *l, const char *prefix, tpw_layer_weights *w)
{
    const tpw_config *c = l->config;
    tpw_span inter = l->part->inter;

    TPW_TRY(tpw_load_rows(l, prefix, "mlp.gate_proj.weight", c->intermediate, c->hidden, &inter, 1, TPW_SHARE_CUT,
                          &w->gate));
    TPW_TRY(
        tpw_load_rows(l, prefix, "mlp.up_proj.weight", c->intermediate, c->hidden, &inter, 1, TPW_SHARE_CUT, &w->up));
    return tpw_load_cols(l, prefix, "mlp.down_proj.weight", c->hidden, c->intermediate, inter, &w->down);
}

static tpw_status load_attention(tpw_loader *l, const char *prefix, tpw_layer_weights *w)
{
    const tpw_config *c = l->config;
    const tpw_partition *p = l->part;
    int32_t D = c->head_dim;
    tpw_span q = {p->heads.begin * 2 * D, p->heads.count * 2 * D};
    tpw_span kv = {p->kv_heads.begin * D, p->kv_heads.count * D};
    tpw_span o = {p->heads.begin * D, p->heads.count * D};

    TPW_TRY(
        tpw_load_rows(l, prefix, "self_attn.q_proj.weight", c->heads * 2 * D, c->hidden, &q, 1, TPW_SHARE_CUT, &w->q));
    TPW_TRY(
        tpw_load_rows(l, prefix, "self_attn.k_proj.weight", c->kv_heads * D, c->hidden, &kv, 1, TPW_SHARE_KV, &w->k));
    TPW_TRY(
        tpw_load_rows(l, prefix, "self_attn.v_proj.weight", c->kv_heads * D, c->hidden, &kv, 1, TPW_SHARE_KV, &w->v));
    TPW_TRY(tpw_load_cols(l, prefix, "self_attn.o_proj.weight", c->hidden, c->heads * D, o, &w->o));
    TPW_TRY(tpw_load_vector(l, prefix, "self_attn.q_norm.weight", D, (tpw_span){0, D}, &w->q_norm));
    return tpw_load_vector(l, prefix, "self_attn.k_norm.weight", D, (tpw_span){0, D}, &w->k_norm);
}

static tpw_status load_deltanet(tpw_loader *l, const char *prefix, tpw_layer_weights *w)
{
    const tpw_config *c = l->config;
    const tpw_partition *p = l->part;
    int32_t value_width = c->linear_v_heads * c->linear_v_dim;
    int32_t channels = 2 * c->linear_k_heads * c->linear_k_dim + value_width;
    tpw_span z = {p->v_heads.begin * c->linear_v_dim, p->v_heads.count * c->linear_v_dim};
    tpw_span qkv[3], heads = p->v_heads;

    tpw_qkv_spans(c, p, qkv);
    TPW_TRY(tpw_load_rows(l, prefix, "linear_attn.in_proj_qkv.weight", channels, c->hidden, qkv, 3, TPW_SHARE_CUT,
                          &w->qkv));
    TPW_TRY(
        tpw_load_rows(l, prefix, "linear_attn.in_proj_z.weight", value_width, c->hidden, &z, 1, TPW_SHARE_CUT, &w->z));
    TPW_TRY(tpw_load_rows(l, prefix, "linear_attn.in_proj_a.weight", c->linear_v_heads, c->hidden, &heads, 1,
                          TPW_SHARE_CUT, &w->a));
    TPW_TRY(tpw_load_rows(l, prefix, "linear_attn.in_proj_b.weight", c->linear_v_heads, c->hidden, &heads, 1,
                          TPW_SHARE_CUT, &w->b));
    TPW_TRY(tpw_load_cols(l, prefix, "linear_attn.out_proj.weight", c->hidden, value_width, z, &w->out));
    TPW_TRY(tpw_load_table(l, prefix, "linear_attn.conv1d.weight", channels, c->conv_width, qkv, 3, &w->conv));
    TPW_TRY(tpw_load_vector(l, prefix, "linear_attn.A_log", c->linear_v_heads, heads, &w->a_log));
    TPW_TRY(tpw_load_vector(l, prefix, "linear_attn.dt_bias", c->linear_v_heads, heads, &w->dt_bias));
    return tpw_load_vector(l, prefix, "linear_attn.norm.weight", c->linear_v_dim, (tpw_span){0, c->linear_v_dim},
                           &w->linear_norm);
}

static tpw_status load_layer(tpw_loader *l, const char *prefix, tpw_layer_kind kind, tpw_layer_weights *w)
{
    tpw_span hidden = {0, l->config->hidden};

    w->kind = kind;
    TPW_TRY(tpw_load_vector(l, prefix, "input_layernorm.weight", hidden.count, hidden, &w->input_norm));
    TPW_TRY(tpw_load_vector(l, prefix, "post_attention_layernorm.weight", hidden.count, hidden, &w->post_norm));
    if (kind == TPW_LAYER_ATTENTION)
        TPW_TRY(load_attention(l, prefix, w));
    else
        TPW_TRY(load_deltanet(l, prefix, w));
    return load_mlp(l, prefix, w);
}

static tpw_status load_mtp(tpw_loader *l, tpw_mtp_weights *w)
{
    int32_t H = l->config->hidden;
    tpw_span hidden = {0, H};

    if (l->config->mtp_layers > 1)
        return tpw_fail(l->err, TPW_ERR_CHECKPOINT, "mtp_num_hidden_layers = %d: only one MTP layer is supported",
                        l->config->mtp_layers);
    TPW_TRY(tpw_load_vector(l, "mtp.", "pre_fc_norm_embedding.weight", H, hidden, &w->norm_embedding));
    TPW_TRY(tpw_load_vector(l, "mtp.", "pre_fc_norm_hidden.weight", H, hidden, &w->norm_hidden));
    TPW_TRY(tpw_load_vector(l, "mtp.", "norm.weight", H, hidden, &w->norm));
    TPW_TRY(tpw_load_rows(l, "mtp.", "fc.weight", H, 2 * H, &hidden, 1, TPW_SHARE_ALL, &w->fc));
    return load_layer(l, "mtp.layers.0.", TPW_LAYER_ATTENTION, &w->layer);
}

/* Embedding and head. A tied checkpoint may all the same contain lm_head.weight (it is skipped); an untied one must. */
static tpw_status load_ends(tpw_loader *l, const char *trunk, tpw_model *m)
{
    const tpw_config *c = l->config;
    tpw_span vocab = l->part->vocab;
    tpw_tensor_info info;
    tpw_weight table;

    TPW_TRY(tpw_load_rows_plain(l, trunk, "embed_tokens.weight", c->vocab, c->hidden, vocab, &table));
    if (table.dtype == TPW_E4M3)
        return tpw_fail(l->err, TPW_ERR_CHECKPOINT, "%sembed_tokens.weight: an FP8 embedding is not supported", trunk);
    m->embed = (tpw_mat){
        .data = (void *)table.data, .dtype = table.dtype, .rows = table.rows, .cols = table.cols, .stride = table.cols};
    TPW_TRY(tpw_load_vector(l, trunk, "norm.weight", c->hidden, (tpw_span){0, c->hidden}, &m->final_norm));
    if (!c->tied)
        return tpw_load_rows(l, "", "lm_head.weight", c->vocab, c->hidden, &vocab, 1, TPW_SHARE_CUT, &m->lm_head);
    TPW_TRY(tpw_load_layout(l, TPW_GEMM_COLUMN, &table));
    m->lm_head = table;
    if (tpw_checkpoint_find(l->checkpoint, "lm_head.weight", &info))
        tpw_checkpoint_mark(l->checkpoint, &info);
    return TPW_OK;
}

static tpw_status load_all(tpw_loader *l, tpw_model *m)
{
    const tpw_config *c = l->config;
    tpw_tensor_info info;
    const char *trunk = "model.language_model.";
    char prefix[96];

    if (!tpw_checkpoint_find(l->checkpoint, "model.language_model.embed_tokens.weight", &info))
        trunk = "model.";
    TPW_TRY(load_ends(l, trunk, m));
    for (int32_t i = 0; i < c->layers; i++) {
        snprintf(prefix, sizeof prefix, "%slayers.%d.", trunk, i);
        TPW_TRY(load_layer(l, prefix, (tpw_layer_kind)c->kind[i], &m->layers[i]));
    }
    m->has_mtp = tpw_checkpoint_find(l->checkpoint, "mtp.fc.weight", &info);
    if (m->has_mtp)
        TPW_TRY(load_mtp(l, &m->mtp));
    m->rope = tpw_arena_take(l->arena, (int64_t)m->rope_positions * c->rope_dim, sizeof(float));
    return tpw_arena_check(l->arena, "weights", l->err);
}

static tpw_model *model_new(const tpw_config *config, const tpw_partition *part, int32_t rope_positions)
{
    tpw_model *m = calloc(1, sizeof *m);

    if (m == NULL)
        return NULL;
    m->config = *config;
    m->part = *part;
    m->rope_positions = rope_positions;
    m->layers = calloc((size_t)config->layers, sizeof *m->layers);
    if (m->layers == NULL) {
        free(m);
        return NULL;
    }
    return m;
}

tpw_status tpw_model_bytes(const tpw_config *config, const tpw_partition *part, tpw_checkpoint *checkpoint,
                           const tpw_device *layout, int32_t rope_positions, size_t *bytes, tpw_error *err)
{
    tpw_model *m = model_new(config, part, rope_positions);
    tpw_arena arena = tpw_arena_measure();
    tpw_loader l = {
        .config = config, .part = part, .checkpoint = checkpoint, .layout = layout, .arena = &arena, .err = err};
    tpw_status st;

    if (m == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the table of %d layers", config->layers);
    st = load_all(&l, m);
    tpw_model_destroy(m);
    if (st == TPW_OK)
        *bytes = arena.used;
    return st;
}

tpw_status tpw_model_load(const tpw_config *config, const tpw_partition *part, tpw_checkpoint *checkpoint,
                          const tpw_exec *exec, tpw_pool *pool, const float *rope, int32_t rope_positions,
                          tpw_load_progress *progress, void *progress_data, tpw_model **out, tpw_error *err)
{
    return tpw_model_load_summed(config, part, checkpoint, exec, pool, rope, rope_positions, progress, progress_data,
                                 NULL, out, err);
}

tpw_status tpw_model_load_summed(const tpw_config *config, const tpw_partition *part, tpw_checkpoint *checkpoint,
                                 const tpw_exec *exec, tpw_pool *pool, const float *rope, int32_t rope_positions,
                                 tpw_load_progress *progress, void *progress_data, tpw_weight_sums *sums,
                                 tpw_model **out, tpw_error *err)
{
    tpw_model *m = NULL;
    size_t bytes = 0;
    tpw_loader l = {0};
    tpw_status st;

    TPW_TRY(tpw_model_bytes(config, part, checkpoint, exec->device, rope_positions, &bytes, err));
    m = model_new(config, part, rope_positions);
    if (m == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the table of %d layers", config->layers);
    m->exec = exec;
    m->pool = pool;
    TPW_TRY_GOTO(st, tpw_pool_arena_init(pool, bytes, &m->arena, err), fail);
    TPW_TRY_GOTO(st, tpw_loader_init(&l, config, part, checkpoint, exec, pool, &m->arena, err), fail);
    l.sums = sums;
    l.progress = progress;
    l.progress_data = progress_data;
    TPW_TRY_GOTO(st, load_all(&l, m), fail);
    TPW_TRY_GOTO(st,
                 exec->device->upload(exec, m->rope, rope,
                                      (size_t)rope_positions * (size_t)config->rope_dim * sizeof(float), err),
                 fail);
    TPW_TRY_GOTO(st, tpw_checkpoint_check_used(checkpoint, err), fail);
    tpw_loader_fini(&l);
    *out = m;
    return TPW_OK;
fail:
    tpw_loader_fini(&l);
    tpw_model_destroy(m);
    return st;
}

void tpw_model_destroy(tpw_model *model)
{
    if (model == NULL)
        return;
    if (model->pool != NULL)
        (void)!tpw_pool_arena_fini(model->pool, &model->arena, NULL);
    free(model->layers);
    free(model);
}
