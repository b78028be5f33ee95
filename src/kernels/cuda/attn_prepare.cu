// Query and key norm, rotary, and the writing of keys and values to their pages: the bits of the host backend.
//
// A warp takes one head of one row. Lane l holds elements 8l..8l+7 of each piece of 256, the tree of ops.h; the normed head
// passes through shared memory, because a rotary pair lies in two lanes. Position and page are read on the device.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/elementary.h"
#include "kernels/tree.h"
}

namespace
{

enum {
    WARPS = 4,
    DIM_MAX = 2048 // four heads in 32 KiB of shared memory
};

struct prepare_params {
    const tpw_segment *segments;
    const int32_t *segment_of;
    int64_t units; // rows times heads, of queries and of keys
    const void *qg;
    int64_t qg_stride;
    const void *k;
    int64_t k_stride;
    const void *v;
    int64_t v_stride;
    void *q;
    int64_t q_stride;
    const float *q_norm;
    const float *k_norm;
    const float *rope;
    void *cache_k;
    void *cache_v;
    float eps;
    int32_t rope_dim;
    int32_t q_heads;
    int32_t kv_heads;
    int32_t dim;
    int32_t page_size;
    int32_t pages;
    bool bf16;
    bool qg_wide;
    bool k_wide;
    bool q_wide;
    bool cache_wide;
    bool q_norm_wide;
    bool k_norm_wide;
};

// One head of one row: where it comes from, where it goes.
struct head_work {
    const void *from;
    int64_t from_at;
    bool from_wide;
    const float *weight;
    bool weight_wide;
    void *to;
    int64_t to_at;
    bool to_wide;
    const float *turn; // cosine and sine of each pair
};

// x[D] of the warp = from * (1/sqrt(mean + eps)) * (1 + weight).
__device__ __forceinline__ void head_norm(const prepare_params &p, const head_work &w, float *x)
{
    const int32_t lane = (int32_t)(threadIdx.x % TPW_WARP) * TPW_TREE_RUN;
    float total = 0.0f;
    for (int32_t c = lane; c - lane < p.dim; c += TPW_TREE_PIECE) {
        float v[8], sum = 0.0f;
        tpw_row_load8(w.from, p.bf16, w.from_at + c, p.dim - c, w.from_wide, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum = fmaf(v[i], v[i], sum);
            if (c + i < p.dim)
                x[c + i] = v[i];
        }
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2)
            sum += __shfl_xor_sync(TPW_ALL, sum, mask);
        total += sum;
    }
    const float inverse = tpw_rsqrt(total / (float)p.dim + p.eps);
    for (int32_t c = lane; c < p.dim; c += TPW_TREE_PIECE) {
        float weight[8];
        tpw_row_load8(w.weight, false, c, p.dim - c, w.weight_wide, weight);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (c + i < p.dim)
                x[c + i] = x[c + i] * inverse * (1.0f + weight[i]);
    }
}

// Element i of the head after rotary.
__device__ __forceinline__ float turned(const float *x, int32_t i, const float *turn, int32_t rope_dim)
{
    const int32_t half = rope_dim / 2;
    if (i < half)
        return x[i] * turn[2 * i] - x[i + half] * turn[2 * i + 1];
    if (i < rope_dim)
        return x[i] * turn[2 * (i - half)] + x[i - half] * turn[2 * (i - half) + 1];
    return x[i];
}

__device__ __forceinline__ void head_store(const prepare_params &p, const head_work &w, const float *x)
{
    const int32_t lane = (int32_t)(threadIdx.x % TPW_WARP) * TPW_TREE_RUN;
    for (int32_t c = lane; c < p.dim; c += TPW_TREE_PIECE) {
        float y[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            y[i] = c + i < p.dim ? turned(x, c + i, w.turn, p.rope_dim) : 0.0f;
        tpw_row_store8(w.to, p.bf16, w.to_at + c, p.dim - c, w.to_wide, y);
    }
}

// Sets where key head h of a row goes and copies its value as it is. False when the page cannot be: nothing is written then.
__device__ __forceinline__ bool key_place(const prepare_params &p, const tpw_segment &s, int64_t row, int64_t pos,
                                          int32_t h, head_work *w)
{
    const int32_t page = s.pages[pos / p.page_size], size = p.bf16 ? 2 : 4;
    if (page < 1 || page >= p.pages)
        return false;
    const int64_t from = row * p.v_stride + (int64_t)h * p.dim;
    w->from = p.k, w->from_at = row * p.k_stride + (int64_t)h * p.dim, w->from_wide = p.k_wide;
    w->weight = p.k_norm, w->weight_wide = p.k_norm_wide;
    w->to = p.cache_k, w->to_wide = p.cache_wide;
    w->to_at = (((int64_t)page * p.kv_heads + h) * p.page_size + pos % p.page_size) * p.dim;
    tpw_copy_bytes((char *)p.cache_v + w->to_at * size, (const char *)p.v + from * size, (int64_t)p.dim * size,
                   threadIdx.x % TPW_WARP, TPW_WARP);
    return true;
}

__global__ void __launch_bounds__(WARPS *TPW_WARP) attn_prepare(const __grid_constant__ prepare_params p)
{
    extern __shared__ float heads[];
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.x / TPW_WARP;
    float *x = heads + (int64_t)(threadIdx.x / TPW_WARP) * p.dim;

    tpw_pdl_trigger();
    tpw_pdl_wait();
    if (unit >= p.units)
        return;
    const int32_t all = p.q_heads + p.kv_heads, h = (int32_t)(unit % all);
    const int64_t row = unit / all;
    const tpw_segment s = p.segments[p.segment_of[row]];
    const int64_t pos = s.pos + (row - s.row0);
    head_work w = {};
    w.turn = p.rope + pos * p.rope_dim;
    if (h < p.q_heads) {
        w.from = p.qg, w.from_at = row * p.qg_stride + 2 * (int64_t)h * p.dim, w.from_wide = p.qg_wide;
        w.weight = p.q_norm, w.weight_wide = p.q_norm_wide;
        w.to = p.q, w.to_at = row * p.q_stride + (int64_t)h * p.dim, w.to_wide = p.q_wide;
    } else if (!key_place(p, s, row, pos, h - p.q_heads, &w)) {
        return;
    }
    head_norm(p, w, x);
    __syncwarp();
    head_store(p, w, x);
}

tpw_status check_types(const tpw_attn_prepare_args *a, tpw_error *err)
{
    const tpw_kv *kv = &a->kv;
    if (!tpw_is_act(kv->dtype) || a->qg.dtype != kv->dtype || a->k.dtype != kv->dtype || a->v.dtype != kv->dtype ||
        a->q.dtype != kv->dtype)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "cuda attn_prepare: qg %s, k %s, v %s, q %s and K/V %s must all be F32 or all BF16",
                        tpw_dtype_name(a->qg.dtype), tpw_dtype_name(a->k.dtype), tpw_dtype_name(a->v.dtype),
                        tpw_dtype_name(a->q.dtype), tpw_dtype_name(kv->dtype));
    if (kv->head_dim < 1 || kv->head_dim > DIM_MAX || kv->heads < 1 || a->q_heads < 1)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "cuda attn_prepare: %d query heads, %d KV heads of %d dims; at most %d dims are supported",
                        (int)a->q_heads, (int)kv->heads, (int)kv->head_dim, DIM_MAX);
    if (a->rope_dim < 0 || a->rope_dim % 2 != 0 || a->rope_dim > kv->head_dim)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda attn_prepare: %d rotary dims of %d are not supported",
                        (int)a->rope_dim, (int)kv->head_dim);
    if (kv->page_size < 1)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda attn_prepare: pages of %d positions are not supported",
                        (int)kv->page_size);
    return TPW_OK;
}

tpw_status check_mat(const char *name, const tpw_mat *m, int32_t rows, int64_t cols, tpw_error *err)
{
    TPW_TRY(tpw_mat_check("cuda attn_prepare", name, m, err));
    if (m->rows != rows || m->cols != cols)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda attn_prepare: %s is [%d, %d], the batch needs [%d, %lld]", name,
                        (int)m->rows, (int)m->cols, (int)rows, (long long)cols);
    return TPW_OK;
}

tpw_status check_mats(const tpw_attn_prepare_args *a, tpw_error *err)
{
    const tpw_kv *kv = &a->kv;
    const int64_t q = (int64_t)a->q_heads * kv->head_dim, k = (int64_t)kv->heads * kv->head_dim;
    const size_t size = tpw_dtype_size(kv->dtype);
    TPW_TRY(check_mat("qg", &a->qg, a->batch->rows, 2 * q, err));
    TPW_TRY(check_mat("q", &a->q, a->batch->rows, q, err));
    TPW_TRY(check_mat("k", &a->k, a->batch->rows, k, err));
    TPW_TRY(check_mat("v", &a->v, a->batch->rows, k, err));
    if (kv->k == NULL || kv->v == NULL || (uintptr_t)kv->k % size != 0 || (uintptr_t)kv->v % size != 0 ||
        a->q_norm == NULL || a->k_norm == NULL || (a->rope == NULL && a->rope_dim > 0))
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "cuda attn_prepare: K/V at %p and %p, norms at %p and %p, rope at %p; none may be missing",
                        kv->k, kv->v, (const void *)a->q_norm, (const void *)a->k_norm, (const void *)a->rope);
    return TPW_OK;
}

// The pages that this step writes, while the host can still name a wrong one.
tpw_status check_pages(const tpw_attn_prepare_args *a, tpw_error *err)
{
    const tpw_kv *kv = &a->kv;
    for (int32_t i = 0; i < a->batch->segment_count; i++) {
        const tpw_segment *s = &a->batch->segments[i];
        if (s->pos < 0 || (s->pages == NULL && s->pages_wide == NULL))
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda attn_prepare: segment %d at position %lld has no pages",
                            (int)i, (long long)s->pos);
        for (int64_t j = s->pos / kv->page_size; j * kv->page_size < s->pos + s->rows; j++)
            if (tpw_segment_page(s, j) < 1 || tpw_segment_page(s, j) >= kv->pages)
                return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda attn_prepare: page %lld of position %lld is outside 1..%d",
                                (long long)tpw_segment_page(s, j), (long long)(j * kv->page_size), (int)kv->pages - 1);
    }
    return TPW_OK;
}

prepare_params params_of(const tpw_attn_prepare_args *a, const tpw_cuda_batch *b)
{
    const tpw_kv *kv = &a->kv;
    const bool whole = (size_t)kv->head_dim * tpw_dtype_size(kv->dtype) % 16 == 0;
    prepare_params p = {};
    p.segments = b->segments, p.segment_of = b->segment_of;
    p.units = (int64_t)a->batch->rows * ((int64_t)a->q_heads + kv->heads);
    p.qg = a->qg.data, p.qg_stride = a->qg.stride, p.qg_wide = whole && tpw_mat_wide(&a->qg);
    p.k = a->k.data, p.k_stride = a->k.stride, p.k_wide = whole && tpw_mat_wide(&a->k);
    p.v = a->v.data, p.v_stride = a->v.stride;
    p.q = a->q.data, p.q_stride = a->q.stride, p.q_wide = whole && tpw_mat_wide(&a->q);
    p.q_norm = a->q_norm, p.q_norm_wide = (uintptr_t)a->q_norm % 16 == 0;
    p.k_norm = a->k_norm, p.k_norm_wide = (uintptr_t)a->k_norm % 16 == 0;
    p.rope = a->rope, p.rope_dim = a->rope_dim, p.eps = a->eps;
    p.cache_k = kv->k, p.cache_v = kv->v, p.cache_wide = whole && (uintptr_t)kv->k % 16 == 0;
    p.q_heads = a->q_heads, p.kv_heads = kv->heads, p.dim = kv->head_dim;
    p.page_size = kv->page_size, p.pages = kv->pages, p.bf16 = kv->dtype == TPW_BF16;
    return p;
}

} // namespace

extern "C" tpw_status tpw_cuda_attn_prepare(const tpw_exec *exec, const tpw_attn_prepare_args *args, tpw_error *err)
{
    tpw_cuda_batch b;
    TPW_TRY(check_types(args, err));
    TPW_TRY(tpw_cuda_batch_of(exec, args->batch, "attn_prepare", &b, err));
    if (args->batch->rows == 0)
        return TPW_OK;
    TPW_TRY(check_mats(args, err));
    TPW_TRY(check_pages(args, err));
    const prepare_params p = params_of(args, &b);
    const int64_t blocks = (p.units + WARPS - 1) / WARPS;
    if (blocks > INT32_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "cuda attn_prepare: %lld heads in one step are too many",
                        (long long)p.units);
    return tpw_cuda_launch(exec, "attn_prepare", err, attn_prepare, dim3((unsigned)blocks), dim3(WARPS * TPW_WARP),
                           sizeof(float) * WARPS * (size_t)p.dim, 1, p);
}
