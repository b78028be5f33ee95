/* What a step compares: naming a cross-rank difference, state at rest, traced digests. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_CHECK_H
#define TPW_WORKER_CHECK_H

#include "worker/layout.h"

/* Digest of the plan and of the token ids of a step. Pure. */
uint64_t tpw_plan_digest(const tpw_worker *worker, const tpw_layout *layout);
uint64_t tpw_ids_digest(const tpw_worker *worker, const tpw_layout *layout);

/* Collective, after the exchange of a step found that ranks disagree: replaces *err by what, where and who: the first of state at rest, plan,
 * ids, hidden by layer that differs, the ranks, sequence, slot, position, step. Always returns ERR_DIVERGED (or ERR_PEER). */
tpw_status tpw_worker_name_difference(tpw_worker *worker, const tpw_layout *layout, tpw_error *err) TPW_MUST_CHECK;

/* State at rest before the step reads it: of every running sequence each check_every steps, and the recurrent state of those planned ones
 * whose rows reach the next multiple of the grid, where S is overwritten. Local, and no exchange of its own, since ranks whose
 * plans differ would not meet in it: what is found is kept in worker->rest and makes the exchange of this step differ. */
void tpw_worker_check_rest(tpw_worker *worker, int32_t planned);

/* Collective. The same for one sequence that ends. */
tpw_status tpw_worker_check_end(tpw_worker *worker, const tpw_sequence *sequence, tpw_error *err) TPW_MUST_CHECK;

/* Collective when tracing: hands the digests of every planned sequence to rank 0's trace function. */
tpw_status tpw_worker_trace(tpw_worker *worker, int32_t planned, tpw_error *err) TPW_MUST_CHECK;

#endif
