/* The inner loops of the host backend, compiled once per instruction set (TPW_VEC_ISA 0, 1, 2): the table of vec.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/elementary.h"
#include "kernels/host/simd.h"
#include "kernels/host/vec.h"
#include "kernels/tree.h"

/* Register tile of a piece: TILE_W rows of w by TILE_X rows of x; ROW_W rows of w when one row of x is left. */
#if TPW_VEC_ISA == 0
#define TILE_W 1
#define TILE_X 1
#define ROW_W  1
#elif TPW_VEC_ISA == 1
#define TILE_W 3
#define TILE_X 2
#define ROW_W  6
#else
#define TILE_W 4
#define TILE_X 4
#define ROW_W  8
#endif
#define PIECE_ROWS (ROW_W > 4 ? ROW_W : 4)
#define TILE_SUMS  16 /* v16 sums of the largest tile, rounded up to the 8 of a join */

static float vec_dot(const float *a, const float *b, int32_t n)
{
    v16 acc = v16_set1(0.0f);
    int32_t k = 0;
    for (; k + TPW_LANES <= n; k += TPW_LANES)
        acc = v16_fma(v16_load(a + k), v16_load(b + k), acc);
    if (k < n)
        acc = v16_fma(v16_load_head(a + k, n - k), v16_load_head(b + k, n - k), acc);
    return v16_join(acc);
}

/* One zero-padded piece of 256: 32 lanes of 8 elements, butterfly 16, 8, 4, 2, 1. */
static float square_piece(const float *x)
{
    float lane[32] = {0};
    for (int i = 0; i < 8; i++)
        for (int l = 0; l < 32; l++)
            lane[l] = fmaf(x[8 * l + i], x[8 * l + i], lane[l]);
    return tpw_tree_lanes(lane);
}

static float vec_sum_squares(const float *x, int32_t n)
{
    float sum = 0.0f;
    int32_t k = 0;
    for (; k + 256 <= n; k += 256)
        sum += square_piece(x + k);
    if (k < n) {
        float pad[256] = {0};
        memcpy(pad, x + k, (size_t)(n - k) * sizeof *x);
        sum += square_piece(pad);
    }
    return sum;
}

static void vec_axpy(float *y, const float *x, float a, int32_t n)
{
    const v16 va = v16_set1(a);
    int32_t i = 0;
    for (; i + TPW_LANES <= n; i += TPW_LANES)
        v16_store(y + i, v16_fma(va, v16_load(x + i), v16_load(y + i)));
    for (; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

static void vec_scale(float *y, const float *x, float a, int32_t n)
{
    const v16 va = v16_set1(a);
    int32_t i = 0;
    for (; i + TPW_LANES <= n; i += TPW_LANES)
        v16_store(y + i, v16_mul(va, v16_load(x + i)));
    for (; i < n; i++)
        y[i] = a * x[i];
}

static void vec_fold(float *y, float a, const float *x, float b, int32_t n)
{
    const v16 va = v16_set1(a), vb = v16_set1(b);
    int32_t i = 0;
    for (; i + TPW_LANES <= n; i += TPW_LANES)
        v16_store(y + i, v16_fma(v16_load(y + i), va, v16_mul(v16_load(x + i), vb)));
    for (; i < n; i++)
        y[i] = fmaf(y[i], a, x[i] * b);
}

/* Elementwise loops work on local copies of 16, so that y may be x and the compiler need not ask. */

static void vec_exp_shift(float *y, const float *x, float shift, int32_t n)
{
    int32_t i = 0;
    for (; i + TPW_LANES <= n; i += TPW_LANES) {
        float t[TPW_LANES];
        for (int l = 0; l < TPW_LANES; l++)
            t[l] = x[i + l] - shift;
        for (int l = 0; l < TPW_LANES; l++)
            t[l] = tpw_exp(t[l]);
        memcpy(y + i, t, sizeof t);
    }
    for (; i < n; i++)
        y[i] = tpw_exp(x[i] - shift);
}

static void vec_silu(float *y, const float *x, const float *u, int32_t n)
{
    int32_t i = 0;
    for (; i + TPW_LANES <= n; i += TPW_LANES) {
        float t[TPW_LANES];
        memcpy(t, x + i, sizeof t);
        for (int l = 0; l < TPW_LANES; l++)
            t[l] = tpw_silu(t[l]);
        v16 v = v16_load(t);
        v16_store(y + i, u ? v16_mul(v, v16_load(u + i)) : v);
    }
    for (; i < n; i++)
        y[i] = u ? tpw_silu(x[i]) * u[i] : tpw_silu(x[i]);
}

static void vec_sigmoid_mul(float *y, const float *x, const float *g, int32_t n)
{
    int32_t i = 0;
    for (; i + TPW_LANES <= n; i += TPW_LANES) {
        float t[TPW_LANES];
        memcpy(t, g + i, sizeof t);
        for (int l = 0; l < TPW_LANES; l++)
            t[l] = tpw_sigmoid(t[l]);
        v16_store(y + i, v16_mul(v16_load(x + i), v16_load(t)));
    }
    for (; i < n; i++)
        y[i] = x[i] * tpw_sigmoid(g[i]);
}

/* Elements of a stored type as F32; the constant dtype of each caller folds the branches away. */
TPW_INLINE vpart part_stored(const void *p, tpw_dtype dtype, int64_t at)
{
    if (dtype == TPW_E4M3)
        return part_from_e4m3((const uint8_t *)p + at);
    if (dtype == TPW_BF16)
        return part_from_bf16((const uint16_t *)p + at);
    return part_load((const float *)p + at);
}

TPW_INLINE v16 load_stored(const void *p, tpw_dtype dtype, int64_t at)
{
    v16 v;
#pragma GCC unroll 2
    for (int h = 0; h < PARTS; h++)
        v.part[h] = part_stored(p, dtype, at + h * PART_LANES);
    return v;
}

TPW_INLINE v16 load_stored_head(const void *p, tpw_dtype dtype, int64_t at, int32_t n)
{
    uint8_t pad[TPW_LANES * sizeof(float)] __attribute__((aligned(16))) = {0};
    size_t size = dtype == TPW_E4M3 ? 1 : dtype == TPW_BF16 ? 2 : 4;
    memcpy(pad, (const uint8_t *)p + (size_t)at * size, (size_t)n * size);
    return load_stored(pad, dtype, 0);
}

TPW_INLINE void load_row(float *y, const void *x, tpw_dtype dtype, int64_t offset, int32_t n)
{
    int32_t i = 0;
    for (; i + TPW_LANES <= n; i += TPW_LANES)
        v16_store(y + i, load_stored(x, dtype, offset + i));
    if (i < n) {
        float t[TPW_LANES];
        v16_store(t, load_stored_head(x, dtype, offset + i, n - i));
        memcpy(y + i, t, (size_t)(n - i) * sizeof *y);
    }
}

static void vec_load(float *y, const void *x, tpw_dtype dtype, int64_t offset, int32_t n)
{
    if (dtype == TPW_E4M3)
        load_row(y, x, TPW_E4M3, offset, n);
    else if (dtype == TPW_BF16)
        load_row(y, x, TPW_BF16, offset, n);
    else if (dtype == TPW_F16)
        for (int32_t i = 0; i < n; i++)
            y[i] = tpw_f16_to_f32(((const uint16_t *)x)[offset + i]);
    else
        memmove(y, (const float *)x + offset, (size_t)n * sizeof *y);
}

static void vec_store(void *y, tpw_dtype dtype, int64_t offset, const float *x, int32_t n)
{
    uint16_t *out = (uint16_t *)y + offset;
    int32_t i = 0;
    if (dtype != TPW_BF16 && dtype != TPW_F16) {
        memmove((float *)y + offset, x, (size_t)n * sizeof *x);
        return;
    }
    if (dtype == TPW_F16) {
        for (; i < n; i++)
            out[i] = tpw_f16_from_f32(x[i]);
        return;
    }
    for (; i + TPW_LANES <= n; i += TPW_LANES) {
        uint32_t t[TPW_LANES];
        uint16_t r[TPW_LANES];
        memcpy(t, x + i, sizeof t);
        for (int l = 0; l < TPW_LANES; l++) {
            uint32_t rounded = (t[l] + 0x7FFFu + (t[l] >> 16 & 1u)) >> 16;
            r[l] = (uint16_t)((t[l] & 0x7FFFFFFFu) > 0x7F800000u ? t[l] >> 16 | 0x40u : rounded);
        }
        memcpy(out + i, r, sizeof r);
    }
    for (; i < n; i++)
        out[i] = tpw_bf16_from_f32(x[i]);
}

/* Stops the compiler from loading the same memory operand once per multiply-add: loads are the bottleneck of a tile. */
#if TPW_VEC_ISA == 0
#define KEEP_IN_REGISTER(v) ((void)(v))
#else
#define KEEP_IN_REGISTER(v) __asm__("" : "+v"(v))
#endif

typedef struct piece_view {
    float *acc;
    int64_t acc_stride;
    const float *x;
    int64_t x_stride;
    const void *w;
    int64_t w_stride;
    const float *scale;
    int32_t n;
} piece_view;

/* sum[r * C + c] takes 16 columns of R rows of w and C rows of x. */
TPW_INLINE void tile_step(v16 *sum, const float *x, int64_t x_stride, const void *w, tpw_dtype dtype, int64_t w_at,
                          int64_t w_stride, const int R, const int C)
{
#pragma GCC unroll 2
    for (int h = 0; h < PARTS; h++) {
        vpart xv[TILE_X];
#pragma GCC unroll 4
        for (int c = 0; c < C; c++)
            xv[c] = part_load(x + c * x_stride + h * PART_LANES);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            vpart wv = part_stored(w, dtype, w_at + r * w_stride + h * PART_LANES);
            if (C > 1)
                KEEP_IN_REGISTER(wv);
#pragma GCC unroll 4
            for (int c = 0; c < C; c++)
                sum[r * C + c].part[h] = part_fma(xv[c], wv, sum[r * C + c].part[h]);
        }
    }
}

/* The last n < 16 columns, zero-padded. */
TPW_INLINE void tile_tail(v16 *sum, const float *x, int64_t x_stride, const void *w, tpw_dtype dtype, int64_t w_at,
                          int64_t w_stride, const int R, const int C, int32_t n)
{
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
        v16 xv = v16_load_head(x + c * x_stride, n);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            sum[r * C + c] = v16_fma(xv, load_stored_head(w, dtype, w_at + r * w_stride, n), sum[r * C + c]);
    }
}

/* R rows of w by C rows of x, both constants at every call, so that all sums stay in registers. */
TPW_INLINE void piece_tile(const piece_view *p, tpw_dtype dtype, int32_t m, int32_t j, const int R, const int C)
{
    const float *x = p->x + m * p->x_stride;
    const int64_t w_at = j * p->w_stride;
    v16 sum[TILE_SUMS];
#pragma GCC unroll 16
    for (int i = 0; i < TILE_SUMS; i++)
        sum[i] = v16_set1(0.0f);
    int32_t k = 0;
    for (; k + TPW_LANES <= p->n; k += TPW_LANES)
        tile_step(sum, x + k, p->x_stride, p->w, dtype, w_at + k, p->w_stride, R, C);
    if (k < p->n)
        tile_tail(sum, x + k, p->x_stride, p->w, dtype, w_at + k, p->w_stride, R, C, p->n - k);
    float out[TILE_SUMS];
    v16_join8(sum, out, R * C);
    if (R * C > 8)
        v16_join8(sum + 8, out + 8, R * C - 8);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            float *acc = p->acc + (m + c) * p->acc_stride + j + r;
            *acc = fmaf(out[r * C + c], p->scale[j + r], *acc);
        }
}

/* One strip of C rows of x over all N rows of w. */
TPW_INLINE void piece_strip(const piece_view *p, tpw_dtype dtype, int32_t m, int32_t N, const int C)
{
    const int W = C == 1 ? ROW_W : TILE_W;
    int32_t j = 0;
    for (; j + W <= N; j += W)
        piece_tile(p, dtype, m, j, W, C);
    if (W > 4 && j + 4 <= N) {
        piece_tile(p, dtype, m, j, 4, C);
        j += 4;
    }
    if (W > 2 && j + 2 <= N) {
        piece_tile(p, dtype, m, j, 2, C);
        j += 2;
    }
    if (j < N)
        piece_tile(p, dtype, m, j, 1, C);
}

TPW_INLINE void piece_rows(const piece_view *p, tpw_dtype dtype, int32_t M, int32_t N)
{
    int32_t m = 0;
    for (; m + TILE_X <= M; m += TILE_X)
        piece_strip(p, dtype, m, N, TILE_X);
    if (TILE_X > 2 && m + 2 <= M) {
        piece_strip(p, dtype, m, N, 2);
        m += 2;
    }
    if (m < M)
        piece_strip(p, dtype, m, N, 1);
}

static void vec_piece(float *acc, int64_t acc_stride, const float *x, int64_t x_stride, int32_t M, const float *w,
                      int64_t w_stride, const float *scale, int32_t N, int32_t n)
{
    const piece_view p = {acc, acc_stride, x, x_stride, w, w_stride, scale, n};
    piece_rows(&p, TPW_F32, M, N);
}

static void vec_piece_stored(float *acc, int64_t acc_stride, const float *x, int64_t x_stride, int32_t M, const void *w,
                             tpw_dtype dtype, int64_t w_stride, const float *scale, int32_t N, int32_t n)
{
    const piece_view p = {acc, acc_stride, x, x_stride, w, w_stride, scale, n};
    if (dtype == TPW_E4M3)
        piece_rows(&p, TPW_E4M3, M, N);
    else if (dtype == TPW_BF16)
        piece_rows(&p, TPW_BF16, M, N);
    else
        piece_rows(&p, TPW_F32, M, N);
}

#define TPW_VEC_TABLE(name)                                                                               \
    static const tpw_vec table = {name,      PIECE_ROWS, vec_dot,       vec_sum_squares, vec_axpy,        \
                                  vec_scale, vec_fold,   vec_exp_shift, vec_silu,        vec_sigmoid_mul, \
                                  vec_load,  vec_store,  vec_piece,     vec_piece_stored}

#if TPW_VEC_ISA == 0
TPW_VEC_TABLE("baseline");

const tpw_vec *tpw_vec_baseline(void)
{
    return &table;
}
#else
/* Asked by number, because not every compiler knows this one by name. */
static bool cpu_has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
}

#if TPW_VEC_ISA == 1
TPW_VEC_TABLE("avx2");

const tpw_vec *tpw_vec_avx2(void)
{
    return cpu_has_avx2() ? &table : NULL;
}
#else
TPW_VEC_TABLE("avx512");

const tpw_vec *tpw_vec_avx512(void)
{
    bool all = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return all && cpu_has_avx2() ? &table : NULL;
}
#endif
#endif
