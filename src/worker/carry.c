/* State at rest: what was written against what is there. SPDX-License-Identifier: Apache-2.0 */
#include "worker/carry.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

tpw_status tpw_carry_init(tpw_carry *out, const tpw_state *state, tpw_error *err)
{
    size_t layers = (size_t)state->config->layers, slots = (size_t)state->limits.slots + 1;

    *out = (tpw_carry){.state = state};
    out->matrix = calloc(slots * layers, sizeof *out->matrix);
    out->rows = calloc(slots * layers * TPW_GDN_RING, sizeof *out->rows);
    out->conv = calloc(slots * layers * TPW_CONV_RING, sizeof *out->conv);
    out->kv = calloc(((size_t)state->limits.pages + 1) * layers, sizeof *out->kv);
    if (out->matrix == NULL || out->rows == NULL || out->conv == NULL || out->kv == NULL) {
        tpw_carry_fini(out);
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the digests of %d slots and %d pages", state->limits.slots,
                        state->limits.pages);
    }
    return TPW_OK;
}

void tpw_carry_fini(tpw_carry *carry)
{
    free(carry->matrix);
    free(carry->rows);
    free(carry->conv);
    free(carry->kv);
    free(carry->found);
    tpw_digest_list_fini(&carry->list);
    *carry = (tpw_carry){0};
}

/* Adds [rows, cols] elements without gaps to *sum, the first of them the element `first` of what the key names. What counts here is
 * whether bits changed, and no other digest is compared with this one: so they are taken eight bytes at a time where a row divides
 * into that, a half or a quarter of the work. A change within eight bytes is found as surely as one of an element. */
static tpw_status add(tpw_carry *c, void *data, tpw_dtype dtype, int32_t rows, int32_t cols, int64_t first,
                      uint64_t key, uint64_t *sum, tpw_error *err)
{
    int32_t size = (int32_t)tpw_dtype_size(dtype), word = (int32_t)sizeof(uint64_t) / size;
    bool whole = cols % word == 0 && first % word == 0;
    int32_t n = whole ? cols / word : cols;
    const tpw_digest_args args = {
        .x = {.data = data, .dtype = whole ? TPW_I64 : dtype, .rows = rows, .cols = n, .stride = n},
        .key = key,
        .index0 = (uint64_t)(whole ? first / word : first),
        .index_stride = (uint64_t)n,
        .sum = sum};

    return tpw_digest_list_add(&c->list, &args, err);
}

static tpw_status matrix_digest(tpw_carry *carry, int32_t layer, int32_t slot, uint64_t *out, tpw_error *err)
{
    const tpw_gdn_state *g = &carry->state->layers[layer].gdn;
    int32_t cols = g->k_dim * g->v_dim;

    *out = 0;
    return add(carry, g->S + (int64_t)slot * g->v_heads * cols, TPW_F32, g->v_heads, cols, 0, 1, out, err);
}

static tpw_status row_digest(tpw_carry *carry, int32_t layer, int32_t slot, int64_t pos, uint64_t *out, tpw_error *err)
{
    const tpw_gdn_state *g = &carry->state->layers[layer].gdn;
    int64_t ring = (int64_t)slot * TPW_GDN_RING + pos % TPW_GDN_RING;
    int32_t k = g->k_heads * g->k_dim, v = g->v_heads * g->v_dim;

    *out = 0;
    TPW_TRY(add(carry, g->k + ring * k, TPW_F32, 1, k, 0, 2, out, err));
    TPW_TRY(add(carry, g->u + ring * v, TPW_F32, 1, v, 0, 3, out, err));
    return add(carry, g->decay + ring * g->v_heads, TPW_F32, 1, g->v_heads, 0, 4, out, err);
}

static tpw_status conv_digest(tpw_carry *carry, int32_t layer, int32_t slot, int64_t pos, uint64_t *out, tpw_error *err)
{
    const tpw_conv_state *c = &carry->state->layers[layer].conv;
    int64_t ring = (int64_t)slot * TPW_CONV_RING + pos % TPW_CONV_RING;

    *out = 0;
    return add(carry, (char *)c->x + (size_t)(ring * c->channels) * tpw_dtype_size(c->dtype), c->dtype, 1, c->channels,
               0, 5, out, err);
}

/* K and V of positions [begin, end) inside one page. Keys by position, so that sums of parts add up. */
static tpw_status kv_digest(tpw_carry *carry, int32_t layer, int32_t page, int32_t begin, int32_t end, uint64_t *sum,
                            tpw_error *err)
{
    const tpw_kv *kv = &carry->state->layers[layer].kv;
    size_t size = tpw_dtype_size(kv->dtype);

    for (int32_t h = 0; h < kv->heads; h++) {
        int64_t first = ((int64_t)h * kv->page_size + begin) * kv->head_dim;
        size_t at = (size_t)((int64_t)page * kv->heads * kv->page_size * kv->head_dim + first) * size;

        TPW_TRY(add(carry, (char *)kv->k + at, kv->dtype, end - begin, kv->head_dim, first, 6, sum, err));
        TPW_TRY(add(carry, (char *)kv->v + at, kv->dtype, end - begin, kv->head_dim, first, 7, sum, err));
    }
    return TPW_OK;
}

static tpw_status note_kv(tpw_carry *c, const tpw_sequence *s, int32_t layer, int64_t before, tpw_error *err)
{
    int32_t page_size = c->state->limits.page_size, layers = c->state->config->layers;

    for (int64_t at = before; at < s->pos;) {
        int32_t page = s->pages[at / page_size], begin = (int32_t)(at % page_size);
        int64_t left = s->pos - at;
        int32_t end = left < page_size - begin ? begin + (int32_t)left : page_size;
        uint64_t *sum = &c->kv[(size_t)page * (size_t)layers + (size_t)layer];

        if (begin == 0)
            *sum = 0; /* the page's first position belongs to a new owner */
        TPW_TRY(kv_digest(c, layer, page, begin, end, sum, err));
        at += end - begin;
    }
    return TPW_OK;
}

/* Only the newest rows are still there; S moved if the mark crossed a multiple of the grid. */
static tpw_status note_recurrent(tpw_carry *c, const tpw_sequence *s, int32_t layer, int64_t before, tpw_error *err)
{
    size_t at = (size_t)s->slot * (size_t)c->state->config->layers + (size_t)layer;
    int64_t base = s->pos / TPW_GRID * TPW_GRID;
    int64_t first_row = before > base ? before : base;
    int64_t first_conv = before > s->pos - TPW_CONV_RING ? before : s->pos - TPW_CONV_RING;

    if (before == 0 || s->pos / TPW_GRID != before / TPW_GRID)
        TPW_TRY(matrix_digest(c, layer, s->slot, &c->matrix[at], err));
    for (int64_t p = first_row; p < s->pos; p++)
        TPW_TRY(row_digest(c, layer, s->slot, p, &c->rows[at * TPW_GDN_RING + (size_t)(p % TPW_GDN_RING)], err));
    for (int64_t p = first_conv; p < s->pos; p++)
        TPW_TRY(conv_digest(c, layer, s->slot, p, &c->conv[at * TPW_CONV_RING + (size_t)(p % TPW_CONV_RING)], err));
    return TPW_OK;
}

tpw_status tpw_carry_note(tpw_carry *carry, const tpw_sequence *sequence, int64_t pos_before, tpw_error *err)
{
    const tpw_config *c = carry->state->config;

    for (int32_t i = 0; i < c->layers; i++) {
        if (c->kind[i] == TPW_LAYER_ATTENTION)
            TPW_TRY(note_kv(carry, sequence, i, pos_before, err));
        else
            TPW_TRY(note_recurrent(carry, sequence, i, pos_before, err));
    }
    return TPW_OK;
}

tpw_status tpw_carry_flush(tpw_carry *carry, tpw_error *err)
{
    return tpw_digest_list_run(&carry->list, carry->state->exec, err);
}

/* Room for `most` comparisons. Growing moves the sums that jobs point to, so it is done before the first of them. */
static tpw_status begin_check(tpw_carry *c, int32_t most, tpw_error *err)
{
    TPW_TRY(tpw_carry_flush(c, err));
    c->found_count = 0;
    if (most <= c->found_room)
        return TPW_OK;
    tpw_carry_found *more = realloc(c->found, (size_t)most * sizeof *more);

    if (more == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory to compare %d digests of state", most);
    c->found = more;
    c->found_room = most;
    return TPW_OK;
}

static uint64_t *expect(tpw_carry *c, const char *scope, int32_t layer, uint64_t then)
{
    tpw_carry_found *f = &c->found[c->found_count++];

    *f = (tpw_carry_found){.scope = scope, .layer = layer, .then = then};
    return &f->now;
}

/* Computes what was listed; the first that is not as it was written is named. */
static tpw_status end_check(tpw_carry *c, const tpw_sequence *s, tpw_error *err)
{
    TPW_TRY(tpw_carry_flush(c, err));
    for (int32_t i = 0; i < c->found_count; i++) {
        const tpw_carry_found *f = &c->found[i];

        if (f->now == f->then)
            continue;
        return tpw_fail(
            err, TPW_ERR_DIVERGED,
            "%s state of layer %d in slot %d changed at rest: sequence %llu, position %lld, digest %016llx, "
            "written as %016llx",
            f->scope, f->layer, s->slot, (unsigned long long)s->id, (long long)s->pos, (unsigned long long)f->now,
            (unsigned long long)f->then);
    }
    return TPW_OK;
}

static tpw_status list_recurrent(tpw_carry *c, const tpw_sequence *s, int32_t layer, tpw_error *err)
{
    size_t at = (size_t)s->slot * (size_t)c->state->config->layers + (size_t)layer;

    TPW_TRY(matrix_digest(c, layer, s->slot, expect(c, "recurrent", layer, c->matrix[at]), err));
    for (int64_t p = s->pos / TPW_GRID * TPW_GRID; p < s->pos; p++) {
        uint64_t then = c->rows[at * TPW_GDN_RING + (size_t)(p % TPW_GDN_RING)];

        TPW_TRY(row_digest(c, layer, s->slot, p, expect(c, "recurrent", layer, then), err));
    }
    return TPW_OK;
}

static tpw_status list_conv(tpw_carry *c, const tpw_sequence *s, int32_t layer, tpw_error *err)
{
    size_t at = (size_t)s->slot * (size_t)c->state->config->layers + (size_t)layer;
    int64_t taps = c->state->config->conv_width - 1, first = s->pos > taps ? s->pos - taps : 0;

    for (int64_t p = first; p < s->pos; p++) {
        uint64_t then = c->conv[at * TPW_CONV_RING + (size_t)(p % TPW_CONV_RING)];

        TPW_TRY(conv_digest(c, layer, s->slot, p, expect(c, "conv", layer, then), err));
    }
    return TPW_OK;
}

static tpw_status list_kv(tpw_carry *c, const tpw_sequence *s, int32_t layer, tpw_error *err)
{
    int32_t page_size = c->state->limits.page_size, layers = c->state->config->layers;

    for (int64_t at = 0; at < s->pos; at += page_size) {
        int32_t page = s->pages[at / page_size];
        int32_t end = s->pos - at < page_size ? (int32_t)(s->pos - at) : page_size;
        uint64_t then = c->kv[(size_t)page * (size_t)layers + (size_t)layer], *now = expect(c, "kv", layer, then);

        *now = 0;
        TPW_TRY(kv_digest(c, layer, page, 0, end, now, err));
    }
    return TPW_OK;
}

/* Comparisons of a sequence: of a linear layer at most S, the rows and the conv window; of the others one a page. */
static int32_t most_of(const tpw_carry *c, const tpw_sequence *s)
{
    int64_t pages = (s->pos + c->state->limits.page_size - 1) / c->state->limits.page_size;
    int64_t linear = 1 + TPW_GRID + TPW_CONV_RING;

    return c->state->config->layers * (int32_t)(pages > linear ? pages : linear);
}

tpw_status tpw_carry_check_recurrent(tpw_carry *carry, const tpw_sequence *sequence, tpw_error *err)
{
    const tpw_config *c = carry->state->config;

    TPW_TRY(begin_check(carry, most_of(carry, sequence), err));
    for (int32_t i = 0; i < c->layers && sequence->pos > 0; i++)
        if (c->kind[i] == TPW_LAYER_DELTANET)
            TPW_TRY(list_recurrent(carry, sequence, i, err));
    return end_check(carry, sequence, err);
}

tpw_status tpw_carry_check(tpw_carry *carry, const tpw_sequence *sequence, tpw_error *err)
{
    const tpw_config *c = carry->state->config;

    TPW_TRY(begin_check(carry, most_of(carry, sequence), err));
    for (int32_t i = 0; i < c->layers && sequence->pos > 0; i++) {
        if (c->kind[i] == TPW_LAYER_ATTENTION) {
            TPW_TRY(list_kv(carry, sequence, i, err));
            continue;
        }
        TPW_TRY(list_recurrent(carry, sequence, i, err));
        TPW_TRY(list_conv(carry, sequence, i, err));
    }
    return end_check(carry, sequence, err);
}
