/* Sequences, paged caches and the step's matrices in both places, for the tests of attention.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_ATTENTION_RIG_H
#define TPW_TESTS_ATTENTION_RIG_H

#include "kernels/cuda/exec.h"
#include "kernels/rope.h"
#include "twin.h"

#define PARTS_MAX 9
#define ROPE_DIM  64

/* What a test runs with: the type of the activations, and tables of 64 bits. */
typedef struct flavour {
    tpw_dtype act;
    bool wide;
} flavour;

static flavour under_test = {TPW_BF16, false};

static const flavour flavours[] = {{TPW_BF16, false}, {TPW_BF16, true}, {TPW_F16, false}, {TPW_F16, true}};
#define FLAVOURS 4

static size_t cases, elements;

static inline void open_counted(void)
{
    open_both();
    cases = elements = 0;
    under_test = flavours[0];
}

static inline void close_counted(size_t cases_least, size_t elements_least)
{
    fprintf(stderr, "%zu cases, %zu elements compared\n", cases, elements);
    cr_assert_geq(cases, cases_least);
    cr_assert_geq(elements, elements_least);
    close_both(0);
}

typedef struct shape {
    int sequences, hq, hkv, dim, page_size;
} shape;

/* One sequence: the values of every position, contiguous rows. */
typedef struct tape {
    shape s;
    int n;
    uint16_t *q, *qg, *k, *v;
    int32_t *pages;
} tape;

/* A matrix in both places. */
typedef struct pair {
    tpw_mat h, d;
    size_t bytes;
} pair;

/* The caches and the step's matrices. */
typedef struct rig {
    shape s;
    int32_t pages_given;
    tpw_kv h, d;
    size_t kv_bytes;
    pair q, qg, k, v, out;
    float *rope, *norm; /* device */
    tpw_segment segments[PARTS_MAX];
    int64_t *wide[PARTS_MAX]; /* the tables that segments have when they are wide */
    tpw_batch batch;
} rig;

/* Rows [pos, pos + rows) of a tape; out holds rows of hq * dim. */
typedef struct part {
    const tape *t;
    int pos, rows;
    uint16_t *out;
} part;

static inline double get(const uint16_t *x, int64_t i)
{
    return under_test.act == TPW_F16 ? (double)tpw_f16_to_f32(x[i]) : (double)tpw_bf16_to_f32(x[i]);
}

static inline uint16_t act_of(float x)
{
    return under_test.act == TPW_F16 ? tpw_f16_from_f32(x) : tpw_bf16_from_f32(x);
}

/* Keys grow or shrink along the sequence, so that the maximum moves from split to split in both ways. */
static inline tape tape_make(shape s, int n, float spread, uint64_t start)
{
    ops_random r = {start};
    const size_t nq = (size_t)n * (size_t)(s.hq * s.dim), nk = (size_t)n * (size_t)(s.hkv * s.dim);
    tape t = {s,
              n,
              gpu_host_alloc(nq * 2),
              gpu_host_alloc(nq * 4),
              gpu_host_alloc(nk * 2),
              gpu_host_alloc(nk * 2),
              gpu_host_alloc(sizeof(int32_t) * (size_t)(n / s.page_size + 1))};
    for (size_t i = 0; i < nq; i++)
        t.q[i] = act_of(spread * ops_uniform(&r));
    for (size_t i = 0; i < 2 * nq; i++)
        t.qg[i] = act_of(4.0f * ops_uniform(&r));
    for (size_t i = 0; i < nk; i++) {
        const float along = (float)i / (float)nk;
        t.k[i] = act_of((i / (size_t)s.dim % 2 ? 0.3f + along : 1.3f - along) * 2.0f * ops_uniform(&r));
        t.v[i] = act_of(ops_uniform(&r) + 0.1f);
    }
    return t;
}

static inline void tape_free(tape *t)
{
    free(t->q), free(t->qg), free(t->k), free(t->v), free(t->pages);
}

static inline pair pair_make(int rows, int cols, int pad)
{
    pair m = {{NULL, under_test.act, rows, cols, (int64_t)cols + pad}, {0}, (size_t)rows * (size_t)(cols + pad) * 2};
    m.h.data = gpu_host_alloc(m.bytes);
    memset(m.h.data, OPS_POISON, m.bytes);
    m.d = m.h;
    m.d.data = gpu_upload(gpu, m.h.data, m.bytes);
    return m;
}

static inline void pair_free(pair *m)
{
    free(m->h.data);
    gpu_free(gpu, m->d.data);
}

static inline void cache_send(rig *g)
{
    GPU_OK(gpu->device->upload(gpu, g->d.k, g->h.k, g->kv_bytes, err));
    GPU_OK(gpu->device->upload(gpu, g->d.v, g->h.v, g->kv_bytes, err));
}

/* Caches of NaN for `positions` positions and some more pages; matrices of `rows` rows, `pad` elements apart. */
static inline rig rig_make(shape s, int positions, int rows, int pad)
{
    rig g = {.s = s};
    const int32_t pages = positions / s.page_size + 2 * PARTS_MAX;
    g.kv_bytes = (size_t)pages * (size_t)(s.hkv * s.page_size * s.dim) * 2;
    g.h = (tpw_kv){
        gpu_host_alloc(g.kv_bytes), gpu_host_alloc(g.kv_bytes), under_test.act, s.hkv, s.dim, s.page_size, pages};
    memset(g.h.k, OPS_POISON, g.kv_bytes);
    memset(g.h.v, OPS_POISON, g.kv_bytes);
    g.d = g.h;
    g.d.k = gpu_alloc(gpu, g.kv_bytes);
    g.d.v = gpu_alloc(gpu, g.kv_bytes);
    cache_send(&g);
    g.q = pair_make(rows, s.hq * s.dim, pad);
    g.qg = pair_make(rows, 2 * s.hq * s.dim, pad);
    g.k = pair_make(rows, s.hkv * s.dim, pad);
    g.v = pair_make(rows, s.hkv * s.dim, pad);
    g.out = pair_make(rows, s.hq * s.dim, pad);
    return g;
}

static inline void rig_free(rig *g)
{
    pair *all[] = {&g->q, &g->qg, &g->k, &g->v, &g->out};
    for (int i = 0; i < 5; i++)
        pair_free(all[i]);
    for (int i = 0; i < PARTS_MAX; i++)
        free(g->wide[i]);
    free(g->h.k), free(g->h.v);
    gpu_free(gpu, g->d.k), gpu_free(gpu, g->d.v);
    gpu_free(gpu, g->rope), gpu_free(gpu, g->norm);
}

/* Gives a tape its pages in a shuffled order; page 0 is left out. */
static inline void give_pages(rig *g, tape *t, uint64_t start)
{
    ops_random r = {start};
    const int32_t count = (t->n + g->s.page_size - 1) / g->s.page_size;
    for (int32_t i = 0; i < count; i++)
        t->pages[i] = 1 + g->pages_given + i;
    for (int32_t i = count - 1; i > 0; i--) {
        const int32_t j = (int32_t)(ops_next(&r) % (uint64_t)(i + 1)), swap = t->pages[i];
        t->pages[i] = t->pages[j], t->pages[j] = swap;
    }
    g->pages_given += count;
    cr_assert_lt(g->pages_given + 1, g->h.pages);
}

static inline int64_t cell(const rig *g, const tape *t, int pos, int head)
{
    const int size = g->s.page_size;
    return (((int64_t)t->pages[pos / size] * g->s.hkv + head) * size + pos % size) * g->s.dim;
}

/* Puts positions [0, n) of a tape into the host's cache. */
static inline void cache_fill(rig *g, const tape *t, int n)
{
    const size_t row = (size_t)g->s.dim * 2;
    for (int pos = 0; pos < n; pos++)
        for (int h = 0; h < g->s.hkv; h++) {
            const int64_t from = ((int64_t)pos * g->s.hkv + h) * g->s.dim, to = cell(g, t, pos, h);
            memcpy((uint16_t *)g->h.k + to, t->k + from, row);
            memcpy((uint16_t *)g->h.v + to, t->v + from, row);
        }
}

static inline void rows_put(pair *m, int row, const uint16_t *from, int rows)
{
    for (int r = 0; r < rows; r++)
        memcpy((uint16_t *)m->h.data + (row + r) * m->h.stride, from + (int64_t)r * m->h.cols, (size_t)m->h.cols * 2);
}

static inline void pair_rows(pair *m, int rows)
{
    m->h.rows = m->d.rows = rows;
    GPU_OK(gpu->device->upload(gpu, m->d.data, m->h.data, (size_t)rows * (size_t)m->h.stride * 2, err));
}

/* The table of a segment in 64 bits, as long as the step needs it: a tool sees a read past its end. */
static inline const int64_t *wide_table(rig *g, int i, const part *p)
{
    const int count = (p->pos + p->rows + g->s.page_size - 1) / g->s.page_size;
    free(g->wide[i]);
    g->wide[i] = gpu_host_alloc(sizeof(int64_t) * (size_t)count);
    for (int n = 0; n < count; n++)
        g->wide[i][n] = p->t->pages[n];
    return g->wide[i];
}

/* Stages the step's batch and sends its rows. */
static inline void step_stage(rig *g, const part *parts, int n)
{
    pair *all[] = {&g->q, &g->qg, &g->k, &g->v, &g->out};
    g->batch = (tpw_batch){.segment_count = n, .segments = g->segments};
    for (int i = 0; i < n; i++) {
        const part *p = &parts[i];
        const int64_t q = (int64_t)p->pos * g->q.h.cols, k = (int64_t)p->pos * g->k.h.cols;
        const int row = g->batch.rows;
        g->segments[i] = (tpw_segment){.row0 = row,
                                       .rows = p->rows,
                                       .rows_certain = 1,
                                       .slot = 1 + i,
                                       .pos = p->pos,
                                       .pages = under_test.wide ? NULL : p->t->pages,
                                       .pages_wide = under_test.wide ? wide_table(g, i, p) : NULL};
        rows_put(&g->q, row, p->t->q + q, p->rows);
        rows_put(&g->qg, row, p->t->qg + 2 * q, p->rows);
        rows_put(&g->k, row, p->t->k + k, p->rows);
        rows_put(&g->v, row, p->t->v + k, p->rows);
        g->batch.rows += p->rows;
    }
    memset(g->out.h.data, OPS_POISON, (size_t)g->batch.rows * (size_t)g->out.h.stride * 2);
    for (int i = 0; i < 5; i++)
        pair_rows(all[i], g->batch.rows);
    GPU_OK(gpu->device->stage(gpu, &g->batch, g->s.page_size, err));
}

static inline tpw_attention_args attention_of(const rig *g)
{
    return (tpw_attention_args){&g->batch, g->q.d, g->qg.d, g->s.hq, g->d, g->out.d};
}

/* Reads the result; nothing but the rows may have been written. */
static inline void step_collect(rig *g, const part *parts, int n)
{
    const size_t stride = (size_t)g->out.h.stride, cols = (size_t)g->out.h.cols;
    uint16_t *got = gpu_host_alloc(g->out.bytes);
    gpu_download(gpu, got, g->out.d.data, (size_t)g->batch.rows * stride * 2);
    for (size_t row = 0; row < (size_t)g->batch.rows; row++)
        for (size_t c = cols; c < stride; c++)
            cr_assert_eq(got[row * stride + c], 0xFFFF, "padding of out was written");
    for (int i = 0; i < n; i++)
        for (int r = 0; r < parts[i].rows; r++)
            memcpy(parts[i].out + (size_t)r * cols, got + (size_t)(g->segments[i].row0 + r) * stride, cols * 2);
    free(got);
}

/* Attention over what the caches hold. */
static inline void step_attend(rig *g, const part *parts, int n)
{
    step_stage(g, parts, n);
    const tpw_attention_args args = attention_of(g);
    GPU_OK(gpu->ops->attention(gpu, &args, err));
    GPU_OK(tpw_cuda_sync(gpu, err));
    step_collect(g, parts, n);
}

/* The layer's two ops: K and V are written, then read. */
static inline void step_layer(rig *g, const part *parts, int n)
{
    step_stage(g, parts, n);
    const tpw_attention_args args = attention_of(g);
    const tpw_attn_prepare_args prepare = {.batch = &g->batch,
                                           .qg = g->qg.d,
                                           .k = g->k.d,
                                           .v = g->v.d,
                                           .q_heads = g->s.hq,
                                           .q_norm = g->norm,
                                           .k_norm = g->norm,
                                           .eps = 1e-6f,
                                           .rope = g->rope,
                                           .rope_dim = ROPE_DIM,
                                           .kv = g->d,
                                           .q = g->q.d};
    GPU_OK(gpu->ops->attn_prepare(gpu, &prepare, err));
    GPU_OK(gpu->ops->attention(gpu, &args, err));
    GPU_OK(tpw_cuda_sync(gpu, err));
    step_collect(g, parts, n);
}

/* What step_layer needs: a rotary table and a norm. */
static inline void rig_layer(rig *g, int positions)
{
    float norm[256], *rope = gpu_host_alloc(sizeof(float) * (size_t)positions * ROPE_DIM);
    ops_random r = {77};
    for (int i = 0; i < 256; i++)
        norm[i] = 1.0f + ops_uniform(&r);
    GPU_OK(tpw_rope_fill(rope, positions, ROPE_DIM, 1e7, err));
    g->rope = gpu_upload(gpu, rope, sizeof(float) * (size_t)positions * ROPE_DIM);
    g->norm = gpu_upload(gpu, norm, sizeof norm);
    free(rope);
}

#endif
