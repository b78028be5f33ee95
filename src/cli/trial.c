/* Runs sequences to their end. SPDX-License-Identifier: Apache-2.0 */
#include "cli/trial.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/digest.h"
#include "cli/prompts.h"
#include "cli/stop.h"

tpw_status tpw_trial_prompts(const tpw_session *session, int32_t vocab, int32_t sequences, int32_t each, int32_t **ids,
                             tpw_error *err)
{
    uint64_t key = tpw_digest_key("bench");
    size_t length = (size_t)each;
    size_t all;
    size_t bytes;
    int32_t *text = NULL;
    size_t count = 0;
    *ids = NULL;
    if (tpw_mul_size(length, (size_t)sequences, &all) && tpw_mul_size(all, sizeof **ids, &bytes))
        *ids = malloc(bytes);
    if (!*ids)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %d prompts of %d tokens", sequences, each);
    if (session->tokenizer) {
        const char *passage = tpw_prompts_passage();
        TPW_TRY(tpw_tokenizer_encode(session->tokenizer, passage, strlen(passage), &text, &count, err));
    }
    for (size_t i = 0; i < all; i++) {
        size_t sequence = i / length;
        int32_t hashed = (int32_t)(tpw_digest_term(key, i, 0) % (uint64_t)vocab);
        /* sequences begin at different places and go round */
        (*ids)[i] = count > 0 ? text[(sequence * 11 + i % length) % count] : hashed;
        if ((*ids)[i] >= vocab)
            (*ids)[i] = hashed; /* a tokenizer that knows more than its model */
    }
    free(text);
    return TPW_OK;
}

/* Keeps the first failure. */
static void note_own(tpw_trial *t, tpw_status st, const tpw_error *err)
{
    if (st == TPW_OK || t->own != TPW_OK)
        return;
    t->own = st;
    t->own_error = *err;
}

static void admit(tpw_trial *t)
{
    tpw_error own = {0};
    tpw_status st = tpw_results_init(&t->results, (size_t)t->count, NULL, &own);
    for (int32_t i = 0; st == TPW_OK && i < t->count; i++)
        st = tpw_worker_admit(t->worker, &t->requests[i], &own);
    note_own(t, st, &own); /* the others learn it behind a step that does nothing */
}

static void take_events(tpw_trial *t, bool leader)
{
    tpw_event event;
    while (tpw_worker_poll(t->worker, &event)) {
        tpw_error own = {0};
        if (leader)
            note_own(t, tpw_results_take(&t->results, &event, &own), &own);
    }
}

/* Rank 0 between steps. */
static tpw_status lead(tpw_trial *t, tpw_error *err)
{
    if (!t->stopped && (tpw_stop_signal() != 0 || tpw_session_reader_gone(t->session) || t->own != TPW_OK)) {
        t->stopped = true;
        return tpw_worker_stop(t->worker, err);
    }
    if (t->before)
        t->before(t->data, t);
    return TPW_OK;
}

static tpw_status step_all(tpw_trial *t, tpw_error *err)
{
    bool leader = t->session->out->rank == 0;
    bool busy = true;
    tpw_stats before;
    tpw_stats after;
    tpw_worker_stats(t->worker, &before);
    while (busy) {
        if (leader)
            TPW_TRY(lead(t, err));
        TPW_TRY(tpw_worker_step(t->worker, &busy, err));
        tpw_worker_stats(t->worker, &after);
        if (t->after)
            t->after(t->data, &before, &after);
        before = after;
        t->session->out->step = after.steps;
        take_events(t, leader);
    }
    return TPW_OK;
}

/* Rank 0: did every sequence do all of its work? */
static tpw_status check(const tpw_trial *t, tpw_error *err)
{
    tpw_outcome *out = t->session->out;
    if (t->own != TPW_OK) {
        *err = t->own_error;
        return t->own;
    }
    if (tpw_session_reader_gone(t->session))
        TPW_TRY(tpw_sink_drain(&out->people, 0, err));
    TPW_TRY(tpw_sink_drain(&out->json, 0, err));
    if (t->stopped)
        return tpw_fail(err, TPW_ERR_STOPPED, "stopped by %s", tpw_session_signal_name());
    for (int32_t i = 0; i < t->count; i++) {
        const tpw_result *r = &t->results.data[i];
        if (!r->finished || r->finish != TPW_FINISH_LENGTH)
            return tpw_fail(err, TPW_ERR_SEQUENCE, "sequence %d ended with \"%s\" after %d tokens", i,
                            tpw_result_finish_name(r), r->count);
    }
    return TPW_OK;
}

tpw_status tpw_trial_run(tpw_trial *trial, tpw_error *err)
{
    bool leader = trial->session->out->rank == 0;
    if (leader)
        admit(trial);
    trial->session->out->broken = true;
    TPW_TRY(step_all(trial, err));
    trial->session->out->broken = false;
    return leader ? check(trial, err) : TPW_OK;
}

void tpw_trial_fini(tpw_trial *trial)
{
    tpw_results_fini(&trial->results);
}
