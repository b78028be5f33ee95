/* Reads blocks of a checkpoint's tensors: from a few files kept open, or from the dummy's recipe.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "model/checkpoint_state.h"
#include "model/dummy.h"

#define STAGING_ELEMENTS ((int64_t)1 << 18) /* of a conversion to F32: at most 1 MiB at a time */

void tpw_checkpoint_close_files(tpw_checkpoint *checkpoint)
{
    for (int i = 0; i < TPW_OPEN_FILES_MAX; i++) {
        if (checkpoint->open[i].last_use > 0)
            close(checkpoint->open[i].fd);
        checkpoint->open[i].last_use = 0;
    }
}

/* The descriptor of a file; the least recently used one makes room. */
static tpw_status open_file(tpw_checkpoint *checkpoint, int32_t file, int *fd, tpw_error *err)
{
    tpw_open_file *place = &checkpoint->open[0];
    for (int i = 0; i < TPW_OPEN_FILES_MAX; i++) {
        tpw_open_file *at = &checkpoint->open[i];
        if (at->last_use > 0 && at->file == file) {
            at->last_use = ++checkpoint->uses;
            *fd = at->fd;
            return TPW_OK;
        }
        if (at->last_use < place->last_use)
            place = at;
    }
    const tpw_checkpoint_file *source = &checkpoint->files[file];
    TPW_TRY(tpw_safetensors_reopen(source->path, source->file_bytes, fd, err));
    if (place->last_use > 0)
        close(place->fd);
    *place = (tpw_open_file){.fd = *fd, .file = file, .last_use = ++checkpoint->uses};
    return TPW_OK;
}

/* A block whose arguments have been checked. */
typedef struct block {
    const tpw_entry *entry;
    int64_t row0;
    int64_t rows;
    int64_t col0;
    int64_t cols;
} block;

static tpw_status read_file(tpw_checkpoint *checkpoint, const block *b, void *out, int64_t out_stride, tpw_error *err)
{
    int fd;
    const tpw_entry *entry = b->entry;
    const tpw_checkpoint_file *file = &checkpoint->files[entry->source];
    size_t size = tpw_stored_size(entry->stored);
    size_t run = (size_t)b->cols * size;
    size_t runs = (size_t)b->rows;
    TPW_TRY(open_file(checkpoint, entry->source, &fd, err));
    if (b->cols == entry->cols && out_stride == b->cols) { /* whole rows, packed: one piece */
        run *= runs;
        runs = 1;
    }
    size_t first = file->payload + entry->begin + ((size_t)b->row0 * (size_t)entry->cols + (size_t)b->col0) * size;
    for (size_t r = 0; r < runs; r++) {
        char *to = (char *)out + r * (size_t)out_stride * size;
        TPW_TRY(
            tpw_safetensors_pread(fd, file->path, entry->name, first + r * (size_t)entry->cols * size, to, run, err));
    }
    return TPW_OK;
}

/* Whether one of n bytes is 0x7F or 0xFF: without its sign it is then the only one that becomes 0x80 by adding 1. */
static bool has_nan(const uint8_t *at, int64_t n)
{
    uint64_t seen = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, sizeof word);
        seen |= (word & 0x7F7F7F7F7F7F7F7Full) + 0x0101010101010101ull;
    }
    for (; i < n; i++)
        seen |= (at[i] & 0x7Fu) + 1u;
    return (seen & 0x8080808080808080ull) != 0;
}

static tpw_status refuse_nan(tpw_checkpoint *checkpoint, const block *b, const uint8_t *out, int64_t out_stride,
                             tpw_error *err)
{
    for (int64_t r = 0; r < b->rows; r++) {
        const uint8_t *row = out + r * out_stride;
        if (!has_nan(row, b->cols))
            continue;
        int64_t c = 0;
        while ((row[c] & 0x7F) != 0x7F)
            c++;
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: tensor %.200s holds a NaN (code 0x%02X) at row %lld, column %lld: the file is damaged",
                        checkpoint->files[b->entry->source].path, b->entry->name, row[c], (long long)(b->row0 + r),
                        (long long)(b->col0 + c));
    }
    return TPW_OK;
}

static bool inside(int64_t begin, int64_t count, int64_t total)
{
    return begin >= 0 && count >= 0 && begin <= total && count <= total - begin;
}

static tpw_status check_block(tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor, block *b, const void *out,
                              int64_t out_stride, tpw_error *err)
{
    if (!checkpoint || !tensor || tensor->index < 0 || tensor->index >= checkpoint->count ||
        checkpoint->entries[tensor->index].name != tensor->name)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "checkpoint: the tensor to read is not one of this checkpoint");
    tpw_entry *entry = &checkpoint->entries[tensor->index];
    if (!inside(b->row0, b->rows, entry->rows) || !inside(b->col0, b->cols, entry->cols))
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "checkpoint: rows %lld + %lld, columns %lld + %lld are not within tensor %.200s [%lld, %lld]",
                        (long long)b->row0, (long long)b->rows, (long long)b->col0, (long long)b->cols, entry->name,
                        (long long)entry->rows, (long long)entry->cols);
    size_t elements;
    size_t bytes;
    if (out_stride < b->cols || (!out && b->rows > 0 && b->cols > 0) ||
        !tpw_mul_size((size_t)b->rows, (size_t)out_stride, &elements) || !tpw_mul_size(elements, 8, &bytes))
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "checkpoint: tensor %.200s: bad output (NULL, or a stride of %lld for %lld columns)",
                        entry->name, (long long)out_stride, (long long)b->cols);
    if (tpw_stored_dtype(entry->stored) == TPW_DTYPE_COUNT)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor %.200s has dtype %s, which is not supported",
                        checkpoint->path, entry->name, tpw_stored_name(entry->stored));
    b->entry = entry;
    entry->used = true;
    return TPW_OK;
}

static tpw_status read_block(tpw_checkpoint *checkpoint, const block *b, void *out, int64_t out_stride, tpw_error *err)
{
    if (b->rows == 0 || b->cols == 0)
        return TPW_OK;
    if (checkpoint->dummy) {
        tpw_dummy_recipe recipe = tpw_dummy_recipe_of(b->entry);
        tpw_dummy_fill(&recipe, b->row0, b->rows, b->col0, b->cols, out, out_stride);
    } else {
        TPW_TRY(read_file(checkpoint, b, out, out_stride, err));
        if (b->entry->stored == TPW_STORED_F8_E4M3)
            TPW_TRY(refuse_nan(checkpoint, b, out, out_stride, err));
    }
    checkpoint->bytes_read += b->rows * b->cols * (int64_t)tpw_stored_size(b->entry->stored);
    return TPW_OK;
}

bool tpw_checkpoint_recipe(const tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor, tpw_dummy_recipe *recipe)
{
    if (!checkpoint->dummy)
        return false;
    *recipe = tpw_dummy_recipe_of(&checkpoint->entries[tensor->index]);
    return true;
}

tpw_status tpw_checkpoint_read(tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *out, int64_t out_stride, tpw_error *err)
{
    block b = {NULL, row0, rows, col0, cols};
    TPW_TRY(check_block(checkpoint, tensor, &b, out, out_stride, err));
    return read_block(checkpoint, &b, out, out_stride, err);
}

/* Reads through `staging` in pieces of at most STAGING_ELEMENTS: some whole rows, or part of one. */
static tpw_status convert_block(tpw_checkpoint *checkpoint, const block *b, void *staging, float *out,
                                int64_t out_stride, tpw_error *err)
{
    tpw_dtype dtype = tpw_stored_dtype(b->entry->stored);
    int64_t cols_max = b->cols < STAGING_ELEMENTS ? b->cols : STAGING_ELEMENTS;
    int64_t rows_max = STAGING_ELEMENTS / cols_max;
    for (int64_t r0 = 0; r0 < b->rows; r0 += rows_max) {
        for (int64_t c0 = 0; c0 < b->cols; c0 += cols_max) {
            block piece = *b;
            piece.row0 += r0;
            piece.col0 += c0;
            piece.rows = b->rows - r0 < rows_max ? b->rows - r0 : rows_max;
            piece.cols = b->cols - c0 < cols_max ? b->cols - c0 : cols_max;
            TPW_TRY(read_block(checkpoint, &piece, staging, piece.cols, err));
            for (int64_t r = 0; r < piece.rows; r++) {
                char *from = (char *)staging + (size_t)(r * piece.cols) * tpw_dtype_size(dtype);
                tpw_strided src = {from, dtype, 1};
                tpw_strided dst = {out + (r0 + r) * out_stride + c0, TPW_F32, 1};
                TPW_TRY(tpw_convert(dst, src, (size_t)piece.cols, NULL, err));
            }
        }
    }
    return TPW_OK;
}

tpw_status tpw_checkpoint_read_f32(tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor, int64_t row0,
                                   int64_t rows, int64_t col0, int64_t cols, float *out, int64_t out_stride,
                                   tpw_error *err)
{
    block b = {NULL, row0, rows, col0, cols};
    TPW_TRY(check_block(checkpoint, tensor, &b, out, out_stride, err));
    switch (tpw_stored_dtype(b.entry->stored)) {
    case TPW_F32:
        return read_block(checkpoint, &b, out, out_stride, err);
    case TPW_F16:
    case TPW_BF16:
    case TPW_E4M3:
        break;
    default:
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor %.200s has dtype %s where a floating-point one is needed",
                        checkpoint->path, b.entry->name, tpw_stored_name(b.entry->stored));
    }
    if (rows == 0 || cols == 0)
        return TPW_OK;
    int64_t elements = rows > STAGING_ELEMENTS / cols ? STAGING_ELEMENTS : rows * cols;
    void *staging = malloc((size_t)elements * 2);
    if (!staging)
        return tpw_fail(err, TPW_ERR_MEMORY, "checkpoint: no memory to convert tensor %.200s", b.entry->name);
    tpw_status st = convert_block(checkpoint, &b, staging, out, out_stride, err);
    free(staging);
    return st;
}
