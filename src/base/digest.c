/* Digest keys and the digest of a strided block. SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <string.h>

uint64_t tpw_digest_key(const char *name)
{
    uint64_t hash = 0xCBF29CE484222325ull; /* FNV-1a, 64 bit */
    for (const unsigned char *at = (const unsigned char *)name; *at != '\0'; at++)
        hash = (hash ^ *at) * 0x00000100000001B3ull;
    return tpw_digest_fin(hash);
}

/* One function a size, so that each loop is a plain one: three multiplications an element and no branch. `place` is
 * key + i * STEP, kept by addition. Elements may be unaligned. */
static uint64_t row8(uint64_t place, const unsigned char *at, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++, place += TPW_DIGEST_STEP)
        sum += tpw_digest_fin(place ^ at[i]);
    return sum;
}

static uint64_t row16(uint64_t place, const unsigned char *at, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++, place += TPW_DIGEST_STEP) {
        uint16_t bits;
        memcpy(&bits, at + i * 2, sizeof bits);
        sum += tpw_digest_fin(place ^ bits);
    }
    return sum;
}

static uint64_t row32(uint64_t place, const unsigned char *at, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++, place += TPW_DIGEST_STEP) {
        uint32_t bits;
        memcpy(&bits, at + i * 4, sizeof bits);
        sum += tpw_digest_fin(place ^ bits);
    }
    return sum;
}

static uint64_t row64(uint64_t place, const unsigned char *at, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++, place += TPW_DIGEST_STEP) {
        uint64_t bits;
        memcpy(&bits, at + i * 8, sizeof bits);
        sum += tpw_digest_fin(place ^ bits);
    }
    return sum;
}

uint64_t tpw_digest_block(uint64_t key, const void *data, tpw_dtype dtype, int64_t rows, int64_t cols, int64_t stride,
                          uint64_t index0, uint64_t index_stride)
{
    int64_t size = (int64_t)tpw_dtype_size(dtype);
    uint64_t sum = 0;
    if (cols <= 0)
        return 0;
    for (int64_t r = 0; r < rows; r++) {
        const unsigned char *at = (const unsigned char *)data + r * stride * size;
        uint64_t place = key + (index0 + (uint64_t)r * index_stride) * TPW_DIGEST_STEP;
        switch (size) {
        case 1:
            sum += row8(place, at, cols);
            break;
        case 2:
            sum += row16(place, at, cols);
            break;
        case 4:
            sum += row32(place, at, cols);
            break;
        case 8:
            sum += row64(place, at, cols);
            break;
        default: /* not a dtype: nothing that could be read */
            return 0;
        }
    }
    return sum;
}
