// Sum over any axes by the tree of the vector, in one kernel for short sums and two for long ones.
//
// A warp adds a piece of 256 terms; pieces are added in order. How outputs and pieces are spread over warps, and how much
// scratch there is, changes no bit. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/views.cuh"

extern "C" {
#include "kernels/tree.h"
}

namespace
{

enum { THREADS = 256, WARPS = THREADS / TPW_WARP, WAVES = 32 };

struct sum_params {
    tpw_views<2> kept; // x without the summed axes, y
    tpw_views<1> summed;
    tpw_dtype from;
    tpw_dtype to;
    int64_t out0; // of this launch
    int64_t outs;
    int64_t piece0;
    int64_t pieces; // of an output, in this launch
    float *total;   // [outs]: what the pieces before piece0 came to
    float *part;    // [outs, pieces]
    bool ends;      // no pieces follow
};

__device__ __forceinline__ float term(const sum_params &p, int64_t base, int64_t t)
{
    int64_t at[1];
    tpw_views_at(p.summed, t, at);
    const uint32_t raw = (uint32_t)tpw_raw_load(p.summed.data[0], base + at[0], p.from == TPW_F32 ? 4 : 2);
    return tpw_f32_from_bits(tpw_bits_of(p.from, raw));
}

// Terms t .. t + 8 of the summed axes, those that there are, in order from +0.
__device__ __forceinline__ float run_of(const sum_params &p, int64_t base, int64_t t)
{
    const int64_t left = p.summed.count - t;
    float sum = 0.0f;
    if (left >= TPW_TREE_RUN && p.summed.dims == 1 && p.summed.stride[0][0] == 1 && p.from != TPW_F16) {
        const bool bf16 = p.from == TPW_BF16;
        const char *from = p.summed.data[0] + (base + t) * (bf16 ? 2 : 4);
        float v[8];
        tpw_row_load8(from, bf16, 0, 8, (uintptr_t)from % 16 == 0, v);
#pragma unroll
        for (int i = 0; i < TPW_TREE_RUN; i++)
            sum += v[i];
        return sum;
    }
    const int32_t n = left < TPW_TREE_RUN ? (int32_t)left : TPW_TREE_RUN;
    for (int32_t i = 0; i < n; i++)
        sum += term(p, base, t + i);
    return sum;
}

__device__ __forceinline__ void store(const sum_params &p, int64_t out, float total)
{
    int64_t at[2];
    tpw_views_at(p.kept, out, at);
    tpw_raw_store(p.kept.data[1], at[1], p.to == TPW_F32 ? 4 : 2, tpw_raw_from_bits(p.to, tpw_f32_bits(total)));
}

// At most eight terms: they are those of lane 0, and the other lanes' +0 changes nothing. One thread an output.
__global__ void __launch_bounds__(THREADS) sum_short(const __grid_constant__ sum_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    for (int64_t o = blockIdx.x * (int64_t)THREADS + threadIdx.x; o < p.outs; o += (int64_t)gridDim.x * THREADS) {
        int64_t at[2];
        tpw_views_at(p.kept, o, at);
        store(p, o, 0.0f + run_of(p, at[0], 0));
    }
}

// One warp a piece. Outputs of one piece are finished here.
__global__ void __launch_bounds__(THREADS) sum_pieces(const __grid_constant__ sum_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t items = p.outs * p.pieces, lane = threadIdx.x % TPW_WARP;
    for (int64_t i = blockIdx.x * (int64_t)WARPS + threadIdx.x / TPW_WARP; i < items; i += (int64_t)gridDim.x * WARPS) {
        const int64_t o = p.out0 + i / p.pieces, piece = p.piece0 + i % p.pieces;
        int64_t at[2];
        tpw_views_at(p.kept, o, at);
        float sum = run_of(p, at[0], piece * TPW_TREE_PIECE + lane * TPW_TREE_RUN);
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2)
            sum += __shfl_xor_sync(TPW_ALL, sum, mask);
        if (lane != 0)
            continue;
        if (p.part == NULL)
            store(p, o, 0.0f + sum);
        else
            p.part[i] = sum;
    }
}

// One warp an output: adds its pieces in order, 32 of them read at a time.
__global__ void __launch_bounds__(THREADS) sum_join(const __grid_constant__ sum_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t lane = threadIdx.x % TPW_WARP;
    for (int64_t o = blockIdx.x * (int64_t)WARPS + threadIdx.x / TPW_WARP; o < p.outs;
         o += (int64_t)gridDim.x * WARPS) {
        float total = p.piece0 == 0 ? 0.0f : p.total[o];
        for (int64_t piece = 0; piece < p.pieces; piece += TPW_WARP) {
            const float mine = piece + lane < p.pieces ? p.part[o * p.pieces + piece + lane] : 0.0f;
            const int n = p.pieces - piece < TPW_WARP ? (int)(p.pieces - piece) : TPW_WARP;
            for (int l = 0; l < n; l++)
                total += __shfl_sync(TPW_ALL, mine, l);
        }
        if (lane == 0 && p.ends)
            store(p, p.out0 + o, total);
        else if (lane == 0)
            p.total[o] = total;
    }
}

// Long sums: as many outputs, and as many pieces of them, as scratch holds at a time.
tpw_status sum_long(const tpw_exec *exec, sum_params p, int64_t outs, int64_t pieces, tpw_error *err)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    const int64_t room = (int64_t)(cuda->scratch_bytes / sizeof(float));
    if (room < 2)
        return tpw_fail(err, TPW_ERR_LIMIT, "cuda sum: scratch of %zu bytes is too small", cuda->scratch_bytes);
    const int64_t most = pieces < room - 1 ? pieces : room - 1; // pieces at a time
    const int64_t fit = room / (most + 1), block = outs < fit ? outs : fit;
    p.total = (float *)cuda->scratch;
    p.part = p.total + block;
    for (p.out0 = 0; p.out0 < outs; p.out0 += block) {
        p.outs = outs - p.out0 < block ? outs - p.out0 : block;
        for (p.piece0 = 0; p.piece0 < pieces; p.piece0 += most) {
            p.pieces = pieces - p.piece0 < most ? pieces - p.piece0 : most;
            p.ends = p.piece0 + p.pieces == pieces;
            TPW_TRY(tpw_cuda_launch(exec, "sum", err, sum_pieces,
                                    dim3(tpw_blocks(exec, p.outs * p.pieces, WARPS, WAVES)), dim3(THREADS), 0, 1, p));
            TPW_TRY(tpw_cuda_launch(exec, "sum (join)", err, sum_join, dim3(tpw_blocks(exec, p.outs, WARPS, WAVES)),
                                    dim3(THREADS), 0, 1, p));
        }
    }
    return TPW_OK;
}

} // namespace

extern "C" tpw_status tpw_cuda_sum(const tpw_exec *exec, const tpw_sum_args *args, tpw_error *err)
{
    tpw_array kept, out, summed;
    TPW_TRY(tpw_sum_split("cuda sum", args, &kept, &out, &summed, err));
    TPW_TRY(tpw_array_aligned("cuda sum", "x", &args->x, err));
    TPW_TRY(tpw_array_aligned("cuda sum", "y", &args->y, err));
    sum_params p = {};
    p.kept = tpw_views_of<2>({&kept, &out});
    p.summed = tpw_views_of<1>({&summed});
    p.from = args->x.dtype, p.to = args->y.dtype;
    const int64_t outs = p.kept.count, terms = p.summed.count;
    const int64_t pieces = (terms + TPW_TREE_PIECE - 1) / TPW_TREE_PIECE;
    p.outs = outs, p.pieces = pieces;
    if (terms <= TPW_TREE_RUN)
        return tpw_cuda_launch(exec, "sum", err, sum_short, dim3(tpw_blocks(exec, outs, THREADS, WAVES)), dim3(THREADS),
                               0, 1, p);
    if (pieces == 1)
        return tpw_cuda_launch(exec, "sum", err, sum_pieces, dim3(tpw_blocks(exec, outs, WARPS, WAVES)), dim3(THREADS),
                               0, 1, p);
    return sum_long(exec, p, outs, pieces, err);
}
