/* The sequences of a worker: waiting ones in order, running ones in admission order, and their tokens and marks.
 *
 * The same calls in the same order leave the same table on every rank. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_SEQUENCE_H
#define TPW_WORKER_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "tpworker/worker.h"

#include "base/error.h"
#include "worker/ledger.h"

typedef struct tpw_sequence tpw_sequence;
struct tpw_sequence {
    uint64_t id;
    int32_t *tokens; /* [prompt + max_tokens]: prompt, then what was emitted */
    int32_t prompt;
    int32_t max_tokens;
    int32_t emitted;
    bool ignore_eos;
    int64_t pos;    /* committed mark: tokens that the trunk has run */
    int32_t slot;   /* 0 while waiting */
    int32_t *pages; /* [page_count] */
    int32_t page_count;
    uint64_t *hidden; /* [layers] running digests of "hidden.L" */
    tpw_sequence *next;
};

typedef struct tpw_sequences {
    tpw_sequence *waiting;  /* in order of arrival */
    tpw_sequence **running; /* [running_max], in admission order */
    int32_t running_count;
    int32_t running_max;
    int32_t waiting_count;
    int32_t layers;
    int32_t page_size;
    int32_t draft_max; /* K: positions reserved beyond the last token */
    tpw_ledger ledger;
} tpw_sequences;

tpw_status tpw_sequences_init(tpw_sequences *out, int32_t running_max, int32_t pages, int32_t page_size, int32_t layers,
                              int32_t draft_max, tpw_error *err) TPW_MUST_CHECK;
void tpw_sequences_fini(tpw_sequences *sequences);

/* Pages that a request reserves: ceil((prompt + max_tokens + k) / page_size), INT32_MAX when that does not fit. Pure. */
int32_t tpw_pages_needed(int64_t prompt, int64_t max_tokens, int32_t k, int32_t page_size);

/* Puts a copy of the request at the end of the waiting queue. */
tpw_status tpw_sequences_add(tpw_sequences *sequences, const tpw_request *request, tpw_error *err) TPW_MUST_CHECK;

/* Moves waiting sequences to running, in order, as long as the first of them fits. */
void tpw_sequences_start(tpw_sequences *sequences);

/* Waiting or running sequence by id, or NULL. */
tpw_sequence *tpw_sequences_find(const tpw_sequences *sequences, uint64_t id);

/* Takes a sequence out of the table, gives its slot and pages back and frees it. */
tpw_status tpw_sequences_remove(tpw_sequences *sequences, tpw_sequence *sequence, tpw_error *err) TPW_MUST_CHECK;

#endif
