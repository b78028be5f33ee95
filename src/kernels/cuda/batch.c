/* Batches on the device: segments, page tables and the row-to-segment map of a step, in one copy.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/checked.h"
#include "kernels/cuda/exec.h"

/* Where the parts stand in the buffer. */
typedef struct layout {
    size_t segment_of;
    size_t pages;
    size_t bytes;
} layout;

static tpw_status lay_out(int64_t rows, int64_t segments, int64_t pages, layout *out, tpw_error *err)
{
    size_t a, b, c, whole;

    if (rows < 0 || segments < 0 || pages < 0 || !tpw_mul_size((size_t)segments, sizeof(tpw_segment), &a) ||
        !tpw_mul_size((size_t)rows, sizeof(int32_t), &b) || !tpw_mul_size((size_t)pages, sizeof(int32_t), &c) ||
        !tpw_add_size(a, b, &whole) || !tpw_add_size(whole, c, &whole))
        return tpw_fail(err, TPW_ERR_LIMIT, "a batch of %lld rows, %lld segments and %lld pages is too large",
                        (long long)rows, (long long)segments, (long long)pages);
    *out = (layout){.segment_of = a, .pages = a + b, .bytes = whole};
    return TPW_OK;
}

static tpw_status make_room(tpw_cuda *cuda, size_t bytes, tpw_error *err)
{
    void *host = NULL, *device = NULL;
    tpw_status st;

    if (bytes <= cuda->batch_bytes)
        return TPW_OK;
    TPW_TRY(tpw_cuda_check(cuda, cudaStreamSynchronize(cuda->stream), "waiting for the stream", err));
    TPW_TRY(tpw_cuda_check(cuda, cudaHostAlloc(&host, bytes, cudaHostAllocDefault),
                           "allocating pinned memory for batches", err));
    st = tpw_cuda_check(cuda, cudaMalloc(&device, bytes), "allocating memory for batches", err);
    if (st != TPW_OK) {
        (void)cudaFreeHost(host);
        return st;
    }
    (void)cudaFreeHost(cuda->batch_host);
    (void)cudaFree(cuda->batch_device);
    cuda->batch_host = host;
    cuda->batch_device = device;
    cuda->batch_bytes = bytes;
    cuda->staged = NULL;
    return TPW_OK;
}

tpw_status tpw_cuda_stage_reserve(tpw_exec *exec, int32_t rows, int32_t segments, int64_t pages, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    layout at = {0};
    int before;
    tpw_status st;

    TPW_TRY(lay_out(rows, segments, pages, &at, err));
    before = tpw_cuda_enter(cuda->gpu.index);
    st = make_room(cuda, at.bytes, err);
    tpw_cuda_leave(before);
    return st;
}

static int64_t pages_of(const tpw_segment *s, int32_t page_size)
{
    return s->pages == NULL ? 0 : (s->pos + s->rows + page_size - 1) / page_size;
}

/* Fills the pinned copy. The device must have read the one before. */
static void fill(const tpw_cuda *cuda, const tpw_batch *batch, int32_t page_size, const layout *at)
{
    tpw_segment *segments = cuda->batch_host;
    int32_t *of = (int32_t *)(void *)((char *)cuda->batch_host + at->segment_of);
    int32_t *pages = (int32_t *)(void *)((char *)cuda->batch_host + at->pages);
    const int32_t *pages_device = (const int32_t *)(const void *)((char *)cuda->batch_device + at->pages);

    for (int32_t i = 0; i < batch->segment_count; i++) {
        const tpw_segment *s = &batch->segments[i];
        const int64_t n = pages_of(s, page_size);

        segments[i] = *s;
        segments[i].pages = n > 0 ? pages_device : NULL;
        if (n > 0)
            memcpy(pages, s->pages, (size_t)n * sizeof *pages);
        pages += n;
        pages_device += n;
        for (int32_t r = 0; r < s->rows; r++)
            of[s->row0 + r] = i;
    }
}

static tpw_status stage_here(tpw_cuda *cuda, const tpw_batch *batch, int32_t page_size, tpw_error *err)
{
    int64_t pages = 0, rows = 0;
    layout at = {0};

    for (int32_t i = 0; i < batch->segment_count; i++) {
        const tpw_segment *s = &batch->segments[i];

        if (s->rows < 1 || s->row0 != rows)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda: segment %d starts at row %d with %d rows; row %lld is next",
                            (int)i, (int)s->row0, (int)s->rows, (long long)rows);
        rows += s->rows;
        pages += pages_of(s, page_size);
    }
    if (rows != batch->rows || page_size < 1)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda: a batch of %d rows whose segments hold %lld", (int)batch->rows,
                        (long long)rows);
    TPW_TRY(lay_out(rows, batch->segment_count, pages, &at, err));
    TPW_TRY(make_room(cuda, at.bytes, err));
    /* the copy before must have been read out of the pinned buffer */
    TPW_TRY(tpw_cuda_check(cuda, cudaStreamSynchronize(cuda->stream), "waiting for the stream", err));
    fill(cuda, batch, page_size, &at);
    TPW_TRY(tpw_cuda_check(
        cuda, cudaMemcpyAsync(cuda->batch_device, cuda->batch_host, at.bytes, cudaMemcpyHostToDevice, cuda->stream),
        "copying a batch", err));
    cuda->batch.segments = cuda->batch_device;
    cuda->batch.segment_of = (const int32_t *)(const void *)((char *)cuda->batch_device + at.segment_of);
    cuda->staged = batch;
    return TPW_OK;
}

tpw_status tpw_cuda_stage(const tpw_exec *exec, const tpw_batch *batch, int32_t page_size, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    int before = tpw_cuda_enter(cuda->gpu.index);
    tpw_status st = stage_here(cuda, batch, page_size, err);

    tpw_cuda_leave(before);
    return st;
}

tpw_status tpw_cuda_batch_of(const tpw_exec *exec, const tpw_batch *batch, const char *op, tpw_cuda_batch *out,
                             tpw_error *err)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);

    if (batch == NULL || cuda->staged != batch)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda %s: the batch was not staged", op);
    *out = cuda->batch;
    return TPW_OK;
}
