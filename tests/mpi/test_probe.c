/* The same-state probe: silent on sound arithmetic, untouched state behind it, and the operation of a fault named.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"

#include "backend.h"
#include "small_run.h"
#include "worker/worker.h"

MPI_SUITE(probe);

#define PROMPTS    3
#define MAX_TOKENS 20
#define PER_STEP   3 /* probes of a sequence between two steps */

static const int32_t lengths[PROMPTS] = {1, 14, 27};

/* Tensors and vectors that a probe compares, by the shape of the model. */
static int64_t expected_count(const tpw_worker *worker, int32_t k)
{
    int64_t count = 0;

    for (int32_t i = 0; i < worker->config.layers; i++)
        count += (worker->config.kind[i] == TPW_LAYER_ATTENTION ? 1 : 2) + k + 1;
    return count * mt_size;
}

static tpw_probe_result probe_one(tpw_worker *worker, uint64_t id, int32_t k)
{
    tpw_probe_result result;
    tpw_error err = {0};

    cr_assert_eq(tpw_worker_probe(worker, id, k, &result, &err), TPW_OK, "probe: %s", err.text);
    cr_assert_eq(result.compared, expected_count(worker, k));
    cr_assert_eq(result.k, k);
    return result;
}

static void expect_clean(const tpw_probe_result *p)
{
    cr_assert_eq(p->unequal, 0, "position %lld, K %d: %lld of %lld differ, first %s of layer %d on rank %d, op %s",
                 (long long)p->position, p->k, (long long)p->unequal, (long long)p->compared, p->scope, p->layer,
                 p->rank, p->op);
    cr_assert(p->scope[0] == '\0' && p->op[0] == '\0' && p->layer == -1 && p->rank == -1 && p->op_layer == -1);
}

/* Probes of one sequence with those K that were used least at its position mod 16. */
static int64_t probe_sequence(tpw_worker *worker, const tpw_sequence *s, int32_t used[16][TPW_K_MAX + 1])
{
    int32_t *here = used[s->pos % 16];
    int64_t compared = 0;

    for (int i = 0; i < PER_STEP; i++) {
        tpw_probe_result p;
        int32_t k = 1;

        for (int32_t other = 2; other <= TPW_K_MAX; other++)
            k = here[other] < here[k] ? other : k;
        here[k]++;
        p = probe_one(worker, s->id, k);
        cr_assert_eq(p.position, s->pos);
        expect_clean(&p);
        compared += p.compared;
    }
    return compared;
}

static tpw_options probe_options(tpw_compute compute, int32_t k)
{
    tpw_options o = small_options(TPW_TEST_POCKET, k, 1);

    o.compute = compute;
    o.chunk = 8;
    o.page_size = 64; /* holds the longest sequence and the rows of a probe */
    return o;
}

static void clean(tpw_compute compute, int32_t k)
{
    tpw_options o = probe_options(compute, k);
    tpw_worker *worker = small_open(&o);
    int32_t used[16][TPW_K_MAX + 1] = {{0}}, probes = 0, covered = 0;
    small_result plain = {0}, probed = {0};
    tpw_error err = {0};
    int64_t compared = 0;
    bool busy = true;

    small_admit(worker, 1, lengths, PROMPTS, MAX_TOKENS);
    small_finish(worker, 1, &plain);
    small_admit(worker, 101, lengths, PROMPTS, MAX_TOKENS);
    while (busy) {
        cr_assert_eq(small_step(worker, 101, &busy, &probed, &err), TPW_OK, "%s", err.text);
        for (int32_t i = 0; i < worker->sequences.running_count; i++) {
            const tpw_sequence *s = worker->sequences.running[i];

            if (s->pos == 0)
                continue;
            compared += probe_sequence(worker, s, used);
            probes += PER_STEP;
        }
    }
    small_equal(&plain, &probed, "a run with probes");
    for (int m = 0; m < 16; m++)
        for (int32_t at = 1; at <= TPW_K_MAX; at++)
            covered += used[m][at] > 0;
    cr_assert(k > 0 || covered == 16 * TPW_K_MAX, "%d of 128 pairs of position and K", covered);
    if (mt_rank == 0)
        printf("np %d, %s, run of K %d: %d probes, %lld comparisons, none unequal; %d of 128 (position mod 16, K)\n",
               mt_size, compute == TPW_COMPUTE_F32 ? "f32" : "bf16", k, probes, (long long)compared, covered);
    tpw_worker_destroy(worker);
}

MPI_TEST(probe, clean_bf16, .timeout = 150)
{
    clean(TPW_COMPUTE_BF16, 0);
}

MPI_TEST(probe, clean_f32_between_drafts, .timeout = 150)
{
    MT_SKIP_F32_ON_GPU(TPW_COMPUTE_F32);
    clean(TPW_COMPUTE_F32, 3);
}

/* What is wrong with a table of ops. */
typedef struct mutant {
    const char *name;
    void (*put)(tpw_ops *ops);
    const char *op;
    int32_t op_layer;
    int32_t op_row;
    const char *scope;
    int32_t layer;
} mutant;

static struct {
    const tpw_ops *real;
    tpw_ops ops;
    int fired;
} now;

/* From nine rows on, the local columns of the 1024-wide weights (out, o) are one slice. */
static tpw_status gemm_one_slice(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err)
{
    tpw_gemm_args wrong = *args;

    if (args->kind == TPW_GEMM_ROW && args->x.rows > 8 && args->w.cols_global == 1024) {
        wrong.kind = TPW_GEMM_COLUMN;
        wrong.w.col0 = 0; /* local columns begin at a block of scales */
        wrong.w.cols_global = wrong.w.cols;
        now.fired++;
    }
    return now.real->gemm(exec, &wrong, err);
}

static void put_gemm(tpw_ops *ops)
{
    ops->gemm = gemm_one_slice;
}

/* Rows behind the first of a run do not see the first row's input. What is left in the ring is right. */
static tpw_status conv_leaves_out(const tpw_exec *exec, const tpw_conv_args *args, tpw_error *err)
{
    size_t row = (size_t)args->x.cols * tpw_dtype_size(args->x.dtype);
    size_t stride = (size_t)args->x.stride * tpw_dtype_size(args->x.dtype);
    size_t y_stride = (size_t)args->y.stride * tpw_dtype_size(args->y.dtype);
    tpw_conv_args wrong = *args;
    tpw_status st;

    if (args->batch->segment_count != 1 || args->x.rows < 2 || args->batch->segments[0].rows_certain != 1)
        return now.real->conv(exec, args, err);
    wrong.x.data = malloc(stride * (size_t)args->x.rows);
    wrong.y.data = malloc(y_stride * (size_t)args->y.rows);
    cr_assert(wrong.x.data != NULL && wrong.y.data != NULL);
    memcpy(wrong.x.data, args->x.data, stride * (size_t)args->x.rows);
    memset(wrong.x.data, 0, row);
    st = now.real->conv(exec, &wrong, err);
    if (st == TPW_OK)
        st = now.real->conv(exec, args, err);
    for (int32_t r = 1; r < args->y.rows; r++)
        memcpy((char *)args->y.data + (size_t)r * y_stride, (char *)wrong.y.data + (size_t)r * y_stride, row);
    free(wrong.x.data);
    free(wrong.y.data);
    now.fired++;
    return st;
}

static void put_conv(tpw_ops *ops)
{
    ops->conv = conv_leaves_out;
}

/* Attention of a run sees one key too few in its last row. */
static tpw_status attention_short(const tpw_exec *exec, const tpw_attention_args *args, tpw_error *err)
{
    tpw_segment segment = args->batch->segments[0];
    tpw_batch batch = {.rows = 1, .segment_count = 1, .segments = &segment};
    tpw_attention_args last = *args;
    int32_t at = args->q.rows - 1;

    TPW_TRY(now.real->attention(exec, args, err));
    if (args->batch->segment_count != 1 || at < 1)
        return TPW_OK;
    segment.rows = 1;
    segment.pos += at - 1; /* one less than where it stands */
    segment.row0 = 0;
    last.batch = &batch;
    last.q.data = (char *)last.q.data + (size_t)(at * last.q.stride) * tpw_dtype_size(last.q.dtype);
    last.qg.data = (char *)last.qg.data + (size_t)(at * last.qg.stride) * tpw_dtype_size(last.qg.dtype);
    last.out.data = (char *)last.out.data + (size_t)(at * last.out.stride) * tpw_dtype_size(last.out.dtype);
    last.q.rows = last.qg.rows = last.out.rows = 1;
    now.fired++;
    return now.real->attention(exec, &last, err);
}

static void put_attention(tpw_ops *ops)
{
    ops->attention = attention_short;
}

/* The state moves forward by itself, a little, when a run crosses a multiple of the grid. */
static tpw_status commit_decays(const tpw_exec *exec, const tpw_delta_commit_args *args, tpw_error *err)
{
    const tpw_gdn_state *g = &args->state;
    const tpw_segment *s = &args->batch->segments[0];

    TPW_TRY(now.real->delta_commit(exec, args, err));
    if ((s->pos + s->rows_certain) / TPW_GRID == (s->pos + args->taken[0]) / TPW_GRID)
        return TPW_OK;
    g->S[(int64_t)s->slot * g->v_heads * g->k_dim * g->v_dim] += 1.0f;
    now.fired++;
    return TPW_OK;
}

static void put_commit(tpw_ops *ops)
{
    ops->delta_commit = commit_decays;
}

static const mutant mutants[] = {
    {"slices change above 8 rows", put_gemm, "gemm", 0, 0, "hidden", 0},
    {"conv leaves an input out", put_conv, "conv", 0, 1, "recurrent", 0},
    {"attention misses a key", put_attention, "attention", 3, 8, "hidden", 3},
    {"commit changes the state", put_commit, "", -1, 0, "recurrent", 0},
};

/* Steps to the first mark of sequence 3 from which nine rows cross a multiple of 16, with and without the fault. In F32 nothing
 * is hidden by rounding. */
static void find_mutant(const mutant *m)
{
    tpw_options o = probe_options(TPW_COMPUTE_F32, 0);
    tpw_worker *worker = small_open(&o);
    tpw_probe_result p;
    tpw_error err = {0};
    bool busy = true;

    small_admit(worker, 1, lengths, PROMPTS, MAX_TOKENS);
    do
        cr_assert_eq(small_step(worker, 1, &busy, NULL, &err), TPW_OK, "%s", err.text);
    while (worker->sequences.running[2]->pos % 16 < 12);
    now.fired = 0;
    now.real = worker->exec->ops;
    now.ops = *now.real;
    m->put(&now.ops);
    worker->exec->ops = &now.ops;
    p = probe_one(worker, 3, TPW_K_MAX);
    cr_assert_gt(now.fired, 0, "%s: never happened", m->name);
    cr_assert_gt(p.unequal, 0, "%s: not found", m->name);
    cr_assert_str_eq(p.op, m->op, "%s: op %s of layer %d, row %d", m->name, p.op, p.op_layer, p.op_row);
    cr_assert(p.op_layer == m->op_layer && p.op_row == m->op_row, "%s: layer %d, row %d", m->name, p.op_layer,
              p.op_row);
    cr_assert(strcmp(p.scope, m->scope) == 0 && p.layer == m->layer, "%s: %s of layer %d", m->name, p.scope, p.layer);
    cr_assert(p.rank >= 0 && p.rank < mt_size);
    worker->exec->ops = now.real; /* sound again, and the state is what it was */
    p = probe_one(worker, 3, TPW_K_MAX);
    expect_clean(&p);
    if (mt_rank == 0)
        printf("np %d, %s: named %s of layer %d, first seen in %s.%d\n", mt_size, m->name, m->op[0] ? m->op : "no op",
               m->op_layer, m->scope, m->layer);
    tpw_worker_destroy(worker);
}

MPI_TEST(probe, mutants)
{
    MT_SKIP_F32_ON_GPU(TPW_COMPUTE_F32);
    for (size_t i = 0; i < sizeof mutants / sizeof mutants[0]; i++)
        find_mutant(&mutants[i]);
}

/* A fault on one rank alone is that rank's, though the sum over ranks carries it on to all. */
static void find_on(int bad, const mutant *m)
{
    tpw_options o = probe_options(TPW_COMPUTE_F32, 0);
    tpw_worker *worker = small_open(&o);
    tpw_probe_result p;
    tpw_error err = {0};
    bool busy;

    small_admit(worker, 1, lengths, PROMPTS, MAX_TOKENS);
    cr_assert_eq(small_step(worker, 1, &busy, NULL, &err), TPW_OK, "%s", err.text);
    now.real = worker->exec->ops;
    now.ops = *now.real;
    m->put(&now.ops);
    if (mt_rank == bad)
        worker->exec->ops = &now.ops;
    p = probe_one(worker, 1, TPW_K_MAX);
    cr_assert(p.rank == bad && strcmp(p.scope, m->scope) == 0 && p.layer == m->layer,
              "%s on rank %d: rank %d, %s of layer %d", m->name, bad, p.rank, p.scope, p.layer);
    cr_assert(strcmp(p.op, m->op) == 0 && p.op_layer == m->op_layer && p.op_row == m->op_row, "%s: op %s of layer %d",
              m->name, p.op, p.op_layer);
    tpw_worker_destroy(worker);
}

MPI_TEST(probe, names_the_rank)
{
    MT_SKIP_F32_ON_GPU(TPW_COMPUTE_F32);
    mt_skip_if(mt_size == 1, "needs two ranks");
    find_on(mt_size - 1, &mutants[0]);
    find_on(mt_size - 1, &mutants[1]);
    find_on(1, &mutants[2]);
}

/* What cannot be probed is refused on all ranks, and the worker goes on. */
MPI_TEST(probe, refusals)
{
    tpw_options o = probe_options(TPW_COMPUTE_BF16, 0);
    small_result result = {0};
    const int32_t length = 50; /* with 12 more and one page of 64: no room for nine rows behind 55 */
    tpw_probe_result p;
    tpw_error err = {0};
    tpw_worker *worker;
    bool busy = true;

    o.chunk = 50;
    worker = small_open(&o);
    cr_assert_eq(tpw_worker_probe(worker, 1, 1, &p, &err), TPW_ERR_ARGUMENT); /* nobody there */
    small_admit(worker, 1, &length, 1, 12);
    cr_assert_eq(small_step(worker, 1, &busy, &result, &err), TPW_OK);
    cr_assert_eq(tpw_worker_probe(worker, 1, 0, &p, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_worker_probe(worker, 1, TPW_K_MAX + 1, &p, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_worker_probe(worker, 2, 1, &p, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_worker_probe(worker, 1, 1, NULL, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_worker_probe(NULL, 1, 1, &p, &err), TPW_ERR_ARGUMENT);
    while (worker->sequences.running[0]->pos + 9 <= 64) {
        p = probe_one(worker, 1, TPW_K_MAX);
        expect_clean(&p);
        cr_assert_eq(small_step(worker, 1, &busy, &result, &err), TPW_OK);
    }
    cr_assert_eq(tpw_worker_probe(worker, 1, TPW_K_MAX, &p, &err), TPW_ERR_LIMIT);
    cr_assert(strstr(err.text, "sequence 1 at position 56") != NULL, "%s", err.text);
    p = probe_one(worker, 1, TPW_K_MAX - 1);
    expect_clean(&p);
    small_finish(worker, 1, &result);
    cr_assert(result.finished == 1 && result.tokens == 12);
    tpw_worker_destroy(worker);
}
