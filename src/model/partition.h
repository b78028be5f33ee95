/* Which heads, channels and rows of a model belong to a rank. Pure. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_PARTITION_H
#define TPW_MODEL_PARTITION_H

#include <stdbool.h>

#include "model/config.h"
#include "tp/shard.h"

typedef struct tpw_partition {
    int rank;
    int size;
    tpw_span heads;    /* attention query heads */
    tpw_span kv_heads; /* replicated when there are more ranks than kv heads */
    bool kv_owner;     /* lowest rank that holds this kv head: it alone adds to global digests */
    tpw_span k_heads;  /* linear key heads */
    tpw_span v_heads;  /* linear value heads: those of k_heads */
    tpw_span inter;    /* MLP rows */
    tpw_span vocab;    /* ceil parts; may be shorter or empty on the last ranks */
} tpw_partition;

/* ERR_ARGUMENT for a size other than 1, 2, 4, 8; ERR_UNSUPPORTED naming the dimension that the size does not divide, or the
 * row-parallel K that 8 slices do not divide (needed above size 1). */
tpw_status tpw_partition_make(const tpw_config *config, int rank, int size, tpw_partition *out,
                              tpw_error *err) TPW_MUST_CHECK;

/* Widths that follow from it. */
static inline int32_t tpw_key_width(const tpw_config *c, const tpw_partition *p)
{
    return p->k_heads.count * c->linear_k_dim;
}

static inline int32_t tpw_value_width(const tpw_config *c, const tpw_partition *p)
{
    return p->v_heads.count * c->linear_v_dim;
}

/* Conv channels of this rank: its q heads | its k heads | its v heads. */
static inline int32_t tpw_conv_channels(const tpw_config *c, const tpw_partition *p)
{
    return 2 * tpw_key_width(c, p) + tpw_value_width(c, p);
}

/* The three row spans of in_proj_qkv (and channels of conv1d) that are this rank's, in the order q, k, v; global rows. */
void tpw_qkv_spans(const tpw_config *config, const tpw_partition *partition, tpw_span out[3]);

#endif
