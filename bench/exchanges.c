/* All-reduces among ranks, alone and with the residual and norm, by row count and transport. Collective.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/exec.h"
#include "run.h"
#include "tp/agree.h"
#include "tp/comm_nccl.h"

#define ROWS_MAX   1024
#define CLOSE_ROWS 33 /* the first row count beyond packets */

typedef struct exchange_work {
    tpw_comm *comm;
    float *x;             /* [ROWS_MAX, H] */
    float *sum;           /* [parts, ROWS_MAX, H] */
    const float *numbers; /* host: what x and sum are filled from */
    void *h;              /* BF16 [ROWS_MAX, H] */
    void *y;
    float *weight;
    int32_t parts;
    int32_t rows;
} exchange_work;

static tpw_status all_reduce(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const exchange_work *w = data;

    (void)exec;
    (void)launch;
    return w->comm->ops->allreduce(w->comm, w->x, (size_t)w->rows * BENCH_HIDDEN, err);
}

static tpw_status reduce_and_norm(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const exchange_work *w = data;
    const tpw_add_norm_args args = {.h = {w->h, TPW_BF16, w->rows, BENCH_HIDDEN, BENCH_HIDDEN},
                                    .sum = w->sum,
                                    .parts = w->parts,
                                    .weight = w->weight,
                                    .eps = 1e-6f,
                                    .y = {w->y, TPW_BF16, w->rows, BENCH_HIDDEN, BENCH_HIDDEN}};

    (void)exec;
    (void)launch;
    return tpw_comm_nccl_add_norm(w->comm, &args, err);
}

/* Ranks add up what is known: every element is rank + 1. */
static tpw_status check_sum(bench_run *run, const exchange_work *w, tpw_error *err)
{
    const size_t count = (size_t)w->rows * BENCH_HIDDEN;
    const float expected = (float)(run->boot->size * (run->boot->size + 1) / 2);
    float *x = malloc(count * sizeof *x);
    tpw_status st = TPW_OK;

    if (x == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %zu values", count);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(run->boot->rank + 1);
    TPW_TRY_GOTO(st, run->exec->device->upload(run->exec, w->x, x, count * sizeof *x, err), done);
    TPW_TRY_GOTO(st, w->comm->ops->allreduce(w->comm, w->x, count, err), done);
    TPW_TRY_GOTO(st, tpw_cuda_sync(run->exec, err), done);
    TPW_TRY_GOTO(st, run->exec->device->download(run->exec, x, w->x, count * sizeof *x, err), done);
    for (size_t i = 0; i < count && st == TPW_OK; i++)
        if (x[i] != expected)
            st = tpw_fail(err, TPW_ERR_INTERNAL, "all-reduce of %d rows: element %zu is %g instead of %g", (int)w->rows,
                          i, (double)x[i], (double)expected);
done:
    free(x);
    return st;
}

/* Numbers whose sum over ranks is 0, so that repeated sums stay finite. */
static float *make_numbers(const tpw_boot *boot, size_t count)
{
    float *numbers = malloc(count * sizeof *numbers);
    uint64_t state = 1;

    for (size_t i = 0; numbers != NULL && i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = (float)((int32_t)(state >> 40) - (1 << 23)) * (boot->rank % 2 == 0 ? 0x1p-23f : -0x1p-23f);
    }
    return numbers;
}

static tpw_status refill(bench_run *run, const exchange_work *w, tpw_error *err)
{
    const size_t bytes = (size_t)w->rows * BENCH_HIDDEN * sizeof(float);

    TPW_TRY(run->exec->device->upload(run->exec, w->x, w->numbers, bytes, err));
    return run->exec->device->upload(run->exec, w->sum, w->numbers, bytes * (size_t)w->parts, err);
}

static const char *transport_name(tpw_nccl_transport transport)
{
    return transport == TPW_NCCL_PACKETS ? "packets" : transport == TPW_NCCL_COPIES ? "copies" : "gather";
}

static tpw_status cell(bench_run *run, exchange_work *w, const char *what, bench_enqueue *enqueue, tpw_error *err)
{
    const bench_work work = {run->exec, run->boot, enqueue, w, BENCH_LAUNCHES, run->deadline_ns};
    char name[40], shape[40];
    bench_cell c = {.name = name, .shape = shape, .rows = w->rows, .bytes = 4.0 * w->rows * BENCH_HIDDEN};
    tpw_status st;

    snprintf(name, sizeof name, "%s.%s", what, transport_name(tpw_comm_nccl_transport(w->comm, w->rows)));
    snprintf(shape, sizeof shape, "5120 on %d ranks", run->boot->size);
    TPW_TRY(bench_time(&work, &c.us, err));
    TPW_TRY(tpw_agree_status(run->boot, tpw_comm_nccl_check(w->comm, err), err));
    st = bench_report_cell(&run->report, &c, err);
    return tpw_agree_status(run->boot, st, err);
}

static tpw_status one_row_count(bench_run *run, exchange_work *w, tpw_error *err)
{
    TPW_TRY(tpw_agree_status(run->boot, check_sum(run, w, err), err));
    TPW_TRY(tpw_agree_status(run->boot, refill(run, w, err), err));
    TPW_TRY(cell(run, w, "allreduce", all_reduce, err));
    return cell(run, w, "allreduce_norm", reduce_and_norm, err);
}

static tpw_status row_counts(bench_run *run, exchange_work *w, tpw_error *err)
{
    static const int32_t rows[] = {1, 2, 4, 8, 16, 32, CLOSE_ROWS, 64, 256, ROWS_MAX};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool few = rows[i] == 1 || rows[i] == 8 || rows[i] == CLOSE_ROWS || rows[i] == 256;

        if (run->quick && !few)
            continue;
        w->rows = rows[i];
        TPW_TRY(one_row_count(run, w, err));
    }
    return TPW_OK;
}

/* One communicator's life. */
static tpw_status transport(bench_run *run, exchange_work *w, tpw_nccl_transport way, tpw_error *err)
{
    const tpw_nccl_options options = {.rows_max = ROWS_MAX, .cols_max = BENCH_HIDDEN, .transport = way};
    tpw_error closing = {0};
    tpw_status st, closed;

    TPW_TRY(tpw_comm_nccl_create(run->boot, run->exec, &options, &w->comm, err));
    if (way == TPW_NCCL_AUTO && tpw_comm_nccl_transport(w->comm, 1) == TPW_NCCL_GATHER)
        st = tpw_agree_status(
            run->boot, bench_report_note(&run->report, "no peer access among these GPUs: no packets, no copies", err),
            err);
    else
        st = row_counts(run, w, err);
    closed = tpw_comm_nccl_close(w->comm, &closing);
    w->comm = NULL;
    if (st != TPW_OK)
        return st;
    if (closed != TPW_OK)
        *err = closing;
    return tpw_agree_status(run->boot, closed, err);
}

/* Two ranks on one GPU would measure each other. */
static tpw_status check_gpus(bench_run *run, tpw_error *err)
{
    typedef struct place {
        char host[TPW_HOST_NAME_MAX];
        char bus[TPW_GPU_BUS_MAX];
    } place;
    place mine = {{0}, {0}}, all[TPW_SLICES_ROW_PARALLEL];

    snprintf(mine.host, sizeof mine.host, "%s", run->boot->host);
    snprintf(mine.bus, sizeof mine.bus, "%s", tpw_cuda_gpu_of(run->exec)->bus);
    TPW_TRY(run->boot->ops->allgather(run->boot, &mine, all, sizeof mine, err));
    for (int i = 1; i < run->boot->size; i++)
        for (int j = 0; j < i; j++)
            if (memcmp(&all[i], &all[j], sizeof all[i]) == 0)
                return tpw_fail(err, TPW_ERR_RESOURCE, "ranks %d and %d both have GPU %s of %s: each needs its own", j,
                                i, all[i].bus, all[i].host);
    return TPW_OK;
}

static tpw_status prepare(bench_run *run, exchange_work *w, float *numbers, tpw_error *err)
{
    const int64_t count = (int64_t)ROWS_MAX * BENCH_HIDDEN;
    void *p[5] = {NULL};

    if (numbers == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %lld values", (long long)count * w->parts);
    TPW_TRY(bench_alloc(run, (size_t)count * sizeof(float), &p[0], err));
    TPW_TRY(bench_alloc(run, (size_t)(count * w->parts) * sizeof(float), &p[1], err));
    TPW_TRY(bench_alloc(run, (size_t)count * sizeof(uint16_t), &p[2], err));
    TPW_TRY(bench_alloc(run, (size_t)count * sizeof(uint16_t), &p[3], err));
    TPW_TRY(bench_alloc(run, BENCH_HIDDEN * sizeof(float), &p[4], err));
    TPW_TRY(bench_fill(run, TPW_BF16, p[2], count, 11, err));
    TPW_TRY(bench_fill(run, TPW_F32, p[4], BENCH_HIDDEN, 12, err));
    w->x = p[0], w->sum = p[1], w->h = p[2], w->y = p[3], w->weight = p[4];
    w->numbers = numbers;
    return tpw_cuda_sync(run->exec, err);
}

static tpw_status measure(bench_run *run, exchange_work *w, tpw_error *err)
{
    char title[128];

    TPW_TRY(tpw_agree_status(run->boot, check_gpus(run, err), err));
    snprintf(title, sizeof title,
             "all-reduce, alone and with %d slices, residual and norm: MB are a rank's, us the slowest rank's",
             (int)w->parts);
    TPW_TRY(tpw_agree_status(run->boot, bench_report_section(&run->report, title, err), err));
    TPW_TRY(transport(run, w, TPW_NCCL_AUTO, err));
    return transport(run, w, TPW_NCCL_GATHER, err);
}

tpw_status bench_exchanges(bench_run *run, tpw_error *err)
{
    const int mark = run->block_count;
    exchange_work w = {.parts = BENCH_PARTS / run->boot->size};
    float *numbers = make_numbers(run->boot, (size_t)ROWS_MAX * BENCH_HIDDEN * (size_t)w.parts);
    tpw_status st = tpw_agree_status(run->boot, prepare(run, &w, numbers, err), err);

    if (st == TPW_OK)
        st = measure(run, &w, err);
    bench_release(run, mark);
    free(numbers);
    return st;
}
