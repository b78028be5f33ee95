/* What has come out so far: tokens, text, finish and digests of every prompt, collected from events. Rank 0's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_RESULTS_H
#define TPW_CLI_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/tokenizer.h"
#include "tpworker/worker.h"

typedef struct tpw_result {
    int32_t *ids; /* [count] output tokens */
    int32_t count;
    int32_t capacity;
    char *
        text; /* [text_bytes] finished characters, without special tokens; the ids in decimal when there is no tokenizer */
    size_t text_bytes;
    size_t text_capacity;
    tpw_utf8_stream held;
    bool finished;
    tpw_finish finish;
    int32_t prompt_tokens;
    tpw_scope_digest *digests; /* [digest_count] */
    int32_t digest_count;
} tpw_result;

typedef struct tpw_results {
    tpw_result *data; /* [count], by prompt index */
    size_t count;
    size_t finished;
    const tpw_tokenizer *tokenizer; /* borrowed, may be NULL */
} tpw_results;

tpw_status tpw_results_init(tpw_results *out, size_t count, const tpw_tokenizer *tokenizer,
                            tpw_error *err) TPW_MUST_CHECK;
void tpw_results_fini(tpw_results *results);

/* Takes one event; its id is the prompt's index. ERR_INTERNAL for an id outside the list or an event after the last. */
tpw_status tpw_results_take(tpw_results *results, const tpw_event *event, tpw_error *err) TPW_MUST_CHECK;

/* "length", "stop", "cancelled", "error"; "stopped" when the run ended first. Static storage. */
const char *tpw_result_finish_name(const tpw_result *result);

/* One number for a finished sequence: the sum of term(key("<scope>.<layer>"), 0, digest) over its scopes, "tokens" without a
 * layer. Scopes "mtp*" are left out: they depend on K, and K must leave no trace here. Order-free; 0 without scopes. Pure. */
uint64_t tpw_result_digest(const tpw_result *result);

/* One number for the run: the sum of term(key("run"), prompt index, sequence digest) over the sequences that have one. It does
 * not depend on the order of finishing, nor on ranks, batch, chunks, pages or K. Pure. */
uint64_t tpw_results_digest(const tpw_results *results);

#endif
