/* The JSON Lines of --json: "run", "result", "summary", "error"; bench adds its own. Every line has "type" and "schema".
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_JSONL_H
#define TPW_CLI_JSONL_H

#include <stdbool.h>

#include "cli/prompts.h"
#include "cli/results.h"
#include "cli/settings.h"
#include "cli/sink.h"
#include "cli/summary.h"

#define TPW_JSONL_SCHEMA 1

/* All queue one line; a failure (memory) shows in sink->error. Nothing is built for a sink without a descriptor. */
void tpw_jsonl_run(tpw_sink *sink, const tpw_values *values, const tpw_model_info *model, const tpw_rank_info *ranks,
                   int size);
/* `digests`: the list of scopes, too. */
void tpw_jsonl_result(tpw_sink *sink, const tpw_prompts *prompts, const tpw_results *results, size_t index,
                      bool digests);
void tpw_jsonl_summary(tpw_sink *sink, const tpw_summary *summary, tpw_status status);
void tpw_jsonl_error(tpw_sink *sink, tpw_status status, const char *text);

/* Any other line. Steals `line`, which is NULL when there was no memory. */
void tpw_jsonl_push(tpw_sink *sink, json_t *line);

/* A digest as 16 hex digits. */
json_t *tpw_json_hex(uint64_t digest);

/* A string of any bytes: what is not UTF-8 becomes U+FFFD. New reference; NULL when there is no memory. */
json_t *tpw_json_text(const char *text, size_t bytes);

#endif
