// Conversion of a strided array between any two types. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/views.cuh"

namespace
{

enum { THREADS = 256, WAVES = 16, WIDE = 4 };

struct cast_params {
    tpw_views<2> v; // x, y
    tpw_dtype from;
    tpw_dtype to;
    int32_t from_size;
    int32_t to_size;
};

// Four neighbours as one access; two for the largest elements.
__device__ __forceinline__ void load4(const char *data, int64_t at, int32_t size, uint64_t raw[WIDE])
{
    if (size == 8) {
        const ulonglong2 a = ((const ulonglong2 *)data)[at / 2], b = ((const ulonglong2 *)data)[at / 2 + 1];
        raw[0] = a.x, raw[1] = a.y, raw[2] = b.x, raw[3] = b.y;
    } else if (size == 4) {
        const uint4 a = ((const uint4 *)data)[at / 4];
        raw[0] = a.x, raw[1] = a.y, raw[2] = a.z, raw[3] = a.w;
    } else if (size == 2) {
        const uint2 a = ((const uint2 *)data)[at / 4];
        raw[0] = a.x & 0xFFFFu, raw[1] = a.x >> 16, raw[2] = a.y & 0xFFFFu, raw[3] = a.y >> 16;
    } else {
        const uint32_t a = ((const uint32_t *)data)[at / 4];
        raw[0] = a & 0xFFu, raw[1] = a >> 8 & 0xFFu, raw[2] = a >> 16 & 0xFFu, raw[3] = a >> 24;
    }
}

__device__ __forceinline__ void store4(char *data, int64_t at, int32_t size, const uint64_t raw[WIDE])
{
    if (size == 8) {
        ((ulonglong2 *)data)[at / 2] = make_ulonglong2(raw[0], raw[1]);
        ((ulonglong2 *)data)[at / 2 + 1] = make_ulonglong2(raw[2], raw[3]);
    } else if (size == 4) {
        ((uint4 *)data)[at / 4] = make_uint4((uint32_t)raw[0], (uint32_t)raw[1], (uint32_t)raw[2], (uint32_t)raw[3]);
    } else if (size == 2) {
        ((uint2 *)data)[at / 4] =
            make_uint2((uint32_t)raw[0] | (uint32_t)raw[1] << 16, (uint32_t)raw[2] | (uint32_t)raw[3] << 16);
    } else {
        ((uint32_t *)data)[at / 4] =
            (uint32_t)raw[0] | (uint32_t)raw[1] << 8 | (uint32_t)raw[2] << 16 | (uint32_t)raw[3] << 24;
    }
}

// One element a thread and round, wherever it lies.
__global__ void __launch_bounds__(THREADS) cast_any(cast_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < p.v.count; i += (int64_t)gridDim.x * THREADS) {
        int64_t at[2];
        tpw_views_at(p.v, i, at);
        const uint64_t raw = tpw_raw_load(p.v.data[0], at[0], p.from_size);
        tpw_raw_store(p.v.data[1], at[1], p.to_size, tpw_convert_raw(p.from, p.to, raw));
    }
}

// Both contiguous and aligned: four elements a thread and round, the last few one by one.
__global__ void __launch_bounds__(THREADS) cast_plain(cast_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t first = blockIdx.x * (int64_t)THREADS + threadIdx.x, step = (int64_t)gridDim.x * THREADS;
    const int64_t whole = p.v.count / WIDE;
    for (int64_t i = first; i < whole; i += step) {
        uint64_t raw[WIDE];
        load4(p.v.data[0], i * WIDE, p.from_size, raw);
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            raw[k] = tpw_convert_raw(p.from, p.to, raw[k]);
        store4(p.v.data[1], i * WIDE, p.to_size, raw);
    }
    for (int64_t i = whole * WIDE + first; i < p.v.count; i += step)
        tpw_raw_store(p.v.data[1], i, p.to_size,
                      tpw_convert_raw(p.from, p.to, tpw_raw_load(p.v.data[0], i, p.from_size)));
}

bool plain(const tpw_views<2> &v, int n, int32_t size)
{
    const uintptr_t bytes = size == 8 ? 16 : (uintptr_t)(size * WIDE);
    return v.dims <= 1 && (v.dims == 0 || v.stride[n][0] == 1) && (uintptr_t)v.data[n] % bytes == 0;
}

} // namespace

extern "C" tpw_status tpw_cuda_cast(const tpw_exec *exec, const tpw_cast_args *args, tpw_error *err)
{
    TPW_TRY(tpw_cast_check("cuda cast", args, err));
    TPW_TRY(tpw_array_aligned("cuda cast", "x", &args->x, err));
    TPW_TRY(tpw_array_aligned("cuda cast", "y", &args->y, err));
    cast_params p = {};
    p.v = tpw_views_of<2>({&args->x, &args->y});
    p.from = args->x.dtype, p.to = args->y.dtype;
    p.from_size = (int32_t)tpw_dtype_size(p.from), p.to_size = (int32_t)tpw_dtype_size(p.to);
    const bool wide = plain(p.v, 0, p.from_size) && plain(p.v, 1, p.to_size);
    const dim3 grid(tpw_blocks(exec, p.v.count, wide ? THREADS * WIDE : THREADS, WAVES));
    return tpw_cuda_launch(exec, "cast", err, wide ? cast_plain : cast_any, grid, dim3(THREADS), 0, 1, p);
}
