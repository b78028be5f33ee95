// Rows cut into heads, a warp each: the sum of squares by the tree of add_norm, and the grid.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_HEAD_ROWS_CUH
#define TPW_KERNELS_CUDA_HEAD_ROWS_CUH

#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/tree.h"
}

#define TPW_HEAD_WARPS 4

// The sum of squares of dim elements at `at`, in all lanes of the warp.
static __device__ __forceinline__ float tpw_head_squares(const void *data, bool bf16, int64_t at, int32_t dim,
                                                         bool wide)
{
    float total = 0.0f;
    for (int32_t piece = 0; piece < dim; piece += TPW_TREE_PIECE) {
        const int32_t c = piece + (int32_t)(threadIdx.x % TPW_WARP) * TPW_TREE_RUN;
        float x[8], sum = 0.0f;
        tpw_row_load8(data, bf16, at + c, dim - c, wide, x);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum = fmaf(x[i], x[i], sum);
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2)
            sum += __shfl_xor_sync(TPW_ALL, sum, mask);
        total += sum;
    }
    return total;
}

// Warps of a CTA: few heads are spread over all multiprocessors.
static inline unsigned tpw_head_warps(const tpw_exec *exec, int64_t heads)
{
    return heads < (int64_t)tpw_cuda_of(exec)->gpu.processors * TPW_HEAD_WARPS ? 1 : TPW_HEAD_WARPS;
}

// Are 16-byte loads possible at every multiple of 8 elements of every head?
static inline bool tpw_head_wide(const tpw_mat *m, int32_t dim)
{
    return tpw_mat_wide(m) && dim % TPW_TREE_RUN == 0;
}

#endif
