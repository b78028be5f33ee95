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

/* A staged batch: what ops read of it on the device. Its segments' `pages` are device addresses, of 32 bits whatever the host's
 * tables have; pages_wide is NULL. */
typedef struct tpw_cuda_batch {
    const tpw_segment *segments; /* [segment_count] */
    const int32_t *segment_of;   /* [rows]: the segment that a row belongs to */
} tpw_cuda_batch;

/* Bytes of `list`, and of the scratch that a list takes at a time. */
#define TPW_CUDA_LIST_BYTES ((size_t)1 << 20)

/* Batches that stay known at most: those of a step. */
#define TPW_CUDA_STAGED 16

typedef struct tpw_cuda_staged {
    const tpw_batch *batch; /* NULL: none */
    tpw_cuda_batch at;
    int half; /* of the ring, that it stands in */
} tpw_cuda_staged;

/* What the host has to send: pinned memory with a twin on the device, filled half by half, so that the copies out of one half are long over
 * when its turn comes again. */
typedef struct tpw_cuda_ring {
    char *host;
    char *device;
    size_t half_bytes;
    int half;            /* being filled */
    size_t used;         /* of it */
    size_t sent;         /* of that: enqueued */
    cudaEvent_t read[2]; /* behind the last copy out of each half */
} tpw_cuda_ring;

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
    uint32_t *fault_local; /* device memory, for kernels to read cheaply */
    int users;             /* communicators that hold the exec */
    bool ended;            /* destroyed by its owner; the last user frees it */
    char *list;            /* pinned host memory: the digests of a list, on their way (digest.cu) */
    tpw_cuda_ring ring;
    tpw_cuda_staged staged[TPW_CUDA_STAGED];
    int staged_next;
    int64_t waits;          /* times that the host has waited for the stream */
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

/* Waits for the stream, and counts it. */
tpw_status tpw_cuda_wait(tpw_cuda *cuda, const char *what, tpw_error *err) TPW_MUST_CHECK;
/* After a wait: ERR_PEER when a kernel gave up waiting for a peer. */
tpw_status tpw_cuda_check_fault(const tpw_cuda *cuda, tpw_error *err) TPW_MUST_CHECK;

/* The ring (staging.c), with the device current. take: `bytes` of it that are the caller's to fill, never across its end; flush: enqueues the
 * copy of what was taken and not sent; fini frees. */
tpw_status tpw_cuda_ring_take(tpw_cuda *cuda, size_t bytes, char **host, char **device, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_cuda_ring_flush(tpw_cuda *cuda, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_cuda_ring_reserve(tpw_cuda *cuda, size_t bytes, tpw_error *err) TPW_MUST_CHECK;
void tpw_cuda_ring_fini(tpw_cuda *cuda);

/* As in tpw_device. */
tpw_status tpw_cuda_send(const tpw_exec *exec, void *to, const void *from_host, size_t bytes,
                         tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_cuda_fetch(const tpw_exec *exec, void *to_host, const void *from, size_t bytes, const tpw_watch *watch,
                          tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_cuda_stage(const tpw_exec *exec, const tpw_batch *batch, int32_t page_size,
                          tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_cuda_stage_reserve(const tpw_exec *exec, int32_t batches, int32_t rows, int32_t segments, int64_t pages,
                                  size_t bytes, tpw_error *err) TPW_MUST_CHECK;

/* What ops read of `batch`, on its way to the device at the latest now. ERR_ARGUMENT naming `op` when it is none of those staged last. */
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
