/* The gated delta rule on the absolute grid of 16: rows, the advance of S, and S at any committed position.
 *
 * Everything that a row needs is S at the chunk's start and the ring's k, u and decay of the chunk's earlier rows; the
 * running products E_j and P are formed again from the decays, in row order, whenever a chunk is entered. So a row
 * has the same bits however the sequence was cut. All arithmetic of S^T x, u, o and S is by column of dv, which is why
 * columns may be done in blocks that fit the scratch. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/delta.h"

#include <string.h>

#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"

_Static_assert(TPW_GDN_RING % TPW_GRID == 0, "the rows of a chunk must be neighbours in the ring");

/* One slot of one layer, and the loops to use. */
typedef struct slot_view {
    const tpw_vec *vec;
    float *S;
    float *k;
    float *u;
    float *decay;
    int32_t k_heads;
    int32_t v_heads;
    int32_t dk;
    int32_t dv;
} slot_view;

/* Columns of dv that are done together. */
typedef struct columns {
    int32_t x0;
    int32_t n;
} columns;

/* Running decay products of the rows of a chunk so far. */
typedef struct products {
    float E[TPW_GRID];
    float P;
} products;

/* Rows of one segment that share a chunk: rows i0 .. i0+n-1 of the chunk that starts at position `base`. */
typedef struct piece {
    int64_t base;
    int32_t i0;
    int32_t n;
    int32_t row; /* of chunk row i0, in the step */
} piece;

typedef struct dots {
    float kk[TPW_GRID][TPW_GRID]; /* k_i . k_j, j < i */
    float qk[TPW_GRID][TPW_GRID]; /* q_i . k_j, j <= i */
} dots;

static slot_view slot_open(const tpw_vec *vec, const tpw_gdn_state *state, int32_t slot)
{
    int64_t dk = state->k_dim, dv = state->v_dim, hk = state->k_heads, hv = state->v_heads;
    return (slot_view){.vec = vec,
                       .S = state->S + slot * hv * dk * dv,
                       .k = state->k + slot * TPW_GDN_RING * hk * dk,
                       .u = state->u + slot * TPW_GDN_RING * hv * dv,
                       .decay = state->decay + slot * TPW_GDN_RING * hv,
                       .k_heads = state->k_heads,
                       .v_heads = state->v_heads,
                       .dk = state->k_dim,
                       .dv = state->v_dim};
}

static int64_t grid_floor(int64_t pos)
{
    return pos / TPW_GRID * TPW_GRID;
}

static float *ring_k(const slot_view *w, int64_t pos, int32_t k_head)
{
    return w->k + (pos % TPW_GDN_RING * w->k_heads + k_head) * w->dk;
}

static float *ring_u(const slot_view *w, int64_t pos, int32_t v_head)
{
    return w->u + (pos % TPW_GDN_RING * w->v_heads + v_head) * w->dv;
}

static float *head_S(const slot_view *w, int32_t v_head)
{
    return w->S + (int64_t)v_head * w->dk * w->dv;
}

static int32_t key_head(const slot_view *w, int32_t v_head)
{
    return v_head / (w->v_heads / w->k_heads);
}

static void products_add(products *c, int32_t i, float decay)
{
    for (int32_t j = 0; j < i; j++)
        c->E[j] *= decay;
    c->E[i] = 1.0f;
    c->P *= decay;
}

static void products_replay(products *c, const slot_view *w, int32_t v_head, int64_t base, int32_t n)
{
    *c = (products){.P = 1.0f};
    for (int32_t i = 0; i < n; i++)
        products_add(c, i, w->decay[(base + i) % TPW_GDN_RING * w->v_heads + v_head]);
}

/* to = P*from + fma-sum in order j < n of (E_j*k_j) u_j^T, the first n rows of the chunk at `base`. to may be from. */
static void chunk_absorb(const slot_view *w, int32_t v_head, int64_t base, int32_t n, columns x, float *to,
                         int64_t to_stride, const float *from, int64_t from_stride)
{
    products c;
    products_replay(&c, w, v_head, base, n);
    for (int32_t r = 0; r < w->dk; r++) {
        float *row = to + r * to_stride;
        w->vec->scale(row, from + r * from_stride, c.P, x.n);
        for (int32_t j = 0; j < n; j++) {
            float weight = c.E[j] * ring_k(w, base + j, key_head(w, v_head))[r];
            w->vec->axpy(row, ring_u(w, base + j, v_head) + x.x0, weight, x.n);
        }
    }
}

static void slot_advance(const slot_view *w, int64_t base)
{
    columns all = {0, w->dv};
    for (int32_t h = 0; h < w->v_heads; h++)
        chunk_absorb(w, h, base, TPW_GRID, all, head_S(w, h), w->dv, head_S(w, h), w->dv);
}

static void piece_store(const slot_view *w, const tpw_delta_args *a, const piece *p)
{
    for (int32_t t = 0; t < p->n; t++) {
        int64_t pos = p->base + p->i0 + t, row = p->row + t;
        memcpy(ring_k(w, pos, 0), (const float *)a->k.data + row * a->k.stride,
               sizeof(float) * (size_t)w->k_heads * (size_t)w->dk);
        memcpy(w->decay + pos % TPW_GDN_RING * w->v_heads, (const float *)a->decay.data + row * a->decay.stride,
               sizeof(float) * (size_t)w->v_heads);
    }
}

/* The value heads of a group share their key head's products. */
static void piece_dots(const slot_view *w, const tpw_delta_args *a, const piece *p, int32_t k_head, dots *out)
{
    for (int32_t i = p->i0; i < p->i0 + p->n; i++) {
        const float *k = ring_k(w, p->base + i, k_head);
        const float *q = (const float *)a->q.data + (p->row + i - p->i0) * a->q.stride + (int64_t)k_head * w->dk;
        for (int32_t j = 0; j <= i; j++) {
            const float *kj = ring_k(w, p->base + j, k_head);
            out->kk[i][j] = j < i ? w->vec->dot(k, kj, w->dk) : 0.0f;
            out->qk[i][j] = w->vec->dot(q, kj, w->dk);
        }
    }
}

/* out = P * (S^T x) */
static void predict(const slot_view *w, float *out, const float *S, int64_t stride, const float *x, float P, int32_t n)
{
    memset(out, 0, sizeof(float) * (size_t)n);
    for (int32_t r = 0; r < w->dk; r++)
        w->vec->axpy(out, S + r * stride, x[r], n);
    w->vec->scale(out, out, P, n);
}

/* Rows of a piece for one value head and some columns; S stands at the chunk's start. `tmp` holds 2 * x.n floats. */
static void piece_rows(const slot_view *w, const tpw_delta_args *a, const piece *p, int32_t h, columns x, const dots *d,
                       const float *S, int64_t stride, float *tmp)
{
    const tpw_vec *vec = w->vec;
    float *acc = tmp, *v = tmp + x.n;
    products c;
    products_replay(&c, w, h, p->base, p->i0);
    for (int32_t i = p->i0; i < p->i0 + p->n; i++) {
        int64_t row = p->row + i - p->i0, col = (int64_t)h * w->dv + x.x0;
        const float *q = (const float *)a->q.data + row * a->q.stride + (int64_t)key_head(w, h) * w->dk;
        float *u = ring_u(w, p->base + i, h) + x.x0;
        products_add(&c, i, ((const float *)a->decay.data)[row * a->decay.stride + h]);

        predict(w, acc, S, stride, ring_k(w, p->base + i, key_head(w, h)), c.P, x.n);
        for (int32_t j = 0; j < i; j++)
            vec->axpy(acc, ring_u(w, p->base + j, h) + x.x0, c.E[j] * d->kk[i][j], x.n);
        float beta = ((const float *)a->beta.data)[row * a->beta.stride + h];
        vec->load(v, a->v.data, a->v.dtype, row * a->v.stride + col, x.n);
        for (int32_t n = 0; n < x.n; n++)
            u[n] = beta * (v[n] - acc[n]);

        predict(w, acc, S, stride, q, c.P, x.n);
        for (int32_t j = 0; j <= i; j++)
            vec->axpy(acc, ring_u(w, p->base + j, h) + x.x0, c.E[j] * d->qk[i][j], x.n);
        vec->store(a->o.data, a->o.dtype, row * a->o.stride + col, acc, x.n);
    }
}

/* Where S at `base` is: in the slot up to the last certain multiple of 16 (`settled`); past it in a scratch copy,
 * brought forward from the ring, since the rows in between may still be rejected. */
static const float *piece_state(const slot_view *w, int32_t h, int64_t settled, int64_t base, columns x, float *copy,
                                int64_t *stride)
{
    const float *S = head_S(w, h) + x.x0;
    *stride = w->dv;
    for (int64_t at = settled; at < base; at += TPW_GRID) {
        chunk_absorb(w, h, at, TPW_GRID, x, copy, x.n, S, *stride);
        S = copy;
        *stride = x.n;
    }
    return S;
}

static void piece_run(const slot_view *w, const tpw_delta_args *a, const piece *p, int64_t settled, float *memory,
                      int32_t columns_max)
{
    dots d;
    piece_store(w, a, p);
    for (int32_t h = 0; h < w->v_heads; h++) {
        if (h % (w->v_heads / w->k_heads) == 0)
            piece_dots(w, a, p, key_head(w, h), &d);
        for (columns x = {0, 0}; x.x0 < w->dv; x.x0 += x.n) {
            int64_t stride;
            x.n = w->dv - x.x0 < columns_max ? w->dv - x.x0 : columns_max;
            const float *S = piece_state(w, h, settled, p->base, x, memory + 2 * x.n, &stride);
            piece_rows(w, a, p, h, x, &d, S, stride, memory);
        }
    }
}

static void segment_run(const slot_view *w, const tpw_delta_args *a, const tpw_segment *s, float *memory,
                        int32_t columns_max)
{
    int64_t mark = s->pos + s->rows_certain, end = s->pos + s->rows;
    if (s->pos == 0)
        memset(w->S, 0, sizeof(float) * (size_t)w->v_heads * (size_t)w->dk * (size_t)w->dv);
    for (int64_t pos = s->pos, next; pos < end; pos = next) {
        int64_t base = grid_floor(pos), settled = grid_floor(mark) < base ? grid_floor(mark) : base;
        next = base + TPW_GRID < end ? base + TPW_GRID : end;
        piece p = {base, (int32_t)(pos - base), (int32_t)(next - pos), s->row0 + (int32_t)(pos - s->pos)};
        piece_run(w, a, &p, settled, memory, columns_max);
        if (next == base + TPW_GRID && next <= mark)
            slot_advance(w, base);
    }
}

static tpw_status state_check(const tpw_gdn_state *g, tpw_error *err)
{
    if (g->k_heads < 1 || g->v_heads < 1 || g->v_heads % g->k_heads != 0 || g->k_dim < 1 || g->v_dim < 1)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "delta: %d value heads over %d key heads of %d x %d are not supported", g->v_heads, g->k_heads,
                        g->k_dim, g->v_dim);
    return TPW_OK;
}

static tpw_status slot_check(const tpw_gdn_state *g, int32_t slot, tpw_error *err)
{
    if (slot < 1 || slot >= g->slots)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "delta: slot %d is outside 1..%d", slot, g->slots - 1);
    return TPW_OK;
}

static tpw_status segments_check(const tpw_gdn_state *g, const tpw_batch *batch, tpw_error *err)
{
    for (int32_t i = 0; i < batch->segment_count; i++) {
        const tpw_segment *s = &batch->segments[i];
        TPW_TRY(slot_check(g, s->slot, err));
        if (s->rows_certain < 0 || s->rows_certain > s->rows || s->rows - s->rows_certain > TPW_GDN_RING - TPW_GRID)
            return tpw_fail(
                err, TPW_ERR_UNSUPPORTED,
                "delta: segment %d has %d rows of which %d are certain, but a ring of %d rows holds at most %d others",
                i, s->rows, s->rows_certain, TPW_GDN_RING, TPW_GDN_RING - TPW_GRID);
    }
    return TPW_OK;
}

static tpw_status args_check(const tpw_delta_args *a, tpw_error *err)
{
    TPW_TRY(state_check(&a->state, err));
    if (a->q.dtype != TPW_F32 || a->k.dtype != TPW_F32 || a->decay.dtype != TPW_F32 || a->beta.dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "delta: q, k, decay and beta must be F32");
    if ((a->v.dtype != TPW_F32 && a->v.dtype != TPW_BF16) || (a->o.dtype != TPW_F32 && a->o.dtype != TPW_BF16))
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "delta: v is %s and o is %s, but only F32 and BF16 are supported",
                        tpw_dtype_name(a->v.dtype), tpw_dtype_name(a->o.dtype));
    return segments_check(&a->state, a->batch, err);
}

tpw_status tpw_host_delta(const tpw_exec *exec, const tpw_delta_args *args, tpw_error *err)
{
    TPW_TRY(args_check(args, err));
    tpw_scratch scratch = tpw_scratch_begin(exec);
    size_t column = (size_t)args->state.k_dim + 2, room = scratch.left / sizeof(float) / column;
    int32_t columns_max = room < (size_t)args->state.v_dim ? (int32_t)room : args->state.v_dim;
    columns_max = columns_max < 1 ? 1 : columns_max;
    float *memory;
    TPW_TRY(tpw_scratch_floats(&scratch, column * (size_t)columns_max, "delta", &memory, err));
    for (int32_t i = 0; i < args->batch->segment_count; i++) {
        const tpw_segment *s = &args->batch->segments[i];
        slot_view w = slot_open(tpw_host_vec(exec), &args->state, s->slot);
        segment_run(&w, args, s, memory, columns_max);
    }
    return TPW_OK;
}

tpw_status tpw_host_delta_commit(const tpw_exec *exec, const tpw_delta_commit_args *args, tpw_error *err)
{
    TPW_TRY(state_check(&args->state, err));
    TPW_TRY(segments_check(&args->state, args->batch, err));
    for (int32_t i = 0; i < args->batch->segment_count; i++) {
        const tpw_segment *s = &args->batch->segments[i];
        if (args->taken[i] < s->rows_certain || args->taken[i] > s->rows)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "delta: %d rows of segment %d are to stay, of %d with %d certain",
                            args->taken[i], i, s->rows, s->rows_certain);
    }
    for (int32_t i = 0; i < args->batch->segment_count; i++) {
        const tpw_segment *s = &args->batch->segments[i];
        slot_view w = slot_open(tpw_host_vec(exec), &args->state, s->slot);
        for (int64_t base = grid_floor(s->pos + s->rows_certain); base < grid_floor(s->pos + args->taken[i]);
             base += TPW_GRID)
            slot_advance(&w, base);
    }
    return TPW_OK;
}

tpw_status tpw_gdn_materialize(const tpw_exec *exec, const tpw_gdn_state *state, int32_t slot, int64_t pos, float *out,
                               tpw_error *err)
{
    TPW_TRY(state_check(state, err));
    TPW_TRY(slot_check(state, slot, err));
    if (pos < 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "delta: slot %d has no state at position %lld", slot, (long long)pos);
    slot_view w = slot_open(tpw_host_vec(exec), state, slot);
    int64_t head = (int64_t)w.dk * w.dv;
    columns all = {0, w.dv};
    for (int32_t h = 0; h < w.v_heads; h++) {
        if (pos == 0)
            memset(out + h * head, 0, sizeof(float) * (size_t)head);
        else if (pos % TPW_GRID == 0)
            memcpy(out + h * head, head_S(&w, h), sizeof(float) * (size_t)head);
        else
            chunk_absorb(&w, h, grid_floor(pos), (int32_t)(pos % TPW_GRID), all, out + h * head, w.dv, head_S(&w, h),
                         w.dv);
    }
    return TPW_OK;
}
