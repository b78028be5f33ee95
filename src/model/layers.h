/* One decoder layer as a sequence of ops: what the trunk and the MTP module share. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_LAYERS_H
#define TPW_MODEL_LAYERS_H

#include "model/pass.h"

/* Views of the first M rows of a workspace matrix. */
static inline tpw_mat tpw_head_rows(tpw_mat m, int32_t rows)
{
    m.rows = rows;
    return m;
}

/* ws.y = W-projected mixer output is left, all-reduced, in ws.sum. Input: ws.y (normed). */
tpw_status tpw_layer_deltanet(tpw_pass *pass, const tpw_batch *batch, const tpw_layer_weights *w,
                              const tpw_layer_state *state, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_layer_attention(tpw_pass *pass, const tpw_batch *batch, const tpw_layer_weights *w, const tpw_kv *kv,
                               tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_layer_mlp(tpw_pass *pass, const tpw_batch *batch, const tpw_layer_weights *w,
                         tpw_error *err) TPW_MUST_CHECK;

/* ws.h += ws.sum (when add), then ws.y = norm(ws.h). */
tpw_status tpw_layer_norm(tpw_pass *pass, int32_t rows, const float *weight, bool add, tpw_error *err) TPW_MUST_CHECK;

/* A whole layer: ws.y = norm(ws.h) is given; afterwards ws.sum holds the MLP's all-reduced output, not yet added. */
tpw_status tpw_layer_run(tpw_pass *pass, const tpw_batch *batch, const tpw_layer_weights *w,
                         const tpw_layer_state *state, const tpw_kv *kv, tpw_error *err) TPW_MUST_CHECK;

#endif
