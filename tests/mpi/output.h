/* What came out of a sequence of a real model, and the same sequence alone, to compare it with.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_OUTPUT_H
#define TPW_TESTS_OUTPUT_H

#include "tpworker/mpi.h"

#define OUTPUT_TOKENS 64

typedef struct output {
    int32_t tokens[OUTPUT_TOKENS];
    int32_t count;
    bool over;
    tpw_finish finish;
    int64_t position;
    tpw_scope_digest *digests; /* owned */
    int32_t digest_count;
} output;

void output_free(output *o);

/* Adds an event to the outputs of sequences 0..count - 1, by id. Fails the test for an id outside, an event behind the end or a token
 * out of its place. */
void output_take(output *outputs, int32_t count, const tpw_event *event);

/* Asserts OK, with the library's own text. */
void must(tpw_status st, const char *what, const tpw_error *err);

/* Collective. A loaded worker. */
tpw_worker *worker_open(const tpw_options *options, MPI_Comm comm);
/* Collective. Finalizes and destroys. */
void worker_close(tpw_worker *worker);

/* Rank 0: admits; elsewhere nothing. */
void worker_admit(tpw_worker *worker, uint64_t id, const int32_t *ids, int32_t count, int32_t max_tokens);

/* Collective. Steps once and takes all events. Returns busy. */
bool worker_step(tpw_worker *worker, output *outputs, int32_t count);

/* Collective. Runs one sequence of id 0 to its end on an idle worker. */
void worker_run(tpw_worker *worker, const int32_t *ids, int32_t count, int32_t max_tokens, output *out);

/* Collective. The same in a fresh worker of one sequence at K = 0. */
void solo_run(const tpw_options *options, MPI_Comm comm, const int32_t *ids, int32_t count, int32_t max_tokens,
              output *out);

/* Asserts equal tokens and digests; "mtp" is compared only when both have it and `mtp` is set. Returns how many things were
 * compared, > 0. */
int output_compare(const output *expected, const output *got, bool mtp, const char *what);

/* `count` tokens in [3, vocab), by seed. */
void prompt_fill(int32_t *ids, int32_t count, int32_t vocab, uint64_t seed);

#endif
