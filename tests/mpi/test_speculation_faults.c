/* Faults that only drafting brings out: each leaves K = 0 as it is, lets a run with drafts end normally, and is found by
 * comparing it with a run without. A fault that is not found would mean that the comparison proves nothing.
 *
 * A fault is an op of the table put before the real one. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "mpi_test.h"

#include "backend.h"
#include "speculate.h"
#include "worker/worker.h"

MPI_SUITE(speculation_faults);

#define VOCAB   2048
#define K       4
#define PROMPTS 4

typedef struct fault {
    const char *name;
    void (*put)(tpw_ops *ops); /* NULL: none, the table is only wrapped */
} fault;

/* The fault at hand and what it remembers; set anew for each run. */
static struct {
    const fault *fault;
    const tpw_ops *real;
    tpw_ops ops;
    const drafter *drafter;
    const void *layer; /* state of the layer that is hit: the first one seen */
    int64_t asked;     /* drafter->drafted of the step before */
    int32_t verifies;  /* calls on that layer that verified drafts in two sequences or more */
    int64_t end[PROMPTS + 1];
    int32_t fired;
} now;

static bool verifies(const tpw_segment *s)
{
    return s->rows_certain == 1 && s->rows > 1;
}

/* Segments that hold drafts see `shift` rows more. */
static tpw_status attend_shifted(const tpw_exec *exec, const tpw_attention_args *args, int64_t shift, tpw_error *err)
{
    tpw_segment segments[PROMPTS];
    tpw_batch batch = *args->batch;
    tpw_attention_args wrong = *args;

    memcpy(segments, batch.segments, (size_t)batch.segment_count * sizeof *segments);
    for (int32_t i = 0; i < batch.segment_count; i++)
        if (verifies(&segments[i])) {
            segments[i].pos += shift;
            now.fired++;
        }
    batch.segments = segments;
    wrong.batch = &batch;
    return now.real->attention(exec, &wrong, err);
}

static tpw_status attend_one_more(const tpw_exec *exec, const tpw_attention_args *args, tpw_error *err)
{
    return attend_shifted(exec, args, 1, err);
}

static tpw_status attend_one_less(const tpw_exec *exec, const tpw_attention_args *args, tpw_error *err)
{
    return attend_shifted(exec, args, -1, err);
}

static void put_one_more(tpw_ops *ops)
{
    ops->attention = attend_one_more;
}

static void put_one_less(tpw_ops *ops)
{
    ops->attention = attend_one_less;
}

/* Once, on one layer: the first sequence of a verify works on the second one's slot. */
static void take_other_slot(const void *layer, tpw_batch *batch, tpw_segment *segments)
{
    memcpy(segments, batch->segments, (size_t)batch->segment_count * sizeof *segments);
    batch->segments = segments;
    now.layer = now.layer == NULL ? layer : now.layer;
    if (layer != now.layer || batch->segment_count < 2 || !verifies(&segments[0]) || !verifies(&segments[1]))
        return;
    if (++now.verifies == 2) {
        segments[0].slot = segments[1].slot;
        now.fired++;
    }
}

static tpw_status delta_other_slot(const tpw_exec *exec, const tpw_delta_args *args, tpw_error *err)
{
    tpw_segment segments[PROMPTS];
    tpw_batch batch = *args->batch;
    tpw_delta_args wrong = *args;

    take_other_slot(args->state.S, &batch, segments);
    wrong.batch = &batch;
    return now.real->delta(exec, &wrong, err);
}

static tpw_status conv_other_slot(const tpw_exec *exec, const tpw_conv_args *args, tpw_error *err)
{
    tpw_segment segments[PROMPTS];
    tpw_batch batch = *args->batch;
    tpw_conv_args wrong = *args;

    take_other_slot(args->state.x, &batch, segments);
    wrong.batch = &batch;
    return now.real->conv(exec, &wrong, err);
}

static void put_delta_slot(tpw_ops *ops)
{
    ops->delta = delta_other_slot;
}

static void put_conv_slot(tpw_ops *ops)
{
    ops->conv = conv_other_slot;
}

/* Behind a rejection, on one layer, the newest input of the past is that of the first rejected row. The ring itself is put right again:
 * only what is read is wrong. */
static tpw_status conv_rejected_row(const tpw_exec *exec, const tpw_conv_args *args, tpw_error *err)
{
    const tpw_conv_state *c = &args->state;
    size_t bytes = (size_t)c->channels * tpw_dtype_size(c->dtype);
    static unsigned char kept[PROMPTS][1 << 15];
    tpw_status st = TPW_OK;

    now.layer = now.layer == NULL ? c->x : now.layer;
    if (c->x != now.layer)
        return now.real->conv(exec, args, err);
    cr_assert(bytes <= sizeof kept[0] && args->batch->segment_count <= PROMPTS);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < args->batch->segment_count; i++) {
            const tpw_segment *s = &args->batch->segments[i];
            unsigned char *ring = (unsigned char *)c->x + (size_t)s->slot * TPW_CONV_RING * bytes;
            unsigned char *newest = ring + (size_t)((s->pos + TPW_CONV_RING - 1) % TPW_CONV_RING) * bytes;

            if (s->pos >= now.end[s->slot])
                continue;
            if (pass == 0) {
                memcpy(kept[i], newest, bytes);
                memcpy(newest, ring + (size_t)(s->pos % TPW_CONV_RING) * bytes, bytes);
                now.fired++;
            } else {
                memcpy(newest, kept[i], bytes);
            }
        }
        if (pass == 0)
            st = now.real->conv(exec, args, err);
    }
    for (int32_t i = 0; i < args->batch->segment_count; i++)
        now.end[args->batch->segments[i].slot] = args->batch->segments[i].pos + args->batch->segments[i].rows;
    return st;
}

static void put_conv_rejected(tpw_ops *ops)
{
    ops->conv = conv_rejected_row;
}

static tpw_status commit_forgotten(const tpw_exec *exec, const tpw_delta_commit_args *args, tpw_error *err)
{
    int32_t taken[PROMPTS];

    cr_assert(args->batch->segment_count <= PROMPTS);
    TPW_TRY(exec->device->download(exec, taken, args->taken, (size_t)args->batch->segment_count * sizeof *taken, err));
    for (int32_t i = 0; i < args->batch->segment_count; i++) {
        const tpw_segment *s = &args->batch->segments[i];

        now.fired += (s->pos + s->rows_certain) / TPW_GRID != (s->pos + taken[i]) / TPW_GRID;
    }
    return TPW_OK;
}

static void put_commit_forgotten(tpw_ops *ops)
{
    ops->delta_commit = commit_forgotten;
}

/* The row behind which the first wrong draft stands says that it was right: one draft too many is accepted. With one
 * sequence at a time the logit rows of a step are those of its run. */
static tpw_status argmax_repeats_draft(const tpw_exec *exec, const tpw_argmax_args *args, tpw_error *err)
{
    tpw_status st = now.real->argmax(exec, args, err);
    const drafter *d = now.drafter;

    if (st != TPW_OK || d->drafted == now.asked)
        return st;
    now.asked = d->drafted;
    cr_assert_eq(args->logits.rows, d->asked + 1);
    if (d->wrong_at < d->asked) {
        const float best = INFINITY; /* wins over the other ranks too */

        TPW_TRY(exec->device->upload(exec, &args->id[d->wrong_at], &d->last[d->wrong_at], sizeof(int32_t), err));
        TPW_TRY(exec->device->upload(exec, &args->value[d->wrong_at], &best, sizeof best, err));
        now.fired++;
    }
    return st;
}

static void put_argmax(tpw_ops *ops)
{
    ops->argmax = argmax_repeats_draft;
}

/* One bit of one normed key, once: too little for a token to change, and only a digest shows it. */
static tpw_status delta_flips_a_bit(const tpw_exec *exec, const tpw_delta_args *args, tpw_error *err)
{
    now.layer = now.layer == NULL ? args->state.S : now.layer;
    if (args->state.S == now.layer && verifies(&args->batch->segments[0]) && ++now.verifies == 2) {
        uint32_t *key = (uint32_t *)args->k.data + args->batch->segments[0].row0 * args->k.stride, bits;

        TPW_TRY(exec->device->download(exec, &bits, key, sizeof bits, err));
        bits ^= 1u << 20;
        TPW_TRY(exec->device->upload(exec, key, &bits, sizeof bits, err));
        now.fired++;
    }
    return now.real->delta(exec, args, err);
}

static void put_flip(tpw_ops *ops)
{
    ops->delta = delta_flips_a_bit;
}

static void put_fault(tpw_worker *worker)
{
    now.real = worker->exec->ops;
    now.ops = *now.real;
    if (now.fault->put != NULL)
        now.fault->put(&now.ops);
    worker->exec->ops = &now.ops;
}

static const fault none = {"nothing", NULL};
static const fault faults[] = {{"attention reads one row too many", put_one_more},
                               {"attention misses its newest row", put_one_less},
                               {"the recurrence uses another slot once", put_delta_slot},
                               {"the convolution uses another slot once", put_conv_slot},
                               {"the convolution sees a rejected row", put_conv_rejected},
                               {"commit forgets the recurrent state", put_commit_forgotten},
                               {"one draft too many is accepted", put_argmax},
                               {"one bit of a key flips once", put_flip}};

/* The others write batches and state where ops of the host read them. */
static bool on_any_backend(const fault *f)
{
    return f->put == put_commit_forgotten || f->put == put_argmax || f->put == put_flip;
}

/* Runs with a fault in; *text tells the first difference from `reference`, or is empty. Nothing is poisoned: NaN would show by
 * itself. */
static void run_with(const fault *f, const workload *w, tpw_compute compute, int32_t k, int32_t batch,
                     const truth *known, const outcome *reference, char *text, size_t bytes)
{
    const cell cut = {mt_size, 64, compute, "auto", 16, batch, 64};
    drafter d = {.kind = DRAFTER_PATTERN, .truth = known};
    speculation s = drafter_speculation(&d, k);
    int tokens = 0, digests = 0;
    outcome o;

    memset(&now, 0, sizeof now);
    now.fault = f;
    now.drafter = &d;
    s.poison = false;
    s.loaded = put_fault;
    cell_run_drafting(&cut, &s, w, MPI_COMM_WORLD, &o);
    for (int32_t p = 0; p < w->prompts; p++) /* silent: the run ends as if nothing were wrong */
        cr_assert(o.finish[p] == TPW_FINISH_LENGTH && o.token_count[p] == w->max_tokens, "%s: prompt %d", f->name, p);
    if (k > 0) {
        cr_assert(f->put == NULL || now.fired > 0, "%s: never happened", f->name);
        cr_assert_lt(o.stats.accepted_tokens, o.stats.draft_tokens);
        cr_assert_gt(o.stats.accepted_tokens, 0);
    }
    outcome_difference(reference, &o, w->prompts, text, bytes, &tokens, &digests);
    outcome_free(&o);
}

static void run_faults(tpw_compute compute)
{
    const workload w = {
        .model = TPW_TEST_POCKET, .prompts = PROMPTS, .lengths = {5, 14, 30, 9}, .max_tokens = 24, .vocab_used = VOCAB};
    const cell plain = {mt_size, 64, compute, "auto", 64, 1, 64};
    outcome reference;
    char text[200];
    truth known;

    MT_SKIP_F32_ON_GPU(compute);
    cell_run(&plain, &w, MPI_COMM_WORLD, &reference);
    truth_share(&known, &reference, &w, VOCAB, MPI_COMM_WORLD);
    run_with(&none, &w, compute, K, PROMPTS, &known, &reference, text, sizeof text);
    cr_assert(text[0] == '\0', "no fault, yet: %s", text);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        int32_t batch = faults[i].put == put_argmax ? 1 : PROMPTS;

        if (test_on_gpu() && !on_any_backend(&faults[i]))
            continue;
        run_with(&faults[i], &w, compute, 0, batch, &known, &reference, text, sizeof text);
        cr_assert(text[0] == '\0', "%s: shows without drafts: %s", faults[i].name, text);
        run_with(&faults[i], &w, compute, K, batch, &known, &reference, text, sizeof text);
        cr_assert(text[0] != '\0', "%s: not found", faults[i].name);
        cr_assert(faults[i].put != put_flip || strstr(text, " of layer ") != NULL, "%s: %s", faults[i].name, text);
        if (mt_rank == 0)
            printf("%s (%d times): %s\n", faults[i].name, now.fired, text);
    }
    outcome_free(&reference);
}

MPI_TEST(speculation_faults, bf16, .timeout = 200)
{
    run_faults(TPW_COMPUTE_BF16);
}

MPI_TEST(speculation_faults, f32, .timeout = 200)
{
    run_faults(TPW_COMPUTE_F32);
}
