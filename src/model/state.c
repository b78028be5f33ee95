/* Allocates, poisons and frees the per-slot and per-page state of every layer. SPDX-License-Identifier: Apache-2.0 */
#include "model/state.h"

#include <stdlib.h>

#include "base/checked.h"

static tpw_kv carve_kv(const tpw_config *c, const tpw_partition *p, const tpw_state_limits *limits, tpw_arena *arena)
{
    int32_t pages = limits->pages + 1;
    tpw_kv kv = {.dtype = limits->act,
                 .heads = p->kv_heads.count,
                 .head_dim = c->head_dim,
                 .page_size = limits->page_size,
                 .pages = pages};
    int64_t row = (int64_t)kv.heads * kv.page_size * kv.head_dim;

    kv.k = tpw_arena_mat(arena, limits->act, pages, row).data;
    kv.v = tpw_arena_mat(arena, limits->act, pages, row).data;
    return kv;
}

static tpw_gdn_state carve_gdn(const tpw_config *c, const tpw_partition *p, int32_t slots, tpw_arena *arena)
{
    tpw_gdn_state s = {.slots = slots,
                       .k_heads = p->k_heads.count,
                       .v_heads = p->v_heads.count,
                       .k_dim = c->linear_k_dim,
                       .v_dim = c->linear_v_dim};
    int64_t rows = (int64_t)slots * TPW_GDN_RING;

    s.S = tpw_arena_take(arena, (int64_t)slots * s.v_heads, sizeof(float) * (size_t)s.k_dim * (size_t)s.v_dim);
    s.k = tpw_arena_take(arena, rows * s.k_heads, sizeof(float) * (size_t)s.k_dim);
    s.u = tpw_arena_take(arena, rows * s.v_heads, sizeof(float) * (size_t)s.v_dim);
    s.decay = tpw_arena_take(arena, rows * s.v_heads, sizeof(float));
    return s;
}

/* The one walk over all layers, used for measuring and for carving. layers may be NULL while measuring. */
static void carve(const tpw_config *c, const tpw_partition *p, const tpw_state_limits *limits, tpw_arena *arena,
                  tpw_layer_state *layers, tpw_kv *mtp, tpw_mat *mtp_hidden, tpw_state_bytes *bytes)
{
    int32_t slots = limits->slots + 1;

    for (int32_t i = 0; i < c->layers; i++) {
        tpw_layer_state s = {0};
        size_t before = arena->used;

        if (c->kind[i] == TPW_LAYER_ATTENTION) {
            s.kv = carve_kv(c, p, limits, arena);
            bytes->kv += arena->used - before;
        } else {
            s.gdn = carve_gdn(c, p, slots, arena);
            bytes->recurrent += arena->used - before;
            before = arena->used;
            s.conv = (tpw_conv_state){.dtype = limits->act, .slots = slots, .channels = tpw_conv_channels(c, p)};
            s.conv.x = tpw_arena_mat(arena, limits->act, (int64_t)slots * TPW_CONV_RING, s.conv.channels).data;
            bytes->conv += arena->used - before;
        }
        if (layers != NULL)
            layers[i] = s;
    }
    if (limits->mtp) {
        size_t before = arena->used;

        *mtp = carve_kv(c, p, limits, arena);
        bytes->kv += arena->used - before;
        *mtp_hidden = tpw_arena_mat(arena, limits->act, slots, c->hidden);
    }
    bytes->total = arena->used;
}

static tpw_status check_limits(const tpw_config *c, const tpw_state_limits *limits, tpw_error *err)
{
    if (limits->slots < 1 || limits->slots >= INT32_MAX / TPW_GDN_RING || limits->pages < 1 ||
        limits->pages == INT32_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "%d state slots and %d KV pages: both must be at least 1", limits->slots,
                        limits->pages);
    if (limits->page_size < 1 || limits->page_size > 256 || (limits->page_size & (limits->page_size - 1)) != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "page size %d is not a power of two in 1..256", limits->page_size);
    if (limits->act != TPW_F32 && limits->act != TPW_BF16)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "state of dtype %s: F32 and BF16 are supported",
                        tpw_dtype_name(limits->act));
    if (c->conv_width - 1 + 1 + TPW_DRAFT_MAX > TPW_CONV_RING)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "conv width %d does not fit into the window of %d inputs",
                        c->conv_width, TPW_CONV_RING);
    return TPW_OK;
}

tpw_status tpw_state_plan(const tpw_config *config, const tpw_partition *part, const tpw_state_limits *limits,
                          tpw_state_bytes *out, tpw_error *err)
{
    tpw_arena arena = tpw_arena_measure();
    tpw_state_bytes bytes = {0};
    tpw_kv mtp = {0};
    tpw_mat mtp_hidden = {0};

    TPW_TRY(check_limits(config, limits, err));
    carve(config, part, limits, &arena, NULL, &mtp, &mtp_hidden, &bytes);
    TPW_TRY(tpw_arena_check(&arena, "sequence state", err));
    *out = bytes;
    return TPW_OK;
}

tpw_status tpw_state_create(const tpw_config *config, const tpw_partition *part, const tpw_state_limits *limits,
                            const tpw_exec *exec, tpw_pool *pool, tpw_state **out, tpw_error *err)
{
    tpw_state_bytes bytes, again = {0};
    tpw_state *s;
    tpw_status st;

    TPW_TRY(tpw_state_plan(config, part, limits, &bytes, err));
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the state's table");
    s->exec = exec;
    s->pool = pool;
    s->config = config;
    s->part = part;
    s->limits = *limits;
    s->layers = calloc((size_t)config->layers, sizeof *s->layers);
    if (s->layers == NULL) {
        free(s);
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the state of %d layers", config->layers);
    }
    TPW_TRY_GOTO(st, tpw_pool_arena_init(pool, bytes.total, &s->arena, err), fail);
    carve(config, part, limits, &s->arena, s->layers, &s->mtp, &s->mtp_hidden, &again);
    TPW_TRY_GOTO(st, tpw_arena_check(&s->arena, "sequence state", err), fail);
    *out = s;
    return TPW_OK;
fail:
    tpw_state_destroy(s);
    return st;
}

void tpw_state_destroy(tpw_state *state)
{
    if (state == NULL)
        return;
    (void)!tpw_pool_arena_fini(state->pool, &state->arena, NULL);
    free(state->layers);
    free(state);
}

/* Fills the slot's part of an array that has `bytes` a slot. */
static tpw_status fill_part(const tpw_state *s, void *array, size_t bytes, int32_t index, int byte, tpw_error *err)
{
    return s->exec->device->fill(s->exec, (char *)array + bytes * (size_t)index, byte, bytes, err);
}

tpw_status tpw_state_fill_slot(tpw_state *state, int32_t slot, int byte, tpw_error *err)
{
    if (slot < 1 || slot > state->limits.slots)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "slot %d is not one of 1..%d", slot, state->limits.slots);
    for (int32_t i = 0; i < state->config->layers; i++) {
        tpw_gdn_state *g = &state->layers[i].gdn;
        tpw_conv_state *c = &state->layers[i].conv;
        size_t k = (size_t)g->k_heads * (size_t)g->k_dim, v = (size_t)g->v_heads * (size_t)g->v_dim;

        if (state->config->kind[i] == TPW_LAYER_ATTENTION)
            continue;
        TPW_TRY(fill_part(state, g->S, v * (size_t)g->k_dim * sizeof(float), slot, byte, err));
        TPW_TRY(fill_part(state, g->k, TPW_GDN_RING * k * sizeof(float), slot, byte, err));
        TPW_TRY(fill_part(state, g->u, TPW_GDN_RING * v * sizeof(float), slot, byte, err));
        TPW_TRY(fill_part(state, g->decay, TPW_GDN_RING * (size_t)g->v_heads * sizeof(float), slot, byte, err));
        TPW_TRY(
            fill_part(state, c->x, TPW_CONV_RING * (size_t)c->channels * tpw_dtype_size(c->dtype), slot, byte, err));
    }
    return state->limits.mtp
               ? fill_part(state, state->mtp_hidden.data,
                           (size_t)state->mtp_hidden.cols * tpw_dtype_size(state->mtp_hidden.dtype), slot, byte, err)
               : TPW_OK;
}

static tpw_status fill_kv_page(const tpw_state *s, const tpw_kv *kv, int32_t page, int byte, tpw_error *err)
{
    size_t bytes = (size_t)kv->heads * (size_t)kv->page_size * (size_t)kv->head_dim * tpw_dtype_size(kv->dtype);

    TPW_TRY(fill_part(s, kv->k, bytes, page, byte, err));
    return fill_part(s, kv->v, bytes, page, byte, err);
}

tpw_status tpw_state_fill_page(tpw_state *state, int32_t page, int byte, tpw_error *err)
{
    if (page < 1 || page > state->limits.pages)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "page %d is not one of 1..%d", page, state->limits.pages);
    for (int32_t i = 0; i < state->config->layers; i++)
        if (state->config->kind[i] == TPW_LAYER_ATTENTION)
            TPW_TRY(fill_kv_page(state, &state->layers[i].kv, page, byte, err));
    return state->limits.mtp ? fill_kv_page(state, &state->mtp, page, byte, err) : TPW_OK;
}
