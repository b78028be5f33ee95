/* How the K axis of this rank's part of a weight falls into slices, pieces and chunks of 32 columns: the GPU's reading of
 * kernels/slices.h. Plain C, also valid in CUDA.
 *
 * A chunk is 16 weight rows by 32 columns, two k16 steps of a matrix instruction. A piece of width w has ceil(w / 32)
 * chunks, the last one zero-padded; pieces of a slice and slices of a rank follow each other. The first piece of a slice may
 * be short, because pieces end at multiples of 128 of the global column. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_CUDA_GEMM_CUT_H
#define TPW_KERNELS_CUDA_GEMM_CUT_H

#include "kernels/ops.h"

#ifdef __CUDACC__
#define TPW_CUT_FN static inline __host__ __device__
#else
#define TPW_CUT_FN static inline
#endif

#define TPW_STRIP        16 /* weight rows that share a chunk */
#define TPW_CHUNK        32 /* columns of a chunk */
#define TPW_PIECE_CHUNKS (TPW_PIECE / TPW_CHUNK)

typedef struct tpw_gemm_cut {
    int32_t slices;                                   /* of this rank, a power of two */
    int32_t slice_len;                                /* columns */
    int32_t col0;                                     /* global column of local column 0 */
    int32_t chunk_begin[TPW_SLICES_ROW_PARALLEL + 1]; /* first chunk of each slice; the last entry is the total */
} tpw_gemm_cut;

/* Width of the first piece of slice s. */
TPW_CUT_FN int32_t tpw_cut_first(const tpw_gemm_cut *cut, int32_t s)
{
    int32_t left = TPW_PIECE - (cut->col0 + s * cut->slice_len) % TPW_PIECE;
    return left < cut->slice_len ? left : cut->slice_len;
}

/* Pieces in slice s. */
TPW_CUT_FN int32_t tpw_cut_pieces(const tpw_gemm_cut *cut, int32_t s)
{
    return 1 + (cut->slice_len - tpw_cut_first(cut, s) + TPW_PIECE - 1) / TPW_PIECE;
}

/* Column, from the slice's begin, at which piece p starts; `first` is tpw_cut_first. */
TPW_CUT_FN int32_t tpw_cut_piece_col(int32_t first, int32_t p)
{
    return p == 0 ? 0 : first + (p - 1) * TPW_PIECE;
}

/* Chunk, from the slice's first, at which piece p starts. */
TPW_CUT_FN int32_t tpw_cut_piece_chunk(int32_t first, int32_t p)
{
    return p == 0 ? 0 : (first + TPW_CHUNK - 1) / TPW_CHUNK + (p - 1) * TPW_PIECE_CHUNKS;
}

/* Piece that holds chunk c of the slice. */
TPW_CUT_FN int32_t tpw_cut_piece_of(int32_t first, int32_t c)
{
    int32_t head = (first + TPW_CHUNK - 1) / TPW_CHUNK;
    return c < head ? 0 : 1 + (c - head) / TPW_PIECE_CHUNKS;
}

/* Bytes of one chunk of a weight of this type. */
TPW_CUT_FN int32_t tpw_chunk_bytes(tpw_dtype dtype)
{
    return TPW_STRIP * TPW_CHUNK * (dtype == TPW_E4M3 ? 1 : 2);
}

/* The cut of w. ERR_ARGUMENT when the local columns are no whole subtree of the global slices. */
tpw_status tpw_gemm_cut_of(const tpw_weight *w, tpw_gemm_kind kind, tpw_gemm_cut *out, tpw_error *err) TPW_MUST_CHECK;

#endif
