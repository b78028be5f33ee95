/* Public calls that are neither create, load nor step: admission, events, getters, finalize.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "worker/worker.h"

/* Admission, cancel and stop are rank 0's. */
static tpw_status check_leader(const tpw_worker *w, const char *call, tpw_error *err)
{
    if (w == NULL || w->stage != TPW_LOADED)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: the worker is not loaded, or has failed or been finalized", call);
    if (w->boot->rank != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: only rank 0 may call it, this is rank %d", call, w->boot->rank);
    return TPW_OK;
}

/* True when the next control record already admits `id`. */
static bool is_announced(const tpw_worker *w, uint64_t id)
{
    tpw_control_entry entry;
    size_t offset = 0;

    while (offset < w->control.bytes) {
        if (tpw_control_next(w->control.data, w->control.bytes, &offset, &entry, NULL) != TPW_OK)
            return false;
        if (!entry.cancel && entry.id == id)
            return true;
    }
    return false;
}

static tpw_status check_request(const tpw_worker *w, const tpw_request *r, tpw_error *err)
{
    unsigned long long id = r->id;
    int32_t pages;

    if (r->ids == NULL || r->count < 1 || r->max_tokens < 1)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "sequence %llu: %d prompt tokens and max_tokens %d: both must be at least 1", id, r->count,
                        r->max_tokens);
    for (int32_t i = 0; i < r->count; i++)
        if (r->ids[i] < 0 || r->ids[i] >= w->config.vocab)
            return tpw_fail(err, TPW_ERR_ARGUMENT,
                            "sequence %llu: token %d at place %d is outside the vocabulary of %d", id, r->ids[i], i,
                            w->config.vocab);
    if ((int64_t)r->count + r->max_tokens > w->context_max)
        return tpw_fail(err, TPW_ERR_LIMIT, "sequence %llu: %d prompt + %d output tokens exceed the context of %d", id,
                        r->count, r->max_tokens, w->context_max);
    pages = tpw_pages_needed(r->count, r->max_tokens, w->sequences.draft_max, w->sequences.page_size);
    if (pages > w->sequences.ledger.pages)
        return tpw_fail(err, TPW_ERR_LIMIT, "sequence %llu needs %d KV pages of %d positions, the worker has %d", id,
                        pages, w->sequences.page_size, w->sequences.ledger.pages);
    if (tpw_sequences_find(&w->sequences, r->id) != NULL || is_announced(w, r->id))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "sequence %llu is already there", id);
    return TPW_OK;
}

tpw_status tpw_worker_admit(tpw_worker *worker, const tpw_request *request, tpw_error *err)
{
    TPW_TRY(check_leader(worker, "admit", err));
    if (request == NULL || request->size != sizeof *request)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "admit: request.size is not that of this library");
    TPW_TRY(check_request(worker, request, err));
    return tpw_control_add_admit(&worker->control, request, err);
}

tpw_status tpw_worker_cancel(tpw_worker *worker, uint64_t id, tpw_error *err)
{
    TPW_TRY(check_leader(worker, "cancel", err));
    if (tpw_sequences_find(&worker->sequences, id) == NULL && !is_announced(worker, id))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cancel: there is no sequence %llu", (unsigned long long)id);
    return tpw_control_add_cancel(&worker->control, id, err);
}

tpw_status tpw_worker_stop(tpw_worker *worker, tpw_error *err)
{
    TPW_TRY(check_leader(worker, "stop", err));
    worker->control.stop = true;
    return TPW_OK;
}

bool tpw_worker_poll(tpw_worker *worker, tpw_event *event)
{
    return worker != NULL && event != NULL && tpw_events_pop(&worker->events, event);
}

int tpw_worker_rank(const tpw_worker *worker)
{
    return worker->boot->rank;
}

int tpw_worker_size(const tpw_worker *worker)
{
    return worker->boot->size;
}

tpw_status tpw_worker_rank_info(const tpw_worker *worker, int rank, tpw_rank_info *out, tpw_error *err)
{
    if (worker == NULL || out == NULL || rank < 0 || rank >= worker->boot->size)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "rank_info: rank %d does not exist", rank);
    *out = worker->ranks[rank];
    return TPW_OK;
}

void tpw_worker_model_info(const tpw_worker *worker, tpw_model_info *out)
{
    const tpw_config *c = &worker->config;
    const tpw_options *o = &worker->settings.options;

    *out = (tpw_model_info){.layers = c->layers,
                            .hidden = c->hidden,
                            .vocab = c->vocab,
                            .context_max = worker->context_max,
                            .has_mtp = worker->model != NULL && worker->model->has_mtp,
                            .fp8 = c->quantized,
                            .end_count = c->end_count};
    snprintf(out->name, sizeof out->name, "%s", o->model != NULL ? o->model : o->dummy);
    snprintf(out->model_type, sizeof out->model_type, "%s", c->model_type);
    for (int32_t i = 0; i < c->layers; i++)
        out->layers_attention += c->kind[i] == TPW_LAYER_ATTENTION;
    out->layers_linear = c->layers - out->layers_attention;
    memcpy(out->end_ids, c->end_ids, sizeof out->end_ids);
}

void tpw_worker_stats(const tpw_worker *worker, tpw_stats *out)
{
    *out = worker->stats;
    out->sequences_running = worker->sequences.running_count;
    out->sequences_waiting = worker->sequences.waiting_count;
    out->pages_free = worker->sequences.ledger.pages_free;
    out->slots_free = worker->sequences.ledger.slots_free;
}

int32_t tpw_worker_ring(const tpw_worker *worker, tpw_ring_entry *out, int32_t max)
{
    return worker == NULL || out == NULL ? 0 : tpw_ring_copy(&worker->ring, out, max);
}

tpw_status tpw_worker_finalize(tpw_worker *worker, tpw_error *err)
{
    if (worker == NULL || worker->stage != TPW_LOADED)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "finalize: the worker is not loaded, or has failed or been finalized");
    worker->boot->phase = "finalize";
    TPW_TRY(tpw_worker_gather_ranks(worker, err));
    worker->stage = TPW_FINALIZED;
    return TPW_OK;
}
