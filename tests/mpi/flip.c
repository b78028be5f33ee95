/* Chooses live elements of a worker's state and flips their bits. SPDX-License-Identifier: Apache-2.0 */
#include "flip.h"

int flip_bits(tpw_dtype dtype)
{
    return (int)tpw_dtype_size(dtype) * 8;
}

void flip_bit(void *data, tpw_dtype dtype, int64_t index, int bit)
{
    unsigned char *at = (unsigned char *)data + index * (int64_t)tpw_dtype_size(dtype);

    at[bit / 8] ^= (unsigned char)(1u << (bit % 8)); /* little-endian, as all hosts here */
}

void flip_apply(const flip *f)
{
    flip_bit(f->data, f->dtype, f->index, f->bit);
}

/* S, or a row of k, u or decay at one of the positions since the last multiple of the grid. */
static void choose_recurrent(const tpw_gdn_state *g, small_random *r, flip *f)
{
    int64_t pos = f->sequence->pos, rows = pos % TPW_GRID, slot = f->sequence->slot;
    int32_t part = rows > 0 ? small_below(r, 4) : 0;
    int64_t ring = rows > 0 ? (pos - 1 - small_below(r, (int32_t)rows)) % TPW_GDN_RING : 0;
    int32_t widths[] = {g->v_heads * g->k_dim * g->v_dim, g->k_heads * g->k_dim, g->v_heads * g->v_dim, g->v_heads};
    float *arrays[] = {g->S, g->k, g->u, g->decay};

    f->scope = "recurrent";
    f->data = arrays[part];
    f->dtype = TPW_F32;
    f->index = (part == 0 ? slot : slot * TPW_GDN_RING + ring) * widths[part] + small_below(r, widths[part]);
}

static void choose_conv(const tpw_conv_state *c, int32_t width, small_random *r, flip *f)
{
    int64_t pos = f->sequence->pos, live = pos < width - 1 ? pos : width - 1;
    int64_t ring = (pos - 1 - small_below(r, (int32_t)live)) % TPW_CONV_RING;

    f->scope = "conv";
    f->data = c->x;
    f->dtype = c->dtype;
    f->index = (f->sequence->slot * (int64_t)TPW_CONV_RING + ring) * c->channels + small_below(r, c->channels);
}

static void choose_kv(const tpw_kv *kv, small_random *r, flip *f)
{
    int32_t pos = small_below(r, (int32_t)f->sequence->pos);
    int64_t page = f->sequence->pages[pos / kv->page_size];

    f->scope = "kv";
    f->data = small_below(r, 2) == 0 ? kv->k : kv->v;
    f->dtype = kv->dtype;
    f->index = ((page * kv->heads + small_below(r, kv->heads)) * kv->page_size + pos % kv->page_size) * kv->head_dim +
               small_below(r, kv->head_dim);
}

bool flip_choose(const tpw_worker *worker, small_random *random, flip *out)
{
    const tpw_sequences *all = &worker->sequences;
    const tpw_sequence *begun[16];
    const tpw_layer_state *state;
    int32_t count = 0;

    for (int32_t i = 0; i < all->running_count && count < 16; i++)
        if (all->running[i]->pos > 0)
            begun[count++] = all->running[i];
    if (count == 0)
        return false;
    *out = (flip){.sequence = begun[small_below(random, count)], .layer = small_below(random, worker->config.layers)};
    state = &worker->state->layers[out->layer];
    if (worker->config.kind[out->layer] == TPW_LAYER_ATTENTION)
        choose_kv(&state->kv, random, out);
    else if (small_below(random, 3) == 0)
        choose_conv(&state->conv, worker->config.conv_width, random, out);
    else
        choose_recurrent(&state->gdn, random, out);
    out->bit = small_below(random, flip_bits(out->dtype));
    return true;
}
