/* The pool over a real GPU: pinned host memory that kernels see, and graphs that keep their blocks through trims, with sum, power, concat
 * and casts replayed on changed inputs. SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>

#include "gpu_test.h"
#include "graph/pool.h"
#include "kernels/cuda/exec.h"

TestSuite(gpu_pool, .timeout = 60);

static void *take(tpw_pool *pool, tpw_place place, size_t bytes)
{
    void *data = NULL;
    GPU_OK(tpw_pool_alloc(pool, place, bytes, &data, err));
    return data;
}

static tpw_array row_major(void *data, tpw_dtype dtype, int64_t rows, int64_t cols)
{
    return (tpw_array){data, dtype, 2, {rows, cols}, {cols, 1}};
}

/* Kernels read and write pinned memory; poison and reuse; statistics follow. */
Test(gpu_pool, pinned_and_poisoned)
{
    tpw_exec *exec = gpu_exec();
    tpw_backing backing = tpw_backing_of(exec);
    tpw_pool *pool = NULL;
    tpw_pool_stats stats;
    GPU_OK(tpw_pool_create(&backing, true, &pool, err));
    float *host = take(pool, TPW_PLACE_HOST, 4096), *device = take(pool, TPW_PLACE_DEVICE, 4096);
    for (int i = 0; i < 1024; i++)
        host[i] = (float)i;
    tpw_power_args power = {
        .x = row_major(host, TPW_F32, 1, 1024), .exponent = 2.0f, .y = row_major(device, TPW_F32, 1, 1024)};
    GPU_OK(exec->ops->power(exec, &power, err));
    power.x = power.y;
    power.exponent = 0.5f;
    power.y = row_major(host, TPW_F32, 1, 1024);
    GPU_OK(exec->ops->power(exec, &power, err));
    GPU_OK(tpw_cuda_sync(exec, err));
    for (int i = 0; i < 1024; i++)
        cr_assert_eq(host[i], (float)i);
    GPU_OK(tpw_pool_free(pool, device, err));
    float *again = take(pool, TPW_PLACE_DEVICE, 2000), back[2];
    cr_assert_eq(again, device, "the cached block was not reused");
    gpu_download(exec, back, again, sizeof back);
    cr_assert(back[0] != back[0], "a freed block is not poisoned");
    tpw_pool_get_stats(pool, &stats);
    cr_assert_eq(stats.reused, 1u);
    cr_assert_eq(stats.fresh, 2u);
    GPU_OK(tpw_pool_free(pool, again, err));
    GPU_OK(tpw_pool_free(pool, host, err));
    GPU_OK(tpw_pool_destroy(pool, err));
    cr_assert_eq(exec->device->bytes_now(exec), 0u);
    tpw_cuda_destroy(exec);
}

enum { BATCH = 4, WIDTH = 768, PART = 129 };

/* What the graph computes: y = (sum over the last axis of x)^-0.5, once by keep and once not; the two halves of x widened and put side
 * by side. Also on the host, as the reference. */
typedef struct job {
    void *x;      /* [BATCH, WIDTH] F32, the input */
    void *half;   /* BF16 */
    void *sums;   /* [BATCH, 1] */
    void *roots;  /* [BATCH, 1] */
    void *joined; /* [BATCH, 2 * PART] F32 */
    void *wide;   /* [BATCH, WIDTH] F32 from BF16 */
} job;

static void run_job(const tpw_exec *exec, const job *j)
{
    tpw_array x = row_major(j->x, TPW_F32, BATCH, WIDTH), half = row_major(j->half, TPW_BF16, BATCH, WIDTH);
    tpw_array wide = row_major(j->wide, TPW_F32, BATCH, WIDTH), sums = row_major(j->sums, TPW_F32, BATCH, 1);
    tpw_cast_args narrow = {.x = x, .y = half}, widen = {.x = half, .y = wide};
    tpw_sum_args sum = {.x = wide, .axes = 2, .keep = true, .y = sums};
    tpw_power_args power = {.x = sums, .exponent = -0.5f, .y = row_major(j->roots, TPW_F32, BATCH, 1)};
    tpw_concat_args concat = {.count = 2, .y = row_major(j->joined, TPW_F32, BATCH, 2 * PART)};
    concat.x[0] = concat.x[1] = wide;
    concat.x[0].extent[1] = concat.x[1].extent[1] = PART;
    concat.x[1].data = (float *)j->wide + 33;
    GPU_OK(exec->ops->cast(exec, &narrow, err));
    GPU_OK(exec->ops->cast(exec, &widen, err));
    GPU_OK(exec->ops->sum(exec, &sum, err));
    GPU_OK(exec->ops->power(exec, &power, err));
    GPU_OK(exec->ops->concat(exec, &concat, err));
}

static job take_job(tpw_pool *pool)
{
    job j = {take(pool, TPW_PLACE_DEVICE, BATCH * WIDTH * 4),
             take(pool, TPW_PLACE_DEVICE, BATCH * WIDTH * 2),
             take(pool, TPW_PLACE_DEVICE, BATCH * 4),
             take(pool, TPW_PLACE_DEVICE, BATCH * 4),
             take(pool, TPW_PLACE_DEVICE, BATCH * 2 * PART * 4),
             take(pool, TPW_PLACE_DEVICE, BATCH * WIDTH * 4)};
    return j;
}

static void free_job(tpw_pool *pool, const job *j)
{
    void *const blocks[] = {j->x, j->half, j->sums, j->roots, j->joined, j->wide};
    for (int i = 0; i < 6; i++)
        GPU_OK(tpw_pool_free(pool, blocks[i], err));
}

/* Captures the job on pooled blocks, frees and trims under the live graph, replays on changed inputs. */
Test(gpu_pool, graph_keeps_its_blocks)
{
    tpw_exec *exec = gpu_exec(), *host = gpu_host_exec();
    tpw_cuda *cuda = tpw_cuda_of(exec);
    tpw_backing backing = tpw_backing_of(exec);
    tpw_pool *pool = NULL;
    tpw_lease lease = 0;
    tpw_pool_stats stats;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    size_t trimmed = 0;
    GPU_OK(tpw_pool_create(&backing, true, &pool, err));
    job warm = take_job(pool); /* a capture may not allocate: its blocks come from the cache */
    run_job(exec, &warm);
    GPU_OK(tpw_cuda_sync(exec, err));
    free_job(pool, &warm);
    const int before = tpw_cuda_enter(cuda->gpu.index);
    GPU_OK(tpw_pool_capture_begin(pool, &lease, err));
    cr_assert_eq(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    job j = take_job(pool);
    run_job(exec, &j);
    cr_assert_eq(cudaStreamEndCapture(cuda->stream, &graph), cudaSuccess);
    GPU_OK(tpw_pool_capture_end(pool, err));
    cr_assert_eq(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    free_job(pool, &j); /* the graph still refers to all of them */
    GPU_OK(tpw_pool_trim(pool, &trimmed, err));
    cr_assert_eq(trimmed, 0u, "a trim freed blocks of a live graph");
    for (int i = 0; i < 6; i++) /* and nobody else is given one */
        cr_assert_neq(take(pool, TPW_PLACE_DEVICE, BATCH * WIDTH * 4), j.x);
    static const float scales[] = {1.0f, 0.5f, 3.0f, -1.0f};
    size_t compared = 0;
    for (int i = 0; i < 4; i++) {
        static float x[BATCH * WIDTH], sums[BATCH], roots[BATCH], joined[BATCH * 2 * PART], wide[BATCH * WIDTH],
            back[BATCH * 2 * PART];
        static uint16_t half[BATCH * WIDTH];
        const job reference = {x, half, sums, roots, joined, wide};
        ops_random r = {40 + (uint64_t)i};
        for (int k = 0; k < BATCH * WIDTH; k++)
            x[k] = scales[i] * (1.5f + ops_uniform(&r)); /* a negative sum has no root: NaN on both sides */
        GPU_OK(exec->device->upload(exec, j.x, x, sizeof x, err));
        cr_assert_eq(cudaGraphLaunch(replay, cuda->stream), cudaSuccess);
        GPU_OK(tpw_cuda_sync(exec, err));
        run_job(host, &reference);
        gpu_download(exec, back, j.joined, sizeof joined);
        cr_assert_eq(memcmp(back, joined, sizeof joined), 0, "concat of replay %d", i);
        gpu_download(exec, back, j.sums, sizeof sums);
        cr_assert_eq(memcmp(back, sums, sizeof sums), 0, "sums of replay %d", i);
        gpu_download(exec, back, j.roots, sizeof roots);
        for (int k = 0; k < BATCH; k++)
            cr_assert(memcmp(&back[k], &roots[k], 4) == 0 || (back[k] != back[k] && roots[k] != roots[k]),
                      "root %d of replay %d", k, i);
        compared += BATCH * (2 * PART + 2);
    }
    cr_assert_eq(compared, 4u * BATCH * (2 * PART + 2));
    cr_assert_eq(cudaGraphExecDestroy(replay), cudaSuccess);
    cr_assert_eq(cudaGraphDestroy(graph), cudaSuccess);
    GPU_OK(tpw_pool_lease_release(pool, lease, err));
    GPU_OK(tpw_pool_trim(pool, &trimmed, err));
    cr_assert_gt(trimmed, 5u * 32768u, "the blocks of a dead graph do not return");
    tpw_pool_get_stats(pool, &stats);
    cr_assert_eq(stats.place[TPW_PLACE_DEVICE].pinned, 0u);
    tpw_cuda_leave(before);
    tpw_pool_destroy_force(pool);
    cr_assert_eq(exec->device->bytes_now(exec), 0u);
    tpw_cuda_destroy(exec);
    tpw_host_destroy(host);
}
