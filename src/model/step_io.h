/* What a step sends to the device before its first op and fetches behind its last one: one block, once in the device's memory and
 * once, with the same layout, in the host's.
 *
 * Places are fixed by the limits, so that they are the same in every step. `tokens` holds what is embedded: those that the host knows
 * and those that arg-max gives, so that rows name theirs by index before they are known. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_STEP_IO_H
#define TPW_MODEL_STEP_IO_H

#include "graph/arena.h"

typedef struct tpw_io_limits {
    int32_t rows;    /* M of a step */
    int32_t logits;  /* R of a head call */
    int32_t entries; /* S: sequences of a step */
    int32_t drafts;  /* K of the MTP chain; 0: no chain */
    int32_t ranks;
    int32_t layers;
} tpw_io_limits;

typedef struct tpw_step_io {
    /* sent */
    uint64_t *agree;     /* [K + 1]: what ranks must agree on in each exchange; the last one is that of the verify */
    int32_t *recall;     /* [S]: slots whose kept MTP output begins a chain */
    int32_t *chain_rows; /* [K, S]: rows of ws.y that go on to draft d; those of d = 0 are not used */
    int32_t *chain_ids;  /* [K, S]: where in tokens the id of a row stands */
    int32_t *chain_to;   /* [K, S]: where in tokens a draft goes */
    int32_t *row_ids;    /* [M]: where in tokens the id of a row stands */
    int32_t *next_ids;   /* [M]: and that of the token behind it */
    int32_t *logit_rows; /* [R] */
    int32_t *best_to;    /* [R]: where in tokens the arg-max of a logit row goes */
    int32_t *slots;      /* [S] by entry */
    tpw_accept_entry *entries; /* [S] */
    int32_t *
        tokens; /* [M] ids of rows and [S] behind the last row of an entry, known to the host; not sent: [S, TPW_DRAFT_MAX]
                        drafts, [R] arg-max */
    /* fetched, and the unsent part of tokens before it */
    int32_t *best;     /* [R]: arg-max of each logit row, -1: no number */
    int32_t *taken;    /* [S]: rows that the step commits */
    int32_t *last;     /* [S]: the last of them */
    uint64_t *records; /* [K][ranks, 1 + S] of the drafts, [ranks, 1 + R] of the verify; rows as many as there were */
    uint64_t *hidden;  /* [layers, rows of the step]: digests of each row behind each layer */
} tpw_step_io;

/* Carves the block. The same over an arena that measures, one of device memory and one of host memory. */
void tpw_step_io_carve(const tpw_io_limits *limits, tpw_arena *arena, tpw_step_io *out);

/* Places in tokens: the first of those behind entries, of drafts, of arg-max, and the end. Pure. */
int32_t tpw_io_behind(const tpw_io_limits *limits, int32_t entry);
int32_t tpw_io_draft(const tpw_io_limits *limits, int32_t entry, int32_t draft);
int32_t tpw_io_best(const tpw_io_limits *limits, int32_t row);
int32_t tpw_io_tokens(const tpw_io_limits *limits);

/* Records of exchange `i` of K + 1. Pure. */
uint64_t *tpw_io_records(const tpw_io_limits *limits, const tpw_step_io *io, int32_t i);

/* Bytes of the block, and of what is sent of it. OK unless that overflows. */
tpw_status tpw_step_io_bytes(const tpw_io_limits *limits, size_t *bytes, tpw_error *err) TPW_MUST_CHECK;
size_t tpw_step_io_sent(const tpw_io_limits *limits, const tpw_step_io *io);

#endif
