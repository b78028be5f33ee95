// Choosing rows and tokens: gather and arg-max.
//
// A logit and its column become one 64-bit key, ordered by value, then by the lower column; the largest key is the answer
// in whatever order keys are compared, so a row may be spread over any number of CTAs.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

namespace
{

enum { THREADS = 256, PART_COLS = 2048 /* of a row, by one CTA */, COPY_BYTES = THREADS * 16 };

struct gather_params {
    const char *x;
    const int32_t *rows;
    const int32_t *to; // or NULL
    char *y;
    int64_t x_pitch; // bytes
    int64_t y_pitch;
    int64_t bytes; // of a row
    int32_t x_rows;
    int32_t to_rows;
};

// A row that is not there gives all-one bits, a NaN in every float type: an error cannot be returned from here. What would go to no
// row goes nowhere.
__global__ void __launch_bounds__(THREADS) gather(gather_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int32_t row = p.rows[blockIdx.x];
    const int64_t first = blockIdx.y * (int64_t)THREADS + threadIdx.x, step = (int64_t)gridDim.y * THREADS;
    const int32_t place = p.to == NULL ? (int32_t)blockIdx.x : p.to[blockIdx.x];
    if (p.to != NULL && (place < 0 || place >= p.to_rows))
        return;
    char *to = p.y + place * p.y_pitch;
    if (row >= 0 && row < p.x_rows) {
        tpw_copy_bytes(to, p.x + row * p.x_pitch, p.bytes, first, step);
        return;
    }
    for (int64_t i = first; i < p.bytes; i += step)
        to[i] = (char)0xFF;
}

struct argmax_params {
    const float *logits;
    int64_t stride;
    int32_t cols;
    int32_t vocab0;
    int32_t rows;
    int32_t parts; // CTAs a row
    float *value;
    int32_t *id;
    uint64_t *keys; // [rows, parts]
    bool wide;
};

// 0 for NaN, below every number; -0 counts as +0.
__device__ __forceinline__ uint64_t key_of(float x, int32_t col)
{
    uint32_t u = tpw_f32_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return 0;
    u = u == 0x80000000u ? 0 : u;
    u = (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (0xFFFFFFFFu - (uint32_t)col);
}

__device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

__device__ __forceinline__ uint64_t warp_largest(uint64_t key)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
        key = larger(key, __shfl_xor_sync(TPW_ALL, key, mask));
    return key;
}

// Writes a row's answer, the logit with the sign that it has.
__device__ __forceinline__ void answer(const argmax_params &p, int32_t row, uint64_t key)
{
    const int32_t col = (int32_t)(0xFFFFFFFFu - (uint32_t)key);
    p.value[row] = key == 0 ? tpw_f32_from_bits(0xFF800000u) : p.logits[row * p.stride + col];
    p.id[row] = key == 0 ? -1 : p.vocab0 + col;
}

// The largest key of every parts-th stretch of a row.
__global__ void __launch_bounds__(THREADS) argmax_part(argmax_params p)
{
    __shared__ uint64_t warps[THREADS / TPW_WARP];
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int32_t row = (int32_t)(blockIdx.x / (unsigned)p.parts), part = (int32_t)(blockIdx.x % (unsigned)p.parts);
    const float *at = p.logits + row * p.stride;
    uint64_t key = 0;
    for (int64_t c = ((int64_t)part * THREADS + threadIdx.x) * 8; c < p.cols; c += (int64_t)p.parts * THREADS * 8) {
        float v[8];
        const int32_t n = p.cols - c < 8 ? (int32_t)(p.cols - c) : 8;
        tpw_row_load8(at, false, c, n, p.wide, v);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < n)
                key = larger(key, key_of(v[i], (int32_t)c + i));
    }
    key = warp_largest(key);
    if (threadIdx.x % TPW_WARP == 0)
        warps[threadIdx.x / TPW_WARP] = key;
    __syncthreads();
    if (threadIdx.x >= TPW_WARP)
        return;
    key = warp_largest(threadIdx.x < THREADS / TPW_WARP ? warps[threadIdx.x] : 0);
    if (threadIdx.x != 0)
        return;
    if (p.parts > 1)
        p.keys[(int64_t)row * p.parts + part] = key;
    else
        answer(p, row, key);
}

// One warp a row.
__global__ void __launch_bounds__(THREADS) argmax_join(argmax_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t row = blockIdx.x * (int64_t)(THREADS / TPW_WARP) + threadIdx.x / TPW_WARP;
    if (row >= p.rows)
        return;
    uint64_t key = 0;
    for (int32_t i = (int32_t)(threadIdx.x % TPW_WARP); i < p.parts; i += TPW_WARP)
        key = larger(key, p.keys[row * p.parts + i]);
    key = warp_largest(key);
    if (threadIdx.x % TPW_WARP == 0)
        answer(p, (int32_t)row, key);
}

} // namespace

extern "C" tpw_status tpw_cuda_gather(const tpw_exec *exec, const tpw_gather_args *args, tpw_error *err)
{
    const tpw_mat *x = &args->x, *y = &args->y;
    if (x->dtype != y->dtype || x->cols != y->cols)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda gather: rows of %d %s into rows of %d %s", (int)x->cols,
                        tpw_dtype_name(x->dtype), (int)y->cols, tpw_dtype_name(y->dtype));
    TPW_TRY(tpw_mat_check("cuda gather", "x", x, err));
    TPW_TRY(tpw_mat_check("cuda gather", "y", y, err));
    const int64_t size = (int64_t)tpw_dtype_size(x->dtype);
    gather_params p = {};
    p.x = (const char *)x->data, p.x_pitch = x->stride * size, p.x_rows = x->rows;
    p.y = (char *)y->data, p.y_pitch = y->stride * size;
    p.rows = args->rows, p.to = args->to, p.to_rows = args->to_rows;
    p.bytes = x->cols * size;
    const int64_t parts = (p.bytes + COPY_BYTES - 1) / COPY_BYTES;
    return tpw_cuda_launch(exec, "gather", err, gather,
                           dim3((unsigned)y->rows, (unsigned)(parts < 65535 ? parts : 65535)), dim3(THREADS), 0, 1, p);
}

extern "C" tpw_status tpw_cuda_argmax(const tpw_exec *exec, const tpw_argmax_args *args, tpw_error *err)
{
    const tpw_mat *logits = &args->logits;
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    if (logits->dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda argmax: logits of type %s", tpw_dtype_name(logits->dtype));
    TPW_TRY(tpw_mat_check("cuda argmax", "logits", logits, err));
    argmax_params p = {};
    p.logits = (const float *)logits->data, p.stride = logits->stride;
    p.cols = logits->cols, p.rows = logits->rows, p.vocab0 = args->vocab0;
    p.value = args->value, p.id = args->id;
    p.wide = tpw_mat_wide(logits);
    p.keys = (uint64_t *)cuda->scratch;
    int64_t parts = ((int64_t)p.cols + PART_COLS - 1) / PART_COLS;
    const int64_t room = p.rows > 0 ? (int64_t)(cuda->scratch_bytes / sizeof(uint64_t)) / p.rows : 0;
    const int64_t grid = p.rows > 0 ? INT32_MAX / (int64_t)p.rows : 0; // CTAs along x
    parts = parts < room ? parts : room;
    parts = parts < grid ? parts : grid;
    p.parts = parts > 1 ? (int32_t)parts : 1;
    TPW_TRY(tpw_cuda_launch(exec, "argmax", err, argmax_part, dim3((unsigned)p.rows * (unsigned)p.parts), dim3(THREADS),
                            0, 1, p));
    if (p.parts == 1)
        return TPW_OK;
    return tpw_cuda_launch(exec, "argmax (join)", err, argmax_join,
                           dim3((unsigned)((p.rows + THREADS / TPW_WARP - 1) / (THREADS / TPW_WARP))), dim3(THREADS), 0,
                           1, p);
}
