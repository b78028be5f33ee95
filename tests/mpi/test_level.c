/* A host that initialised MPI without threads is refused, and nothing works outside MPI's life.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_ranks.h"

static void init_single(void)
{
    tpw_boot *boot = NULL;
    tpw_error err = {0};
    expect_error(tpw_boot_mpi_create(MPI_COMM_WORLD, 1000, &boot, &err), TPW_ERR_RESOURCE, &err, "MPI_Init_thread");
    mt_level = MPI_THREAD_SINGLE;
    mt_init();
}

TestSuite(level, .init = init_single, .fini = mt_fini, .timeout = 60);

MPI_TEST(level, too_low)
{
    int level = -1;
    MPI_Query_thread(&level);
    mt_skip_if(level >= MPI_THREAD_SERIALIZED, "this MPI gives more threads than were asked for");
    tpw_boot *boot = NULL;
    tpw_error err = {0};
    expect_error(tpw_boot_mpi_create(MPI_COMM_WORLD, 1000, &boot, &err), TPW_ERR_RESOURCE, &err,
                 "MPI_THREAD_SERIALIZED");
    cr_assert_null(boot);
    MPI_Finalize();
    expect_error(tpw_boot_mpi_create(MPI_COMM_WORLD, 1000, &boot, &err), TPW_ERR_RESOURCE, &err, "MPI is not running");
}
