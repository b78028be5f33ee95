/* One cell of an exactness matrix: how the work is cut and what is drafted; and its outcome: tokens and global digests.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_MATRIX_H
#define TPW_TESTS_MATRIX_H

#include <mpi.h>

#include "tpworker/mpi.h"

#define CELL_PROMPTS_MAX 16
#define CELL_TOKENS_MAX  128

typedef struct cell {
    int tp;
    int32_t chunk;
    tpw_compute compute;
    const char *isa;
    int32_t page;
    int32_t batch;
    int32_t rows;
} cell;

/* What a cell drafts, and what is done to its worker. All zero: nothing. */
typedef struct speculation {
    int32_t k;
    tpw_draft_function *drafter; /* NULL: the MTP module */
    void *drafter_data;
    bool poison;                        /* what is free is NaN */
    void (*loaded)(tpw_worker *worker); /* called on every rank behind load, to put a fault in; or NULL */
} speculation;

typedef struct workload {
    const char *model; /* folder, or NULL */
    const char *dummy;
    int32_t layers;
    int32_t vocab;
    int32_t prompts;
    int32_t lengths[CELL_PROMPTS_MAX];
    int32_t max_tokens;               /* of every prompt, or the largest of `limits` */
    int32_t limits[CELL_PROMPTS_MAX]; /* max_tokens by prompt; 0: the common one */
    int32_t vocab_used;               /* prompt tokens are hashed into [3, vocab_used) */
    int32_t end_ids[4];               /* end_count > 0: sequences stop at these instead of the model's own */
    int32_t end_count;                /* 0: sequences go on past end tokens */
} workload;

typedef struct outcome {
    int32_t tokens[CELL_PROMPTS_MAX][CELL_TOKENS_MAX];
    int32_t token_count[CELL_PROMPTS_MAX];
    tpw_finish finish[CELL_PROMPTS_MAX];
    int64_t position[CELL_PROMPTS_MAX]; /* where the state stands */
    tpw_scope_digest *digests[CELL_PROMPTS_MAX];
    int32_t digest_count[CELL_PROMPTS_MAX];
    tpw_stats stats;
} outcome;

/* Collective over `world`, of which the first cell->tp ranks run the workload while the others sleep. Every rank gets ERR-free
 * completion or the test fails; *out is filled on the ranks that ran. */
void cell_run(const cell *c, const workload *w, MPI_Comm world, outcome *out);
void cell_run_drafting(const cell *c, const speculation *s, const workload *w, MPI_Comm world, outcome *out);
void outcome_free(outcome *o);

/* The first difference between the first `prompts` prompts of two outcomes in words, or an empty text. Compared are tokens, ends, positions and the digests of all scopes
 * that `a` has; `b` may have "mtp" besides. Adds what was found equal to *tokens and *digests. */
void outcome_difference(const outcome *a, const outcome *b, int32_t prompts, char *text, size_t bytes, int *tokens,
                        int *digests);

/* Asserts that both are equal, naming the first difference. Returns tokens + digests compared (> 0). */
int outcome_compare(const outcome *a, const outcome *b, const char *what);

/* Runs all cells in order and compares each with the first of its compute type; prints one line. Collective. Returns comparisons
 * on rank 0 (0 elsewhere). */
int matrix_run(const char *name, const workload *w, const cell *cells, int count, MPI_Comm world);

/* "tp 4, chunk 7, bf16, avx2, page 64, batch 8, rows 256" */
void cell_name(const cell *c, char *text, size_t bytes);

#endif
