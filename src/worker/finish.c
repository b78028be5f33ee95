/* Ends a sequence: totals its digests over the ranks, compares what must be equal, queues the event.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "worker/draft.h"
#include "worker/worker.h"

int32_t tpw_scope_count(const tpw_config *config, bool mtp)
{
    int32_t count = 1 + config->layers + mtp;

    for (int32_t i = 0; i < config->layers; i++)
        count += config->kind[i] == TPW_LAYER_ATTENTION ? 1 : 2;
    return count;
}

/* Names of the scopes, in order. Replicated ones (tokens, hidden) come first. */
static void name_scopes(const tpw_config *c, bool mtp, tpw_scope_digest *out)
{
    int32_t n = 0;

    out[n++] = (tpw_scope_digest){.scope = "tokens", .layer = -1};
    for (int32_t i = 0; i < c->layers; i++)
        out[n++] = (tpw_scope_digest){.scope = "hidden", .layer = i};
    for (int32_t i = 0; i < c->layers; i++) {
        if (c->kind[i] == TPW_LAYER_ATTENTION) {
            out[n++] = (tpw_scope_digest){.scope = "kv", .layer = i};
        } else {
            out[n++] = (tpw_scope_digest){.scope = "conv", .layer = i};
            out[n++] = (tpw_scope_digest){.scope = "recurrent", .layer = i};
        }
    }
    if (mtp)
        out[n++] = (tpw_scope_digest){.scope = "mtp", .layer = -1};
}

/* This rank's share of every scope at the sequence's committed mark. */
static tpw_status local_sums(tpw_worker *w, const tpw_sequence *s, uint64_t *sums, tpw_error *err)
{
    const tpw_config *c = &w->config;
    int32_t n = 0, tokens = s->prompt + s->emitted;

    sums[n++] = tpw_digest_block(tpw_digest_key("tokens"), s->tokens, TPW_I32, 1, tokens, 0, 0, 0);
    for (int32_t i = 0; i < c->layers; i++)
        sums[n++] = s->hidden[i];
    for (int32_t i = 0; i < c->layers; i++) {
        if (c->kind[i] == TPW_LAYER_ATTENTION) {
            TPW_TRY(tpw_state_digest_kv(w->state, i, s->pages, s->pos, &sums[n++], err));
        } else {
            TPW_TRY(tpw_state_digest_conv(w->state, i, s->slot, s->pos, &sums[n++], err));
            TPW_TRY(tpw_state_digest_recurrent(w->state, i, s->slot, s->pos, &sums[n++], err));
        }
    }
    return tpw_worker_uses_mtp(w) ? tpw_state_digest_kv(w->state, c->layers, s->pages, s->pos, &sums[n], err) : TPW_OK;
}

/* Replicated scopes must be equal on all ranks; sharded ones are added. */
static tpw_status total(tpw_worker *w, const tpw_sequence *s, tpw_scope_digest *out, tpw_error *err)
{
    int32_t count = w->scope_count, replicated = 1 + w->config.layers;

    name_scopes(&w->config, tpw_worker_uses_mtp(w), out);
    TPW_TRY(local_sums(w, s, w->buf.scopes, err));
    TPW_TRY(w->boot->ops->allgather(w->boot, w->buf.scopes, w->buf.scopes_all, (size_t)count * sizeof(uint64_t), err));
    for (int32_t i = 0; i < count; i++) {
        out[i].global = w->buf.scopes_all[i];
        for (int r = 1; r < w->boot->size; r++) {
            uint64_t other = w->buf.scopes_all[(size_t)r * (size_t)count + (size_t)i];

            if (i >= replicated)
                out[i].global += other;
            else if (other != out[i].global)
                return tpw_fail(err, TPW_ERR_DIVERGED,
                                "rank %d differs from rank 0 in %s of layer %d, sequence %llu, step %lld", r,
                                out[i].scope, out[i].layer, (unsigned long long)s->id, (long long)w->step);
        }
    }
    w->stats.checks += replicated;
    return TPW_OK;
}

/* Fills one slot and its pages with NaN. */
static tpw_status poison(tpw_worker *w, int32_t slot, const int32_t *pages, int32_t count, tpw_error *err)
{
    TPW_TRY(tpw_state_fill_slot(w->state, slot, 0xFF, err));
    for (int32_t i = 0; i < count; i++)
        TPW_TRY(tpw_state_fill_page(w->state, pages[i], 0xFF, err));
    return TPW_OK;
}

tpw_status tpw_worker_poison(tpw_worker *worker, tpw_error *err)
{
    const tpw_ledger *l = &worker->sequences.ledger;

    worker->poison = true;
    for (int32_t slot = 1; slot <= l->slots; slot++)
        if (!l->slot_used[slot])
            TPW_TRY(tpw_state_fill_slot(worker->state, slot, 0xFF, err));
    for (int32_t page = 1; page <= l->pages; page++)
        if (!l->page_used[page])
            TPW_TRY(tpw_state_fill_page(worker->state, page, 0xFF, err));
    return TPW_OK;
}

tpw_status tpw_worker_finish(tpw_worker *worker, tpw_sequence *sequence, tpw_finish finish, tpw_error *err)
{
    tpw_event event = {.type = TPW_EVENT_FINISHED,
                       .id = sequence->id,
                       .position = sequence->pos,
                       .finish = finish,
                       .prompt_tokens = sequence->prompt,
                       .output_tokens = sequence->emitted};
    tpw_scope_digest *digests = NULL;
    tpw_status st;

    if (sequence->slot != 0) {
        digests = calloc((size_t)worker->scope_count, sizeof *digests);
        if (digests == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %d digests", worker->scope_count);
        TPW_TRY_GOTO(st, total(worker, sequence, digests, err), fail);
        event.digests = digests;
        event.digest_count = worker->scope_count;
        if (worker->poison)
            TPW_TRY_GOTO(st, poison(worker, sequence->slot, sequence->pages, sequence->page_count, err), fail);
    }
    TPW_TRY_GOTO(st, tpw_sequences_remove(&worker->sequences, sequence, err), fail);
    return tpw_events_push(&worker->events, &event, err);
fail:
    free(digests);
    return st;
}
