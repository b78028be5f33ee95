/* Byte-level BPE from tokenizer.json: added tokens, NFC, the file's split rule, merges by rank; and bytes back.
 * The only door to PCRE2 and utf8proc. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_TOKENIZER_H
#define TPW_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tpw_tokenizer tpw_tokenizer;

/* Reads `folder`/tokenizer.json. ERR_MISSING when there is none (callers may then work with ids alone); ERR_CHECKPOINT naming
 * the part that is malformed or of an unsupported kind (model type, normalizer, pre_tokenizer, post_processor ...). */
tpw_status tpw_tokenizer_load(const char *folder, tpw_tokenizer **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_tokenizer_destroy(tpw_tokenizer *tokenizer); /* NULL allowed */

int32_t tpw_tokenizer_vocab(const tpw_tokenizer *tokenizer); /* largest id + 1 */

/* Text (UTF-8, may hold NUL bytes) to ids. *ids is malloc'ed, the caller's to free. ERR_ARGUMENT for invalid UTF-8, with the byte
 * offset; ERR_LIMIT when a match limit of the split rule is hit. */
tpw_status tpw_tokenizer_encode(const tpw_tokenizer *tokenizer, const char *text, size_t bytes, int32_t **ids,
                                size_t *count, tpw_error *err) TPW_MUST_CHECK;

/* The bytes of one token (borrowed), added tokens by their content. false and *bytes = 0 for an unknown id. */
bool tpw_tokenizer_bytes(const tpw_tokenizer *tokenizer, int32_t id, const char **data, size_t *bytes);
bool tpw_tokenizer_special(const tpw_tokenizer *tokenizer, int32_t id); /* an added token marked special */

/* Turns a stream of tokens into valid UTF-8: holds back an unfinished character, replaces invalid bytes by U+FFFD.
 * Zero-initialise. */
typedef struct tpw_utf8_stream {
    unsigned char held[4];
    int held_count;
} tpw_utf8_stream;

/* Appends `data` and writes the finished characters to out (capacity >= 3 * (bytes + 4)); returns how many bytes. */
size_t tpw_utf8_push(tpw_utf8_stream *stream, const char *data, size_t bytes, char *out);
/* What is left at the end (U+FFFD for an unfinished character). Capacity >= 12. */
size_t tpw_utf8_finish(tpw_utf8_stream *stream, char *out);

/* Is all of `data` valid UTF-8 (no overlong forms, no surrogates)? If not, *bad_at is where the first bad character
 * starts. */
bool tpw_utf8_valid(const char *data, size_t bytes, size_t *bad_at);

/* 64-bit hash of the file's bytes, to compare ranks. */
uint64_t tpw_tokenizer_digest(const tpw_tokenizer *tokenizer);

#endif
