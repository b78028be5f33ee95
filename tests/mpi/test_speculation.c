/* Drafts change nothing: every K, every drafter, on 1, 2 and 4 ranks, against one run without. Needs 4 ranks.
 *
 * Every pair of values of two axes has a cell; with TPW_TEST_PRODUCT the whole product has. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "mpi_test.h"

#include "backend.h"
#include "speculate.h"

#ifndef TPW_TEST_PRODUCT
#define TPW_TEST_PRODUCT 0
#endif
#define SECONDS (TPW_TEST_PRODUCT ? 1480 : 280)

MPI_SUITE(speculation);

#define VOCAB    2048
#define SCOPES   (1 + 8 + 6 * 2 + 2) /* tokens, hidden, conv and recurrent of 6 layers, kv of 2 */
#define ALL      8                   /* prompts of a cell with batch 8 */
#define SINGLE   3                   /* of one with batch 1, which takes as long */
#define TOKENS   11                  /* of a prompt */
#define CUTS     12                  /* 3 rank counts, 2 batches, 2 pages */
#define TRIALS   (CUTS + DRAFTER_KINDS * TPW_K_MAX * CUTS)
#define PROGRESS 40 /* cells between two lines */

/* k = 0: without drafts, but batched, cut and poisoned. */
typedef struct trial {
    drafter_kind kind;
    int32_t k;
    cell cut;
} trial;

/* What a list of trials must come to. */
typedef struct totals {
    int begin; /* the first trial that is one of all pairs, or of the product */
    int cells;
    int prompts;
    int mtp; /* prompts whose "mtp" is compared: that of every run of the MTP drafter, whatever its K, with the first run's */
} totals;

/* The other axes turn with drafter and K so that every pair of values of two axes occurs (asserted below). */
static int list_pairs(trial out[TRIALS], tpw_compute compute, totals *expected)
{
    int n = 0, turn = compute == TPW_COMPUTE_F32 ? 1 : 0;

    for (int tp = 1; tp <= 4; tp *= 2)
        out[n++] = (trial){.cut = {tp, 7, compute, "auto", 16, 8, 256}};
    /* the first run of MTP must have all prompts */
    out[n++] = (trial){DRAFTER_MTP, 1, {2, 64, compute, "auto", 64, 8, 256}};
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
    *expected = (totals){4, 4 + 40, (4 + 20) * ALL + 20 * SINGLE, 4 * (ALL + SINGLE)};
    return n;
}

/* Ranks, batches and pages of one drafter and K. The prompts are cut by turns. */
static int list_cuts(trial *out, tpw_compute compute, drafter_kind kind, int32_t k)
{
    int n = 0, turn = (int)kind + k + (compute == TPW_COMPUTE_F32 ? 1 : 0);

    for (int i = 0; i < CUTS; i++) {
        int ranks = i / 4, batch = i / 2 % 2, page = i % 2;

        out[n++] = (trial){kind,
                           k,
                           {.tp = 1 << ranks,
                            .chunk = (ranks + batch + page + turn) % 2 ? 7 : 64,
                            .compute = compute,
                            .isa = "auto",
                            .page = page ? 16 : 64,
                            .batch = batch ? 1 : 8,
                            .rows = 256}};
    }
    return n;
}

static int list_product(trial out[TRIALS], tpw_compute compute, totals *expected)
{
    int n = list_cuts(out, compute, DRAFTER_MTP, 0);

    for (int kind = 0; kind < DRAFTER_KINDS; kind++)
        for (int k = 1; k <= TPW_K_MAX; k++)
            n += list_cuts(out + n, compute, (drafter_kind)kind, k);
    *expected = (totals){12, 12 + 480, (6 + 240) * (ALL + SINGLE), 8 * 6 * (ALL + SINGLE) - ALL};
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
                        .prompts = ALL,
                        .lengths = {15, 1, 21, 2, 4, 9, 16, 67},
                        .max_tokens = TOKENS,
                        .vocab_used = VOCAB};
    const char *name = compute == TPW_COMPUTE_F32 ? "f32" : "bf16";
    trial trials[TRIALS];
    totals expected;
    bench b;
    int n = TPW_TEST_PRODUCT ? list_product(trials, compute, &expected) : list_pairs(trials, compute, &expected);

    MT_SKIP_F32_ON_GPU(compute);
    cr_assert(mt_size == 4 || test_on_gpu());
    cr_assert_eq(n, expected.cells);
    expect_all_pairs(trials + expected.begin, n - expected.begin);
    bench_open(&b, &w, compute, VOCAB, NULL, MPI_COMM_WORLD);
    b.single = SINGLE;
    for (int i = 0; i < n; i++) {
        drafter d = {.kind = trials[i].kind};

        bench_run(&b, &trials[i].cut, &d, trials[i].k);
        if (mt_rank == 0 && (i + 1) % PROGRESS == 0)
            fprintf(stderr, "speculation, %s: %d of %d cells\n", name, i + 1, n);
    }
    if (mt_rank == 0) {
        cr_assert_eq(b.cells, expected.cells);
        cr_assert_eq(b.tokens, expected.prompts * TOKENS);
        cr_assert_eq(b.digests, expected.prompts * SCOPES);
        cr_assert_eq(b.mtp_digests, expected.mtp);
        printf("speculation, %s: %d cells equal to K = 0: %d tokens, %d digests; %d mtp digests equal\n", name, b.cells,
               b.tokens, b.digests, b.mtp_digests);
    }
    bench_close(&b);
}

MPI_TEST(speculation, matrix_bf16, .timeout = SECONDS)
{
    run_matrix(TPW_COMPUTE_BF16);
}

MPI_TEST(speculation, matrix_f32, .timeout = SECONDS)
{
    run_matrix(TPW_COMPUTE_F32);
}
