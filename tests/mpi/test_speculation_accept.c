/* What an accepted run may be: every pattern of right and wrong drafts, and end tokens and limits inside it. Needs 4 ranks.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "mpi_test.h"

#include "backend.h"
#include "speculate.h"

MPI_SUITE(speculation_accept);

#define VOCAB  2048
#define SCOPES (1 + 8 + 6 * 2 + 2) /* tokens, hidden, conv and recurrent of 6 layers, kv of 2 */

/* Runs that were full (k = K) by pattern and position mod 16: the least of all, and the sum. */
static int32_t least_used(const drafter *d, int32_t *sum)
{
    int32_t least = INT32_MAX;

    *sum = 0;
    for (int32_t i = 0; i < drafter_patterns(d->k); i++)
        for (int at = 0; at < 16; at++) {
            least = d->used[i][at] < least ? d->used[i][at] : least;
            *sum += d->used[i][at];
        }
    return least;
}

/* Every pattern of right and wrong drafts up to K = 4 at every position mod 16; then the same pattern over and over. */
static void run_patterns(tpw_compute compute)
{
    const workload w = {.model = TPW_TEST_POCKET,
                        .prompts = 16,
                        .lengths = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                        .max_tokens = 52,
                        .vocab_used = VOCAB};
    bench b;
    int32_t sum, runs = 0;

    MT_SKIP_F32_ON_GPU(compute);
    cr_assert(mt_size == 4 || test_on_gpu());
    bench_open(&b, &w, compute, VOCAB, NULL, MPI_COMM_WORLD);
    for (int32_t k = 1; k <= PATTERN_K_MAX; k++) {
        const cell cut = {1 << k % 3, 64, compute, "auto", 16, 8, 256};
        drafter least = {.kind = DRAFTER_PATTERN}, same = {.kind = DRAFTER_PATTERN, .choice = PATTERN_BY_SEQUENCE};

        bench_run(&b, &cut, &least, k);
        if (mt_rank == 0)
            cr_assert_geq(least_used(&least, &sum), 1, "K %d: a pattern was never made at some position", k);
        if (k < PATTERN_K_MAX)
            continue;
        bench_run(&b, &cut, &same, k);
        for (int32_t i = 0; i < drafter_patterns(k) && mt_rank == 0; i++) {
            runs = 0;
            for (int at = 0; at < 16; at++)
                runs += same.used[i][at];
            cr_assert_geq(runs, 10, "pattern %d was made only %d times in a row", i, runs);
        }
    }
    if (mt_rank == 0) {
        cr_assert_eq(b.cells, PATTERN_K_MAX + 1);
        cr_assert_eq(b.tokens, b.cells * 16 * 52);
        cr_assert_eq(b.digests, b.cells * 16 * SCOPES);
        printf("patterns, %s: %d tokens and %d digests equal\n", compute == TPW_COMPUTE_F32 ? "f32" : "bf16", b.tokens,
               b.digests);
    }
    bench_close(&b);
}

MPI_TEST(speculation_accept, patterns_bf16, .timeout = 280)
{
    run_patterns(TPW_COMPUTE_BF16);
}

MPI_TEST(speculation_accept, patterns_f32, .timeout = 280)
{
    run_patterns(TPW_COMPUTE_F32);
}

/* Where a sequence must end, from the tokens that it has without end tokens. */
static int32_t expected_end(const truth *t, const workload *w, int32_t p, tpw_finish *why)
{
    int32_t limit = w->limits[p] > 0 ? w->limits[p] : w->max_tokens;

    for (int32_t i = 0; i < limit; i++)
        for (int32_t e = 0; e < w->end_count; e++)
            if (t->tokens[p][i] == w->end_ids[e]) {
                *why = TPW_FINISH_STOP;
                return i + 1;
            }
    *why = TPW_FINISH_LENGTH;
    return limit;
}

/* End tokens and limits of 1, 2 and 3 inside an accepted run cut it where one-token steps end. The drafters know how the text would go on
 * behind an end token, so that right drafts lie behind it. */
static void run_ends(tpw_compute compute)
{
    workload w = {.model = TPW_TEST_POCKET,
                  .prompts = 8,
                  .lengths = {1, 15, 7, 3, 16, 30, 12, 5},
                  .max_tokens = 16,
                  .vocab_used = VOCAB};
    const int32_t limits[8] = {1, 2, 3, 0, 0, 0, 0, 0}, ks[] = {1, 2, 3, 4, 8};
    const drafter_kind kinds[] = {DRAFTER_ORACLE, DRAFTER_PATTERN, DRAFTER_MTP};
    int32_t tokens = 0, stops = 0;
    truth all;
    bench b;

    MT_SKIP_F32_ON_GPU(compute);
    cr_assert(mt_size == 4 || test_on_gpu());
    bench_open(&b, &w, compute, VOCAB, NULL, MPI_COMM_WORLD);
    all = b.truth;
    bench_close(&b);
    memcpy(w.limits, limits, sizeof limits);
    for (int32_t e = 0; e < 4; e++) /* of prompts 3..6, at places 4, 6, 8 and 10 */
        w.end_ids[w.end_count++] = all.tokens[3 + e][4 + 2 * e];
    bench_open(&b, &w, compute, VOCAB, &all, MPI_COMM_WORLD);
    for (int32_t p = 0; p < w.prompts && mt_rank == 0; p++) {
        tpw_finish why;
        int32_t n = expected_end(&all, &w, p, &why);

        cr_assert_eq(b.reference.token_count[p], n, "prompt %d: %d tokens instead of %d", p, b.reference.token_count[p],
                     n);
        cr_assert_eq(b.reference.finish[p], why);
        cr_assert_eq(b.reference.position[p], w.lengths[p] + n - 1);
        tokens += n;
        stops += why == TPW_FINISH_STOP;
    }
    for (int i = 0; i < 15; i++) {
        const cell cut = {1 << i % 3, i % 2 ? 7 : 64, compute, "auto", i / 2 % 2 ? 16 : 64, i / 3 % 2 ? 1 : 8, 256};
        drafter d = {.kind = kinds[i / 5]};

        bench_run(&b, &cut, &d, ks[i % 5]);
    }
    if (mt_rank == 0) {
        cr_assert_geq(stops, 4);
        cr_assert_eq(b.cells, 15);
        cr_assert_eq(b.tokens, 15 * tokens);
        cr_assert_eq(b.digests, 15 * 8 * SCOPES);
        cr_assert_eq(b.mtp_digests, 4 * 8);
        printf("ends, %s: %d of 8 stop at an end token; %d tokens and %d digests equal\n",
               compute == TPW_COMPUTE_F32 ? "f32" : "bf16", stops, b.tokens, b.digests);
    }
    bench_close(&b);
}

MPI_TEST(speculation_accept, ends_bf16, .timeout = 140)
{
    run_ends(TPW_COMPUTE_BF16);
}

MPI_TEST(speculation_accept, ends_f32, .timeout = 140)
{
    run_ends(TPW_COMPUTE_F32);
}
