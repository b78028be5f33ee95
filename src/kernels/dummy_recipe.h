/* One element of a dummy tensor, by integer arithmetic alone, for the host and for kernels: model/dummy.h says which
 * recipe a tensor has, and why. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_DUMMY_RECIPE_H
#define TPW_KERNELS_DUMMY_RECIPE_H

#include <stdint.h>

#include "base/digest.h"
#include "base/dtype.h"

typedef struct tpw_dummy_recipe {
    uint64_t key; /* tpw_digest_key(name) */
    int64_t cols; /* of the whole tensor */
    tpw_dtype dtype;
    int32_t low;
    uint32_t span;
    int32_t exponent;
} tpw_dummy_recipe;

/* key + i * STEP of global element (row, col); neighbours in a row are TPW_DIGEST_STEP apart, and h = fin(place). */
TPW_HD uint64_t tpw_dummy_place(const tpw_dummy_recipe *recipe, int64_t row, int64_t col)
{
    uint64_t index = (uint64_t)row * (uint64_t)recipe->cols + (uint64_t)col;
    return recipe->key + index * TPW_DIGEST_STEP;
}

/* 2^exponent, made from its bits: no libm. */
TPW_HD float tpw_dummy_unit(const tpw_dummy_recipe *recipe)
{
    return tpw_f32_from_bits((uint32_t)(127 + recipe->exponent) << 23);
}

TPW_HD uint8_t tpw_dummy_e4m3(uint64_t h)
{
    return (uint8_t)(((h >> 63) << 7) | (((h & 63) != 0 ? 32u : 0u) + ((h >> 8) & 31u)));
}

/* The value of an F32 or BF16 tensor, exact in F32. */
TPW_HD float tpw_dummy_value(const tpw_dummy_recipe *recipe, uint64_t h, float unit)
{
    int32_t n = recipe->low + (int32_t)(((h >> 32) * recipe->span) >> 32);
    return (float)n * unit;
}

#endif
