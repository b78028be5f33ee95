/* The sections of a tokenizer.json: which of them there are, and that each is of the one kind that is implemented.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_TOKENIZER_SECTIONS_H
#define TPW_MODEL_TOKENIZER_SECTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/json.h"

/* All pointers are borrowed from the parsed file. */
typedef struct tpw_tokenizer_sections {
    const json_t *vocab;  /* object */
    const json_t *merges; /* array */
    const json_t *added;  /* array, NULL when there is none */
    const char *pattern;  /* the split rule */
    size_t pattern_bytes;
    bool nfc;
    bool ignore_merges; /* a piece that is a token as a whole is that token */
} tpw_tokenizer_sections;

/* Pure. ERR_CHECKPOINT naming the section, the key, what it must be and what was found. A key that is not known is
 * refused unless its value says nothing (null, false, "", [], {}). */
tpw_status tpw_tokenizer_sections_read(const json_t *root, tpw_tokenizer_sections *out, tpw_error *err) TPW_MUST_CHECK;

/* Refuses `object` when it is none, or has a key outside the NULL-terminated list whose value says something. */
tpw_status tpw_tokenizer_check_keys(const json_t *object, const char *what, const char *const *known,
                                    tpw_error *err) TPW_MUST_CHECK;

#endif
