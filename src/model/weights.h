/* The weights of this rank: planned, carved from one arena, read shard by shard.
 *
 * FP8 stays FP8, BF16 stays BF16 (F16 becomes F32), small vectors are F32. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_WEIGHTS_H
#define TPW_MODEL_WEIGHTS_H

#include <stdbool.h>

#include "graph/pool.h"
#include "kernels/ops.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/partition.h"
#include "model/weight_digest.h"

/* One decoder layer; only the fields of its kind are set. Names follow the checkpoint. */
typedef struct tpw_layer_weights {
    tpw_layer_kind kind;
    float *input_norm; /* [H] */
    float *post_norm;  /* [H] */
    /* attention */
    tpw_weight q; /* [heads_local * 2D, H] */
    tpw_weight k; /* [kv_heads_local * D, H] */
    tpw_weight v;
    tpw_weight o;  /* [H, heads_local * D] */
    float *q_norm; /* [D] */
    float *k_norm; /* [D] */
    /* Gated DeltaNet */
    tpw_weight qkv;     /* [C, H] */
    tpw_weight z;       /* [Vd, H] */
    tpw_weight a;       /* [v_heads_local, H] */
    tpw_weight b;       /* [v_heads_local, H] */
    tpw_weight out;     /* [H, Vd] */
    float *conv;        /* [C, W] */
    float *a_log;       /* [v_heads_local] */
    float *dt_bias;     /* [v_heads_local] */
    float *linear_norm; /* [dv] */
    /* MLP */
    tpw_weight gate; /* [I, H] */
    tpw_weight up;
    tpw_weight down; /* [H, I] */
} tpw_layer_weights;

/* The multi-token-prediction module: one attention layer behind a join of embedding and hidden. */
typedef struct tpw_mtp_weights {
    float *norm_embedding; /* [H] */
    float *norm_hidden;    /* [H] */
    float *norm;           /* [H] */
    tpw_weight fc;         /* [H, 2H], embedding columns first; replicated */
    tpw_layer_weights layer;
} tpw_mtp_weights;

typedef struct tpw_model {
    tpw_config config;
    tpw_partition part;
    const tpw_exec *exec;
    tpw_pool *pool; /* of exec; owns the arena */
    tpw_arena arena;
    tpw_mat embed;             /* [vocab_local, H] */
    float *final_norm;         /* [H] */
    tpw_weight lm_head;        /* [vocab_local, H]; the embedding's memory when tied */
    tpw_layer_weights *layers; /* [config.layers], host memory */
    bool has_mtp;
    tpw_mtp_weights mtp;
    float *rope; /* [rope_positions, rope_dim/2, 2] */
    int32_t rope_positions;
} tpw_model;

/* Called now and then while loading: bytes of this rank's shard done and in all. May be NULL. */
typedef void tpw_load_progress(void *data, size_t bytes_done, size_t bytes_total);

/* Bytes of the weights of one rank in the layout of a backend (NULL: plain rows), from names and shapes alone: nothing is read.
 * Local. */
tpw_status tpw_model_bytes(const tpw_config *config, const tpw_partition *part, tpw_checkpoint *checkpoint,
                           const tpw_device *layout, int32_t rope_positions, size_t *bytes,
                           tpw_error *err) TPW_MUST_CHECK;

/* Reads the shard of `part` into memory of `pool`, which is that of exec and outlives the model. `rope` is the host table (tpw_rope_fill) that is copied to the device. Local; errors name
 * the tensor (expected and found shape or dtype). On success *out is the caller's, to be given to tpw_model_destroy. */
tpw_status tpw_model_load(const tpw_config *config, const tpw_partition *part, tpw_checkpoint *checkpoint,
                          const tpw_exec *exec, tpw_pool *pool, const float *rope, int32_t rope_positions,
                          tpw_load_progress *progress, void *progress_data, tpw_model **out,
                          tpw_error *err) TPW_MUST_CHECK;
/* The same, summing in `sums` (of this checkpoint; NULL: nothing) what is read. */
tpw_status tpw_model_load_summed(const tpw_config *config, const tpw_partition *part, tpw_checkpoint *checkpoint,
                                 const tpw_exec *exec, tpw_pool *pool, const float *rope, int32_t rope_positions,
                                 tpw_load_progress *progress, void *progress_data, tpw_weight_sums *sums,
                                 tpw_model **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_model_destroy(tpw_model *model); /* NULL allowed */

#endif
