/* The reference communicator over MPI: the tree's bits, copies by merge, odd sizes, deadlines.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "mpi_ranks.h"

MPI_SUITE(comm);

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* From left to right ((1e8 + 1) - 1e8) + 1 is 1; by the tree (1e8 + 1) + (-1e8 + 1) is 0. The same again for the upper four. */
static float part(int rank, size_t i)
{
    static const float base[8] = {1e8f, 1.0f, -1e8f, 1.0f, 3.0f, 16777216.0f, 1.0f, -16777216.0f};
    switch (i % 5) {
    case 0:
        return base[rank];
    case 1:
        return -0.0f;
    case 2:
        return base[7 - rank] * 0.1f;
    case 3: /* small and large, every sign */
        return ldexpf((float)((int)((i * 2654435761u + (unsigned)rank * 40503u) % 65537) - 32768), rank * 3 - 20);
    default:
        return rank == 2 ? INFINITY : 1.0f;
    }
}

static float tree(int first, int count, size_t i)
{
    if (count == 1)
        return part(first, i);
    volatile float low = tree(first, count / 2, i), high = tree(first + count / 2, count / 2, i);
    return low + high;
}

static float fold(int count, size_t i)
{
    volatile float sum = part(0, i);
    for (int r = 1; r < count; r++)
        sum = sum + part(r, i);
    return sum;
}

static void check_allreduce(tpw_comm *comm, size_t count)
{
    float *x = malloc((count + 1) * sizeof *x);
    cr_assert_not_null(x);
    for (size_t i = 0; i < count; i++)
        x[i] = part(comm->rank, i);
    x[count] = 42.0f;
    EXPECT_OK(comm->ops->allreduce(comm, x, count, &err_));
    uint64_t sum = 0;
    size_t unlike_fold = 0;
    for (size_t i = 0; i < count; i++) {
        float expected = tree(0, comm->size, i);
        cr_assert_eq(bits_of(x[i]), bits_of(expected), "rank %d of %d: x[%zu] of %zu is %a, not %a", comm->rank,
                     comm->size, i, count, (double)x[i], (double)expected);
        unlike_fold += bits_of(expected) != bits_of(fold(comm->size, i));
        sum = sum * 31 + bits_of(x[i]);
    }
    cr_assert_eq(x[count], 42.0f, "wrote past the end");
    if (comm->size >= 4 && count >= 5)
        cr_assert_gt(unlike_fold, 0, "the values cannot tell a tree from a fold");
    uint64_t low, high;
    MPI_Allreduce(&sum, &low, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&sum, &high, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    cr_assert_eq(low, high, "ranks hold different bits");
    free(x);
}

/* Row i belongs to rank i % size; it starts with -0.0 and a NaN. */
static uint32_t row_bits(size_t row, size_t column)
{
    return column == 0 ? 0x80000000u : column == 1 ? 0x7FC01234u : (uint32_t)(row * 7919 + column);
}

static void check_merge(tpw_comm *comm, size_t rows, size_t columns, size_t tail)
{
    size_t bytes = rows * columns * 4 + tail;
    unsigned char *x = calloc(1, bytes + 1);
    cr_assert_not_null(x);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; (int)(r % (size_t)comm->size) == comm->rank && c < columns; c++) {
            uint32_t bits = row_bits(r, c);
            memcpy(x + (r * columns + c) * 4, &bits, 4);
        }
    for (size_t t = 0; t < tail; t++)
        x[bytes - 1 - t] = comm->rank == comm->size - 1 ? 0xA5 : 0;
    x[bytes] = 0x77;
    EXPECT_OK(comm->ops->merge(comm, x, bytes, &err_));
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            uint32_t bits;
            memcpy(&bits, x + (r * columns + c) * 4, 4);
            cr_assert_eq(bits, row_bits(r, c), "rank %d: row %zu column %zu is %08x", comm->rank, r, c, bits);
        }
    for (size_t t = 0; t < tail; t++)
        cr_assert_eq(x[bytes - 1 - t], 0xA5);
    cr_assert_eq(x[bytes], 0x77, "wrote past the end");
    free(x);
}

static void check_allgather(tpw_comm *comm, size_t bytes, bool in_place)
{
    size_t total = bytes * (size_t)comm->size;
    unsigned char *all = malloc(total + 1), *mine = malloc(bytes + 1);
    cr_assert(all && mine);
    unsigned char *send = in_place ? all + (size_t)comm->rank * bytes : mine;
    for (size_t i = 0; i < bytes; i++)
        send[i] = (unsigned char)((i * 7 + (size_t)comm->rank * 31) % 253);
    all[total] = 0x77;
    EXPECT_OK(comm->ops->allgather(comm, send, all, bytes, &err_));
    for (size_t i = 0; i < total; i++)
        cr_assert_eq(all[i], (unsigned char)((i % bytes * 7 + i / bytes * 31) % 253), "gather of %zu: byte %zu", bytes,
                     i);
    cr_assert_eq(all[total], 0x77, "wrote past the end");
    free(all);
    free(mine);
}

/* A communicator of 3 of the ranks, or of all but one. */
static void check_refused(void)
{
    int size = mt_size - 1 < 3 ? mt_size - 1 : 3, color = mt_rank < 3 && size == 3 ? 0 : 1;
    if (mt_size < 4)
        return;
    MPI_Comm some;
    MPI_Comm_split(MPI_COMM_WORLD, color, mt_rank, &some);
    if (color == 0) {
        tpw_boot *boot = NULL;
        tpw_comm *comm = NULL;
        tpw_error err = {0};
        EXPECT_OK(tpw_boot_mpi_create(some, 20000, &boot, &err_));
        expect_error(tpw_comm_mpi_create(boot, &comm, &err), TPW_ERR_ARGUMENT, &err,
                     "of 3 ranks is not possible: use 1, 2, 4 or 8");
        cr_assert_null(comm);
        EXPECT_OK(boot->ops->barrier(boot, &err_)); /* a refusal breaks nothing */
        tpw_boot_destroy(boot);
    }
    MPI_Comm_free(&some);
}

static void check_arguments(tpw_boot *boot, tpw_comm *comm)
{
    tpw_error err = {0};
    tpw_comm *none = NULL;
    tpw_boot *solo = NULL;
    EXPECT_OK(tpw_boot_solo_create(&solo, &err_));
    expect_error(tpw_comm_mpi_create(solo, &none, &err), TPW_ERR_ARGUMENT, &err, "tpw_boot_mpi_create");
    expect_error(tpw_comm_mpi_create(NULL, &none, &err), TPW_ERR_ARGUMENT, &err, "tpw_boot_mpi_create");
    expect_error(tpw_comm_mpi_create(boot, NULL, &err), TPW_ERR_ARGUMENT, &err, "NULL");
    expect_error(tpw_comm_local_create(boot, &none, &err), TPW_ERR_ARGUMENT, &err, "tpw_boot_local_create");
    tpw_boot_destroy(solo);
    expect_error(comm->ops->allreduce(comm, NULL, 1, &err), TPW_ERR_ARGUMENT, &err, "NULL");
    expect_error(comm->ops->allreduce(comm, &(float){0}, SIZE_MAX / 2, &err), TPW_ERR_ARGUMENT, &err, "do not fit");
    expect_error(comm->ops->merge(comm, NULL, 1, &err), TPW_ERR_ARGUMENT, &err, "NULL");
    expect_error(comm->ops->allgather(comm, NULL, NULL, 1, &err), TPW_ERR_ARGUMENT, &err, "NULL");
    EXPECT_OK(comm->ops->allreduce(comm, NULL, 0, &err_));
    cr_assert_str_eq(comm->ops->name, "mpi");
}

/* In the middle of a large sum: what is pending then is a rendezvous, into memory that must outlive the comm. */
static void check_sleeper(size_t count)
{
    tpw_boot *boot = NULL;
    tpw_comm *comm = NULL;
    int sleeper = mt_size - 1;
    float *x = calloc(count, sizeof *x);
    cr_assert_not_null(x);
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &boot, &err_));
    EXPECT_OK(tpw_comm_mpi_create(boot, &comm, &err_));
    boot->timeout_ms = 500;
    boot->step = 3;
    boot->phase = "prefill";
    if (mt_rank == sleeper) {
        sleep_ms(1300);
    } else {
        tpw_error err = {0};
        char text[320];
        double start = seconds_now();
        (void)snprintf(text, sizeof text, "waited 0.5 s in allreduce of step 3 (prefill) for rank %d (%s): no answer",
                       sleeper, boot->host);
        expect_error(comm->ops->allreduce(comm, x, count, &err), TPW_ERR_PEER, &err, text);
        cr_assert_lt(seconds_now() - start, 1.2);
        expect_error(boot->ops->barrier(boot, &err), TPW_ERR_PEER, &err, text);
    }
    free(x);
    tpw_comm_destroy(comm);
    if (mt_rank == sleeper)
        tpw_boot_destroy(boot);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mt_rank != sleeper)
        tpw_boot_destroy(boot);
}

/* Ranks that bring different counts: refused where it is seen, and told to the rest. */
static void check_different(bool longer)
{
    tpw_boot *boot = NULL;
    tpw_comm *comm = NULL;
    float x[8] = {0};
    tpw_error err = {0};
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 5000, &boot, &err_));
    EXPECT_OK(tpw_comm_mpi_create(boot, &comm, &err_));
    MPI_Barrier(MPI_COMM_WORLD); /* nobody is still in a creation, which a raise would end too */
    tpw_status st = comm->ops->allreduce(comm, x, mt_rank == 0 ? (longer ? 8 : 2) : 4, &err);
    /* rank 0 or rank 1 sees it first; the other may see it too, or hear of it. Every rank ends with the same finding. */
    expect_error(st, TPW_ERR_DIVERGED, &err, "different exchanges");
    if (strstr(err.text, ") failed") == NULL) {
        cr_assert_lt(mt_rank, 2, "%s", err.text);
        boot->ops->raise(boot, st, err.text);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    tpw_comm_destroy(comm);
    tpw_boot_destroy(boot);
}

/* One rank fails without touching MPI again for a while; the others must not wait for that. */
static void check_raise(void)
{
    tpw_boot *boot = NULL;
    tpw_comm *comm = NULL;
    float x = 1;
    tpw_error err = {0};
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &boot, &err_));
    EXPECT_OK(tpw_comm_mpi_create(boot, &comm, &err_));
    MPI_Barrier(MPI_COMM_WORLD);
    double start = seconds_now();
    if (mt_rank == mt_size - 1) {
        sleep_ms(100);
        boot->ops->raise(boot, TPW_ERR_DEVICE, "GPU 3 fell off the bus");
        sleep_ms(1200);
    } else {
        expect_error(comm->ops->allreduce(comm, &x, 1, &err), TPW_ERR_PEER, &err, "GPU 3 fell off the bus");
        char who[32];
        (void)snprintf(who, sizeof who, "rank %d (", mt_size - 1);
        cr_assert(strstr(err.text, who), "%s", err.text);
        cr_assert_lt(seconds_now() - start, 1.1);
    }
    tpw_comm_destroy(comm);
    tpw_boot_destroy(boot);
    MPI_Barrier(MPI_COMM_WORLD);
}

MPI_TEST(comm, reference)
{
    tpw_boot *boot = NULL;
    tpw_comm *comm = NULL;
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 30000, &boot, &err_));
    EXPECT_OK(tpw_comm_mpi_create(boot, &comm, &err_));
    cr_assert(comm->rank == mt_rank && comm->size == mt_size && comm->seq == 0 && comm->boot == boot);
    check_arguments(boot, comm);
    const size_t counts[] = {1, 2, 5, 63, 1021, 65536, 65537, 200003}; /* a piece holds 65,536 values */
    for (int i = 0; i < 8; i++)
        check_allreduce(comm, counts[i]);
    check_merge(comm, 1, 3, 1);
    check_merge(comm, 9, 5, 3);
    check_merge(comm, 300, 511, 1); /* more than two pieces */
    const size_t bytes[] = {1, 8, 33, 32768, 32769, 300001};
    for (int i = 0; i < 6; i++)
        check_allgather(comm, bytes[i], i % 2 == 1);
    uint64_t begun = comm->seq;
    check_allgather(comm, 8, false);
    cr_assert_eq(comm->seq, begun + 1);

    tpw_comm *second = NULL; /* two at a time, used in turns */
    EXPECT_OK(tpw_comm_mpi_create(boot, &second, &err_));
    check_allreduce(second, 7);
    check_allreduce(comm, 7);
    tpw_comm_destroy(comm);
    check_allreduce(second, 11);
    tpw_comm_destroy(second);
    tpw_boot_destroy(boot);

    check_refused();
    if (mt_size > 1) {
        check_sleeper(1);
        check_sleeper(300000);
        check_different(false);
        check_different(true);
        check_raise();
    }
}
