/* Memory of the benchmark: the pool, blocks, fillings, and the time that only reading takes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "base/checked.h"
#include "kernels/cuda/dummy.h"
#include "kernels/cuda/exec.h"
#include "read_rate.h"

#define POOL_BYTES   ((size_t)8 << 30)
#define POOL_MIN     ((size_t)3 << 30) /* two copies of the largest weight */
#define POOL_SPARE   ((size_t)3 << 30) /* left for everything else */
#define LAUNCHES_MAX 512
#define COLD         3 /* times the L2, from one turn of a copy to its next */

tpw_status bench_alloc(bench_run *run, size_t bytes, void **out, tpw_error *err)
{
    if (run->block_count == BENCH_BLOCKS_MAX)
        return tpw_fail(err, TPW_ERR_INTERNAL, "more than %d blocks", BENCH_BLOCKS_MAX);
    TPW_TRY(run->exec->device->alloc(run->exec, bytes, out, err));
    run->blocks[run->block_count++] = *out;
    return TPW_OK;
}

void bench_release(bench_run *run, int mark)
{
    /* freeing waits for the GPU: nothing is still at work there, whatever failed */
    while (run->block_count > mark)
        run->exec->device->free(run->exec, run->blocks[--run->block_count]);
}

tpw_status bench_fill(bench_run *run, tpw_dtype dtype, void *out, int64_t count, uint64_t seed, tpw_error *err)
{
    tpw_dummy_recipe recipe = {.key = seed * 0x9E3779B97F4A7C15u, .cols = count, .dtype = dtype};

    recipe.low = dtype == TPW_F32 ? -(1 << 20) : -128;
    recipe.span = (uint32_t)(-2 * recipe.low);
    recipe.exponent = dtype == TPW_F32 ? -20 : -7;
    return tpw_cuda_dummy_fill(run->exec, &recipe, 0, 1, 0, count, out, count, err);
}

tpw_status bench_run_pool(bench_run *run, tpw_error *err)
{
    const tpw_cuda *cuda = tpw_cuda_of(run->exec);
    size_t left = 0, total = 0;
    int l2 = 0;
    void *pool;

    TPW_TRY(tpw_cuda_check(cuda, cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, cuda->gpu.index),
                           "reading the size of the L2", err));
    TPW_TRY(tpw_cuda_check(cuda, cudaMemGetInfo(&left, &total), "reading how much memory is left", err));
    run->l2_bytes = l2 > 0 ? (size_t)l2 : 0;
    if (left < POOL_MIN + POOL_SPARE)
        return tpw_fail(err, TPW_ERR_MEMORY, "GPU %d (%s): %zu bytes are left of %zu; %zu are needed: use a free GPU",
                        cuda->gpu.index, cuda->gpu.name, left, total, POOL_MIN + POOL_SPARE);
    run->pool_bytes = left - POOL_SPARE < POOL_BYTES ? left - POOL_SPARE : POOL_BYTES;
    run->pool_bytes = run->pool_bytes / BENCH_READ_UNIT * BENCH_READ_UNIT;
    TPW_TRY(bench_alloc(run, run->pool_bytes, &pool, err));
    run->pool = pool;
    TPW_TRY(bench_fill(run, TPW_F32, pool, (int64_t)(run->pool_bytes / sizeof(float)), 1, err));
    return tpw_cuda_sync(run->exec, err);
}

tpw_status bench_copies_of(const bench_run *run, size_t bytes, bench_copies *out, tpw_error *err)
{
    const size_t far = COLD * run->l2_bytes;
    size_t stride, wanted, fit;

    if (bytes == 0 || !tpw_align_size(bytes, BENCH_READ_UNIT, &stride))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "copies of %zu bytes", bytes);
    wanted = far / stride + 1;
    wanted = wanted < BENCH_LAUNCHES ? BENCH_LAUNCHES : wanted > LAUNCHES_MAX ? LAUNCHES_MAX : wanted;
    fit = run->pool_bytes / stride;
    *out = (bench_copies){stride, (int32_t)wanted, (int32_t)(fit < wanted ? fit : wanted)};
    if (out->copies < 2 || (size_t)out->copies * stride < 2 * run->l2_bytes)
        return tpw_fail(err, TPW_ERR_LIMIT, "%d copies of %zu bytes do not outgrow an L2 of %zu", (int)out->copies,
                        bytes, run->l2_bytes);
    return TPW_OK;
}

typedef struct read_work {
    const bench_run *run;
    bench_copies copies;
    int design;
    uint32_t *sum;
} read_work;

static tpw_status enqueue_read(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const read_work *r = data;
    const size_t at = (size_t)(launch % r->copies.copies) * r->copies.stride;

    return bench_read(exec, r->design, r->run->pool + at, r->copies.stride, r->sum, err);
}

/* A design that skips bytes would look fast. */
static tpw_status check_sum(const read_work *r, tpw_error *err)
{
    const tpw_exec *exec = r->run->exec;
    uint32_t sums[2];

    TPW_TRY(exec->device->fill(exec, r->sum, 0, sizeof sums, err));
    TPW_TRY(bench_read(exec, r->design, r->run->pool, r->copies.stride, r->sum, err));
    TPW_TRY(bench_read_plainly(exec, r->run->pool, r->copies.stride, r->sum + 1, err));
    TPW_TRY(exec->device->download(exec, sums, r->sum, sizeof sums, err));
    if (sums[0] != sums[1])
        return tpw_fail(err, TPW_ERR_INTERNAL, "reading %zu bytes by %s: sum %08x, plainly %08x", r->copies.stride,
                        bench_read_design(r->design), (unsigned)sums[0], (unsigned)sums[1]);
    return TPW_OK;
}

static tpw_status fastest_read(bench_run *run, read_work *r, double *us, int *best, tpw_error *err)
{
    *best = -1;
    for (r->design = 0; bench_read_design(r->design) != NULL; r->design++) {
        const bench_work work = {run->exec, NULL, enqueue_read, r, r->copies.launches, run->deadline_ns};
        double t;

        if (!bench_read_possible(run->exec, r->design))
            continue;
        TPW_TRY(check_sum(r, err));
        TPW_TRY(bench_time(&work, &t, err));
        if (*best < 0 || t < *us) {
            *us = t;
            *best = r->design;
        }
    }
    return *best >= 0 ? TPW_OK : tpw_fail(err, TPW_ERR_INTERNAL, "no way to read memory is possible here");
}

tpw_status bench_read_us(bench_run *run, size_t bytes, double *us, const char **design, tpw_error *err)
{
    const int mark = run->block_count;
    read_work r = {.run = run};
    void *sum = NULL;
    tpw_status st;
    int best = 0;

    TPW_TRY(bench_copies_of(run, bytes, &r.copies, err));
    for (int i = 0; i < run->read_count && design == NULL; i++)
        if (run->reads[i].bytes == r.copies.stride) {
            *us = run->reads[i].us;
            return TPW_OK;
        }
    TPW_TRY(bench_alloc(run, 2 * sizeof(uint32_t), &sum, err));
    r.sum = sum;
    st = fastest_read(run, &r, us, &best, err);
    bench_release(run, mark);
    TPW_TRY(st);
    if (design != NULL)
        *design = bench_read_design(best);
    if (run->read_count < BENCH_READS_MAX)
        run->reads[run->read_count++] = (bench_read_time){r.copies.stride, *us};
    return TPW_OK;
}
