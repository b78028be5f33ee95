/* The device side of the NCCL communicator: what the kernels share, and their launches. Private to the nccl_* files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_NCCL_DEVICE_H
#define TPW_TP_NCCL_DEVICE_H

#include <nccl.h>

#include "kernels/cuda/exec.h"
#include "tp/comm_nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TPW_NCCL_BLOCKS    128  /* CTAs of an exchange, all resident at once on any GPU that is supported */
#define TPW_NCCL_NORM_COLS 5120 /* widest row of the fused forms */
#define TPW_NCCL_TILE      1024 /* 8-byte packets of a CTA and epoch, at least */

typedef struct tpw_nccl_device
    tpw_nccl_device; /* NCCL's device communicator, handles, window; defined in nccl_device.cu */

/* One kind of exchange over `count` 8-byte words of every rank. */
typedef enum tpw_nccl_join {
    TPW_JOIN_SUM, /* two FP32 tree sums a word */
    TPW_JOIN_OR   /* bitwise */
} tpw_nccl_join;

/* The steps of making the resources of an initialised communicator. Each returns NCCL's result, which may be ncclInProgress: the
 * caller settles it before the next step. With the GPU current. new: host memory only, NULL when there is none. gather: the buffer of
 * gathers. packets and window only where all ranks reach each other (peers). */
tpw_nccl_device *tpw_nccl_device_new(const tpw_nccl_options *options, int size);
int tpw_nccl_device_peers(ncclComm_t comm, int size);
ncclResult_t tpw_nccl_device_gather(tpw_nccl_device *device);
ncclResult_t tpw_nccl_device_packets(ncclComm_t comm, tpw_nccl_device *device);
ncclResult_t tpw_nccl_device_memory(tpw_nccl_device *device);
ncclResult_t tpw_nccl_device_window(ncclComm_t comm, tpw_nccl_device *device);

/* Gives back what there is. comm NULL: the communicator was aborted, and its part is gone with it. */
void tpw_nccl_device_destroy(ncclComm_t comm, tpw_nccl_device *device);

tpw_status tpw_nccl_packets(const tpw_exec *exec, tpw_nccl_device *device, int rank, int size, tpw_nccl_join join,
                            void *x, size_t words, tpw_error *err);
tpw_status tpw_nccl_copies(const tpw_exec *exec, tpw_nccl_device *device, int rank, int size, tpw_nccl_join join,
                           void *x, size_t words, tpw_error *err);
tpw_status tpw_nccl_gathered(const tpw_exec *exec, int size, tpw_nccl_join join, const void *all, void *x, size_t words,
                             tpw_error *err);
/* Room of the gather buffer in 8-byte words a rank, and the buffer. */
size_t tpw_nccl_gather_room(const tpw_nccl_device *device);
void *tpw_nccl_gather_buffer(tpw_nccl_device *device);

/* The fused forms. copies: any rows up to rows_max; packets: up to TPW_NCCL_PACKET_ROWS. */
tpw_status tpw_nccl_packets_norm(const tpw_exec *exec, tpw_nccl_device *device, int rank, int size,
                                 const tpw_add_norm_args *args, tpw_error *err);
tpw_status tpw_nccl_copies_norm(const tpw_exec *exec, tpw_nccl_device *device, int rank, int size,
                                const tpw_add_norm_args *args, tpw_error *err);
tpw_status tpw_nccl_fold_parts(const tpw_exec *exec, const float *part, int32_t parts, size_t count, float *out,
                               tpw_error *err);

tpw_status tpw_nccl_write_epoch(const tpw_exec *exec, tpw_nccl_device *device, uint32_t epoch, tpw_error *err);

#ifdef __cplusplus
}
#endif
#endif
