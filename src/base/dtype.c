/* Element sizes, names and the exact scalar conversions of the small floats, by integer arithmetic: the bits depend
 * neither on the rounding mode nor on flush-to-zero settings of the calling thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

#define F32_SIGN       0x80000000u
#define F32_INFINITY   0x7F800000u
#define F32_QUIET_NAN  0x7FC00000u
#define F32_HIDDEN_BIT 0x00800000u
#define F32_FRACTION   0x007FFFFFu

size_t tpw_dtype_size(tpw_dtype dtype)
{
    switch (dtype) {
    case TPW_F32:
    case TPW_I32:
        return 4;
    case TPW_F16:
    case TPW_BF16:
        return 2;
    case TPW_E4M3:
    case TPW_BOOL:
        return 1;
    case TPW_I64:
        return 8;
    case TPW_DTYPE_COUNT:
        break;
    }
    return 0;
}

const char *tpw_dtype_name(tpw_dtype dtype)
{
    switch (dtype) {
    case TPW_F32:
        return "F32";
    case TPW_F16:
        return "F16";
    case TPW_BF16:
        return "BF16";
    case TPW_E4M3:
        return "E4M3";
    case TPW_BOOL:
        return "BOOL";
    case TPW_I32:
        return "I32";
    case TPW_I64:
        return "I64";
    case TPW_DTYPE_COUNT:
        break;
    }
    return "?";
}

/* value / 2^shift rounded to nearest even, for value < 2^24 and any shift >= 1. */
static uint32_t shift_nearest_even(uint32_t value, uint32_t shift)
{
    if (shift > 24)
        return 0; /* below half of the last place */
    uint32_t quotient = value >> shift;
    uint32_t remainder = value & ((1u << shift) - 1u);
    uint32_t half = 1u << (shift - 1u);
    if (remainder > half || (remainder == half && (quotient & 1u) != 0))
        quotient++;
    return quotient;
}

/* The significand of a positive F32 below 2^(exponent of the target's least normal), in units of the target's least
 * subnormal 2^unit. A carry to the least normal is the right code by itself. */
static uint32_t subnormal_code(uint32_t magnitude, int unit)
{
    uint32_t exponent = magnitude >> 23;
    if (exponent == 0)
        return 0; /* subnormal in F32: far below half a unit of any narrower type here */
    uint32_t significand = (magnitude & F32_FRACTION) | F32_HIDDEN_BIT;
    return shift_nearest_even(significand, (uint32_t)(unit + 150 - (int)exponent));
}

float tpw_f16_to_f32(uint16_t h)
{
    uint32_t sign = ((uint32_t)h & 0x8000u) << 16;
    uint32_t exponent = ((uint32_t)h >> 10) & 0x1Fu;
    uint32_t fraction = (uint32_t)h & 0x3FFu;
    if (exponent == 0x1F)
        return tpw_f32_from_bits(sign | F32_INFINITY | fraction << 13);
    if (exponent == 0) /* the product is exact and normal in F32 */
        return tpw_f32_from_bits(sign | tpw_f32_bits((float)fraction * 0x1p-24f));
    return tpw_f32_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
}

uint16_t tpw_f16_from_f32(float x)
{
    uint32_t bits = tpw_f32_bits(x);
    uint32_t sign = (bits & F32_SIGN) >> 16;
    uint32_t magnitude = bits & ~F32_SIGN;
    if (magnitude > F32_INFINITY)
        return (uint16_t)(sign | 0x7E00u | (magnitude & F32_FRACTION) >> 13);
    if (magnitude >= tpw_f32_bits(65536.0f))
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude < tpw_f32_bits(0x1p-14f))
        return (uint16_t)(sign | subnormal_code(magnitude, -24));
    /* a carry out of the fraction raises the exponent, from 65520 on to infinity */
    uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

float tpw_e4m3_to_f32(uint8_t b)
{
    uint32_t sign = ((uint32_t)b & 0x80u) << 24;
    uint32_t exponent = ((uint32_t)b >> 3) & 0xFu;
    uint32_t fraction = (uint32_t)b & 7u;
    if ((b & 0x7F) == 0x7F)
        return tpw_f32_from_bits(sign | F32_QUIET_NAN);
    if (exponent == 0)
        return tpw_f32_from_bits(sign | tpw_f32_bits((float)fraction * 0x1p-9f));
    return tpw_f32_from_bits(sign | (exponent + 120u) << 23 | fraction << 20);
}

uint8_t tpw_e4m3_from_f32(float x, size_t *saturated)
{
    uint32_t bits = tpw_f32_bits(x);
    uint32_t sign = (bits & F32_SIGN) >> 24;
    uint32_t magnitude = bits & ~F32_SIGN;
    if (magnitude > F32_INFINITY)
        return (uint8_t)(sign | 0x7Fu);
    /* 464 lies half way between 448 and the 480 that the NaN code stands in for; the tie goes to 448, the even one */
    if (magnitude > tpw_f32_bits(464.0f)) {
        if (saturated != NULL)
            ++*saturated;
        return (uint8_t)(sign | 0x7Eu);
    }
    if (magnitude < tpw_f32_bits(0x1p-6f))
        return (uint8_t)(sign | subnormal_code(magnitude, -9));
    uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
    return (uint8_t)(sign | ((rounded >> 20) - (120u << 3)));
}
