// What the kernels of attention share: parameters, which queries a CTA takes, the exponential and the fold.
//
// The queries of a segment and KV head are numbered row by row, the heads of the group side by side; 16 of them are the rows
// of a matrix instruction. SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_ATTENTION_CUH
#define TPW_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/attention_math.cuh"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/rows.cuh"

#define TPW_FEW_ROWS 16 // segments of so many rows have their splits done in parallel, longer ones walk through them

struct tpw_attention_params {
    const tpw_segment *segments;
    int32_t segment_count;
    const uint16_t *q;
    int64_t q_stride;
    const uint16_t *qg;
    int64_t qg_stride;
    uint16_t *out;
    int64_t out_stride;
    const uint16_t *k;
    const uint16_t *v;
    int32_t pages;
    int32_t page_size;
    int32_t page_shift;
    int32_t kv_heads;
    int32_t group; // query heads of a KV head
    int32_t dim;
    float root;     // 1/sqrt(D)
    bool q_wide;    // 16-byte loads of q are possible
    bool f16;       // the activations; else BF16
    bool few;       // the class of segments: few rows, or more
    int32_t tiles;  // at most so many in the class
    int32_t stages; // of the pipeline
    // splits in parallel: first_split .. first_split + split_count - 1 in this pass
    int32_t first_split;
    int32_t split_count;
    int32_t parts;  // CTAs that share the columns of a split's V
    float *partial; // [slots][split_count][D]
    float *sums;    // [slots][split_count][2]: m and l
    float *state;   // [slots][D + 2]: O, M and L between passes; NULL when there is one pass
};

// Neighbouring queries of a segment.
struct tpw_attention_tile {
    const int32_t *pages;
    int32_t row0;  // first row of the segment in the step
    int32_t pos;   // its position
    int32_t first; // first query of the tile
    int32_t count; // of them
    int32_t slot;  // the first query's number among all of the class
    int32_t keys;  // those that the last row sees
};

// Adds up over the lanes before and including this one.
static __device__ __forceinline__ int32_t tpw_running_sum(int32_t x, int lane)
{
#pragma unroll
    for (int step = 1; step < TPW_WARP; step *= 2) {
        const int32_t below = __shfl_up_sync(TPW_ALL, x, step);
        x += lane >= step ? below : 0;
    }
    return x;
}

// Tile `index` of the class when the queries of each segment are cut into tiles of `size`. All lanes of a warp call it with the
// same arguments. False: there are not so many.
static __device__ __forceinline__ bool tpw_attention_find(const tpw_attention_params &p, int32_t index, int32_t size,
                                                          tpw_attention_tile *out)
{
    const int lane = (int)(threadIdx.x % TPW_WARP);
    int32_t before = 0; // queries of the class in earlier segments
    for (int32_t base = 0; base < p.segment_count; base += TPW_WARP) {
        const int32_t rows = base + lane < p.segment_count ? p.segments[base + lane].rows : 0;
        const int32_t queries = rows > 0 && (rows <= TPW_FEW_ROWS) == p.few ? rows * p.group : 0;
        const int32_t tiles = (queries + size - 1) / size;
        const int32_t tiles_to = tpw_running_sum(tiles, lane), queries_to = tpw_running_sum(queries, lane);
        const int32_t tiles_all = __shfl_sync(TPW_ALL, tiles_to, TPW_WARP - 1);
        if (index >= tiles_all) {
            index -= tiles_all;
            before += __shfl_sync(TPW_ALL, queries_to, TPW_WARP - 1);
            continue;
        }
        const int owner = __ffs((int)__ballot_sync(TPW_ALL, tiles_to > index)) - 1;
        const int32_t mine = __shfl_sync(TPW_ALL, queries, owner);
        const tpw_segment &s = p.segments[base + owner];
        out->pages = s.pages, out->row0 = s.row0, out->pos = (int32_t)s.pos;
        out->first = (index - __shfl_sync(TPW_ALL, tiles_to - tiles, owner)) * size;
        out->count = mine - out->first < size ? mine - out->first : size;
        out->slot = before + __shfl_sync(TPW_ALL, queries_to - queries, owner) + out->first;
        out->keys = out->pos + (out->first + out->count - 1) / p.group + 1;
        return true;
    }
    return false;
}

// e^x, exactly 1 at +-0: x * log2(e) rounded once, then 2^ of it. Relative error below |x| 2^-24 + 2^-22.
static __device__ __forceinline__ float tpw_attention_exp(float x)
{
    return tpw_exp2_unit(x * 1.44269504088896341f);
}

// How a split enters a row: O = fma(O, keep, o * take). Before the first split keep is FIRST: O = o. take is SKIPPED for a
// split without a key of the row: O stays as it is.
#define TPW_FOLD_FIRST   -1.0f
#define TPW_FOLD_SKIPPED -1.0f

static __device__ __forceinline__ float tpw_attention_fold(float O, float o, float keep, float take)
{
    const float joined = fmaf(O, keep, o * take);
    return take < 0.0f ? O : keep < 0.0f ? o : joined;
}

// Takes a split's m and l into M and L and gives the factors of the fold.
static __device__ __forceinline__ void tpw_attention_join(bool first, float m, float l, float *M, float *L, float *keep,
                                                          float *take)
{
    if (first) {
        *M = m, *L = l;
        *keep = TPW_FOLD_FIRST, *take = 1.0f;
        return;
    }
    const float top = m > *M ? m : *M;
    *keep = tpw_attention_exp(*M - top);
    *take = tpw_attention_exp(m - top);
    *L = fmaf(*L, *keep, l * *take);
    *M = top;
}

// The result of a row's element: one division a row, the gate, one rounding.
static __device__ __forceinline__ uint16_t tpw_attention_out(bool f16, float O, float inverse, uint16_t gate)
{
    const float wide = f16 ? tpw_f32_from_bits(tpw_bits_from_f16(gate)) : tpw_bf16_to_f32(gate);
    const float sigmoid = 1.0f / (1.0f + tpw_attention_exp(-wide)), y = O * inverse * sigmoid;
    return f16 ? (uint16_t)tpw_f16_from_bits(tpw_f32_bits(y)) : tpw_bf16_from_f32(y);
}

#endif
