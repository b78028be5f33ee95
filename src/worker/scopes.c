/* The digest scopes of a sequence. SPDX-License-Identifier: Apache-2.0 */
#include "worker/scopes.h"

#include <stdio.h>

#include "base/digest.h"
#include "worker/draft.h"

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

/* This rank's share of every scope at the sequence's committed mark. The tokens are those that are known there. */
static tpw_status local_sums(tpw_worker *w, const tpw_sequence *s, uint64_t *sums, tpw_error *err)
{
    const tpw_config *c = &w->config;
    tpw_digest_list *list = &w->digests;
    int32_t n = 0;
    int64_t tokens = s->pos < s->prompt ? s->prompt : s->pos + 1;

    if (tokens > s->prompt + s->emitted)
        tokens = s->prompt + s->emitted;
    sums[n++] = tpw_digest_block(tpw_digest_key("tokens"), s->tokens, TPW_I32, 1, tokens, 0, 0, 0);
    for (int32_t i = 0; i < c->layers; i++)
        sums[n++] = s->hidden[i];
    for (int32_t i = 0; i < c->layers; i++) {
        if (c->kind[i] == TPW_LAYER_ATTENTION) {
            TPW_TRY(tpw_state_list_kv(w->state, list, i, s->pages, s->pos, &sums[n++], err));
        } else {
            TPW_TRY(tpw_state_list_conv(w->state, list, i, s->slot, s->pos, &sums[n++], err));
            TPW_TRY(tpw_state_list_recurrent(w->state, list, i, s->slot, s->pos, &sums[n++], err));
        }
    }
    if (tpw_worker_uses_mtp(w))
        TPW_TRY(tpw_state_list_kv(w->state, list, c->layers, s->pages, s->pos, &sums[n], err));
    return tpw_digest_list_run(list, w->exec, err);
}

int tpw_odd_ranks(const uint64_t *values, int size, size_t stride, char *text, size_t bytes)
{
    int best = 0, best_votes = 0, odd = 0;
    size_t used = 0;

    for (int r = 0; r < size; r++) {
        int votes = 0;

        for (int q = 0; q < size; q++)
            votes += values[(size_t)q * stride] == values[(size_t)r * stride];
        if (votes > best_votes) {
            best = r;
            best_votes = votes;
        }
    }
    text[0] = '\0';
    for (int r = 0; r < size; r++) {
        if (values[(size_t)r * stride] == values[(size_t)best * stride])
            continue;
        used += (size_t)snprintf(text + used, used < bytes ? bytes - used : 0, "%s%d", odd > 0 ? ", " : "", r);
        used = used < bytes ? used : bytes - 1;
        odd++;
    }
    return odd;
}

/* Replicated scopes must be equal on all ranks; sharded ones are added. */
tpw_status tpw_worker_scopes(tpw_worker *w, const tpw_sequence *s, tpw_scope_digest *out, tpw_error *err)
{
    size_t count = (size_t)w->scope_count, replicated = 1 + (size_t)w->config.layers;
    char odd[128];

    name_scopes(&w->config, tpw_worker_uses_mtp(w), out);
    TPW_TRY(local_sums(w, s, w->buf.scopes, err));
    TPW_TRY(w->boot->ops->allgather(w->boot, w->buf.scopes, w->buf.scopes_all, count * sizeof(uint64_t), err));
    for (size_t i = 0; i < count; i++) {
        out[i].global = w->buf.scopes_all[i];
        if (i < replicated) {
            if (tpw_odd_ranks(&w->buf.scopes_all[i], w->boot->size, count, odd, sizeof odd) == 0)
                continue;
            return tpw_fail(err, TPW_ERR_DIVERGED,
                            "%s of layer %d differs on rank %s: sequence %llu in slot %d at position %lld, step %lld",
                            out[i].scope, out[i].layer, odd, (unsigned long long)s->id, s->slot, (long long)s->pos,
                            (long long)w->step);
        }
        for (int r = 1; r < w->boot->size; r++)
            out[i].global += w->buf.scopes_all[(size_t)r * count + i];
    }
    w->stats.checks += (int64_t)replicated;
    return TPW_OK;
}
