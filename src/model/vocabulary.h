/* Tokens by id and ids by bytes. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_VOCABULARY_H
#define TPW_MODEL_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define TPW_TOKENS_MAX      2000000 /* ids are below this */
#define TPW_TOKEN_BYTES_MAX 4096

typedef struct tpw_token {
    uint32_t start; /* in the bytes of the vocabulary */
    uint32_t bytes; /* 0: there is no token of this id */
    bool special;
} tpw_token;

typedef struct tpw_vocabulary {
    tpw_token *tokens; /* [size] */
    int32_t size;      /* largest id + 1 */
    int32_t capacity;
    char *bytes; /* of all tokens, one after the other */
    size_t bytes_count;
    size_t bytes_capacity;
    int32_t *slots; /* open addressing over ids, -1: free; at most half in use */
    size_t mask;
    size_t indexed;
} tpw_vocabulary;

/* Room in the index for tokens_max tokens (at most TPW_TOKENS_MAX). On failure nothing is left to give back. */
tpw_status tpw_vocabulary_init(tpw_vocabulary *vocabulary, size_t tokens_max, tpw_error *err) TPW_MUST_CHECK;
void tpw_vocabulary_fini(tpw_vocabulary *vocabulary);

/* Adds a token. ERR_CHECKPOINT when the id is out of range or taken, or the token empty or too long. */
tpw_status tpw_vocabulary_add(tpw_vocabulary *vocabulary, int64_t id, const char *data, size_t bytes,
                              tpw_error *err) TPW_MUST_CHECK;
/* Makes a token findable by its bytes. ERR_CHECKPOINT when another token of the same bytes is. */
tpw_status tpw_vocabulary_index(tpw_vocabulary *vocabulary, int32_t id, tpw_error *err) TPW_MUST_CHECK;

bool tpw_vocabulary_has(const tpw_vocabulary *vocabulary, int64_t id);
int32_t tpw_vocabulary_find(const tpw_vocabulary *vocabulary, const char *data, size_t bytes); /* -1: not there */

uint64_t tpw_bytes_hash(const char *data, size_t bytes); /* FNV-1a, finished as digests are */

#endif
