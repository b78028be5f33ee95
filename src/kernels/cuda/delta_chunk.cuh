// A chunk of the gated delta rule for some columns of one head, in shared memory: the arithmetic of ops.h and nothing
// else.
//
// S^T x is a chain over dk for each row and column; a CTA runs many such chains at a time, in tiles of registers. All
// else is by column, or small. How rows, columns and tiles are shared out among threads changes no bit, since every
// sum has one order. SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_DELTA_CHUNK_CUH
#define TPW_KERNELS_CUDA_DELTA_CHUNK_CUH

#include "kernels/cuda/gemm_math.cuh"
#include "kernels/cuda/rows.cuh"

#define TPW_DELTA_THREADS 128
#define TPW_DELTA_WARPS   (TPW_DELTA_THREADS / TPW_WARP)
#define TPW_DELTA_DOTS    (2 * TPW_GRID) // of a row in memory: 16 of k_i.k_j, then 16 of q_i.k_j
#define TPW_DELTA_DOT_ROW 36             // of a row in shared memory; the padding keeps readers of a column apart
#define TPW_DELTA_E_ROW   20             // 16 of E_j, then P

// Rows i0 .. i1 - 1 of the chunk at position `base`. All are of one segment.
struct tpw_delta_piece {
    int64_t base;
    int64_t row; // of chunk row i0, in the step
    int32_t i0;
    int32_t i1;
};

// What a piece needs of memory, staged; there may be two of these, one filled while the other is used.
struct tpw_delta_stage {
    float *k;     // [16][row]: all rows of the chunk up to i1
    float *q;     // [16][row]: rows i0 .. i1
    void *v;      // [16][CB], act: rows i0 .. i1
    float *dots;  // [16][TPW_DELTA_DOT_ROW]: rows i0 .. i1
    float *decay; // [16]: rows up to i1
    float *beta;  // [16]: rows i0 .. i1
};

// Shared memory of a CTA that does CB columns.
template <int CB> struct tpw_delta_shared {
    int32_t dk;
    int32_t row; // floats from one row of k or q to the next; a multiple of 4 that spreads rows over the banks
    float *S;    // [dk rounded up to 4][CB]
    float *sums; // [32][CB]: S^T k of the piece's rows, then S^T q
    float *U;    // [16][CB]
    float *E;    // [16][TPW_DELTA_E_ROW]: the products as row i uses them
    float *A;    // [16][16]: E_j * (k_i.k_j) at [j][i]
    float *C;    // [16][16]: E_j * (q_i.k_j) at [i][j]
    float *stages;

    static __host__ __device__ int32_t round4(int32_t n)
    {
        return (n + 3) / 4 * 4;
    }
    static __host__ __device__ int32_t row_floats(int32_t dk)
    {
        return round4(dk) + 4;
    }
    static __host__ __device__ int32_t stage_floats(int32_t dk)
    {
        return 2 * TPW_GRID * row_floats(dk) + TPW_GRID * (CB + TPW_DELTA_DOT_ROW + 2);
    }
    static __host__ __device__ int32_t fixed_floats(int32_t dk)
    {
        return CB * (round4(dk) + 3 * TPW_GRID) + TPW_GRID * (TPW_DELTA_E_ROW + 2 * TPW_GRID);
    }

    __device__ tpw_delta_shared(float *memory, int32_t keys) : dk(keys), row(row_floats(keys))
    {
        S = memory;
        sums = S + CB * round4(dk);
        U = sums + 2 * TPW_GRID * CB;
        E = U + TPW_GRID * CB;
        A = E + TPW_GRID * TPW_DELTA_E_ROW;
        C = A + TPW_GRID * TPW_GRID;
        stages = C + TPW_GRID * TPW_GRID;
    }
    __device__ tpw_delta_stage stage(int32_t i) const
    {
        tpw_delta_stage s;
        s.k = stages + i * stage_floats(dk);
        s.q = s.k + TPW_GRID * row;
        s.v = s.q + TPW_GRID * row;
        s.dots = s.q + TPW_GRID * row + TPW_GRID * CB;
        s.decay = s.dots + TPW_GRID * TPW_DELTA_DOT_ROW;
        s.beta = s.decay + TPW_GRID;
        return s;
    }
};

// Four bytes to shared memory, in the groups of tpw_copy16.
static __device__ __forceinline__ void tpw_copy4(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ int tpw_delta_warp()
{
    return (int)threadIdx.x / TPW_WARP;
}

static __device__ __forceinline__ int tpw_delta_lane()
{
    return (int)threadIdx.x % TPW_WARP;
}

// The 16 lanes of a dot, joined l+8, l+4, l+2, l+1; all lanes of the warp take part, each half on its own.
static __device__ __forceinline__ float tpw_delta_join(float lane)
{
#pragma unroll
    for (int half = 8; half > 0; half /= 2)
        lane += __shfl_xor_sync(TPW_ALL, lane, half);
    return lane;
}

// The running products as each row uses them: lane j < 16 those of E_j, lane 16 those of P. Warp 0 calls.
static __device__ __forceinline__ void tpw_delta_products(float *E, const float *decay, int32_t i1)
{
    const int lane = tpw_delta_lane(), from = lane == TPW_GRID ? -1 : lane;
    float product = 1.0f;
    if (lane > TPW_GRID)
        return;
#pragma unroll
    for (int i = 0; i < TPW_GRID; i++) {
        if (i >= i1)
            break;
        if (i > from)
            product *= decay[i];
        E[i * TPW_DELTA_E_ROW + lane] = product;
    }
}

// k_i.k_j and q_i.k_j for the piece's rows, by the threads from `first` (a multiple of 32) on; half a warp makes a
// pair.
template <int CB>
static __device__ __forceinline__ void tpw_delta_make_dots(const tpw_delta_shared<CB> &m, const tpw_delta_stage &s,
                                                           const tpw_delta_piece &p, int first)
{
    const int groups = (TPW_DELTA_THREADS - first) / 16, l = (int)threadIdx.x % 16;
    const int pairs = (p.i1 - p.i0) * TPW_GRID;
    if ((int)threadIdx.x < first)
        return;
    for (int begin = 0; begin < pairs; begin += groups) {
        const int pair = begin + ((int)threadIdx.x - first) / 16, i = p.i0 + pair / TPW_GRID, j = pair % TPW_GRID;
        const bool real = pair < pairs && j <= i;
        const float *ki = s.k + (real ? i : 0) * m.row, *qi = s.q + (real ? i : 0) * m.row;
        const float *kj = s.k + (real ? j : 0) * m.row;
        float kk = 0.0f, qk = 0.0f;
        for (int c = l; real && c - l < m.dk; c += 16) {
            const bool in = c < m.dk; // the last lanes add zeros
            const float other = in ? kj[c] : 0.0f;
            kk = fmaf(in ? ki[c] : 0.0f, other, kk);
            qk = fmaf(in ? qi[c] : 0.0f, other, qk);
        }
        kk = tpw_delta_join(kk);
        qk = tpw_delta_join(qk);
        if (real && l == 0) {
            s.dots[i * TPW_DELTA_DOT_ROW + j] = kk;
            s.dots[i * TPW_DELTA_DOT_ROW + TPW_GRID + j] = qk;
        }
    }
}

// S^T k and S^T q of the piece's rows: a thread makes tiles of TR rows by TC columns, every sum from +0 in the order
// of dk.
template <int CB, int TR, int TC>
static __device__ __forceinline__ void tpw_delta_predict(const tpw_delta_shared<CB> &m, const tpw_delta_stage &s,
                                                         const tpw_delta_piece &p)
{
    constexpr int LANES = CB / TC, GROUPS = TPW_DELTA_THREADS / LANES;
    const int n = p.i1 - p.i0, c = (int)threadIdx.x % LANES * TC;
    const float *S = m.S + c;
    for (int y0 = (int)threadIdx.x / LANES * TR; y0 < 2 * n; y0 += GROUPS * TR) {
        const float *x[TR];
        float sum[TR][TC] = {};
#pragma unroll
        for (int t = 0; t < TR; t++) {
            const int y = y0 + t < 2 * n ? y0 + t : 2 * n - 1;
            x[t] = y < n ? s.k + (p.i0 + y) * m.row : s.q + (p.i0 + y - n) * m.row;
        }
        int r = 0;
#pragma unroll 4
        for (; r + 4 <= m.dk; r += 4) {
            float xr[TR][4], sr[4][TC];
#pragma unroll
            for (int t = 0; t < TR; t++) {
                const float4 w = *(const float4 *)(x[t] + r);
                xr[t][0] = w.x, xr[t][1] = w.y, xr[t][2] = w.z, xr[t][3] = w.w;
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (TC == 2) {
                    const float2 w = *(const float2 *)(S + (r + e) * CB);
                    sr[e][0] = w.x, sr[e][TC - 1] = w.y;
                } else {
                    sr[e][0] = S[(r + e) * CB];
                }
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int t = 0; t < TR; t++)
#pragma unroll
                    for (int d = 0; d < TC; d++)
                        sum[t][d] = fmaf(xr[t][e], sr[e][d], sum[t][d]);
        }
        for (; r < m.dk; r++)
#pragma unroll
            for (int t = 0; t < TR; t++)
#pragma unroll
                for (int d = 0; d < TC; d++)
                    sum[t][d] = fmaf(x[t][r], S[r * CB + d], sum[t][d]);
#pragma unroll
        for (int t = 0; t < TR; t++)
#pragma unroll
            for (int d = 0; d < TC; d++)
                if (y0 + t < 2 * n)
                    m.sums[(y0 + t) * CB + c + d] = sum[t][d];
    }
}

// The tile by the number of rows: small ones for few, so that all threads have a chain.
template <int CB>
static __device__ __forceinline__ void tpw_delta_predict_rows(const tpw_delta_shared<CB> &m, const tpw_delta_stage &s,
                                                              const tpw_delta_piece &p)
{
    constexpr int EACH = TPW_DELTA_THREADS / CB; // rows of one pass of 1 x 1 tiles
    const int y = 2 * (p.i1 - p.i0);
    if (y <= EACH)
        tpw_delta_predict<CB, 1, 1>(m, s, p);
    else if (y <= 2 * EACH)
        tpw_delta_predict<CB, 2, 1>(m, s, p);
    else if (CB == 32 && y > 4 * EACH)
        tpw_delta_predict<CB, 4, 2>(m, s, p);
    else
        tpw_delta_predict<CB, 2, 2>(m, s, p);
}

// E_j * (k_i.k_j). Warp 0 calls; needs E.
template <int CB>
static __device__ __forceinline__ void tpw_delta_weigh_k(const tpw_delta_shared<CB> &m, const tpw_delta_stage &s,
                                                         const tpw_delta_piece &p)
{
    for (int at = tpw_delta_lane(); at < TPW_GRID * TPW_GRID; at += TPW_WARP) {
        const int j = at / TPW_GRID, i = at % TPW_GRID;
        if (i >= p.i0 && i < p.i1 && j < i)
            m.A[at] = m.E[i * TPW_DELTA_E_ROW + j] * s.dots[i * TPW_DELTA_DOT_ROW + j];
    }
}

// E_j * (q_i.k_j). The warps after warp 0 call.
template <int CB>
static __device__ __forceinline__ void tpw_delta_weigh_q(const tpw_delta_shared<CB> &m, const tpw_delta_stage &s,
                                                         const tpw_delta_piece &p)
{
    for (int at = (int)threadIdx.x - TPW_WARP; at < TPW_GRID * TPW_GRID; at += TPW_DELTA_THREADS - TPW_WARP) {
        const int i = at / TPW_GRID, j = at % TPW_GRID;
        if (i >= p.i0 && i < p.i1 && j <= i)
            m.C[at] = m.E[i * TPW_DELTA_E_ROW + j] * s.dots[i * TPW_DELTA_DOT_ROW + TPW_GRID + j];
    }
}

// u of a whole chunk, one column a thread: when u_j is known all later rows take it, which keeps the order of j in
// each.
template <int CB>
static __device__ __forceinline__ void tpw_delta_solve_whole(const tpw_delta_shared<CB> &m, const tpw_delta_stage &s,
                                                             bool v_bf16, int c)
{
    float sum[TPW_GRID];
#pragma unroll
    for (int i = 0; i < TPW_GRID; i++)
        sum[i] = m.E[i * TPW_DELTA_E_ROW + TPW_GRID] * m.sums[i * CB + c];
#pragma unroll
    for (int j = 0; j < TPW_GRID; j++) {
        const float u = s.beta[j] * (tpw_row_get(s.v, v_bf16, j * CB + c) - sum[j]);
        m.U[j * CB + c] = u;
#pragma unroll
        for (int i = j + 1; i < TPW_GRID; i++)
            sum[i] = fmaf(m.A[j * TPW_GRID + i], u, sum[i]);
    }
}

// u of some rows of a chunk, whose earlier u are in U.
template <int CB>
static __device__ __forceinline__ void tpw_delta_solve_some(const tpw_delta_shared<CB> &m, const tpw_delta_stage &s,
                                                            const tpw_delta_piece &p, bool v_bf16, int c)
{
    for (int i = p.i0; i < p.i1; i++) {
        float sum = m.E[i * TPW_DELTA_E_ROW + TPW_GRID] * m.sums[(i - p.i0) * CB + c];
#pragma unroll 4
        for (int j = 0; j < i; j++)
            sum = fmaf(m.A[j * TPW_GRID + i], m.U[j * CB + c], sum);
        m.U[i * CB + c] = s.beta[i] * (tpw_row_get(s.v, v_bf16, i * CB + c) - sum);
    }
}

// o of the piece's rows into memory: `to` is column 0 of the CTA in the row of i0.
template <int CB>
static __device__ __forceinline__ void tpw_delta_outputs(const tpw_delta_shared<CB> &m, const tpw_delta_piece &p,
                                                         void *o, bool o_bf16, int64_t to, int64_t stride, int columns)
{
    constexpr int GROUPS = TPW_DELTA_THREADS / CB, ROWS = TPW_GRID / GROUPS;
    const int c = (int)threadIdx.x % CB, first = p.i0 + (int)threadIdx.x / CB, n = p.i1 - p.i0;
    float sum[ROWS];
#pragma unroll
    for (int t = 0; t < ROWS; t++) {
        const int i = first + t * GROUPS;
        sum[t] = i < p.i1 ? m.E[i * TPW_DELTA_E_ROW + TPW_GRID] * m.sums[(n + i - p.i0) * CB + c] : 0.0f;
    }
    for (int j0 = 0; j0 < p.i1; j0 += 4) {
        float u[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            u[e] = m.U[(j0 + e) * CB + c];
#pragma unroll
        for (int t = 0; t < ROWS; t++) {
            const int i = first + t * GROUPS;
            if (i >= p.i1)
                break;
            const float4 w = *(const float4 *)(m.C + i * TPW_GRID + j0);
            const float weight[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (j0 + e <= i)
                    sum[t] = fmaf(weight[e], u[e], sum[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < ROWS; t++) {
        const int i = first + t * GROUPS;
        if (i < p.i1 && c < columns)
            tpw_row_set(o, o_bf16, to + (i - p.i0) * stride + c, sum[t]);
    }
}

// S = P*S + fma-sum in order j of (E_j*k_j) u_j^T over a whole chunk; also into memory at `to` (rows `stride` apart)
// unless NULL.
template <int CB>
static __device__ __forceinline__ void tpw_delta_absorb(const tpw_delta_shared<CB> &m, const tpw_delta_stage &s,
                                                        float *to, int64_t stride, int columns, bool wide)
{
    constexpr int LANES = CB / 4, GROUPS = TPW_DELTA_THREADS / LANES;
    const int c = (int)threadIdx.x % LANES * 4;
    const float *E = m.E + (TPW_GRID - 1) * TPW_DELTA_E_ROW, P = E[TPW_GRID];
    for (int r0 = (int)threadIdx.x / LANES * 4; r0 < m.dk; r0 += GROUPS * 4) {
        float z[4][4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float4 w = *(const float4 *)(m.S + (r0 + e) * CB + c);
            z[e][0] = P * w.x, z[e][1] = P * w.y, z[e][2] = P * w.z, z[e][3] = P * w.w;
        }
#pragma unroll 4
        for (int j = 0; j < TPW_GRID; j++) {
            const float4 k = *(const float4 *)(s.k + j * m.row + r0), w = *(const float4 *)(m.U + j * CB + c);
            const float weight[4] = {E[j] * k.x, E[j] * k.y, E[j] * k.z, E[j] * k.w}, u[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int d = 0; d < 4; d++)
                    z[e][d] = fmaf(weight[e], u[d], z[e][d]);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float4 w = make_float4(z[e][0], z[e][1], z[e][2], z[e][3]);
            *(float4 *)(m.S + (r0 + e) * CB + c) = w;
            if (to == NULL || r0 + e >= m.dk)
                continue;
            float *at = to + (r0 + e) * stride + c;
            if (wide && c + 4 <= columns) {
                *(float4 *)at = w;
                continue;
            }
#pragma unroll
            for (int d = 0; d < 4; d++)
                if (c + d < columns)
                    at[d] = z[e][d];
        }
    }
}

#endif
