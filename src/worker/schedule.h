/* Decides which rows a step runs. Pure: the same sequences give the same plan on every rank.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_SCHEDULE_H
#define TPW_WORKER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* What the scheduler sees of a running sequence. */
typedef struct tpw_candidate {
    int64_t known;  /* tokens known: prompt + emitted */
    int64_t pos;    /* committed mark: tokens already run; < known */
    int32_t drafts; /* most drafts to verify with its certain token; only a decoding sequence has any */
} tpw_candidate;

/* What it decided for one of them. */
typedef struct tpw_planned {
    int32_t sequence; /* index of the candidate */
    int32_t rows;     /* certain rows: a prompt chunk, or 1 */
    int32_t drafts;   /* further rows that hold drafts */
    bool logits;      /* the rows from the last certain one on give tokens */
} tpw_planned;

typedef struct tpw_schedule_limits {
    int32_t rows_max;
    int32_t chunk;
} tpw_schedule_limits;

/* Decoding sequences (one certain row) first, with their drafts, then one prompt chunk a sequence in the given (admission) order while
 * rows are left. rows_max holds every decoding sequence with its drafts (the options are checked for that). Writes at
 * most `count` entries to out and returns how many; *rows is their sum, at most rows_max. */
int32_t tpw_schedule(const tpw_candidate *candidates, int32_t count, tpw_schedule_limits limits, tpw_planned *out,
                     int32_t *rows);

#endif
