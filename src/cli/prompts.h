/* What is to be generated: prompts from a JSON Lines file, from flags, or built in. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_PROMPTS_H
#define TPW_CLI_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/settings.h"

#define TPW_PROMPTS_MAX            100000
#define TPW_PROMPTS_FILE_BYTES_MAX ((size_t)256 << 20)
#define TPW_PROMPT_LINE_BYTES_MAX  ((size_t)4 << 20)
#define TPW_PROMPT_IDS_MAX         (1 << 24)
#define TPW_DEMO_MAX_TOKENS        64

/* One prompt: text, ids, or (after encoding) both. */
typedef struct tpw_prompt {
    json_t *id; /* string or integer; owned */
    char *text; /* UTF-8, NULL when given as ids */
    size_t text_bytes;
    int32_t *ids; /* [count], NULL until encoded */
    int32_t count;
    int32_t max_tokens;
    int line; /* in the file, from 1; 0 elsewhere */
} tpw_prompt;

typedef struct tpw_prompts {
    tpw_prompt *data;
    size_t count;
    char *origin; /* the file, "--prompt", or "built-in prompts": what messages call it */
} tpw_prompts;

/* All readers: *out is given back with tpw_prompts_fini, also after an error. Errors name file and line: ERR_ARGUMENT for what
 * is in it, ERR_MISSING, ERR_IO, ERR_MEMORY. Local. */

/* Blank lines are skipped; a byte-order mark at the start and carriage returns at line ends are taken off. Keys: "id" (string
 * or integer, unique; default: the prompt's number from 0), "text" or "ids", "max_tokens". */
tpw_status tpw_prompts_read(const char *path, int32_t max_tokens, tpw_prompts *out, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_prompts_from_texts(const tpw_texts *texts, int32_t max_tokens, tpw_prompts *out,
                                  tpw_error *err) TPW_MUST_CHECK;
/* Openings in the manner of old novels; with a vocabulary instead of a tokenizer, a few rows of ids below `vocab`. */
tpw_status tpw_prompts_demo(int32_t max_tokens, tpw_prompts *out, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_prompts_demo_ids(int32_t vocab, int32_t max_tokens, tpw_prompts *out, tpw_error *err) TPW_MUST_CHECK;
/* Plain prose of some hundred tokens, for measuring. Static storage. */
const char *tpw_prompts_passage(void);
void tpw_prompts_fini(tpw_prompts *prompts);

/* "prompts.jsonl:7" or "--prompt 2", for messages. */
void tpw_prompt_where(const tpw_prompts *prompts, size_t index, char *out, size_t bytes);

#endif
