/* From raw text to pieces: cuts at added tokens, composes what lies between (NFC), and splits it by the file's rule.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_PRETOKENIZE_H
#define TPW_MODEL_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tpw_added_token {
    const char *content; /* UTF-8, not empty */
    size_t bytes;
    int32_t id;
    bool normalized; /* sought in the composed text, composed itself; else in the raw text */
} tpw_added_token;

typedef struct tpw_pretokenizer tpw_pretokenizer;

/* `added` is read during the call only. ERR_CHECKPOINT for a rule that is not supported, an empty added token, or two
 * with the same content. */
tpw_status tpw_pretokenizer_create(const char *pattern, size_t pattern_bytes, bool nfc, const tpw_added_token *added,
                                   size_t added_count, tpw_pretokenizer **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_pretokenizer_destroy(tpw_pretokenizer *pretokenizer); /* NULL allowed */

/* Receives what the text falls into, in order. */
typedef struct tpw_piece_sink {
    void *data;
    tpw_status (*piece)(void *data, const char *piece, size_t bytes, tpw_error *err);
    tpw_status (*added)(void *data, int32_t id, tpw_error *err);
} tpw_piece_sink;

/* `text` must be valid UTF-8. Thread-safe: the pretokenizer is only read. */
tpw_status tpw_pretokenizer_run(const tpw_pretokenizer *pretokenizer, const char *text, size_t bytes,
                                const tpw_piece_sink *sink, tpw_error *err) TPW_MUST_CHECK;

/* Canonical composition of valid UTF-8. *out is malloc'ed, or NULL when the text is composed already. O(n log n) at worst,
 * whatever the order of the combining marks. */
tpw_status tpw_text_compose(const char *text, size_t bytes, char **out, size_t *out_bytes,
                            tpw_error *err) TPW_MUST_CHECK;

#endif
