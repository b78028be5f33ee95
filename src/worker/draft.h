/* The draft phase of a step: the MTP chain or the caller's drafter; and the MTP pass behind the trunk that feeds it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_DRAFT_H
#define TPW_WORKER_DRAFT_H

#include "worker/worker.h"

/* True when this worker drafts with the checkpoint's MTP module. */
bool tpw_worker_uses_mtp(const tpw_worker *worker);

/* Local. Asks the caller's drafter, if there is one, for drafts of every planned sequence that verifies some: buf.drafts[i * TPW_K_MAX + s]. It may
 * propose fewer than planned; then planned[i].drafts is lowered. */
tpw_status tpw_worker_ask_drafter(tpw_worker *worker, int32_t planned, tpw_error *err) TPW_MUST_CHECK;

/* Local. Lays out the MTP chain of the step: buf.chain[0..chain_length), and what the pass sends for it. */
void tpw_worker_lay_chain(tpw_worker *worker, int32_t planned);

/* Collective, enqueues the chain: drafts into the device's tokens. Its batches but the first are staged. */
tpw_status tpw_worker_draft(tpw_worker *worker, tpw_error *err) TPW_MUST_CHECK;

/* Collective, enqueues: runs the MTP module over the rows of the trunk (ws.y still holds their hiddens), overwriting what draft rows left in its
 * K/V, and keeps each sequence's output of its last committed row. Behind the new mark its K/V are those of rejected rows, which the
 * next step overwrites before it reads them. */
tpw_status tpw_worker_follow(tpw_worker *worker, const tpw_batch *batch, tpw_error *err) TPW_MUST_CHECK;

#endif
