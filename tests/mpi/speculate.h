/* Compares runs with drafts with one run without: tokens, ends, and the digests of every scope.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_SPECULATE_H
#define TPW_TESTS_SPECULATE_H

#include "drafters.h"

/* A workload, what it gives without drafts, and what was found equal to that so far. Counts are those of rank 0. */
typedef struct bench {
    const workload *work;
    int32_t single; /* prompts of a cell with batch 1, where they take long; 0: all. May be set behind bench_open */
    MPI_Comm world;
    int rank;
    truth truth;
    outcome reference; /* K = 0, batch 1, one rank, whole prompts */
    outcome mtp;       /* the first run of the MTP drafter: "mtp" is a function of the committed tokens too */
    bool has_mtp;
    int cells;
    int tokens;
    int digests;
    int mtp_digests;
} bench;

/* Collective. Runs the reference. `truth` are the tokens that drafters know; NULL: those of the reference. */
void bench_open(bench *b, const workload *w, tpw_compute compute, int32_t vocab, const truth *known, MPI_Comm world);
void bench_close(bench *b);

/* Collective. Runs a cell with `d` and K = k (0: none) and asserts that it is equal to the reference, that it drafted, and that exactly
 * what was right was accepted. */
void bench_run(bench *b, const cell *c, drafter *d, int32_t k);

#endif
