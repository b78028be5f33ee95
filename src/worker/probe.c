/* The same-state probe: k + 1 tokens as one verified run against the same tokens one by one. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "graph/op_trace.h"
#include "model/state_copy.h"
#include "tp/agree.h"
#include "worker/worker.h"

/* What one way of running the tokens left on this rank. */
typedef struct outcome {
    uint64_t *state;  /* [layers * 2]: conv and recurrent, or kv and 0 */
    uint64_t *hidden; /* [(k + 1) * layers] */
    tpw_op_trace ops;
} outcome;

typedef struct probe {
    tpw_worker *worker;
    const tpw_sequence *sequence;
    int32_t rows; /* k + 1 */
    int32_t ids[1 + TPW_K_MAX];
    void *saved;
    outcome run;    /* as one run */
    outcome single; /* one by one */
} probe;

/* This rank's findings, gathered from all. */
typedef struct finding {
    int64_t compared;
    int64_t unequal;
    int32_t scope; /* index into SCOPES of the first difference, -1 */
    int32_t layer;
    int32_t op_call; /* index into the trace, -1 */
    int32_t op_layer;
    int32_t op_row;
    char op[16];
} finding;

static const char *const SCOPES[] = {"conv", "recurrent", "kv", "hidden"};

static tpw_status outcome_init(outcome *o, const tpw_worker *w, int32_t rows, tpw_error *err)
{
    size_t layers = (size_t)w->config.layers;

    tpw_op_trace_init(&o->ops, w->exec);
    o->state = calloc(layers * 2, sizeof *o->state);
    o->hidden = calloc(layers * (size_t)rows, sizeof *o->hidden);
    return o->state != NULL && o->hidden != NULL ? TPW_OK : tpw_fail(err, TPW_ERR_MEMORY, "no memory for a probe");
}

static void outcome_fini(outcome *o)
{
    free(o->state);
    free(o->hidden);
    tpw_op_trace_fini(&o->ops);
}

/* Ops after the tap of layer i belong to layer i + 1. */
static void next_layer(void *data, int32_t layer, const tpw_mat *rows)
{
    tpw_op_trace *trace = data;

    (void)rows;
    trace->layer = layer + 1;
}

/* One pass over rows with these tokens, all of which are committed. */
static tpw_status run_batch(tpw_pass *pass, const tpw_batch *batch, const int32_t *ids, tpw_error *err)
{
    tpw_step_io *host = &pass->io.host, *device = &pass->io.device;

    for (int32_t r = 0; r < batch->rows; r++) {
        host->tokens[r] = ids[r];
        host->row_ids[r] = r;
    }
    TPW_TRY(tpw_pass_stage(pass, batch, err));
    TPW_TRY(tpw_pass_send(pass, batch->rows, 0, err));
    TPW_TRY(pass->exec->device->send(pass->exec, device->taken, &batch->rows, sizeof batch->rows, err));
    TPW_TRY(tpw_pass_trunk(pass, batch, device->row_ids, true, err));
    TPW_TRY(tpw_pass_commit(pass, batch, device->taken, err));
    return tpw_pass_fetch(pass, batch->rows, err);
}

/* One pass over rows [first, first + count) of the probe's tokens, all of them from `first` on uncertain but the first. */
static tpw_status run_rows(probe *p, int32_t first, int32_t count, outcome *o, tpw_error *err)
{
    tpw_worker *w = p->worker;
    tpw_pass *pass = w->pass;
    const tpw_segment segment = {.rows = count,
                                 .rows_certain = 1,
                                 .slot = p->sequence->slot,
                                 .pos = p->sequence->pos + first,
                                 .pages = p->sequence->pages};
    const tpw_batch batch = {.rows = count, .segment_count = 1, .segments = &segment};
    size_t layers = (size_t)w->config.layers;
    const tpw_exec *exec = pass->exec;
    tpw_status st;

    o->ops.layer = 0;
    pass->exec = &o->ops.exec;
    pass->tap = next_layer;
    pass->tap_data = &o->ops;
    st = run_batch(pass, &batch, p->ids + first, err);
    pass->exec = exec;
    pass->tap = NULL;
    pass->tap_data = NULL;
    TPW_TRY(st);
    for (int32_t r = 0; r < count; r++)
        for (size_t l = 0; l < layers; l++)
            o->hidden[(size_t)(first + r) * layers + l] = pass->io.host.hidden[l * (size_t)count + (size_t)r];
    return TPW_OK;
}

/* Digests of all state tensors at the end. */
static tpw_status digest_state(const probe *p, outcome *o, tpw_error *err)
{
    tpw_worker *w = p->worker;
    const tpw_sequence *s = p->sequence;
    tpw_digest_list *list = &w->digests;
    int64_t pos = s->pos + p->rows;

    for (int32_t i = 0; i < w->config.layers; i++) {
        if (w->config.kind[i] == TPW_LAYER_ATTENTION) {
            TPW_TRY(tpw_state_list_kv(w->state, list, i, s->pages, pos, &o->state[2 * i], err));
            continue;
        }
        TPW_TRY(tpw_state_list_conv(w->state, list, i, s->slot, pos, &o->state[2 * i], err));
        TPW_TRY(tpw_state_list_recurrent(w->state, list, i, s->slot, pos, &o->state[2 * i + 1], err));
    }
    return tpw_digest_list_run(list, w->exec, err);
}

/* Both ways, the state put back after each. */
static tpw_status run_both(probe *p, tpw_error *err)
{
    tpw_worker *w = p->worker;
    const tpw_sequence *s = p->sequence;
    tpw_status st;

    TPW_TRY(run_rows(p, 0, p->rows, &p->run, err));
    TPW_TRY(digest_state(p, &p->run, err));
    TPW_TRY(tpw_state_restore(w->state, s->slot, s->pages, s->page_count, p->saved, err));
    for (int32_t r = 0; r < p->rows; r++)
        TPW_TRY(run_rows(p, r, 1, &p->single, err));
    st = digest_state(p, &p->single, err);
    TPW_TRY(tpw_state_restore(w->state, s->slot, s->pages, s->page_count, p->saved, err));
    return st;
}

/* The first op whose output differs, in the order in which the run executed them. Both ways call the same ops in a pass. */
static void find_op(const probe *p, finding *f)
{
    const tpw_op_trace *run = &p->run.ops, *single = &p->single.ops;

    f->op_call = -1;
    for (size_t c = 0; f->op_call < 0 && c < run->calls; c++)
        for (int32_t r = 0; f->op_call < 0 && r < run->call[c].rows && r < p->rows; r++) {
            size_t other = (size_t)r * run->calls + c;

            if (other >= single->calls ||
                run->row[run->call[c].first + (size_t)r] == single->row[single->call[other].first])
                continue;
            f->op_call = (int32_t)c;
            f->op_layer = run->call[c].layer;
            f->op_row = r;
            snprintf(f->op, sizeof f->op, "%s", run->call[c].op);
        }
}

/* Counts one comparison and remembers the first difference. */
static void compare(finding *f, uint64_t a, uint64_t b, int32_t scope, int32_t layer)
{
    f->compared++;
    f->unequal += a != b;
    if (a != b && f->scope < 0) {
        f->scope = scope;
        f->layer = layer;
    }
}

static finding find(const probe *p)
{
    const tpw_config *c = &p->worker->config;
    size_t layers = (size_t)c->layers;
    finding f = {.scope = -1};

    for (int32_t i = 0; i < c->layers; i++) {
        bool attention = c->kind[i] == TPW_LAYER_ATTENTION;

        compare(&f, p->run.state[2 * i], p->single.state[2 * i], attention ? 2 : 0, i);
        if (!attention)
            compare(&f, p->run.state[2 * i + 1], p->single.state[2 * i + 1], 1, i);
        for (int32_t r = 0; r < p->rows; r++)
            compare(&f, p->run.hidden[(size_t)r * layers + (size_t)i], p->single.hidden[(size_t)r * layers + (size_t)i],
                    3, i);
    }
    find_op(p, &f);
    return f;
}

/* Which of two ranks' first differences came first. All ranks run the same ops in the same order; a sum over ranks carries a
 * difference on to all of them. */
static bool earlier(const finding *a, const finding *b)
{
    if (a->op_call >= 0 && b->op_call >= 0 && a->op_call != b->op_call)
        return a->op_call < b->op_call;
    return a->layer != b->layer ? a->layer < b->layer : a->scope < b->scope;
}

/* Totals of all ranks, and the earliest difference, of equals that of the lowest rank. */
static tpw_status gather(const probe *p, tpw_probe_result *out, tpw_error *err)
{
    finding mine = find(p), all[8];
    tpw_boot *boot = p->worker->boot;
    int first = -1;

    TPW_TRY(boot->ops->allgather(boot, &mine, all, sizeof mine, err));
    *out = (tpw_probe_result){.position = p->sequence->pos, .k = p->rows - 1, .layer = -1, .rank = -1, .op_layer = -1};
    for (int r = 0; r < boot->size; r++) {
        out->compared += all[r].compared;
        out->unequal += all[r].unequal;
        if (all[r].scope >= 0 && (first < 0 || earlier(&all[r], &all[first])))
            first = r;
    }
    if (first < 0)
        return TPW_OK;
    out->rank = first;
    out->layer = all[first].layer;
    snprintf(out->scope, sizeof out->scope, "%s", SCOPES[all[first].scope]);
    if (all[first].op_call >= 0) {
        out->op_layer = all[first].op_layer;
        out->op_row = all[first].op_row;
        snprintf(out->op, sizeof out->op, "%s", all[first].op);
    }
    return TPW_OK;
}

/* Everything that may be refused, the same on all ranks. */
static tpw_status check(const tpw_worker *w, uint64_t id, int32_t k, const tpw_sequence **out, tpw_error *err)
{
    const tpw_sequence *s = tpw_sequences_find(&w->sequences, id);

    if (k < 1 || k > TPW_K_MAX || k + 1 > w->settings.options.rows_max)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "probe: k = %d is not in 1..%d", k, TPW_K_MAX);
    if (s == NULL || s->slot == 0 || s->pos < 1)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "probe: sequence %llu is not running", (unsigned long long)id);
    if (s->pos + k + 1 > (int64_t)s->page_count * w->sequences.page_size || s->pos + k + 1 > w->context_max)
        return tpw_fail(err, TPW_ERR_LIMIT, "probe: sequence %llu at position %lld has no room for %d more tokens",
                        (unsigned long long)id, (long long)s->pos, k + 1);
    *out = s;
    return TPW_OK;
}

static tpw_status probe_init(probe *p, tpw_error *err)
{
    const tpw_sequence *s = p->sequence;
    size_t bytes;

    p->ids[0] = s->pos < s->prompt + s->emitted ? s->tokens[s->pos] : 0;
    for (int32_t i = 1; i < p->rows; i++) /* any tokens will do; not all alike */
        p->ids[i] = (int32_t)(tpw_digest_term(s->id, (uint64_t)(s->pos + i), 0) % (uint64_t)p->worker->config.vocab);
    TPW_TRY(outcome_init(&p->run, p->worker, p->rows, err));
    TPW_TRY(outcome_init(&p->single, p->worker, p->rows, err));
    if (!tpw_state_copy_bytes(p->worker->state, s->page_count, &bytes) || (p->saved = malloc(bytes)) == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory to keep the state of sequence %llu", (unsigned long long)s->id);
    return tpw_state_save(p->worker->state, s->slot, s->pages, s->page_count, p->saved, err);
}

tpw_status tpw_worker_probe(tpw_worker *worker, uint64_t id, int32_t k, tpw_probe_result *out, tpw_error *err)
{
    probe p = {.worker = worker, .rows = k + 1};
    tpw_error own = {0};
    tpw_error *e = err != NULL ? err : &own;
    tpw_status st;

    if (worker == NULL || out == NULL || worker->stage != TPW_LOADED)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "probe: the worker is not loaded, or has failed or been finalized");
    TPW_TRY(check(worker, id, k, &p.sequence, err));
    worker->boot->phase = "probe";
    st = tpw_agree_status(worker->boot, probe_init(&p, e), e);
    if (st == TPW_OK)
        st = run_both(&p, e);
    if (st == TPW_OK)
        st = gather(&p, out, e);
    worker->boot->phase = "step";
    outcome_fini(&p.run);
    outcome_fini(&p.single);
    free(p.saved);
    if (st != TPW_OK) {
        worker->stage = TPW_FAILED;
        worker->boot->ops->raise(worker->boot, st, e->text);
    }
    return st;
}
