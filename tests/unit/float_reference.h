/* What the dtype and conversion tests compare with: number formats spelled out with ldexp, and rounding by a search
 * over the sorted finite codes. Slow, and shares nothing with the code under test.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_FLOAT_REFERENCE_H
#define TPW_TESTS_FLOAT_REFERENCE_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

_Static_assert(LDBL_MANT_DIG >= 64, "the reference needs every 64-bit integer to be exact");

typedef struct ref_format {
    int exponent_bits;
    int fraction_bits;
    bool has_infinity;
} ref_format;

static const ref_format ref_f32 = {8, 23, true};
static const ref_format ref_f16 = {5, 10, true};
static const ref_format ref_bf16 = {8, 7, true};
static const ref_format ref_e4m3 = {4, 3, false};

static inline uint32_t ref_sign_bit(const ref_format *f)
{
    return (uint32_t)1 << (f->exponent_bits + f->fraction_bits);
}

/* Value of a code, with its sign, infinities and NaN. */
static inline long double ref_decode(const ref_format *f, uint32_t code)
{
    int exponent_all = (1 << f->exponent_bits) - 1;
    int bias = exponent_all / 2;
    uint32_t fraction_all = ((uint32_t)1 << f->fraction_bits) - 1;
    int exponent = (int)(code >> f->fraction_bits) & exponent_all;
    uint32_t fraction = code & fraction_all;
    long double magnitude;
    if (f->has_infinity && exponent == exponent_all)
        magnitude = fraction == 0 ? (long double)INFINITY : (long double)NAN;
    else if (!f->has_infinity && exponent == exponent_all && fraction == fraction_all)
        magnitude = (long double)NAN;
    else if (exponent == 0)
        magnitude = ldexpl((long double)fraction, 1 - bias - f->fraction_bits);
    else
        magnitude = ldexpl((long double)(fraction + fraction_all + 1), exponent - bias - f->fraction_bits);
    return copysignl(magnitude, (code & ref_sign_bit(f)) != 0 ? -1.0L : 1.0L);
}

static inline bool ref_is_nan(const ref_format *f, uint32_t code)
{
    return isnan(ref_decode(f, code));
}

/* The positive code of the largest finite value. */
static inline uint32_t ref_max_code(const ref_format *f)
{
    return f->has_infinity ? ref_sign_bit(f) - ((uint32_t)1 << f->fraction_bits) - 1 : ref_sign_bit(f) - 2;
}

/* Half way between code and code + 1; past the largest finite code, half a spacing above it. */
static inline long double ref_midpoint(const ref_format *f, uint32_t code)
{
    long double here = ref_decode(f, code);
    if (code == ref_max_code(f))
        return here + (here - ref_decode(f, code - 1)) / 2;
    return (here + ref_decode(f, code + 1)) / 2;
}

/* The code of x (not NaN), nearest with ties to the even code; overflow is infinity, or the largest value and *cut
 * where the format has no infinity. */
static inline uint32_t ref_encode(const ref_format *f, long double x, bool *cut)
{
    uint32_t sign = signbit(x) ? ref_sign_bit(f) : 0;
    long double magnitude = fabsl(x);
    uint32_t low = 0; /* the largest code whose value is not above the magnitude */
    uint32_t high = ref_max_code(f);
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (ref_decode(f, middle) <= magnitude)
            low = middle;
        else
            high = middle - 1;
    }
    long double midpoint = ref_midpoint(f, low);
    bool up = magnitude > midpoint || (magnitude == midpoint && (low & 1) != 0);
    *cut = up && low == ref_max_code(f) && !f->has_infinity;
    return sign | (low + (up && !*cut ? 1 : 0));
}

/* A small generator with a fixed sequence (xorshift64*). */
static inline uint64_t ref_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1Dull;
}

#endif
