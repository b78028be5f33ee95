/* The sequences of a worker. SPDX-License-Identifier: Apache-2.0 */
#include "worker/sequence.h"

#include <stdlib.h>
#include <string.h>

tpw_status tpw_sequences_init(tpw_sequences *out, int32_t running_max, int32_t pages, int32_t page_size, int32_t layers,
                              int32_t draft_max, tpw_error *err)
{
    *out =
        (tpw_sequences){.running_max = running_max, .layers = layers, .page_size = page_size, .draft_max = draft_max};
    TPW_TRY(tpw_ledger_init(&out->ledger, running_max, pages, err));
    out->running = calloc((size_t)running_max, sizeof *out->running);
    if (out->running == NULL) {
        tpw_sequences_fini(out);
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the table of %d sequences", running_max);
    }
    return TPW_OK;
}

static void sequence_free(tpw_sequence *s)
{
    if (s == NULL)
        return;
    free(s->tokens);
    free(s->pages);
    free(s->hidden);
    free(s);
}

void tpw_sequences_fini(tpw_sequences *sequences)
{
    while (sequences->waiting != NULL) {
        tpw_sequence *s = sequences->waiting;

        sequences->waiting = s->next;
        sequence_free(s);
    }
    for (int32_t i = 0; i < sequences->running_count; i++)
        sequence_free(sequences->running[i]);
    free(sequences->running);
    tpw_ledger_fini(&sequences->ledger);
    *sequences = (tpw_sequences){0};
}

int32_t tpw_pages_needed(int64_t prompt, int64_t max_tokens, int32_t k, int32_t page_size)
{
    int64_t positions = prompt + max_tokens + k;
    int64_t pages = (positions + page_size - 1) / page_size;

    return pages < INT32_MAX ? (int32_t)pages : INT32_MAX;
}

tpw_status tpw_sequences_add(tpw_sequences *sequences, const tpw_request *request, tpw_error *err)
{
    tpw_sequence *s = calloc(1, sizeof *s), **end = &sequences->waiting;
    size_t positions = (size_t)request->count + (size_t)request->max_tokens;

    if (s == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for sequence %llu", (unsigned long long)request->id);
    s->id = request->id;
    s->prompt = request->count;
    s->max_tokens = request->max_tokens;
    s->ignore_eos = request->ignore_eos;
    s->page_count = tpw_pages_needed(request->count, request->max_tokens, sequences->draft_max, sequences->page_size);
    s->tokens = malloc(positions * sizeof *s->tokens);
    s->pages = calloc((size_t)s->page_count, sizeof *s->pages);
    s->hidden = calloc((size_t)sequences->layers, sizeof *s->hidden);
    if (s->tokens == NULL || s->pages == NULL || s->hidden == NULL) {
        sequence_free(s);
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the %zu tokens of sequence %llu", positions,
                        (unsigned long long)request->id);
    }
    memcpy(s->tokens, request->ids, (size_t)request->count * sizeof *s->tokens);
    while (*end != NULL)
        end = &(*end)->next;
    *end = s;
    sequences->waiting_count++;
    return TPW_OK;
}

void tpw_sequences_start(tpw_sequences *sequences)
{
    while (sequences->waiting != NULL && sequences->running_count < sequences->running_max) {
        tpw_sequence *s = sequences->waiting;

        if (!tpw_ledger_take(&sequences->ledger, &s->slot, s->pages, s->page_count))
            return;
        sequences->waiting = s->next;
        s->next = NULL;
        sequences->waiting_count--;
        sequences->running[sequences->running_count++] = s;
    }
}

tpw_sequence *tpw_sequences_find(const tpw_sequences *sequences, uint64_t id)
{
    for (int32_t i = 0; i < sequences->running_count; i++)
        if (sequences->running[i]->id == id)
            return sequences->running[i];
    for (tpw_sequence *s = sequences->waiting; s != NULL; s = s->next)
        if (s->id == id)
            return s;
    return NULL;
}

static void unlink_waiting(tpw_sequences *sequences, const tpw_sequence *sequence)
{
    tpw_sequence **at = &sequences->waiting;

    while (*at != NULL && *at != sequence)
        at = &(*at)->next;
    if (*at != NULL) {
        *at = sequence->next;
        sequences->waiting_count--;
    }
}

static void unlink_running(tpw_sequences *sequences, const tpw_sequence *sequence)
{
    int32_t i = 0;

    while (i < sequences->running_count && sequences->running[i] != sequence)
        i++;
    if (i == sequences->running_count)
        return;
    sequences->running_count--;
    memmove(&sequences->running[i], &sequences->running[i + 1],
            (size_t)(sequences->running_count - i) * sizeof *sequences->running);
}

tpw_status tpw_sequences_remove(tpw_sequences *sequences, tpw_sequence *sequence, tpw_error *err)
{
    tpw_status st = TPW_OK;

    if (sequence->slot == 0) {
        unlink_waiting(sequences, sequence);
    } else {
        unlink_running(sequences, sequence);
        st = tpw_ledger_give(&sequences->ledger, sequence->slot, sequence->pages, sequence->page_count, err);
    }
    sequence_free(sequence);
    return st;
}
