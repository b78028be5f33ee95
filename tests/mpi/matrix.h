/* One cell of an exactness matrix: how the work is cut; and its outcome: tokens and global digests.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_MATRIX_H
#define TPW_TESTS_MATRIX_H

#include <mpi.h>

#include "tpworker/mpi.h"

#define CELL_PROMPTS_MAX 8

typedef struct cell {
    int tp;
    int32_t chunk;
    tpw_compute compute;
    const char *isa;
    int32_t page;
    int32_t batch;
    int32_t rows;
} cell;

typedef struct workload {
    const char *model; /* folder, or NULL */
    const char *dummy;
    int32_t layers;
    int32_t vocab;
    int32_t prompts;
    int32_t lengths[CELL_PROMPTS_MAX];
    int32_t max_tokens;
    int32_t vocab_used; /* prompt tokens are hashed into [3, vocab_used) */
} workload;

typedef struct outcome {
    int32_t tokens[CELL_PROMPTS_MAX][64];
    int32_t token_count[CELL_PROMPTS_MAX];
    tpw_scope_digest *digests[CELL_PROMPTS_MAX];
    int32_t digest_count[CELL_PROMPTS_MAX];
} outcome;

/* Collective over `world`, of which the first cell->tp ranks run the workload while the others sleep. Every rank gets ERR-free
 * completion or the test fails; *out is filled on rank 0. */
void cell_run(const cell *c, const workload *w, MPI_Comm world, outcome *out);
void outcome_free(outcome *o);

/* Asserts that both are equal, naming the first difference. Returns tokens + digests compared (> 0). */
int outcome_compare(const outcome *a, const outcome *b, const char *what);

/* Runs all cells in order and compares each with the first of its compute type; prints one line. Collective. Returns comparisons
 * on rank 0 (0 elsewhere). */
int matrix_run(const char *name, const workload *w, const cell *cells, int count, MPI_Comm world);

/* "tp 4, chunk 7, bf16, avx2, page 64, batch 8, rows 256" */
void cell_name(const cell *c, char *text, size_t bytes);

#endif
