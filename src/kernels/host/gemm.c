/* y = x * w^T by the one arithmetic of slices.h, for every row count.
 *
 * Rows of x are widened once into packed pieces [piece][row][128]; per group of weight rows each piece of the weight is
 * widened once and multiplied with all rows while it is in the first-level cache. With few rows the weight is
 * widened in registers instead. A row's bits depend on neither: sums of a piece are in the lanes of vec.h, pieces
 * are joined in order, slices by the binary tree. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"

#define GROUP_ROWS 24 /* weight rows widened at a time: 12 KiB a piece */
#define BLOCK_ROWS 64 /* rows of x at a time */
#define CHUNK_ROWS 8  /* rows of x that pass over a widened group together: 4 KiB */

typedef struct gemm {
    const tpw_gemm_args *args;
    const tpw_vec *vec;
    int32_t slice_len;
    int32_t slices; /* of this rank */
    int32_t pieces; /* in all its slices */
    int32_t rows;   /* of the current block */
    float *x;       /* [pieces][rows][TPW_PIECE] */
    float *w;       /* [GROUP_ROWS][TPW_PIECE] */
    float *acc;     /* [slices][rows][GROUP_ROWS] */
    float *scale;   /* [GROUP_ROWS] */
} gemm;

static tpw_status check_types(const tpw_gemm_args *a, tpw_error *err)
{
    if (a->w.dtype != TPW_E4M3 && a->w.dtype != TPW_BF16 && a->w.dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "host gemm: weights of type %s", tpw_dtype_name(a->w.dtype));
    if (a->x.dtype != TPW_BF16 && a->x.dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "host gemm: x of type %s", tpw_dtype_name(a->x.dtype));
    if (a->y.dtype != TPW_BF16 && a->y.dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "host gemm: y of type %s", tpw_dtype_name(a->y.dtype));
    if (a->w.dtype == TPW_E4M3 && (!a->w.scale || !a->w.scale_row))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "host gemm: E4M3 weights without block scales");
    const int64_t y_rows = a->parts > 0 ? (int64_t)a->parts * a->x.rows : a->x.rows;
    if (a->x.cols != a->w.cols || a->y.cols != a->w.rows || a->y.rows != y_rows || a->w.cols < 1)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "host gemm: x [%d, %d] times w [%d, %d] into y [%d, %d]", (int)a->x.rows,
                        (int)a->x.cols, (int)a->w.rows, (int)a->w.cols, (int)a->y.rows, (int)a->y.cols);
    return TPW_OK;
}

/* The local columns must be a whole subtree of the global slices. */
static tpw_status cut_slices(const tpw_gemm_args *a, gemm *g, tpw_error *err)
{
    const int32_t whole = a->w.cols_global, begin = a->w.col0, count = a->w.cols;
    if (begin < 0 || count > whole - begin)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "host gemm: columns %d..+%d of %d", (int)begin, (int)count, (int)whole);
    g->slice_len = whole / tpw_slices_global(a->kind, whole);
    g->slices = count / g->slice_len;
    bool subtree = count % g->slice_len == 0 && g->slices > 0 && (g->slices & (g->slices - 1)) == 0;
    if (!subtree || (int64_t)begin % count != 0)
        return tpw_fail(
            err, TPW_ERR_ARGUMENT,
            "host gemm: columns %d..+%d of %d are no whole subtree of slices of %d: cut K at 1, 2, 4 or 8 ranks",
            (int)begin, (int)count, (int)whole, (int)g->slice_len);
    if (a->parts != 0 && (a->parts != g->slices || a->y.dtype != TPW_F32))
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "host gemm: %d parts of type %s of a weight with %d slices here, kept in F32", (int)a->parts,
                        tpw_dtype_name(a->y.dtype), (int)g->slices);
    g->pieces = 0;
    for (int32_t s = 0; s < g->slices; s++) {
        int32_t end = begin + (s + 1) * g->slice_len;
        for (int32_t k = end - g->slice_len; k < end; k = tpw_piece_end(k, end))
            g->pieces++;
    }
    return TPW_OK;
}

/* Takes the scratch and decides how many rows of x fit at a time. */
static tpw_status take_scratch(const tpw_exec *exec, gemm *g, tpw_error *err)
{
    tpw_scratch scratch = tpw_scratch_begin(exec);
    TPW_TRY(tpw_scratch_floats(&scratch, GROUP_ROWS * TPW_PIECE, "host gemm", &g->w, err));
    TPW_TRY(tpw_scratch_floats(&scratch, GROUP_ROWS, "host gemm", &g->scale, err));
    TPW_TRY(tpw_scratch_floats(&scratch, (size_t)g->slices * BLOCK_ROWS * GROUP_ROWS, "host gemm", &g->acc, err));
    size_t row_floats = (size_t)g->pieces * TPW_PIECE;
    size_t fit = scratch.left / (row_floats * sizeof(float));
    size_t rows = fit < BLOCK_ROWS ? fit : BLOCK_ROWS;
    g->rows = g->args->x.rows < (int32_t)rows ? g->args->x.rows : (int32_t)rows;
    return tpw_scratch_floats(&scratch, row_floats * (g->rows > 0 ? (size_t)g->rows : 1), "host gemm", &g->x, err);
}

/* Up to so many rows it is faster to widen the weight in registers each time (E4M3 costs more than BF16). */
static bool few_rows(const gemm *g)
{
    return g->rows <= (g->args->w.dtype == TPW_E4M3 ? 2 : 8);
}

static void pack_x(const gemm *g, int32_t m0)
{
    const tpw_mat *x = &g->args->x;
    const int32_t begin = g->args->w.col0;
    float *out = g->x;
    for (int32_t s = 0; s < g->slices; s++) {
        int32_t end = begin + (s + 1) * g->slice_len;
        for (int32_t k = end - g->slice_len, next; k < end; k = next) {
            next = tpw_piece_end(k, end);
            for (int32_t m = 0; m < g->rows; m++, out += TPW_PIECE)
                g->vec->load(out, x->data, x->dtype, (m0 + m) * x->stride + (k - begin), next - k);
        }
    }
}

static void group_scales(const gemm *g, int32_t n0, int32_t rows, int32_t col)
{
    const tpw_weight *w = &g->args->w;
    for (int32_t r = 0; r < rows; r++)
        g->scale[r] = w->dtype == TPW_E4M3 ? w->scale[(int64_t)w->scale_row[n0 + r] * w->scale_cols +
                                                      (w->col0 + col) / TPW_PIECE - w->col0 / TPW_PIECE]
                                           : 1.0f;
}

/* One piece of n columns from local column `col`: weight rows n0.. are widened once, then all rows of x pass over. */
static void piece_of_group(const gemm *g, float *acc, const float *x, int32_t n0, int32_t rows, int32_t col, int32_t n)
{
    const tpw_weight *w = &g->args->w;
    group_scales(g, n0, rows, col);
    if (few_rows(g)) {
        const unsigned char *at =
            (const unsigned char *)w->data + ((int64_t)n0 * w->cols + col) * (int64_t)tpw_dtype_size(w->dtype);
        g->vec->piece_stored(acc, GROUP_ROWS, x, TPW_PIECE, g->rows, at, w->dtype, w->cols, g->scale, rows, n);
        return;
    }
    const float *wide = g->w;
    int64_t stride = TPW_PIECE;
    if (w->dtype == TPW_F32) {
        wide = (const float *)w->data + (int64_t)n0 * w->cols + col;
        stride = w->cols;
    } else {
        for (int32_t r = 0; r < rows; r++)
            g->vec->load(g->w + r * TPW_PIECE, w->data, w->dtype, (int64_t)(n0 + r) * w->cols + col, n);
    }
    const int32_t call_rows = g->vec->piece_rows;
    for (int32_t m = 0; m < g->rows; m += CHUNK_ROWS) {
        int32_t chunk = g->rows - m < CHUNK_ROWS ? g->rows - m : CHUNK_ROWS;
        for (int32_t r = 0; r < rows; r += call_rows)
            g->vec->piece(acc + m * GROUP_ROWS + r, GROUP_ROWS, x + m * TPW_PIECE, TPW_PIECE, chunk, wide + r * stride,
                          stride, g->scale + r, rows - r < call_rows ? rows - r : call_rows, n);
    }
}

/* Adds neighbours until one is left: ((0+1)+(2+3))+... over buffers of `size` floats. The result is in the first. */
static void join_slices(float *acc, int32_t slices, size_t size)
{
    for (int32_t step = 1; step < slices; step *= 2)
        for (int32_t s = 0; s < slices; s += 2 * step)
            for (size_t i = 0; i < size; i++)
                acc[(size_t)s * size + i] += acc[(size_t)(s + step) * size + i];
}

/* All columns for weight rows n0.. (at most GROUP_ROWS) and the current block of x, which starts at row m0. */
static void group(const gemm *g, int32_t m0, int32_t n0, int32_t rows)
{
    const size_t size = (size_t)g->rows * GROUP_ROWS;
    const int32_t begin = g->args->w.col0;
    const float *x = g->x;
    memset(g->acc, 0, (size_t)g->slices * size * sizeof(float));
    for (int32_t s = 0; s < g->slices; s++) {
        int32_t end = begin + (s + 1) * g->slice_len;
        for (int32_t k = end - g->slice_len, next; k < end; k = next, x += (size_t)g->rows * TPW_PIECE) {
            next = tpw_piece_end(k, end);
            piece_of_group(g, g->acc + (size_t)s * size, x, n0, rows, k - begin, next - k);
        }
    }
    const int32_t parts = g->args->parts > 0 ? g->args->parts : 1;
    if (g->args->parts == 0)
        join_slices(g->acc, g->slices, size);
    const tpw_mat *y = &g->args->y;
    for (int32_t s = 0; s < parts; s++) {
        const int64_t row = (int64_t)s * g->args->x.rows + m0;
        for (int32_t m = 0; m < g->rows; m++)
            g->vec->store(y->data, y->dtype, (row + m) * y->stride + n0, g->acc + (size_t)s * size + m * GROUP_ROWS,
                          rows);
    }
}

tpw_status tpw_host_gemm(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err)
{
    gemm g = {.args = args, .vec = tpw_host_vec(exec)};
    TPW_TRY(check_types(args, err));
    TPW_TRY(cut_slices(args, &g, err));
    TPW_TRY(take_scratch(exec, &g, err));
    const int32_t block = g.rows;
    for (int32_t m0 = 0; m0 < args->x.rows; m0 += block) {
        g.rows = args->x.rows - m0 < block ? args->x.rows - m0 : block;
        pack_x(&g, m0);
        /* few rows: fewer weight rows at once, so that each is read as one stream */
        const int32_t step = few_rows(&g) ? g.vec->piece_rows : GROUP_ROWS;
        for (int32_t n0 = 0; n0 < args->w.rows; n0 += step)
            group(&g, m0, n0, args->w.rows - n0 < step ? args->w.rows - n0 : step);
    }
    return TPW_OK;
}
