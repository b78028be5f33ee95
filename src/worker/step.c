/* One step: control record, plan, pass, head, commit. Collective. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "tp/comm_nccl.h"
#include "worker/check.h"
#include "worker/draft.h"
#include "worker/worker.h"

/* Rank 0's record to all. Afterwards worker->record holds head->bytes of entries on every rank. */
static tpw_status exchange_control(tpw_worker *w, tpw_control_head *head, tpw_error *err)
{
    tpw_status st = TPW_OK;

    *head = tpw_control_make_head(&w->control, w->step);
    TPW_TRY(w->boot->ops->broadcast(w->boot, head, sizeof *head, 0, err));
    TPW_TRY(tpw_control_check_head(head, w->step, err));
    if (head->bytes == 0)
        return TPW_OK;
    if (head->bytes > w->record_capacity) {
        unsigned char *grown = realloc(w->record, head->bytes);

        if (grown == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a control record of %llu bytes",
                            (unsigned long long)head->bytes);
        w->record = grown;
        w->record_capacity = head->bytes;
    }
    if (w->boot->rank == 0)
        memcpy(w->record, w->control.data, head->bytes);
    st = w->boot->ops->broadcast(w->boot, w->record, head->bytes, 0, err);
    tpw_control_clear(&w->control);
    return st;
}

static tpw_status apply_entry(tpw_worker *w, const tpw_control_entry *entry, tpw_error *err)
{
    tpw_sequence *s;

    if (!entry->cancel)
        return tpw_sequences_add(&w->sequences, &entry->request, err);
    s = tpw_sequences_find(&w->sequences, entry->id);
    /* it may have finished in the step before the record was made: nothing is left to cancel then */
    return s == NULL ? TPW_OK : tpw_worker_finish(w, s, TPW_FINISH_CANCELLED, err);
}

static tpw_status apply_control(tpw_worker *w, const tpw_control_head *head, tpw_error *err)
{
    size_t offset = 0;

    for (uint32_t i = 0; i < head->entries; i++) {
        tpw_control_entry entry;

        TPW_TRY(tpw_control_next(w->record, head->bytes, &offset, &entry, err));
        TPW_TRY(apply_entry(w, &entry, err));
    }
    w->stopped = w->stopped || head->stop != 0;
    tpw_sequences_start(&w->sequences);
    return TPW_OK;
}

/* Hidden digests of a prompt chunk are one group; a verified run has one a row, since rows may be dropped. */
static int32_t groups_of(const tpw_planned *p)
{
    return p->logits && p->rows == 1 ? 1 + p->drafts : 1;
}

/* Adds one planned entry at `row`: its segment, token ids, logit rows and digest groups. */
static void lay_out_entry(tpw_worker *w, int32_t planned, int32_t row, tpw_layout *l)
{
    tpw_step_buffers *b = &w->buf;
    const tpw_planned *p = &b->planned[planned];
    const tpw_sequence *s = w->sequences.running[p->sequence];
    int32_t rows = p->rows + p->drafts, groups = groups_of(p);

    b->segments[planned] = (tpw_segment){
        .row0 = row, .rows = rows, .rows_certain = p->rows, .slot = s->slot, .pos = s->pos, .pages = s->pages};
    memcpy(&b->ids[row], &s->tokens[s->pos], (size_t)p->rows * sizeof *b->ids);
    memcpy(&b->ids[row + p->rows], &b->drafts[(size_t)planned * TPW_K_MAX], (size_t)p->drafts * sizeof *b->ids);
    for (int32_t g = 0; g < groups; g++)
        b->groups[l->groups++] = (tpw_hidden_group){.row0 = row + g, .rows = groups == 1 ? rows : 1, .pos = s->pos + g};
    for (int32_t r = p->rows - 1; p->logits && r < rows; r++)
        b->logit_rows[l->logits++] = row + r;
}

/* Turns the plan and its drafts into what the pass takes. */
static tpw_layout lay_out(tpw_worker *w, int32_t planned)
{
    int32_t row = 0;
    tpw_layout l = {0};

    for (int32_t i = 0; i < planned; i++) {
        lay_out_entry(w, i, row, &l);
        row += w->buf.segments[i].rows;
    }
    l.batch = (tpw_batch){.rows = row, .segment_count = planned, .segments = w->buf.segments};
    return l;
}

/* Everything that must be the same on all ranks after the trunk, in one number: plan, marks, tokens, hidden. */
static uint64_t step_digest(const tpw_worker *w, const tpw_layout *l)
{
    size_t hidden = (size_t)l->groups * (size_t)w->config.layers;

    if (w->settings.options.check != TPW_CHECK_STEP)
        return 0;
    return (w->rest.status != TPW_OK ? tpw_digest_term(tpw_digest_key("rest"), (uint64_t)w->boot->rank, 1) : 0) +
           tpw_plan_digest(w, l) + tpw_ids_digest(w, l) +
           tpw_digest_block(tpw_digest_key("hidden"), w->buf.hidden, TPW_I64, 1, (int64_t)hidden, 0, 0, 0);
}

static void count_drafts(tpw_stats *stats, int32_t drafts, int32_t accepted)
{
    stats->drafts += drafts > 0;
    stats->draft_tokens += drafts;
    stats->accepted_tokens += accepted;
    for (int32_t i = 0; i < drafts; i++) {
        stats->drafted_at[i]++;
        stats->accepted_at[i] += i < accepted;
    }
}

/* Takes the tokens of a run: events, and the decision how many rows are committed. */
static tpw_status take_tokens(tpw_worker *w, int32_t planned, const int32_t *best, int32_t *over, tpw_error *err)
{
    const tpw_planned *p = &w->buf.planned[planned];
    tpw_sequence *s = w->sequences.running[p->sequence];
    const tpw_end_rule rule = {.end_ids = w->config.end_ids,
                               .end_count = w->config.end_count,
                               .ignore_eos = s->ignore_eos,
                               .emitted = s->emitted,
                               .max_tokens = s->max_tokens};
    tpw_accepted a = tpw_accept(&w->buf.drafts[(size_t)planned * TPW_K_MAX], p->drafts, best, &rule);

    count_drafts(&w->stats, p->drafts, a.drafts);
    for (int32_t i = 0; i < a.tokens; i++) {
        const tpw_event event = {
            .type = TPW_EVENT_TOKEN, .id = s->id, .token = best[i], .position = s->prompt + s->emitted};

        s->tokens[s->prompt + s->emitted++] = best[i];
        TPW_TRY(tpw_events_push(&w->events, &event, err));
    }
    w->stats.output_tokens += a.tokens;
    /* the certain rows stay, and one draft row for each token beyond the first; the last token has not been run, unless it
     * was run and gave no number: that row stays at every K, since at K = 0 it is a certain one */
    w->buf.taken[planned] = p->rows + a.tokens - (a.ended && a.why == TPW_FINISH_ERROR ? 0 : 1);
    if (a.ended)
        w->buf.over[(*over)++] = (tpw_over){s, a.why};
    return TPW_OK;
}

/* Moves a sequence's mark over the rows that stay, with its recurrent state and its running digests. */
static tpw_status move_mark(tpw_worker *w, int32_t planned, int32_t group, tpw_error *err)
{
    const tpw_planned *p = &w->buf.planned[planned];
    tpw_sequence *s = w->sequences.running[p->sequence];
    int32_t layers = w->config.layers, taken = w->buf.taken[planned];
    int32_t groups = groups_of(p) == 1 ? 1 : taken;
    int64_t before = s->pos, certain = s->pos + p->rows;

    if (s->pos < s->prompt)
        w->stats.prompt_tokens += p->rows;
    for (int32_t g = group; g < group + groups; g++)
        for (int32_t l = 0; l < layers; l++)
            s->hidden[l] += w->buf.hidden[(size_t)g * (size_t)layers + (size_t)l];
    s->pos += taken;
    TPW_TRY(tpw_pass_commit(w->pass, s->slot, certain, s->pos, err));
    if (w->settings.options.check != TPW_CHECK_STEP || w->settings.options.check_every == 0)
        return TPW_OK;
    return tpw_carry_note(&w->carry, s, before, err);
}

/* Accepts, commits, lets the MTP module follow, ends what is over. */
static tpw_status commit(tpw_worker *w, int32_t planned, tpw_error *err)
{
    tpw_step_buffers *b = &w->buf;
    int32_t logits = 0, group = 0, over = 0;

    for (int32_t i = 0; i < planned; i++) {
        const tpw_planned *p = &b->planned[i];

        b->taken[i] = p->rows;
        if (p->logits) {
            TPW_TRY(take_tokens(w, i, &b->best[logits], &over, err));
            logits += 1 + p->drafts;
        }
        TPW_TRY(move_mark(w, i, group, err));
        group += groups_of(p);
    }
    TPW_TRY(tpw_worker_follow(w, planned, err));
    TPW_TRY(tpw_worker_trace(w, planned, err));
    for (int32_t i = 0; i < over; i++)
        TPW_TRY(tpw_worker_finish(w, b->over[i].sequence, b->over[i].why, err));
    return TPW_OK;
}

static tpw_status run_rows(tpw_worker *w, int32_t planned, tpw_error *err)
{
    tpw_step_buffers *b = &w->buf;
    tpw_check check = w->settings.options.check;
    tpw_layout l;
    tpw_status st;

    TPW_TRY(tpw_worker_draft(w, planned, err));
    l = lay_out(w, planned);
    memset(b->hidden, 0, (size_t)l.groups * (size_t)w->config.layers * sizeof *b->hidden);
    TPW_TRY(
        tpw_pass_trunk(w->pass, &l.batch, b->ids, b->groups, check == TPW_CHECK_OFF ? 0 : l.groups, b->hidden, err));
    st = tpw_pass_head(w->pass, b->logit_rows, l.logits, step_digest(w, &l), b->best, NULL, err);
    if (st == TPW_ERR_DIVERGED)
        return tpw_worker_name_difference(w, &l, err);
    TPW_TRY(st);
    w->stats.checks += check == TPW_CHECK_STEP;
    return commit(w, planned, err);
}

/* A step without rows is compared too: a rank that has nothing to run while others have would leave them waiting. */
static tpw_status agree_on_nothing(tpw_worker *w, tpw_error *err)
{
    const tpw_layout none = {0};
    tpw_status st = tpw_pass_head(w->pass, NULL, 0, step_digest(w, &none), NULL, NULL, err);

    if (st == TPW_ERR_DIVERGED)
        return tpw_worker_name_difference(w, &none, err);
    TPW_TRY(st);
    w->stats.checks += w->settings.options.check == TPW_CHECK_STEP;
    return TPW_OK;
}

/* What the scheduler may know of the running sequences. */
static void list_candidates(tpw_worker *w)
{
    for (int32_t i = 0; i < w->sequences.running_count; i++) {
        const tpw_sequence *s = w->sequences.running[i];
        int32_t drafts = tpw_draft_limit(w->settings.options.draft_max, s->emitted, s->max_tokens);

        w->buf.candidates[i] =
            (tpw_candidate){.known = s->prompt + s->emitted, .pos = s->pos, .drafts = s->emitted > 0 ? drafts : 0};
    }
}

static tpw_status step(tpw_worker *w, bool *busy, tpw_error *err)
{
    const tpw_schedule_limits limits = {w->settings.options.rows_max, w->settings.options.chunk};
    int64_t begin = tpw_clock_ns(), spent;
    int32_t planned, rows = 0;
    tpw_control_head head;
    bool prefill = false;

    w->boot->step = w->step;
    TPW_TRY(exchange_control(w, &head, err));
    TPW_TRY(apply_control(w, &head, err));
    list_candidates(w);
    planned =
        w->stopped ? 0 : tpw_schedule(w->buf.candidates, w->sequences.running_count, limits, w->buf.planned, &rows);
    for (int32_t i = 0; i < planned; i++)
        prefill = prefill || w->buf.candidates[w->buf.planned[i].sequence].pos <
                                 w->sequences.running[w->buf.planned[i].sequence]->prompt;
    tpw_worker_check_rest(w, planned);
    TPW_TRY(planned > 0 ? run_rows(w, planned, err) : agree_on_nothing(w, err));
    if (w->on_gpu && w->boot->size > 1)
        TPW_TRY(tpw_comm_nccl_check(w->gpu_comm, err));
    w->step++;
    w->stats.steps++;
    spent = tpw_clock_ns() - begin;
    w->stats.step_ns += spent;
    w->stats.prefill_ns += prefill ? spent : 0;
    *busy = !w->stopped && (w->sequences.running_count > 0 || w->sequences.waiting != NULL);
    return TPW_OK;
}

tpw_status tpw_worker_step(tpw_worker *worker, bool *busy, tpw_error *err)
{
    tpw_error own = {0};
    tpw_error *e = err != NULL ? err : &own;
    tpw_status st;

    if (worker == NULL || busy == NULL || worker->stage != TPW_LOADED)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "step: the worker is not loaded, or has failed or been finalized");
    st = step(worker, busy, e);
    if (st != TPW_OK) {
        worker->stage = TPW_FAILED;
        worker->boot->ops->raise(worker->boot, st, e->text);
    }
    return st;
}
