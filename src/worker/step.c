/* One step: control record, plan, what is sent, what is enqueued, what is fetched, the books. Collective. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "kernels/exchange.h"
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

/* What the host adds to what must be the same on all ranks after the trunk: plan and marks, and its own finding. The device adds tokens and
 * hidden. */
static uint64_t host_agree(const tpw_worker *w, const tpw_layout *l)
{
    if (w->settings.options.check != TPW_CHECK_STEP)
        return 0;
    return (w->rest.status != TPW_OK ? tpw_digest_term(tpw_digest_key("rest"), (uint64_t)w->boot->rank, 1) : 0) +
           tpw_plan_digest(w, l);
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

/* Takes the tokens of a run: events, and what ends. */
static tpw_status take_tokens(tpw_worker *w, int32_t planned, const int32_t *best, int32_t *over, tpw_error *err)
{
    const tpw_planned *p = &w->buf.planned[planned];
    tpw_sequence *s = w->sequences.running[p->sequence];
    const tpw_run_rule rule = {.end_ids = w->config.end_ids,
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
    if (a.ended)
        w->buf.over[(*over)++] = (tpw_over){s, a.why};
    return TPW_OK;
}

/* The device has decided how many rows are committed; the host, from the same tokens, decides alike. */
static tpw_status check_taken(tpw_worker *w, int32_t planned, tpw_error *err)
{
    const tpw_step_io *io = &w->pass->io.host;
    int32_t taken =
        tpw_entry_taken(&io->entries[planned], io->tokens, io->best, w->config.end_ids, w->config.end_count);

    w->buf.taken[planned] = taken;
    if (io->taken[planned] == taken)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_INTERNAL,
                    "rank %d: the device commits %d rows of sequence %llu, the host %d: step %lld", w->boot->rank,
                    io->taken[planned], (unsigned long long)w->sequences.running[w->buf.planned[planned].sequence]->id,
                    taken, (long long)w->step);
}

/* Moves a sequence's mark over the rows that stay, with its running digests. Its state has moved already. */
static tpw_status move_mark(tpw_worker *w, int32_t planned, int32_t group, tpw_error *err)
{
    const tpw_planned *p = &w->buf.planned[planned];
    tpw_sequence *s = w->sequences.running[p->sequence];
    int32_t layers = w->config.layers, taken = w->buf.taken[planned];
    int32_t groups = tpw_groups_of(p) == 1 ? 1 : taken;
    int64_t before = s->pos;

    if (s->pos < s->prompt)
        w->stats.prompt_tokens += p->rows;
    for (int32_t g = group; g < group + groups; g++)
        for (int32_t l = 0; l < layers; l++)
            s->hidden[l] += w->buf.hidden[(size_t)g * (size_t)layers + (size_t)l];
    s->pos += taken;
    if (w->settings.options.check != TPW_CHECK_STEP || w->settings.options.check_every == 0)
        return TPW_OK;
    return tpw_carry_note(&w->carry, s, before, err);
}

/* The host's books behind a step: tokens, marks, what is over. */
static tpw_status settle(tpw_worker *w, int32_t planned, tpw_error *err)
{
    tpw_step_buffers *b = &w->buf;
    int32_t logits = 0, group = 0, over = 0;

    for (int32_t i = 0; i < planned; i++) {
        const tpw_planned *p = &b->planned[i];

        TPW_TRY(check_taken(w, i, err));
        if (p->logits) {
            TPW_TRY(take_tokens(w, i, &w->pass->io.host.best[logits], &over, err));
            logits += 1 + p->drafts;
        }
        TPW_TRY(move_mark(w, i, group, err));
        group += tpw_groups_of(p);
    }
    TPW_TRY(tpw_carry_flush(&w->carry, err));
    TPW_TRY(tpw_worker_trace(w, planned, err));
    for (int32_t i = 0; i < over; i++)
        TPW_TRY(tpw_worker_finish(w, b->over[i].sequence, b->over[i].why, err));
    return TPW_OK;
}

/* All that the host has to say of the step, before its first op. */
static tpw_status send(tpw_worker *w, const tpw_layout *l, tpw_error *err)
{
    tpw_pass *pass = w->pass;

    pass->io.host.agree[pass->io_limits.drafts] = host_agree(w, l);
    if (l->batch.rows > 0)
        TPW_TRY(tpw_pass_stage(pass, &l->batch, err));
    for (int32_t d = 1; d < w->buf.chain_length; d++)
        TPW_TRY(tpw_pass_stage(pass, &w->buf.chain[d], err));
    return tpw_pass_send(pass, l->batch.rows, l->batch.segment_count, err);
}

/* Everything between the first op of a step and the last: enqueued, with nothing read and nothing decided. */
static tpw_status enqueue(tpw_worker *w, const tpw_layout *l, tpw_error *err)
{
    tpw_pass *pass = w->pass;
    const tpw_step_io *io = &pass->io.device;
    tpw_check check = w->settings.options.check;

    TPW_TRY(tpw_worker_draft(w, err));
    TPW_TRY(tpw_pass_trunk(pass, &l->batch, io->row_ids, check != TPW_CHECK_OFF, err));
    if (check == TPW_CHECK_STEP)
        TPW_TRY(tpw_pass_agree(pass, l->batch.rows, err));
    TPW_TRY(tpw_pass_head(pass, pass->io_limits.drafts, io->logit_rows, l->logits, io->best_to, err));
    TPW_TRY(tpw_pass_accept(pass, &w->config, l->batch.segment_count, err));
    TPW_TRY(tpw_pass_commit(pass, &l->batch, io->taken, err));
    return tpw_worker_follow(w, &l->batch, err);
}

/* What the ranks brought into the exchanges of the step. */
static tpw_status compare(tpw_worker *w, const tpw_layout *l, tpw_error *err)
{
    tpw_status st = TPW_OK;

    for (int32_t d = 0; st == TPW_OK && d < w->buf.chain_length; d++)
        st = tpw_pass_compare(w->pass, d, w->buf.chain[d].rows, err);
    if (st == TPW_OK)
        st = tpw_pass_compare(w->pass, w->pass->io_limits.drafts, l->logits, err);
    if (st == TPW_ERR_DIVERGED)
        return tpw_worker_name_difference(w, l, err);
    TPW_TRY(st);
    w->stats.checks += w->settings.options.check == TPW_CHECK_STEP;
    return TPW_OK;
}

static tpw_status run_rows(tpw_worker *w, int32_t planned, tpw_error *err)
{
    tpw_layout l;

    TPW_TRY(tpw_worker_ask_drafter(w, planned, err));
    l = tpw_worker_lay_out(w, planned);
    tpw_worker_lay_chain(w, planned);
    TPW_TRY(send(w, &l, err));
    TPW_TRY(enqueue(w, &l, err));
    TPW_TRY(tpw_pass_fetch(w->pass, w->settings.options.check != TPW_CHECK_OFF ? l.batch.rows : 0, err));
    tpw_worker_read_back(w, planned, &l);
    TPW_TRY(compare(w, &l, err));
    return settle(w, planned, err);
}

/* A step without rows is compared too: a rank that has nothing to run while others have would leave them waiting. */
static tpw_status agree_on_nothing(tpw_worker *w, tpw_error *err)
{
    const tpw_layout none = {0};

    w->buf.chain_length = 0;
    TPW_TRY(send(w, &none, err));
    TPW_TRY(tpw_pass_head(w->pass, w->pass->io_limits.drafts, NULL, 0, NULL, err));
    TPW_TRY(tpw_pass_fetch(w->pass, 0, err));
    return compare(w, &none, err);
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
