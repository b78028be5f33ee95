/* Runs rows of a step through the model on this rank: trunk, head with the exchange of arg-max, MTP module, accept, commit.
 *
 * A pass owns the workspace (planned once) and borrows model, state and communicator. Every call is collective over the communicator
 * with the same batch on all ranks, enqueues and returns: what the calls take of a step stands in io.host before tpw_pass_send, what they
 * give is there after tpw_pass_fetch, and between the two the host waits for nothing. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_PASS_H
#define TPW_MODEL_PASS_H

#include "graph/arena.h"
#include "model/state.h"
#include "model/step_io.h"
#include "model/weights.h"
#include "tp/comm.h"

/* Called with the residual stream [M, H] (act) of every row after the embedding (layer = -1) and after each layer, and with
 * the normed final hidden (layer = config.layers). For tests, dumps and probes; NULL in production. */
typedef void tpw_pass_tap(void *data, int32_t layer, const tpw_mat *rows);

typedef struct tpw_pass_limits {
    int32_t rows_max;    /* M of one pass */
    int32_t logits_max;  /* rows of one head call */
    int32_t entries_max; /* sequences of one step */
    int32_t drafts_max;  /* K of the MTP chain; 0: none */
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
    tpw_mat head_in;  /* [R, H] act */
    tpw_mat logits;   /* [R, vocab_local] F32 */
    float *value;     /* [R] */
    int32_t *best;    /* [R]: of this rank's part of the vocabulary */
} tpw_workspace;

typedef struct tpw_pass {
    tpw_model *model;
    tpw_state *state;
    const tpw_exec *exec;
    tpw_comm *comm; /* of the exec's memory */
    tpw_pass_limits limits;
    tpw_io_limits io_limits;
    tpw_arena arena;
    tpw_workspace ws;
    struct {
        tpw_step_io host;
        tpw_step_io device;
        tpw_arena memory; /* of host */
    } io;
    uint64_t *hidden_keys; /* [layers] digest keys of "hidden.L" */
    tpw_pass_tap *tap;
    void *tap_data;
} tpw_pass;

/* Workspace bytes of this rank, and those of host memory. Pure. */
tpw_status tpw_pass_bytes(const tpw_config *config, const tpw_partition *part, const tpw_pass_limits *limits,
                          size_t *bytes, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_pass_host_bytes(const tpw_config *config, const tpw_partition *part, const tpw_pass_limits *limits,
                               size_t *bytes, tpw_error *err) TPW_MUST_CHECK;

/* Local. All four must outlive the pass. */
tpw_status tpw_pass_create(tpw_model *model, tpw_state *state, tpw_comm *comm, const tpw_pass_limits *limits,
                           tpw_pass **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_pass_destroy(tpw_pass *pass); /* NULL allowed */

/* Local. Checks a batch of this step and makes it known to the device; it must stay as it is until the last op that is given it. At most drafts_max + 1 in a
 * step. */
tpw_status tpw_pass_stage(tpw_pass *pass, const tpw_batch *batch, tpw_error *err) TPW_MUST_CHECK;

/* Local. Sends what io.host holds. Its tokens of `rows` rows and behind `entries` entries are checked: ERR_ARGUMENT outside the vocabulary. */
tpw_status tpw_pass_send(tpw_pass *pass, int32_t rows, int32_t entries, tpw_error *err) TPW_MUST_CHECK;

/* Index arrays of the calls below are the device's (io.device). */

/* Runs the batch's rows, row i with the token at ids[i], through all layers; state and KV move past the rows. Afterwards ws.y holds the
 * final hidden of every row and, with `digests`, io.hidden their digests of "hidden.L" (element index position * H + h). */
tpw_status tpw_pass_trunk(tpw_pass *pass, const tpw_batch *batch, const int32_t *ids, bool digests,
                          tpw_error *err) TPW_MUST_CHECK;

/* Adds the digest of the trunk's ids and hiddens to what is agreed on with the verify. Right after a trunk with digests. */
tpw_status tpw_pass_agree(tpw_pass *pass, int32_t rows, tpw_error *err) TPW_MUST_CHECK;

/* Arg-max over the whole vocabulary for `count` rows of ws.y (rows == NULL: the first; count may be 0) into io.best and, with 0 for none,
 * tokens at to[i]. Exchange `exchange` of the step: its agree words and logits reach all ranks. */
tpw_status tpw_pass_head(tpw_pass *pass, int32_t exchange, const int32_t *rows, int32_t count, const int32_t *to,
                         tpw_error *err) TPW_MUST_CHECK;

/* accept: what io.entries commit, into io.taken and io.last, with the end tokens of `config`. commit: moves the recurrent state of the
 * batch's slots in every layer to the new marks, taken[i] rows of segment i. */
tpw_status tpw_pass_accept(tpw_pass *pass, const tpw_config *config, int32_t count, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_pass_commit(tpw_pass *pass, const tpw_batch *batch, const int32_t *taken, tpw_error *err) TPW_MUST_CHECK;

/* The MTP module on the batch's rows: row i joins the embedding of the token at ids[i] (the one after its position) with row i of
 * `hidden` ([M, H] act, device, the trunk's final hidden or this module's own output). K/V go to the MTP pages at the
 * row's position. Afterwards ws.y holds the module's normed output. `hidden` may be ws.y itself. ERR_UNSUPPORTED without MTP. */
tpw_status tpw_pass_mtp(tpw_pass *pass, const tpw_batch *batch, const int32_t *ids, const tpw_mat *hidden,
                        tpw_error *err) TPW_MUST_CHECK;

/* ws.carry[i] = ws.y[rows[i]] for i < count: the hiddens that the MTP module takes next. */
tpw_status tpw_pass_carry(tpw_pass *pass, const int32_t *rows, int32_t count, tpw_error *err) TPW_MUST_CHECK;

/* Keeps ws.y[rows[i]] as the MTP output of slots[i]; and brings the kept ones of `count` slots back to ws.y[0..count). */
tpw_status tpw_pass_keep_mtp(tpw_pass *pass, const int32_t *rows, const int32_t *slots, int32_t count,
                             tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_pass_recall_mtp(tpw_pass *pass, const int32_t *slots, int32_t count, tpw_error *err) TPW_MUST_CHECK;

/* The one wait of a step: everything enqueued is done and io.host holds what was given, hiddens of `rows` rows too. A peer's failure that
 * is heard of ends it early; ERR_PEER past the boot's deadline, naming rank, GPU and step. */
tpw_status tpw_pass_fetch(tpw_pass *pass, int32_t rows, tpw_error *err) TPW_MUST_CHECK;

/* Local, of what was fetched: ERR_DIVERGED names the first rank that brought another agree word into the exchange of `count` rows. */
tpw_status tpw_pass_compare(const tpw_pass *pass, int32_t exchange, int32_t count, tpw_error *err) TPW_MUST_CHECK;

#endif
