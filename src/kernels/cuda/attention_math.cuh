// The instructions of attention: matrix operands out of shared memory, 2^x, copies that give zeros for what is not there.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_ATTENTION_MATH_CUH
#define TPW_KERNELS_CUDA_ATTENTION_MATH_CUH

#include "kernels/cuda/gemm_math.cuh"

// Four 8 x 8 blocks of 16-bit numbers; lanes 8i..8i+7 give the addresses of the rows of block i. Lane l gets elements 2(l % 4) and the
// next of row l / 4 of each.
static __device__ __forceinline__ void tpw_blocks4(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

// The same, each block transposed.
static __device__ __forceinline__ void tpw_blocks4_turned(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

// 2^x, exactly 1 at +-0, 0 at -infinity; results below 2^-126 are 0. One fixed operation of an architecture.
static __device__ __forceinline__ float tpw_exp2_unit(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Two numbers as BF16 or F16, to nearest even, the first in the low half.
template <bool F16> static __device__ __forceinline__ uint32_t tpw_act_pair(float low, float high)
{
    uint32_t pair;
    if (F16)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// The matrix instruction of either type.
template <bool F16>
static __device__ __forceinline__ void tpw_act_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    if (!F16)
        tpw_mma(c, a, b0, b1);
    else
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Starts a copy of 16 bytes; when `there` is false it writes zeros and reads nothing (`from` must still be an address).
static __device__ __forceinline__ void tpw_copy16_or_zero(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

#endif
