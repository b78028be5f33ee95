/* Which part of an axis belongs to a rank. Pure. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_SHARD_H
#define TPW_TP_SHARD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tpw_span {
    int32_t begin;
    int32_t count;
} tpw_span;

bool tpw_tp_size_ok(int size); /* 1, 2, 4 or 8 */

/* Equal parts; count = 0 and begin = -1 when `size` does not divide `total`. */
tpw_span tpw_span_even(int32_t total, int rank, int size);

/* Parts of ceil(total/size), the last ones shorter or empty (begin = total). For the vocabulary. */
tpw_span tpw_span_ceil(int32_t total, int rank, int size);

/* Heads that may be replicated: even parts when size divides heads; one head, rank div (size/heads), when heads divides size;
 * else count = 0, begin = -1. *owner is true on the lowest rank that holds the part. */
tpw_span tpw_span_heads(int32_t heads, int rank, int size, bool *owner);

#endif
