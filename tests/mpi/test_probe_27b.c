/* The same-state probe at the shape of a 27B model, where faults show that a small model hides.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "mpi_test.h"

#include "small_run.h"

MPI_SUITE(probe_27b);

MPI_TEST(probe_27b, four_layers, .timeout = 400)
{
    const int32_t length = 10;
    tpw_options o = small_options(NULL, 0, 1);
    tpw_probe_result p;
    tpw_error err = {0};
    tpw_worker *worker;
    bool busy;

    o.dummy = "qwen3.5-27b";
    o.dummy_layers = 4;
    o.dummy_vocab = 1024;
    o.sequences_max = 1;
    o.timeout_ms = 300000;
    worker = small_open(&o);
    small_admit(worker, 1, &length, 1, 12);
    for (int s = 0; s < 2; s++)
        cr_assert_eq(small_step(worker, 1, &busy, NULL, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_worker_probe(worker, 1, TPW_K_MAX, &p, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(p.position, 11); /* the nine rows cross 16 */
    cr_assert_eq(p.compared, (3 * 2 + 1 + 4 * 9) * mt_size);
    cr_assert_eq(p.unequal, 0, "%lld of %lld differ, first %s of layer %d on rank %d, op %s", (long long)p.unequal,
                 (long long)p.compared, p.scope, p.layer, p.rank, p.op);
    if (mt_rank == 0)
        printf("np %d, 27B shape of 4 layers: %lld comparisons, none unequal\n", mt_size, (long long)p.compared);
    tpw_worker_destroy(worker);
}
