/* Keeps the bytes of all tokens in one block, found by id or by a hash of the bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/digest.h"

tpw_status tpw_vocabulary_init(tpw_vocabulary *vocabulary, size_t tokens_max, tpw_error *err)
{
    memset(vocabulary, 0, sizeof *vocabulary);
    if (tokens_max > TPW_TOKENS_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "model.vocab has %zu tokens: at most %d are supported", tokens_max,
                        TPW_TOKENS_MAX);
    size_t slots = 16;
    while (slots < 2 * tokens_max)
        slots *= 2;
    vocabulary->slots = malloc(slots * sizeof *vocabulary->slots);
    if (vocabulary->slots == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for %zu tokens", tokens_max);
    for (size_t i = 0; i < slots; i++)
        vocabulary->slots[i] = -1;
    vocabulary->mask = slots - 1;
    return TPW_OK;
}

void tpw_vocabulary_fini(tpw_vocabulary *vocabulary)
{
    free(vocabulary->tokens);
    free(vocabulary->bytes);
    free(vocabulary->slots);
    memset(vocabulary, 0, sizeof *vocabulary);
}

static tpw_status reach_id(tpw_vocabulary *vocabulary, int32_t id, tpw_error *err)
{
    if (id >= vocabulary->capacity) {
        int32_t capacity = id < TPW_TOKENS_MAX / 2 ? 2 * id + 256 : TPW_TOKENS_MAX;
        tpw_token *tokens = realloc(vocabulary->tokens, (size_t)capacity * sizeof *tokens);
        if (tokens == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for %d tokens", capacity);
        vocabulary->tokens = tokens;
        vocabulary->capacity = capacity;
    }
    while (vocabulary->size <= id)
        vocabulary->tokens[vocabulary->size++] = (tpw_token){.bytes = 0};
    return TPW_OK;
}

static tpw_status append(tpw_vocabulary *vocabulary, const char *data, size_t bytes, tpw_error *err)
{
    size_t needed = vocabulary->bytes_count + bytes; /* both far below SIZE_MAX */
    if (needed > UINT32_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "the tokens are longer than 4 GiB together");
    if (needed > vocabulary->bytes_capacity) {
        size_t capacity = needed + needed / 2 + 4096;
        char *grown = realloc(vocabulary->bytes, capacity);
        if (grown == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for %zu bytes of tokens", capacity);
        vocabulary->bytes = grown;
        vocabulary->bytes_capacity = capacity;
    }
    memcpy(vocabulary->bytes + vocabulary->bytes_count, data, bytes);
    vocabulary->bytes_count = needed;
    return TPW_OK;
}

bool tpw_vocabulary_has(const tpw_vocabulary *vocabulary, int64_t id)
{
    return id >= 0 && id < vocabulary->size && vocabulary->tokens[id].bytes > 0;
}

tpw_status tpw_vocabulary_add(tpw_vocabulary *vocabulary, int64_t id, const char *data, size_t bytes, tpw_error *err)
{
    int shown = bytes > 60 ? 60 : (int)bytes;
    if (id < 0 || id >= TPW_TOKENS_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "token \"%.*s\" has the id %lld: it must be in 0..%d", shown, data,
                        (long long)id, TPW_TOKENS_MAX - 1);
    if (bytes == 0 || bytes > TPW_TOKEN_BYTES_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "the token of id %lld has %zu bytes: it must have 1 to %d",
                        (long long)id, bytes, TPW_TOKEN_BYTES_MAX);
    if (tpw_vocabulary_has(vocabulary, id))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "two tokens have the id %lld, one of them \"%.*s\"", (long long)id,
                        shown, data);
    TPW_TRY(reach_id(vocabulary, (int32_t)id, err));
    size_t start = vocabulary->bytes_count;
    TPW_TRY(append(vocabulary, data, bytes, err));
    vocabulary->tokens[id] = (tpw_token){.start = (uint32_t)start, .bytes = (uint32_t)bytes};
    return TPW_OK;
}

uint64_t tpw_bytes_hash(const char *data, size_t bytes)
{
    uint64_t h = 0xCBF29CE484222325ull;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)data[i]) * 0x100000001B3ull;
    return tpw_digest_fin(h);
}

/* The slot of the token with these bytes, or the free one where it belongs. The table is never full, so this ends. */
static size_t find_slot(const tpw_vocabulary *vocabulary, const char *data, size_t bytes)
{
    size_t at = (size_t)tpw_bytes_hash(data, bytes) & vocabulary->mask;
    for (; vocabulary->slots[at] >= 0; at = (at + 1) & vocabulary->mask) {
        const tpw_token *token = &vocabulary->tokens[vocabulary->slots[at]];
        if (token->bytes == bytes && memcmp(vocabulary->bytes + token->start, data, bytes) == 0)
            break;
    }
    return at;
}

tpw_status tpw_vocabulary_index(tpw_vocabulary *vocabulary, int32_t id, tpw_error *err)
{
    if (!tpw_vocabulary_has(vocabulary, id) || 2 * vocabulary->indexed > vocabulary->mask)
        return tpw_fail(err, TPW_ERR_INTERNAL, "token %d cannot be indexed", id);
    const tpw_token *token = &vocabulary->tokens[id];
    size_t at = find_slot(vocabulary, vocabulary->bytes + token->start, token->bytes);
    if (vocabulary->slots[at] >= 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "ids %d and %d are tokens of the same bytes", vocabulary->slots[at],
                        id);
    vocabulary->slots[at] = id;
    vocabulary->indexed++;
    return TPW_OK;
}

int32_t tpw_vocabulary_find(const tpw_vocabulary *vocabulary, const char *data, size_t bytes)
{
    return vocabulary->slots[find_slot(vocabulary, data, bytes)];
}
