/* Runs rows of a step through the model on this rank: trunk, head with the exchange of arg-max, MTP module.
 *
 * A pass owns the workspace (planned once) and borrows model, state and communicator. Every call is collective over the
 * communicator with the same batch on all ranks. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_PASS_H
#define TPW_MODEL_PASS_H

#include "graph/arena.h"
#include "model/state.h"
#include "model/weights.h"
#include "tp/comm.h"

/* Called with the residual stream [M, H] (act) of every row after the embedding (layer = -1) and after each layer, and with
 * the normed final hidden (layer = config.layers). For tests, dumps and probes; NULL in production. */
typedef void tpw_pass_tap(void *data, int32_t layer, const tpw_mat *rows);

/* Rows whose hidden digests are summed into one number a layer: a whole prompt chunk, or one row of a verified run. */
typedef struct tpw_hidden_group {
    int32_t row0;
    int32_t rows;
    int64_t pos; /* absolute position of the first row */
} tpw_hidden_group;

typedef struct tpw_pass_limits {
    int32_t rows_max;   /* M of one pass */
    int32_t logits_max; /* rows of one head call */
    tpw_dtype act;
} tpw_pass_limits;

/* Buffers of one pass; shapes with local widths. Attention and DeltaNet scratch and the MLP's share memory. */
typedef struct tpw_workspace {
    int32_t *ids;     /* [M] */
    tpw_mat h;        /* [M, H] act: residual stream */
    tpw_mat y;        /* [M, H] act: normed input of the next block; after the trunk: final hidden */
    tpw_mat sum;      /* [M, H] F32: partial, then all-reduced */
    tpw_mat qkv;      /* [M, C] act */
    tpw_mat conv;     /* [M, C] act */
    tpw_mat z;        /* [M, Vd] act */
    tpw_mat a;        /* [M, hv] F32 */
    tpw_mat b;        /* [M, hv] F32 */
    tpw_mat decay;    /* [M, hv] F32 */
    tpw_mat beta;     /* [M, hv] F32 */
    tpw_mat q32;      /* [M, Kd] F32 */
    tpw_mat k32;      /* [M, Kd] F32 */
    tpw_mat o;        /* [M, Vd] act */
    tpw_mat gated;    /* [M, Vd] act */
    tpw_mat qg;       /* [M, hq * 2D] act */
    tpw_mat k;        /* [M, hkv * D] act */
    tpw_mat v;        /* [M, hkv * D] act */
    tpw_mat q;        /* [M, hq * D] act */
    tpw_mat attended; /* [M, hq * D] act */
    tpw_mat gate;     /* [M, I] F32 */
    tpw_mat up;       /* [M, I] F32 */
    tpw_mat act;      /* [M, I] act */
    tpw_mat carry;    /* [M, H] act: hiddens gathered for the MTP module */
    tpw_mat join;     /* [M, 2H] act: MTP's normed embedding and hidden */
    int32_t *rows;    /* [R] */
    tpw_mat head_in;  /* [R, H] act */
    tpw_mat logits;   /* [R, vocab_local] F32 */
    float *value;     /* [R] */
    int32_t *best;    /* [R] */
} tpw_workspace;

typedef struct tpw_pass {
    tpw_model *model;
    tpw_state *state;
    const tpw_exec *exec;
    tpw_comm *comm;    /* of the exec's memory */
    tpw_comm *records; /* of host memory, for the exchange of arg-max; comm itself when that is host memory */
    tpw_pass_limits limits;
    tpw_arena arena;
    tpw_workspace ws;
    void *exchange;        /* host: records of the arg-max exchange, own and all ranks' */
    uint64_t *hidden_keys; /* [layers] digest keys of "hidden.L" */
    tpw_pass_tap *tap;
    void *tap_data;
} tpw_pass;

/* Workspace bytes of this rank. Pure. */
tpw_status tpw_pass_bytes(const tpw_config *config, const tpw_partition *part, const tpw_pass_limits *limits,
                          size_t *bytes, tpw_error *err) TPW_MUST_CHECK;

/* Local. All four must outlive the pass. */
tpw_status tpw_pass_create(tpw_model *model, tpw_state *state, tpw_comm *comm, const tpw_pass_limits *limits,
                           tpw_pass **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_pass_destroy(tpw_pass *pass); /* NULL allowed */

/* Runs batch.rows tokens `ids` (host, [M]) through all layers; state and KV move past the rows. Afterwards ws.y holds the final
 * hidden of every row. For each group its digests of "hidden.L" (element index position * H + h) are added to
 * sums[group * layers + L]; group_count may be 0. */
tpw_status tpw_pass_trunk(tpw_pass *pass, const tpw_batch *batch, const int32_t *ids, const tpw_hidden_group *groups,
                          int32_t group_count, uint64_t *sums, tpw_error *err) TPW_MUST_CHECK;

/* Moves the recurrent state of a slot in every layer from the committed mark `pos_before` to `pos`, after acceptance. */
tpw_status tpw_pass_commit(tpw_pass *pass, int32_t slot, int64_t pos_before, int64_t pos,
                           tpw_error *err) TPW_MUST_CHECK;

/* Arg-max over the whole vocabulary for `count` rows of ws.y (host indices); count may be 0. Every rank brings `agree`, which must
 * be the same everywhere: ERR_DIVERGED names the first rank that differs. ids[i] = -1 when a row held no number. */
tpw_status tpw_pass_head(tpw_pass *pass, const int32_t *rows, int32_t count, uint64_t agree, int32_t *ids,
                         float *values, tpw_error *err) TPW_MUST_CHECK;

/* The MTP module on batch.rows rows: row i joins the embedding of `ids[i]` (the token after its position) with row i of
 * `hidden` ([M, H] act, device, the trunk's final hidden or this module's own output). K/V go to the MTP pages at the
 * row's position. Afterwards ws.y holds the module's normed output. `hidden` may be ws.y itself. ERR_UNSUPPORTED without MTP. */
tpw_status tpw_pass_mtp(tpw_pass *pass, const tpw_batch *batch, const int32_t *ids, const tpw_mat *hidden,
                        tpw_error *err) TPW_MUST_CHECK;

/* ws.carry[i] = ws.y[rows[i]] for i < count (host indices): the hiddens that the MTP module takes next. */
tpw_status tpw_pass_carry(tpw_pass *pass, const int32_t *rows, int32_t count, tpw_error *err) TPW_MUST_CHECK;

/* Keeps ws.y[row] as the slot's MTP output; and brings the kept ones of `count` slots back to ws.y[0..count). */
tpw_status tpw_pass_keep_mtp(tpw_pass *pass, int32_t row, int32_t slot, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_pass_recall_mtp(tpw_pass *pass, const int32_t *slots, int32_t count, tpw_error *err) TPW_MUST_CHECK;

#endif
