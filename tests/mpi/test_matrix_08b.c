/* Eight ranks against one on the 0.8B shape: KV heads replicated four times, MLP shards that cut 128 blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_test.h"

#include "matrix.h"

MPI_SUITE(shapes_08b);

MPI_TEST(shapes_08b, eight_ranks, .timeout = 400)
{
    const workload w = {.dummy = "qwen3.5-0.8b",
                        .layers = 8,
                        .vocab = 4099, /* not a multiple of 8: the last part is shorter */
                        .prompts = 2,
                        .lengths = {5, 33},
                        .max_tokens = 6,
                        .vocab_used = 4099};
    const cell cells[] = {{1, 64, TPW_COMPUTE_BF16, "auto", 64, 1, 256},
                          {8, 7, TPW_COMPUTE_BF16, "auto", 16, 2, 256},
                          {4, 64, TPW_COMPUTE_BF16, "auto", 64, 2, 256},
                          {1, 64, TPW_COMPUTE_F32, "auto", 64, 1, 256},
                          {8, 64, TPW_COMPUTE_F32, "auto", 64, 2, 256}};
    int compared;

    cr_assert_eq(mt_size, 8);
    compared = matrix_run("0.8b, 8 layers", &w, cells, 5, MPI_COMM_WORLD);
    if (mt_rank == 0)
        cr_assert_eq(compared, 3 * 2 * (6 + 1 + 8 + 6 * 2 + 2));
}
