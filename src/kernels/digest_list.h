/* A list of digests that are wanted together: gathered first, then computed by one call.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_DIGEST_LIST_H
#define TPW_KERNELS_DIGEST_LIST_H

#include "kernels/ops.h"

/* Zeroed is empty. */
typedef struct tpw_digest_list {
    tpw_digest_args *jobs; /* sums in host memory, which must stay where it is until run */
    int32_t count;
    int32_t room;
} tpw_digest_list;

/* Blocks without elements are left out. ERR_MEMORY. */
tpw_status tpw_digest_list_add(tpw_digest_list *list, const tpw_digest_args *job, tpw_error *err) TPW_MUST_CHECK;

/* Adds every digest to its sum and empties the list, also on error. Waits for the exec. */
tpw_status tpw_digest_list_run(tpw_digest_list *list, const tpw_exec *exec, tpw_error *err) TPW_MUST_CHECK;

void tpw_digest_list_fini(tpw_digest_list *list);

#endif
