/* Decides which rows a step runs. Pure: the same sequences give the same plan on every rank.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_SCHEDULE_H
#define TPW_WORKER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* What the scheduler sees of a running sequence. */
typedef struct tpw_candidate {
    int64_t known; /* tokens known: prompt + emitted */
    int64_t pos;   /* committed mark: tokens already run; < known */
} tpw_candidate;

/* What it decided for one of them. */
typedef struct tpw_planned {
    int32_t sequence; /* index of the candidate */
    int32_t rows;
    bool logits; /* the last row gives the next token */
} tpw_planned;

typedef struct tpw_schedule_limits {
    int32_t rows_max;
    int32_t chunk;
} tpw_schedule_limits;

/* Decoding sequences (one row left) first, then one prompt chunk a sequence in the given (admission) order while rows are
 * left. Writes at most `count` entries to out and returns how many; *rows is their sum, at most rows_max. */
int32_t tpw_schedule(const tpw_candidate *candidates, int32_t count, tpw_schedule_limits limits, tpw_planned *out,
                     int32_t *rows);

#endif
