// The work of a CTA of attention: blocks of K and V through a ring of stages, scores, weights, values, the fold of a split.
// Its arithmetic is laid down at the top of attention.cu. SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_ATTENTION_CTA_CUH
#define TPW_KERNELS_CUDA_ATTENTION_CTA_CUH

#include "kernels/cuda/attention.cuh"

namespace
{

constexpr int WARPS = 8, THREADS = WARPS * TPW_WARP;
constexpr int BLOCK_DIMS = 64, BLOCK_ROW = BLOCK_DIMS * 2, BLOCK_BYTES = TPW_SPLIT_KEYS * BLOCK_ROW;
constexpr int KEY_STEP = THREADS / 8; // eight threads copy the 128 bytes of a key
constexpr int KEYS_EACH = TPW_SPLIT_KEYS / KEY_STEP;
constexpr int P_ROW = TPW_SPLIT_KEYS * 2;
constexpr int STAGES_MIN = 2, STAGES_MAX = 6;
constexpr size_t CTA_RESERVED = 1024; // bytes of shared memory that a CTA costs besides its own

// Numbers of a row of the tile in shared memory.
struct row_sums {
    float m[WARPS];
    float l[WARPS];
    float M;
    float L; // at the end 1/L, unless it goes to the scratch
    float keep;
    float take;
    int32_t limit; // keys that the row sees
};

constexpr size_t fixed_bytes(int dim, int tile)
{
    return (size_t)tile * ((size_t)dim * 2 + P_ROW + sizeof(row_sums)) + 16;
}

// Byte of 16-byte unit u in row r of `row_bytes`: the rows of a block of eight lie in different banks.
__device__ __forceinline__ uint32_t unit_at(int r, int u, int row_bytes)
{
    return (uint32_t)(r * row_bytes + ((u ^ (r & 7)) << 4));
}

// The copies of a CTA: K and V blocks of split after split into a ring of stages.
struct feed {
    uint32_t ring; // shared memory
    int32_t stages;
    int32_t put;  // stage that is filled next
    int32_t take; // stage that is used next
    int32_t split;
    int32_t split_end;
    int32_t block; // of the split: 0 .. D/64 - 1 of K, then of V
    int32_t k_blocks;
    int32_t v_first;
    int32_t v_blocks;
    int32_t row[KEYS_EACH]; // of the caches [page][head][offset], or -1: zeros
};

// Finds this thread's keys of the split in their pages. A page that cannot be is noted: the tile's results become NaN.
__device__ __forceinline__ void find_keys(const tpw_attention_params &p, const tpw_attention_tile &w, feed &f,
                                          int32_t *bad)
{
#pragma unroll
    for (int j = 0; j < KEYS_EACH; j++) {
        const int32_t key = f.split * TPW_SPLIT_KEYS + (int32_t)threadIdx.x / 8 + j * KEY_STEP;
        f.row[j] = -1;
        if (key >= w.keys)
            continue;
        const int32_t page = w.pages[key >> p.page_shift];
        if (page >= 1 && page < p.pages)
            f.row[j] = (page * p.kv_heads + (int32_t)blockIdx.y) * p.page_size + (key & (p.page_size - 1));
        else
            *bad = 1;
    }
}

// Starts the next block's copies, if there is one; always ends a group, so that groups count stages.
__device__ __forceinline__ void fetch(const tpw_attention_params &p, const tpw_attention_tile &w, feed &f, int32_t *bad)
{
    if (f.split < f.split_end) {
        const bool value = f.block >= f.k_blocks;
        const int unit = (int)threadIdx.x % 8;
        const int32_t column = (value ? f.v_first + f.block - f.k_blocks : f.block) * BLOCK_DIMS + unit * 8;
        const uint32_t to = f.ring + (uint32_t)(f.put * BLOCK_BYTES);
        const uint16_t *from = value ? p.v : p.k;
        if (f.block == 0)
            find_keys(p, w, f, bad);
#pragma unroll
        for (int j = 0; j < KEYS_EACH; j++) {
            const int64_t at = f.row[j] < 0 ? 0 : (int64_t)f.row[j] * p.dim + column;
            tpw_copy16_or_zero(to + unit_at((int)threadIdx.x / 8 + j * KEY_STEP, unit, BLOCK_ROW), from + at,
                               f.row[j] >= 0);
        }
        f.put = f.put + 1 == f.stages ? 0 : f.put + 1;
        if (++f.block == f.k_blocks + f.v_blocks) {
            f.block = 0;
            f.split++;
        }
    }
    tpw_copy_commit();
}

// Waits for the next block and returns it; the stage of the block before, which all have used, is filled again.
__device__ __forceinline__ uint32_t next_block(const tpw_attention_params &p, const tpw_attention_tile &w, feed &f,
                                               int32_t *bad)
{
    switch (f.stages) {
    case 2:
        tpw_copy_wait<0>();
        break;
    case 3:
        tpw_copy_wait<1>();
        break;
    case 4:
        tpw_copy_wait<2>();
        break;
    case 5:
        tpw_copy_wait<3>();
        break;
    default:
        tpw_copy_wait<4>();
    }
    __syncthreads();
    fetch(p, w, f, bad);
    const uint32_t block = f.ring + (uint32_t)(f.take * BLOCK_BYTES);
    f.take = f.take + 1 == f.stages ? 0 : f.take + 1;
    return block;
}

// The queries of the tile, zeros after them, and what their rows see.
template <int D, int MT>
__device__ __forceinline__ void load_queries(const tpw_attention_params &p, const tpw_attention_tile &w,
                                             unsigned char *q, row_sums *rows)
{
    constexpr int UNITS = D / 8;
    for (int i = (int)threadIdx.x; i < 16 * MT * UNITS; i += THREADS) {
        const int r = i / UNITS, u = i % UNITS;
        uint4 word = make_uint4(0, 0, 0, 0);
        if (r < w.count) {
            const int32_t query = w.first + r, head = (int32_t)blockIdx.y * p.group + query % p.group;
            const uint16_t *from = p.q + (w.row0 + query / p.group) * p.q_stride + (int64_t)head * D + u * 8;
            if (p.q_wide)
                word = *(const uint4 *)from;
            else
                word = make_uint4(from[0] | (uint32_t)from[1] << 16, from[2] | (uint32_t)from[3] << 16,
                                  from[4] | (uint32_t)from[5] << 16, from[6] | (uint32_t)from[7] << 16);
        }
        *(uint4 *)(q + unit_at(r, u, D * 2)) = word;
    }
    for (int r = (int)threadIdx.x; r < 16 * MT; r += THREADS)
        rows[r].limit = r < w.count ? w.pos + (w.first + r) / p.group + 1 : 0;
}

// Adds 64 dims of the products of all queries and the warp's 32 keys: s[tile of 16 queries][8 keys].
template <int D, int MT, bool F16>
__device__ __forceinline__ void add_scores(float s[MT][4][4], uint32_t q, uint32_t keys, int block)
{
    const int lane = (int)(threadIdx.x % TPW_WARP), key0 = (int)(threadIdx.x / TPW_WARP) * 32;
#pragma unroll
    for (int step = 0; step < BLOCK_DIMS / 16; step++) {
        uint32_t b[2][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int key = key0 + half * 16 + lane / 16 * 8 + lane % 8;
            tpw_blocks4(b[half], keys + unit_at(key, step * 2 + lane / 8 % 2, BLOCK_ROW));
        }
#pragma unroll
        for (int m = 0; m < MT; m++) {
            uint32_t a[4];
            tpw_blocks4(a, q + unit_at(m * 16 + lane % 16, block * 8 + step * 2 + lane / 16, D * 2));
#pragma unroll
            for (int j = 0; j < 4; j++)
                tpw_act_mma<F16>(s[m][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

// Row of the tile whose numbers stand in s[..][..][2h] and [2h + 1] of this lane.
__device__ __forceinline__ int row_of(int m, int h)
{
    return m * 16 + h * 8 + (int)(threadIdx.x % TPW_WARP) / 4;
}

// Keys of the split that the row sees, counted from this lane's first one.
__device__ __forceinline__ int32_t keys_left(const row_sums *rows, int row, int32_t split)
{
    const int32_t first = (int32_t)(threadIdx.x / TPW_WARP * 32 + threadIdx.x % 4 * 2);
    return rows[row].limit - split * TPW_SPLIT_KEYS - first;
}

// Scales the scores; the largest of each row that counts goes to rows[].m of this warp.
template <int MT>
__device__ __forceinline__ void find_maxima(float s[MT][4][4], row_sums *rows, int32_t split, float root)
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int32_t left = keys_left(rows, row_of(m, h), split);
            float most = -INFINITY;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float &score = s[m][i / 2][2 * h + i % 2];
                score = score * root;
                most = i / 2 * 8 + i % 2 < left && score > most ? score : most;
            }
#pragma unroll
            for (int mask = 1; mask < 4; mask *= 2) {
                const float other = __shfl_xor_sync(TPW_ALL, most, mask);
                most = other > most ? other : most;
            }
            if (threadIdx.x % 4 == 0)
                rows[row_of(m, h)].m[threadIdx.x / TPW_WARP] = most;
        }
}

__device__ __forceinline__ float row_maximum(const row_sums &row)
{
    float most = row.m[0];
#pragma unroll
    for (int i = 1; i < WARPS; i++)
        most = row.m[i] > most ? row.m[i] : most;
    return most;
}

// p of every score: rounded to shared memory, the sum of the unrounded ones to rows[].l of this warp.
template <int MT, bool F16>
__device__ __forceinline__ void find_weights(const float s[MT][4][4], row_sums *rows, unsigned char *weights,
                                             int32_t split)
{
    const int warp = (int)(threadIdx.x / TPW_WARP), t = (int)(threadIdx.x % 4);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = row_of(m, h);
            const int32_t left = keys_left(rows, row, split);
            const float most = row_maximum(rows[row]);
            float l = 0.0f;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float pair[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const float weight = tpw_attention_exp(s[m][j][2 * h + e] - most);
                    pair[e] = j * 8 + e < left ? weight : 0.0f;
                    l += pair[e];
                }
                *(uint32_t *)(weights + unit_at(row, warp * 4 + j, P_ROW) + t * 4) =
                    tpw_act_pair<F16>(pair[0], pair[1]);
            }
            l += __shfl_xor_sync(TPW_ALL, l, 1);
            l += __shfl_xor_sync(TPW_ALL, l, 2);
            if (t == 0)
                rows[row].l[warp] = l;
        }
}

// m and l of the split into M and L of a row; a page that cannot be makes NaN of both.
__device__ __forceinline__ void join_row(row_sums *row, int32_t split, bool first, bool bad)
{
    if (row->limit <= split * TPW_SPLIT_KEYS) {
        row->keep = 1.0f, row->take = TPW_FOLD_SKIPPED;
        return;
    }
    const float low = (row->l[0] + row->l[1]) + (row->l[2] + row->l[3]);
    const float high = (row->l[4] + row->l[5]) + (row->l[6] + row->l[7]);
    tpw_attention_join(first, row_maximum(*row), bad ? NAN : low + high, &row->M, &row->L, &row->keep, &row->take);
}

// How the warps share the output of a tile: RW groups of 16 MW queries, each warp with NV times 8 columns of every block.
template <int MT> struct sharing {
    static constexpr int RW = MT > 1 ? 2 : 1, CW = WARPS / RW, NV = 8 / CW, MW = MT / RW;
};

// 32 keys of V, from `key` on, for this warp's columns: b[k16 step][tile of 8 columns][two words].
template <int NV> __device__ __forceinline__ void load_values(uint32_t b[2][NV][2], uint32_t values, int key, int unit)
{
    const int lane = (int)(threadIdx.x % TPW_WARP);
    uint32_t r[4];
    if constexpr (NV == 1) {
        tpw_blocks4_turned(r, values + unit_at(key + lane, unit, BLOCK_ROW));
        b[0][0][0] = r[0], b[0][0][1] = r[1], b[1][0][0] = r[2], b[1][0][1] = r[3];
    } else {
#pragma unroll
        for (int step = 0; step < 2; step++) {
            tpw_blocks4_turned(r, values + unit_at(key + step * 16 + lane % 16, unit + lane / 16, BLOCK_ROW));
            b[step][0][0] = r[0], b[step][0][1] = r[1], b[step][1][0] = r[2], b[step][1][1] = r[3];
        }
    }
}

// o of one 64-key sub-split for this warp's queries and columns.
template <int MW, int NV, bool F16>
__device__ __forceinline__ void sub_split(float o[MW][NV][4], uint32_t weights, uint32_t values, int row0, int unit,
                                          int sub)
{
    const int lane = (int)(threadIdx.x % TPW_WARP);
#pragma unroll
    for (int i = 0; i < MW * NV * 4; i++)
        o[i / 4 / NV][i / 4 % NV][i % 4] = 0.0f;
#pragma unroll
    for (int pair = 0; pair < TPW_SUBSPLIT_KEYS / 32; pair++) {
        uint32_t b[2][NV][2];
        load_values<NV>(b, values, sub * TPW_SUBSPLIT_KEYS + pair * 32, unit);
#pragma unroll
        for (int step = 0; step < 2; step++)
#pragma unroll
            for (int m = 0; m < MW; m++) {
                uint32_t a[4];
                tpw_blocks4(
                    a, weights + unit_at(row0 + m * 16 + lane % 16, sub * 8 + pair * 4 + step * 2 + lane / 16, P_ROW));
#pragma unroll
                for (int n = 0; n < NV; n++)
                    tpw_act_mma<F16>(o[m][n], a, b[step][n][0], b[step][n][1]);
            }
    }
}

// o of the whole split in a block of 64 columns, folded into O.
template <int MW, int NV, bool F16>
__device__ __forceinline__ void add_values(float O[MW][NV][4], uint32_t weights, uint32_t values, int row0, int unit,
                                           const row_sums *rows)
{
    float left[MW][NV][4], right[MW][NV][4], more[MW][NV][4];
    sub_split<MW, NV, F16>(left, weights, values, row0, unit, 0);
    sub_split<MW, NV, F16>(more, weights, values, row0, unit, 1);
#pragma unroll
    for (int i = 0; i < MW * NV * 4; i++)
        left[i / 4 / NV][i / 4 % NV][i % 4] += more[i / 4 / NV][i / 4 % NV][i % 4];
    sub_split<MW, NV, F16>(right, weights, values, row0, unit, 2);
    sub_split<MW, NV, F16>(more, weights, values, row0, unit, 3);
#pragma unroll
    for (int m = 0; m < MW; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const row_sums &row = rows[row0 + row_of(m, h)];
#pragma unroll
            for (int i = 0; i < NV * 2; i++) {
                const int n = i / 2, e = 2 * h + i % 2;
                const float o = left[m][n][e] + (right[m][n][e] + more[m][n][e]);
                O[m][n][e] = tpw_attention_fold(O[m][n][e], o, row.keep, row.take);
            }
        }
}

// Two neighbouring columns of a row: to the scratch, or as the result.
template <bool F16>
__device__ __forceinline__ void store_pair(const tpw_attention_params &p, const tpw_attention_tile &w,
                                           const row_sums *rows, int r, int column, int32_t split, const float *O)
{
    if (r >= w.count)
        return;
    const int32_t query = w.first + r, head = (int32_t)blockIdx.y * p.group + query % p.group;
    if (p.few) {
        const int64_t slot = (int64_t)(w.slot + r) * p.kv_heads + blockIdx.y;
        if (rows[r].limit > split * TPW_SPLIT_KEYS)
            *(float2 *)(p.partial + (slot * p.split_count + split - p.first_split) * p.dim + column) =
                make_float2(O[0], O[1]);
        return;
    }
    const int64_t row = w.row0 + query / p.group;
    const uint16_t *gate = p.qg + row * p.qg_stride + (2 * (int64_t)head + 1) * p.dim + column;
    uint16_t *out = p.out + row * p.out_stride + (int64_t)head * p.dim + column;
    out[0] = tpw_attention_out(F16, O[0], rows[r].L, gate[0]);
    out[1] = tpw_attention_out(F16, O[1], rows[r].L, gate[1]);
}

// m and l of a split, by the CTA that has its first columns.
__device__ __forceinline__ void store_sums(const tpw_attention_params &p, const tpw_attention_tile &w,
                                           const row_sums *rows, int tile, int32_t split)
{
    for (int r = (int)threadIdx.x; r < tile && r < w.count; r += THREADS)
        if (rows[r].limit > split * TPW_SPLIT_KEYS) {
            const int64_t slot = (int64_t)(w.slot + r) * p.kv_heads + blockIdx.y;
            *(float2 *)(p.sums + (slot * p.split_count + split - p.first_split) * 2) =
                make_float2(rows[r].M, rows[r].L);
        }
}

} // namespace

#endif
