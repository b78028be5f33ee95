/* What the commands share on their way from settings to a loaded worker: ranks, log, outputs, model, tokenizer.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_SESSION_H
#define TPW_CLI_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/launcher.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "cli/sink.h"
#include "model/tokenizer.h"
#include "tp/boot.h"
#include "tpworker/worker.h"

/* How a command ended, for the one who leaves: the same status on all ranks unless `broken`. */
typedef struct tpw_outcome {
    tpw_status status;
    tpw_error error;
    bool broken; /* the ranks no longer move together: leave without MPI_Finalize */
    int rank;
    int size;
    int64_t step; /* steps done, -1 before the first */
    char host[64];
    char job[TPW_JOB_NAME_MAX];
    tpw_ring_entry ring[TPW_RING_ENTRIES]; /* the last exchanges of a failed worker, oldest first */
    int32_t ring_count;
    tpw_sink people; /* rank 0: may hold text that its reader has not taken yet; the caller drains and finishes them */
    tpw_sink json;
} tpw_outcome;

typedef struct tpw_session {
    const tpw_values *values;
    tpw_outcome *out;
    tpw_boot *boot;
    const char *model; /* folder, NULL with a dummy */
    tpw_log log;
    tpw_progress progress;
    tpw_rank_info *ranks;     /* [size] */
    tpw_tokenizer *tokenizer; /* rank 0; NULL when the model has none */
    bool terminal;            /* rank 0: text for people goes to one */
    bool warned;              /* of a --ranks-per-gpu that only costs */
    char isa[32];
} tpw_session;

/* Collective over MPI_COMM_WORLD, which is initialised. Sets *outcome and *out in every case; close also after an error. */
tpw_status tpw_session_open(tpw_session *out, const tpw_values *values, tpw_outcome *outcome,
                            tpw_error *err) TPW_MUST_CHECK;
/* Local. Finds the model; rank 0 opens its outputs, checks the folder and loads the tokenizer. Not agreed yet: the caller goes on
 * with what it can find wrong itself, then calls agree. */
tpw_status tpw_session_prepare(tpw_session *session, tpw_error *err) TPW_MUST_CHECK;
/* Collective. All ranks take the worst status; rank 0 keeps its own words. */
tpw_status tpw_session_agree(tpw_session *session, tpw_status mine, tpw_error *err) TPW_MUST_CHECK;
/* Collective. Does the model hold an MTP module? Looks at headers only. */
tpw_status tpw_session_find_mtp(tpw_session *session, bool *out, tpw_error *err) TPW_MUST_CHECK;

/* Options as set; sequences_max, rows_max, draft_max, check and context_max of a list setting are the caller's to correct. */
void tpw_session_options(tpw_session *session, tpw_options *out);
/* Collective. Creates and loads, with a progress bar. *out is the caller's also after an error (NULL or half made). */
tpw_status tpw_session_start(tpw_session *session, const tpw_options *options, tpw_worker **out,
                             tpw_error *err) TPW_MUST_CHECK;
/* Collective over the first `size` ranks only: the same on a communicator of theirs. */
tpw_status tpw_session_start_group(tpw_session *session, const tpw_options *options, int size, tpw_worker **out,
                                   tpw_error *err) TPW_MUST_CHECK;
/* Local. Keeps the last exchanges of a worker for the report; before it is destroyed. NULL allowed. */
void tpw_session_keep_ring(tpw_session *session, const tpw_worker *worker);
/* Do two of the ranks run on one GPU of a host? Pure. */
bool tpw_session_gpu_is_shared(const tpw_rank_info *ranks, int size);
/* Local. Fills session->ranks, and warns of a --ranks-per-gpu that only costs. */
tpw_status tpw_session_ranks(tpw_session *session, const tpw_worker *worker, tpw_error *err) TPW_MUST_CHECK;

/* Nobody reads any more: going on would be work for nothing. A file that cannot be written is no reason to stop. */
bool tpw_session_reader_gone(const tpw_session *session);
/* "SIGTERM" and the like: the signal that asked for a stop. Static storage. */
const char *tpw_session_signal_name(void);
/* Gives slow readers a moment while peers wait. Failures stay in the sinks. */
void tpw_session_drain(tpw_session *session);

/* Notes in the outcome how it ended, and writes the "error" line. Local. */
void tpw_session_conclude(tpw_session *session, tpw_status status);
void tpw_session_close(tpw_session *session);

#endif
