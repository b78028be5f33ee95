/* Byte-pair merges: the bytes of one piece of text to token ids, lowest rank first and leftmost among equals.
 * Knows ids and ranks, not files or strings. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_BPE_H
#define TPW_MODEL_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A growing list of ids. Zero-initialise; `data` is malloc'ed and its owner's to free. */
typedef struct tpw_ids {
    int32_t *data;
    size_t count;
    size_t capacity;
} tpw_ids;
tpw_status tpw_ids_push(tpw_ids *ids, int32_t id, tpw_error *err) TPW_MUST_CHECK;

struct tpw_bpe_pair;

/* The merges of one vocabulary. Read-only after it was filled, so that threads may share it. */
typedef struct tpw_bpe {
    struct tpw_bpe_pair *pairs; /* open addressing, mask + 1 slots, at most half of them in use */
    size_t mask;
    int32_t *result; /* [merges] the id that the merge of this rank gives */
    uint32_t merges;
    uint32_t merges_max;
    int32_t byte_id[256]; /* the tokens of single bytes */
} tpw_bpe;

/* Room for merges_max merges (below 2^31, else ERR_LIMIT). On failure nothing is left to give back. */
tpw_status tpw_bpe_init(tpw_bpe *bpe, const int32_t byte_id[256], size_t merges_max, tpw_error *err) TPW_MUST_CHECK;
/* Adds the merge of the next rank: left, right -> result. ERR_CHECKPOINT when this pair has a rank already. */
tpw_status tpw_bpe_add(tpw_bpe *bpe, int32_t left, int32_t right, int32_t result, tpw_error *err) TPW_MUST_CHECK;
void tpw_bpe_fini(tpw_bpe *bpe);

struct tpw_bpe_symbol;

/* Scratch of one encoding thread, kept from piece to piece. Zero-initialise. */
typedef struct tpw_bpe_work {
    struct tpw_bpe_symbol *symbols;
    size_t symbols_capacity;
    uint64_t *heap; /* rank << 32 | position of the left symbol */
    size_t heap_count;
    size_t heap_capacity;
} tpw_bpe_work;
void tpw_bpe_work_fini(tpw_bpe_work *work);

/* Appends the ids of `piece` to `ids`. O(n log n). ERR_LIMIT for a piece of 2^31 - 1 bytes or more. */
tpw_status tpw_bpe_encode(const tpw_bpe *bpe, tpw_bpe_work *work, const char *piece, size_t bytes, tpw_ids *ids,
                          tpw_error *err) TPW_MUST_CHECK;

#endif
