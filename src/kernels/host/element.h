/* One element of the float types as F32 and back: for host ops over strided arrays, where no row is contiguous.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_HOST_ELEMENT_H
#define TPW_KERNELS_HOST_ELEMENT_H

#include <stdint.h>

#include "base/dtype.h"

/* F32, BF16 or F16, exact. */
static inline float tpw_element_get(const void *data, tpw_dtype dtype, int64_t at)
{
    if (dtype == TPW_F32)
        return ((const float *)data)[at];
    uint16_t bits = ((const uint16_t *)data)[at];
    return dtype == TPW_BF16 ? tpw_bf16_to_f32(bits) : tpw_f16_to_f32(bits);
}

/* x as the type would keep it. */
static inline float tpw_element_round(float x, tpw_dtype dtype)
{
    if (dtype == TPW_F32)
        return x;
    return dtype == TPW_BF16 ? tpw_bf16_to_f32(tpw_bf16_from_f32(x)) : tpw_f16_to_f32(tpw_f16_from_f32(x));
}

/* One rounding to nearest even. */
static inline void tpw_element_set(void *data, tpw_dtype dtype, int64_t at, float x)
{
    if (dtype == TPW_F32)
        ((float *)data)[at] = x;
    else
        ((uint16_t *)data)[at] = dtype == TPW_BF16 ? tpw_bf16_from_f32(x) : tpw_f16_from_f32(x);
}

#endif
