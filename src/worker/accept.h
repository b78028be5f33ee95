/* Decides how many tokens of a verified run are taken. Pure. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_ACCEPT_H
#define TPW_WORKER_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "tpworker/worker.h"

#include "kernels/accept.h"

typedef struct tpw_accepted {
    int32_t tokens; /* taken from best[0..]: the accepted drafts and the one after them, unless something ends before */
    int32_t drafts; /* leading drafts that were right: the longest matching prefix */
    bool ended;
    tpw_finish why; /* when ended */
} tpw_accepted;

/* best[i] is the arg-max after row i of a run [known token, drafts[0], ..., drafts[k-1]]; -1: the row held no number. The tokens taken
 * are those that one-token steps would have given: best[0], then best[i] as long as drafts[i-1] == best[i-1], cut behind the
 * first end token or at the limit. */
tpw_accepted tpw_accept(const int32_t *drafts, int32_t k, const int32_t *best, const tpw_run_rule *rule);

/* Most drafts worth verifying: no more than could still be emitted beside the certain token. */
int32_t tpw_draft_limit(int32_t draft_max, int32_t emitted, int32_t max_tokens);

#endif
