/* Random single-bit flips: at rest, in replicated values of one rank, in one rank's partial sum. Each must be found by the check that
 * is meant for it, and by no other.
 *
 * With two ranks nobody can tell which one is right: rank 1 is named. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mpi_test.h"

#include "flip.h"

#ifndef TPW_TEST_FLIPS
#define TPW_TEST_FLIPS 40 /* of each class */
#endif

#define SECONDS  560
#define PROMPTS  3
#define STEP_MAX 20 /* steps before a flip: fewer than end a sequence, whatever is accepted */

MPI_SUITE(flips);

static const int32_t lengths[PROMPTS] = {5, 21, 33};
static const int32_t draft_lengths[] = {0, 0, 2, 5};

/* A worker that has made some steps with all of its checks silent. */
static tpw_worker *stepped(small_random *r, int32_t check_every, int32_t steps)
{
    tpw_options o = small_options(TPW_TEST_POCKET, draft_lengths[small_below(r, 4)], check_every);
    tpw_worker *worker;
    tpw_error err = {0};
    bool busy = true;

    o.compute = small_below(r, 4) == 0 ? TPW_COMPUTE_F32 : TPW_COMPUTE_BF16;
    worker = small_open(&o);
    small_admit(worker, 1, lengths, PROMPTS, 100);
    for (int32_t s = 0; s < steps; s++)
        cr_assert_eq(small_step(worker, 1, &busy, NULL, &err), TPW_OK, "before the flip: %s", err.text);
    cr_assert(busy);
    return worker;
}

/* What the next step must end with on every rank. */
static void expect_diverged(tpw_worker *worker, const char *part1, const char *part2, const char *what)
{
    tpw_error err = {0};
    bool busy = true;
    tpw_status st = small_step(worker, 1, &busy, NULL, &err);

    small_diverged(st, &err, part1, part2, what);
}

MPI_TEST(flips, at_rest, .timeout = SECONDS)
{
    int by_scope[3] = {0};
    small_random r = {1000 + (uint64_t)mt_size};

    for (int i = 0; i < TPW_TEST_FLIPS; i++) {
        tpw_worker *worker = stepped(&r, 1, 1 + small_below(&r, STEP_MAX));
        int rank = small_below(&r, mt_size);
        char who[32], where[120], what[200];
        flip f;

        cr_assert(flip_choose(worker, &r, &f));
        by_scope[strcmp(f.scope, "conv") == 0 ? 0 : strcmp(f.scope, "kv") == 0 ? 1 : 2]++;
        snprintf(who, sizeof who, "rank %d (", rank);
        snprintf(where, sizeof where, "%s state of layer %d in slot %d changed at rest: sequence %llu, position %lld",
                 f.scope, f.layer, f.sequence->slot, (unsigned long long)f.sequence->id, (long long)f.sequence->pos);
        snprintf(what, sizeof what, "flip %d (rank %d, %.60s, element %lld, bit %d)", i, rank, where,
                 (long long)f.index, f.bit);
        if (mt_rank == rank)
            flip_apply(&f);
        expect_diverged(worker, who, where, what);
        tpw_worker_destroy(worker);
    }
    cr_assert(by_scope[0] > 0 && by_scope[1] > 0 && by_scope[2] > 0);
    if (mt_rank == 0)
        printf("np %d: %d of %d flips at rest found by carry with rank, scope, layer and slot (conv %d, kv %d, "
               "recurrent %d)\n",
               mt_size, TPW_TEST_FLIPS, TPW_TEST_FLIPS, by_scope[0], by_scope[1], by_scope[2]);
}

/* The flip that an op or an exchange is to make, and what it met. */
static struct {
    tpw_worker *worker;
    small_random *random;
    int32_t layer;
    bool mixer; /* the partial of out/o, not of down */
    int rank;
    int32_t row;
    bool armed;
    const tpw_ops *real;
    tpw_ops ops;
} now;

/* Hidden: one bit of the residual stream behind the layer, on one rank. */
static tpw_status flipping_add_norm(const tpw_exec *exec, const tpw_add_norm_args *args, tpw_error *err)
{
    const tpw_model *m = now.worker->model;
    const float *next = now.layer + 1 < m->config.layers ? m->layers[now.layer + 1].input_norm : m->final_norm;
    int32_t column, bit;

    TPW_TRY(now.real->add_norm(exec, args, err));
    if (!now.armed || args->sum == NULL || args->weight != next)
        return TPW_OK;
    now.armed = false;
    now.row = small_below(now.random, args->h.rows);
    column = small_below(now.random, args->h.cols);
    bit = small_below(now.random, flip_bits(args->h.dtype));
    if (mt_rank == now.rank)
        flip_bit(args->h.data, args->h.dtype, now.row * args->h.stride + column, bit);
    return TPW_OK;
}

static void hook(tpw_worker *worker, small_random *r)
{
    now.worker = worker;
    now.random = r;
    now.real = worker->exec->ops;
    now.ops = *now.real;
    worker->exec->ops = &now.ops;
}

/* Who is named: the odd one, or with two ranks the second. */
static int named(int rank)
{
    return mt_size == 2 ? 1 : rank;
}

static void hidden_once(small_random *r, int i)
{
    tpw_worker *worker = stepped(r, 1, small_below(r, STEP_MAX));
    char who[64], where[96] = "", what[64];
    tpw_error err = {0};
    bool busy = true;
    tpw_status st;

    now.rank = small_below(r, mt_size);
    now.layer = small_below(r, worker->config.layers);
    now.armed = true;
    hook(worker, r);
    now.ops.add_norm = flipping_add_norm;
    snprintf(what, sizeof what, "flip %d, hidden.%d on rank %d", i, now.layer, now.rank);
    st = small_step(worker, 1, &busy, NULL, &err);
    snprintf(who, sizeof who, "hidden of layer %d differs on rank %d: ", now.layer, named(now.rank));
    /* the planned entries stand as the failed step left them */
    for (int32_t s = 0, row0 = 0; s < worker->sequences.running_count; s++) {
        const tpw_planned *p = &worker->buf.planned[s];
        const tpw_sequence *q = worker->sequences.running[p->sequence];
        int32_t rows = p->rows + p->drafts;

        if (now.row >= row0 && now.row < row0 + rows)
            snprintf(where, sizeof where, "sequence %llu in slot %d at position %lld, step ", (unsigned long long)q->id,
                     q->slot, (long long)q->pos + (p->rows == 1 && p->logits ? now.row - row0 : 0));
        row0 += rows;
    }
    cr_assert(where[0] != '\0');
    small_diverged(st, &err, who, where, what);
    tpw_worker_destroy(worker);
}

/* A token that the next step runs. */
static void next_token_once(small_random *r, int i)
{
    tpw_worker *worker = stepped(r, 1, small_below(r, STEP_MAX) + 1);
    tpw_sequence *s = worker->sequences.running[small_below(r, PROMPTS)];
    int rank = small_below(r, mt_size);
    int32_t bit = small_below(r, 11); /* stays in the vocabulary of 2,048 */
    char who[48], odd[48], what[96];

    if (mt_rank == rank)
        s->tokens[s->pos] ^= 1 << bit;
    snprintf(who, sizeof who, "the tokens of step %lld", (long long)worker->step);
    snprintf(what, sizeof what, "flip %d, token of sequence %llu on rank %d", i, (unsigned long long)s->id, rank);
    snprintf(odd, sizeof odd, "differs on rank %d", named(rank));
    expect_diverged(worker, who, odd, what);
    tpw_worker_destroy(worker);
}

/* A token that was run long ago shows in the sequence's last digests. */
static void past_token_once(small_random *r, int i)
{
    tpw_worker *worker = stepped(r, 1, small_below(r, STEP_MAX) + 1);
    tpw_sequence *s = worker->sequences.running[small_below(r, PROMPTS)];
    int rank = small_below(r, mt_size);
    int32_t at = small_below(r, (int32_t)s->pos), bit = small_below(r, 11);
    char who[80], where[48], what[96];
    tpw_error err = {0};
    bool busy = true;
    tpw_status st;

    if (mt_rank == rank)
        s->tokens[at] ^= 1 << bit;
    snprintf(who, sizeof who, "tokens of layer -1 differs on rank %d: ", named(rank));
    snprintf(where, sizeof where, "sequence %llu in slot %d", (unsigned long long)s->id, s->slot);
    while ((st = small_step(worker, 1, &busy, NULL, &err)) == TPW_OK && busy)
        ;
    snprintf(what, sizeof what, "flip %d, token %d of sequence %llu on rank %d", i, at, (unsigned long long)s->id,
             rank);
    small_diverged(st, &err, who, where, what);
    tpw_worker_destroy(worker);
}

/* What a plan is made of: slot and page of a sequence, what is free. */
static int32_t *plan_part(tpw_worker *worker, small_random *r, int32_t *low, int32_t *high)
{
    tpw_sequence *s = worker->sequences.running[small_below(r, PROMPTS)];

    *low = 1;
    switch (small_below(r, 4)) {
    case 0:
        *high = worker->state->limits.slots;
        return &s->slot;
    case 1:
        *high = worker->state->limits.pages;
        return &s->pages[s->pos / worker->sequences.page_size];
    case 2:
        *low = 0;
        *high = worker->state->limits.slots;
        return &worker->sequences.ledger.slots_free;
    default:
        *low = 0;
        *high = worker->state->limits.pages;
        return &worker->sequences.ledger.pages_free;
    }
}

static void plan_once(small_random *r, int i)
{
    /* without carry, which would find a wrong slot before the step begins */
    tpw_worker *worker = stepped(r, 0, small_below(r, STEP_MAX) + 1);
    int rank = small_below(r, mt_size);
    int32_t low, high, *part = plan_part(worker, r, &low, &high), flipped;
    char who[64], odd[48], what[64];

    do
        flipped = *part ^ 1 << small_below(r, 8);
    while (flipped < low || flipped > high);
    if (mt_rank == rank)
        *part = flipped;
    snprintf(who, sizeof who, "the plan (rows, slots, pages, positions) of step %lld", (long long)worker->step);
    snprintf(odd, sizeof odd, "differs on rank %d", named(rank));
    snprintf(what, sizeof what, "flip %d, plan on rank %d", i, rank);
    expect_diverged(worker, who, odd, what);
    tpw_worker_destroy(worker);
}

MPI_TEST(flips, replicated, .timeout = SECONDS)
{
    small_random r = {2000 + (uint64_t)mt_size};
    int counts[4] = {0};

    for (int i = 0; i < TPW_TEST_FLIPS; i++) {
        int kind = i % 10 < 5 ? 0 : i % 10 < 7 ? 1 : i % 10 < 8 ? 2 : 3;
        static void (*const once[])(small_random *, int) = {hidden_once, next_token_once, past_token_once, plan_once};

        once[kind](&r, i);
        counts[kind]++;
    }
    if (mt_rank == 0)
        printf("np %d: %d of %d flips in replicated values found by comparison (hidden %d, next token %d, past token "
               "%d, plan %d)\n",
               mt_size, TPW_TEST_FLIPS, TPW_TEST_FLIPS, counts[0], counts[1], counts[2], counts[3]);
}

/* Partial sums: the element of the row whose flip weighs most among some at random, so that the rounded sum moves. */
static int64_t heavy_element(const tpw_mat *y, const tpw_mat *h, small_random *r)
{
    int64_t best = 0;
    double most = -1;

    for (int i = 0; i < 32; i++) {
        int32_t column = small_below(r, y->cols);
        int64_t hi = now.row * h->stride + column;
        double x = fabs((double)((const float *)y->data)[now.row * y->stride + column]), old = 0;
        uint32_t bits = h->dtype == TPW_F32 ? 0 : (uint32_t)((const uint16_t *)h->data)[hi] << 16;
        float f;

        if (h->dtype == TPW_F32)
            f = ((const float *)h->data)[hi];
        else
            memcpy(&f, &bits, sizeof f);
        old = fabs((double)f);
        if (x / (x + old + 1e-6) > most) {
            most = x / (x + old + 1e-6);
            best = now.row * y->stride + column;
        }
    }
    return best;
}

static tpw_status flipping_gemm(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err)
{
    const tpw_layer_weights *w = &now.worker->model->layers[now.layer];
    const tpw_weight *target = !now.mixer ? &w->down : w->kind == TPW_LAYER_ATTENTION ? &w->o : &w->out;
    int64_t element;
    int bit;

    TPW_TRY(now.real->gemm(exec, args, err));
    if (!now.armed || args->w.data != target->data)
        return TPW_OK;
    now.armed = false;
    now.row = small_below(now.random, args->y.rows);
    element = heavy_element(&args->y, &now.worker->pass->ws.h, now.random);
    bit =
        22 + small_below(now.random, 2); /* the top of the mantissa, the lowest of the exponent: numbers stay numbers */
    if (mt_rank == now.rank)
        flip_bit(args->y.data, TPW_F32, element, bit);
    return TPW_OK;
}

/* The trace: records of a clean run, and the first one that differs. Tokens are left to follow from hidden. */
#define RECORDS_MAX 20000
static struct {
    uint64_t clean[RECORDS_MAX];
    int count;
    int at;
    bool recording;
    bool objects;
    bool differs;
    char scope[16];
    int32_t layer;
} trace;

static bool take_record(void *data, const tpw_trace_record *record)
{
    uint64_t mixed = record->global + (uint64_t)record->position * 0x9E3779B97F4A7C15ull;

    (void)data;
    if (trace.recording && trace.count < RECORDS_MAX)
        trace.clean[trace.count++] = mixed;
    if (trace.recording)
        return trace.count < RECORDS_MAX;
    if (trace.at >= trace.count)
        return false;
    if (trace.clean[trace.at++] == mixed || strcmp(record->scope, "tokens") == 0 || trace.differs)
        return true;
    trace.differs = true;
    snprintf(trace.scope, sizeof trace.scope, "%s", record->scope);
    trace.layer = record->layer;
    return !trace.objects;
}

/* Runs the prompts with the flip in step `at` of the run. With `objects` the trace ends it. */
static void partial_run(tpw_worker *worker, uint64_t first_id, int32_t at, int i, small_result *result)
{
    tpw_error err = {0};
    tpw_status st = TPW_OK;
    bool busy = true;

    trace.at = 0;
    trace.differs = false;
    small_admit(worker, first_id, lengths, PROMPTS, 6);
    for (int32_t s = 0; st == TPW_OK && busy; s++) {
        now.armed = s == at;
        st = small_step(worker, first_id, &busy, result, &err);
        cr_assert(s != at || !now.armed, "flip %d: never happened", i);
    }
    if (!trace.objects) {
        cr_assert_eq(st, TPW_OK, "flip %d: comparison saw a partial: %s", i, err.text);
        cr_assert(mt_rank != 0 || trace.differs == (at >= 0), "flip %d: %s", i, at >= 0 ? "changed nothing" : "none");
    } else {
        char where[64], what[32];

        snprintf(where, sizeof where, "hidden of layer %d is not what was expected", now.layer);
        snprintf(what, sizeof what, "flip %d", i);
        small_diverged(st, &err, where, "", what);
    }
}

static tpw_worker *traced_worker(small_random *r)
{
    tpw_options o = small_options(TPW_TEST_POCKET, 0, 1);
    tpw_worker *worker;

    o.trace = take_record;
    worker = small_open(&o);
    hook(worker, r);
    now.ops.gemm = flipping_gemm;
    return worker;
}

MPI_TEST(flips, partial, .timeout = SECONDS)
{
    small_random r = {3000 + (uint64_t)mt_size};
    small_result clean = {0};
    tpw_worker *worker = traced_worker(&r);
    int32_t steps, other_digests = 0;

    trace.recording = true;
    small_admit(worker, 1, lengths, PROMPTS, 6);
    small_finish(worker, 1, &clean);
    steps = (int32_t)worker->step;
    trace.recording = false;
    for (int i = 0; i < TPW_TEST_FLIPS; i++) {
        small_result flipped = {0};
        small_random again;
        int32_t at = small_below(&r, steps);

        now.layer = small_below(&r, worker->config.layers);
        now.mixer = small_below(&r, 2) == 0;
        now.rank = small_below(&r, mt_size);
        again = r;
        trace.objects = false;
        partial_run(worker, 1000 + (uint64_t)i * 10, at, i, &flipped);
        cr_assert_eq(flipped.finished, PROMPTS);
        other_digests += flipped.digest_sum != clean.digest_sum;
        r = again; /* the same flip, and somebody who knows better */
        trace.objects = true;
        partial_run(worker, 100000, at, i, NULL);
        tpw_worker_destroy(worker);
        worker = traced_worker(&r);
    }
    cr_assert_eq(other_digests, TPW_TEST_FLIPS);
    trace.objects = false; /* and without a flip all is as it was recorded */
    now.armed = false;
    partial_run(worker, 1, -1, -1, NULL);
    tpw_worker_destroy(worker);
    if (mt_rank == 0)
        printf("np %d: %d of %d flips in a partial sum not found by comparison, found by the trace with the layer\n",
               mt_size, TPW_TEST_FLIPS, TPW_TEST_FLIPS);
}
