// Eight neighbours of a row as F32, 16-byte windows of rows, grids: what the small kernels share. Any stride, any alignment.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_ROWS_CUH
#define TPW_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/launch.cuh"

extern "C" {
#include "base/checked.h"
}

#define TPW_WARP 32
#define TPW_ALL  0xFFFFFFFFu

// One element of an F32 or BF16 row.
static __device__ __forceinline__ float tpw_row_get(const void *data, bool bf16, int64_t at)
{
    return bf16 ? tpw_bf16_to_f32(((const uint16_t *)data)[at]) : ((const float *)data)[at];
}

static __device__ __forceinline__ void tpw_row_set(void *data, bool bf16, int64_t at, float x)
{
    if (bf16)
        ((uint16_t *)data)[at] = tpw_bf16_from_f32(x);
    else
        ((float *)data)[at] = x;
}

// Elements at .. at + n of n <= 8, the rest +0. `wide`: an aligned 16-byte load is possible at every multiple of 8.
static __device__ __forceinline__ void tpw_row_load8(const void *data, bool bf16, int64_t at, int32_t n, bool wide,
                                                     float v[8])
{
    if (n >= 8 && wide && bf16) {
        const uint4 w = *(const uint4 *)((const uint16_t *)data + at);
        const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = tpw_f32_from_bits(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xFFFF0000u);
        return;
    }
    if (n >= 8 && wide) {
        const float4 a = *(const float4 *)((const float *)data + at);
        const float4 b = *(const float4 *)((const float *)data + at + 4);
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = i < n ? tpw_row_get(data, bf16, at + i) : 0.0f;
}

// Rounds to nearest even where the row is BF16.
static __device__ __forceinline__ void tpw_row_store8(void *data, bool bf16, int64_t at, int32_t n, bool wide,
                                                      const float v[8])
{
    if (n >= 8 && wide && bf16) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = (uint32_t)tpw_bf16_from_f32(v[2 * i]) | (uint32_t)tpw_bf16_from_f32(v[2 * i + 1]) << 16;
        *(uint4 *)((uint16_t *)data + at) = make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
    if (n >= 8 && wide) {
        *(float4 *)((float *)data + at) = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)((float *)data + at + 4) = make_float4(v[4], v[5], v[6], v[7]);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < n)
            tpw_row_set(data, bf16, at + i, v[i]);
}

// Copies `bytes` by the threads first, first + step, ..., in the widest unit that both addresses allow.
static __device__ __forceinline__ void tpw_copy_bytes(char *to, const char *from, int64_t bytes, int64_t first,
                                                      int64_t step)
{
    const unsigned off = (unsigned)((uintptr_t)to | (uintptr_t)from) & 15u;
    int64_t done = 0;
    if (off == 0) {
        done = bytes / 16 * 16;
        for (int64_t i = first; i < bytes / 16; i += step)
            ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    } else if (off % 4 == 0) {
        done = bytes / 4 * 4;
        for (int64_t i = first; i < bytes / 4; i += step)
            ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
    } else if (off % 2 == 0) {
        done = bytes / 2 * 2;
        for (int64_t i = first; i < bytes / 2; i += step)
            ((uint16_t *)to)[i] = ((const uint16_t *)from)[i];
    }
    for (int64_t i = done + first; i < bytes; i += step)
        to[i] = from[i];
}

// Rows of bytes cut at the multiples of 16 of the address, so that a window is one aligned access, or part of one at the
// ends of a row.
struct tpw_windows {
    char *data;
    int64_t rows;
    int64_t row_bytes;
    int64_t pitch;   // bytes from one row to the next
    int64_t per_row; // windows
};

struct tpw_window {
    int64_t row;
    int64_t first; // byte in the row
    char *at;
    int32_t bytes; // 16: whole; 0: nothing here
};

static inline tpw_windows tpw_windows_of(const void *data, int64_t rows, int64_t cols, int64_t stride, int64_t size)
{
    tpw_windows w = {};
    w.data = (char *)(uintptr_t)data;
    w.rows = rows, w.row_bytes = cols * size, w.pitch = stride * size;
    const bool aligned = (uintptr_t)data % 16 == 0 && (rows == 1 || w.pitch % 16 == 0);
    w.per_row = (w.row_bytes + (aligned ? 15 : 30)) / 16;
    return w;
}

static __device__ __forceinline__ tpw_window tpw_window_at(const tpw_windows &w, int64_t i)
{
    tpw_window out;
    out.row = w.rows == 1 ? 0 : i / w.per_row;
    char *row = w.data + out.row * w.pitch;
    const int64_t begin = (i - out.row * w.per_row) * 16 - (int64_t)((uintptr_t)row & 15u);
    const int64_t end = begin + 16 < w.row_bytes ? begin + 16 : w.row_bytes;
    out.first = begin > 0 ? begin : 0;
    out.at = row + out.first;
    out.bytes = end > out.first ? (int32_t)(end - out.first) : 0;
    return out;
}

// CTAs for `items` at `per_block` each: at most `waves` for every multiprocessor, kernels go on in strides.
static inline unsigned tpw_blocks(const tpw_exec *exec, int64_t items, int64_t per_block, int64_t waves)
{
    const int64_t most = (int64_t)tpw_cuda_of(exec)->gpu.processors * waves,
                  blocks = (items + per_block - 1) / per_block;
    return (unsigned)(blocks < most ? blocks : most);
}

static inline bool tpw_is_act(tpw_dtype dtype)
{
    return dtype == TPW_F32 || dtype == TPW_BF16;
}

// Are 16-byte accesses possible at every multiple of 8 columns of every row?
static inline bool tpw_mat_wide(const tpw_mat *m)
{
    return (uintptr_t)m->data % 16 == 0 && m->stride * (int64_t)tpw_dtype_size(m->dtype) % 16 == 0;
}

// ERR_ARGUMENT unless elements lie at multiples of their size, as loads of a GPU need, in a matrix that can be.
static inline tpw_status tpw_mat_check(const char *op, const char *name, const tpw_mat *m, tpw_error *err)
{
    const size_t size = tpw_dtype_size(m->dtype);
    int64_t span;
    if (size == 0)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "%s: %s has the unknown dtype %d", op, name, (int)m->dtype);
    if (m->rows < 0 || m->cols < 0 || !tpw_mul_i64(m->stride, m->rows, &span) || !tpw_add_i64(span, m->cols, &span) ||
        !tpw_mul_i64(span, (int64_t)size, &span))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: %s [%d, %d] with stride %lld cannot be", op, name, (int)m->rows,
                        (int)m->cols, (long long)m->stride);
    if (m->rows == 0 || m->cols == 0)
        return TPW_OK;
    if (m->data == NULL || (uintptr_t)m->data % size != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: %s is at %p; %s needs device memory at a multiple of %d", op, name,
                        m->data, tpw_dtype_name(m->dtype), (int)size);
    return TPW_OK;
}

#endif
