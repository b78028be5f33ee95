/* The comm table over ranks that are threads of one process: every rank evaluates the same tree over all slots.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "tp/common.h"
#include "tp/local.h"

#define SIZE_MAX_TP 8

static tpw_status local_allreduce(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    size_t bytes;
    TPW_TRY(tpw_boot_check_buffer(x, count, "allreduce", err));
    if (!tpw_mul_size(count, sizeof *x, &bytes))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "allreduce: %zu values do not fit in memory", count);
    comm->seq++;
    const tpw_local_call call = {.kind = TPW_LOCAL_REDUCE, .root = -1, .data = x, .bytes = bytes};
    TPW_TRY(tpw_local_meet(comm->boot, &call, err));

    const float *parts[SIZE_MAX_TP];
    for (int r = 0; r < comm->size; r++)
        parts[r] = tpw_local_slot(comm->boot, r);
    for (size_t i = 0; i < count; i++) {
        float sum[SIZE_MAX_TP] = {0};
        for (int r = 0; r < comm->size; r++)
            sum[r] = parts[r][i];
        for (int half = 1; half < comm->size; half *= 2)
            for (int r = 0; r < comm->size; r += 2 * half)
                sum[r] = sum[r] + sum[r + half];
        x[i] = sum[0];
    }
    return TPW_OK;
}

static tpw_status local_merge(tpw_comm *comm, void *x, size_t bytes, tpw_error *err)
{
    TPW_TRY(tpw_boot_check_buffer(x, bytes, "merge", err));
    comm->seq++;
    const tpw_local_call call = {.kind = TPW_LOCAL_MERGE, .root = -1, .data = x, .bytes = bytes};
    TPW_TRY(tpw_local_meet(comm->boot, &call, err));
    unsigned char *out = x;
    for (int r = 0; r < comm->size; r++) {
        const unsigned char *part = tpw_local_slot(comm->boot, r);
        for (size_t i = 0; i < bytes; i++)
            out[i] |= part[i];
    }
    return TPW_OK;
}

static tpw_status local_allgather(tpw_comm *comm, const void *send, void *recv, size_t bytes, tpw_error *err)
{
    comm->seq++;
    return comm->boot->ops->allgather(comm->boot, send, recv, bytes, err);
}

static void local_destroy(tpw_comm *comm)
{
    free(comm);
}

static const tpw_comm_ops local_ops = {
    .name = "local",
    .allreduce = local_allreduce,
    .merge = local_merge,
    .allgather = local_allgather,
    .destroy = local_destroy,
};

tpw_status tpw_comm_local_create(tpw_boot *boot, tpw_comm **out, tpw_error *err)
{
    if (out == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tpw_comm_local_create: out is NULL");
    TPW_TRY(tpw_local_check(boot, err));
    TPW_TRY(tpw_comm_check_size(boot->size, err));
    return tpw_comm_new(&local_ops, boot, NULL, out, err);
}
