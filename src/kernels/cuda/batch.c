/* Batches on the device: segments, page tables and the row-to-segment map of a step, in one copy.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/checked.h"
#include "kernels/cuda/exec.h"

#define ROUND 256 /* the ring gives whole ones */

/* Where the parts stand in what is taken of the ring. */
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

tpw_status tpw_cuda_stage_reserve(const tpw_exec *exec, int32_t batches, int32_t rows, int32_t segments, int64_t pages,
                                  size_t bytes, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    layout at = {0};
    size_t each, all;
    int before;
    tpw_status st;

    if (batches < 1 || batches > TPW_CUDA_STAGED)
        return tpw_fail(err, TPW_ERR_LIMIT, "%d batches staged at a time: 1 to %d are possible", (int)batches,
                        TPW_CUDA_STAGED);
    TPW_TRY(lay_out(rows, segments, pages, &at, err));
    if (!tpw_align_size(at.bytes, ROUND, &each) || !tpw_mul_size(each, (size_t)batches, &all) ||
        !tpw_add_size(all, bytes, &all) || !tpw_add_size(all, ROUND, &all))
        return tpw_fail(err, TPW_ERR_LIMIT, "%d batches of %d rows are too large to stage", (int)batches, (int)rows);
    before = tpw_cuda_enter(cuda->gpu.index);
    st = tpw_cuda_ring_reserve(cuda, all, err);
    tpw_cuda_leave(before);
    return st;
}

static int64_t pages_of(const tpw_segment *s, int32_t page_size)
{
    return s->pages == NULL && s->pages_wide == NULL ? 0 : (s->pos + s->rows + page_size - 1) / page_size;
}

/* ERR_ARGUMENT for a page that does not fit in the 32 bits that it will have. */
static tpw_status check_pages(const tpw_segment *s, int64_t n, tpw_error *err)
{
    for (int64_t i = 0; s->pages == NULL && i < n; i++)
        if (s->pages_wide[i] < INT32_MIN || s->pages_wide[i] > INT32_MAX)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda: page %lld of the segment at row %d is out of range",
                            (long long)s->pages_wide[i], (int)s->row0);
    return TPW_OK;
}

/* A table of either width in 32 bits. */
static void copy_pages(int32_t *to, const tpw_segment *s, int64_t n)
{
    if (s->pages != NULL && n > 0)
        memcpy(to, s->pages, (size_t)n * sizeof *to);
    for (int64_t i = 0; s->pages == NULL && i < n; i++)
        to[i] = (int32_t)s->pages_wide[i];
}

/* Fills the pinned copy at `host`; what it will be on the device is known already. */
static void fill(char *host, const char *device, const tpw_batch *batch, int32_t page_size, const layout *at)
{
    tpw_segment *segments = (tpw_segment *)(void *)host;
    int32_t *of = (int32_t *)(void *)(host + at->segment_of);
    int32_t *pages = (int32_t *)(void *)(host + at->pages);
    const int32_t *pages_device = (const int32_t *)(const void *)(device + at->pages);

    for (int32_t i = 0; i < batch->segment_count; i++) {
        const tpw_segment *s = &batch->segments[i];
        const int64_t n = pages_of(s, page_size);

        segments[i] = *s;
        segments[i].pages = n > 0 ? pages_device : NULL;
        segments[i].pages_wide = NULL;
        copy_pages(pages, s, n);
        pages += n;
        pages_device += n;
        for (int32_t r = 0; r < s->rows; r++)
            of[s->row0 + r] = i;
    }
}

/* What was staged under this address before is another batch now: whatever becomes of that one, nobody gets the old one. */
static void forget(tpw_cuda *cuda, const tpw_batch *batch)
{
    for (int i = 0; i < TPW_CUDA_STAGED; i++)
        if (cuda->staged[i].batch == batch)
            cuda->staged[i].batch = NULL;
}

static tpw_status stage_here(tpw_cuda *cuda, const tpw_batch *batch, int32_t page_size, tpw_error *err)
{
    int64_t pages = 0, rows = 0;
    layout at = {0};
    char *host, *device;

    forget(cuda, batch);
    if (page_size < 1)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda: a batch with pages of %d positions", (int)page_size);
    for (int32_t i = 0; i < batch->segment_count; i++) {
        const tpw_segment *s = &batch->segments[i];

        if (s->rows < 1 || s->row0 != rows)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda: segment %d starts at row %d with %d rows; row %lld is next",
                            (int)i, (int)s->row0, (int)s->rows, (long long)rows);
        rows += s->rows;
        pages += pages_of(s, page_size);
    }
    if (rows != batch->rows)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda: a batch of %d rows whose segments hold %lld", (int)batch->rows,
                        (long long)rows);
    for (int32_t i = 0; i < batch->segment_count; i++) /* tables are read only now: their lengths hang on the rows */
        TPW_TRY(check_pages(&batch->segments[i], pages_of(&batch->segments[i], page_size), err));
    TPW_TRY(lay_out(rows, batch->segment_count, pages, &at, err));
    TPW_TRY(tpw_cuda_ring_take(cuda, at.bytes, &host, &device, err));
    fill(host, device, batch, page_size, &at);
    cuda->staged[cuda->staged_next] =
        (tpw_cuda_staged){.batch = batch,
                          .at = {.segments = (const tpw_segment *)(const void *)device,
                                 .segment_of = (const int32_t *)(const void *)(device + at.segment_of)},
                          .half = cuda->ring.half};
    cuda->staged_next = (cuda->staged_next + 1) % TPW_CUDA_STAGED;
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

/* The copy of all batches that a step has staged by now is enqueued before the first op that reads one. */
tpw_status tpw_cuda_batch_of(const tpw_exec *exec, const tpw_batch *batch, const char *op, tpw_cuda_batch *out,
                             tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    const tpw_cuda_staged *found = NULL;
    tpw_status st;
    int before;

    for (int i = 1; batch != NULL && found == NULL && i <= TPW_CUDA_STAGED; i++) { /* the newest first */
        const tpw_cuda_staged *s = &cuda->staged[(cuda->staged_next + TPW_CUDA_STAGED - i) % TPW_CUDA_STAGED];

        found = s->batch == batch ? s : NULL;
    }
    if (found == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda %s: the batch was not staged", op);
    *out = found->at;
    if (cuda->ring.sent == cuda->ring.used)
        return TPW_OK;
    before = tpw_cuda_enter(cuda->gpu.index);
    st = tpw_cuda_ring_flush(cuda, err);
    tpw_cuda_leave(before);
    return st;
}
