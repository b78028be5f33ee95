/* The CUDA backend: enumerates GPUs and creates the exec of one. The door to the CUDA runtime is this folder.
 *
 * Built without CUDA, tpw_cuda_count gives 0 with the reason, and tpw_cuda_create fails with ERR_RESOURCE. No function
 * here changes the calling thread's current CUDA device, neither on success nor on error.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_CUDA_CUDA_H
#define TPW_KERNELS_CUDA_CUDA_H

#include "kernels/gpu.h"
#include "kernels/ops.h"

/* Devices that this process sees (CUDA_VISIBLE_DEVICES obeyed). 0 when there is none; then `reason` (bytes long, may be
 * NULL) says why: no driver, no device, built without CUDA. Local. */
int32_t tpw_cuda_count(char *reason, int bytes);

/* Properties of device `index`. ERR_RESOURCE when there is no such device, ERR_DEVICE for a fault. Local. */
tpw_status tpw_cuda_gpu(int32_t index, tpw_gpu *out, tpw_error *err) TPW_MUST_CHECK;

typedef struct tpw_cuda_options {
    int32_t device;  /* index as in tpw_cuda_gpu */
    bool portable;   /* take the kernels for sm_80 and later also on sm_90 (their bits are compared in tests) */
    bool no_wgmma;   /* mma.sync for many rows too */
    bool no_pdl;     /* plain kernel boundaries instead of programmatic dependent launch */
    int64_t spin_ms; /* limit of any wait inside a kernel; 0: 10,000 */
} tpw_cuda_options;

/* Creates the exec of one GPU: a stream, scratch, a fault word. ERR_RESOURCE for a device that is not there or older
 * than sm_80, ERR_MEMORY, ERR_DEVICE, also when the start-up self-test
 * (selftest.h) finds that the matrix unit drops BF16 subnormals. Local. One thread at a time may use an exec. */
tpw_status tpw_cuda_create(const tpw_cuda_options *options, tpw_exec **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_cuda_destroy(tpw_exec *exec); /* NULL allowed; blocks still allocated are the owner's to have freed */

/* Waits for the stream. ERR_DEVICE for a CUDA fault, ERR_PEER when a kernel gave up waiting for a peer (the fault word;
 * it stays set until the exec is destroyed). Local, blocks; bounded by spin_ms per waiting kernel. */
tpw_status tpw_cuda_sync(const tpw_exec *exec, tpw_error *err) TPW_MUST_CHECK;

/* Grows the scratch to at least `bytes` (waits for the stream first). For planning time, never inside a capture. */
tpw_status tpw_cuda_reserve(tpw_exec *exec, size_t bytes, tpw_error *err) TPW_MUST_CHECK;

/* The device table, for what needs no GPU (packed_bytes); NULL in a build without CUDA. And the bytes of GPU memory that every exec
 * takes for itself beside what is allocated through its table. Pure. */
const tpw_device *tpw_cuda_layout(void);
size_t tpw_cuda_own_bytes(void);

/* How often the host has waited for the stream so far; a step of the worker does it once, and again where
 * digests of the state that was written are due. For tests. */
int64_t tpw_cuda_waits(const tpw_exec *exec);

const tpw_gpu *tpw_cuda_gpu_of(const tpw_exec *exec);

/* "CUDA 13.0 (runtime 13000, driver 13000)": versions compiled against and loaded. Static storage. */
const char *tpw_cuda_version(void);

#endif
