/* Query and key norm, rotary, and the writing of keys and values to their pages.
 *
 * Norm and rotary stay in F32; the only rounding to act is the store. A pair is turned with plain products,
 * (x*c - y*s, y*c + x*s), each rounded once and then added. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"

/* x[D] becomes x * (1/sqrt(mean(x^2) + eps)) * (1 + weight), its first rope_dim dims turned by `turn`. */
static void head_prepare(const tpw_vec *vec, float *x, int32_t dim, const float *weight, float eps, const float *turn,
                         int32_t rope_dim)
{
    float inverse = tpw_rsqrt(vec->sum_squares(x, dim) / (float)dim + eps);
    for (int32_t i = 0; i < dim; i++)
        x[i] = x[i] * inverse * (1.0f + weight[i]);
    int32_t half = rope_dim / 2;
    for (int32_t j = 0; j < half; j++) {
        float c = turn[2 * j], s = turn[2 * j + 1], low = x[j], high = x[j + half];
        x[j] = low * c - high * s;
        x[j + half] = high * c + low * s;
    }
}

static void row_prepare(const tpw_vec *vec, const tpw_attn_prepare_args *a, int64_t row, int64_t pos, int64_t page,
                        float *x)
{
    const tpw_kv *kv = &a->kv;
    int32_t dim = kv->head_dim;
    const float *turn = a->rope + pos * a->rope_dim;
    size_t size = tpw_dtype_size(kv->dtype);
    for (int32_t h = 0; h < a->q_heads; h++) {
        vec->load(x, a->qg.data, a->qg.dtype, row * a->qg.stride + 2 * (int64_t)h * dim, dim);
        head_prepare(vec, x, dim, a->q_norm, a->eps, turn, a->rope_dim);
        vec->store(a->q.data, a->q.dtype, row * a->q.stride + (int64_t)h * dim, x, dim);
    }
    for (int32_t h = 0; h < kv->heads; h++) {
        int64_t to = ((page * kv->heads + h) * kv->page_size + pos % kv->page_size) * dim;
        vec->load(x, a->k.data, a->k.dtype, row * a->k.stride + (int64_t)h * dim, dim);
        head_prepare(vec, x, dim, a->k_norm, a->eps, turn, a->rope_dim);
        vec->store(kv->k, kv->dtype, to, x, dim);
        memcpy((char *)kv->v + (size_t)to * size,
               (const char *)a->v.data + (size_t)(row * a->v.stride + (int64_t)h * dim) * size, size * (size_t)dim);
    }
}

static tpw_status prepare_check(const tpw_attn_prepare_args *a, tpw_error *err)
{
    const tpw_kv *kv = &a->kv;
    if ((kv->dtype != TPW_F32 && kv->dtype != TPW_BF16) || a->qg.dtype != kv->dtype || a->k.dtype != kv->dtype ||
        a->v.dtype != kv->dtype || a->q.dtype != kv->dtype)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "attn_prepare: qg %s, k %s, v %s, q %s and K/V %s must all be F32 or all BF16",
                        tpw_dtype_name(a->qg.dtype), tpw_dtype_name(a->k.dtype), tpw_dtype_name(a->v.dtype),
                        tpw_dtype_name(a->q.dtype), tpw_dtype_name(kv->dtype));
    if (a->rope_dim < 0 || a->rope_dim % 2 != 0 || a->rope_dim > kv->head_dim)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "attn_prepare: %d rotary dims of %d are not supported", a->rope_dim,
                        kv->head_dim);
    if (kv->page_size < 1)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "attn_prepare: pages of %d positions are not supported",
                        kv->page_size);
    return TPW_OK;
}

tpw_status tpw_host_attn_prepare(const tpw_exec *exec, const tpw_attn_prepare_args *args, tpw_error *err)
{
    TPW_TRY(prepare_check(args, err));
    const tpw_vec *vec = tpw_host_vec(exec);
    tpw_scratch scratch = tpw_scratch_begin(exec);
    float *x;
    TPW_TRY(tpw_scratch_floats(&scratch, (size_t)args->kv.head_dim, "attn_prepare", &x, err));
    for (int32_t i = 0; i < args->batch->segment_count; i++) {
        const tpw_segment *s = &args->batch->segments[i];
        for (int32_t t = 0; t < s->rows; t++) {
            int64_t pos = s->pos + t;
            int64_t page = tpw_segment_page(s, pos / args->kv.page_size);
            if (page < 1 || page >= args->kv.pages)
                return tpw_fail(err, TPW_ERR_ARGUMENT, "attn_prepare: page %lld of position %lld is outside 1..%d",
                                (long long)page, (long long)pos, args->kv.pages - 1);
            row_prepare(vec, args, s->row0 + t, pos, (int32_t)page, x);
        }
    }
    return TPW_OK;
}
