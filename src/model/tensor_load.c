/* Reads one tensor's local part into the weight arena, and sums what it reads. SPDX-License-Identifier: Apache-2.0 */
#include "model/tensor_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/digest.h"

#define STAGING_BYTES ((size_t)16 << 20)
#define BLOCK         128

tpw_status tpw_loader_init(tpw_loader *out, const tpw_config *config, const tpw_partition *part,
                           tpw_checkpoint *checkpoint, const tpw_exec *exec, tpw_pool *pool, tpw_arena *arena,
                           tpw_error *err)
{
    *out = (tpw_loader){.config = config,
                        .part = part,
                        .checkpoint = checkpoint,
                        .exec = exec,
                        .pool = pool,
                        .layout = exec->device,
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
    if (loader->pool != NULL)
        (void)!tpw_pool_arena_fini(loader->pool, &loader->plain, NULL);
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

/* The cut of a weight whose scales are read: where a border cuts a block, neighbours hold the same scale. */
typedef struct scale_cut {
    const tpw_span *rows; /* [count], of the weight */
    int count;
    tpw_span cols;
} scale_cut;

/* What is read of a tensor. */
typedef struct part_read {
    const tpw_tensor_info *tensor;
    tpw_weight_share share;
    int64_t col0;
    int64_t cols;
    bool as_f32;
    const scale_cut *cut; /* NULL: no scales */
} part_read;

static bool overlap(int32_t a, int32_t a_end, int32_t b, int32_t b_end)
{
    return a < b_end && b < a_end && a < a_end && b < b_end;
}

/* Is row `block` of the scales, read for span i, this rank's? No when a lower rank or an earlier span has it. */
static bool owns_scale_row(const tpw_loader *l, const scale_cut *cut, int i, int32_t block)
{
    int32_t begin = block * BLOCK, end = begin + BLOCK;

    for (int j = 0; j < cut->count; j++) {
        tpw_span own = cut->rows[j];
        int32_t section = cut->count == 1 ? 0 : own.begin - l->part->rank * own.count;

        if (overlap(section, own.begin, begin, end) || (j < i && overlap(own.begin, own.begin + own.count, begin, end)))
            return false;
    }
    return true;
}

/* Where the sums of what is read go, if they are asked for. */
static tpw_weight_sum *sum_of(const tpw_loader *l, const part_read *p)
{
    tpw_weight_sum *sum = l->sums != NULL ? &l->sums->data[p->tensor->index] : NULL;

    return sum == NULL || (sum->copies == 1 && !l->sums->all) ? NULL : sum;
}

/* Adds rows that stand in the staging buffer as they are in the file. */
static void add_sums(tpw_loader *l, const part_read *p, int span, int64_t row0, int64_t rows, const char *raw)
{
    tpw_weight_sum *sum = sum_of(l, p);
    uint64_t cols = (uint64_t)p->tensor->cols, index0 = (uint64_t)row0 * cols + (uint64_t)p->col0;
    int64_t size = (int64_t)tpw_dtype_size(p->tensor->dtype), skip = 0;
    uint64_t held;

    if (sum == NULL)
        return;
    held = tpw_digest_block(sum->key, raw, p->tensor->dtype, rows, p->cols, p->cols, index0, cols);
    sum->held += held;
    if (l->part->rank % sum->copies != 0)
        return;
    if (p->cut == NULL) {
        sum->owned += held;
        return;
    }
    if (p->cut->cols.begin % BLOCK != 0)
        skip = 1; /* the first column of blocks begins on a lower rank */
    for (int64_t r = 0; r < rows; r++)
        if (owns_scale_row(l, p->cut, span, (int32_t)(row0 + r)))
            sum->owned += tpw_digest_block(sum->key, raw + (r * p->cols + skip) * size, p->tensor->dtype, 1,
                                           p->cols - skip, p->cols, index0 + (uint64_t)r * cols + (uint64_t)skip, cols);
}

/* Reads rows into the staging buffer, as stored or as F32. Those that must be converted are read behind their place. */
static tpw_status stage(tpw_loader *l, const part_read *p, int span, int64_t row0, int64_t rows)
{
    const tpw_tensor_info *t = p->tensor;
    bool convert = p->as_f32 && t->dtype != TPW_F32;
    size_t count = (size_t)rows * (size_t)p->cols;
    char *raw = (char *)l->staging + (convert ? count * sizeof(float) : 0);

    TPW_TRY(tpw_checkpoint_read(l->checkpoint, t, row0, rows, p->col0, p->cols, raw, p->cols, l->err));
    add_sums(l, p, span, row0, rows, raw);
    if (!convert)
        return TPW_OK;
    return tpw_convert((tpw_strided){l->staging, TPW_F32, 1}, (tpw_strided){raw, t->dtype, 1}, count, NULL, l->err);
}

/* Can the device make this block by itself? Only what nobody sums or converts on its way. */
static bool made_there(const tpw_loader *l, const part_read *p, tpw_dummy_recipe *recipe)
{
    return l->exec->device->make_dummy != NULL && (!p->as_f32 || p->tensor->dtype == TPW_F32) && sum_of(l, p) == NULL &&
           tpw_checkpoint_recipe(l->checkpoint, p->tensor, recipe);
}

/* Reads a block through the staging buffer to device memory `to`. */
static tpw_status read_block(tpw_loader *l, const part_read *p, int span, tpw_span rows, char *to)
{
    const tpw_tensor_info *t = p->tensor;
    size_t stored = tpw_dtype_size(t->dtype), size = p->as_f32 ? sizeof(float) : stored;
    size_t row_bytes, staged_bytes;
    tpw_dummy_recipe recipe;
    int64_t step;

    if (p->cols == 0 || rows.count == 0) {
        tpw_checkpoint_mark(l->checkpoint, t);
        return TPW_OK;
    }
    if (made_there(l, p, &recipe)) {
        tpw_checkpoint_mark(l->checkpoint, t);
        TPW_TRY(l->exec->device->make_dummy(l->exec, &recipe, rows.begin, rows.count, p->col0, p->cols, to, p->cols,
                                            l->err));
        if (l->progress != NULL)
            l->progress(l->progress_data, l->arena->used, l->arena->bytes);
        return TPW_OK;
    }
    if (!tpw_mul_size((size_t)p->cols, size, &row_bytes) ||
        !tpw_mul_size((size_t)p->cols, size + (p->as_f32 ? stored : 0), &staged_bytes) ||
        staged_bytes > l->staging_bytes)
        return tpw_fail(l->err, TPW_ERR_LIMIT, "tensor %s: a row of %lld elements is longer than the load buffer",
                        t->name, (long long)p->cols);
    step = (int64_t)(l->staging_bytes / staged_bytes);
    for (int64_t r = 0; r < rows.count; r += step) {
        int64_t n = rows.count - r < step ? rows.count - r : step;

        TPW_TRY(stage(l, p, span, rows.begin + r, n));
        TPW_TRY(
            l->exec->device->upload(l->exec, to + (size_t)r * row_bytes, l->staging, (size_t)n * row_bytes, l->err));
        if (l->progress != NULL)
            l->progress(l->progress_data, l->arena->used, l->arena->bytes);
    }
    return TPW_OK;
}

static bool is_real(tpw_dtype dtype)
{
    return dtype == TPW_F32 || dtype == TPW_F16 || dtype == TPW_BF16 || dtype == TPW_E4M3;
}

/* How many ranks hold the same part. */
static int32_t copies_of(const tpw_loader *l, tpw_weight_share share)
{
    if (share == TPW_SHARE_ALL)
        return l->part->size;
    return share == TPW_SHARE_KV && l->part->size > l->config->kv_heads ? l->part->size / l->config->kv_heads : 1;
}

/* Reads several row spans one after the other. */
static tpw_status read_spans(tpw_loader *l, const part_read *p, const tpw_span *spans, int span_count, void *to)
{
    const tpw_tensor_info *t = p->tensor;
    size_t row_bytes = (size_t)p->cols * (p->as_f32 ? sizeof(float) : tpw_dtype_size(t->dtype));
    char *at = to;

    if (l->arena->base == NULL || to == NULL)
        return TPW_OK;
    if (p->as_f32 && !is_real(t->dtype))
        return tpw_fail(l->err, TPW_ERR_CHECKPOINT, "%s: tensor %s has dtype %s where a floating-point one is needed",
                        tpw_checkpoint_path(l->checkpoint), t->name, tpw_dtype_name(t->dtype));
    if (l->sums != NULL) {
        l->sums->data[t->index].loaded = true;
        l->sums->data[t->index].copies = copies_of(l, p->share);
    }
    for (int i = 0; i < span_count; i++) {
        TPW_TRY(read_block(l, p, i, spans[i], at));
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
static tpw_status load_scales(tpw_loader *l, const tpw_tensor_info *weight, const scale_cut *cut,
                              tpw_weight_share share, tpw_weight *w)
{
    const tpw_span *spans = cut->rows, cols = cut->cols;
    int span_count = cut->count;
    char name[TPW_TENSOR_NAME_MAX];
    tpw_span row_blocks[4], col_blocks = blocks_of(cols);
    int64_t table_rows = 0;
    tpw_tensor_info info;
    part_read read;
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
    read = (part_read){.tensor = &info,
                       .share = share,
                       .col0 = col_blocks.begin,
                       .cols = col_blocks.count,
                       .as_f32 = true,
                       .cut = cut};
    TPW_TRY(read_spans(l, &read, row_blocks, span_count, scale));
    TPW_TRY(upload_scale_rows(l, spans, span_count, w->rows, rows));
    w->scale = scale;
    w->scale_row = rows;
    w->scale_cols = col_blocks.count;
    return TPW_OK;
}

/* Bytes of the layout that a gemm of this backend reads; 0: plain rows. */
static size_t layout_bytes(const tpw_loader *l, const tpw_weight *w, tpw_gemm_kind kind)
{
    return l->layout != NULL && l->layout->packed_bytes != NULL ? l->layout->packed_bytes(w, kind) : 0;
}

/* Device memory for one matrix in plain rows. Matrices differ in size, so it grows while loading, and not after. */
static tpw_status take_plain(tpw_loader *l, size_t bytes, void **out)
{
    if (bytes > l->plain.bytes) {
        TPW_TRY(tpw_pool_arena_fini(l->pool, &l->plain, l->err));
        TPW_TRY(tpw_pool_arena_init(l->pool, bytes, &l->plain, l->err));
    }
    *out = l->plain.base;
    return TPW_OK;
}

/* Reads a matrix to where it stays, in the backend's layout if it has one. */
static tpw_status read_matrix(tpw_loader *l, const part_read *read, const scale_cut *cut, tpw_gemm_kind kind,
                              bool plain, tpw_weight *w)
{
    const size_t packed = plain ? 0 : layout_bytes(l, w, kind);
    void *data = NULL, *to;
    tpw_status st;

    if (packed == 0) {
        data = tpw_arena_take(l->arena, (int64_t)w->rows * w->cols, tpw_dtype_size(w->dtype));
        w->data = data;
        return read_spans(l, read, cut->rows, cut->count, data);
    }
    to = tpw_arena_take(l->arena, (int64_t)packed, 1);
    if (l->arena->base == NULL || to == NULL)
        return TPW_OK;
    TPW_TRY(take_plain(l, (size_t)w->rows * (size_t)w->cols * tpw_dtype_size(w->dtype), &data));
    TPW_TRY(read_spans(l, read, cut->rows, cut->count, data));
    w->data = data;
    st = l->layout->pack(l->exec, w, kind, to, l->err);
    if (st != TPW_OK) {
        tpw_error_prefix(l->err, "tensor %s", read->tensor->name);
        return st;
    }
    w->data = NULL;
    w->packed = to;
    return TPW_OK;
}

static tpw_status load_matrix(tpw_loader *l, const tpw_tensor_info *info, const scale_cut *cut, tpw_weight_share share,
                              tpw_gemm_kind kind, bool plain, tpw_weight *out)
{
    const tpw_span cols = cut->cols;
    bool as_f32 = info->dtype == TPW_F16 || info->dtype == TPW_F32;
    const part_read read = {.tensor = info, .share = share, .col0 = cols.begin, .cols = cols.count, .as_f32 = as_f32};
    tpw_weight w = {.cols = cols.count, .col0 = cols.begin, .cols_global = (int32_t)info->cols};

    if (!as_f32 && info->dtype != TPW_BF16 && info->dtype != TPW_E4M3)
        return tpw_fail(l->err, TPW_ERR_CHECKPOINT,
                        "%s: tensor %s has dtype %s; F8_E4M3, BF16, F16 and F32 are supported",
                        tpw_checkpoint_path(l->checkpoint), info->name, tpw_dtype_name(info->dtype));
    for (int i = 0; i < cut->count; i++)
        w.rows += cut->rows[i].count;
    w.dtype = as_f32 ? TPW_F32 : info->dtype;
    TPW_TRY(read_matrix(l, &read, cut, kind, plain, &w));
    if (w.dtype == TPW_E4M3)
        TPW_TRY(load_scales(l, info, cut, share, &w));
    *out = w;
    return TPW_OK;
}

tpw_status tpw_load_rows(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                         const tpw_span *spans, int span_count, tpw_weight_share share, tpw_weight *out)
{
    const scale_cut cut = {.rows = spans, .count = span_count, .cols = {0, (int32_t)cols}};
    tpw_tensor_info info;

    TPW_TRY(find(l, prefix, name, rows, cols, &info));
    return load_matrix(l, &info, &cut, share, TPW_GEMM_COLUMN, false, out);
}

tpw_status tpw_load_rows_plain(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                               tpw_span span, tpw_weight *out)
{
    const scale_cut cut = {.rows = &span, .count = 1, .cols = {0, (int32_t)cols}};
    tpw_tensor_info info;

    TPW_TRY(find(l, prefix, name, rows, cols, &info));
    return load_matrix(l, &info, &cut, TPW_SHARE_CUT, TPW_GEMM_COLUMN, true, out);
}

tpw_status tpw_load_layout(tpw_loader *l, tpw_gemm_kind kind, tpw_weight *weight)
{
    const size_t packed = layout_bytes(l, weight, kind);
    void *to;

    if (packed == 0)
        return TPW_OK;
    to = tpw_arena_take(l->arena, (int64_t)packed, 1);
    weight->packed = to;
    return l->arena->base == NULL || to == NULL ? TPW_OK : l->layout->pack(l->exec, weight, kind, to, l->err);
}

tpw_status tpw_load_cols(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols, tpw_span span,
                         tpw_weight *out)
{
    const tpw_span all = {0, (int32_t)rows};
    const scale_cut cut = {.rows = &all, .count = 1, .cols = span};
    tpw_tensor_info info;

    TPW_TRY(find(l, prefix, name, rows, cols, &info));
    return load_matrix(l, &info, &cut, TPW_SHARE_CUT, TPW_GEMM_ROW, false, out);
}

static tpw_status load_table(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                             const tpw_span *spans, int span_count, tpw_weight_share share, float **out)
{
    tpw_tensor_info info;
    const part_read read = {.tensor = &info, .share = share, .cols = cols, .as_f32 = true};
    int64_t rows_local = 0;

    TPW_TRY(find(l, prefix, name, rows, cols, &info));
    for (int i = 0; i < span_count; i++)
        rows_local += spans[i].count;
    *out = tpw_arena_take(l->arena, rows_local * cols, sizeof **out);
    return read_spans(l, &read, spans, span_count, *out);
}

tpw_status tpw_load_table(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                          const tpw_span *spans, int span_count, float **out)
{
    return load_table(l, prefix, name, rows, cols, spans, span_count, TPW_SHARE_CUT, out);
}

tpw_status tpw_load_vector(tpw_loader *l, const char *prefix, const char *name, int64_t count, tpw_span span,
                           float **out)
{
    tpw_weight_share share = span.count == count ? TPW_SHARE_ALL : TPW_SHARE_CUT;

    return load_table(l, prefix, name, count, 1, &span, 1, share, out);
}
