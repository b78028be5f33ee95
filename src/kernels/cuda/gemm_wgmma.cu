// The gemm of many rows on sm_90a: tiles of 128 weight rows by 128 rows of x, two warpgroups and a warp that copies.
//
// Weights are widened in registers, x lies in shared memory as the instruction wants it; both come by bulk copies, one piece of
// the K axis a stage. Only for cuts whose pieces are all whole (those of real models); short ones take the other kernel. Used only where the start-up self-test found its bits equal to those of mma.sync.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm_params.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

constexpr int CONSUMERS = 8; // warps, a strip of 16 weight rows each
constexpr int X_BYTES = TPW_PIECE_CHUNKS * 4 * TPW_WGMMA_UNIT;

template <bool E4M3> struct tile_shape {
    static constexpr int CHUNK_BYTES = E4M3 ? 512 : 1024;
    static constexpr int STRIP_BYTES = TPW_PIECE_CHUNKS * CHUNK_BYTES;
    static constexpr int STAGE_BYTES = CONSUMERS * STRIP_BYTES + X_BYTES;
    static constexpr int STAGES = E4M3 ? 4 : 3;
    static constexpr size_t BYTES = (size_t)STAGES * STAGE_BYTES + 2 * STAGES * 8;
};

// x for this kernel: [tile of 128 rows][chunk of the rank][4 units][128 rows][16 bytes]. Unit u of a chunk holds column pairs
// 4t + u, t = 0..3: the order in which packed weights give them to the two k16 steps.
template <bool E4M3> __global__ void pack_x_tiles(tpw_gemm_params p, uint4 *to)
{
    const int32_t chunks = p.cut.chunk_begin[p.cut.slices];
    const int32_t c = blockIdx.x * 8 + (threadIdx.x & 7), m = blockIdx.y * 32 + (threadIdx.x >> 3);
    tpw_pdl_trigger();
    tpw_pdl_wait();
    if (c >= chunks || m >= p.m)
        return;
    int32_t s = 0;
    while (c >= p.cut.chunk_begin[s + 1])
        s++;
    uint4 v[4];
    for (int q = 0; q < 4; q++)
        v[q] = tpw_load_x<E4M3>(p, s, m, (c - p.cut.chunk_begin[s]) * 4 + q);
    uint4 *out = to + (((int64_t)(m / TPW_WGMMA_ROWS) * chunks + c) * 4) * TPW_WGMMA_ROWS + m % TPW_WGMMA_ROWS;
    out[0 * TPW_WGMMA_ROWS] = make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
    out[1 * TPW_WGMMA_ROWS] = make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
    out[2 * TPW_WGMMA_ROWS] = make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
    out[3 * TPW_WGMMA_ROWS] = make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
#endif

template <bool E4M3>
__global__ void __launch_bounds__(32 * (CONSUMERS + 1), 1) wgmma_tile(const __grid_constant__ tpw_gemm_params p)
{
#ifdef TPW_HAS_WGMMA
    using S = tile_shape<E4M3>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int32_t slice = blockIdx.z, m0 = blockIdx.y * TPW_WGMMA_ROWS, strip0 = blockIdx.x * CONSUMERS;
    const int32_t strips = (p.n + TPW_STRIP - 1) / TPW_STRIP, total = p.cut.chunk_begin[p.cut.slices];
    const int32_t chunk0 = p.cut.chunk_begin[slice],
                  pieces = (p.cut.chunk_begin[slice + 1] - chunk0) / TPW_PIECE_CHUNKS;
    const uint32_t full = tpw_shared(memory + S::STAGES * S::STAGE_BYTES), empty = full + 8 * S::STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) {
            tpw_barrier_init(full + 8 * s);
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * s), "r"(32 * CONSUMERS)
                         : "memory");
        }
        tpw_barrier_fence();
    }
    __syncthreads();
    tpw_pdl_trigger();
    tpw_pdl_wait();

    if (warp == CONSUMERS) {
        if (lane != 0)
            return;
        const int32_t own = strips - strip0 < CONSUMERS ? strips - strip0 : CONSUMERS;
        for (int32_t piece = 0; piece < pieces; piece++) {
            const int slot = piece % S::STAGES, turn = piece / S::STAGES;
            unsigned char *stage = memory + slot * S::STAGE_BYTES;
            const int32_t begin = piece * TPW_PIECE_CHUNKS;
            if (turn > 0)
                tpw_barrier_wait(empty + 8 * slot, (turn - 1) & 1);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full + 8 * slot),
                         "r"(own * S::STRIP_BYTES + X_BYTES)
                         : "memory");
            for (int32_t i = 0; i < own; i++)
                tpw_bulk_part(tpw_shared(stage + i * S::STRIP_BYTES),
                              (const char *)p.w + ((int64_t)(strip0 + i) * total + chunk0 + begin) * S::CHUNK_BYTES,
                              S::STRIP_BYTES, full + 8 * slot);
            tpw_bulk_part(tpw_shared(stage + CONSUMERS * S::STRIP_BYTES),
                          (const char *)p.x + ((int64_t)blockIdx.y * total + chunk0 + begin) * 4 * TPW_WGMMA_UNIT,
                          X_BYTES, full + 8 * slot);
        }
        return;
    }

    float acc[TPW_WGMMA_ROWS / 2] = {};
    const int32_t row = (strip0 + warp) * TPW_STRIP + (lane >> 2);
    const tpw_lane_scales<E4M3> scales(p, row, slice);
    for (int32_t piece = 0; piece < pieces; piece++) {
        const int slot = piece % S::STAGES;
        const unsigned char *stage = memory + slot * S::STAGE_BYTES;
        const float low = scales.low(piece), high = scales.high(piece);
        float raw[TPW_WGMMA_ROWS / 2];
        uint32_t a[2][8]; // one chunk is widened while the one before is multiplied
#pragma unroll
        for (int i = 0; i < TPW_WGMMA_ROWS / 2; i++)
            raw[i] = 0.0f;
        tpw_barrier_wait(full + 8 * slot, piece / S::STAGES & 1);
        const uint32_t x = tpw_shared(stage + CONSUMERS * S::STRIP_BYTES);
#pragma unroll
        for (int c = 0; c < TPW_PIECE_CHUNKS; c++) {
            tpw_widen_chunk<E4M3>((const uint4 *)(stage + warp * S::STRIP_BYTES + c * S::CHUNK_BYTES) + lane, a[c & 1]);
            tpw_wgmma_fence();
            tpw_wgmma(raw, a[c & 1], tpw_wgmma_place(x + (4 * c) * TPW_WGMMA_UNIT));
            tpw_wgmma(raw, a[c & 1] + 4, tpw_wgmma_place(x + (4 * c + 2) * TPW_WGMMA_UNIT));
            tpw_wgmma_commit();
            if (c + 1 < TPW_PIECE_CHUNKS)
                tpw_wgmma_wait<1>();
        }
        tpw_wgmma_wait<0>();
        // every lane for itself: the barrier alone orders its reads before the copies of the next turn
        arrive(empty + 8 * slot);
#pragma unroll
        for (int j = 0; j < TPW_WGMMA_ROWS / 8; j++)
            tpw_fold_piece(acc + 4 * j, raw + 4 * j, low, high);
    }
#pragma unroll
    for (int j = 0; j < TPW_WGMMA_ROWS / 8; j++)
        tpw_store_tile(p, slice, m0 + 8 * j, row, acc + 4 * j);
#endif
}

template <bool E4M3> tpw_status launch(const tpw_exec *exec, tpw_gemm_params p, void *packed, tpw_error *err)
{
    const int32_t chunks = p.cut.chunk_begin[p.cut.slices];
    const dim3 grid((unsigned)((p.n + CONSUMERS * TPW_STRIP - 1) / (CONSUMERS * TPW_STRIP)),
                    (unsigned)((p.m + TPW_WGMMA_ROWS - 1) / TPW_WGMMA_ROWS), (unsigned)p.cut.slices);
    TPW_TRY(tpw_cuda_launch(exec, "gemm (layout of x)", err, pack_x_tiles<E4M3>,
                            dim3((unsigned)(chunks + 7) / 8, (unsigned)(p.m + 31) / 32), dim3(256), 0, 1, p,
                            (uint4 *)packed));
    p.x = packed;
    TPW_TRY(tpw_cuda_allow_shared(exec, (const void *)wgmma_tile<E4M3>, tile_shape<E4M3>::BYTES, err));
    return tpw_cuda_launch(exec, "gemm (warpgroups)", err, wgmma_tile<E4M3>, grid, dim3(32 * (CONSUMERS + 1)),
                           tile_shape<E4M3>::BYTES, 1, p);
}

} // namespace

extern "C" bool tpw_gemm_wgmma_fits(const tpw_gemm_cut *cut)
{
    return cut->slice_len % TPW_PIECE == 0 && cut->col0 % TPW_PIECE == 0;
}

extern "C" tpw_status tpw_gemm_wgmma(const tpw_exec *exec, const tpw_gemm_params &p, bool e4m3, void *packed,
                                     tpw_error *err)
{
    return e4m3 ? launch<true>(exec, p, packed, err) : launch<false>(exec, p, packed, err);
}
