/* What only a GPU's model can show of the probe: silent at the 27B shape, and faults put into the device's operations are named.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/mpi_test.h"

#include "kernels/cuda/cuda.h"
#include "mpi/backend.h"
#include "mpi/small_run.h"
#include "worker/worker.h"

MPI_SUITE(gpu_probe);

#define LAYERS 8
#define LENGTH 10 /* after two steps at 11: nine rows cross 16 */

static struct {
    const tpw_ops *real;
    tpw_ops ops;
    void *room; /* device memory of a wrong operation */
    size_t bytes;
    int fired;
} now;

static tpw_status make_room(const tpw_exec *exec, size_t bytes, tpw_error *err)
{
    if (bytes <= now.bytes)
        return TPW_OK;
    exec->device->free(exec, now.room);
    now.bytes = bytes;
    return exec->device->alloc(exec, bytes, &now.room, err);
}

/* From nine rows on, the local slices of a row-parallel weight are added one after the other instead of by the tree. */
static tpw_status gemm_in_order(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err)
{
    const int64_t M = args->x.rows, N = args->y.cols, slices = TPW_SLICES_ROW_PARALLEL / mt_size;
    tpw_gemm_args apart = *args;
    tpw_sum_args sum = {.axes = 1};

    if (args->kind != TPW_GEMM_ROW || M < 9)
        return now.real->gemm(exec, args, err);
    TPW_TRY(make_room(exec, (size_t)(slices * M * N) * sizeof(float), err));
    apart.parts = (int32_t)slices;
    apart.y = (tpw_mat){now.room, TPW_F32, (int32_t)(slices * M), (int32_t)N, N};
    TPW_TRY(now.real->gemm(exec, &apart, err));
    sum.x = (tpw_array){now.room, TPW_F32, 3, {slices, M, N}, {M * N, N, 1}};
    sum.y = (tpw_array){args->y.data, TPW_F32, 2, {M, N}, {args->y.stride, 1}};
    now.fired++;
    return now.real->sum(exec, &sum, err);
}

/* Copies rows between device memory by way of the host. */
static tpw_status copy_rows(const tpw_exec *exec, void *to, const void *from, size_t bytes, tpw_error *err)
{
    void *host = malloc(bytes);
    tpw_status st = exec->device->download(exec, host, from, bytes, err);

    if (st == TPW_OK)
        st = exec->device->upload(exec, to, host, bytes, err);
    free(host);
    return st;
}

/* Rows behind the first of a run do not see the first row's input. What is left in the ring is right. */
static tpw_status conv_leaves_out(const tpw_exec *exec, const tpw_conv_args *args, tpw_error *err)
{
    const size_t size = tpw_dtype_size(args->x.dtype), row = (size_t)args->x.cols * size;
    const size_t x_bytes = (size_t)args->x.stride * size * (size_t)args->x.rows;
    const size_t y_stride = (size_t)args->y.stride * size, y_bytes = y_stride * (size_t)args->y.rows;
    tpw_conv_args wrong = *args;

    if (args->x.rows < 2 || args->batch->segment_count != 1)
        return now.real->conv(exec, args, err);
    TPW_TRY(make_room(exec, x_bytes + y_bytes, err));
    wrong.x.data = now.room;
    wrong.y.data = (char *)now.room + x_bytes;
    TPW_TRY(copy_rows(exec, wrong.x.data, args->x.data, x_bytes, err));
    TPW_TRY(exec->device->fill(exec, wrong.x.data, 0, row, err));
    TPW_TRY(now.real->conv(exec, &wrong, err));
    TPW_TRY(now.real->conv(exec, args, err));
    now.fired++;
    for (int32_t r = 1; r < args->y.rows; r++)
        TPW_TRY(copy_rows(exec, (char *)args->y.data + (size_t)r * y_stride,
                          (char *)wrong.y.data + (size_t)r * y_stride, row, err));
    return TPW_OK;
}

static tpw_worker *open_27b(void)
{
    const int32_t length = LENGTH;
    tpw_options o = small_options(NULL, 0, 1);
    tpw_error err = {0};
    tpw_worker *worker;
    bool busy;

    o.backend = TPW_BACKEND_CUDA;
    o.dummy = "qwen3.5-27b";
    o.dummy_layers = LAYERS;
    o.dummy_vocab = 4096;
    o.sequences_max = 1;
    worker = small_open(&o);
    small_admit(worker, 1, &length, 1, 12);
    for (int s = 0; s < 2; s++)
        cr_assert_eq(small_step(worker, 1, &busy, NULL, &err), TPW_OK, "%s", err.text);
    return worker;
}

static tpw_probe_result probe(tpw_worker *worker)
{
    tpw_probe_result p;
    tpw_error err = {0};

    cr_assert_eq(tpw_worker_probe(worker, 1, TPW_K_MAX, &p, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(p.position, LENGTH + 1);
    cr_assert_eq(p.compared, (int64_t)(LAYERS / 4 * (3 * 2 + 1) + LAYERS * (TPW_K_MAX + 1)) * mt_size);
    return p;
}

static void find(tpw_worker *worker, const char *name, const char *op)
{
    tpw_probe_result p = probe(worker);

    cr_assert_gt(now.fired, 0, "%s: never happened", name);
    cr_assert_gt(p.unequal, 0, "%s: not found", name);
    cr_assert_str_eq(p.op, op, "%s: op %s of layer %d, row %d", name, p.op, p.op_layer, p.op_row);
    cr_assert_eq(p.op_layer, 0);
    if (mt_rank == 0)
        printf("np %d, %s: %lld of %lld differ, named %s of layer %d, first seen in %s.%d\n", mt_size, name,
               (long long)p.unequal, (long long)p.compared, p.op, p.op_layer, p.scope, p.layer);
}

MPI_TEST(gpu_probe, mutants_of_27b, .timeout = 150)
{
    const int gpus = tpw_cuda_count(NULL, 0);
    tpw_worker *worker;
    tpw_probe_result p;

    mt_skip_if(gpus * test_ranks_per_gpu() < mt_size, "needs a GPU for every rank, or leave to share one");
    worker = open_27b();
    now.real = worker->exec->ops;
    for (int mutant = 0; mutant < 2; mutant++) {
        now.ops = *now.real;
        now.fired = 0;
        if (mutant == 0)
            now.ops.gemm = gemm_in_order;
        else
            now.ops.conv = conv_leaves_out;
        worker->exec->ops = &now.ops;
        find(worker, mutant == 0 ? "slices are added in order above 8 rows" : "conv leaves an input out",
             mutant == 0 ? "gemm" : "conv");
        worker->exec->ops = now.real; /* sound again, and the state is what it was */
        p = probe(worker);
        cr_assert_eq(p.unequal, 0, "sound: first %s of layer %d on rank %d, op %s", p.scope, p.layer, p.rank, p.op);
    }
    worker->exec->device->free(worker->exec, now.room);
    tpw_worker_destroy(worker);
}
