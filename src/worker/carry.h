/* State at rest: the digest of what this rank last wrote of every slot, layer and page, and its recomputation from memory.
 *
 * Sharded state has one copy; its only twin is time. A difference between what was written and what is there is corruption at
 * rest, and is named by rank, scope, layer and slot. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_CARRY_H
#define TPW_WORKER_CARRY_H

#include "kernels/digest_list.h"
#include "model/state.h"
#include "worker/sequence.h"

/* One comparison of a check. */
typedef struct tpw_carry_found {
    const char *scope;
    int32_t layer;
    uint64_t now;
    uint64_t then;
} tpw_carry_found;

typedef struct tpw_carry {
    const tpw_state *state; /* borrowed */
    uint64_t *matrix;       /* [slots + 1, layers] of S */
    uint64_t *rows;         /* [slots + 1, layers, TPW_GDN_RING] of k, u, decay */
    uint64_t *conv;         /* [slots + 1, layers, TPW_CONV_RING] */
    uint64_t *kv;           /* [pages + 1, layers] running sums over committed positions */
    tpw_digest_list list;   /* noted, not computed yet */
    tpw_carry_found *found; /* [found_room] */
    int32_t found_count;
    int32_t found_room;
} tpw_carry;

tpw_status tpw_carry_init(tpw_carry *out, const tpw_state *state, tpw_error *err) TPW_MUST_CHECK;
void tpw_carry_fini(tpw_carry *carry);

/* Lists what the step wrote for positions [pos_before, sequence->pos) of the sequence. Local, right after the commit; flush, before
 * anything is written again, computes what all sequences of the step have listed, together. */
tpw_status tpw_carry_note(tpw_carry *carry, const tpw_sequence *sequence, int64_t pos_before,
                          tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_carry_flush(tpw_carry *carry, tpw_error *err) TPW_MUST_CHECK;

/* Recomputes the recurrent state alone: due before a step that will overwrite S, since what is written then would hide what
 * was wrong. Errors as below. Local. */
tpw_status tpw_carry_check_recurrent(tpw_carry *carry, const tpw_sequence *sequence, tpw_error *err) TPW_MUST_CHECK;

/* Recomputes everything of the sequence from memory. ERR_DIVERGED names scope, layer, slot (or page), sequence and position. Local. */
tpw_status tpw_carry_check(tpw_carry *carry, const tpw_sequence *sequence, tpw_error *err) TPW_MUST_CHECK;

#endif
