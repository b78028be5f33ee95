/* What a step sends to the GPU and fetches from it: a pinned ring out, one watched wait back.
 * SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "kernels/cuda/exec.h"

#define ALIGN     256
#define NS_PER_MS 1000000
#define LOOK_NS   1000000   /* between looks at what may end a wait */
#define SPIN_NS   100000000 /* so long a wait only gives its core away; then it sleeps */
#define NAP_NS    50000

static void forget(tpw_cuda *cuda, int half)
{
    for (int i = 0; i < TPW_CUDA_STAGED; i++)
        if (cuda->staged[i].half == half)
            cuda->staged[i].batch = NULL;
}

void tpw_cuda_ring_fini(tpw_cuda *cuda)
{
    tpw_cuda_ring *r = &cuda->ring;

    for (int half = 0; half < 2; half++) {
        if (r->read[half] != NULL)
            (void)cudaEventDestroy(r->read[half]);
        forget(cuda, half);
    }
    (void)cudaFreeHost(r->host);
    (void)cudaFree(r->device);
    *r = (tpw_cuda_ring){0};
}

/* A ring of two halves of `bytes` each instead of the one there is. What was staged is forgotten. */
static tpw_status grow(tpw_cuda *cuda, size_t bytes, tpw_error *err)
{
    tpw_cuda_ring *r = &cuda->ring;
    size_t half, whole;
    void *host = NULL, *device = NULL;

    if (!tpw_align_size(bytes, ALIGN, &half) || !tpw_mul_size(half, 2, &whole))
        return tpw_fail(err, TPW_ERR_LIMIT, "GPU %d: %zu bytes to stage are too many", (int)cuda->gpu.index, bytes);
    TPW_TRY(tpw_cuda_wait(cuda, "waiting for the stream", err));
    tpw_cuda_ring_fini(cuda);
    for (int i = 0; i < 2; i++)
        TPW_TRY(tpw_cuda_check(cuda, cudaEventCreateWithFlags(&r->read[i], cudaEventDisableTiming), "making an event",
                               err));
    TPW_TRY(tpw_cuda_check(cuda, cudaHostAlloc(&host, whole, cudaHostAllocDefault),
                           "allocating pinned memory for what is sent", err));
    r->host = host;
    TPW_TRY(tpw_cuda_check(cuda, cudaMalloc(&device, whole), "allocating memory for what is sent", err));
    r->device = device;
    r->half_bytes = half;
    return TPW_OK;
}

tpw_status tpw_cuda_ring_reserve(tpw_cuda *cuda, size_t bytes, tpw_error *err)
{
    return bytes <= cuda->ring.half_bytes ? TPW_OK : grow(cuda, bytes, err);
}

/* Goes on in the other half, out of which nothing may still be read: its copies were enqueued at least a step ago, so that the
 * wait is hardly ever one. */
static tpw_status turn(tpw_cuda *cuda, tpw_error *err)
{
    tpw_cuda_ring *r = &cuda->ring;

    TPW_TRY(tpw_cuda_ring_flush(cuda, err));
    r->half = 1 - r->half;
    r->used = r->sent = 0;
    forget(cuda, r->half);
    if (cudaEventQuery(r->read[r->half]) == cudaSuccess)
        return TPW_OK;
    (void)cudaGetLastError();
    cuda->waits++;
    return tpw_cuda_check(cuda, cudaEventSynchronize(r->read[r->half]), "waiting for copies", err);
}

tpw_status tpw_cuda_ring_take(tpw_cuda *cuda, size_t bytes, char **host, char **device, tpw_error *err)
{
    tpw_cuda_ring *r = &cuda->ring;
    size_t whole, at;

    if (!tpw_align_size(bytes, ALIGN, &whole) || whole > SIZE_MAX / 2)
        return tpw_fail(err, TPW_ERR_LIMIT, "GPU %d: %zu bytes to stage are too many", (int)cuda->gpu.index, bytes);
    if (whole > r->half_bytes)
        TPW_TRY(grow(cuda, 2 * whole, err));
    if (whole > r->half_bytes - r->used)
        TPW_TRY(turn(cuda, err));
    at = (size_t)r->half * r->half_bytes + r->used;
    r->used += whole;
    *host = r->host + at;
    *device = r->device + at;
    return TPW_OK;
}

tpw_status tpw_cuda_ring_flush(tpw_cuda *cuda, tpw_error *err)
{
    tpw_cuda_ring *r = &cuda->ring;
    const size_t at = (size_t)r->half * r->half_bytes + r->sent, bytes = r->used - r->sent;

    if (bytes == 0)
        return TPW_OK;
    TPW_TRY(tpw_cuda_check(cuda,
                           cudaMemcpyAsync(r->device + at, r->host + at, bytes, cudaMemcpyHostToDevice, cuda->stream),
                           "copying batches", err));
    r->sent = r->used;
    return tpw_cuda_check(cuda, cudaEventRecord(r->read[r->half], cuda->stream), "recording an event", err);
}

static tpw_status send_here(tpw_cuda *cuda, void *to, const void *from_host, size_t bytes, tpw_error *err)
{
    tpw_cuda_ring *r = &cuda->ring;
    char *host, *device;

    TPW_TRY(tpw_cuda_ring_flush(cuda, err));
    TPW_TRY(tpw_cuda_ring_take(cuda, bytes, &host, &device, err));
    r->sent = r->used; /* it goes elsewhere than into the ring's twin */
    memcpy(host, from_host, bytes);
    TPW_TRY(tpw_cuda_check(cuda, cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, cuda->stream),
                           "sending what a step needs", err));
    return tpw_cuda_check(cuda, cudaEventRecord(r->read[r->half], cuda->stream), "recording an event", err);
}

tpw_status tpw_cuda_send(const tpw_exec *exec, void *to, const void *from_host, size_t bytes, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before;
    tpw_status st;

    if (bytes == 0)
        return TPW_OK;
    before = tpw_cuda_enter(cuda->gpu.index);
    st = send_here(cuda, to, from_host, bytes, err);
    tpw_cuda_leave(before);
    return st;
}

static void rest(int64_t waited_ns)
{
    const struct timespec nap = {0, NAP_NS};

    if (waited_ns < SPIN_NS)
        (void)sched_yield();
    else
        (void)nanosleep(&nap, NULL);
}

/* The stream is asked, not waited for, so that a peer's failure ends the wait: its data would never come. */
static tpw_status wait_watched(tpw_cuda *cuda, const tpw_watch *watch, tpw_error *err)
{
    const int64_t begin = tpw_clock_ns();
    int64_t looked = begin;
    cudaError_t code;

    cuda->waits++;
    while ((code = cudaStreamQuery(cuda->stream)) == cudaErrorNotReady) {
        const int64_t now = tpw_clock_ns();

        if (now - looked >= LOOK_NS) {
            looked = now;
            if (watch->look != NULL)
                TPW_TRY(watch->look(watch->data, err));
            if ((now - begin) / NS_PER_MS > watch->timeout_ms)
                return tpw_fail(err, TPW_ERR_PEER, "GPU %d (%s): the step did not end within %lld ms",
                                (int)cuda->gpu.index, cuda->gpu.bus, (long long)watch->timeout_ms);
        }
        rest(now - begin);
    }
    TPW_TRY(tpw_cuda_check(cuda, code, "running a step", err));
    return tpw_cuda_check_fault(cuda, err);
}

tpw_status tpw_cuda_fetch(const tpw_exec *exec, void *to_host, const void *from, size_t bytes, const tpw_watch *watch,
                          tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before = tpw_cuda_enter(cuda->gpu.index);
    tpw_status st = tpw_cuda_check(cuda, cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, cuda->stream),
                                   "fetching what a step gave", err);

    if (st == TPW_OK)
        st = wait_watched(cuda, watch, err);
    (void)cudaGetLastError();
    tpw_cuda_leave(before);
    return st;
}
