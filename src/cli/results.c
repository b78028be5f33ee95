/* Collects events into results, turns tokens into text, and totals digests. SPDX-License-Identifier: Apache-2.0 */
#include "cli/results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/digest.h"

tpw_status tpw_results_init(tpw_results *out, size_t count, const tpw_tokenizer *tokenizer, tpw_error *err)
{
    *out = (tpw_results){.count = count, .tokenizer = tokenizer};
    out->data = calloc(count == 0 ? 1 : count, sizeof *out->data);
    if (!out->data) {
        out->count = 0;
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the results of %zu prompts", count);
    }
    return TPW_OK;
}

void tpw_results_fini(tpw_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        free(results->data[i].ids);
        free(results->data[i].text);
        free(results->data[i].digests);
    }
    free(results->data);
    *results = (tpw_results){0};
}

static tpw_status no_memory(tpw_error *err)
{
    return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the results");
}

static tpw_status add_id(tpw_result *r, int32_t id, tpw_error *err)
{
    if (r->count == r->capacity) {
        int32_t room = r->capacity == 0 ? 64 : 2 * r->capacity;
        if (r->capacity > INT32_MAX / 2)
            return no_memory(err);
        int32_t *grown = realloc(r->ids, (size_t)room * sizeof *grown);
        if (!grown)
            return no_memory(err);
        r->ids = grown;
        r->capacity = room;
    }
    r->ids[r->count++] = id;
    return TPW_OK;
}

static tpw_status reserve_text(tpw_result *r, size_t more, tpw_error *err)
{
    size_t wanted;
    if (!tpw_add_size(r->text_bytes, more, &wanted))
        return no_memory(err);
    if (wanted <= r->text_capacity)
        return TPW_OK;
    size_t room = wanted < 256 ? 256 : wanted;
    if (!tpw_mul_size(room, 2, &room))
        return no_memory(err);
    char *grown = realloc(r->text, room);
    if (!grown)
        return no_memory(err);
    r->text = grown;
    r->text_capacity = room;
    return TPW_OK;
}

static tpw_status add_text(const tpw_results *results, tpw_result *r, int32_t id, tpw_error *err)
{
    const char *data = NULL;
    size_t bytes = 0;
    if (!results->tokenizer) {
        TPW_TRY(reserve_text(r, 16, err));
        r->text_bytes += (size_t)snprintf(r->text + r->text_bytes, 16, r->count > 1 ? " %d" : "%d", id);
        return TPW_OK;
    }
    if (tpw_tokenizer_special(results->tokenizer, id) || !tpw_tokenizer_bytes(results->tokenizer, id, &data, &bytes))
        return TPW_OK;
    size_t room;
    if (!tpw_add_size(bytes, 4, &room) || !tpw_mul_size(room, 3, &room))
        return no_memory(err);
    TPW_TRY(reserve_text(r, room, err));
    r->text_bytes += tpw_utf8_push(&r->held, data, bytes, r->text + r->text_bytes);
    return TPW_OK;
}

static tpw_status finish(tpw_result *r, const tpw_event *event, tpw_error *err)
{
    TPW_TRY(reserve_text(r, 12, err));
    r->text_bytes += tpw_utf8_finish(&r->held, r->text + r->text_bytes);
    if (event->digest_count > 0) {
        size_t bytes = (size_t)event->digest_count * sizeof *r->digests;
        r->digests = malloc(bytes);
        if (!r->digests)
            return no_memory(err);
        memcpy(r->digests, event->digests, bytes);
        r->digest_count = event->digest_count;
    }
    r->finished = true;
    r->finish = event->finish;
    r->prompt_tokens = event->prompt_tokens;
    return TPW_OK;
}

tpw_status tpw_results_take(tpw_results *results, const tpw_event *event, tpw_error *err)
{
    if (event->id >= results->count || results->data[event->id].finished)
        return tpw_fail(err, TPW_ERR_INTERNAL, "an event of sequence %llu, which is not running",
                        (unsigned long long)event->id);
    tpw_result *r = &results->data[event->id];
    if (event->type == TPW_EVENT_TOKEN) {
        TPW_TRY(add_id(r, event->token, err));
        return add_text(results, r, event->token, err);
    }
    TPW_TRY(finish(r, event, err));
    results->finished++;
    return TPW_OK;
}

const char *tpw_result_finish_name(const tpw_result *result)
{
    if (!result->finished)
        return "stopped";
    switch (result->finish) {
    case TPW_FINISH_LENGTH:
        return "length";
    case TPW_FINISH_STOP:
        return "stop";
    case TPW_FINISH_CANCELLED:
        return "cancelled";
    default:
        return "error";
    }
}

uint64_t tpw_result_digest(const tpw_result *result)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < result->digest_count; i++) {
        const tpw_scope_digest *d = &result->digests[i];
        char name[40];
        if (strncmp(d->scope, "mtp", 3) == 0)
            continue;
        if (d->layer < 0)
            snprintf(name, sizeof name, "%.16s", d->scope);
        else
            snprintf(name, sizeof name, "%.16s.%d", d->scope, d->layer);
        sum += tpw_digest_term(tpw_digest_key(name), 0, d->global);
    }
    return sum;
}

uint64_t tpw_results_digest(const tpw_results *results)
{
    uint64_t key = tpw_digest_key("run");
    uint64_t sum = 0;
    for (size_t i = 0; i < results->count; i++)
        if (results->data[i].digest_count > 0)
            sum += tpw_digest_term(key, i, tpw_result_digest(&results->data[i]));
    return sum;
}
