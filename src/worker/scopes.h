/* The digest scopes of a sequence: names, this rank's sums, totals over the ranks. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_SCOPES_H
#define TPW_WORKER_SCOPES_H

#include "worker/worker.h"

/* Number of scopes in a sequence's digest list: "tokens", then hidden, conv, recurrent, kv by layer, then "mtp" when that module
 * runs. The first 1 + layers are replicated, the rest sharded. */
int32_t tpw_scope_count(const tpw_config *config, bool mtp);

/* Collective. Digests of every scope at the sequence's committed mark into out[scope_count]; buf.scopes_all keeps each rank's own.
 * ERR_DIVERGED names scope, layer, ranks, sequence, slot, position and step when a replicated scope is not the same on all ranks. */
tpw_status tpw_worker_scopes(tpw_worker *worker, const tpw_sequence *sequence, tpw_scope_digest *out,
                             tpw_error *err) TPW_MUST_CHECK;

/* Which ranks differ from the value that most have (the lower rank's on a tie), as "1" or "1, 3", into text. Returns how many. Pure. */
int tpw_odd_ranks(const uint64_t *values, int size, size_t stride, char *text, size_t bytes);

#endif
