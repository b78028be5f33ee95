/* The inner loop of the digest, compiled once per instruction set. Sums of integers: all of them give the same bits, so that none
 * needs to be asked for. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BASE_DIGEST_ROWS_H
#define TPW_BASE_DIGEST_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Sum of fin((place + i * step) ^ bits of element i) over n contiguous elements of `size` bytes (1, 2, 4 or 8), unaligned ones too.
 * 0 for n < 1 and for another size. */
typedef uint64_t tpw_digest_row_fn(uint64_t place, uint64_t step, const void *data, size_t size, int64_t n);

/* NULL when this build or this CPU lacks it. */
tpw_digest_row_fn *tpw_digest_row_baseline(void);
tpw_digest_row_fn *tpw_digest_row_avx2(void);
tpw_digest_row_fn *tpw_digest_row_avx512(void);

#endif
