// The conversions of base/convert.c on the GPU, in the same integer arithmetic, so that the hardware's own NaN and saturation
// rules play no part. SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_CONVERT_CUH
#define TPW_KERNELS_CUDA_CONVERT_CUH

#include "kernels/cuda/launch.cuh"

#define TPW_SIGN     0x80000000u
#define TPW_INFINITY 0x7F800000u
#define TPW_FRACTION 0x007FFFFFu
#define TPW_HIDDEN   0x00800000u

// Raw bits of an element of 1, 2, 4 or 8 bytes, zero-extended.
static __device__ __forceinline__ uint64_t tpw_raw_load(const void *data, int64_t at, int32_t size)
{
    if (size == 4)
        return ((const uint32_t *)data)[at];
    if (size == 2)
        return ((const uint16_t *)data)[at];
    if (size == 1)
        return ((const uint8_t *)data)[at];
    return ((const uint64_t *)data)[at];
}

static __device__ __forceinline__ void tpw_raw_store(void *data, int64_t at, int32_t size, uint64_t raw)
{
    if (size == 4)
        ((uint32_t *)data)[at] = (uint32_t)raw;
    else if (size == 2)
        ((uint16_t *)data)[at] = (uint16_t)raw;
    else if (size == 1)
        ((uint8_t *)data)[at] = (uint8_t)raw;
    else
        ((uint64_t *)data)[at] = raw;
}

// value / 2^shift rounded to nearest even, value < 2^24, shift >= 1.
static __device__ __forceinline__ uint32_t tpw_shift_even(uint32_t value, uint32_t shift)
{
    if (shift > 24)
        return 0;
    const uint32_t quotient = value >> shift, remainder = value & ((1u << shift) - 1u), half = 1u << (shift - 1u);
    return quotient + (remainder > half || (remainder == half && (quotient & 1u) != 0) ? 1u : 0u);
}

// A magnitude below the target's least normal number in units of its least subnormal 2^unit.
static __device__ __forceinline__ uint32_t tpw_subnormal_code(uint32_t magnitude, int unit)
{
    const uint32_t exponent = magnitude >> 23;
    if (exponent == 0)
        return 0;
    return tpw_shift_even((magnitude & TPW_FRACTION) | TPW_HIDDEN, (uint32_t)(unit + 150 - (int)exponent));
}

static __device__ __forceinline__ uint32_t tpw_bits_from_f16(uint32_t h)
{
    const uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 0x1Fu, fraction = h & 0x3FFu;
    if (exponent == 0x1F)
        return sign | TPW_INFINITY | fraction << 13;
    if (exponent == 0)
        return sign | tpw_f32_bits((float)fraction * 0x1p-24f);
    return sign | (exponent + 112u) << 23 | fraction << 13;
}

static __device__ __forceinline__ uint32_t tpw_f16_from_bits(uint32_t bits)
{
    const uint32_t sign = (bits & TPW_SIGN) >> 16, magnitude = bits & ~TPW_SIGN;
    if (magnitude > TPW_INFINITY)
        return sign | 0x7E00u | (magnitude & TPW_FRACTION) >> 13;
    if (magnitude >= 0x47800000u) // 65536
        return sign | 0x7C00u;
    if (magnitude < 0x38800000u) // 2^-14
        return sign | tpw_subnormal_code(magnitude, -24);
    return sign | (((magnitude + 0xFFFu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10));
}

static __device__ __forceinline__ uint32_t tpw_bits_from_e4m3(uint32_t b)
{
    const uint32_t sign = (b & 0x80u) << 24, exponent = b >> 3 & 0xFu, fraction = b & 7u;
    if ((b & 0x7Fu) == 0x7Fu)
        return sign | 0x7FC00000u;
    if (exponent == 0)
        return sign | tpw_f32_bits((float)fraction * 0x1p-9f);
    return sign | (exponent + 120u) << 23 | fraction << 20;
}

static __device__ __forceinline__ uint32_t tpw_e4m3_from_bits(uint32_t bits)
{
    const uint32_t sign = (bits & TPW_SIGN) >> 24, magnitude = bits & ~TPW_SIGN;
    if (magnitude > TPW_INFINITY)
        return sign | 0x7Fu;
    if (magnitude > 0x43E80000u) // 464: the tie between 448 and what would be 480 goes to 448
        return sign | 0x7Eu;
    if (magnitude < 0x3C800000u) // 2^-6
        return sign | tpw_subnormal_code(magnitude, -9);
    return sign | (((magnitude + 0x7FFFFu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3));
}

// F32 bits of an integer to nearest even, or to odd, which a second rounding cannot tell from the integer itself.
static __device__ __forceinline__ uint32_t tpw_bits_from_integer(int64_t value, bool to_odd)
{
    if (value == 0)
        return 0;
    const uint32_t sign = value < 0 ? TPW_SIGN : 0;
    const uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    const int top = 63 - __clzll((long long)magnitude);
    const uint32_t exponent = (uint32_t)(top + 126) << 23;
    if (top <= 23)
        return sign | (exponent + (uint32_t)(magnitude << (23 - top)));
    const int shift = top - 23;
    uint32_t significand = (uint32_t)(magnitude >> shift);
    const uint64_t remainder = magnitude & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
    if (to_odd)
        significand |= remainder != 0 ? 1u : 0u;
    else if (remainder > half || (remainder == half && (significand & 1u) != 0))
        significand++;
    return sign | (exponent + significand);
}

// Toward zero, to value_bits (31 or 63) bits and sign; saturates; NaN is 0.
static __device__ __forceinline__ int64_t tpw_integer_from_bits(uint32_t bits, int value_bits)
{
    const uint32_t magnitude = bits & ~TPW_SIGN;
    const bool negative = (bits & TPW_SIGN) != 0;
    const int exponent = (int)(magnitude >> 23) - 127;
    if (magnitude > TPW_INFINITY || exponent < 0)
        return 0;
    if (exponent >= value_bits) {
        const int64_t max = value_bits == 31 ? INT32_MAX : INT64_MAX;
        return negative ? -max - 1 : max;
    }
    const uint64_t significand = (magnitude & TPW_FRACTION) | TPW_HIDDEN;
    const int64_t value = (int64_t)(exponent >= 23 ? significand << (exponent - 23) : significand >> (23 - exponent));
    return negative ? -value : value;
}

static __device__ __forceinline__ bool tpw_is_integer(tpw_dtype dtype)
{
    return dtype == TPW_BOOL || dtype == TPW_I32 || dtype == TPW_I64;
}

// Bits of a float type as those of F32, exact.
static __device__ __forceinline__ uint32_t tpw_bits_of(tpw_dtype dtype, uint32_t raw)
{
    switch (dtype) {
    case TPW_F16:
        return tpw_bits_from_f16(raw);
    case TPW_BF16:
        return raw << 16;
    case TPW_E4M3:
        return tpw_bits_from_e4m3(raw);
    default:
        return raw;
    }
}

// F32 bits to any type.
static __device__ __forceinline__ uint64_t tpw_raw_from_bits(tpw_dtype dtype, uint32_t bits)
{
    switch (dtype) {
    case TPW_F16:
        return tpw_f16_from_bits(bits);
    case TPW_BF16:
        return tpw_bf16_from_f32(tpw_f32_from_bits(bits));
    case TPW_E4M3:
        return tpw_e4m3_from_bits(bits);
    case TPW_BOOL:
        return (bits & ~TPW_SIGN) != 0 ? 1 : 0;
    case TPW_I32:
        return (uint32_t)(int32_t)tpw_integer_from_bits(bits, 31);
    case TPW_I64:
        return (uint64_t)tpw_integer_from_bits(bits, 63);
    default:
        return bits;
    }
}

static __device__ __forceinline__ uint64_t tpw_raw_from_integer(tpw_dtype dtype, int64_t value)
{
    switch (dtype) {
    case TPW_BOOL:
        return value != 0 ? 1 : 0;
    case TPW_I32:
        value = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
        return (uint32_t)(int32_t)value;
    case TPW_I64:
        return (uint64_t)value;
    default:
        return tpw_raw_from_bits(dtype, tpw_bits_from_integer(value, dtype != TPW_F32));
    }
}

// One element by the rules of tpw_convert.
static __device__ __forceinline__ uint64_t tpw_convert_raw(tpw_dtype from, tpw_dtype to, uint64_t raw)
{
    if (from == to && from != TPW_BOOL)
        return raw;
    if (!tpw_is_integer(from))
        return tpw_raw_from_bits(to, tpw_bits_of(from, (uint32_t)raw));
    const int64_t value = from == TPW_BOOL ? (raw != 0 ? 1 : 0) : from == TPW_I32 ? (int32_t)raw : (int64_t)raw;
    return tpw_raw_from_integer(to, value);
}

#endif
