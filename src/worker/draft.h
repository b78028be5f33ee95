/* The draft phase of a step: the MTP chain or the caller's drafter; and the MTP pass over committed rows that feeds it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_DRAFT_H
#define TPW_WORKER_DRAFT_H

#include "worker/worker.h"

/* True when this worker drafts with the checkpoint's MTP module. */
bool tpw_worker_uses_mtp(const tpw_worker *worker);

/* Collective. Fills drafts of every planned sequence that verifies some: buf.drafts[i * TPW_K_MAX + s]. A drafter of the caller may propose
 * fewer than planned; then planned[i].drafts is lowered. */
tpw_status tpw_worker_draft(tpw_worker *worker, int32_t planned, tpw_error *err) TPW_MUST_CHECK;

/* Collective. Runs the MTP module over the rows that this step committed (ws.y still holds their trunk hiddens), overwriting what
 * draft rows left in its K/V, and keeps each sequence's last output. buf.taken[i] certain rows of planned[i]. */
tpw_status tpw_worker_follow(tpw_worker *worker, int32_t planned, tpw_error *err) TPW_MUST_CHECK;

#endif
