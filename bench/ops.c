/* The other ops at the shapes of a decode step of Qwen3.5-27B on two ranks. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "run.h"

#define ROWS_MAX     64
#define LAUNCHES     256 /* these kernels are short: what lies between replays must not count */
#define INTERMEDIATE 8704
#define VOCAB        124160
#define LAYER_ROWS   128 /* rows of hidden values that a digest covers for each row of the step */
#define PARTS        4

/* All ops' buffers, for ROWS_MAX rows. Activations are warm, as they are behind the kernel that made them; embedding
 * rows and what the digest covers lie in the pool. */
typedef struct ops_work {
    int32_t m;
    void *h;      /* BF16 [m, H] */
    void *y;      /* BF16 [m, INTERMEDIATE] */
    float *parts; /* [PARTS, m, H] */
    float *weight;
    float *gate; /* [m, 2 * INTERMEDIATE] */
    float *logits;
    float *value;
    int32_t *id;
    int32_t *ids; /* [LAUNCHES, ROWS_MAX], of the vocabulary */
    int32_t *rows;
    uint64_t *digest;
    void *pool;
} ops_work;

static tpw_mat mat(void *data, tpw_dtype dtype, int32_t rows, int32_t cols)
{
    return (tpw_mat){data, dtype, rows, cols, cols};
}

static tpw_status embed(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const ops_work *o = data;
    const tpw_embed_args args = {.ids = o->ids + (size_t)launch * ROWS_MAX,
                                 .table = mat(o->pool, TPW_BF16, VOCAB, BENCH_HIDDEN),
                                 .out = mat(o->y, TPW_BF16, o->m, BENCH_HIDDEN)};

    return exec->ops->embed(exec, &args, err);
}

static tpw_status add_norm(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const ops_work *o = data;
    const tpw_add_norm_args args = {.h = mat(o->h, TPW_BF16, o->m, BENCH_HIDDEN),
                                    .sum = o->parts,
                                    .parts = PARTS,
                                    .weight = o->weight,
                                    .eps = 1e-6f,
                                    .y = mat(o->y, TPW_BF16, o->m, BENCH_HIDDEN)};

    (void)launch;
    return exec->ops->add_norm(exec, &args, err);
}

static tpw_status swiglu(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const ops_work *o = data;
    const tpw_mat gate = {o->gate, TPW_F32, o->m, INTERMEDIATE, 2 * INTERMEDIATE};
    tpw_swiglu_args args = {.gate = gate, .up = gate, .y = mat(o->y, TPW_BF16, o->m, INTERMEDIATE)};

    (void)launch;
    args.up.data = o->gate + INTERMEDIATE;
    return exec->ops->swiglu(exec, &args, err);
}

static tpw_status argmax(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const ops_work *o = data;
    const tpw_argmax_args args = {
        .logits = mat(o->logits, TPW_F32, o->m, VOCAB), .vocab0 = 0, .value = o->value, .id = o->id};

    (void)launch;
    return exec->ops->argmax(exec, &args, err);
}

static tpw_status digest(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const ops_work *o = data;
    const tpw_digest_args args = {.x = mat(o->pool, TPW_BF16, o->m * LAYER_ROWS, BENCH_HIDDEN),
                                  .key = 7,
                                  .index_stride = BENCH_HIDDEN,
                                  .sum = o->digest};

    (void)launch;
    return exec->ops->digest(exec, &args, err);
}

static tpw_status gather(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const ops_work *o = data;
    const tpw_gather_args args = {.x = mat(o->h, TPW_BF16, ROWS_MAX, BENCH_HIDDEN),
                                  .rows = o->rows,
                                  .y = mat(o->y, TPW_BF16, o->m, BENCH_HIDDEN)};

    (void)launch;
    return exec->ops->gather(exec, &args, err);
}

static tpw_status cast(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err)
{
    const ops_work *o = data;
    const tpw_array x = {
        .data = o->parts, .dtype = TPW_F32, .dims = 2, .extent = {o->m, BENCH_HIDDEN}, .stride = {BENCH_HIDDEN, 1}};
    tpw_cast_args args = {.x = x, .y = x};

    (void)launch;
    args.y.data = o->y;
    args.y.dtype = TPW_BF16;
    return exec->ops->cast(exec, &args, err);
}

static const struct {
    const char *name;
    const char *shape;
    bench_enqueue *enqueue;
    double row_bytes; /* read and written for one row */
} cases[] = {
    {"embed", "124160x5120 BF16", embed, 4.0 * BENCH_HIDDEN},
    {"add_norm", "4 parts, 5120", add_norm, (4.0 * PARTS + 6) * BENCH_HIDDEN},
    {"swiglu", "8704", swiglu, 10.0 * INTERMEDIATE},
    {"argmax", "124160", argmax, 4.0 * VOCAB},
    {"digest", "128 x 5120 BF16", digest, 2.0 * LAYER_ROWS *BENCH_HIDDEN},
    {"gather", "5120 BF16", gather, 4.0 * BENCH_HIDDEN},
    {"cast", "5120 F32 to BF16", cast, 6.0 * BENCH_HIDDEN},
};

/* Random tokens, and the rows of a step backwards. */
static tpw_status make_indices(bench_run *run, ops_work *o, tpw_error *err)
{
    const size_t count = (size_t)LAUNCHES * ROWS_MAX;
    int32_t *ids = malloc(count * sizeof *ids);
    uint64_t state = 1;
    tpw_status st;

    if (ids == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %zu indices", count);
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % VOCAB);
    }
    st = run->exec->device->upload(run->exec, o->ids, ids, count * sizeof *ids, err);
    for (int32_t i = 0; i < ROWS_MAX; i++)
        ids[i] = ROWS_MAX - 1 - i;
    if (st == TPW_OK)
        st = run->exec->device->upload(run->exec, o->rows, ids, ROWS_MAX * sizeof *ids, err);
    free(ids);
    return st;
}

/* A block for `count` elements, filled when it is of F32 or BF16. */
static tpw_status block(bench_run *run, tpw_dtype dtype, int64_t count, void **out, tpw_error *err)
{
    TPW_TRY(bench_alloc(run, (size_t)count * tpw_dtype_size(dtype), out, err));
    return dtype == TPW_F32 || dtype == TPW_BF16 ? bench_fill(run, dtype, *out, count, (uint64_t)count, err) : TPW_OK;
}

static tpw_status prepare(bench_run *run, ops_work *o, tpw_error *err)
{
    void *p[10] = {NULL};

    TPW_TRY(block(run, TPW_BF16, (int64_t)ROWS_MAX * BENCH_HIDDEN, &p[0], err));
    TPW_TRY(block(run, TPW_BF16, (int64_t)ROWS_MAX * INTERMEDIATE, &p[1], err));
    TPW_TRY(block(run, TPW_F32, (int64_t)PARTS * ROWS_MAX * BENCH_HIDDEN, &p[2], err));
    TPW_TRY(block(run, TPW_F32, BENCH_HIDDEN, &p[3], err));
    TPW_TRY(block(run, TPW_F32, (int64_t)ROWS_MAX * 2 * INTERMEDIATE, &p[4], err));
    TPW_TRY(block(run, TPW_F32, (int64_t)ROWS_MAX * VOCAB, &p[5], err));
    TPW_TRY(block(run, TPW_F32, ROWS_MAX, &p[6], err));
    TPW_TRY(block(run, TPW_I32, ROWS_MAX, &p[7], err));
    TPW_TRY(block(run, TPW_I32, (int64_t)(LAUNCHES + 1) * ROWS_MAX, &p[8], err));
    TPW_TRY(block(run, TPW_I64, 1, &p[9], err));
    *o = (ops_work){.h = p[0],
                    .y = p[1],
                    .parts = p[2],
                    .weight = p[3],
                    .gate = p[4],
                    .logits = p[5],
                    .value = p[6],
                    .id = p[7],
                    .ids = p[8],
                    .digest = p[9],
                    .pool = run->pool};
    o->rows = o->ids + (size_t)LAUNCHES * ROWS_MAX;
    TPW_TRY(make_indices(run, o, err));
    return tpw_cuda_sync(run->exec, err);
}

static tpw_status measure(bench_run *run, ops_work *o, tpw_error *err)
{
    static const int32_t rows[] = {1, 8, 16, 64};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            const bench_work work = {run->exec, NULL, cases[i].enqueue, o, LAUNCHES, run->deadline_ns};
            bench_cell cell = {
                .name = cases[i].name, .shape = cases[i].shape, .rows = rows[r], .bytes = cases[i].row_bytes * rows[r]};

            if (run->quick && rows[r] != 1 && rows[r] != 8)
                continue;
            o->m = rows[r];
            TPW_TRY(bench_time(&work, &cell.us, err));
            TPW_TRY(bench_report_cell(&run->report, &cell, err));
        }
    return TPW_OK;
}

tpw_status bench_ops(bench_run *run, tpw_error *err)
{
    const int mark = run->block_count;
    ops_work o = {.m = 0};
    tpw_status st;

    TPW_TRY(bench_report_section(&run->report, "other ops: MB are read and written, mostly in the L2", err));
    st = prepare(run, &o, err);
    if (st == TPW_OK)
        st = measure(run, &o, err);
    bench_release(run, mark);
    return st;
}
