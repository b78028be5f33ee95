/* Drafts change nothing at the 27B shape with 4 layers: what toy sizes do not show. Needs 4 ranks, or 8, where two share a KV head.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "mpi_test.h"

#include "backend.h"
#include "speculate.h"

MPI_SUITE(speculation_27b);

#define VOCAB  4096
#define K      3
#define SCOPES (1 + 4 + 3 * 2 + 1) /* tokens, hidden, conv and recurrent of 3 layers, kv of 1 */

MPI_TEST(speculation_27b, bf16, .timeout = 680)
{
    const workload w = {.dummy = "qwen3.5-27b",
                        .layers = 4,
                        .vocab = VOCAB,
                        .prompts = 3,
                        .lengths = {13, 2, 7}, /* the first goes across position 16 */
                        .max_tokens = 5,
                        .limits = {5, 4, 5},
                        .vocab_used = VOCAB};
    const int most = mt_size < 8 ? 4 : 8;
    const struct {
        drafter_kind kind;
        cell cut;
    } cells[] = {{DRAFTER_MTP, {1, 64, TPW_COMPUTE_BF16, "auto", 64, 8, 64}},
                 {DRAFTER_MTP, {2, 7, TPW_COMPUTE_BF16, "auto", 16, 8, 64}},
                 {DRAFTER_MTP, {most, 7, TPW_COMPUTE_BF16, "auto", 16, 1, 64}},
                 {DRAFTER_ORACLE, {2, 7, TPW_COMPUTE_BF16, "auto", 64, 1, 64}},
                 {DRAFTER_PATTERN, {most, 64, TPW_COMPUTE_BF16, "auto", 64, 8, 64}}};
    const int count = sizeof cells / sizeof cells[0], batched = 3, all = 3, single = 2;
    const int prompts = batched * all + (count - batched) * single;
    bench b;

    cr_assert(mt_size == 4 || mt_size == 8 || test_on_gpu());
    bench_open(&b, &w, TPW_COMPUTE_BF16, VOCAB, NULL, MPI_COMM_WORLD);
    b.single = single;
    for (int i = 0; i < count; i++) {
        drafter d = {.kind = cells[i].kind};

        bench_run(&b, &cells[i].cut, &d, K);
    }
    if (mt_rank == 0) {
        cr_assert_eq(b.cells, count);
        cr_assert_eq(b.tokens, batched * (5 + 4 + 5) + (count - batched) * (5 + 4));
        cr_assert_eq(b.digests, prompts * SCOPES);
        cr_assert_eq(b.mtp_digests, all + single);
        printf("27b, 4 layers, up to %d ranks: %d cells equal to K = 0: %d tokens, %d digests; %d mtp digests equal\n",
               most, b.cells, b.tokens, b.digests, b.mtp_digests);
    }
    bench_close(&b);
}
