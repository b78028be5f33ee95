// Reads memory as fast as the GPU can: bulk copies into a ring of shared memory of each warp, or loads to registers.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm_math.cuh"
#include "kernels/cuda/launch.cuh"

extern "C" {
#include "read_rate.h"
}

namespace
{

enum { WARP = 32, THREADS = 256, DEEP = 8 /* loads of a thread under way */, WAVES = 4 };

constexpr size_t RING_MAX = (size_t)192 << 10; // of a CTA
constexpr size_t BARRIER = 8;

struct design {
    const char *name;
    int32_t copy_bytes; // 0: loads to registers
    int32_t warps;
};

const design designs[] = {{"16 KB x 4 warps", 16384, 4},
                          {"8 KB x 8 warps", 8192, 8},
                          {"4 KB x 16 warps", 4096, 16},
                          {"8 KB x 4 warps", 8192, 4},
                          {"16 B to registers", 0, 8}};
constexpr int DESIGNS = sizeof designs / sizeof *designs;

struct read_params {
    const char *data;
    int64_t bytes;
    uint32_t *sum;
    int32_t copy_bytes;
    int32_t stages;
};

__device__ __forceinline__ uint32_t words_of(uint4 v)
{
    return v.x + v.y + v.z + v.w;
}

// One integer addition a warp: its order moves no bit.
__device__ __forceinline__ void add_up(uint32_t *sum, uint32_t mine)
{
    for (int mask = WARP / 2; mask > 0; mask /= 2)
        mine += __shfl_xor_sync(0xFFFFFFFFu, mine, mask);
    if (threadIdx.x % WARP == 0)
        atomicAdd(sum, mine);
}

// A contiguous stretch a warp, through a ring of its own. Starts before the kernels ahead have ended.
__global__ void read_bulk(const __grid_constant__ read_params p)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) unsigned char memory[];
    const int32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    const int64_t copies = p.bytes / p.copy_bytes, all = (int64_t)gridDim.x * warps;
    const int64_t me = (int64_t)blockIdx.x * warps + warp, first = copies * me / all;
    const int32_t count = (int32_t)(copies * (me + 1) / all - first);
    const char *from = p.data + first * p.copy_bytes;
    unsigned char *ring = memory + (size_t)warp * p.stages * p.copy_bytes;
    const uint32_t to = tpw_shared(ring);
    const uint32_t bar = tpw_shared(memory + (size_t)warps * p.stages * p.copy_bytes) + (uint32_t)(8 * warp * p.stages);
    if (lane == 0) {
        for (int32_t s = 0; s < p.stages; s++)
            tpw_barrier_init(bar + 8 * s);
        tpw_barrier_fence();
        for (int32_t s = 0; s < p.stages && s < count; s++)
            tpw_bulk_copy(to + s * p.copy_bytes, from + (int64_t)s * p.copy_bytes, p.copy_bytes, bar + 8 * s);
    }
    __syncwarp();
    tpw_pdl_trigger();
    uint32_t sum = 0, parity = 0;
    for (int32_t i = 0, s = 0; i < count; i++) {
        tpw_barrier_wait(bar + 8 * s, parity);
        const uint4 *words = (const uint4 *)(ring + s * p.copy_bytes);
        for (int32_t j = lane; j < p.copy_bytes / 16; j += WARP)
            sum += words_of(words[j]);
        __syncwarp(); // all lanes have read the stage
        if (lane == 0 && i + p.stages < count)
            tpw_bulk_copy(to + s * p.copy_bytes, from + (int64_t)(i + p.stages) * p.copy_bytes, p.copy_bytes,
                          bar + 8 * s);
        s = s + 1 == p.stages ? 0 : s + 1;
        parity ^= s == 0;
    }
    tpw_pdl_wait();
    add_up(p.sum, sum);
#endif
}

__global__ void __launch_bounds__(THREADS) read_registers(read_params p)
{
    const uint4 *words = (const uint4 *)p.data + threadIdx.x;
    const int64_t tile = (int64_t)THREADS * DEEP, tiles = p.bytes / 16 / tile;
    uint32_t sum = 0;
    tpw_pdl_trigger();
    for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
        uint4 v[DEEP];
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            v[k] = __ldcs(words + i * tile + k * THREADS);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            sum += words_of(v[k]);
    }
    for (int64_t i = tiles * tile + blockIdx.x * (int64_t)THREADS; i < p.bytes / 16; i += gridDim.x * (int64_t)THREADS)
        sum += words_of(__ldcs(words + i)); // units are whole numbers of THREADS words
    tpw_pdl_wait();
    add_up(p.sum, sum);
}

static_assert(BENCH_READ_UNIT % (THREADS * 16) == 0, "the last words are read by whole CTAs");

__global__ void __launch_bounds__(THREADS) read_plainly(read_params p)
{
    const uint4 *words = (const uint4 *)p.data;
    uint32_t sum = 0;
    tpw_pdl_wait();
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < p.bytes / 16; i += (int64_t)gridDim.x * THREADS)
        sum += words_of(words[i]);
    add_up(p.sum, sum);
}

__global__ void empty(uint32_t *counts)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    if (threadIdx.x == 0)
        counts[blockIdx.x]++;
}

// Stages of a warp's ring, so that one CTA fits a multiprocessor.
int32_t stages_of(const tpw_cuda *cuda, const design &d)
{
    const size_t slack = 1024, room = cuda->shared_bytes > slack ? cuda->shared_bytes - slack : 0;
    const size_t ring = room < RING_MAX ? room : RING_MAX;
    return d.copy_bytes == 0 ? 0 : (int32_t)(ring / ((size_t)d.warps * (size_t)d.copy_bytes));
}

tpw_status check(const void *data, size_t bytes, tpw_error *err)
{
    if (bytes == 0 || bytes % BENCH_READ_UNIT != 0 || (uintptr_t)data % 16 != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "reading %zu bytes at %p: whole units of %d, aligned to 16, are needed",
                        bytes, data, BENCH_READ_UNIT);
    return TPW_OK;
}

} // namespace

extern "C" const char *bench_read_design(int design)
{
    return design >= 0 && design < DESIGNS ? designs[design].name : NULL;
}

extern "C" bool bench_read_possible(const tpw_exec *exec, int design)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    if (design < 0 || design >= DESIGNS)
        return false;
    return designs[design].copy_bytes == 0 || (cuda->gpu.major >= 9 && stages_of(cuda, designs[design]) >= 2);
}

extern "C" tpw_status bench_read(const tpw_exec *exec, int number, const void *data, size_t bytes, uint32_t *sum,
                                 tpw_error *err)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    TPW_TRY(check(data, bytes, err));
    if (!bench_read_possible(exec, number))
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "reading design %d is not possible on %s", number, cuda->gpu.name);
    const design &d = designs[number];
    read_params p = {};
    p.data = (const char *)data, p.bytes = (int64_t)bytes, p.sum = sum;
    p.copy_bytes = d.copy_bytes, p.stages = stages_of(cuda, d);
    const unsigned processors = (unsigned)cuda->gpu.processors;
    if (d.copy_bytes == 0)
        return tpw_cuda_launch(exec, "reading to registers", err, read_registers, dim3(processors * WAVES),
                               dim3(THREADS), 0, 1, p);
    const size_t shared = (size_t)d.warps * (size_t)p.stages * ((size_t)d.copy_bytes + BARRIER);
    TPW_TRY(tpw_cuda_allow_shared(exec, (const void *)read_bulk, shared, err));
    return tpw_cuda_launch(exec, "reading by bulk copies", err, read_bulk, dim3(processors),
                           dim3((unsigned)(WARP * d.warps)), shared, 1, p);
}

extern "C" tpw_status bench_read_plainly(const tpw_exec *exec, const void *data, size_t bytes, uint32_t *sum,
                                         tpw_error *err)
{
    TPW_TRY(check(data, bytes, err));
    read_params p = {};
    p.data = (const char *)data, p.bytes = (int64_t)bytes, p.sum = sum;
    return tpw_cuda_launch(exec, "reading plainly", err, read_plainly,
                           dim3((unsigned)tpw_cuda_of(exec)->gpu.processors * WAVES), dim3(THREADS), 0, 1, p);
}

extern "C" tpw_status bench_empty(const tpw_exec *exec, int32_t ctas, int32_t threads, uint32_t *counts, tpw_error *err)
{
    if (ctas < 1 || threads < 1 || threads > 1024)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "an empty kernel of %d x %d threads", (int)ctas, (int)threads);
    return tpw_cuda_launch(exec, "empty kernel", err, empty, dim3((unsigned)ctas), dim3((unsigned)threads), 0, 1,
                           counts);
}
