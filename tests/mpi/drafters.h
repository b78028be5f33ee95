/* Drafters for tests: from always right to always wrong, and every pattern between. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_DRAFTERS_H
#define TPW_TESTS_DRAFTERS_H

#include "matrix.h"

#define PATTERN_K_MAX \
    4 /* up to here every pattern of right and wrong is made; beyond, every length of a right prefix */

/* What a run without drafts gives: the tokens that a perfect drafter proposes. */
typedef struct truth {
    int32_t lengths[CELL_PROMPTS_MAX]; /* of the prompts */
    int32_t count[CELL_PROMPTS_MAX];
    int32_t tokens[CELL_PROMPTS_MAX][CELL_TOKENS_MAX];
    int32_t vocab;
} truth;

typedef enum drafter_kind {
    DRAFTER_MTP,     /* none of ours: the checkpoint's module */
    DRAFTER_RANDOM,  /* hash of sequence and position; at every third position fewer than asked for, even none */
    DRAFTER_WRONG,   /* the true token + 1: nothing is ever accepted */
    DRAFTER_ORACLE,  /* the true tokens: everything is accepted */
    DRAFTER_PATTERN, /* right and wrong by pattern */
    DRAFTER_KINDS
} drafter_kind;

/* How a pattern is chosen: the one used least at this position mod 16, or one and the same all through a sequence. */
typedef enum pattern_choice { PATTERN_LEAST_USED, PATTERN_BY_SEQUENCE } pattern_choice;

/* A drafter and what it counted. Zero it, set the first four, and hand it to every rank's worker: ranks that are asked the same count the
 * same. */
typedef struct drafter {
    drafter_kind kind;
    const truth *truth;
    int32_t k; /* K of the worker */
    pattern_choice choice;
    int64_t drafted;
    int64_t right;                        /* leading true tokens proposed: what must be accepted */
    int32_t used[1 << PATTERN_K_MAX][16]; /* full runs by pattern and position of their first row mod 16 */
    int32_t asked;                        /* drafts of the last call */
    int32_t wrong_at;                     /* index of the first of them that was wrong; asked: none */
    int32_t last[TPW_K_MAX];              /* the drafts themselves */
} drafter;

const char *drafter_name(drafter_kind kind);
int32_t drafter_patterns(int32_t k); /* 2^k, or k + 1 above PATTERN_K_MAX */

/* The tpw_draft_function; data is a drafter. */
int32_t drafter_propose(void *data, uint64_t id, const int32_t *tokens, int32_t count, int32_t k, int32_t *drafts);

/* The speculation of k drafts by `d`; k = 0: none. */
speculation drafter_speculation(drafter *d, int32_t k);

/* Collective: the tokens of rank 0's outcome for all ranks. */
void truth_share(truth *t, const outcome *o, const workload *w, int32_t vocab, MPI_Comm world);

#endif
