// Asks the GPU whether subnormal BF16 weights survive its matrix unit, and whether wgmma has the bits of mma.sync.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/wgmma.cuh"

extern "C" {
#include "kernels/cuda/selftest.h"
}

namespace
{

constexpr int BLOCKS = 96, A_KINDS = 4, X_KINDS = 3, STEPS = 8;

__device__ uint32_t hash(uint64_t x)
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return (uint32_t)(x >> 32);
}

// One BF16: of about one, of many magnitudes, a placed E4M3 weight (2^-120 too small, some subnormal), few values and zeros.
__device__ uint32_t number(uint64_t i, int kind)
{
    const uint32_t h = hash(i), sign = h & 0x8000, fraction = h & 0x7F;
    if (kind == 0)
        return sign | (0x3E00 + (h >> 8 & 0x1FF));
    if (kind == 1)
        return sign | (90 + (h >> 16) % 70) << 7 | fraction;
    if (kind == 2)
        return sign | (h >> 20 & 15) << 7 | (h >> 4 & 0x70);
    return h >> 16 & 3 ? sign | 0x3F80 | fraction : 0;
}

__device__ uint32_t pair(uint64_t i, int kind)
{
    return number(i, kind) | number(i + 1, kind) << 16;
}

// Weights of the smallest size times 2^60: one product a sum, so that the exact result is known.
__global__ void subnormals(uint32_t *wrong)
{
    const int lane = threadIdx.x, t = lane & 3;
    tpw_pdl_wait();
    for (uint32_t code = 1; code < 128; code++) { // the BF16 with these bits is code * 2^-133
        const uint32_t a[4] = {t == 0 ? code : 0, 0, 0, 0};
        float c[4] = {};
        tpw_mma(c, a, t == 0 ? 0x5D80u : 0u, 0u); // 2^60 in the first column
        const float exact = __fmul_rn((float)code, __uint_as_float((uint32_t)(127 - 73) << 23)); // code * 2^-73
        if (t == 0 && c[0] != exact) // lanes with t = 0 hold column 0 of eight weight rows
            atomicAdd(wrong, 1u);
    }
}

__global__ void __launch_bounds__(128) compare(uint32_t *unequal)
{
#ifdef TPW_HAS_WGMMA
    __shared__ __align__(128) unsigned char x[2 * STEPS * TPW_WGMMA_UNIT];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const uint64_t seed = (uint64_t)blockIdx.x << 32;
    const int a_kind = blockIdx.x % A_KINDS, x_kind = blockIdx.x / A_KINDS % X_KINDS;
    tpw_pdl_wait();
    for (int i = threadIdx.x; i < TPW_WGMMA_ROWS * STEPS * 16; i += 128) {
        const int row = i / (STEPS * 16), k = i % (STEPS * 16);
        uint32_t v = number(seed + i, x_kind == 2 ? 3 : x_kind);
        if (x_kind == 0 && (k & 1)) // nearly cancels its neighbour
            v = number(seed + i - 1, 0) ^ 0x8000 ^ (hash(seed + i) & 1);
        ((uint16_t *)x)[(k >> 3) * (TPW_WGMMA_UNIT / 2) + row * 8 + (k & 7)] = (uint16_t)v;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    uint32_t a[STEPS][4];
    for (int s = 0; s < STEPS; s++)
        for (int j = 0; j < 4; j++)
            a[s][j] =
                pair(seed + (1u << 24) + (warp * 16 + g + 8 * (j & 1)) * 128 + s * 16 + 2 * t + 8 * (j >> 1), a_kind);
    float d[TPW_WGMMA_ROWS / 2];
    for (int i = 0; i < TPW_WGMMA_ROWS / 2; i++)
        d[i] = 0.0f;
    tpw_wgmma_fence();
#pragma unroll
    for (int s = 0; s < STEPS; s++)
        tpw_wgmma(d, a[s], tpw_wgmma_place(tpw_shared(x + 2 * s * TPW_WGMMA_UNIT)));
    tpw_wgmma_commit();
    tpw_wgmma_wait<0>();
    uint32_t bad = 0;
#pragma unroll
    for (int j = 0; j < TPW_WGMMA_ROWS / 8; j++) {
        float c[4] = {};
        for (int s = 0; s < STEPS; s++) {
            const uint32_t *b = (const uint32_t *)(x + 2 * s * TPW_WGMMA_UNIT) + (8 * j + g) * 4 + t;
            tpw_mma(c, a[s], b[0], b[TPW_WGMMA_UNIT / 4]);
        }
        for (int i = 0; i < 4; i++)
            bad += __float_as_uint(c[i]) != __float_as_uint(d[4 * j + i]);
    }
    if (bad > 0)
        atomicAdd(unequal, bad);
#else
    tpw_pdl_wait();
    if (threadIdx.x == 0)
        atomicAdd(unequal, 1u);
#endif
}

} // namespace

extern "C" tpw_status tpw_cuda_selftest(const tpw_exec *exec, tpw_cuda_selftest_report *out, tpw_error *err)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    uint32_t *word = (uint32_t *)cuda->scratch, found[2];
    const bool wgmma = cuda->gpu.major == 9;

    *out = tpw_cuda_selftest_report();
    TPW_TRY(exec->device->fill(exec, word, 0, sizeof found, err));
    TPW_TRY(tpw_cuda_launch(exec, "self-test of mma.sync", err, subnormals, dim3(1), dim3(32), 0, 1, word));
    if (wgmma)
        TPW_TRY(tpw_cuda_launch(exec, "self-test of wgmma", err, compare, dim3(BLOCKS), dim3(128), 0, 1, word + 1));
    TPW_TRY(exec->device->download(exec, found, word, sizeof found, err));
    out->subnormal_asked = 127 * 8; // a lane of four holds the first column, for eight rows
    out->subnormal_wrong = found[0];
    out->wgmma_asked = wgmma ? BLOCKS * 64 * TPW_WGMMA_ROWS : 0;
    out->wgmma_unequal = found[1];
    if (wgmma)
        snprintf(out->text, sizeof out->text,
                 "mma.sync: %u of %u subnormal products wrong; wgmma: %u of %u sums unlike mma.sync", found[0],
                 out->subnormal_asked, found[1], out->wgmma_asked);
    else
        snprintf(out->text, sizeof out->text, "mma.sync: %u of %u subnormal products wrong; no wgmma here", found[0],
                 out->subnormal_asked);
    return TPW_OK;
}

extern "C" bool tpw_cuda_uses_wgmma(const tpw_exec *exec)
{
    return tpw_cuda_of(exec)->wgmma;
}
