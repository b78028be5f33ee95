/* The GPU's own limits: how fast memory can only be read, and what one more kernel costs.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "kernels/cuda/exec.h"
#include "read_rate.h"
#include "run.h"

#define GAP_LAUNCHES 512
#define GAP_THREADS  256

static tpw_status reads(bench_run *run, tpw_error *err)
{
    /* out, qkvz and gate_up of 27B on two ranks, and a size at which the beginning no longer counts */
    static const size_t sizes[] = {5120 * 3072, 8192 * 5120, 17408 * 5120, 20752 * (size_t)BENCH_READ_UNIT};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bench_cell cell = {.name = "read_only", .bytes = (double)sizes[i]};

        TPW_TRY(bench_read_us(run, sizes[i], &cell.us, &cell.shape, err));
        TPW_TRY(bench_report_cell(&run->report, &cell, err));
    }
    return TPW_OK;
}

typedef struct gap_work {
    int32_t ctas;
    int32_t threads;
    uint32_t *counts;
} gap_work;

static tpw_status enqueue_empty(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const gap_work *g = data;

    (void)launch;
    return bench_empty(exec, g->ctas, g->threads, g->counts, err);
}

/* Every kernel of every replay has run. */
static tpw_status check_counts(const bench_run *run, const gap_work *g, tpw_error *err)
{
    const uint32_t expected = (uint32_t)(bench_runs(0) + (GAP_LAUNCHES - 1) * bench_runs(1));

    for (int32_t i = 0; i<g->ctas; i += g->ctas> 1 ? g->ctas - 1 : 1) {
        uint32_t count;

        TPW_TRY(run->exec->device->download(run->exec, &count, g->counts + i, sizeof count, err));
        if (count != expected)
            return tpw_fail(err, TPW_ERR_INTERNAL, "empty kernel: CTA %d ran %u times instead of %u", (int)i,
                            (unsigned)count, (unsigned)expected);
    }
    return TPW_OK;
}

static tpw_status gap(bench_run *run, const tpw_exec *exec, const char *name, gap_work *g, tpw_error *err)
{
    const bench_work work = {exec, NULL, enqueue_empty, g, GAP_LAUNCHES, run->deadline_ns};
    char shape[32];
    bench_cell cell = {.name = name, .shape = shape};

    snprintf(shape, sizeof shape, "%d x %d", (int)g->ctas, (int)g->threads);
    TPW_TRY(run->exec->device->fill(run->exec, g->counts, 0, (size_t)g->ctas * sizeof *g->counts, err));
    TPW_TRY(bench_time(&work, &cell.us, err));
    TPW_TRY(check_counts(run, g, err));
    return bench_report_cell(&run->report, &cell, err);
}

static tpw_status gaps(bench_run *run, const tpw_exec *plain, uint32_t *counts, tpw_error *err)
{
    const int32_t processors = tpw_cuda_gpu_of(run->exec)->processors;
    gap_work shapes[] = {{1, 32, counts}, {processors, GAP_THREADS, counts}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        TPW_TRY(gap(run, plain, "gap.plain", &shapes[i], err));
        TPW_TRY(gap(run, run->exec, "gap.pdl", &shapes[i], err));
    }
    return TPW_OK;
}

tpw_status bench_limits(bench_run *run, tpw_error *err)
{
    const tpw_gpu *gpu = tpw_cuda_gpu_of(run->exec);
    const tpw_cuda_options options = {.device = gpu->index, .no_pdl = true};
    const int mark = run->block_count;
    tpw_exec *plain = NULL;
    void *counts = NULL;
    tpw_status st;

    TPW_TRY(bench_report_section(&run->report, "limits: cold memory only read, and a kernel that does nothing", err));
    TPW_TRY(reads(run, err));
    TPW_TRY(tpw_cuda_create(&options, &plain, err));
    st = bench_alloc(run, (size_t)gpu->processors * sizeof(uint32_t), &counts, err);
    if (st == TPW_OK)
        st = gaps(run, plain, counts, err);
    tpw_cuda_destroy(plain); /* waits for its stream */
    bench_release(run, mark);
    return st;
}
