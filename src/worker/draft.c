/* The draft phase of a step, and the MTP pass over committed rows. SPDX-License-Identifier: Apache-2.0 */
#include "worker/draft.h"

#include "base/digest.h"

bool tpw_worker_uses_mtp(const tpw_worker *worker)
{
    return worker->settings.options.draft_max > 0 && worker->settings.options.drafter == NULL;
}

static tpw_sequence *sequence_of(const tpw_worker *w, int32_t planned)
{
    return w->sequences.running[w->buf.planned[planned].sequence];
}

/* The caller's drafter; what it gives is checked, since a token outside the vocabulary would reach the embedding. */
static tpw_status draft_by_caller(tpw_worker *w, int32_t planned, tpw_error *err)
{
    const tpw_options *o = &w->settings.options;

    for (int32_t i = 0; i < planned; i++) {
        tpw_planned *p = &w->buf.planned[i];
        const tpw_sequence *s = sequence_of(w, i);
        int32_t *drafts = &w->buf.drafts[(size_t)i * TPW_K_MAX], n;

        if (p->drafts == 0)
            continue;
        n = o->drafter(o->drafter_data, s->id, s->tokens, s->prompt + s->emitted, p->drafts, drafts);
        if (n < 0 || n > p->drafts)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "the drafter gave %d tokens for sequence %llu, asked for %d", n,
                            (unsigned long long)s->id, p->drafts);
        for (int32_t k = 0; k < n; k++)
            if (drafts[k] < 0 || drafts[k] >= w->config.vocab)
                return tpw_fail(err, TPW_ERR_ARGUMENT, "the drafter gave token %d, the vocabulary has %d", drafts[k],
                                w->config.vocab);
        p->drafts = n;
    }
    return TPW_OK;
}

/* Arg-max of the first `count` rows of ws.y. All ranks must be at the same draft of the same step. */
static tpw_status draft_tokens(tpw_worker *w, int32_t count, int32_t draft, tpw_error *err)
{
    uint64_t agree = tpw_digest_term(tpw_digest_key("draft"), (uint64_t)w->step, (uint64_t)draft);

    for (int32_t i = 0; i < count; i++)
        w->buf.rows[i] = i;
    return tpw_pass_head(w->pass, w->buf.rows, count, agree, w->buf.best, NULL, err);
}

/* One more row a sequence through the MTP module: token = its last draft, hidden = its last output, both in the order of `who`. */
static tpw_status chain(tpw_worker *w, int32_t count, int32_t draft, tpw_error *err)
{
    tpw_step_buffers *b = &w->buf;
    tpw_batch batch = {.rows = count, .segment_count = count, .segments = b->segments};

    for (int32_t i = 0; i < count; i++) {
        const tpw_sequence *s = sequence_of(w, b->who[i]);

        b->segments[i] =
            (tpw_segment){.row0 = i, .rows = 1, .slot = s->slot, .pos = s->pos - 1 + draft, .pages = s->pages};
        b->ids[i] = b->drafts[(size_t)b->who[i] * TPW_K_MAX + (size_t)draft - 1];
    }
    return tpw_pass_mtp(w->pass, &batch, b->ids, &w->pass->ws.carry, err);
}

/* The MTP chain: draft 0 from the kept output of the last committed row, then each from its own output. */
static tpw_status draft_by_mtp(tpw_worker *w, int32_t planned, tpw_error *err)
{
    tpw_step_buffers *b = &w->buf;
    int32_t count = 0, longest = 0;

    for (int32_t i = 0; i < planned; i++) {
        if (b->planned[i].drafts == 0)
            continue;
        b->rows[count] = sequence_of(w, i)->slot;
        b->who[count++] = i;
        longest = b->planned[i].drafts > longest ? b->planned[i].drafts : longest;
    }
    if (count == 0)
        return TPW_OK;
    TPW_TRY(tpw_pass_recall_mtp(w->pass, b->rows, count, err));
    for (int32_t d = 0; d < longest; d++) {
        int32_t left = 0;

        if (d > 0)
            TPW_TRY(chain(w, count, d, err));
        TPW_TRY(draft_tokens(w, count, d, err));
        for (int32_t i = 0; i < count; i++) {
            int32_t p = b->who[i];

            /* logits without a number: any token will do, verification decides */
            b->drafts[(size_t)p * TPW_K_MAX + (size_t)d] = b->best[i] >= 0 ? b->best[i] : 0;
            if (b->planned[p].drafts > d + 1) {
                b->rows[left] = i;
                b->who[left++] = p;
            }
        }
        count = left;
        if (count > 0)
            TPW_TRY(tpw_pass_carry(w->pass, b->rows, count, err));
    }
    return TPW_OK;
}

tpw_status tpw_worker_draft(tpw_worker *worker, int32_t planned, tpw_error *err)
{
    if (worker->settings.options.draft_max == 0)
        return TPW_OK;
    return tpw_worker_uses_mtp(worker) ? draft_by_mtp(worker, planned, err) : draft_by_caller(worker, planned, err);
}

tpw_status tpw_worker_follow(tpw_worker *worker, int32_t planned, tpw_error *err)
{
    tpw_step_buffers *b = &worker->buf;
    int32_t rows = 0, segments = 0, row0 = 0;

    if (!tpw_worker_uses_mtp(worker))
        return TPW_OK;
    for (int32_t i = 0; i < planned; i++) {
        const tpw_sequence *s = sequence_of(worker, i);
        int64_t first = s->pos - b->taken[i];

        if (b->taken[i] > 0)
            b->segments[segments++] = (tpw_segment){.row0 = rows,
                                                    .rows = b->taken[i],
                                                    .rows_certain = b->taken[i],
                                                    .slot = s->slot,
                                                    .pos = first,
                                                    .pages = s->pages};
        for (int32_t r = 0; r < b->taken[i]; r++) {
            b->rows[rows] = row0 + r;
            /* behind a row without a number there is no token; the sequence ends with this step */
            b->ids[rows++] = first + r + 1 < s->prompt + s->emitted ? s->tokens[first + r + 1] : 0;
        }
        row0 += b->planned[i].rows + b->planned[i].drafts;
    }
    if (rows == 0)
        return TPW_OK;
    tpw_batch batch = {.rows = rows, .segment_count = segments, .segments = b->segments};

    TPW_TRY(tpw_pass_carry(worker->pass, b->rows, rows, err));
    TPW_TRY(tpw_pass_mtp(worker->pass, &batch, b->ids, &worker->pass->ws.carry, err));
    for (int32_t i = 0; i < segments; i++)
        TPW_TRY(
            tpw_pass_keep_mtp(worker->pass, b->segments[i].row0 + b->segments[i].rows - 1, b->segments[i].slot, err));
    return TPW_OK;
}
