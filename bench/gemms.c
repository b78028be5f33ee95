/* The gemm at the shapes of Qwen3.5-27B on two ranks, each over so many copies of the weight that all of them are cold.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/selftest.h"
#include "run.h"

#define ROWS_MAX  1024
#define MANY_ROWS 128 /* from here on only for weights that see prompts */
#define BLOCK     128 /* rows and columns that share a scale */

/* A rank's part of a weight. */
typedef struct gemm_shape {
    const char *name;
    int32_t n;
    int32_t k;
    tpw_dtype dtype;
    tpw_dtype y;
    int32_t ranks; /* that share K; 1: column-parallel */
    bool quick;    /* measured by --quick, too */
    bool many;     /* sees the many rows of a prompt */
} gemm_shape;

static const gemm_shape shapes[] = {
    {"gate", 8704, 5120, TPW_E4M3, TPW_F32, 1, false, true},
    {"gate_up", 17408, 5120, TPW_E4M3, TPW_F32, 1, true, true},
    {"down", 5120, 8704, TPW_E4M3, TPW_F32, 2, true, true},
    {"qkv", 5120, 5120, TPW_E4M3, TPW_BF16, 1, false, true},
    {"qkvz", 8192, 5120, TPW_E4M3, TPW_BF16, 1, true, true},
    {"z", 3072, 5120, TPW_E4M3, TPW_BF16, 1, false, false},
    {"out", 5120, 3072, TPW_E4M3, TPW_F32, 2, true, true},
    {"q", 6144, 5120, TPW_E4M3, TPW_BF16, 1, false, true},
    {"kv", 512, 5120, TPW_E4M3, TPW_BF16, 1, false, false},
    {"ab", 24, 5120, TPW_BF16, TPW_F32, 1, false, false},
    {"lm_head", 124160, 5120, TPW_BF16, TPW_F32, 1, true, false},
};

/* One cell's row count and kernel. */
typedef struct gemm_rows {
    int32_t rows;
    tpw_gemm_path path;
    bool quick;
} gemm_rows;

static const gemm_rows row_counts[] = {
    {1, TPW_GEMM_AUTO, true},     {4, TPW_GEMM_AUTO, false},   {8, TPW_GEMM_AUTO, true},    {16, TPW_GEMM_AUTO, false},
    {32, TPW_GEMM_AUTO, false},   {64, TPW_GEMM_AUTO, true},   {128, TPW_GEMM_AUTO, false}, {256, TPW_GEMM_AUTO, true},
    {1024, TPW_GEMM_AUTO, false}, {16, TPW_GEMM_TILE, false},  {64, TPW_GEMM_TILE, false},  {256, TPW_GEMM_TILE, true},
    {1024, TPW_GEMM_TILE, false}, {16, TPW_GEMM_WGMMA, false},
};

/* What enqueue is told: arguments but for the copy of the weight. */
typedef struct gemm_work {
    tpw_gemm_args args;
    tpw_gemm_path path;
    const unsigned char *pool;
    bench_copies copies;
} gemm_work;

static tpw_status enqueue_gemm(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const gemm_work *g = data;
    tpw_gemm_args args = g->args;

    args.w.packed = g->pool + (size_t)(launch % g->copies.copies) * g->copies.stride;
    return g->path == TPW_GEMM_AUTO ? exec->ops->gemm(exec, &args, err) : tpw_cuda_gemm_path(exec, &args, g->path, err);
}

static tpw_status elements(int64_t a, int64_t b, int64_t c, size_t *out, tpw_error *err)
{
    const int64_t factors[] = {a, b, c};

    if (!tpw_product_size(factors, 3, out))
        return tpw_fail(err, TPW_ERR_LIMIT, "%lld x %lld x %lld does not fit in memory", (long long)a, (long long)b,
                        (long long)c);
    return TPW_OK;
}

/* Block scales of an E4M3 weight that keep every sum moderate, and which of their rows a row has. */
static tpw_status make_scales(bench_run *run, tpw_weight *w, tpw_error *err)
{
    const int32_t blocks = (w->rows + BLOCK - 1) / BLOCK, cols = (w->cols + BLOCK - 1) / BLOCK;
    const size_t bytes = (size_t)w->rows * sizeof(int32_t);
    int32_t *row = NULL;
    void *scale = NULL, *scale_row = NULL;
    tpw_status st;

    TPW_TRY(bench_alloc(run, (size_t)blocks * (size_t)cols * sizeof(float), &scale, err));
    TPW_TRY(bench_alloc(run, bytes, &scale_row, err));
    TPW_TRY(bench_fill(run, TPW_F32, scale, (int64_t)blocks * cols, 2, err));
    row = malloc(bytes);
    if (row == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the scales of %d rows", (int)w->rows);
    for (int32_t r = 0; r < w->rows; r++)
        row[r] = r / BLOCK;
    st = run->exec->device->upload(run->exec, scale_row, row, bytes, err);
    free(row);
    w->scale = scale;
    w->scale_row = scale_row;
    w->scale_cols = cols;
    return st;
}

/* Every copy gets other numbers; the plain rows are needed only until they are packed. */
static tpw_status pack_copies(bench_run *run, const gemm_work *g, tpw_weight w, tpw_error *err)
{
    const int mark = run->block_count;
    size_t count = 0;
    void *plain = NULL;
    tpw_status st;

    TPW_TRY(elements(w.rows, w.cols, 1, &count, err));
    TPW_TRY(bench_alloc(run, count * tpw_dtype_size(w.dtype), &plain, err));
    w.data = plain;
    st = TPW_OK;
    for (int32_t c = 0; c < g->copies.copies && st == TPW_OK; c++) {
        st = bench_fill(run, w.dtype, plain, (int64_t)count, 100 + (uint64_t)c, err);
        if (st == TPW_OK)
            st = run->exec->device->pack(run->exec, &w, g->args.kind, run->pool + (size_t)c * g->copies.stride, err);
    }
    bench_release(run, mark);
    return st;
}

/* The weight's copies, x and y for `rows_max` rows. */
static tpw_status prepare(bench_run *run, const gemm_shape *s, int32_t rows_max, gemm_work *g, size_t *bytes,
                          tpw_error *err)
{
    tpw_weight *w = &g->args.w;
    size_t x_count = 0, y_count = 0;
    void *x = NULL, *y = NULL;

    *w = (tpw_weight){.dtype = s->dtype, .rows = s->n, .cols = s->k, .cols_global = s->k * s->ranks};
    g->args.kind = s->ranks > 1 ? TPW_GEMM_ROW : TPW_GEMM_COLUMN;
    g->args.parts = s->ranks > 1 ? BENCH_PARTS / s->ranks : 0;
    g->pool = run->pool;
    *bytes = run->exec->device->packed_bytes(w, g->args.kind);
    TPW_TRY(bench_copies_of(run, *bytes, &g->copies, err));
    if (s->dtype == TPW_E4M3)
        TPW_TRY(make_scales(run, w, err));
    TPW_TRY(pack_copies(run, g, *w, err));
    TPW_TRY(elements(rows_max, s->k, 1, &x_count, err));
    TPW_TRY(elements(rows_max, s->n, g->args.parts > 0 ? g->args.parts : 1, &y_count, err));
    TPW_TRY(bench_alloc(run, x_count * sizeof(uint16_t), &x, err));
    TPW_TRY(bench_alloc(run, y_count * tpw_dtype_size(s->y), &y, err));
    TPW_TRY(bench_fill(run, TPW_BF16, x, (int64_t)x_count, 3, err));
    g->args.x = (tpw_mat){x, TPW_BF16, 0, s->k, s->k};
    g->args.y = (tpw_mat){y, s->y, 0, s->n, s->n};
    return tpw_cuda_sync(run->exec, err);
}

static tpw_status one_cell(bench_run *run, const gemm_shape *s, const gemm_rows *r, gemm_work *g, size_t bytes,
                           tpw_error *err)
{
    const bench_work work = {run->exec, NULL, enqueue_gemm, g, g->copies.launches, run->deadline_ns};
    char name[32], shape[32];
    bench_cell cell = {.name = name, .shape = shape, .rows = r->rows, .bytes = (double)bytes};

    snprintf(name, sizeof name, "%s.%s",
             r->path == TPW_GEMM_TILE    ? "gemm_tile"
             : r->path == TPW_GEMM_WGMMA ? "gemm_wgmma"
                                         : "gemm",
             s->name);
    snprintf(shape, sizeof shape, "%dx%d%s", (int)s->n, (int)s->k, s->dtype == TPW_BF16 ? " BF16" : "");
    g->path = r->path;
    g->args.x.rows = r->rows;
    g->args.y.rows = r->rows * (g->args.parts > 0 ? g->args.parts : 1);
    cell.flops = 2.0 * r->rows * s->n * s->k;
    TPW_TRY(bench_time(&work, &cell.us, err));
    TPW_TRY(bench_read_us(run, bytes, &cell.read_us, NULL, err));
    return bench_report_cell(&run->report, &cell, err);
}

static tpw_status one_shape(bench_run *run, const gemm_shape *s, tpw_error *err)
{
    const int mark = run->block_count;
    gemm_work g = {.pool = NULL};
    size_t bytes = 0;
    tpw_status st = prepare(run, s, s->many ? ROWS_MAX : MANY_ROWS - 1, &g, &bytes, err);

    for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts && st == TPW_OK; i++) {
        const gemm_rows *r = &row_counts[i];

        if ((run->quick && !r->quick) || (r->rows >= MANY_ROWS && !s->many) ||
            (r->path == TPW_GEMM_WGMMA && !tpw_cuda_uses_wgmma(run->exec)))
            continue;
        st = one_cell(run, s, r, &g, bytes, err);
    }
    if (st != TPW_OK)
        tpw_error_prefix(err, "gemm %s [%d, %d]", s->name, (int)s->n, (int)s->k);
    bench_release(run, mark);
    return st;
}

tpw_status bench_gemms(bench_run *run, tpw_error *err)
{
    TPW_TRY(bench_report_section(
        &run->report, "gemm: MB are the packed weight, share is of the time in which as much is only read", err));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!run->quick || shapes[i].quick)
            TPW_TRY(one_shape(run, &shapes[i], err));
    return TPW_OK;
}
