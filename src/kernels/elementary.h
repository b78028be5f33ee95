/* Elementary functions with fixed operations: libm picks variants by CPU, and two nodes may then differ in the last
 * bit.
 *
 * Only +, -, *, /, sqrt and fma are used, all of them exactly rounded everywhere, and branches are selects, so that
 * loops which the compiler vectorises give the bits of the scalar function. The F32 functions work in double and
 * round once at the end: at most 0.51 units in the last place. The double functions serve tables made once. Kernels on a
 * GPU use the same functions, and get the same bits for every result that is a number.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_ELEMENTARY_H
#define TPW_KERNELS_ELEMENTARY_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/device_code.h"

TPW_HD uint64_t tpw_d_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

TPW_HD double tpw_d_from_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#define TPW_D_ROUND  0x1.8p52 /* adding it rounds to an integer, which then stands in the low bits */
#define TPW_D_LOG2E  0x1.71547652b82fep+0
#define TPW_D_LN2    0x1.62e42fefa39efp-1
#define TPW_D_LN2_HI 0x1.62e42feep-1 /* 31 bits: times a binary exponent is exact */
#define TPW_D_LN2_LO 0x1.a39ef35793c76p-33

/* e^x for |x| <= 700 to about 2e-10, exactly 1 at 0: the core of the F32 functions. A NaN gives some NaN. */
TPW_HD double tpw_exp_core(double x)
{
    double t = x * TPW_D_LOG2E + TPW_D_ROUND;
    double r = x - (t - TPW_D_ROUND) * TPW_D_LN2;
    double p = 1.0 / 5040 + r * (1.0 / 40320);
    p = 1.0 / 720 + r * p;
    p = 1.0 / 120 + r * p;
    p = 1.0 / 24 + r * p;
    p = 1.0 / 6 + r * p;
    p = 1.0 / 2 + r * p;
    p = 1.0 + r * p;
    p = 1.0 + r * p;
    return p * tpw_d_from_bits((tpw_d_bits(t) + 1023) << 52);
}

/* log(1 + u) for finite u > -1 to about 1e-13. */
TPW_HD double tpw_log1p_core(double u)
{
    const uint64_t root_half = 0x3FE6A09E667F3BCDull;
    uint64_t ix = tpw_d_bits(1.0 + u) + (0x3FF0000000000000ull - root_half);
    int k = (int)(ix >> 52) - 1023;
    double m = tpw_d_from_bits((ix & 0x000FFFFFFFFFFFFFull) + root_half);
    double f = k == 0 ? u : m - 1.0; /* u itself, so that small ones keep their bits */
    double s = f / (2.0 + f);
    double z = s * s;
    double p = 1.0 / 13 + z * (1.0 / 15);
    p = 1.0 / 11 + z * p;
    p = 1.0 / 9 + z * p;
    p = 1.0 / 7 + z * p;
    p = 1.0 / 5 + z * p;
    p = 1.0 / 3 + z * p;
    return k * TPW_D_LN2 + 2.0 * s * (1.0 + z * p);
}

/* e^x: 0 below -104, infinity above 88.73, NaN for NaN. */
TPW_HD float tpw_exp(float x)
{
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float y = (float)tpw_exp_core(c);
    return x != x ? x + x : y;
}

/* log(1 + u): -infinity at -1, NaN below. */
TPW_HD float tpw_log1p(float u)
{
    float c = u > -1.0f && u <= 3.4028234663852886e38f ? u : 0.0f;
    float y = (float)tpw_log1p_core(c);
    y = u == INFINITY ? INFINITY : y;
    y = u == -1.0f ? -INFINITY : y;
    y = u < -1.0f ? NAN : y;
    y = u == 0.0f ? u : y; /* keeps -0 */
    return u != u ? u + u : y;
}

TPW_HD float tpw_sigmoid(float x)
{
    float c = x < -200.0f ? -200.0f : x;
    c = c > 200.0f ? 200.0f : c;
    float y = (float)(1.0 / (1.0 + tpw_exp_core(-(double)c)));
    return x != x ? x + x : y;
}

/* log(1 + e^x), and x itself above 20. */
TPW_HD float tpw_softplus(float x)
{
    float c = x < -104.0f ? -104.0f : x;
    c = c > 20.0f || c != c ? 20.0f : c;
    float y = (float)tpw_log1p_core(tpw_exp_core(c));
    y = x > 20.0f ? x : y;
    return x != x ? x + x : y;
}

/* x * sigmoid(x); -0 at -infinity. */
TPW_HD float tpw_silu(float x)
{
    float c = x < -200.0f ? -200.0f : x;
    float e = c > 200.0f ? 200.0f : c;
    float y = (float)((double)c / (1.0 + tpw_exp_core(-(double)e)));
    return x != x ? x + x : y;
}

TPW_HD float tpw_rsqrt(float x)
{
    return 1.0f / sqrtf(x);
}

/* e^(hi + lo) with |lo| far below 1 and |hi| <= 745.2, relative error below 3e-16 where the result is normal. */
TPW_HD double tpw_exp_sum_d(double hi, double lo)
{
    double t = hi * TPW_D_LOG2E + TPW_D_ROUND;
    double n = t - TPW_D_ROUND;
    double r = fma(-n, TPW_D_LN2_HI, hi);
    r = fma(-n, TPW_D_LN2_LO, r) + lo;
    double p = 1.0 / 6227020800;
    p = fma(p, r, 1.0 / 479001600);
    p = fma(p, r, 1.0 / 39916800);
    p = fma(p, r, 1.0 / 3628800);
    p = fma(p, r, 1.0 / 362880);
    p = fma(p, r, 1.0 / 40320);
    p = fma(p, r, 1.0 / 5040);
    p = fma(p, r, 1.0 / 720);
    p = fma(p, r, 1.0 / 120);
    p = fma(p, r, 1.0 / 24);
    p = fma(p, r, 1.0 / 6);
    p = fma(p, r, 1.0 / 2);
    p = 1.0 + fma(p * r, r, r);
    /* two factors, because 2^n alone may lie outside the normal range */
    int k = (int)n;
    int half = k / 2;
    return p * tpw_d_from_bits((uint64_t)(half + 1023) << 52) * tpw_d_from_bits((uint64_t)(k - half + 1023) << 52);
}

TPW_HD double tpw_exp_d(double x)
{
    if (x != x)
        return x + x;
    if (x > 709.8)
        return INFINITY;
    if (x < -745.2)
        return 0.0;
    return tpw_exp_sum_d(x, 0.0);
}

/* log(x) as *hi + *lo for normal finite x > 0, relative error below 1e-17 of max(1, |log x|). */
TPW_HD void tpw_log_sum_d(double x, double *hi, double *lo)
{
    const uint64_t root_half = 0x3FE6A09E667F3BCDull;
    uint64_t ix = tpw_d_bits(x) + (0x3FF0000000000000ull - root_half);
    double k = (double)((int)(ix >> 52) - 1023);
    double f = tpw_d_from_bits((ix & 0x000FFFFFFFFFFFFFull) + root_half) - 1.0;
    double d = 2.0 + f;
    double d_lo = f - (d - 2.0);
    double s = f / d;
    double s_lo = (fma(-s, d, f) - s * d_lo) / d;
    double z = s * s;
    double p = 1.0 / 25;
    p = fma(p, z, 1.0 / 23);
    p = fma(p, z, 1.0 / 21);
    p = fma(p, z, 1.0 / 19);
    p = fma(p, z, 1.0 / 17);
    p = fma(p, z, 1.0 / 15);
    p = fma(p, z, 1.0 / 13);
    p = fma(p, z, 1.0 / 11);
    p = fma(p, z, 1.0 / 9);
    p = fma(p, z, 1.0 / 7);
    p = fma(p, z, 1.0 / 5);
    p = fma(p, z, 1.0 / 3);
    double tail = 2.0 * s_lo + 2.0 * s * z * p;
    double a = k * TPW_D_LN2_HI; /* zero or the larger term, so that the rounding error of the sum is exact */
    double b = 2.0 * s;
    *hi = a + b;
    *lo = (b - (*hi - a)) + fma(k, TPW_D_LN2_LO, tail);
}

TPW_HD double tpw_log_d(double x)
{
    if (x != x || x < 0.0)
        return NAN;
    if (x == 0.0)
        return -INFINITY;
    if (x == INFINITY)
        return x;
    double scale = x < 0x1p-1022 ? 0x1p54 : 1.0;
    double hi, lo;
    tpw_log_sum_d(x * scale, &hi, &lo);
    return scale == 1.0 ? hi + lo : hi - 54 * TPW_D_LN2_HI + (lo - 54 * TPW_D_LN2_LO);
}

/* base^y for normal finite base > 0, relative error below 1e-15 where the result is normal. */
TPW_HD double tpw_pow_d(double base, double y)
{
    double hi, lo;
    tpw_log_sum_d(base, &hi, &lo);
    double p = y * hi;
    if (p != p || p > 709.8 || p < -745.2)
        return tpw_exp_d(p);
    return tpw_exp_sum_d(p, fma(y, hi, -p) + y * lo);
}

/* 0 for an even integer, 1 for an odd one, -1 for what is no integer. Finite y. */
TPW_HD int tpw_parity(float y)
{
    if (!(y < 0x1p24f && y > -0x1p24f))
        return 0; /* all even from here on */
    int32_t n = (int32_t)y;
    return (float)n != y ? -1 : (int)(n & 1);
}

/* base^y for finite base > 0 and finite y. Powers that are one or two exact operations are made of those, so that halves
 * and ties round as they should. */
TPW_HD double tpw_power_core(double base, float y)
{
    if (y == 1.0f)
        return base;
    if (y == 2.0f)
        return base * base;
    if (y == 0.5f)
        return sqrt(base);
    if (y == -1.0f)
        return 1.0 / base;
    if (y == -0.5f)
        return 1.0 / sqrt(base);
    return tpw_pow_d(base, (double)y);
}

/* x^y with the special values of C's pow; what is not a number is always the one with bits 0x7FC00000. */
TPW_HD float tpw_power(float x, float y)
{
    if (y == 0.0f || x == 1.0f)
        return 1.0f;
    if (x != x || y != y)
        return NAN;
    float size = x < 0.0f ? -x : x;
    if (y == INFINITY || y == -INFINITY)
        return size == 1.0f ? 1.0f : (size > 1.0f) == (y > 0.0f) ? INFINITY : 0.0f;
    int parity = tpw_parity(y);
    bool minus = parity == 1 && (tpw_d_bits((double)x) >> 63) != 0; /* -0 too */
    if (size == 0.0f || size == INFINITY) {
        float big = (size == 0.0f) == (y < 0.0f) ? INFINITY : 0.0f;
        return minus ? -big : big;
    }
    if (x < 0.0f && parity < 0)
        return NAN;
    float power = (float)tpw_power_core((double)size, y);
    return minus ? -power : power;
}

/* x = n * pi/2 + r with |r| <= pi/4 (a little more at the ends) for |x| <= 1e7; returns n mod 4. */
TPW_HD int tpw_reduce_pi_d(double x, double *r)
{
    double t = x * 0x1.45f306dc9c883p-1 + TPW_D_ROUND;
    double n = t - TPW_D_ROUND;
    double head = fma(-n, 0x1.921fb54442d18p+0, x); /* exact: a multiple of 2^-52 below 1, or x itself */
    *r = fma(-n, 0x1.1a62633145c07p-54, head);
    return (int)(tpw_d_bits(t) & 3);
}

TPW_HD double tpw_sin_core_d(double r)
{
    double z = r * r;
    double p = 1.0 / 355687428096000.0;
    p = fma(p, z, -1.0 / 1307674368000.0);
    p = fma(p, z, 1.0 / 6227020800.0);
    p = fma(p, z, -1.0 / 39916800.0);
    p = fma(p, z, 1.0 / 362880.0);
    p = fma(p, z, -1.0 / 5040.0);
    p = fma(p, z, 1.0 / 120.0);
    p = fma(p, z, -1.0 / 6.0);
    return fma(p * z, r, r);
}

TPW_HD double tpw_cos_core_d(double r)
{
    double z = r * r;
    double p = -1.0 / 6402373705728000.0;
    p = fma(p, z, 1.0 / 20922789888000.0);
    p = fma(p, z, -1.0 / 87178291200.0);
    p = fma(p, z, 1.0 / 479001600.0);
    p = fma(p, z, -1.0 / 3628800.0);
    p = fma(p, z, 1.0 / 40320.0);
    p = fma(p, z, -1.0 / 720.0);
    p = fma(p, z, 1.0 / 24.0);
    p = fma(p, z, -1.0 / 2.0);
    return fma(p, z, 1.0);
}

/* sin and cos for |x| <= 1e7, absolute error below 1e-15; NaN outside. */
TPW_HD double tpw_sin_d(double x)
{
    if (!(x >= -1e7 && x <= 1e7))
        return NAN;
    double r;
    int quadrant = tpw_reduce_pi_d(x, &r);
    double y = quadrant & 1 ? tpw_cos_core_d(r) : tpw_sin_core_d(r);
    return quadrant & 2 ? -y : y;
}

TPW_HD double tpw_cos_d(double x)
{
    if (!(x >= -1e7 && x <= 1e7))
        return NAN;
    double r;
    int quadrant = tpw_reduce_pi_d(x, &r);
    double y = quadrant & 1 ? tpw_sin_core_d(r) : tpw_cos_core_d(r);
    return quadrant == 1 || quadrant == 2 ? -y : y;
}

#endif
