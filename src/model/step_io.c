/* Lays out what a step sends and fetches. SPDX-License-Identifier: Apache-2.0 */
#include "model/step_io.h"

#include "base/checked.h"

int32_t tpw_io_behind(const tpw_io_limits *limits, int32_t entry)
{
    return limits->rows + entry;
}

int32_t tpw_io_draft(const tpw_io_limits *limits, int32_t entry, int32_t draft)
{
    return limits->rows + limits->entries + entry * TPW_DRAFT_MAX + draft;
}

int32_t tpw_io_best(const tpw_io_limits *limits, int32_t row)
{
    return tpw_io_draft(limits, limits->entries, 0) + row;
}

int32_t tpw_io_tokens(const tpw_io_limits *limits)
{
    return tpw_io_best(limits, limits->logits);
}

static int64_t record_words(const tpw_io_limits *limits, int32_t rows)
{
    return (int64_t)limits->ranks * (1 + (int64_t)rows);
}

/* Of all exchanges; -1, which no arena gives, when there are too many. */
static int64_t all_record_words(const tpw_io_limits *limits)
{
    int64_t drafts, all;

    if (!tpw_mul_i64(record_words(limits, limits->entries), limits->drafts, &drafts) ||
        !tpw_add_i64(drafts, record_words(limits, limits->logits), &all))
        return -1;
    return all;
}

uint64_t *tpw_io_records(const tpw_io_limits *limits, const tpw_step_io *io, int32_t i)
{
    return io->records + i * record_words(limits, limits->entries);
}

void tpw_step_io_carve(const tpw_io_limits *limits, tpw_arena *arena, tpw_step_io *out)
{
    const int64_t M = limits->rows, R = limits->logits, S = limits->entries, K = limits->drafts;

    out->agree = tpw_arena_take(arena, K + 1, sizeof *out->agree);
    out->recall = tpw_arena_take(arena, S, sizeof *out->recall);
    out->chain_rows = tpw_arena_take(arena, K * S, sizeof *out->chain_rows);
    out->chain_ids = tpw_arena_take(arena, K * S, sizeof *out->chain_ids);
    out->chain_to = tpw_arena_take(arena, K * S, sizeof *out->chain_to);
    out->row_ids = tpw_arena_take(arena, M, sizeof *out->row_ids);
    out->next_ids = tpw_arena_take(arena, M, sizeof *out->next_ids);
    out->logit_rows = tpw_arena_take(arena, R, sizeof *out->logit_rows);
    out->best_to = tpw_arena_take(arena, R, sizeof *out->best_to);
    out->slots = tpw_arena_take(arena, S, sizeof *out->slots);
    out->entries = tpw_arena_take(arena, S, sizeof *out->entries);
    out->tokens = tpw_arena_take(arena, M + S + S * TPW_DRAFT_MAX + R, sizeof *out->tokens);
    out->best = tpw_arena_take(arena, R, sizeof *out->best);
    out->taken = tpw_arena_take(arena, S, sizeof *out->taken);
    out->last = tpw_arena_take(arena, S, sizeof *out->last);
    out->records = tpw_arena_take(arena, all_record_words(limits), sizeof *out->records);
    out->hidden = tpw_arena_take(arena, M * limits->layers, sizeof *out->hidden);
}

tpw_status tpw_step_io_bytes(const tpw_io_limits *limits, size_t *bytes, tpw_error *err)
{
    tpw_arena arena = tpw_arena_measure();
    tpw_step_io io;

    tpw_step_io_carve(limits, &arena, &io);
    TPW_TRY(tpw_arena_check(&arena, "what a step sends and fetches", err));
    *bytes = arena.peak;
    return TPW_OK;
}

size_t tpw_step_io_sent(const tpw_io_limits *limits, const tpw_step_io *io)
{
    return (size_t)((const char *)(io->tokens + tpw_io_draft(limits, 0, 0)) - (const char *)io->agree);
}
