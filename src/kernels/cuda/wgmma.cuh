// The warpgroup's matrix instruction of sm_90a: weights in registers, x in shared memory without swizzle.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_WGMMA_CUH
#define TPW_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/gemm_math.cuh"

#define TPW_WGMMA_ROWS 128                   // rows of x of one instruction
#define TPW_WGMMA_UNIT (TPW_WGMMA_ROWS * 16) // bytes of 8 columns of all its rows: [row][8 columns]

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TPW_HAS_WGMMA 1

// Where a k16 step's columns stand: two units, one after the other; rows of 16 bytes, 8 to a core matrix of 128.
static __device__ __forceinline__ uint64_t tpw_wgmma_place(uint32_t shared)
{
    return (uint64_t)(shared >> 4) | (uint64_t)(TPW_WGMMA_UNIT >> 4) << 16 | (uint64_t)(128 >> 4) << 32;
}

static __device__ __forceinline__ void tpw_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void tpw_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most LEFT committed groups are unfinished.
template <int LEFT> static __device__ __forceinline__ void tpw_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// d += a * x: 64 weight rows (16 a warp) by 128 rows of x by 16 columns. d[4j..4j+3] are what tpw_mma has for tile j.
static __device__ __forceinline__ void tpw_wgmma(float *d, const uint32_t *a, uint64_t x)
{
    // clang-format off
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x));
    // clang-format on
}
#endif

#endif
