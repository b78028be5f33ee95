/* The state digest: order-free, additive over shards, the same on every machine for the same bytes.
 *
 *   fin(t): t *= 0xD1B54A32D192ED03; t ^= t >> 32; t *= 0xBF58476D1CE4E5B9; t ^= t >> 32; t *= 0x94D049BB133111EB;
 *           return t ^ (t >> 32)
 *   key(name) = fin(FNV-1a-64(name));  term = fin((key + i * 0x9E3779B97F4A7C15) ^ bits);  digest = sum mod 2^64
 *
 * with `bits` the zero-extended raw bits of the element and `i` its global index in the documented tensor shape.
 * Three multiplications, because fewer let sign flips or swapped neighbours cancel.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BASE_DIGEST_H
#define TPW_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/device_code.h"
#include "base/dtype.h"

#define TPW_DIGEST_VERSION 1
#define TPW_DIGEST_STEP    0x9E3779B97F4A7C15ull

TPW_HD uint64_t tpw_digest_fin(uint64_t t)
{
    t *= 0xD1B54A32D192ED03ull;
    t ^= t >> 32;
    t *= 0xBF58476D1CE4E5B9ull;
    t ^= t >> 32;
    t *= 0x94D049BB133111EBull;
    return t ^ (t >> 32);
}

TPW_HD uint64_t tpw_digest_term(uint64_t key, uint64_t index, uint64_t bits)
{
    return tpw_digest_fin((key + index * TPW_DIGEST_STEP) ^ bits);
}

/* key(name) of a scope such as "recurrent.0". */
uint64_t tpw_digest_key(const char *name);

/* Sum of the terms of a [rows, cols] block whose element (r, c) lies at data[r * stride + c] and has the global index
 * index0 + r * index_stride + c. Strides in elements, any alignment; 0 for an empty block. Local. */
uint64_t tpw_digest_block(uint64_t key, const void *data, tpw_dtype dtype, int64_t rows, int64_t cols, int64_t stride,
                          uint64_t index0, uint64_t index_stride);

#endif
