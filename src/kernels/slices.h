/* The one rule by which every GEMM of every backend cuts its K axis. Plain C, also valid in CUDA.
 *
 * The number of slices is fixed by the *kind* of a weight, never by the local shape, the row count, the device or the
 * tensor-parallel size. Row-parallel weights (out, o, down) have 8 equal slices of the global K axis, of which rank r of n
 * owns the 8/n neighbouring ones from r * 8/n; column-parallel weights have one. Inside a slice, pieces end at multiples of
 * 128 of the *global* column and at the end of the slice. A piece is a chain of k16 steps from +0, zero-padded to 16;
 * pieces are joined in order, one FP32 multiply-add by the block scale (1.0 for unscaled weights); slices are joined by a
 * binary tree: (0+1)+(2+3) and so on, whose upper levels are the all-reduce over ranks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_SLICES_H
#define TPW_KERNELS_SLICES_H

#include <stdint.h>

#define TPW_SLICES_ROW_PARALLEL 8
#define TPW_PIECE               128

typedef enum tpw_gemm_kind {
    TPW_GEMM_COLUMN, /* outputs are cut over ranks, K is whole: 1 slice */
    TPW_GEMM_ROW     /* K is cut over ranks: 8 slices of the global K, outputs are partial sums */
} tpw_gemm_kind;

/* Slices of the whole (global) K axis. A row-parallel K that 8 does not divide has 1 slice and is refused above TP1. */
static inline int32_t tpw_slices_global(tpw_gemm_kind kind, int32_t cols_global)
{
    return kind == TPW_GEMM_ROW && cols_global % TPW_SLICES_ROW_PARALLEL == 0 ? TPW_SLICES_ROW_PARALLEL : 1;
}

/* End (exclusive, global column) of the piece that starts at global column `begin` in a slice that ends at `slice_end`. */
static inline int32_t tpw_piece_end(int32_t begin, int32_t slice_end)
{
    int32_t end = (begin / TPW_PIECE + 1) * TPW_PIECE;
    return end < slice_end ? end : slice_end;
}

#endif
