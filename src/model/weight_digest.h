/* Digests of weights: the sum of every tensor over all its stored elements, from the bytes that a loader reads.
 *
 * "weights.<name>" (base/digest.h), bits: those of the file; index: row * columns + column in the stored shape. Every element has
 * one owner, the lowest rank that holds it, so that the owners' sums add up to the same digest for every number of ranks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_WEIGHT_DIGEST_H
#define TPW_MODEL_WEIGHT_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "model/checkpoint.h"
#include "model/config.h"

/* How the ranks hold a tensor. */
typedef enum tpw_weight_share {
    TPW_SHARE_CUT, /* every element on one rank */
    TPW_SHARE_KV,  /* by KV head: neighbours hold copies when there are more ranks than heads */
    TPW_SHARE_ALL  /* the whole on every rank */
} tpw_weight_share;

typedef struct tpw_weight_sum {
    const char *name;
    uint64_t key;
    bool loaded;    /* false for what the model leaves out by rule */
    int32_t copies; /* ranks rank / copies * copies .. + copies - 1 hold the same part; 1: this rank alone */
    uint64_t held;  /* over all that this rank holds */
    uint64_t owned; /* over what it owns */
} tpw_weight_sum;

/* The sums of one rank. */
typedef struct tpw_weight_sums {
    bool all;             /* false: only tensors of which other ranks hold copies */
    tpw_weight_sum *data; /* [count], in the checkpoint's order: by name */
    int32_t count;
    char *names;
} tpw_weight_sums;

/* Nothing loaded yet. Copies the names. */
tpw_status tpw_weight_sums_init(tpw_weight_sums *out, const tpw_checkpoint *checkpoint, bool all,
                                tpw_error *err) TPW_MUST_CHECK;
void tpw_weight_sums_fini(tpw_weight_sums *sums);

uint64_t tpw_weight_key(const char *name);

/* Vision tensors, and the lm_head.weight of a tied model: nobody loads them, they have no digest. Pure. */
bool tpw_weight_skipped(const tpw_config *config, const char *name);

/* The digest of a whole tensor, read for it. Local. */
tpw_status tpw_weight_digest_whole(tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor, uint64_t *out,
                                   tpw_error *err) TPW_MUST_CHECK;

#endif
