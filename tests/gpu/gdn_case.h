/* Sequences through the recurrence of both backends: a layer's state in both places, steps of several segments,
 * comparison of all of it byte for byte. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_GDN_CASE_H
#define TPW_TESTS_GDN_CASE_H

#include "../ops/delta_model.h"
#include "twin.h"

#define PARTS_MAX 8

/* The state of a layer whose slots, slot 0 included, hold NaN everywhere. */
typedef struct layer {
    shape s;
    tpw_gdn_state h, d;
    twin part[4]; /* S, k, u, decay */
} layer;

/* Positions [pos, pos + rows) of a tape in a step. Rows from `good` on are of the tape `junk`, as rejected drafts are.
 * `out` receives the bytes of o that the GPU gave. */
typedef struct part {
    const tape *t;
    int pos, rows, certain, slot;
    unsigned char *out;
    const tape *junk;
    int good;
} part;

static inline layer layer_make(shape s, int slots)
{
    layer l = {.s = s, .h = {.slots = slots, .k_heads = s.hk, .v_heads = s.hv, .k_dim = s.dk, .v_dim = s.dv}};
    const size_t n = (size_t)slots, ring = n * TPW_GDN_RING, hv = (size_t)s.hv;
    const size_t counts[] = {n * state_floats(s), ring * (size_t)(s.hk * s.dk), ring * hv * (size_t)s.dv, ring * hv};
    l.d = l.h;
    float **h[] = {&l.h.S, &l.h.k, &l.h.u, &l.h.decay}, **d[] = {&l.d.S, &l.d.k, &l.d.u, &l.d.decay};
    for (int i = 0; i < 4; i++) {
        l.part[i] = twin_make(counts[i] * sizeof(float));
        twin_send(&l.part[i]);
        *h[i] = (float *)(void *)l.part[i].host;
        *d[i] = (float *)(void *)l.part[i].device;
    }
    return l;
}

static inline void expect_poison(const unsigned char *p, size_t bytes, const char *what)
{
    for (size_t i = 0; i < bytes; i++)
        cr_assert_eq(p[i], OPS_POISON, "%s: byte %zu was written", what, i);
}

/* Ends with both equal. Slots of which nothing is said in `used` (a bit each) must be as they were made; slot 0 too. */
static inline void layer_end(layer *l, unsigned used, const char *what)
{
    for (int i = 0; i < 4; i++)
        for (int slot = 0; slot < l->h.slots; slot++) {
            const size_t each = l->part[i].bytes / (size_t)l->h.slots;
            if (slot == 0 || !(used >> slot & 1u))
                expect_poison(l->part[i].host + (size_t)slot * each, each, "a slot that no segment names");
        }
    for (int i = 0; i < 4; i++)
        twin_end(&l->part[i], what);
}

/* Compares the state and leaves it in use. */
static inline void layer_check(const layer *l, const char *what)
{
    for (int i = 0; i < 4; i++)
        twin_check(&l->part[i], what);
}

typedef struct step_mats {
    twin_mat q, k, v, decay, beta, o;
} step_mats;

static inline void put_row(twin_mat *m, int row, const float *from)
{
    for (int c = 0; c < m->h.cols; c++)
        ops_set(&m->h, row, c, from[c]);
}

static inline void put_position(step_mats *m, int row, const tape *t, int pos)
{
    const size_t at = (size_t)pos;
    put_row(&m->q, row, t->q + at * (size_t)m->q.h.cols);
    put_row(&m->k, row, t->k + at * (size_t)m->k.h.cols);
    put_row(&m->v, row, t->v + at * (size_t)m->v.h.cols);
    put_row(&m->decay, row, t->decay + at * (size_t)m->decay.h.cols);
    put_row(&m->beta, row, t->beta + at * (size_t)m->beta.h.cols);
}

/* odd: strides and addresses at which no wide access is possible. */
static inline step_mats step_mats_make(shape s, int rows, int odd)
{
    const int keys = s.hk * s.dk, values = s.hv * s.dv;
    return (step_mats){twin_mat_make(TPW_F32, rows, keys, odd ? 3 : 4, odd),
                       twin_mat_make(TPW_F32, rows, keys, odd ? 1 : 0, odd),
                       twin_mat_make(s.act, rows, values, odd ? 5 : 16, odd),
                       twin_mat_make(TPW_F32, rows, s.hv, odd, odd),
                       twin_mat_make(TPW_F32, rows, s.hv, 2, odd),
                       twin_mat_make(s.act, rows, values, odd ? 7 : 8, odd)};
}

/* The segments of `parts` in order. */
static inline tpw_batch batch_of(const part *parts, int n, tpw_segment *segments)
{
    tpw_batch batch = {.segment_count = n, .segments = segments};
    for (int i = 0; i < n; i++) {
        segments[i] = (tpw_segment){.row0 = batch.rows,
                                    .rows = parts[i].rows,
                                    .rows_certain = parts[i].certain,
                                    .slot = parts[i].slot,
                                    .pos = parts[i].pos};
        batch.rows += parts[i].rows;
    }
    return batch;
}

/* One delta in both places; o and the padding of all matrices are compared. */
static inline void step(layer *l, const part *parts, int n, int odd)
{
    tpw_segment segments[PARTS_MAX];
    const tpw_batch batch = batch_of(parts, n, segments);
    step_mats m = step_mats_make(l->s, batch.rows, odd);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < parts[i].rows; r++) {
            const bool junk = parts[i].junk != NULL && r >= parts[i].good;
            put_position(&m, segments[i].row0 + r, junk ? parts[i].junk : parts[i].t, parts[i].pos + r);
        }
    twin_mat *all[] = {&m.o, &m.q, &m.k, &m.v, &m.decay, &m.beta};
    for (int i = 0; i < 6; i++)
        twin_mat_send(all[i]);
    const tpw_delta_args h = {&batch, m.q.h, m.k.h, m.v.h, m.decay.h, m.beta.h, l->h, m.o.h};
    const tpw_delta_args d = {&batch, m.q.d, m.k.d, m.v.d, m.decay.d, m.beta.d, l->d, m.o.d};
    GPU_OK(gpu->device->stage(gpu, &batch, 16, err));
    BOTH(delta, h, d);
    const size_t row_bytes = (size_t)m.o.h.cols * tpw_dtype_size(l->s.act);
    twin_check(&m.o.block, "o");
    for (int i = 0; i < n; i++) /* o is equal in both places by now */
        for (int r = 0; parts[i].out != NULL && r < parts[i].rows; r++)
            memcpy(parts[i].out + (size_t)r * row_bytes,
                   (char *)m.o.h.data + (size_t)((segments[i].row0 + r) * m.o.h.stride) * tpw_dtype_size(l->s.act),
                   row_bytes);
    for (int i = 0; i < 6; i++)
        twin_end(&all[i]->block, "delta");
}

/* Marks behind a step: taken[i] rows of segment i stay. */
static inline void commit_segments(layer *l, const tpw_segment *segments, int n, const int32_t *rows)
{
    const tpw_segment *last = &segments[n - 1];
    const tpw_batch batch = {last->row0 + last->rows, n, segments};
    twin taken = twin_words(rows, (size_t)n * sizeof *rows);
    const tpw_delta_commit_args h = {&batch, l->h, rows}, d = {&batch, l->d, (int32_t *)(void *)taken.device};
    GPU_OK(gpu->device->stage(gpu, &batch, 16, err));
    BOTH(delta_commit, h, d);
    twin_end(&taken, "delta_commit, rows");
}

/* One slot from mark `before` to `pos`. */
static inline void commit(layer *l, int slot, int before, int pos)
{
    const int32_t certain = before > 0, rows = pos - before + certain;
    const tpw_segment segment = {.rows = rows, .rows_certain = certain, .slot = slot, .pos = before - certain};
    if (rows > 0)
        commit_segments(l, &segment, 1, &rows);
}

static inline tape tape_inputs(shape s, int n, uint64_t seed)
{
    tape t = tape_alloc(s, n);
    tape_fill(&t, seed);
    return t;
}

#endif
