/* The text for people: placement table, model line, streamed text, summary. Not an interface: programs read --json.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_OUTPUT_H
#define TPW_CLI_OUTPUT_H

#include <stdbool.h>

#include "cli/prompts.h"
#include "cli/results.h"
#include "cli/sink.h"
#include "cli/summary.h"

/* Who is where, and what is held, a line for each rank. */
void tpw_output_ranks(tpw_sink *sink, const tpw_rank_info *ranks, int size);
void tpw_output_model(tpw_sink *sink, const tpw_model_info *model);
void tpw_output_summary(tpw_sink *sink, const tpw_summary *summary);

/* How far the text of a run has been shown: prompts in order, the first unfinished one live. Zero-initialise. */
typedef struct tpw_stream {
    size_t index;   /* prompt being shown */
    bool opened;    /* its prompt has been written */
    size_t written; /* bytes of its text that have been written */
} tpw_stream;

/* Writes what is new. `terminal`: prompts are dim; else they stand in brackets. With `last`, unfinished texts are written, too. */
void tpw_output_stream(tpw_sink *sink, tpw_stream *stream, const tpw_prompts *prompts, const tpw_results *results,
                       bool terminal, bool last);

#endif
