/* One run of a set of sequences through a worker, from admission to the last one's end: what bench measures and verify compares.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_TRIAL_H
#define TPW_CLI_TRIAL_H

#include "cli/results.h"
#include "cli/session.h"

/* Prompts for measuring and comparing: pieces of a passage where there is a tokenizer, so that drafts are accepted as in earnest;
 * else hashed ids. ids is [sequences, each], the caller's to free. Rank 0's. */
tpw_status tpw_trial_prompts(const tpw_session *session, int32_t vocab, int32_t sequences, int32_t each, int32_t **ids,
                             tpw_error *err) TPW_MUST_CHECK;

typedef struct tpw_trial {
    tpw_session *session;
    tpw_worker *worker;
    const tpw_request *requests; /* [count] rank 0; id = index */
    int32_t count;
    /* Rank 0, before every step, for progress; and every rank, after every step. May be NULL. */
    void (*before)(void *data, const struct tpw_trial *trial);
    void (*after)(void *data, const tpw_stats *before, const tpw_stats *after);
    void *data;
    /* set by the run */
    tpw_results results; /* rank 0 */
    bool stopped;        /* rank 0: a signal came, or nobody reads any more */
    tpw_status own;      /* what went wrong on rank 0 alone while stepping */
    tpw_error own_error;
} tpw_trial;

/* Collective over the ranks of the worker. Returns what the worker says, with outcome.broken set when that parted the ranks; else OK on
 * all ranks but 0, where the trial itself may have failed: ERR_STOPPED, ERR_SEQUENCE, ERR_IO. The caller agrees on that. Give
 * back with fini in every case. */
tpw_status tpw_trial_run(tpw_trial *trial, tpw_error *err) TPW_MUST_CHECK;
void tpw_trial_fini(tpw_trial *trial);

#endif
