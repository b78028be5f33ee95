/* Causal attention over paged keys and values, gated, in splits of 256 keys at absolute multiples.
 *
 * Fixed for every row, whatever shares the call with it:
 *   score  = dot(q, k) * (1/sqrt(D)), one F32 product;  m = largest score of the split's keys at or before the row;
 *   p      = exp(score - m);  l = p summed in key order, unrounded;  o = fma-sum in key order of act(p) * v;
 *   l and o are summed in sub-splits of 64 keys from +0, absent ones being +0, and joined (0+1)+(2+3);
 *   the first split is taken as it is; later ones fold, M' = max(M, m), O = fma(O, exp(M-M'), o*exp(m-M')), L alike;
 *   out    = act((O * (1/L)) * sigmoid(gate)): one division a row.
 * Queries of a KV head are done in groups that fit the scratch; a split's keys are widened once for a group, then its
 * values in the same place. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/host/element.h"
#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"

#define SUBSPLITS (TPW_SPLIT_KEYS / TPW_SUBSPLIT_KEYS)

/* One query head of one row on its way through the splits. */
typedef struct query {
    float *q;      /* [D] */
    float *scores; /* [TPW_SPLIT_KEYS] */
    float *O;      /* [D] */
    float *M;      /* running maximum */
    float *L;      /* running sum */
    float *m;      /* maximum and sum of the split at hand */
    float *l;
} query;

/* What a call works with. Scratch: rows[256][D], sub[4][D], then query_floats for each query of a group. */
typedef struct work {
    const tpw_vec *vec;
    const tpw_attention_args *args;
    const tpw_segment *segment;
    int32_t dim;
    int32_t group; /* query heads of a KV head */
    float root;    /* 1/sqrt(D) */
    float *rows;
    float *sub;
    float *queries;
    int64_t query_floats;
    int64_t queries_max;
} work;

static query query_at(const work *w, int64_t i)
{
    float *at = w->queries + i * w->query_floats;
    float *O = at + w->dim + TPW_SPLIT_KEYS, *sums = O + w->dim;
    return (query){at, at + w->dim, O, sums, sums + 1, sums + 2, sums + 3};
}

/* Query i of a KV head's queries in the segment: row by row, the heads of the group side by side. */
static int64_t query_pos(const work *w, int64_t i)
{
    return w->segment->pos + i / w->group;
}

static int64_t query_row(const work *w, int64_t i)
{
    return w->segment->row0 + i / w->group;
}

static int32_t query_head(const work *w, int32_t kv_head, int64_t i)
{
    return kv_head * w->group + (int32_t)(i % w->group);
}

/* Widens keys or values [first, first + n) of one KV head, page run by page run, to rows[0..n-1]. */
static void rows_load(const work *w, const void *from, int32_t kv_head, int64_t first, int32_t n)
{
    const tpw_kv *kv = &w->args->kv;
    for (int32_t i = 0, run; i < n; i += run) {
        int64_t pos = first + i, offset = pos % kv->page_size, page = tpw_segment_page(w->segment, pos / kv->page_size);
        run = kv->page_size - offset < n - i ? (int32_t)(kv->page_size - offset) : n - i;
        w->vec->load(w->rows + (int64_t)i * w->dim, from, kv->dtype,
                     ((page * kv->heads + kv_head) * kv->page_size + offset) * w->dim, run * w->dim);
    }
}

/* How many of the split's keys are at or before the query's position. */
static int32_t keys_valid(const work *w, int64_t i, int64_t first)
{
    int64_t n = query_pos(w, i) + 1 - first;
    return n < 0 ? 0 : n < TPW_SPLIT_KEYS ? (int32_t)n : TPW_SPLIT_KEYS;
}

/* Scores of n keys, m and l of the split, and p rounded to act. */
static void split_weights(const work *w, const query *y, int32_t n)
{
    float l[SUBSPLITS] = {0}, m;
    for (int32_t j = 0; j < n; j++)
        y->scores[j] = w->vec->dot(y->q, w->rows + (int64_t)j * w->dim, w->dim);
    w->vec->scale(y->scores, y->scores, w->root, n);
    m = y->scores[0];
    for (int32_t j = 1; j < n; j++)
        m = y->scores[j] > m ? y->scores[j] : m;
    w->vec->exp_shift(y->scores, y->scores, m, n);
    for (int32_t j = 0; j < n; j++)
        l[j / TPW_SUBSPLIT_KEYS] += y->scores[j];
    if (w->args->kv.dtype != TPW_F32)
        for (int32_t j = 0; j < n; j++)
            y->scores[j] = tpw_element_round(y->scores[j], w->args->kv.dtype);
    *y->m = m;
    *y->l = (l[0] + l[1]) + (l[2] + l[3]);
}

/* o of the split over n keys, left in sub[0]. */
static void split_values(const work *w, const query *y, int32_t n)
{
    float *o[SUBSPLITS];
    memset(w->sub, 0, sizeof(float) * SUBSPLITS * (size_t)w->dim);
    for (int32_t i = 0; i < SUBSPLITS; i++)
        o[i] = w->sub + (int64_t)i * w->dim;
    for (int32_t j = 0; j < n; j++)
        w->vec->axpy(o[j / TPW_SUBSPLIT_KEYS], w->rows + (int64_t)j * w->dim, y->scores[j], w->dim);
    for (int32_t d = 0; d < w->dim; d++)
        o[0][d] = (o[0][d] + o[1][d]) + (o[2][d] + o[3][d]);
}

static void split_fold(const work *w, const query *y, bool first)
{
    if (first) {
        memcpy(y->O, w->sub, sizeof(float) * (size_t)w->dim);
        *y->M = *y->m;
        *y->L = *y->l;
        return;
    }
    float M = *y->m > *y->M ? *y->m : *y->M;
    float keep = tpw_exp(*y->M - M), take = tpw_exp(*y->m - M);
    w->vec->fold(y->O, keep, w->sub, take, w->dim);
    *y->L = fmaf(*y->L, keep, *y->l * take);
    *y->M = M;
}

static void query_load(const work *w, int32_t kv_head, int64_t i, const query *y)
{
    const tpw_mat *q = &w->args->q;
    w->vec->load(y->q, q->data, q->dtype, query_row(w, i) * q->stride + (int64_t)query_head(w, kv_head, i) * w->dim,
                 w->dim);
}

static void query_store(const work *w, int32_t kv_head, int64_t i, const query *y)
{
    const tpw_mat *qg = &w->args->qg, *out = &w->args->out;
    int64_t row = query_row(w, i), head = query_head(w, kv_head, i);
    float *gate = y->q;
    w->vec->load(gate, qg->data, qg->dtype, row * qg->stride + (2 * head + 1) * w->dim, w->dim);
    w->vec->scale(y->O, y->O, 1.0f / *y->L, w->dim);
    w->vec->sigmoid_mul(y->O, y->O, gate, w->dim);
    w->vec->store(out->data, out->dtype, row * out->stride + head * w->dim, y->O, w->dim);
}

/* Queries first .. first+n-1 of one KV head, through all their splits. */
static void queries_run(const work *w, int32_t kv_head, int64_t first, int64_t n)
{
    int64_t keys = query_pos(w, first + n - 1) + 1;
    for (int64_t i = 0; i < n; i++) {
        query y = query_at(w, i);
        query_load(w, kv_head, first + i, &y);
    }
    for (int64_t split = 0; split < keys; split += TPW_SPLIT_KEYS) {
        int32_t count = keys - split < TPW_SPLIT_KEYS ? (int32_t)(keys - split) : TPW_SPLIT_KEYS;
        rows_load(w, w->args->kv.k, kv_head, split, count);
        for (int64_t i = 0; i < n; i++) {
            query y = query_at(w, i);
            if (keys_valid(w, first + i, split) > 0)
                split_weights(w, &y, keys_valid(w, first + i, split));
        }
        rows_load(w, w->args->kv.v, kv_head, split, count);
        for (int64_t i = 0; i < n; i++) {
            query y = query_at(w, i);
            if (keys_valid(w, first + i, split) == 0)
                continue;
            split_values(w, &y, keys_valid(w, first + i, split));
            split_fold(w, &y, split == 0);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        query y = query_at(w, i);
        query_store(w, kv_head, first + i, &y);
    }
}

static tpw_status attention_check(const tpw_attention_args *a, tpw_error *err)
{
    const tpw_kv *kv = &a->kv;
    if ((kv->dtype != TPW_F32 && kv->dtype != TPW_BF16 && kv->dtype != TPW_F16) || a->q.dtype != kv->dtype ||
        a->qg.dtype != kv->dtype || a->out.dtype != kv->dtype)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "attention: q %s, qg %s, out %s and K/V %s must be all F32, all BF16 or all F16",
                        tpw_dtype_name(a->q.dtype), tpw_dtype_name(a->qg.dtype), tpw_dtype_name(a->out.dtype),
                        tpw_dtype_name(kv->dtype));
    if (kv->heads < 1 || a->q_heads < 1 || a->q_heads % kv->heads != 0 || kv->head_dim < 1)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "attention: %d query heads over %d KV heads of %d dims are not supported", a->q_heads,
                        kv->heads, kv->head_dim);
    if (kv->page_size < 1 || kv->page_size > TPW_SPLIT_KEYS || (kv->page_size & (kv->page_size - 1)) != 0)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "attention: pages of %d positions, not a power of two up to %d",
                        kv->page_size, TPW_SPLIT_KEYS);
    for (int32_t i = 0; i < a->batch->segment_count; i++) {
        const tpw_segment *s = &a->batch->segments[i];
        for (int64_t page = 0; page * kv->page_size < s->pos + s->rows; page++)
            if (tpw_segment_page(s, page) < 1 || tpw_segment_page(s, page) >= kv->pages)
                return tpw_fail(err, TPW_ERR_ARGUMENT, "attention: page %lld of position %lld is outside 1..%d",
                                (long long)tpw_segment_page(s, page), (long long)(page * kv->page_size), kv->pages - 1);
    }
    return TPW_OK;
}

static tpw_status work_open(work *w, const tpw_exec *exec, const tpw_attention_args *a, tpw_error *err)
{
    size_t dim = (size_t)a->kv.head_dim, query_floats = 2 * dim + TPW_SPLIT_KEYS + 4;
    tpw_scratch scratch = tpw_scratch_begin(exec);
    float *rows, *sub, *queries;
    TPW_TRY(tpw_scratch_floats(&scratch, TPW_SPLIT_KEYS * dim, "attention", &rows, err));
    TPW_TRY(tpw_scratch_floats(&scratch, SUBSPLITS * dim, "attention", &sub, err));
    size_t queries_max = scratch.left / sizeof(float) / query_floats;
    queries_max = queries_max < 1 ? 1 : queries_max;
    TPW_TRY(tpw_scratch_floats(&scratch, queries_max * query_floats, "attention", &queries, err));
    *w = (work){.vec = tpw_host_vec(exec),
                .args = a,
                .dim = a->kv.head_dim,
                .group = a->q_heads / a->kv.heads,
                .root = tpw_rsqrt((float)dim),
                .rows = rows,
                .sub = sub,
                .queries = queries,
                .query_floats = (int64_t)query_floats,
                .queries_max = (int64_t)queries_max};
    return TPW_OK;
}

tpw_status tpw_host_attention(const tpw_exec *exec, const tpw_attention_args *args, tpw_error *err)
{
    work w;
    TPW_TRY(attention_check(args, err));
    TPW_TRY(work_open(&w, exec, args, err));
    for (int32_t i = 0; i < args->batch->segment_count; i++) {
        w.segment = &args->batch->segments[i];
        int64_t queries = (int64_t)w.segment->rows * w.group;
        for (int32_t h = 0; h < args->kv.heads; h++)
            for (int64_t at = 0, n; at < queries; at += n) {
                n = queries - at < w.queries_max ? queries - at : w.queries_max;
                queries_run(&w, h, at, n);
            }
    }
    return TPW_OK;
}
