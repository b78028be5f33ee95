/* Tests of the comms without MPI: the tree's value, copies by merge, sizes. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local_ranks.h"
#include "tp/comm.h"

/* Rank r's value: from left to right ((1e8 + 1) - 1e8) + 1 is 1, by the tree (1e8 + 1) + (-1e8 + 1) is 0, in FP32. */
static const float parts[8] = {1e8f, 1.0f, -1e8f, 1.0f, 3.0f, 16777216.0f, 1.0f, -16777216.0f};

static float tree_value(int n, int i)
{
    float p[8];
    for (int r = 0; r < 8; r++)
        p[r] = parts[r] * (float)(i % 3 + 1);
    if (n == 1)
        return p[0];
    if (n == 2)
        return p[0] + p[1];
    volatile float a = p[0] + p[1], b = p[2] + p[3], c = p[4] + p[5], d = p[6] + p[7];
    volatile float ab = a + b, cd = c + d;
    return n == 4 ? ab : ab + cd;
}

static tpw_status reduce(local_rank *self)
{
    tpw_comm *comm = NULL;
    TPW_TRY(tpw_comm_local_create(self->boot, &comm, &self->err));
    const size_t counts[] = {1, 0, 5, 1000003, 17};
    tpw_status st = TPW_OK;
    for (int c = 0; c < 5 && st == TPW_OK; c++) {
        size_t count = counts[c];
        float *x = malloc((count + 1) * sizeof *x);
        for (size_t i = 0; i < count; i++)
            x[i] = parts[self->rank] * (float)(i % 3 + 1);
        x[count] = -7.0f;
        st = comm->ops->allreduce(comm, x, count, &self->err);
        for (size_t i = 0; st == TPW_OK && i < count; i++)
            if (x[i] != tree_value(comm->size, (int)(i % 3)))
                st = tpw_fail(&self->err, TPW_ERR_INTERNAL, "count %zu: x[%zu] is %a", count, i, (double)x[i]);
        if (st == TPW_OK && x[count] != -7.0f)
            st = tpw_fail(&self->err, TPW_ERR_INTERNAL, "count %zu: wrote past the end", count);
        free(x);
    }
    if (st == TPW_OK && comm->seq != 5)
        st = tpw_fail(&self->err, TPW_ERR_INTERNAL, "seq is %d", (int)comm->seq);
    tpw_comm_destroy(comm);
    return st;
}

Test(comm_local, tree_sums)
{
    volatile float left = parts[0] + parts[1];
    left = left + parts[2];
    left = left + parts[3];
    cr_assert_neq(left, tree_value(4, 0), "the values must tell the tree from a fold");
    local_rank ranks[LOCAL_RANKS_MAX];
    for (int n = 1; n <= 8; n *= 2) {
        run_local(n, 10000, reduce, NULL, ranks);
        expect_all_ok(ranks, n);
    }
}

/* Row i of 11 floats belongs to rank i % size; everything else of a rank's copy is zero bytes. */
static tpw_status merge_rows(local_rank *self)
{
    tpw_comm *comm = NULL;
    TPW_TRY(tpw_comm_local_create(self->boot, &comm, &self->err));
    uint32_t rows[9][11];
    memset(rows, 0, sizeof rows);
    for (int i = 0; i < 9; i++)
        for (int j = 0; i % comm->size == comm->rank && j < 11; j++)
            rows[i][j] = j == 0 ? 0x80000000u : j == 1 ? 0x7FC00001u : (uint32_t)(i * 1000003 + j);
    tpw_status st = comm->ops->merge(comm, rows, sizeof rows, &self->err);
    for (int i = 0; i < 9 && st == TPW_OK; i++)
        for (int j = 0; j < 11; j++)
            if (rows[i][j] != (j == 0 ? 0x80000000u : j == 1 ? 0x7FC00001u : (uint32_t)(i * 1000003 + j)))
                st = tpw_fail(&self->err, TPW_ERR_INTERNAL, "row %d, %d: %08x", i, j, rows[i][j]);
    uint16_t mine[3] = {(uint16_t)(self->rank + 1), 7, 9}, all[24];
    if (st == TPW_OK)
        st = comm->ops->allgather(comm, mine, all, sizeof mine, &self->err);
    for (int r = 0; r < comm->size && st == TPW_OK; r++)
        if (all[3 * r] != r + 1 || all[3 * r + 1] != 7 || all[3 * r + 2] != 9)
            st = tpw_fail(&self->err, TPW_ERR_INTERNAL, "allgather: block %d", r);
    tpw_comm_destroy(comm);
    return st;
}

Test(comm_local, merge_copies_bits)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    for (int n = 1; n <= 8; n *= 2) {
        run_local(n, 10000, merge_rows, NULL, ranks);
        expect_all_ok(ranks, n);
    }
}

static tpw_status one_sleeps(local_rank *self)
{
    tpw_comm *comm = NULL;
    TPW_TRY(tpw_comm_local_create(self->boot, &comm, &self->err));
    float x = 1;
    tpw_status st = comm->ops->allreduce(comm, &x, 1, &self->err); /* tells all host names */
    if (st == TPW_OK && self->rank == 1)
        sleep_ms(300);
    else if (st == TPW_OK)
        st = comm->ops->allreduce(comm, &x, 1, &self->err);
    tpw_comm_destroy(comm);
    return st;
}

Test(comm_local, a_sleeper_is_named)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    run_local(4, 100, one_sleeps, NULL, ranks);
    for (int r = 0; r < 4; r++)
        if (r != 1) {
            cr_assert_eq(ranks[r].status, TPW_ERR_PEER);
            cr_assert(strstr(ranks[r].err.text, "in allreduce (start) for rank 1 (hostB): no answer"), "%s",
                      ranks[r].err.text);
        }
}

Test(comm_local, refusals)
{
    tpw_error err = {0};
    tpw_comm *comm = NULL;
    const int refused[] = {3, 5, 6, 7};
    for (size_t i = 0; i < 4; i++) {
        tpw_boot *boots[8];
        cr_assert_eq(tpw_boot_local_create(refused[i], 100, boots, &err), TPW_OK);
        char size[16];
        (void)snprintf(size, sizeof size, "of %d ranks", refused[i]);
        cr_assert_eq(tpw_comm_local_create(boots[0], &comm, &err), TPW_ERR_ARGUMENT);
        cr_assert(strstr(err.text, size) && strstr(err.text, "1, 2, 4 or 8"), "%s", err.text);
        cr_assert_eq(tpw_comm_solo_create(boots[0], &comm, &err), TPW_ERR_ARGUMENT);
        for (int r = 0; r < refused[i]; r++)
            tpw_boot_destroy(boots[r]);
    }
    tpw_boot *solo = NULL;
    cr_assert_eq(tpw_boot_solo_create(&solo, &err), TPW_OK);
    cr_assert_eq(tpw_comm_local_create(solo, &comm, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_comm_local_create(NULL, &comm, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_comm_solo_create(solo, &comm, &err), TPW_OK);
    float x[2] = {-0.0f, 3}, y[2] = {1, 1};
    cr_assert_eq(comm->ops->allreduce(comm, x, 2, &err), TPW_OK);
    cr_assert(signbit(x[0]) && x[1] == 3);
    cr_assert_eq(comm->ops->merge(comm, x, sizeof x, &err), TPW_OK);
    cr_assert_eq(comm->ops->allgather(comm, x, y, sizeof x, &err), TPW_OK);
    cr_assert_eq(memcmp(x, y, sizeof x), 0);
    cr_assert_eq(comm->ops->allreduce(comm, NULL, 2, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(comm->ops->allreduce(comm, NULL, 0, &err), TPW_OK);
    cr_assert_str_eq(comm->ops->name, "solo");
    tpw_comm_destroy(comm);
    tpw_comm_destroy(NULL);
    tpw_boot_destroy(solo);
}
