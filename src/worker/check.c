/* What a step compares, and how a difference is named. SPDX-License-Identifier: Apache-2.0 */
#include "worker/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "tp/agree.h"
#include "worker/scopes.h"

uint64_t tpw_plan_digest(const tpw_worker *worker, const tpw_layout *layout)
{
    uint64_t plan = tpw_digest_key("plan"), sum = tpw_digest_term(plan, ~(uint64_t)0, (uint64_t)worker->step);
    /* what the next plan will be made of: a slot or page lost on one rank shows here before it changes anything */
    const int64_t held[] = {worker->sequences.running_count, worker->sequences.waiting_count,
                            worker->sequences.ledger.slots_free, worker->sequences.ledger.pages_free};

    sum += tpw_digest_block(tpw_digest_key("held"), held, TPW_I64, 1, 4, 0, 0, 0);

    for (int32_t i = 0; i < layout->batch.segment_count; i++) {
        const tpw_segment *s = &layout->batch.segments[i];
        const int64_t fields[] = {s->row0, s->rows, s->rows_certain,
                                  s->slot, s->pos,  s->pages[s->pos / worker->sequences.page_size]};

        sum += tpw_digest_block(plan, fields, TPW_I64, 1, 6, 0, (uint64_t)i * 6, 0);
    }
    return sum;
}

uint64_t tpw_ids_digest(const tpw_worker *worker, const tpw_layout *layout)
{
    return tpw_digest_block(tpw_digest_key("ids"), worker->buf.ids, TPW_I32, 1, layout->batch.rows, 0, 0, 0);
}

/* What is compared before the sums of groups, whose number depends on the plan. */
typedef struct outline {
    uint64_t plan;
    uint64_t ids;
} outline;

/* The sequence that a digest group belongs to. */
static const tpw_sequence *owner_of(const tpw_worker *w, const tpw_layout *l, int32_t group, int64_t *pos)
{
    int32_t row = w->buf.groups[group].row0;

    *pos = w->buf.groups[group].pos;
    for (int32_t i = 0; i < l->batch.segment_count; i++)
        if (row < l->batch.segments[i].row0 + l->batch.segments[i].rows)
            return w->sequences.running[w->buf.planned[i].sequence];
    return NULL;
}

/* All ranks have the same plan: find the first layer, then the first group, whose sums differ. */
static tpw_status name_hidden(tpw_worker *w, const tpw_layout *l, tpw_error *err)
{
    size_t layers = (size_t)w->config.layers, count = (size_t)l->groups * layers;
    uint64_t *all = malloc((size_t)w->boot->size * count * sizeof *all + 1);
    char odd[128];
    tpw_status st = TPW_OK;

    if (all == NULL)
        return tpw_fail(err, TPW_ERR_DIVERGED, "ranks disagree at step %lld (no memory to say where)",
                        (long long)w->step);
    st = w->boot->ops->allgather(w->boot, w->buf.hidden, all, count * sizeof *all, err);
    for (size_t layer = 0; st == TPW_OK && layer < layers; layer++)
        for (int32_t g = 0; st == TPW_OK && g < l->groups; g++) {
            const uint64_t *values = &all[(size_t)g * layers + layer];
            int64_t pos;
            const tpw_sequence *s = owner_of(w, l, g, &pos);

            if (tpw_odd_ranks(values, w->boot->size, count, odd, sizeof odd) > 0)
                st = tpw_fail(
                    err, TPW_ERR_DIVERGED,
                    "hidden of layer %zu differs on rank %s: sequence %llu in slot %d at position %lld, step %lld",
                    layer, odd, s == NULL ? 0ull : (unsigned long long)s->id, s == NULL ? 0 : s->slot, (long long)pos,
                    (long long)w->step);
        }
    free(all);
    return st != TPW_OK ? st
                        : tpw_fail(err, TPW_ERR_DIVERGED,
                                   "ranks disagreed in the exchange of step %lld, but not in what led to it",
                                   (long long)w->step);
}

tpw_status tpw_worker_name_difference(tpw_worker *worker, const tpw_layout *layout, tpw_error *err)
{
    outline mine = {.plan = tpw_plan_digest(worker, layout), .ids = tpw_ids_digest(worker, layout)};
    uint64_t all[8 * 2]; /* at most 8 ranks */
    char odd[128];
    tpw_error rest = worker->rest;
    tpw_status st = tpw_agree_status(worker->boot, rest.status, &rest);

    if (st != TPW_OK)
        return tpw_fail(err, st, "%s", rest.text);
    TPW_TRY(worker->boot->ops->allgather(worker->boot, &mine, all, sizeof mine, err));
    for (int part = 0; part < 2; part++)
        if (tpw_odd_ranks(&all[part], worker->boot->size, 2, odd, sizeof odd) > 0)
            return tpw_fail(err, TPW_ERR_DIVERGED, "%s of step %lld differs on rank %s",
                            part == 0 ? "the plan (rows, slots, pages, positions)" : "the tokens",
                            (long long)worker->step, odd);
    return name_hidden(worker, layout, err);
}

/* Does the step write S of this planned sequence? */
static bool overwrites(const tpw_worker *w, int32_t planned)
{
    const tpw_planned *p = &w->buf.planned[planned];
    int64_t pos = w->sequences.running[p->sequence]->pos;

    return (pos + p->rows + p->drafts) / TPW_GRID != pos / TPW_GRID;
}

void tpw_worker_check_rest(tpw_worker *worker, int32_t planned)
{
    const tpw_options *o = &worker->settings.options;
    bool all = o->check_every > 0 && worker->step % o->check_every == 0, any = all;
    tpw_status st = TPW_OK;

    if (o->check != TPW_CHECK_STEP || o->check_every == 0)
        return;
    for (int32_t i = 0; all && st == TPW_OK && i < worker->sequences.running_count; i++)
        st = tpw_carry_check(&worker->carry, worker->sequences.running[i], &worker->rest);
    for (int32_t i = 0; !all && st == TPW_OK && i < planned; i++) {
        if (!overwrites(worker, i))
            continue;
        any = true;
        st = tpw_carry_check_recurrent(&worker->carry, worker->sequences.running[worker->buf.planned[i].sequence],
                                       &worker->rest);
    }
    worker->stats.checks += any;
}

tpw_status tpw_worker_check_end(tpw_worker *worker, const tpw_sequence *sequence, tpw_error *err)
{
    const tpw_options *o = &worker->settings.options;

    if (o->check != TPW_CHECK_STEP || o->check_every == 0)
        return TPW_OK;
    TPW_TRY(tpw_agree_status(worker->boot, tpw_carry_check(&worker->carry, sequence, err), err));
    worker->stats.checks++;
    return TPW_OK;
}

/* Where a scope comes in the execution of a step: layer by layer, state before the hidden vector; tokens and drafts last. */
static int64_t place_of(const tpw_scope_digest *d)
{
    return d->layer < 0 ? INT64_MAX : 2 * (int64_t)d->layer + (strcmp(d->scope, "hidden") == 0);
}

/* Gives every scope of one sequence to the trace function. False when it objected: then the earliest of what it objected to in the
 * order of execution is noted, since what comes behind only follows from it. */
static bool hand_over(tpw_worker *w, const tpw_sequence *s, const tpw_scope_digest *scopes)
{
    size_t count = (size_t)w->scope_count;
    uint64_t ranks[8];
    bool good = true;

    for (size_t i = 0; i < count; i++) {
        const tpw_trace_record record = {.id = s->id,
                                         .position = s->pos,
                                         .step = w->step,
                                         .scope = scopes[i].scope,
                                         .layer = scopes[i].layer,
                                         .global = scopes[i].global,
                                         .ranks = ranks,
                                         .rank_count = w->boot->size};

        for (int r = 0; r < w->boot->size; r++)
            ranks[r] = w->buf.scopes_all[(size_t)r * count + i];
        if (w->settings.options.trace(w->settings.options.trace_data, &record))
            continue;
        if (good || place_of(&scopes[i]) < place_of(&w->buf.objected))
            w->buf.objected = scopes[i];
        good = false;
    }
    return good;
}

tpw_status tpw_worker_trace(tpw_worker *worker, int32_t planned, tpw_error *err)
{
    const tpw_options *o = &worker->settings.options;
    tpw_status st = TPW_OK;

    if (o->trace == NULL || worker->step % o->trace_every != 0)
        return TPW_OK;
    for (int32_t i = 0; i < planned; i++) {
        const tpw_sequence *s = worker->sequences.running[worker->buf.planned[i].sequence];

        TPW_TRY(tpw_worker_scopes(worker, s, worker->buf.traced, err));
        if (st == TPW_OK && worker->boot->rank == 0 && !hand_over(worker, s, worker->buf.traced))
            st = tpw_fail(err, TPW_ERR_DIVERGED,
                          "%s of layer %d is not what was expected: sequence %llu at position %lld, step %lld",
                          worker->buf.objected.scope, worker->buf.objected.layer, (unsigned long long)s->id,
                          (long long)s->pos, (long long)worker->step);
    }
    return tpw_agree_status(worker->boot, st, err);
}
