// The matrix instruction, the widening of E4M3 in registers, and asynchronous copies to shared memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_GEMM_MATH_CUH
#define TPW_KERNELS_CUDA_GEMM_MATH_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#define TPW_TWO_60 1152921504606846976.0f // 2^60: twice this undoes the 2^-120 of packed E4M3

// Four placed codes (gemm_pack.cu) to BF16 pairs (0, 1) and (2, 3), each 2^-120 too small.
static __device__ __forceinline__ void tpw_widen4(uint32_t q, uint32_t &lo, uint32_t &hi)
{
    lo = q & 0x87F087F0u;
    hi = ((q << 4) & 0x80F080F0u) | ((q >> 4) & 0x07000700u);
}

// c += a * b: 16 weight rows by 8 rows of x by 16 columns, FP32 sums.
static __device__ __forceinline__ void tpw_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// One chunk's words of this lane to the operands of its two k16 steps.
template <bool E4M3> static __device__ __forceinline__ void tpw_widen_chunk(const uint4 *word, uint32_t a[8])
{
    if (E4M3) {
        const uint4 q = word[0];
        tpw_widen4(q.x, a[0], a[2]);
        tpw_widen4(q.y, a[1], a[3]);
        tpw_widen4(q.z, a[4], a[6]);
        tpw_widen4(q.w, a[5], a[7]);
    } else {
        const uint4 p = word[0], q = word[32];
        a[0] = p.x, a[1] = p.y, a[2] = p.z, a[3] = p.w;
        a[4] = q.x, a[5] = q.y, a[6] = q.z, a[7] = q.w;
    }
}

static __device__ __forceinline__ uint32_t tpw_shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void tpw_copy16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ void tpw_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LEFT> static __device__ __forceinline__ void tpw_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ void tpw_barrier_init(uint32_t bar)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
}

// Makes initialised barriers visible to the copy engine.
static __device__ __forceinline__ void tpw_barrier_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Starts one bulk copy of `bytes` (a multiple of 16) that completes on `bar`.
static __device__ __forceinline__ void tpw_bulk_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

// One of several copies that complete on `bar`, whose bytes were announced together.
static __device__ __forceinline__ void tpw_bulk_part(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

static __device__ __forceinline__ void tpw_barrier_wait(uint32_t bar, uint32_t parity)
{
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
}
#endif

#endif
