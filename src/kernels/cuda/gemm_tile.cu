// The gemm of many rows: tiles of 128 weight rows by 64 or 128 rows of x, one piece of the K axis a pipeline stage.
//
// x was laid out before (pack_x): pieces padded to whole chunks, E4M3's 2^60 applied, rows aligned. Each slice is its own
// tile. The sums are those of the other gemm kernels: a chain of k16 steps a piece, pieces joined in order.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm_params.cuh"

namespace
{

constexpr int WARPS = 8;
constexpr int STRIPS = 8;  // weight rows of a tile / 16
constexpr int X_ROW = 256; // bytes of a piece of one row of x

// Byte of unit u (16 bytes) in row r of x: odd rows swap neighbouring chunks, so that two rows cover all banks.
__device__ __forceinline__ int x_at(int r, int u)
{
    return r * X_ROW + ((u ^ ((r & 1) << 2)) << 4);
}

template <bool E4M3, int NT, int STAGES>
__global__ void __launch_bounds__(32 * WARPS, 1) tile(const __grid_constant__ tpw_gemm_params p)
{
    extern __shared__ __align__(128) unsigned char memory[];
    constexpr int WORDS = E4M3 ? 32 : 64, CHUNK_BYTES = WORDS * 16, STRIP_BYTES = TPW_PIECE_CHUNKS * CHUNK_BYTES;
    constexpr int ROWS = 2 * NT * 8, W_BYTES = STRIPS * STRIP_BYTES, STAGE_BYTES = W_BYTES + ROWS * X_ROW;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int wr = warp & 3, wc = warp >> 2;
    const int32_t slice = blockIdx.z, m0 = blockIdx.y * ROWS, strip0 = blockIdx.x * STRIPS;
    const int32_t strips = (p.n + TPW_STRIP - 1) / TPW_STRIP, total = p.cut.chunk_begin[p.cut.slices];
    const int32_t first = tpw_cut_first(&p.cut, slice), pieces = tpw_cut_pieces(&p.cut, slice);
    const int32_t chunk0 = p.cut.chunk_begin[slice], chunks = p.cut.chunk_begin[slice + 1] - chunk0;
    auto chunk_of = [&](int32_t piece) { return piece < pieces ? tpw_cut_piece_chunk(first, piece) : chunks; };
    auto fetch = [&](int32_t piece) {
        if (piece < pieces) {
            unsigned char *stage = memory + (piece % STAGES) * STAGE_BYTES;
            const int32_t begin = chunk_of(piece), n = chunk_of(piece + 1) - begin;
            for (int32_t i = threadIdx.x; i < STRIPS * n * WORDS; i += 32 * WARPS) {
                const int32_t strip = i / (n * WORDS), word = i % (n * WORDS);
                if (strip0 + strip < strips)
                    tpw_copy16(tpw_shared(stage + strip * STRIP_BYTES + word * 16),
                               p.w + ((int64_t)(strip0 + strip) * total + chunk0 + begin) * WORDS + word);
            }
            for (int32_t i = threadIdx.x; i < ROWS * n * 4; i += 32 * WARPS) {
                const int32_t row = i / (n * 4), u = i % (n * 4);
                if (m0 + row < p.m)
                    tpw_copy16(tpw_shared(stage + W_BYTES + x_at(row, u)),
                               (const uint4 *)p.x + ((int64_t)(m0 + row) * total + chunk0 + begin) * 4 + u);
            }
        }
        tpw_copy_commit();
    };

    tpw_pdl_trigger();
    tpw_pdl_wait();
    for (int s = 0; s < STAGES - 1; s++)
        fetch(s);
    float acc[2][NT][4] = {};
    const tpw_lane_scales<E4M3> scales[2] = {{p, (strip0 + wr * 2) * TPW_STRIP + g, slice},
                                             {p, (strip0 + wr * 2 + 1) * TPW_STRIP + g, slice}};
    for (int32_t piece = 0; piece < pieces; piece++) {
        tpw_copy_wait<STAGES - 2>();
        __syncthreads(); // the stage is there for all, and the one before has been read by all
        fetch(piece + STAGES - 1);
        const unsigned char *stage = memory + (piece % STAGES) * STAGE_BYTES;
        const int32_t n_chunks = chunk_of(piece + 1) - chunk_of(piece);
        float raw[2][NT][4] = {};
        for (int32_t c = 0; c < n_chunks; c++) {
            uint32_t a[2][8];
#pragma unroll
            for (int i = 0; i < 2; i++)
                tpw_widen_chunk<E4M3>((const uint4 *)(stage + (wr * 2 + i) * STRIP_BYTES + c * CHUNK_BYTES) + lane,
                                      a[i]);
            uint4 b[NT]; // all first, so that neighbouring instructions belong to different chains
#pragma unroll
            for (int n = 0; n < NT; n++)
                b[n] = *(const uint4 *)(stage + W_BYTES + x_at(wc * NT * 8 + n * 8 + g, c * 4 + t));
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    tpw_mma(raw[i][n], a[i], b[n].x, b[n].y);
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    tpw_mma(raw[i][n], a[i] + 4, b[n].z, b[n].w);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float low = scales[i].low(piece), high = scales[i].high(piece);
#pragma unroll
            for (int n = 0; n < NT; n++)
                tpw_fold_piece(acc[i][n], raw[i][n], low, high);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int n = 0; n < NT; n++)
            tpw_store_tile(p, slice, m0 + wc * NT * 8 + n * 8, (strip0 + wr * 2 + i) * TPW_STRIP + g, acc[i][n]);
}

template <bool E4M3, int NT, int STAGES>
tpw_status launch(const tpw_exec *exec, const tpw_gemm_params &p, tpw_error *err)
{
    constexpr size_t BYTES = (size_t)STAGES * (STRIPS * TPW_PIECE_CHUNKS * (E4M3 ? 512 : 1024) + 2 * NT * 8 * X_ROW);
    void (*kernel)(tpw_gemm_params) = tile<E4M3, NT, STAGES>;
    const dim3 grid((unsigned)((p.n + STRIPS * TPW_STRIP - 1) / (STRIPS * TPW_STRIP)),
                    (unsigned)((p.m + 2 * NT * 8 - 1) / (2 * NT * 8)), (unsigned)p.cut.slices);
    TPW_TRY(tpw_cuda_allow_shared(exec, (const void *)kernel, BYTES, err));
    return tpw_cuda_launch(exec, "gemm (many rows)", err, kernel, grid, dim3(32 * WARPS), BYTES, 1, p);
}

template <bool E4M3> tpw_status launch_size(const tpw_exec *exec, const tpw_gemm_params &p, bool deep, tpw_error *err)
{
    if (p.m <= 64)
        return deep ? launch<E4M3, 4, 3>(exec, p, err) : launch<E4M3, 4, 2>(exec, p, err);
    return deep ? launch<E4M3, 8, 3>(exec, p, err) : launch<E4M3, 8, 2>(exec, p, err);
}

} // namespace

extern "C" tpw_status tpw_gemm_tile(const tpw_exec *exec, const tpw_gemm_params &p, bool e4m3, tpw_error *err)
{
    const bool deep = tpw_cuda_of(exec)->shared_bytes >= 200 * 1024;
    return e4m3 ? launch_size<true>(exec, p, deep, err) : launch_size<false>(exec, p, deep, err);
}
