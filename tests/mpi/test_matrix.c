/* The exactness matrix: the same bits however the work is cut - ranks, chunks, pages, batch, instruction set.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "mpi_test.h"

#include "backend.h"
#include "kernels/host/vec.h"
#include "matrix.h"

MPI_SUITE(matrix);

static int isas(const char *out[3])
{
    const tpw_vec *all[] = {tpw_vec_baseline(), tpw_vec_avx2(), tpw_vec_avx512()};
    int n = 0;

    for (int i = 0; i < 3; i++)
        if (all[i] != NULL)
            out[n++] = all[i]->isa;
    return n;
}

/* All axes around the plain cell: tp 1, whole prompts. */
static int axes(cell *out, tpw_compute compute, int tp_max, int32_t chunk_max)
{
    const cell plain = {1, chunk_max, compute, "auto", 64, 1, 2048};
    const int32_t chunks[] = {1, 7, 64};
    const char *isa[3];
    int n = 0, isa_count = isas(isa);

    out[n++] = plain;
    for (int i = 0; i < 3; i++) {
        out[n] = plain;
        out[n++].chunk = chunks[i];
    }
    for (int tp = 2; tp <= tp_max; tp *= 2) {
        out[n] = plain;
        out[n].batch = tp == 2 ? 3 : 8;
        out[n++].tp = tp;
        out[n] = plain;
        out[n].chunk = 7;
        out[n].page = 16;
        out[n].batch = 8;
        out[n].rows = 48;
        out[n++].tp = tp;
    }
    for (int i = 0; i < isa_count; i++) {
        out[n] = plain;
        out[n].tp = tp_max < 2 ? 1 : 2;
        out[n].chunk = 64;
        out[n++].isa = isa[i];
    }
    return n;
}

static void run_both(const char *name, const workload *w, int32_t chunk_max)
{
    cell cells[64];
    int n = axes(cells, TPW_COMPUTE_BF16, mt_size, chunk_max), compared;

    if (!test_on_gpu())
        n += axes(cells + n, TPW_COMPUTE_F32, mt_size, chunk_max);
    compared = matrix_run(name, w, cells, n, MPI_COMM_WORLD);
    if (mt_rank == 0)
        cr_assert_gt(compared, test_on_gpu() ? 250 : 500);
}

MPI_TEST(matrix, pocket, .timeout = 200)
{
    const workload w = {.model = TPW_TEST_POCKET,
                        .prompts = 6,
                        .lengths = {1, 5, 16, 63, 96, 300},
                        .max_tokens = 20,
                        .vocab_used = 2048};

    run_both("pocket", &w, 1024);
}

MPI_TEST(matrix, odd, .timeout = 200)
{
    const workload w = {.model = TPW_TEST_DATA "/tiny/qwen35-odd",
                        .prompts = 4,
                        .lengths = {1, 17, 64, 90},
                        .max_tokens = 20,
                        .vocab_used = 1003};

    run_both("qwen35-odd", &w, 1024);
}
