/* A small cut of the speculation matrix, one cell for each value of an axis: what every change and the sanitizers run.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "mpi_test.h"

#include "speculate.h"

MPI_SUITE(speculation_cut);

#define VOCAB  2048
#define SCOPES (1 + 8 + 6 * 2 + 2)

MPI_TEST(speculation_cut, pocket, .timeout = 280)
{
    /* The second has room for all drafts of K = 8 and crosses position 16 with them, the third with its prompt. */
    const workload w = {.model = TPW_TEST_POCKET,
                        .prompts = 3,
                        .lengths = {1, 12, 17},
                        .max_tokens = 10,
                        .limits = {3, 10, 2},
                        .vocab_used = VOCAB};
    const struct {
        drafter_kind kind;
        int32_t k;
        cell cut;
    } cells[] = {{DRAFTER_MTP, 2, {1, 64, TPW_COMPUTE_BF16, "auto", 64, 1, 64}},
                 {DRAFTER_MTP, 5, {4, 7, TPW_COMPUTE_BF16, "auto", 16, 3, 64}},
                 {DRAFTER_RANDOM, 8, {2, 7, TPW_COMPUTE_BF16, "auto", 64, 3, 64}},
                 {DRAFTER_WRONG, 1, {1, 64, TPW_COMPUTE_BF16, "auto", 16, 3, 64}},
                 {DRAFTER_ORACLE, 4, {2, 7, TPW_COMPUTE_BF16, "auto", 16, 1, 64}},
                 {DRAFTER_PATTERN, 3, {1, 7, TPW_COMPUTE_F32, "auto", 16, 3, 64}}};
    const int count = sizeof cells / sizeof cells[0];
    bench b = {0};
    int compared = 0;

    cr_assert_eq(mt_size, 4);
    for (int i = 0; i < count; i++) {
        drafter d = {.kind = cells[i].kind};

        if (i == 0 || cells[i].cut.compute != cells[i - 1].cut.compute) {
            compared += b.tokens + b.digests + b.mtp_digests;
            bench_close(&b);
            bench_open(&b, &w, cells[i].cut.compute, VOCAB, NULL, MPI_COMM_WORLD);
        }
        bench_run(&b, &cells[i].cut, &d, cells[i].k);
    }
    compared += b.tokens + b.digests + b.mtp_digests;
    bench_close(&b);
    if (mt_rank == 0)
        cr_assert_eq(compared, count * (3 + 10 + 2 + 3 * SCOPES) + 3);
}
