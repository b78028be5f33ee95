/* The boot table over MPI: exchanges, sub-communicators, deadlines that name the peer, and raise.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "mpi_ranks.h"

MPI_SUITE(boot);

/* A byte that depends on all three. */
static unsigned char byte_of(int rank, size_t i, int round)
{
    return (unsigned char)((i * 131 + (size_t)rank * 17 + (size_t)round * 7) % 251);
}

static void exchange(tpw_boot *boot, size_t bytes, int root, int round)
{
    size_t total = bytes * (size_t)boot->size;
    unsigned char *mine = malloc(bytes + 1), *all = malloc(total + 1);
    cr_assert(mine && all);
    for (size_t i = 0; i < bytes; i++)
        mine[i] = byte_of(boot->rank, i, round);
    mine[bytes] = all[total] = 0xEE;
    EXPECT_OK(boot->ops->allgather(boot, mine, all, bytes, &err_));
    for (size_t i = 0; i < total; i++)
        cr_assert_eq(all[i], byte_of((int)(i / bytes), i % bytes, round), "gather of %zu: byte %zu", bytes, i);
    EXPECT_OK(boot->ops->broadcast(boot, mine, bytes, root, &err_));
    for (size_t i = 0; i < bytes; i++)
        cr_assert_eq(mine[i], byte_of(root, i, round), "broadcast of %zu from %d: byte %zu", bytes, root, i);
    cr_assert(mine[bytes] == 0xEE && all[total] == 0xEE, "wrote past the end");
    free(mine);
    free(all);
}

static void check_arguments(void)
{
    tpw_boot *boot = NULL;
    tpw_error err = {0};
    expect_error(tpw_boot_mpi_create(MPI_COMM_WORLD, 0, &boot, &err), TPW_ERR_ARGUMENT, &err, "0 ms");
    expect_error(tpw_boot_mpi_create(MPI_COMM_WORLD, 10, NULL, &err), TPW_ERR_ARGUMENT, &err, "NULL");
    expect_error(tpw_boot_mpi_create(MPI_COMM_NULL, 10, &boot, &err), TPW_ERR_ARGUMENT, &err, "MPI_COMM_NULL");
    if (mt_size > 1) {
        MPI_Comm half, inter;
        MPI_Comm_split(MPI_COMM_WORLD, mt_rank % 2, mt_rank, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - mt_rank % 2, 5, &inter);
        expect_error(tpw_boot_mpi_create(inter, 10, &boot, &err), TPW_ERR_ARGUMENT, &err, "inter-communicator");
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
    cr_assert_null(boot);
}

/* Two boots at a time over the halves of the ranks, in reversed order: ranks of a boot are the communicator's. */
static void check_halves(void)
{
    MPI_Comm half;
    int rank, size;
    MPI_Comm_split(MPI_COMM_WORLD, mt_rank % 2, -mt_rank, &half);
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    tpw_boot *boot = NULL;
    EXPECT_OK(tpw_boot_mpi_create(half, 20000, &boot, &err_));
    MPI_Comm_free(&half); /* the boot has its own */
    cr_assert(boot->rank == rank && boot->size == size);
    exchange(boot, 1001, size - 1, 3);
    tpw_boot_destroy(boot);
}

MPI_TEST(boot, exchanges)
{
    check_arguments();
    MPI_Errhandler before, after;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    tpw_boot *boot = NULL, *second = NULL;
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &boot, &err_));
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &second, &err_));
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
    cr_assert(before == after && after == MPI_ERRORS_ARE_FATAL, "the caller's error handler was changed");
    cr_assert(boot->rank == mt_rank && boot->size == mt_size && boot->step == -1 && boot->host[0] != '\0');
    tpw_error err = {0};
    char byte = 0;
    expect_error(boot->ops->broadcast(boot, &byte, 1, mt_size, &err), TPW_ERR_ARGUMENT, &err, "root");
    expect_error(boot->ops->broadcast(boot, NULL, 1, 0, &err), TPW_ERR_ARGUMENT, &err, "NULL");
    expect_error(boot->ops->allgather(boot, NULL, NULL, 1, &err), TPW_ERR_ARGUMENT, &err, "NULL");

    const size_t sizes[] = {0, 1, 3, 4097, 524289, 3145745}; /* the last two pass the stage in pieces */
    for (int i = 0; i < 6; i++) {
        exchange(i % 2 ? boot : second, sizes[i], (mt_size - 1) * (i % 2), i);
        EXPECT_OK(boot->ops->barrier(boot, &err_));
    }
    check_halves();

    /* a message of the caller, sent across all of the above, is still its own */
    int token = mt_rank, got = -1;
    MPI_Sendrecv(&token, 1, MPI_INT, (mt_rank + 1) % mt_size, 1, &got, 1, MPI_INT, (mt_rank + mt_size - 1) % mt_size, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    cr_assert_eq(got, (mt_rank + mt_size - 1) % mt_size);
    tpw_boot_destroy(second);
    for (int i = 0; i < 30; i++) {
        EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &second, &err_));
        if (i % 10 == 9)
            exchange(second, 77, 0, i);
        tpw_boot_destroy(second);
    }
    EXPECT_OK(boot->ops->barrier(boot, &err_));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    expect_error(boot->ops->barrier(boot, &err), TPW_ERR_ARGUMENT, &err, "finalised");
    tpw_boot_destroy(boot); /* after MPI has gone */
}

/* The last rank sleeps; every other rank must name it and nobody else, whomever it was waiting for directly. */
static void check_sleeper(int how)
{
    tpw_boot *boot = NULL;
    int sleeper = mt_size - 1;
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &boot, &err_));
    EXPECT_OK(boot->ops->barrier(boot, &err_));
    boot->timeout_ms = 300;
    boot->step = 12;
    boot->phase = "decode";
    if (mt_rank == sleeper) {
        sleep_ms(900);
    } else {
        const char *const calls[] = {"barrier", "allgather", "broadcast"};
        uint64_t x = 1, all[64];
        char text[320];
        tpw_error err = {0}, again = {0};
        double start = seconds_now();
        tpw_status st = how == 0   ? boot->ops->barrier(boot, &err)
                        : how == 1 ? boot->ops->allgather(boot, &x, all, sizeof x, &err)
                                   : boot->ops->broadcast(boot, &x, sizeof x, sleeper, &err);
        double seconds = seconds_now() - start;
        (void)snprintf(text, sizeof text,
                       "rank %d (%s) waited 0.3 s in %s of step 12 (decode) for rank %d (%s): no answer", mt_rank,
                       boot->host, calls[how], sleeper, boot->host);
        expect_error(st, TPW_ERR_PEER, &err, text);
        cr_assert(seconds >= 0.3 && seconds < 0.8, "%f s", seconds);
        start = seconds_now();
        expect_error(boot->ops->barrier(boot, &again), TPW_ERR_PEER, &again, text);
        cr_assert_lt(seconds_now() - start, 0.1, "a failed boot must answer at once");
    }
    tpw_boot_destroy(boot); /* with an exchange pending */
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 raises while the others wait, the last of them not yet. */
static void check_raise(void)
{
    tpw_boot *boot = NULL;
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &boot, &err_));
    tpw_error err = {0};
    MPI_Barrier(MPI_COMM_WORLD);
    double start = seconds_now();
    if (mt_rank == 0) {
        sleep_ms(150);
        boot->step = 5;
        boot->phase = "verify";
        boot->ops->raise(boot, TPW_ERR_CHECKPOINT, "tensor lm_head.weight is torn");
        boot->ops->raise(boot, TPW_ERR_IO, "a second one is ignored");
        expect_error(boot->ops->barrier(boot, &err), TPW_ERR_CHECKPOINT, &err, "already failed: tensor lm_head");
        sleep_ms(1100); /* without touching MPI: the message must already have left */
    } else {
        char text[320];
        (void)snprintf(text, sizeof text, "rank 0 (%s) failed in step 5 (verify): tensor lm_head.weight is torn",
                       boot->host);
        if (mt_rank == mt_size - 1) {
            tpw_status st = TPW_OK;
            sleep_ms(400);
            for (int i = 0; st == TPW_OK && i < 100; i++) { /* one look may only move the message on */
                st = boot->ops->look(boot, &err);
                sleep_ms(2);
            }
            expect_error(st, TPW_ERR_PEER, &err, text);
        }
        expect_error(boot->ops->barrier(boot, &err), TPW_ERR_PEER, &err, text);
        cr_assert_lt(seconds_now() - start, 1.15, "raise must end a wait within a second");
    }
    tpw_boot_destroy(boot);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A rank that is late, but not too late, is no failure, and does not disturb what follows. */
static void check_late(void)
{
    tpw_boot *boot = NULL;
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 1200, &boot, &err_));
    for (int round = 0; round < 2; round++) {
        if (mt_rank == round % mt_size)
            sleep_ms(750); /* past the half, when the others ask who waits */
        exchange(boot, 10, 0, round);
    }
    tpw_boot_destroy(boot);
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &boot, &err_));
    exchange(boot, 10, mt_size - 1, 9);
    tpw_boot_destroy(boot);
}

/* A rank that never comes to the creation. */
static void check_absent(void)
{
    tpw_boot *boot = NULL;
    tpw_error err = {0};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm); /* stays unusable afterwards, so not the world */
    if (mt_rank != mt_size - 1) {
        expect_error(tpw_boot_mpi_create(comm, 300, &boot, &err), TPW_ERR_PEER, &err, "in communicator set-up (start)");
        cr_assert_null(boot);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

MPI_TEST(boot, failures)
{
    if (mt_size > 1) {
        for (int how = 0; how < 3; how++)
            check_sleeper(how);
        check_raise();
        check_late();
        check_absent();
    } else { /* alone, nothing can be late */
        tpw_boot *boot = NULL;
        tpw_error err = {0};
        EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_SELF, 1, &boot, &err_));
        exchange(boot, 4096, 0, 0);
        boot->ops->raise(boot, TPW_OK, NULL);
        expect_error(boot->ops->barrier(boot, &err), TPW_ERR_INTERNAL, &err, "internal error");
        tpw_boot_destroy(boot);
    }
}
