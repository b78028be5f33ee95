/* A planned arena: measured first, allocated once, carved by bumping. SPDX-License-Identifier: Apache-2.0 */
#include "graph/arena.h"

#include "base/checked.h"

tpw_arena tpw_arena_measure(void)
{
    return (tpw_arena){.bytes = SIZE_MAX};
}

tpw_status tpw_arena_init(tpw_arena *out, const tpw_exec *exec, size_t bytes, tpw_error *err)
{
    void *base = NULL;

    *out = (tpw_arena){0};
    TPW_TRY(exec->device->alloc(exec, bytes > 0 ? bytes : 1, &base, err));
    *out = (tpw_arena){.base = base, .bytes = bytes};
    return TPW_OK;
}

void tpw_arena_fini(tpw_arena *arena, const tpw_exec *exec)
{
    if (arena->base != NULL)
        exec->device->free(exec, arena->base);
    *arena = (tpw_arena){0};
}

void *tpw_arena_take(tpw_arena *arena, int64_t count, size_t size)
{
    size_t bytes, begin, end;

    if (count < 0 || !tpw_mul_size((size_t)count, size, &bytes) ||
        !tpw_align_size(arena->used, TPW_ARENA_ALIGN, &begin) || !tpw_add_size(begin, bytes, &end) ||
        end > arena->bytes) {
        arena->overflow = true;
        return NULL;
    }
    arena->used = end;
    if (end > arena->peak)
        arena->peak = end;
    return arena->base != NULL && !arena->overflow ? arena->base + begin : NULL;
}

tpw_mat tpw_arena_mat(tpw_arena *arena, tpw_dtype dtype, int64_t rows, int64_t cols)
{
    int64_t count;

    if (rows < 0 || cols < 0 || rows > INT32_MAX || cols > INT32_MAX || !tpw_mul_i64(rows, cols, &count)) {
        arena->overflow = true;
        return (tpw_mat){0};
    }
    return (tpw_mat){.data = tpw_arena_take(arena, count, tpw_dtype_size(dtype)),
                     .dtype = dtype,
                     .rows = (int32_t)rows,
                     .cols = (int32_t)cols,
                     .stride = cols};
}

tpw_status tpw_arena_check(const tpw_arena *arena, const char *what, tpw_error *err)
{
    if (!arena->overflow)
        return TPW_OK;
    if (arena->base == NULL)
        return tpw_fail(err, TPW_ERR_LIMIT, "%s: the planned size does not fit into memory addresses", what);
    return tpw_fail(err, TPW_ERR_INTERNAL, "%s: planned %zu bytes were not enough", what, arena->bytes);
}
