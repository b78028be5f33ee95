/* The draft phase of a step, and the MTP pass behind the trunk. SPDX-License-Identifier: Apache-2.0 */
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

/* Chain `draft` of the `count` entries in buf.who: row i takes the draft before, and gives the next. */
static void lay_link(tpw_worker *w, int32_t count, int32_t draft)
{
    const tpw_io_limits *at = &w->pass->io_limits;
    tpw_step_io *io = &w->pass->io.host;
    tpw_step_buffers *b = &w->buf;
    size_t first = (size_t)draft * (size_t)at->entries;

    b->chain[draft] = (tpw_batch){.rows = count, .segment_count = count, .segments = &b->chain_segments[first]};
    for (int32_t i = 0; i < count; i++) {
        const tpw_sequence *s = sequence_of(w, b->who[i]);

        io->chain_to[first + (size_t)i] = tpw_io_draft(at, b->who[i], draft);
        if (draft == 0)
            continue;
        io->chain_ids[first + (size_t)i] = tpw_io_draft(at, b->who[i], draft - 1);
        b->chain_segments[first + (size_t)i] =
            (tpw_segment){.row0 = i, .rows = 1, .slot = s->slot, .pos = s->pos - 1 + draft, .pages = s->pages};
    }
}

/* Those of the `count` entries in buf.who that go on to `draft`, with the rows that they had. Returns how many. */
static int32_t go_on(tpw_worker *w, int32_t count, int32_t draft)
{
    int32_t *rows = &w->pass->io.host.chain_rows[(size_t)draft * (size_t)w->pass->io_limits.entries], left = 0;

    for (int32_t i = 0; i < count; i++)
        if (w->buf.planned[w->buf.who[i]].drafts > draft) {
            rows[left] = i;
            w->buf.who[left++] = w->buf.who[i];
        }
    return left;
}

void tpw_worker_lay_chain(tpw_worker *worker, int32_t planned)
{
    tpw_step_buffers *b = &worker->buf;
    tpw_step_io *io = &worker->pass->io.host;
    int32_t count = 0;

    b->chain_length = 0;
    for (int32_t i = 0; tpw_worker_uses_mtp(worker) && i < planned; i++)
        if (b->planned[i].drafts > 0) {
            io->recall[count] = sequence_of(worker, i)->slot;
            b->who[count++] = i;
        }
    while (count > 0) {
        int32_t draft = b->chain_length++;

        io->agree[draft] = tpw_digest_term(tpw_digest_key("draft"), (uint64_t)worker->step, (uint64_t)draft);
        lay_link(worker, count, draft);
        count = draft + 1 < worker->pass->io_limits.drafts ? go_on(worker, count, draft + 1) : 0;
    }
}

tpw_status tpw_worker_ask_drafter(tpw_worker *worker, int32_t planned, tpw_error *err)
{
    return worker->settings.options.draft_max == 0 || tpw_worker_uses_mtp(worker)
               ? TPW_OK
               : draft_by_caller(worker, planned, err);
}

/* Draft 0 from the kept output of the last committed row, then each from its own output. */
tpw_status tpw_worker_draft(tpw_worker *worker, tpw_error *err)
{
    tpw_pass *pass = worker->pass;
    const tpw_step_io *io = &pass->io.device;

    for (int32_t d = 0; d < worker->buf.chain_length; d++) {
        const tpw_batch *batch = &worker->buf.chain[d];
        size_t first = (size_t)d * (size_t)pass->io_limits.entries;

        if (d == 0) {
            TPW_TRY(tpw_pass_recall_mtp(pass, io->recall, batch->rows, err));
        } else {
            TPW_TRY(tpw_pass_carry(pass, &io->chain_rows[first], batch->rows, err));
            TPW_TRY(tpw_pass_mtp(pass, batch, &io->chain_ids[first], &pass->ws.carry, err));
        }
        TPW_TRY(tpw_pass_head(pass, d, NULL, batch->rows, &io->chain_to[first], err));
    }
    return TPW_OK;
}

tpw_status tpw_worker_follow(tpw_worker *worker, const tpw_batch *batch, tpw_error *err)
{
    tpw_pass *pass = worker->pass;
    const tpw_step_io *io = &pass->io.device;

    if (!tpw_worker_uses_mtp(worker))
        return TPW_OK;
    TPW_TRY(tpw_pass_mtp(pass, batch, io->next_ids, &pass->ws.y, err));
    return tpw_pass_keep_mtp(pass, io->last, io->slots, batch->segment_count, err);
}
