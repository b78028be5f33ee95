/* Digest keys and the digest of a strided block. SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include "base/digest_rows.h"

#if !TPW_DIGEST_X86
tpw_digest_row_fn *tpw_digest_row_avx2(void)
{
    return NULL;
}

tpw_digest_row_fn *tpw_digest_row_avx512(void)
{
    return NULL;
}
#endif

uint64_t tpw_digest_key(const char *name)
{
    uint64_t hash = 0xCBF29CE484222325ull; /* FNV-1a, 64 bit */
    for (const unsigned char *at = (const unsigned char *)name; *at != '\0'; at++)
        hash = (hash ^ *at) * 0x00000100000001B3ull;
    return tpw_digest_fin(hash);
}

/* Asking the CPU is a look at what the runtime noted at start: nothing is worth keeping here. */
static tpw_digest_row_fn *best_row(void)
{
    tpw_digest_row_fn *row = tpw_digest_row_avx512();
    if (row == NULL)
        row = tpw_digest_row_avx2();
    return row != NULL ? row : tpw_digest_row_baseline();
}

uint64_t tpw_digest_block(uint64_t key, const void *data, tpw_dtype dtype, int64_t rows, int64_t cols, int64_t stride,
                          uint64_t index0, uint64_t index_stride)
{
    size_t size = tpw_dtype_size(dtype);
    uint64_t step = TPW_DIGEST_STEP, sum = 0;
    tpw_digest_row_fn *row = best_row();
    if (rows <= 0 || cols <= 0)
        return 0;
    /* rows without gaps are one row, and so is a column without gaps: its indices are just further apart */
    if (stride == cols && (index_stride == (uint64_t)cols || cols == 1)) {
        step = cols == 1 ? index_stride * TPW_DIGEST_STEP : step;
        cols *= rows;
        rows = 1;
    }
    for (int64_t r = 0; r < rows; r++)
        sum += row(key + (index0 + (uint64_t)r * index_stride) * TPW_DIGEST_STEP, step,
                   (const unsigned char *)data + r * stride * (int64_t)size, size, cols);
    return sum;
}
