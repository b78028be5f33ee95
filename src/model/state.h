/* What sequences leave behind on this rank: recurrent state and conv windows by slot, K/V by page, for every layer.
 *
 * Slot 0 and page 0 are read-only zeros. Nothing here knows which sequence owns what: that is the worker's ledger.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_STATE_H
#define TPW_MODEL_STATE_H

#include "graph/pool.h"
#include "kernels/digest_list.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/partition.h"

typedef struct tpw_layer_state {
    tpw_gdn_state gdn;   /* DeltaNet layers */
    tpw_conv_state conv; /* DeltaNet layers */
    tpw_kv kv;           /* attention layers */
} tpw_layer_state;

typedef struct tpw_state_limits {
    int32_t slots;     /* sequences at once, without slot 0 */
    int32_t pages;     /* KV pages, without page 0 */
    int32_t page_size; /* positions a page: a power of two, 1..256 */
    tpw_dtype act;     /* F32 or BF16: KV and conv windows */
    bool mtp;          /* K/V of the MTP layer too */
} tpw_state_limits;

typedef struct tpw_state {
    const tpw_exec *exec;
    tpw_pool *pool;            /* of exec; owns the arena */
    const tpw_config *config;  /* borrowed */
    const tpw_partition *part; /* borrowed */
    tpw_state_limits limits;
    tpw_arena arena;
    tpw_layer_state *layers; /* [config.layers], host memory */
    tpw_kv mtp;
    tpw_mat mtp_hidden; /* [slots + 1, H] act: the MTP module's output of each slot's last committed row; replicated */
} tpw_state;

/* Bytes by kind, from shapes alone. Pure. */
typedef struct tpw_state_bytes {
    size_t recurrent;
    size_t conv;
    size_t kv;
    size_t total; /* with padding */
} tpw_state_bytes;
tpw_status tpw_state_plan(const tpw_config *config, const tpw_partition *part, const tpw_state_limits *limits,
                          tpw_state_bytes *out, tpw_error *err) TPW_MUST_CHECK;

/* Local. config, part, exec and its pool must outlive the state. */
tpw_status tpw_state_create(const tpw_config *config, const tpw_partition *part, const tpw_state_limits *limits,
                            const tpw_exec *exec, tpw_pool *pool, tpw_state **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_state_destroy(tpw_state *state); /* NULL allowed */

/* Fills a slot of every layer, or a page of every layer, with one byte: tests poison what is free with 0xFF (NaN). */
tpw_status tpw_state_fill_slot(tpw_state *state, int32_t slot, int byte, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_state_fill_page(tpw_state *state, int32_t page, int byte, tpw_error *err) TPW_MUST_CHECK;

/* List what makes this rank's share of the global digest of one scope for the sequence in `slot`/`pages` at committed position `pos`;
 * *out is zeroed, and holds it once the list has run.
 * Only owners add. Indices are global and follow the documented shapes:
 *   conv.L       [C_conv, W-1], oldest first; positions before the start are zero
 *   recurrent.L  S [v heads, dk, dv] at floor16(pos), then k rows [16, k heads, dk], u rows [16, v heads, dv], decays
 *                [16, v heads] of the pos mod 16 rows since
 *   kv.L         K [positions, kv heads, D], then V at index + 2^40
 * The key is that of the scope's name, "conv.3" and so on; MTP: "mtp". Local. */
tpw_status tpw_state_list_conv(const tpw_state *state, tpw_digest_list *list, int32_t layer, int32_t slot, int64_t pos,
                               uint64_t *out, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_state_list_recurrent(const tpw_state *state, tpw_digest_list *list, int32_t layer, int32_t slot,
                                    int64_t pos, uint64_t *out, tpw_error *err) TPW_MUST_CHECK;
/* layer = config.layers names the MTP layer, whose scope is "mtp". */
tpw_status tpw_state_list_kv(const tpw_state *state, tpw_digest_list *list, int32_t layer, const int32_t *pages,
                             int64_t pos, uint64_t *out, tpw_error *err) TPW_MUST_CHECK;

#endif
