/* The comm table of a group of one rank: every exchange is already done. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "tp/common.h"

static tpw_status solo_allreduce(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    comm->seq++;
    return tpw_boot_check_buffer(x, count, "allreduce", err);
}

static tpw_status solo_merge(tpw_comm *comm, void *x, size_t bytes, tpw_error *err)
{
    comm->seq++;
    return tpw_boot_check_buffer(x, bytes, "merge", err);
}

static tpw_status solo_allgather(tpw_comm *comm, const void *send, void *recv, size_t bytes, tpw_error *err)
{
    comm->seq++;
    TPW_TRY(tpw_boot_check_buffer(send, bytes, "allgather", err));
    TPW_TRY(tpw_boot_check_buffer(recv, bytes, "allgather", err));
    if (bytes > 0)
        memmove(recv, send, bytes);
    return TPW_OK;
}

static void solo_destroy(tpw_comm *comm)
{
    free(comm);
}

static const tpw_comm_ops solo_ops = {
    .name = "solo",
    .allreduce = solo_allreduce,
    .merge = solo_merge,
    .allgather = solo_allgather,
    .destroy = solo_destroy,
};

tpw_status tpw_comm_solo_create(tpw_boot *boot, tpw_comm **out, tpw_error *err)
{
    if (boot == NULL || out == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tpw_comm_solo_create: boot or out is NULL");
    if (boot->size != 1)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "a solo communicator needs a boot of one rank, this one has %d",
                        boot->size);
    return tpw_comm_new(&solo_ops, boot, NULL, out, err);
}
