/* The inside of the CUDA exec, for the files of this folder and for the communicators that add kernels to its stream.
 * Valid in C and in CUDA C++. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_CUDA_EXEC_H
#define TPW_KERNELS_CUDA_EXEC_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/cuda/cuda.h"

/* Codes of the fault word. The first one stays. */
enum {
    TPW_FAULT_NONE = 0,
    TPW_FAULT_WAIT = 1 /* a bounded wait for a peer ran out */
};

/* A staged batch: what ops read of it on the device. */
typedef struct tpw_cuda_batch {
    const tpw_segment *segments; /* [segment_count]; `pages` are device addresses */
    const int32_t *segment_of;   /* [rows]: the segment that a row belongs to */
} tpw_cuda_batch;

typedef struct tpw_cuda_block {
    void *data;
    size_t bytes;
} tpw_cuda_block;

typedef struct tpw_cuda {
    tpw_exec exec;
    tpw_gpu gpu;
    cudaStream_t stream;
    bool portable;
    bool pdl;
    bool wgmma; /* its bits were found equal to those of mma.sync */
    uint64_t spin_ns;
    void *scratch; /* device memory of ops; one op at a time uses it, in stream order */
    size_t scratch_bytes;
    size_t shared_bytes; /* shared memory that one CTA may ask for */
    uint32_t *fault;     /* pinned host memory that kernels can write */
    uint32_t *fault_device;
    uint32_t *fault_local;   /* device memory, for kernels to read cheaply */
    int users;               /* communicators that hold the exec */
    bool ended;              /* destroyed by its owner; the last user frees it */
    const tpw_batch *staged; /* NULL: none */
    tpw_cuda_batch batch;
    void *batch_host; /* pinned, the layout of batch_device */
    void *batch_device;
    size_t batch_bytes;     /* room in both */
    tpw_cuda_block *blocks; /* what was allocated through the device table */
    size_t block_count;
    size_t block_room;
    size_t bytes_now;
    size_t bytes_peak;
} tpw_cuda;

static inline tpw_cuda *tpw_cuda_of(const tpw_exec *exec)
{
    return (tpw_cuda *)exec->impl;
}

/* OK, or ERR_MEMORY / ERR_DEVICE naming `what`, the device and the CUDA error. */
tpw_status tpw_cuda_check(const tpw_cuda *cuda, cudaError_t code, const char *what, tpw_error *err) TPW_MUST_CHECK;

/* Lets `kernel` use `bytes` of dynamic shared memory, and prefers shared memory over the L1 cache for it. */
tpw_status tpw_cuda_allow_shared(const tpw_exec *exec, const void *kernel, size_t bytes, tpw_error *err) TPW_MUST_CHECK;

/* As tpw_device.stage: one copy to a buffer that keeps its address while it is large enough. */
tpw_status tpw_cuda_stage(const tpw_exec *exec, const tpw_batch *batch, int32_t page_size,
                          tpw_error *err) TPW_MUST_CHECK;
/* Sets aside room for batches of so many rows, segments and pages in all, so that staging allocates nothing. */
tpw_status tpw_cuda_stage_reserve(tpw_exec *exec, int32_t rows, int32_t segments, int64_t pages,
                                  tpw_error *err) TPW_MUST_CHECK;
/* What ops read of `batch`. ERR_ARGUMENT naming `op` when it is not the one that was staged last. */
tpw_status tpw_cuda_batch_of(const tpw_exec *exec, const tpw_batch *batch, const char *op, tpw_cuda_batch *out,
                             tpw_error *err) TPW_MUST_CHECK;

/* Makes `device` current and returns the one before (-1: none could be read). leave gives it back. */
int tpw_cuda_enter(int device);
void tpw_cuda_leave(int before);

/* A user keeps the exec alive after its owner has destroyed it, so that any order of teardown ends cleanly. */
void tpw_cuda_hold(tpw_exec *exec);
void tpw_cuda_release(tpw_exec *exec);

/* The table of ops, each in its own .cu. */
extern const tpw_ops tpw_cuda_ops;

/* Every op of the table, as tpw_cuda_<op>. */
#define TPW_CUDA_DECLARE(op) \
    tpw_status tpw_cuda_##op(const tpw_exec *exec, const tpw_##op##_args *args, tpw_error *err);
TPW_OP_MAP(TPW_CUDA_DECLARE)
#undef TPW_CUDA_DECLARE

#ifdef __cplusplus
}
#endif
#endif
