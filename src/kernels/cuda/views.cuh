// Several strided arrays of one shape, walked together: axes that lie one after the other in all of them become one.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_VIEWS_CUH
#define TPW_KERNELS_CUDA_VIEWS_CUH

#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/array.h"
}

template <int N> struct tpw_views {
    char *data[N];
    int64_t count;
    int64_t extent[TPW_DIMS_MAX];
    int64_t stride[N][TPW_DIMS_MAX]; // elements
    int32_t dims;
    bool small; // element numbers fit 31 bits
};

// Of checked arrays with equal extents. The row-major order of elements stays.
template <int N> static inline tpw_views<N> tpw_views_of(const tpw_array *const (&a)[N])
{
    tpw_views<N> v = {};
    v.count = tpw_array_count(a[0]);
    v.small = v.count <= INT32_MAX;
    for (int n = 0; n < N; n++)
        v.data[n] = (char *)a[n]->data;
    for (int32_t d = 0; d < a[0]->dims; d++) {
        const int64_t extent = a[0]->extent[d];
        const int32_t last = v.dims - 1;
        bool joins = last >= 0;
        if (extent == 1)
            continue;
        for (int n = 0; n < N && joins; n++) {
            int64_t step;
            joins = tpw_mul_i64(a[n]->stride[d], extent, &step) && v.stride[n][last] == step;
        }
        const int32_t at = joins ? last : v.dims++;
        v.extent[at] = joins ? v.extent[at] * extent : extent;
        for (int n = 0; n < N; n++)
            v.stride[n][at] = a[n]->stride[d];
    }
    return v;
}

// Where element `i` lies in each, in elements.
template <int N>
static __device__ __forceinline__ void tpw_views_at(const tpw_views<N> &v, int64_t i, int64_t (&offset)[N])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        offset[n] = 0;
#pragma unroll
    for (int32_t d = TPW_DIMS_MAX - 1; d > 0; d--) {
        if (d >= v.dims)
            continue;
        const int64_t next = v.small ? (int64_t)((uint32_t)i / (uint32_t)v.extent[d]) : i / v.extent[d];
        const int64_t at = i - next * v.extent[d];
#pragma unroll
        for (int n = 0; n < N; n++)
            offset[n] += at * v.stride[n][d];
        i = next;
    }
#pragma unroll
    for (int n = 0; n < N; n++)
        offset[n] += i * v.stride[n][0];
}

// ERR_ARGUMENT unless elements lie at multiples of their size, as loads of a GPU need.
static inline tpw_status tpw_array_aligned(const char *op, const char *name, const tpw_array *a, tpw_error *err)
{
    const size_t size = tpw_dtype_size(a->dtype);
    if ((uintptr_t)a->data % size == 0)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: %s is at %p; %s needs device memory at a multiple of %d", op, name,
                    a->data, tpw_dtype_name(a->dtype), (int)size);
}

#endif
