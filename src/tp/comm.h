/* The comm table: the data plane's exchanges among the ranks of one tensor-parallel group.
 *
 * All calls are collective with equal arguments. Sums use the explicit binary tree over ranks, (0+1)+(2+3) and so on, in
 * FP32, whatever the size: it is the upper part of the slice tree of kernels/slices.h. Sizes 1, 2, 4 and 8 only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_COMM_H
#define TPW_TP_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tp/boot.h"

typedef struct tpw_comm tpw_comm;

typedef struct tpw_comm_ops {
    const char *name; /* "mpi", "solo", "local", "nccl" */
    /* x[count] becomes the tree sum over ranks, the same bits on all. In place. */
    tpw_status (*allreduce)(tpw_comm *comm, float *x, size_t count, tpw_error *err);
    /* Every byte of x is non-zero on at most one rank; its bits reach all (a copy from the owner, never a sum). In place. */
    tpw_status (*merge)(tpw_comm *comm, void *x, size_t bytes, tpw_error *err);
    /* recv holds size blocks of `bytes`, by rank. */
    tpw_status (*allgather)(tpw_comm *comm, const void *send, void *recv, size_t bytes, tpw_error *err);
    void (*destroy)(tpw_comm *comm);
} tpw_comm_ops;

struct tpw_comm {
    const tpw_comm_ops *ops;
    int rank;
    int size;
    uint64_t seq; /* exchanges begun, for reports */
    tpw_boot *boot;
    void *impl;
};

tpw_status tpw_comm_solo_create(tpw_boot *boot, tpw_comm **out, tpw_error *err) TPW_MUST_CHECK;
/* Over a boot of tpw_boot_local_create; each thread makes its own. */
tpw_status tpw_comm_local_create(tpw_boot *boot, tpw_comm **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_comm_destroy(tpw_comm *comm); /* local; NULL allowed */

/* ERR_ARGUMENT naming the allowed sizes when `size` is not one of them. Every kind of comm asks at creation. Pure. */
tpw_status tpw_comm_check_size(int size, tpw_error *err) TPW_MUST_CHECK;

#endif
