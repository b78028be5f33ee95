/* A sequence's state on this rank, out to host memory and back. SPDX-License-Identifier: Apache-2.0 */
#include "model/state_copy.h"

#include "base/checked.h"

/* One walk over all parts serves counting, saving and restoring. */
typedef enum copy_mode { COPY_COUNT, COPY_SAVE, COPY_RESTORE } copy_mode;

typedef struct copier {
    const tpw_state *state;
    copy_mode mode;
    char *host;
    size_t used;
    bool overflow;
    tpw_error *err;
} copier;

/* Part `index` of an array that has `bytes` a part. */
static tpw_status part(copier *c, void *array, size_t bytes, int32_t index)
{
    const tpw_exec *exec = c->state->exec;
    char *device = (char *)array + bytes * (size_t)index, *host = c->host + c->used;

    if (c->mode == COPY_COUNT) {
        c->overflow = c->overflow || !tpw_add_size(c->used, bytes, &c->used);
        return TPW_OK;
    }
    c->used += bytes;
    return c->mode == COPY_SAVE ? exec->device->download(exec, host, device, bytes, c->err)
                                : exec->device->upload(exec, device, host, bytes, c->err);
}

static tpw_status pages_of(copier *c, const tpw_kv *kv, const int32_t *pages, int32_t count)
{
    size_t bytes = (size_t)kv->heads * (size_t)kv->page_size * (size_t)kv->head_dim * tpw_dtype_size(kv->dtype);

    for (int32_t i = 0; i < count; i++) {
        int32_t page = pages == NULL ? 0 : pages[i];

        TPW_TRY(part(c, kv->k, bytes, page));
        TPW_TRY(part(c, kv->v, bytes, page));
    }
    return TPW_OK;
}

static tpw_status slot_of(copier *c, const tpw_layer_state *layer, int32_t slot)
{
    const tpw_gdn_state *g = &layer->gdn;
    size_t k = (size_t)g->k_heads * (size_t)g->k_dim, v = (size_t)g->v_heads * (size_t)g->v_dim;
    size_t conv = TPW_CONV_RING * (size_t)layer->conv.channels * tpw_dtype_size(layer->conv.dtype);

    TPW_TRY(part(c, g->S, v * (size_t)g->k_dim * sizeof(float), slot));
    TPW_TRY(part(c, g->k, TPW_GDN_RING * k * sizeof(float), slot));
    TPW_TRY(part(c, g->u, TPW_GDN_RING * v * sizeof(float), slot));
    TPW_TRY(part(c, g->decay, TPW_GDN_RING * (size_t)g->v_heads * sizeof(float), slot));
    return part(c, layer->conv.x, conv, slot);
}

static tpw_status walk(copier *c, int32_t slot, const int32_t *pages, int32_t page_count)
{
    const tpw_state *s = c->state;
    const tpw_mat *hidden = &s->mtp_hidden;

    for (int32_t i = 0; i < s->config->layers; i++) {
        if (s->config->kind[i] == TPW_LAYER_ATTENTION)
            TPW_TRY(pages_of(c, &s->layers[i].kv, pages, page_count));
        else
            TPW_TRY(slot_of(c, &s->layers[i], slot));
    }
    if (!s->limits.mtp)
        return TPW_OK;
    TPW_TRY(pages_of(c, &s->mtp, pages, page_count));
    return part(c, hidden->data, (size_t)hidden->cols * tpw_dtype_size(hidden->dtype), slot);
}

bool tpw_state_copy_bytes(const tpw_state *state, int32_t page_count, size_t *out)
{
    copier c = {.state = state, .mode = COPY_COUNT};

    if (walk(&c, 0, NULL, page_count) != TPW_OK || c.overflow)
        return false;
    *out = c.used;
    return true;
}

tpw_status tpw_state_save(const tpw_state *state, int32_t slot, const int32_t *pages, int32_t page_count, void *host,
                          tpw_error *err)
{
    copier c = {.state = state, .mode = COPY_SAVE, .host = host, .err = err};

    return walk(&c, slot, pages, page_count);
}

tpw_status tpw_state_restore(tpw_state *state, int32_t slot, const int32_t *pages, int32_t page_count, const void *host,
                             tpw_error *err)
{
    copier c = {.state = state, .mode = COPY_RESTORE, .host = (char *)host, .err = err};

    return walk(&c, slot, pages, page_count);
}
