// Residual addition and RMSNorm of one row, as a part that fused kernels share: a warp takes a piece of 256 elements, a lane eight
// neighbours. The tree is that of add_norm in kernels/ops.h, for any number of warps and CTAs. BF16 h and y.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_NORM_ROW_CUH
#define TPW_KERNELS_CUDA_NORM_ROW_CUH

#include <cooperative_groups.h>
#include <cuda_bf16.h>

#include "kernels/cuda/launch.cuh"

extern "C" {
#include "kernels/tree.h"
}

struct tpw_norm_row {
    __nv_bfloat16 *h;
    int64_t h_stride;
    __nv_bfloat16 *y; // or NULL
    int64_t y_stride;
    const float *sum; // [parts][rows][cols]
    const float *weight;
    int32_t parts;
    int32_t rows;
    int32_t cols;
    float eps;
    bool fast; // whole lanes everywhere, all aligned to 16 bytes
};

static inline tpw_norm_row tpw_norm_row_of(const tpw_add_norm_args *a)
{
    tpw_norm_row n;
    n.h = (__nv_bfloat16 *)a->h.data, n.h_stride = a->h.stride;
    n.y = (__nv_bfloat16 *)a->y.data, n.y_stride = a->y.stride;
    n.sum = a->sum, n.weight = a->weight, n.parts = a->parts > 0 ? a->parts : 1;
    n.rows = a->h.rows, n.cols = a->h.cols, n.eps = a->eps;
    n.fast = n.cols % 8 == 0 && n.h_stride % 8 == 0 && n.y_stride % 8 == 0 && (uintptr_t)n.h % 16 == 0 &&
             (uintptr_t)n.y % 16 == 0 && (uintptr_t)n.sum % 16 == 0 && (uintptr_t)n.weight % 16 == 0;
    return n;
}

// The eight elements of one lane.
struct tpw_norm_lane {
    const tpw_norm_row &n;
    int32_t row, piece, lane, at, count; // first element and how many exist

    __device__ tpw_norm_lane(const tpw_norm_row &norm, int32_t r, int32_t p, int32_t l)
        : n(norm), row(r), piece(p), lane(l), at(p * TPW_TREE_PIECE + l * TPW_TREE_RUN),
          count(norm.cols - at < 0   ? 0
                : norm.cols - at < 8 ? norm.cols - at
                                     : 8)
    {
    }

    __device__ void load(const float *from, float v[8]) const
    {
        if (n.fast && count == 8) {
            const float4 a = __ldcg((const float4 *)(from + at)), b = __ldcg((const float4 *)(from + at) + 1);
            v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = i < count ? from[at + i] : 0.0f;
        }
    }
    // 1 + weight; constant data, so before the wait for earlier kernels.
    __device__ void load_gain(float gain[8]) const
    {
        if (n.y == NULL)
            return;
        load(n.weight, gain);
#pragma unroll
        for (int i = 0; i < 8; i++)
            gain[i] = __fadd_rn(1.0f, gain[i]);
    }
    // This rank's slices of the row, joined by their tree.
    __device__ void load_sum(float v[8]) const
    {
        const int64_t step = (int64_t)n.rows * n.cols;
        float part[8][8];
#pragma unroll
        for (int s = 0; s < 8; s++)
            if (s < n.parts)
                load(n.sum + s * step + (int64_t)row * n.cols, part[s]);
#pragma unroll
        for (int width = 1; width < 8; width *= 2)
            if (width < n.parts)
#pragma unroll
                for (int s = 0; s + width < 8; s += 2 * width)
                    if (s + width < n.parts)
#pragma unroll
                        for (int i = 0; i < 8; i++)
                            part[s][i] = __fadd_rn(part[s][i], part[s + width][i]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = part[0][i];
    }
    // h = bf16(h + sum), then y. All warps of the row's `ctas` CTAs (a cluster) call it together.
    __device__ void finish(const float sum[8], const float gain[8], int ctas) const
    {
        __shared__ float pieces[128]; // sums of squares, of the whole row
        const int warps = blockDim.x >> 5, total = warps * ctas;
        float x[8], square = 0.0f;
        __nv_bfloat16 *h = n.h + (int64_t)row * n.h_stride + at;
        if (n.fast && count == 8) {
            uint4 word = *(const uint4 *)h;
            __nv_bfloat16 *v = (__nv_bfloat16 *)&word;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[i] = __float2bfloat16_rn(__fadd_rn(__bfloat162float(v[i]), sum[i]));
                x[i] = __bfloat162float(v[i]);
            }
            *(uint4 *)h = word;
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                x[i] = 0.0f;
                if (i < count) {
                    h[i] = __float2bfloat16_rn(__fadd_rn(__bfloat162float(h[i]), sum[i]));
                    x[i] = __bfloat162float(h[i]);
                }
            }
        }
        if (n.y == NULL)
            return;
#pragma unroll
        for (int i = 0; i < 8; i++)
            square = __fmaf_rn(x[i], x[i], square);
#pragma unroll
        for (int half = TPW_TREE_LANES / 2; half > 0; half /= 2)
            square = __fadd_rn(square, __shfl_xor_sync(0xFFFFFFFFu, square, half));
        if (ctas == 1) {
            if (lane == 0)
                pieces[piece] = square;
            __syncthreads();
        } else {
#if __CUDA_ARCH__ >= 900
            cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
            cluster.sync(); // all CTAs of the row run, so that their shared memory is there
            if (lane < ctas)
                *cluster.map_shared_rank(&pieces[piece], lane) = square;
            cluster.sync();
#endif
        }
        float all = 0.0f;
        for (int i = 0; i < total; i++)
            all = __fadd_rn(all, pieces[i]);
        const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(all, (float)n.cols), n.eps)));
        __nv_bfloat16 *y = n.y + (int64_t)row * n.y_stride + at;
        uint4 word;
        __nv_bfloat16 *v = (__nv_bfloat16 *)&word;
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = __float2bfloat16_rn(__fmul_rn(__fmul_rn(x[i], inverse), gain[i]));
        if (n.fast && count == 8)
            *(uint4 *)y = word;
        else
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < count)
                    y[i] = v[i];
    }
};

#endif
