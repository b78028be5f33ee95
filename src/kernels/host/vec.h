/* The inner loops of the host backend, compiled once per instruction set, and the bits that all of them must give.
 *
 * Lanes are fixed at 16 and every multiply-add is a fused one, so that baseline, AVX2 and AVX-512 code give the same
 * bits. Elementwise loops use the functions of elementary.h in every variant. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_HOST_VEC_H
#define TPW_KERNELS_HOST_VEC_H

#include <stdint.h>

#include "kernels/ops.h"

#define TPW_LANES 16

typedef struct tpw_vec {
    const char *isa;    /* "baseline", "avx2", "avx512" */
    int32_t piece_rows; /* the N of a piece that fills the registers best, a divisor of 24 */

    /* 16 lanes: lane l sums a[k]*b[k], k = l, l+16, ... in order by fmaf from +0; a tail shorter than 16 is zero-
     * padded (fmaf with zeros); lanes are joined l+8, l+4, l+2, l+1. */
    float (*dot)(const float *a, const float *b, int32_t n);
    /* The norm tree of ops.h (add_norm): sum of squares of n elements. */
    float (*sum_squares)(const float *x, int32_t n);
    /* y[i] = fmaf(a, x[i], y[i]) */
    void (*axpy)(float *y, const float *x, float a, int32_t n);
    /* y[i] = a * x[i] */
    void (*scale)(float *y, const float *x, float a, int32_t n);
    /* y[i] = fmaf(y[i], a, x[i] * b): the fold of attention splits */
    void (*fold)(float *y, float a, const float *x, float b, int32_t n);
    /* y[i] = exp(x[i] - shift) */
    void (*exp_shift)(float *y, const float *x, float shift, int32_t n);
    /* y[i] = silu(x[i]) (u == NULL) or silu(x[i]) * u[i] */
    void (*silu)(float *y, const float *x, const float *u, int32_t n);
    /* y[i] = x[i] * sigmoid(g[i]) */
    void (*sigmoid_mul)(float *y, const float *x, const float *g, int32_t n);

    /* Exact widening to F32 and rounding back (nearest even), from and to one contiguous row. E4M3 must hold no NaN
     * codes. */
    void (*load)(float *y, const void *x, tpw_dtype dtype, int64_t offset,
                 int32_t n); /* F32, BF16, F16, E4M3; offset in elements */
    void (*store)(void *y, tpw_dtype dtype, int64_t offset, const float *x, int32_t n); /* F32, BF16, F16 */

    /* acc[m * acc_stride + j] for m < M, j < N (N <= 8): piece sums of n <= 128 columns joined to the running slice
     * sum:
     *
     *   acc = fmaf(dot(x_m, w_j), scale[j], acc).
     *
     * x: M rows of F32, x_stride apart; w: N rows of F32, w_stride apart. */
    void (*piece)(float *acc, int64_t acc_stride, const float *x, int64_t x_stride, int32_t M, const float *w,
                  int64_t w_stride, const float *scale, int32_t N, int32_t n);
    /* The same with w in its stored type (F32, BF16, E4M3), widened on the fly: for few rows of x. */
    void (*piece_stored)(float *acc, int64_t acc_stride, const float *x, int64_t x_stride, int32_t M, const void *w,
                         tpw_dtype dtype, int64_t w_stride, const float *scale, int32_t N, int32_t n);
} tpw_vec;

/* NULL when this build or this CPU lacks it. */
const tpw_vec *tpw_vec_baseline(void);
const tpw_vec *tpw_vec_avx2(void);
const tpw_vec *tpw_vec_avx512(void);

#endif
