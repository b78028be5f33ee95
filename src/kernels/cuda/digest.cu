// The state digest of a block, added to a sum in device memory, of many at once, and of every row of a step. Integer sums do not depend on
// their order, so atomics are as good as a tree. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "base/digest.h"
}

namespace
{

enum { THREADS = 256, WAVES = 8 };
enum { LIST_WIDTH = 64 }; // CTAs of one block of a list

struct digest_params {
    tpw_windows x;
    uint64_t key;
    uint64_t index0;
    uint64_t index_stride;
    uint64_t *sum;
};

// Element `i` of a window that has been loaded whole.
template <int SIZE> __device__ __forceinline__ uint64_t bits_in(const uint32_t words[4], int i)
{
    if (SIZE == 8)
        return (uint64_t)words[2 * i + 1] << 32 | words[2 * i];
    if (SIZE == 4)
        return words[i];
    if (SIZE == 2)
        return words[i / 2] >> 16 * (i % 2) & 0xFFFFu;
    return words[i / 4] >> 8 * (i % 4) & 0xFFu;
}

// One that lies alone.
template <int SIZE> __device__ __forceinline__ uint64_t bits_at(const char *at)
{
    if (SIZE == 8)
        return *(const uint64_t *)at;
    if (SIZE == 4)
        return *(const uint32_t *)at;
    if (SIZE == 2)
        return *(const uint16_t *)at;
    return *(const uint8_t *)at;
}

// `place` is that of the row's first element.
template <int SIZE> __device__ uint64_t window_digest(uint64_t place, const tpw_window &w)
{
    uint64_t sum = 0;
    place += (uint64_t)(w.first / SIZE) * TPW_DIGEST_STEP;
    if (w.bytes == 16) {
        const uint4 v = *(const uint4 *)w.at;
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 16 / SIZE; i++, place += TPW_DIGEST_STEP)
            sum += tpw_digest_fin(place ^ bits_in<SIZE>(words, i));
        return sum;
    }
    for (int32_t b = 0; b < w.bytes; b += SIZE, place += TPW_DIGEST_STEP)
        sum += tpw_digest_fin(place ^ bits_at<SIZE>(w.at + b));
    return sum;
}

// Thread 0 has the sum of all threads.
__device__ uint64_t block_sum(uint64_t sum)
{
    __shared__ uint64_t warps[THREADS / TPW_WARP];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
        sum += __shfl_xor_sync(TPW_ALL, sum, mask);
    if (threadIdx.x % TPW_WARP == 0)
        warps[threadIdx.x / TPW_WARP] = sum;
    __syncthreads();
    for (int w = 1; threadIdx.x == 0 && w < THREADS / TPW_WARP; w++)
        sum += warps[w];
    return sum;
}

template <int SIZE> __global__ void __launch_bounds__(THREADS) digest(digest_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t items = p.x.rows * p.x.per_row;
    uint64_t sum = 0;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < items; i += (int64_t)gridDim.x * THREADS) {
        const tpw_window w = tpw_window_at(p.x, i);
        sum += window_digest<SIZE>(p.key + (p.index0 + (uint64_t)w.row * p.index_stride) * TPW_DIGEST_STEP, w);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        atomicAdd((unsigned long long *)p.sum, (unsigned long long)sum);
}

// One block of a list.
struct digest_job {
    tpw_windows x;
    uint64_t key;
    uint64_t index0;
    uint64_t index_stride;
    int64_t size; // of an element
};

template <int SIZE> __device__ uint64_t job_digest(const digest_job &j)
{
    const int64_t items = j.x.rows * j.x.per_row;
    uint64_t sum = 0;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < items; i += (int64_t)gridDim.x * THREADS) {
        const tpw_window w = tpw_window_at(j.x, i);
        sum += window_digest<SIZE>(j.key + (j.index0 + (uint64_t)w.row * j.index_stride) * TPW_DIGEST_STEP, w);
    }
    return sum;
}

// CTAs (x, job): those that find nothing of a small block leave at once.
__global__ void __launch_bounds__(THREADS) digest_list(const digest_job *jobs, uint64_t *sums)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const digest_job j = jobs[blockIdx.y];
    if (blockIdx.x * (int64_t)THREADS >= j.x.rows * j.x.per_row)
        return;
    uint64_t sum = j.size == 8   ? job_digest<8>(j)
                   : j.size == 4 ? job_digest<4>(j)
                   : j.size == 2 ? job_digest<2>(j)
                                 : job_digest<1>(j);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        atomicAdd((unsigned long long *)&sums[blockIdx.y], (unsigned long long)sum);
}

struct digest_rows_params {
    tpw_windows x;
    const tpw_segment *segments;
    const int32_t *segment_of;
    uint64_t key;
    uint64_t cols;
    uint64_t *sums;
};

// One CTA a row.
template <int SIZE> __global__ void __launch_bounds__(THREADS) digest_rows(digest_rows_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t row = blockIdx.x;
    const tpw_segment s = p.segments[p.segment_of[row]];
    const uint64_t place = p.key + (uint64_t)(s.pos + (row - s.row0)) * p.cols * TPW_DIGEST_STEP;
    uint64_t sum = 0;
    for (int64_t i = threadIdx.x; i < p.x.per_row; i += THREADS)
        sum += window_digest<SIZE>(place, tpw_window_at(p.x, row * p.x.per_row + i));
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        p.sums[row] = sum;
}

} // namespace

// A sum in ordinary host memory: the kernel adds to a word of scratch, and the call waits for it. For checks between steps.
static tpw_status digest_to_host(const tpw_exec *exec, const tpw_digest_args *args, tpw_error *err)
{
    tpw_digest_args device = *args;
    uint64_t sum = 0;

    device.sum = (uint64_t *)tpw_cuda_of(exec)->scratch;
    TPW_TRY(exec->device->fill(exec, device.sum, 0, sizeof sum, err));
    TPW_TRY(tpw_cuda_digest(exec, &device, err));
    TPW_TRY(exec->device->download(exec, &sum, device.sum, sizeof sum, err));
    *args->sum += sum;
    return TPW_OK;
}

static bool is_host_memory(const void *data)
{
    cudaPointerAttributes what;
    const cudaError_t code = cudaPointerGetAttributes(&what, data);

    (void)cudaGetLastError();
    return code != cudaSuccess || what.type == cudaMemoryTypeUnregistered;
}

extern "C" tpw_status tpw_cuda_digest(const tpw_exec *exec, const tpw_digest_args *args, tpw_error *err)
{
    const tpw_mat *x = &args->x;
    TPW_TRY(tpw_mat_check("cuda digest", "x", x, err));
    if (x->rows == 0 || x->cols == 0)
        return TPW_OK;
    if (is_host_memory(args->sum))
        return digest_to_host(exec, args, err);
    const int64_t size = (int64_t)tpw_dtype_size(x->dtype);
    int64_t rows = x->rows, cols = x->cols;
    if (x->stride == cols && args->index_stride == (uint64_t)cols)
        cols *= rows, rows = 1; // one long row: no division in the kernel
    digest_params p = {};
    p.x = tpw_windows_of(x->data, rows, cols, x->stride, size);
    p.key = args->key, p.index0 = args->index0, p.index_stride = args->index_stride, p.sum = args->sum;
    const dim3 grid(tpw_blocks(exec, rows * p.x.per_row, THREADS, WAVES));
    return tpw_cuda_launch(exec, "digest", err,
                           size == 8   ? digest<8>
                           : size == 4 ? digest<4>
                           : size == 2 ? digest<2>
                                       : digest<1>,
                           grid, dim3(THREADS), 0, 1, p);
}

// What the kernel reads: zeroed sums, then the jobs. *most: windows of the largest.
static tpw_status fill_jobs(const tpw_digest_args *from, int32_t count, uint64_t *sums, digest_job *jobs, int64_t *most,
                            tpw_error *err)
{
    *most = 0;
    for (int32_t i = 0; i < count; i++) {
        const tpw_mat *x = &from[i].x;
        const int64_t size = (int64_t)tpw_dtype_size(x->dtype);
        int64_t rows = x->rows, cols = x->cols;
        TPW_TRY(tpw_mat_check("cuda digest", "x", x, err));
        if (x->stride == cols && from[i].index_stride == (uint64_t)cols)
            cols *= rows, rows = 1;
        jobs[i] = digest_job{tpw_windows_of(x->data, rows, cols, x->stride, size), from[i].key, from[i].index0,
                             from[i].index_stride, size};
        if (rows == 0 || cols == 0)
            jobs[i].x.rows = 0;
        sums[i] = 0;
        *most = jobs[i].x.rows * jobs[i].x.per_row > *most ? jobs[i].x.rows * jobs[i].x.per_row : *most;
    }
    return TPW_OK;
}

// Blocks that one launch takes: the pinned memory that they travel in is never grown.
constexpr int32_t LIST_MOST = (int32_t)(TPW_CUDA_LIST_BYTES / (sizeof(uint64_t) + sizeof(digest_job)));

// There and back behind the ops before; one wait.
static tpw_status run_jobs(const tpw_exec *exec, const tpw_digest_args *from, int32_t count, tpw_error *err)
{
    tpw_cuda *cuda = tpw_cuda_of(exec);
    uint64_t *sums = (uint64_t *)cuda->list, *device = (uint64_t *)cuda->scratch;
    digest_job *jobs = (digest_job *)(cuda->list + (size_t)count * sizeof *sums);
    const size_t bytes = (size_t)count * (sizeof *sums + sizeof *jobs);
    int64_t most;

    TPW_TRY(fill_jobs(from, count, sums, jobs, &most, err));
    const int before = tpw_cuda_enter(cuda->gpu.index);
    const tpw_status st =
        tpw_cuda_check(cuda, cudaMemcpyAsync(device, sums, bytes, cudaMemcpyHostToDevice, cuda->stream),
                       "sending a list of digests", err);
    tpw_cuda_leave(before);
    TPW_TRY(st);
    const int64_t wide = (most + 2 * THREADS - 1) / (2 * THREADS); // two windows a thread, then strides
    const dim3 grid((unsigned)(wide < 1                     ? 1
                               : wide < (int64_t)LIST_WIDTH ? wide
                                                            : (int64_t)LIST_WIDTH),
                    (unsigned)count);
    TPW_TRY(tpw_cuda_launch(exec, "digest_list", err, digest_list, grid, dim3(THREADS), 0, 1,
                            (const digest_job *)(const void *)(device + count), device));
    TPW_TRY(exec->device->download(exec, sums, device, (size_t)count * sizeof *sums, err));
    for (int32_t i = 0; i < count; i++)
        *from[i].sum += sums[i];
    return TPW_OK;
}

extern "C" tpw_status tpw_cuda_digest_list(const tpw_exec *exec, const tpw_digest_list_args *args, tpw_error *err)
{
    for (int32_t left = args->count; left > 0; left -= LIST_MOST)
        TPW_TRY(run_jobs(exec, args->jobs + (args->count - left), left < LIST_MOST ? left : LIST_MOST, err));
    return TPW_OK;
}

extern "C" tpw_status tpw_cuda_digest_rows(const tpw_exec *exec, const tpw_digest_rows_args *args, tpw_error *err)
{
    const tpw_mat *x = &args->x;
    tpw_cuda_batch b;
    TPW_TRY(tpw_cuda_batch_of(exec, args->batch, "digest_rows", &b, err));
    TPW_TRY(tpw_mat_check("cuda digest_rows", "x", x, err));
    if (x->rows < args->batch->rows)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda digest_rows: %d rows of a step of %d", (int)x->rows,
                        (int)args->batch->rows);
    const int64_t size = (int64_t)tpw_dtype_size(x->dtype);
    digest_rows_params p = {};
    p.x = tpw_windows_of(x->data, args->batch->rows, x->cols, x->stride, size);
    p.segments = b.segments, p.segment_of = b.segment_of;
    p.key = args->key, p.cols = (uint64_t)x->cols, p.sums = args->sums;
    return tpw_cuda_launch(exec, "digest_rows", err,
                           size == 8   ? digest_rows<8>
                           : size == 4 ? digest_rows<4>
                           : size == 2 ? digest_rows<2>
                                       : digest_rows<1>,
                           dim3((unsigned)args->batch->rows), dim3(THREADS), 0, 1, p);
}
