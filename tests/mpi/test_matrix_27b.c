/* The exactness matrix at the 27B shape with 4 layers: toy sizes do not show these faults. Needs 4 ranks, or 8, where two share a KV head.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_test.h"

#include "backend.h"
#include "kernels/host/vec.h"
#include "matrix.h"

MPI_SUITE(shapes_27b);

#define SHAPE  .dummy = "qwen3.5-27b", .layers = 4, .vocab = 4096, .vocab_used = 4096
#define SCOPES (1 + 4 + 3 * 2 + 1) /* tokens, hidden, conv and recurrent of 3 layers, kv of 1 */

/* The most ranks of a cell. */
static int most_ranks(void)
{
    return mt_size < 8 ? 4 : 8;
}

static void cut(const char *name, tpw_compute compute)
{
    const workload w = {SHAPE, .prompts = 2, .lengths = {3, 21}, .max_tokens = 4};
    const cell cells[] = {{1, 64, compute, "auto", 64, 1, 256},
                          {2, 64, compute, "auto", 64, 2, 256},
                          {most_ranks(), 7, compute, "auto", 16, 2, 256},
                          {1, 7, compute, "auto", 64, 2, 256},
                          {1, 1, compute, "auto", 64, 1, 256}};
    /* The cuts of one rank take half of the time, and f32 has them in test_matrix. */
    const int count = compute == TPW_COMPUTE_F32 ? 3 : 5;
    int compared;

    MT_SKIP_F32_ON_GPU(compute);
    cr_assert(mt_size == 4 || mt_size == 8 || test_on_gpu());
    compared = matrix_run(name, &w, cells, count, MPI_COMM_WORLD);
    if (mt_rank == 0)
        cr_assert_eq(compared, (count - 1) * 2 * (4 + SCOPES));
}

MPI_TEST(shapes_27b, bf16, .timeout = 400)
{
    cut("27b, 4 layers, bf16", TPW_COMPUTE_BF16);
}

MPI_TEST(shapes_27b, f32, .timeout = 400)
{
    cut("27b, 4 layers, f32", TPW_COMPUTE_F32);
}

MPI_TEST(shapes_27b, instruction_sets, .timeout = 400)
{
    const workload w = {SHAPE, .prompts = 1, .lengths = {3}, .max_tokens = 2};
    const tpw_vec *all[] = {tpw_vec_baseline(), tpw_vec_avx2(), tpw_vec_avx512()};
    cell cells[3];
    int n = 0, compared;

    mt_skip_if(test_on_gpu(), "instruction sets are the host's");
    for (int i = 0; i < 3; i++)
        if (all[i] != NULL)
            cells[n++] = (cell){most_ranks(), 64, TPW_COMPUTE_BF16, all[i]->isa, 64, 1, 256};
    if (n < 2)
        cr_skip("TPW-SKIP: this machine has only the baseline instruction set");
    compared = matrix_run("27b, 4 layers, instruction sets", &w, cells, n, MPI_COMM_WORLD);
    if (mt_rank == 0)
        cr_assert_eq(compared, (n - 1) * (2 + SCOPES));
}
