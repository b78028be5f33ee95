/* One step: control record, plan, pass, head, commit. Collective. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
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

/* Turns the plan into segments, token ids and logit rows. Returns the number of logit rows. */
static int32_t lay_out(tpw_worker *w, int32_t planned, tpw_batch *batch)
{
    tpw_step_buffers *b = &w->buf;
    int32_t row = 0, logits = 0;

    for (int32_t i = 0; i < planned; i++) {
        const tpw_planned *p = &b->planned[i];
        const tpw_sequence *s = w->sequences.running[p->sequence];

        b->segments[i] = (tpw_segment){
            .row0 = row, .rows = p->rows, .rows_certain = p->rows, .slot = s->slot, .pos = s->pos, .pages = s->pages};
        memcpy(&b->ids[row], &s->tokens[s->pos], (size_t)p->rows * sizeof *b->ids);
        row += p->rows;
        if (p->logits)
            b->logit_rows[logits++] = row - 1;
    }
    *batch = (tpw_batch){.rows = row, .segment_count = planned, .segments = b->segments};
    return logits;
}

/* Everything that must be the same on all ranks after the trunk, in one number: plan, marks, hidden. */
static uint64_t step_digest(const tpw_worker *w, const tpw_batch *batch)
{
    size_t hidden = (size_t)batch->segment_count * (size_t)w->config.layers;
    uint64_t sum = tpw_digest_block(tpw_digest_key("hidden"), w->buf.hidden, TPW_I64, 1, (int64_t)hidden, 0, 0, 0);
    uint64_t plan = tpw_digest_key("plan");

    for (int32_t i = 0; i < batch->segment_count; i++) {
        const tpw_segment *s = &batch->segments[i];
        const int64_t fields[] = {s->row0, s->rows, s->rows_certain,
                                  s->slot, s->pos,  s->pages[s->pos / w->sequences.page_size]};

        sum += tpw_digest_block(plan, fields, TPW_I64, 1, 6, 0, (uint64_t)i * 6, 0);
    }
    return sum + tpw_digest_term(tpw_digest_key("step"), 0, (uint64_t)w->step);
}

static bool is_end(const tpw_config *c, int32_t token)
{
    for (int32_t i = 0; i < c->end_count; i++)
        if (c->end_ids[i] == token)
            return true;
    return false;
}

/* Takes a sequence's next token. *ended tells whether it is over, and why. */
static tpw_status emit(tpw_worker *w, tpw_sequence *s, int32_t token, bool *ended, tpw_finish *why, tpw_error *err)
{
    tpw_event event = {.type = TPW_EVENT_TOKEN, .id = s->id, .token = token, .position = s->prompt + s->emitted};

    *ended = true;
    *why = TPW_FINISH_ERROR;
    if (token < 0)
        return TPW_OK;
    s->tokens[s->prompt + s->emitted++] = token;
    w->stats.output_tokens++;
    TPW_TRY(tpw_events_push(&w->events, &event, err));
    *why = TPW_FINISH_STOP;
    if (!s->ignore_eos && is_end(&w->config, token))
        return TPW_OK;
    *why = TPW_FINISH_LENGTH;
    *ended = s->emitted == s->max_tokens;
    return TPW_OK;
}

/* Moves the marks, hands out the tokens, ends what is over. */
static tpw_status commit(tpw_worker *w, int32_t planned, tpw_error *err)
{
    tpw_step_buffers *b = &w->buf;
    int32_t layers = w->config.layers, logits = 0;
    int32_t over = 0;

    for (int32_t i = 0; i < planned; i++) {
        const tpw_planned *p = &b->planned[i];
        tpw_sequence *s = w->sequences.running[p->sequence];
        bool ended;

        if (s->pos + p->rows <= s->prompt)
            w->stats.prompt_tokens += p->rows;
        s->pos += p->rows;
        for (int32_t l = 0; l < layers; l++)
            s->hidden[l] += b->hidden[(size_t)i * (size_t)layers + (size_t)l];
        if (!p->logits)
            continue;
        TPW_TRY(emit(w, s, b->best[logits++], &ended, &b->over[over].why, err));
        if (ended)
            b->over[over++].sequence = s;
    }
    for (int32_t i = 0; i < over; i++)
        TPW_TRY(tpw_worker_finish(w, b->over[i].sequence, b->over[i].why, err));
    return TPW_OK;
}

static tpw_status run_rows(tpw_worker *w, int32_t planned, tpw_error *err)
{
    tpw_step_buffers *b = &w->buf;
    tpw_batch batch;
    int32_t logits = lay_out(w, planned, &batch);

    memset(b->hidden, 0, (size_t)planned * (size_t)w->config.layers * sizeof *b->hidden);
    TPW_TRY(tpw_pass_trunk(w->pass, &batch, b->ids, b->hidden, err));
    TPW_TRY(tpw_pass_head(w->pass, b->logit_rows, logits, step_digest(w, &batch), b->best, NULL, err));
    w->stats.checks++;
    return commit(w, planned, err);
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
    for (int32_t i = 0; i < w->sequences.running_count; i++) {
        const tpw_sequence *s = w->sequences.running[i];

        w->buf.candidates[i] = (tpw_candidate){.known = s->prompt + s->emitted, .pos = s->pos};
    }
    planned =
        w->stopped ? 0 : tpw_schedule(w->buf.candidates, w->sequences.running_count, limits, w->buf.planned, &rows);
    for (int32_t i = 0; i < planned; i++)
        prefill = prefill || w->buf.candidates[w->buf.planned[i].sequence].pos <
                                 w->sequences.running[w->buf.planned[i].sequence]->prompt;
    if (planned > 0)
        TPW_TRY(run_rows(w, planned, err));
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
