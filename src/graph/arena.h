/* A planned arena: measured first, allocated once, carved by bumping; nothing is freed before the whole.
 *
 * The same code carves twice: over a NULL base to learn the size, then over the real block. Plan and use cannot drift
 * apart that way. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_GRAPH_ARENA_H
#define TPW_GRAPH_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

#define TPW_ARENA_ALIGN 256

typedef struct tpw_arena {
    uint8_t *base; /* device memory, NULL while measuring */
    size_t bytes;  /* capacity; SIZE_MAX while measuring */
    size_t used;
    size_t peak;   /* largest `used`, since carving may go back to a mark */
    bool overflow; /* a size overflowed or the capacity was passed; sticky */
} tpw_arena;

/* An arena that only counts. */
tpw_arena tpw_arena_measure(void);

/* Allocates `bytes` on exec's device. On error *out is a zeroed arena. The caller ends it with tpw_arena_fini. */
tpw_status tpw_arena_init(tpw_arena *out, const tpw_exec *exec, size_t bytes, tpw_error *err) TPW_MUST_CHECK;
void tpw_arena_fini(tpw_arena *arena, const tpw_exec *exec);

/* Carves n elements of `size` bytes, aligned to TPW_ARENA_ALIGN. Returns NULL while measuring, and after an overflow. */
void *tpw_arena_take(tpw_arena *arena, int64_t count, size_t size);

/* Carves a [rows, cols] contiguous matrix. */
tpw_mat tpw_arena_mat(tpw_arena *arena, tpw_dtype dtype, int64_t rows, int64_t cols);

/* OK unless a carve overflowed; then ERR_LIMIT (measuring) or ERR_INTERNAL (the plan was too small) naming `what`. */
tpw_status tpw_arena_check(const tpw_arena *arena, const char *what, tpw_error *err) TPW_MUST_CHECK;

#endif
