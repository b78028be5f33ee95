/* Random exchanges of arg-max and steps to accept, for the host's test and the comparison of backends.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_EXCHANGE_CASE_H
#define TPW_TESTS_EXCHANGE_CASE_H

#include "ops_test.h"

#define EXCHANGE_ROWS    40
#define EXCHANGE_RANKS   8
#define EXCHANGE_ENTRIES 24
#define EXCHANGE_TOKENS  (EXCHANGE_ENTRIES * (TPW_DRAFT_MAX + 1))

/* What one rank has found: few values, so that ranks tie; no number now and then. Ids ascend with ranks. */
static inline void exchange_fill(float *value, int32_t *id, int32_t rows, int rank, ops_random *r)
{
    for (int32_t i = 0; i < rows; i++) {
        const uint64_t what = ops_next(r) % 8;

        id[i] = what == 0 ? -1 : rank * 1000 + (int32_t)(ops_next(r) % 1000);
        value[i] = what == 0 ? -INFINITY : what == 1 ? -INFINITY : what == 2 ? -0.0f : (float)(ops_next(r) % 4) - 1.0f;
    }
}

/* Entries of all kinds. Drafts stand in tokens, arg-max in best; few different ones, so that they often agree. */
typedef struct accept_case {
    tpw_accept_entry entries[EXCHANGE_ENTRIES];
    int32_t tokens[EXCHANGE_TOKENS];
    int32_t best[EXCHANGE_TOKENS];
    int32_t end_ids[TPW_ENDS_MAX];
    int32_t end_count;
} accept_case;

static inline void accept_fill(accept_case *c, ops_random *r)
{
    int32_t row = 0, best = 0;

    c->end_count = (int32_t)(ops_next(r) % (TPW_ENDS_MAX + 1));
    for (int i = 0; i < TPW_ENDS_MAX; i++)
        c->end_ids[i] = i == 3 ? 2 : 100 + i;
    for (int32_t i = 0; i < EXCHANGE_TOKENS; i++) {
        c->tokens[i] = (int32_t)(ops_next(r) % 8) == 0 ? (int32_t)(ops_next(r) % 4) : 1;
        c->best[i] = (int32_t)(ops_next(r) % 8) == 0 ? (int32_t)(ops_next(r) % 4) - 1 : 1;
    }
    for (int32_t i = 0; i < EXCHANGE_ENTRIES; i++) {
        const bool chunk = ops_next(r) % 4 == 0, logits = !chunk || ops_next(r) % 2 == 0;
        const int32_t emitted = (int32_t)(ops_next(r) % 20);

        c->entries[i] = (tpw_accept_entry){.row0 = row,
                                           .rows = chunk ? 1 + (int32_t)(ops_next(r) % 30) : 1,
                                           .drafts = chunk ? 0 : (int32_t)(ops_next(r) % (TPW_DRAFT_MAX + 1)),
                                           .draft0 = i * TPW_DRAFT_MAX,
                                           .best0 = logits ? best : -1,
                                           .ignore_eos = ops_next(r) % 2 == 0,
                                           .emitted = emitted,
                                           .max_tokens = emitted + 1 + (int32_t)(ops_next(r) % 9)};
        row += c->entries[i].rows + c->entries[i].drafts;
        best += logits ? 1 + c->entries[i].drafts : 0;
    }
}

#endif
