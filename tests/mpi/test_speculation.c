/* Drafts change nothing: every K, every drafter, on 1, 2 and 4 ranks, against one run without. Needs 4 ranks.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "mpi_test.h"

#include "backend.h"
#include "speculate.h"

MPI_SUITE(speculation);

#define VOCAB  2048
#define SCOPES (1 + 8 + 6 * 2 + 2) /* tokens, hidden, conv and recurrent of 6 layers, kv of 2 */
#define CELLS  (DRAFTER_KINDS * TPW_K_MAX)

/* The other axes turn with drafter and K so that every pair of values of two axes occurs (asserted below). */
typedef struct trial {
    drafter_kind kind;
    int32_t k;
    cell cut;
} trial;

static int list_trials(trial out[CELLS], tpw_compute compute)
{
    int n = 0, turn = compute == TPW_COMPUTE_F32 ? 1 : 0;

    for (int kind = 0; kind < DRAFTER_KINDS; kind++)
        for (int k = 1; k <= TPW_K_MAX; k++)
            out[n++] = (trial){(drafter_kind)kind,
                               k,
                               {.tp = 1 << (kind + k + turn) % 3,
                                .chunk = (kind / 2 + k + turn) % 2 ? 7 : 64,
                                .compute = compute,
                                .isa = "auto",
                                .page = (kind + k / 2 + turn) % 2 ? 16 : 64,
                                .batch = (kind + k + turn) % 2 ? 1 : 8,
                                .rows = 256}};
    return n;
}

/* Values of the six axes as small numbers. */
static void axes_of(const trial *t, int out[6])
{
    out[0] = (int)t->kind;
    out[1] = t->k - 1;
    out[2] = t->cut.tp / 2;
    out[3] = t->cut.chunk == 7;
    out[4] = t->cut.page == 16;
    out[5] = t->cut.batch == 1;
}

static void expect_all_pairs(const trial *trials, int count)
{
    const int values[6] = {DRAFTER_KINDS, TPW_K_MAX, 3, 2, 2, 2};

    for (int x = 0; x < 6; x++)
        for (int y = x + 1; y < 6; y++) {
            bool seen[TPW_K_MAX][TPW_K_MAX] = {{false}};
            int pairs = 0;

            for (int i = 0; i < count; i++) {
                int at[6];

                axes_of(&trials[i], at);
                pairs += !seen[at[x]][at[y]];
                seen[at[x]][at[y]] = true;
            }
            cr_assert_eq(pairs, values[x] * values[y], "axes %d and %d: %d pairs", x, y, pairs);
        }
}

static void run_matrix(tpw_compute compute)
{
    const workload w = {.model = TPW_TEST_POCKET,
                        .prompts = 8,
                        .lengths = {15, 1, 21, 2, 4, 9, 16, 67},
                        .max_tokens = 11,
                        .vocab_used = VOCAB};
    const int all = 8, single = 3, tokens = 11, batched = CELLS / 2;
    const cell anchor = {2, 64, compute, "auto", 64, 8, 256};
    drafter first = {.kind = DRAFTER_MTP};
    trial trials[CELLS];
    int prompts, mtp_prompts;
    bench b;

    MT_SKIP_F32_ON_GPU(compute);
    cr_assert(mt_size == 4 || test_on_gpu());
    cr_assert_eq(list_trials(trials, compute), CELLS);
    expect_all_pairs(trials, CELLS);
    bench_open(&b, &w, compute, VOCAB, NULL, MPI_COMM_WORLD);
    b.single = single;
    for (int tp = 1; tp <= 4; tp *= 2) { /* without drafts, but batched, cut and poisoned */
        drafter none = {0};
        const cell cut = {tp, 7, compute, "auto", 16, 8, 256};

        bench_run(&b, &cut, &none, 0);
    }
    bench_run(&b, &anchor, &first, 1);
    for (int i = 0; i < CELLS; i++) {
        drafter d = {.kind = trials[i].kind};

        bench_run(&b, &trials[i].cut, &d, trials[i].k);
    }
    prompts = (3 + 1 + batched) * all + (CELLS - batched) * single;
    mtp_prompts = TPW_K_MAX / 2 * (all + single);
    if (mt_rank == 0) {
        cr_assert_eq(b.cells, 3 + 1 + CELLS);
        cr_assert_eq(b.tokens, prompts * tokens);
        cr_assert_eq(b.digests, prompts * SCOPES);
        cr_assert_eq(b.mtp_digests, mtp_prompts);
        printf("speculation, %s: %d cells equal to K = 0: %d tokens, %d digests; %d mtp digests equal\n",
               compute == TPW_COMPUTE_F32 ? "f32" : "bf16", b.cells, b.tokens, b.digests, b.mtp_digests);
    }
    bench_close(&b);
}

MPI_TEST(speculation, matrix_bf16, .timeout = 280)
{
    run_matrix(TPW_COMPUTE_BF16);
}

MPI_TEST(speculation, matrix_f32, .timeout = 280)
{
    run_matrix(TPW_COMPUTE_F32);
}

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

MPI_TEST(speculation, patterns_bf16, .timeout = 280)
{
    run_patterns(TPW_COMPUTE_BF16);
}

MPI_TEST(speculation, patterns_f32, .timeout = 280)
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

MPI_TEST(speculation, ends_bf16, .timeout = 140)
{
    run_ends(TPW_COMPUTE_BF16);
}

MPI_TEST(speculation, ends_f32, .timeout = 140)
{
    run_ends(TPW_COMPUTE_F32);
}
