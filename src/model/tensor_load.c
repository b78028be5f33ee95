/* Reads one tensor's local part into the weight arena. SPDX-License-Identifier: Apache-2.0 */
#include "model/tensor_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define STAGING_BYTES ((size_t)16 << 20)
#define BLOCK         128

tpw_status tpw_loader_init(tpw_loader *out, const tpw_config *config, const tpw_partition *part,
                           tpw_checkpoint *checkpoint, const tpw_exec *exec, tpw_arena *arena, tpw_error *err)
{
    *out = (tpw_loader){.config = config,
                        .part = part,
                        .checkpoint = checkpoint,
                        .exec = exec,
                        .arena = arena,
                        .staging_bytes = STAGING_BYTES,
                        .err = err};
    out->staging = malloc(STAGING_BYTES);
    if (out->staging == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %zu bytes of load buffer", STAGING_BYTES);
    return TPW_OK;
}

void tpw_loader_fini(tpw_loader *loader)
{
    free(loader->staging);
    loader->staging = NULL;
}

/* Finds prefix + name and checks its shape. */
static tpw_status find(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                       tpw_tensor_info *out)
{
    char full[TPW_TENSOR_NAME_MAX];

    snprintf(full, sizeof full, "%s%s", prefix, name);
    if (!tpw_checkpoint_find(l->checkpoint, full, out))
        return tpw_fail(l->err, TPW_ERR_CHECKPOINT, "%s: tensor %s is missing", tpw_checkpoint_path(l->checkpoint),
                        full);
    if (out->rows != rows || out->cols != cols)
        return tpw_fail(l->err, TPW_ERR_CHECKPOINT, "%s: tensor %s is [%lld, %lld], config.json asks for [%lld, %lld]",
                        tpw_checkpoint_path(l->checkpoint), full, (long long)out->rows, (long long)out->cols,
                        (long long)rows, (long long)cols);
    return TPW_OK;
}

/* Reads a block through the staging buffer to device memory `to`, as stored or as F32. */
static tpw_status read_block(tpw_loader *l, const tpw_tensor_info *t, tpw_span rows, int64_t col0, int64_t cols,
                             bool as_f32, char *to)
{
    size_t size = as_f32 ? sizeof(float) : tpw_dtype_size(t->dtype);
    size_t row_bytes;
    int64_t step;

    if (cols == 0 || rows.count == 0) {
        tpw_checkpoint_mark(l->checkpoint, t);
        return TPW_OK;
    }
    if (!tpw_mul_size((size_t)cols, size, &row_bytes) || row_bytes > l->staging_bytes)
        return tpw_fail(l->err, TPW_ERR_LIMIT, "tensor %s: a row of %lld elements is longer than the load buffer",
                        t->name, (long long)cols);
    step = (int64_t)(l->staging_bytes / row_bytes);
    for (int64_t r = 0; r < rows.count; r += step) {
        int64_t n = rows.count - r < step ? rows.count - r : step;

        if (as_f32)
            TPW_TRY(tpw_checkpoint_read_f32(l->checkpoint, t, rows.begin + r, n, col0, cols, l->staging, cols, l->err));
        else
            TPW_TRY(tpw_checkpoint_read(l->checkpoint, t, rows.begin + r, n, col0, cols, l->staging, cols, l->err));
        TPW_TRY(
            l->exec->device->upload(l->exec, to + (size_t)r * row_bytes, l->staging, (size_t)n * row_bytes, l->err));
        if (l->progress != NULL)
            l->progress(l->progress_data, l->arena->used, l->arena->bytes);
    }
    return TPW_OK;
}

/* Reads several row spans one after the other. */
static tpw_status read_spans(tpw_loader *l, const tpw_tensor_info *t, const tpw_span *spans, int span_count,
                             int64_t col0, int64_t cols, bool as_f32, void *to)
{
    size_t row_bytes = (size_t)cols * (as_f32 ? sizeof(float) : tpw_dtype_size(t->dtype));
    char *at = to;

    if (l->arena->base == NULL || to == NULL)
        return TPW_OK;
    for (int i = 0; i < span_count; i++) {
        TPW_TRY(read_block(l, t, spans[i], col0, cols, as_f32, at));
        at += (size_t)spans[i].count * row_bytes;
    }
    return TPW_OK;
}

/* Block rows or columns touched by a span. */
static tpw_span blocks_of(tpw_span span)
{
    int32_t first = span.begin / BLOCK;

    return (tpw_span){first, span.count == 0 ? 0 : (span.begin + span.count + BLOCK - 1) / BLOCK - first};
}

/* Local row -> row of the local scale table; a cut block's scale is held by both of its ranks. */
static tpw_status upload_scale_rows(tpw_loader *l, const tpw_span *spans, int span_count, int32_t rows, int32_t *to)
{
    int32_t *map = l->staging;
    int32_t base = 0, at = 0;

    if (l->arena->base == NULL || to == NULL)
        return TPW_OK;
    if ((size_t)rows * sizeof *map > l->staging_bytes)
        return tpw_fail(l->err, TPW_ERR_LIMIT, "a weight of %d rows is larger than the load buffer", rows);
    for (int i = 0; i < span_count; i++) {
        tpw_span blocks = blocks_of(spans[i]);

        for (int32_t r = 0; r < spans[i].count; r++)
            map[at++] = base + (spans[i].begin + r) / BLOCK - blocks.begin;
        base += blocks.count;
    }
    return l->exec->device->upload(l->exec, to, map, (size_t)rows * sizeof *map, l->err);
}

/* The block scales of an FP8 weight, as F32, cut like the weight. */
static tpw_status load_scales(tpw_loader *l, const tpw_tensor_info *weight, const tpw_span *spans, int span_count,
                              tpw_span cols, tpw_weight *w)
{
    char name[TPW_TENSOR_NAME_MAX];
    tpw_span row_blocks[4], col_blocks = blocks_of(cols);
    int64_t table_rows = 0;
    tpw_tensor_info info;
    float *scale;
    int32_t *rows;

    snprintf(name, sizeof name, "%s_scale_inv", weight->name);
    TPW_TRY(find(l, "", name, (weight->rows + BLOCK - 1) / BLOCK, (weight->cols + BLOCK - 1) / BLOCK, &info));
    for (int i = 0; i < span_count; i++) {
        row_blocks[i] = blocks_of(spans[i]);
        table_rows += row_blocks[i].count;
    }
    scale = tpw_arena_take(l->arena, table_rows * col_blocks.count, sizeof *scale);
    rows = tpw_arena_take(l->arena, w->rows, sizeof *rows);
    TPW_TRY(read_spans(l, &info, row_blocks, span_count, col_blocks.begin, col_blocks.count, true, scale));
    TPW_TRY(upload_scale_rows(l, spans, span_count, w->rows, rows));
    w->scale = scale;
    w->scale_row = rows;
    w->scale_cols = col_blocks.count;
    return TPW_OK;
}

static tpw_status load_matrix(tpw_loader *l, const tpw_tensor_info *info, const tpw_span *spans, int span_count,
                              tpw_span cols, tpw_weight *out)
{
    bool as_f32 = info->dtype == TPW_F16 || info->dtype == TPW_F32;
    tpw_weight w = {.cols = cols.count, .col0 = cols.begin, .cols_global = (int32_t)info->cols};
    void *data;

    if (!as_f32 && info->dtype != TPW_BF16 && info->dtype != TPW_E4M3)
        return tpw_fail(l->err, TPW_ERR_CHECKPOINT,
                        "%s: tensor %s has dtype %s; F8_E4M3, BF16, F16 and F32 are supported",
                        tpw_checkpoint_path(l->checkpoint), info->name, tpw_dtype_name(info->dtype));
    for (int i = 0; i < span_count; i++)
        w.rows += spans[i].count;
    w.dtype = as_f32 ? TPW_F32 : info->dtype;
    data = tpw_arena_take(l->arena, (int64_t)w.rows * w.cols, tpw_dtype_size(w.dtype));
    TPW_TRY(read_spans(l, info, spans, span_count, cols.begin, cols.count, as_f32, data));
    w.data = data;
    if (w.dtype == TPW_E4M3)
        TPW_TRY(load_scales(l, info, spans, span_count, cols, &w));
    *out = w;
    return TPW_OK;
}

tpw_status tpw_load_rows(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                         const tpw_span *spans, int span_count, tpw_weight *out)
{
    tpw_tensor_info info;

    TPW_TRY(find(l, prefix, name, rows, cols, &info));
    return load_matrix(l, &info, spans, span_count, (tpw_span){0, (int32_t)cols}, out);
}

tpw_status tpw_load_cols(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols, tpw_span span,
                         tpw_weight *out)
{
    tpw_span all = {0, (int32_t)rows};
    tpw_tensor_info info;

    TPW_TRY(find(l, prefix, name, rows, cols, &info));
    return load_matrix(l, &info, &all, 1, span, out);
}

tpw_status tpw_load_table(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                          const tpw_span *spans, int span_count, float **out)
{
    tpw_tensor_info info;
    int64_t rows_local = 0;

    TPW_TRY(find(l, prefix, name, rows, cols, &info));
    for (int i = 0; i < span_count; i++)
        rows_local += spans[i].count;
    *out = tpw_arena_take(l->arena, rows_local * cols, sizeof **out);
    return read_spans(l, &info, spans, span_count, 0, cols, true, *out);
}

tpw_status tpw_load_vector(tpw_loader *l, const char *prefix, const char *name, int64_t count, tpw_span span,
                           float **out)
{
    return tpw_load_table(l, prefix, name, count, 1, &span, 1, out);
}
