/* Computes the cut of a weight and refuses those that no rank may hold. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/gemm_cut.h"

tpw_status tpw_gemm_cut_of(const tpw_weight *w, tpw_gemm_kind kind, tpw_gemm_cut *out, tpw_error *err)
{
    const int32_t whole = w->cols_global, begin = w->col0, count = w->cols;
    bool subtree;

    if (begin < 0 || count < 1 || whole < 1 || count > whole - begin)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda gemm: columns %d..+%d of %d", (int)begin, (int)count, (int)whole);
    *out = (tpw_gemm_cut){.slice_len = whole / tpw_slices_global(kind, whole), .col0 = begin};
    out->slices = count / out->slice_len;
    subtree = count % out->slice_len == 0 && out->slices > 0 && (out->slices & (out->slices - 1)) == 0;
    if (!subtree || (int64_t)begin % count != 0)
        return tpw_fail(
            err, TPW_ERR_ARGUMENT,
            "cuda gemm: columns %d..+%d of %d are no whole subtree of slices of %d: cut K at 1, 2, 4 or 8 ranks",
            (int)begin, (int)count, (int)whole, (int)out->slice_len);
    for (int32_t s = 0; s < out->slices; s++) {
        const int32_t first = tpw_cut_first(out, s), last = tpw_cut_pieces(out, s) - 1;
        const int32_t tail = out->slice_len - tpw_cut_piece_col(first, last);

        out->chunk_begin[s + 1] =
            out->chunk_begin[s] + tpw_cut_piece_chunk(first, last) + (tail + TPW_CHUNK - 1) / TPW_CHUNK;
    }
    return TPW_OK;
}
