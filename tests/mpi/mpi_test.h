/* One Criterion test = one mpirun launch. Criterion's worker process is the MPI rank; its runner never calls MPI.
 *
 * The verdict is one for all ranks: a rank that fails leaves at once with an error, whereupon mpirun ends the others and
 * reports failure; a test is skipped only when the ranks have voted for it before any of them asserted anything.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_MPI_TEST_H
#define TPW_TESTS_MPI_TEST_H

#include <criterion/criterion.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int mt_rank = -1, mt_size = 0, mt_level = MPI_THREAD_MULTIPLE, mt_body_returned = 0;

static inline void mt_init(void)
{
    int provided = 0;
    if (MPI_Init_thread(NULL, NULL, mt_level, &provided) != MPI_SUCCESS)
        _exit(99);
    MPI_Comm_rank(MPI_COMM_WORLD, &mt_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mt_size);
}

/* Runs after a passed and after a failed assertion. After a failed one the other ranks may sit in a collective, and
 * MPI_Finalize would wait for them: leave at once. */
static inline void mt_fini(void)
{
    if (!mt_body_returned)
        _exit(EXIT_FAILURE);
    int ended = 0;
    MPI_Finalized(&ended);
    if (!ended)
        MPI_Finalize();
}

/* Collective, before the first assertion: skips the test on all ranks when any rank wants it. */
static inline void mt_skip_if(int wanted, const char *reason)
{
    int any = 0;
    MPI_Allreduce(&wanted, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!any)
        return;
    if (mt_rank == 0) {
        printf("TPW-SKIP: %s\n", reason);
        fflush(stdout);
    }
    mt_body_returned = 1;
    cr_skip_test("%s", reason);
}

/* Once per suite. Criterion 2.4.1 ignores its --timeout option, so a suite without one would wait for mpirun's limit. */
#define MPI_SUITE(Suite) TestSuite(Suite, .init = mt_init, .fini = mt_fini, .timeout = 60)

/* The last barrier makes "passed" an agreed verdict: no rank passes while another still can fail. */
#define MPI_TEST(Suite, Name, ...)           \
    static void Suite##_##Name##_body(void); \
    Test(Suite, Name, ##__VA_ARGS__)         \
    {                                        \
        Suite##_##Name##_body();             \
        int ended = 0;                       \
        MPI_Finalized(&ended);               \
        if (!ended)                          \
            MPI_Barrier(MPI_COMM_WORLD);     \
        mt_body_returned = 1;                \
    }                                        \
    static void Suite##_##Name##_body(void)

#endif
