/* Small runs of a model folder, stepped by hand, and fixed random numbers that are the same on all ranks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_SMALL_RUN_H
#define TPW_TESTS_SMALL_RUN_H

#include <mpi.h>

#include "tpworker/mpi.h"

/* Fixed random numbers. */
typedef struct small_random {
    uint64_t state;
} small_random;

uint64_t small_next(small_random *r);
int32_t small_below(small_random *r, int32_t n); /* 0..n-1 */

/* Replicated values are compared after every step; short waits become long ones, since test machines are slow. */
tpw_options small_options(const char *model, int32_t k, int32_t check_every);

/* Collective over MPI_COMM_WORLD; the test fails when it does not succeed. */
tpw_worker *small_open(const tpw_options *options);

/* Admits `count` sequences (rank 0) with ids first_id.., hashed prompts that depend on the index alone, and no end tokens. */
void small_admit(tpw_worker *worker, uint64_t first_id, const int32_t *lengths, int32_t count, int32_t max_tokens);

/* What came out, folded: sums of hashed events, so that two equal runs have equal results. */
typedef struct small_result {
    int64_t tokens;
    int32_t finished;
    uint64_t token_sum;  /* of (sequence, position, token) */
    uint64_t digest_sum; /* of (sequence, scope, layer, digest) */
} small_result;

/* One step with its events; ids are counted from first_id. result may be NULL. */
tpw_status small_step(tpw_worker *worker, uint64_t first_id, bool *busy, small_result *result, tpw_error *err);

/* Collective: asserts that a call ended because ranks differ, and that the text has both parts. The first rank to leave tells the others,
 * so that some may hear of the finding (ERR_PEER with its text) before their own exchange is over; not all. */
void small_diverged(tpw_status st, const tpw_error *err, const char *part1, const char *part2, const char *what);

/* Steps to the end; the test fails on an error. */
void small_finish(tpw_worker *worker, uint64_t first_id, small_result *result);

/* Asserts that both are equal and hold something. */
void small_equal(const small_result *a, const small_result *b, const char *what);

#endif
