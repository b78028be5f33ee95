/* Element types and the exact conversions among them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BASE_DTYPE_H
#define TPW_BASE_DTYPE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/device_code.h"
#include "base/error.h"

typedef enum tpw_dtype {
    TPW_F32,
    TPW_F16,
    TPW_BF16,
    TPW_E4M3, /* OCP float8 e4m3fn: no infinity, NaN = 0x7F and 0xFF, largest finite 448 */
    TPW_BOOL, /* one byte; any non-zero byte reads as true */
    TPW_I32,
    TPW_I64,
    TPW_DTYPE_COUNT
} tpw_dtype;

size_t tpw_dtype_size(tpw_dtype dtype);      /* bytes an element; 0 outside the list */
const char *tpw_dtype_name(tpw_dtype dtype); /* "F32", "BF16", "E4M3", ... ; "?" outside the list */

TPW_HD uint32_t tpw_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

TPW_HD float tpw_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* BF16 -> F32 is exact; F32 -> BF16 rounds to nearest even, keeps infinities, NaN stays NaN (made quiet). */
TPW_HD float tpw_bf16_to_f32(uint16_t b)
{
    return tpw_f32_from_bits((uint32_t)b << 16);
}

TPW_HD uint16_t tpw_bf16_from_f32(float x)
{
    uint32_t u = tpw_f32_bits(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)((u >> 16) | 0x0040u);
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

float tpw_f16_to_f32(uint16_t h);
uint16_t tpw_f16_from_f32(float x); /* nearest even, subnormals exact, overflow to infinity */
float tpw_e4m3_to_f32(uint8_t b);
/* Nearest even; NaN stays NaN and keeps its sign. 448 < |x| <= 464 rounds to 448 like any other value. What would round
 * past 448, |x| > 464 and the infinities, is cut to +-448, and then *saturated (may be NULL) is incremented by 1. */
uint8_t tpw_e4m3_from_f32(float x, size_t *saturated);

/* A strided view of n elements: element i is at data + i * stride * size. Strides are in elements, may be negative. */
typedef struct tpw_strided {
    void *data;
    tpw_dtype dtype;
    ptrdiff_t stride;
} tpw_strided;

/* dst[i] = convert(src[i]) for i < count; any pair of dtypes, any alignment, one rounding. Local. Rules: equal dtypes
 * copy the raw bits, except that BOOL becomes 0 or 1; float to float as above; float to integer truncates toward zero
 * and saturates, NaN becomes 0; integer to float rounds to nearest even from the integer itself, then overflows or
 * saturates as above; to BOOL: 1 for any non-zero value (NaN too), 0 for +-0; I64 to I32 saturates. Stride 0 repeats
 * one element. The views must not overlap unless they are identical.
 * *saturated (may be NULL) receives how many values were cut to the largest or smallest value of the target: to E4M3 as
 * above, to I32 and I64 all beyond their range, infinities included. NaN, and overflow to an infinity, are not counted.
 * Errors: ERR_ARGUMENT for a NULL pointer with count > 0, an unknown dtype, or a view larger than the address space;
 * then nothing is written. */
tpw_status tpw_convert(tpw_strided dst, tpw_strided src, size_t count, size_t *saturated,
                       tpw_error *err) TPW_MUST_CHECK;

#endif
