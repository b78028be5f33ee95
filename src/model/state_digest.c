/* Digests of a sequence's state over the documented global shapes; see state.h. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/digest.h"
#include "model/state.h"

#define V_INDEX ((uint64_t)1 << 40) /* where a layer's V indices begin, behind all of K */

static uint64_t scope_key(const char *scope, int32_t layer)
{
    char name[48];

    snprintf(name, sizeof name, "%s.%d", scope, layer);
    return tpw_digest_key(name);
}

/* Lists the digest of a [rows, cols] block of device memory. */
static tpw_status add_block(tpw_digest_list *list, uint64_t key, void *data, tpw_dtype dtype, int32_t rows,
                            int32_t cols, int64_t stride, uint64_t index0, uint64_t index_stride, uint64_t *sum,
                            tpw_error *err)
{
    const tpw_digest_args args = {.x = {.data = data, .dtype = dtype, .rows = rows, .cols = cols, .stride = stride},
                                  .key = key,
                                  .index0 = index0,
                                  .index_stride = index_stride,
                                  .sum = sum};

    return tpw_digest_list_add(list, &args, err);
}

/* Global conv channel of the first local channel of each of the segments q, k, v is that of its row in in_proj_qkv. */
tpw_status tpw_state_list_conv(const tpw_state *state, tpw_digest_list *list, int32_t layer, int32_t slot, int64_t pos,
                               uint64_t *out, tpw_error *err)
{
    const tpw_conv_state *c = &state->layers[layer].conv;
    uint64_t key = scope_key("conv", layer);
    int32_t taps = state->config->conv_width - 1;
    size_t size = tpw_dtype_size(c->dtype);
    tpw_span spans[3];

    *out = 0;
    tpw_qkv_spans(state->config, state->part, spans);
    for (int32_t t = 0; t < taps; t++) {
        int64_t at = pos - taps + t;
        int64_t ring = at >= 0 ? (int64_t)slot * TPW_CONV_RING + at % TPW_CONV_RING : 0; /* slot 0 holds the zeros */
        char *row = (char *)c->x + (size_t)(ring * c->channels) * size;
        int32_t local = 0;

        for (int i = 0; i < 3; i++) {
            /* a column of the [C, W-1] shape: one element a row, W-1 apart in the index */
            TPW_TRY(add_block(list, key, row + (size_t)local * size, c->dtype, spans[i].count, 1, 1,
                              (uint64_t)spans[i].begin * (uint64_t)taps + (uint64_t)t, (uint64_t)taps, out, err));
            local += spans[i].count;
        }
    }
    return TPW_OK;
}

tpw_status tpw_state_list_recurrent(const tpw_state *state, tpw_digest_list *list, int32_t layer, int32_t slot,
                                    int64_t pos, uint64_t *out, tpw_error *err)
{
    const tpw_gdn_state *g = &state->layers[layer].gdn;
    const tpw_config *c = state->config;
    uint64_t key = scope_key("recurrent", layer);
    uint64_t dk = (uint64_t)g->k_dim, dv = (uint64_t)g->v_dim;
    uint64_t k_heads = (uint64_t)c->linear_k_heads, v_heads = (uint64_t)c->linear_v_heads;
    uint64_t k0 = (uint64_t)state->part->k_heads.begin, v0 = (uint64_t)state->part->v_heads.begin;
    uint64_t k_base = v_heads * dk * dv, u_base = k_base + TPW_GRID * k_heads * dk;
    uint64_t decay_base = u_base + TPW_GRID * v_heads * dv;
    int32_t k_cols = g->k_heads * g->k_dim, v_cols = g->v_heads * g->v_dim;
    int64_t base = pos / TPW_GRID * TPW_GRID;

    *out = 0;
    if (pos >= TPW_GRID)
        TPW_TRY(add_block(list, key, g->S + (int64_t)slot * v_cols * g->k_dim, TPW_F32, g->v_heads, g->k_dim * g->v_dim,
                          (int64_t)g->k_dim * g->v_dim, v0 * dk * dv, dk * dv, out, err));
    else /* S before the first advance is zero whatever the slot holds; slot 0 is zero */
        TPW_TRY(add_block(list, key, g->S, TPW_F32, g->v_heads, g->k_dim * g->v_dim, (int64_t)g->k_dim * g->v_dim,
                          v0 * dk * dv, dk * dv, out, err));
    for (int64_t at = base; at < pos; at++) {
        int64_t ring = (int64_t)slot * TPW_GDN_RING + at % TPW_GDN_RING;
        uint64_t i = (uint64_t)(at - base);

        TPW_TRY(add_block(list, key, g->k + ring * k_cols, TPW_F32, 1, k_cols, k_cols, k_base + (i * k_heads + k0) * dk,
                          0, out, err));
        TPW_TRY(add_block(list, key, g->u + ring * v_cols, TPW_F32, 1, v_cols, v_cols, u_base + (i * v_heads + v0) * dv,
                          0, out, err));
        TPW_TRY(add_block(list, key, g->decay + ring * g->v_heads, TPW_F32, 1, g->v_heads, g->v_heads,
                          decay_base + i * v_heads + v0, 0, out, err));
    }
    return TPW_OK;
}

tpw_status tpw_state_list_kv(const tpw_state *state, tpw_digest_list *list, int32_t layer, const int32_t *pages,
                             int64_t pos, uint64_t *out, tpw_error *err)
{
    bool mtp = layer == state->config->layers;
    const tpw_kv *kv = mtp ? &state->mtp : &state->layers[layer].kv;
    uint64_t key = mtp ? tpw_digest_key("mtp") : scope_key("kv", layer);
    uint64_t D = (uint64_t)kv->head_dim, row = (uint64_t)state->config->kv_heads * D;
    size_t size = tpw_dtype_size(kv->dtype);

    *out = 0;
    for (int64_t at = 0; state->part->kv_owner && at < pos; at += kv->page_size) {
        int32_t n = pos - at < kv->page_size ? (int32_t)(pos - at) : kv->page_size;

        for (int32_t h = 0; h < kv->heads; h++) {
            int64_t element = ((int64_t)pages[at / kv->page_size] * kv->heads + h) * kv->page_size * kv->head_dim;
            uint64_t index = (uint64_t)at * row + (uint64_t)(state->part->kv_heads.begin + h) * D;

            TPW_TRY(add_block(list, key, (char *)kv->k + (size_t)element * size, kv->dtype, n, kv->head_dim,
                              kv->head_dim, index, row, out, err));
            TPW_TRY(add_block(list, key, (char *)kv->v + (size_t)element * size, kv->dtype, n, kv->head_dim,
                              kv->head_dim, V_INDEX + index, row, out, err));
        }
    }
    return TPW_OK;
}
