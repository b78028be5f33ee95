/* The last exchanges of a communicator, kept for reports, and the communicator that keeps them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_RING_H
#define TPW_TP_RING_H

#include "tp/comm.h"
#include "tpworker/worker.h"

typedef struct tpw_ring {
    tpw_ring_entry entry[TPW_RING_ENTRIES];
    uint64_t count; /* entries ever begun; the newest is at (count - 1) mod TPW_RING_ENTRIES */
} tpw_ring;

/* Copies the newest entries, oldest first. Returns how many. Pure. */
int32_t tpw_ring_copy(const tpw_ring *ring, tpw_ring_entry *out, int32_t max);

/* Wraps `inner`, which it then owns: every exchange is noted in `ring` (borrowed) before and after. With `digests`, the result of
 * an all-reduce is digested too. Local. */
tpw_status tpw_comm_noted_create(tpw_comm *inner, tpw_ring *ring, bool digests, tpw_comm **out,
                                 tpw_error *err) TPW_MUST_CHECK;

#endif
