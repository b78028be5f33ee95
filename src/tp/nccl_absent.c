/* Stands in for the NCCL communicator in builds without it. SPDX-License-Identifier: Apache-2.0 */
#include "tp/comm_nccl.h"

#define WHY "built without CUDA and NCCL"

tpw_status tpw_comm_nccl_create(tpw_boot *boot, tpw_exec *exec, const tpw_nccl_options *options, tpw_comm **out,
                                tpw_error *err)
{
    (void)boot;
    (void)exec;
    (void)options;
    (void)out;
    return tpw_fail(err, TPW_ERR_RESOURCE, WHY);
}

tpw_status tpw_comm_nccl_add_norm(tpw_comm *comm, const tpw_add_norm_args *args, tpw_error *err)
{
    (void)comm;
    (void)args;
    return tpw_fail(err, TPW_ERR_RESOURCE, WHY);
}

void tpw_comm_nccl_abort(tpw_comm *comm)
{
    (void)comm;
}

tpw_status tpw_comm_nccl_check(tpw_comm *comm, tpw_error *err)
{
    (void)comm;
    return tpw_fail(err, TPW_ERR_RESOURCE, WHY);
}

void tpw_comm_nccl_hold(tpw_comm *comm)
{
    (void)comm;
}

void tpw_comm_nccl_release(tpw_comm *comm)
{
    (void)comm;
}

tpw_status tpw_comm_nccl_close(tpw_comm *comm, tpw_error *err)
{
    (void)comm;
    return tpw_fail(err, TPW_ERR_RESOURCE, WHY);
}

tpw_nccl_transport tpw_comm_nccl_transport(const tpw_comm *comm, int64_t rows)
{
    (void)comm;
    (void)rows;
    return TPW_NCCL_GATHER;
}

tpw_status tpw_comm_nccl_set_epoch(tpw_comm *comm, uint32_t epoch, tpw_error *err)
{
    (void)comm;
    (void)epoch;
    return tpw_fail(err, TPW_ERR_RESOURCE, WHY);
}

size_t tpw_comm_nccl_bytes(const tpw_nccl_options *options, int size)
{
    (void)options;
    (void)size;
    return 0;
}

void tpw_nccl_versions(int *compiled, int *loaded)
{
    *compiled = *loaded = 0;
}
