/* The split rule of a tokenizer: a regular expression from the file, run by PCRE2 with the meaning that the
 * tokenizer's own engine gives it. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_SPLIT_RULE_H
#define TPW_MODEL_SPLIT_RULE_H

#include <stddef.h>

#include "base/error.h"

typedef struct tpw_split_rule tpw_split_rule;

/* Compiles `pattern` (UTF-8, `bytes` long). Only what every engine of this family reads alike is accepted; the rest is
 * ERR_CHECKPOINT naming the construct and its byte offset: back references, anchors (Ruby's match at lines), \w \b \h
 * \R, nested or POSIX classes, scripts, recursion, callouts, verbs. \s is Unicode White_Space. What a letter, mark or
 * number is depends on the Unicode version of PCRE2: characters that are newer are none of them. */
tpw_status tpw_split_rule_create(const char *pattern, size_t bytes, tpw_split_rule **out,
                                 tpw_error *err) TPW_MUST_CHECK;
void tpw_split_rule_destroy(tpw_split_rule *rule); /* NULL allowed */

struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

/* Scratch of one thread for one rule. */
typedef struct tpw_split_work {
    struct pcre2_real_match_data_8 *match;
    struct pcre2_real_match_context_8 *limits;
} tpw_split_work;

/* A work for subjects of at most `bytes_max` bytes (the match limit grows with it). On failure nothing is left over. */
tpw_status tpw_split_work_init(tpw_split_work *work, const tpw_split_rule *rule, size_t bytes_max,
                               tpw_error *err) TPW_MUST_CHECK;
void tpw_split_work_fini(tpw_split_work *work);

/* Receives one piece, never empty. */
typedef tpw_status tpw_piece_fn(void *data, const char *piece, size_t bytes, tpw_error *err);

/* Calls `emit` for every match and every gap between matches, in order; together they are all of `text`, which must be
 * valid UTF-8. An empty match only cuts. ERR_LIMIT when a limit is hit (each holds for one place where a match may
 * start); an error of `emit` is passed on. */
tpw_status tpw_split_rule_apply(const tpw_split_rule *rule, tpw_split_work *work, const char *text, size_t bytes,
                                tpw_piece_fn *emit, void *data, tpw_error *err) TPW_MUST_CHECK;

#endif
