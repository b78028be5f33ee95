/* The CUDA exec: one GPU's stream, scratch, fault word and memory table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/dummy.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/selftest.h"

#define SCRATCH_BYTES  ((size_t)64 << 20)
#define SPIN_MS        10000
#define CAPABILITY_MIN 8

_Static_assert(TPW_CUDA_LIST_BYTES <= SCRATCH_BYTES, "a list of digests lies in the scratch");

int tpw_cuda_enter(int device)
{
    int before = -1;

    if (cudaGetDevice(&before) != cudaSuccess)
        before = -1;
    if (before != device)
        (void)cudaSetDevice(device);
    return before;
}

void tpw_cuda_leave(int before)
{
    int now = -1;

    if (before >= 0 && (cudaGetDevice(&now) != cudaSuccess || now != before))
        (void)cudaSetDevice(before);
}

tpw_status tpw_cuda_check(const tpw_cuda *cuda, cudaError_t code, const char *what, tpw_error *err)
{
    if (code == cudaSuccess)
        return TPW_OK;
    (void)cudaGetLastError();
    return tpw_fail(err, code == cudaErrorMemoryAllocation ? TPW_ERR_MEMORY : TPW_ERR_DEVICE,
                    "GPU %d (%s, %s): %s: %s (%s)", cuda->gpu.index, cuda->gpu.name, cuda->gpu.bus, what,
                    cudaGetErrorString(code), cudaGetErrorName(code));
}

tpw_status tpw_cuda_check_fault(const tpw_cuda *cuda, tpw_error *err)
{
    if (cuda->fault == NULL || *(volatile uint32_t *)cuda->fault != TPW_FAULT_WAIT)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_PEER, "GPU %d (%s): a peer's data did not come within %llu ms", cuda->gpu.index,
                    cuda->gpu.bus, (unsigned long long)(cuda->spin_ns / 1000000u));
}

tpw_status tpw_cuda_wait(tpw_cuda *cuda, const char *what, tpw_error *err)
{
    cuda->waits++;
    return tpw_cuda_check(cuda, cudaStreamSynchronize(cuda->stream), what, err);
}

static tpw_status note_block(tpw_cuda *cuda, void *data, size_t bytes, tpw_error *err)
{
    if (cuda->block_count == cuda->block_room) {
        size_t room = cuda->block_room == 0 ? 64 : 2 * cuda->block_room;
        tpw_cuda_block *more = realloc(cuda->blocks, room * sizeof *more);

        if (more == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "GPU %d: no memory for the list of blocks", cuda->gpu.index);
        cuda->blocks = more;
        cuda->block_room = room;
    }
    cuda->blocks[cuda->block_count++] = (tpw_cuda_block){data, bytes};
    cuda->bytes_now += bytes;
    if (cuda->bytes_now > cuda->bytes_peak)
        cuda->bytes_peak = cuda->bytes_now;
    return TPW_OK;
}

/* What is said of an allocation that failed: how much the GPU has left may be another program's doing. */
static tpw_status alloc_failed(const tpw_cuda *cuda, cudaError_t code, size_t bytes, tpw_error *err)
{
    char what[128];
    size_t left = 0, all = 0;

    (void)cudaMemGetInfo(&left, &all);
    snprintf(what, sizeof what, "allocating %zu bytes (%zu in use here, %zu of %zu free)", bytes, cuda->bytes_now, left,
             all);
    return tpw_cuda_check(cuda, code, what, err);
}

static tpw_status alloc_here(tpw_cuda *cuda, size_t bytes, void **out, tpw_error *err)
{
    void *data = NULL;
    cudaError_t code = cudaMalloc(&data, bytes > 0 ? bytes : 1);
    tpw_status st;

    if (code != cudaSuccess)
        return alloc_failed(cuda, code, bytes, err);
    TPW_TRY_GOTO(st, tpw_cuda_check(cuda, cudaMemsetAsync(data, 0, bytes, cuda->stream), "clearing memory", err), fail);
    TPW_TRY_GOTO(st, tpw_cuda_wait(cuda, "clearing memory", err), fail);
    TPW_TRY_GOTO(st, note_block(cuda, data, bytes, err), fail);
    *out = data;
    return TPW_OK;
fail:
    (void)cudaFree(data);
    return st;
}

static tpw_status device_alloc(const tpw_exec *exec, size_t bytes, void **out, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before = tpw_cuda_enter(cuda->gpu.index);
    tpw_status st = alloc_here(cuda, bytes, out, err);

    tpw_cuda_leave(before);
    return st;
}

static void device_free(const tpw_exec *exec, void *data)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);

    for (size_t i = 0; data != NULL && i < cuda->block_count; i++)
        if (cuda->blocks[i].data == data) {
            int before = tpw_cuda_enter(cuda->gpu.index);

            cuda->bytes_now -= cuda->blocks[i].bytes;
            cuda->blocks[i] = cuda->blocks[--cuda->block_count];
            (void)cudaFree(data);
            tpw_cuda_leave(before);
            return;
        }
}

static tpw_status copy(const tpw_exec *exec, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                       tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before = tpw_cuda_enter(cuda->gpu.index);
    const char *what = kind == cudaMemcpyHostToDevice ? "copying to the GPU" : "copying from the GPU";
    tpw_status st = tpw_cuda_check(cuda, cudaMemcpyAsync(to, from, bytes, kind, cuda->stream), what, err);

    if (st == TPW_OK)
        st = tpw_cuda_wait(cuda, what, err);
    tpw_cuda_leave(before);
    return st == TPW_OK && kind == cudaMemcpyDeviceToHost ? tpw_cuda_check_fault(cuda, err) : st;
}

static tpw_status device_upload(const tpw_exec *exec, void *to, const void *from_host, size_t bytes, tpw_error *err)
{
    return copy(exec, to, from_host, bytes, cudaMemcpyHostToDevice, err);
}

static tpw_status device_download(const tpw_exec *exec, void *to_host, const void *from, size_t bytes, tpw_error *err)
{
    return copy(exec, to_host, from, bytes, cudaMemcpyDeviceToHost, err);
}

static tpw_status device_fill(const tpw_exec *exec, void *to, int byte, size_t bytes, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before = tpw_cuda_enter(cuda->gpu.index);
    tpw_status st = tpw_cuda_check(cuda, cudaMemsetAsync(to, byte, bytes, cuda->stream), "filling memory", err);

    if (st == TPW_OK)
        st = tpw_cuda_wait(cuda, "filling memory", err);
    tpw_cuda_leave(before);
    return st;
}

static tpw_status device_alloc_host(const tpw_exec *exec, size_t bytes, void **out, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before = tpw_cuda_enter(cuda->gpu.index);
    void *data = NULL;
    tpw_status st =
        tpw_cuda_check(cuda, cudaHostAlloc(&data, bytes > 0 ? bytes : 1, cudaHostAllocMapped | cudaHostAllocPortable),
                       "allocating pinned host memory", err);

    tpw_cuda_leave(before);
    if (st == TPW_OK) {
        memset(data, 0, bytes);
        *out = data;
    }
    return st;
}

static void device_free_host(const tpw_exec *exec, void *data)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before = tpw_cuda_enter(cuda->gpu.index);

    (void)cudaFreeHost(data);
    tpw_cuda_leave(before);
}

static size_t device_bytes_now(const tpw_exec *exec)
{
    return tpw_cuda_of(exec)->bytes_now;
}

static size_t device_bytes_peak(const tpw_exec *exec)
{
    return tpw_cuda_of(exec)->bytes_peak;
}

static const tpw_device cuda_device = {
    .name = "cuda",
    .alloc = device_alloc,
    .free = device_free,
    .upload = device_upload,
    .download = device_download,
    .fill = device_fill,
    .send = tpw_cuda_send,
    .fetch = tpw_cuda_fetch,
    .bytes_now = device_bytes_now,
    .bytes_peak = device_bytes_peak,
    .stage = tpw_cuda_stage,
    .stage_reserve = tpw_cuda_stage_reserve,
    .alloc_host = device_alloc_host,
    .free_host = device_free_host,
    .packed_bytes = tpw_cuda_packed_bytes,
    .pack = tpw_cuda_pack,
    .make_dummy = tpw_cuda_dummy_fill,
};

/* The parts that need the device to be current. On error the caller destroys what there is. */
static tpw_status create_here(tpw_cuda *cuda, tpw_error *err)
{
    int shared = 0;

    TPW_TRY(tpw_cuda_check(cuda,
                           cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, cuda->gpu.index),
                           "reading the size of shared memory", err));
    cuda->shared_bytes = (size_t)shared;
    TPW_TRY(
        tpw_cuda_check(cuda, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking), "making a stream", err));
    TPW_TRY(tpw_cuda_check(cuda, cudaMalloc(&cuda->scratch, SCRATCH_BYTES), "allocating scratch", err));
    cuda->scratch_bytes = SCRATCH_BYTES;
    TPW_TRY(tpw_cuda_check(cuda, cudaMalloc((void **)&cuda->fault_local, sizeof *cuda->fault_local),
                           "allocating the fault word", err));
    TPW_TRY(tpw_cuda_check(cuda, cudaMemsetAsync(cuda->fault_local, 0, sizeof *cuda->fault_local, cuda->stream),
                           "clearing memory", err));
    TPW_TRY(tpw_cuda_check(cuda, cudaHostAlloc((void **)&cuda->fault, sizeof *cuda->fault, cudaHostAllocMapped),
                           "allocating the fault word", err));
    *cuda->fault = TPW_FAULT_NONE;
    TPW_TRY(tpw_cuda_check(cuda, cudaHostAlloc((void **)&cuda->list, TPW_CUDA_LIST_BYTES, cudaHostAllocDefault),
                           "allocating pinned memory for lists of digests", err));
    return tpw_cuda_check(cuda, cudaHostGetDevicePointer((void **)&cuda->fault_device, cuda->fault, 0),
                          "mapping the fault word", err);
}

/* Asks the matrix unit; decides whether wgmma is used. */
static tpw_status ask_unit(tpw_cuda *cuda, const tpw_cuda_options *options, tpw_error *err)
{
    tpw_cuda_selftest_report report;

    TPW_TRY(tpw_cuda_selftest(&cuda->exec, &report, err));
    if (report.subnormal_wrong > 0)
        return tpw_fail(err, TPW_ERR_DEVICE, "GPU %d (%s): its matrix unit does not keep BF16 subnormals: %s",
                        cuda->gpu.index, cuda->gpu.name, report.text);
    cuda->wgmma = !cuda->portable && !options->no_wgmma && report.wgmma_asked > 0 && report.wgmma_unequal == 0;
    return TPW_OK;
}

tpw_status tpw_cuda_create(const tpw_cuda_options *options, tpw_exec **out, tpw_error *err)
{
    tpw_gpu gpu;
    tpw_cuda *cuda;
    tpw_status st;
    int before;

    TPW_TRY(tpw_cuda_gpu(options->device, &gpu, err));
    if (gpu.major < CAPABILITY_MIN)
        return tpw_fail(err, TPW_ERR_RESOURCE, "GPU %d (%s) has compute capability %d.%d; 8.0 or later is needed",
                        gpu.index, gpu.name, gpu.major, gpu.minor);
    cuda = calloc(1, sizeof *cuda);
    if (cuda == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "CUDA backend: %zu bytes could not be allocated", sizeof *cuda);
    cuda->exec = (tpw_exec){&tpw_cuda_ops, &cuda_device, cuda};
    cuda->gpu = gpu;
    cuda->portable = options->portable || gpu.major != 9;
    cuda->pdl = !options->no_pdl && gpu.major >= 9;
    cuda->spin_ns = (uint64_t)(options->spin_ms > 0 ? options->spin_ms : SPIN_MS) * 1000000u;
    before = tpw_cuda_enter(gpu.index);
    st = create_here(cuda, err);
    if (st == TPW_OK)
        st = ask_unit(cuda, options, err);
    tpw_cuda_leave(before);
    if (st != TPW_OK) {
        tpw_cuda_destroy(&cuda->exec);
        return st;
    }
    *out = &cuda->exec;
    return TPW_OK;
}

static void free_exec(tpw_cuda *cuda)
{
    int before = tpw_cuda_enter(cuda->gpu.index);
    if (cuda->stream != NULL) {
        (void)cudaStreamSynchronize(cuda->stream);
        (void)cudaStreamDestroy(cuda->stream);
    }
    (void)cudaFree(cuda->scratch);
    tpw_cuda_ring_fini(cuda);
    (void)cudaFree(cuda->fault_local);
    (void)cudaFreeHost(cuda->fault);
    (void)cudaFreeHost(cuda->list);
    (void)cudaGetLastError();
    tpw_cuda_leave(before);
    free(cuda->blocks);
    free(cuda);
}

void tpw_cuda_destroy(tpw_exec *exec)
{
    tpw_cuda *cuda = exec != NULL ? tpw_cuda_of(exec) : NULL;

    if (cuda == NULL || cuda->ended)
        return;
    cuda->ended = true;
    if (cuda->users == 0)
        free_exec(cuda);
}

void tpw_cuda_hold(tpw_exec *exec)
{
    tpw_cuda_of(exec)->users++;
}

void tpw_cuda_release(tpw_exec *exec)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);

    if (--cuda->users == 0 && cuda->ended)
        free_exec(cuda);
}

tpw_status tpw_cuda_sync(const tpw_exec *exec, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before = tpw_cuda_enter(cuda->gpu.index);
    tpw_status st = tpw_cuda_wait(cuda, "waiting for the stream", err);

    tpw_cuda_leave(before);
    return st == TPW_OK ? tpw_cuda_check_fault(cuda, err) : st;
}

tpw_status tpw_cuda_allow_shared(const tpw_exec *exec, const void *kernel, size_t bytes, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before = tpw_cuda_enter(cuda->gpu.index);
    tpw_status st =
        tpw_cuda_check(cuda, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                       "asking for shared memory", err);

    if (st == TPW_OK)
        st = tpw_cuda_check(cuda, cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
                            "asking for shared memory", err);
    tpw_cuda_leave(before);
    return st;
}

tpw_status tpw_cuda_reserve(tpw_exec *exec, size_t bytes, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    void *more = NULL;
    int before;
    tpw_status st;

    if (bytes <= cuda->scratch_bytes)
        return TPW_OK;
    before = tpw_cuda_enter(cuda->gpu.index);
    st = tpw_cuda_wait(cuda, "waiting for the stream", err);
    if (st == TPW_OK)
        st = tpw_cuda_check(cuda, cudaMalloc(&more, bytes), "allocating scratch", err);
    if (st == TPW_OK) {
        (void)cudaFree(cuda->scratch);
        cuda->scratch = more;
        cuda->scratch_bytes = bytes;
    }
    tpw_cuda_leave(before);
    return st;
}

const tpw_device *tpw_cuda_layout(void)
{
    return &cuda_device;
}

size_t tpw_cuda_own_bytes(void)
{
    return SCRATCH_BYTES;
}

int64_t tpw_cuda_waits(const tpw_exec *exec)
{
    return tpw_cuda_of(exec)->waits;
}

const tpw_gpu *tpw_cuda_gpu_of(const tpw_exec *exec)
{
    return &tpw_cuda_of(exec)->gpu;
}
