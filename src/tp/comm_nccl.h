/* The communicator of GPUs: NCCL for bootstrap and memory, kernels of our own for sums. The door to NCCL is nccl_*.
 *
 * Three transports, one arithmetic: the binary tree over ranks in FP32. *Packets*: one hop, 8 bytes of data and two flags in
 * each 16-byte packet through NCCL's device API, for few rows. *Copies*: each rank stages its part in a registered window and
 * reads the others' over NVLink after one barrier. *Gather*: NCCL's all-gather, then the sum; for ranks without peer access.
 * NVLink multicast is never used: its order of summation is not fixed.
 *
 * Exchanges are enqueued on the exec's stream and return; buffers are device memory of that GPU. They can be captured into a graph,
 * which must be destroyed before the communicator. Waits inside kernels end after the exec's spin_ms: tpw_cuda_sync then reports
 * ERR_PEER. No call changes the thread's current CUDA device. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_COMM_NCCL_H
#define TPW_TP_COMM_NCCL_H

#include <stdbool.h>

#include "kernels/cuda/cuda.h"
#include "tp/comm.h"

#define TPW_NCCL_PACKET_ROWS 32 /* up to so many rows go as packets */

typedef enum tpw_nccl_transport {
    TPW_NCCL_AUTO, /* packets up to TPW_NCCL_PACKET_ROWS rows, else copies; gather without peer access */
    TPW_NCCL_PACKETS,
    TPW_NCCL_COPIES,
    TPW_NCCL_GATHER
} tpw_nccl_transport;

typedef struct tpw_nccl_options {
    int32_t rows_max;             /* of a step */
    int32_t cols_max;             /* of a row that is all-reduced: H */
    tpw_nccl_transport transport; /* forced for all exchanges; for tests */
} tpw_nccl_options;

/* Collective. Joins all ranks of `boot` (which it borrows) with the GPU of `exec` (which it holds: the exec may be destroyed before).
 * ERR_RESOURCE when the loaded NCCL is not the version that was compiled against, or differs between ranks; ERR_PEER when a rank did
 * not come within the boot's deadline; ERR_DEVICE with NCCL's text. All ranks return the same status. */
tpw_status tpw_comm_nccl_create(tpw_boot *boot, tpw_exec *exec, const tpw_nccl_options *options, tpw_comm **out,
                                tpw_error *err) TPW_MUST_CHECK;

/* Collective, enqueued. As the op add_norm with args->sum = this rank's part [parts, M, H] of a sum over ranks: fold of slices, tree
 * over ranks, residual, norm, in one kernel. h and y BF16. Bit for bit all-reduce followed by add_norm. The parts may be overwritten. */
tpw_status tpw_comm_nccl_add_norm(tpw_comm *comm, const tpw_add_norm_args *args, tpw_error *err) TPW_MUST_CHECK;

/* Local: NCCL's asynchronous error, if there is one (ERR_PEER or ERR_DEVICE). Cheap; for the host between steps. */
tpw_status tpw_comm_nccl_check(tpw_comm *comm, tpw_error *err) TPW_MUST_CHECK;

/* A graph that holds exchanges of this communicator counts as a user: while there is one, destroying the communicator is refused
 * by close and deferred by destroy until the last user has gone. Local. */
void tpw_comm_nccl_hold(tpw_comm *comm);
void tpw_comm_nccl_release(tpw_comm *comm);

/* Ends the communicator and frees it. ERR_BUSY (nothing done) while graphs hold it. Otherwise it is gone on return, within the
 * boot's deadline: finalised, or aborted when a peer does not answer (then ERR_PEER). Each rank calls it; none waits for long. */
tpw_status tpw_comm_nccl_close(tpw_comm *comm, tpw_error *err) TPW_MUST_CHECK;

/* Local. Ends NCCL's part at once, without waiting for kernels or peers: for a worker that has failed, before it frees what kernels
 * use. Afterwards only close and destroy are legal. NULL and a
 * communicator of one rank are fine. */
void tpw_comm_nccl_abort(tpw_comm *comm);

/* How exchanges of `rows` rows travel here. Pure. */
tpw_nccl_transport tpw_comm_nccl_transport(const tpw_comm *comm, int64_t rows);

/* Sets the packets' epoch of every block, after all earlier exchanges, on all ranks alike. For tests of its wrap. Collective. */
tpw_status tpw_comm_nccl_set_epoch(tpw_comm *comm, uint32_t epoch, tpw_error *err) TPW_MUST_CHECK;

/* Bytes of GPU memory that a communicator of `size` ranks takes for its own buffers, NCCL's inner ones not counted. Pure. */
size_t tpw_comm_nccl_bytes(const tpw_nccl_options *options, int size);

/* NCCL's version numbers: compiled against, loaded. 0 in a build without it. */
void tpw_nccl_versions(int *compiled, int *loaded);

#endif
