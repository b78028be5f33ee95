/* A step as the pass takes it, from the plan. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_LAYOUT_H
#define TPW_WORKER_LAYOUT_H

#include "worker/worker.h"

typedef struct tpw_layout {
    tpw_batch batch;
    int32_t logits;
    int32_t groups;
} tpw_layout;

/* Digest groups of a planned entry. Pure. */
int32_t tpw_groups_of(const tpw_planned *planned);

/* Fills segments, groups and what the pass sends: token ids, or where they will stand once they are known; logit rows; rules of
 * acceptance. Local. */
tpw_layout tpw_worker_lay_out(tpw_worker *worker, int32_t planned);

/* After the fetch: ids, drafts and digests of groups, from what the step gave. Local. */
void tpw_worker_read_back(tpw_worker *worker, int32_t planned, const tpw_layout *layout);

#endif
