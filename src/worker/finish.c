/* Ends a sequence: its digests over all ranks, the event, slot and pages back.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "worker/check.h"
#include "worker/scopes.h"
#include "worker/worker.h"

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

    if (sequence->slot != 0)
        TPW_TRY(tpw_worker_check_end(worker, sequence, err));
    if (sequence->slot != 0 && worker->settings.options.check != TPW_CHECK_OFF) {
        digests = calloc((size_t)worker->scope_count, sizeof *digests);
        if (digests == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %d digests", worker->scope_count);
        TPW_TRY_GOTO(st, tpw_worker_scopes(worker, sequence, digests, err), fail);
        event.digests = digests;
        event.digest_count = worker->scope_count;
    }
    if (sequence->slot != 0 && worker->poison)
        TPW_TRY_GOTO(st, poison(worker, sequence->slot, sequence->pages, sequence->page_count, err), fail);
    TPW_TRY_GOTO(st, tpw_sequences_remove(&worker->sequences, sequence, err), fail);
    return tpw_events_push(&worker->events, &event, err);
fail:
    free(digests);
    return st;
}
