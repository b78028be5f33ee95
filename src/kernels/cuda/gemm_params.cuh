// What every gemm kernel is told, and the parts they share: block scales, the store of a result.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_GEMM_PARAMS_CUH
#define TPW_KERNELS_CUDA_GEMM_PARAMS_CUH

#include "kernels/cuda/gemm_math.cuh"
#include "kernels/cuda/launch.cuh"

extern "C" {
#include "kernels/cuda/gemm.h"
}

struct tpw_gemm_params {
    const uint4 *w; // packed
    const float *scale;
    const int32_t *scale_row;
    int32_t scale_cols;
    int32_t n;     // weight rows
    const void *x; // BF16: plain rows (skinny) or packed rows (tile)
    int64_t x_stride;
    int32_t m;
    bool x_fast; // every 8 columns of a chunk are one aligned 16-byte load
    void *y;
    int64_t y_stride;
    int32_t y_slice_rows; // rows of y from one slice to the next
    bool y_bf16;
    tpw_gemm_cut cut;
};

// The block scales of the two weight rows of a lane, from the slice's first piece on. Rows past the end read row 0.
template <bool E4M3> struct tpw_lane_scales {
    const float *lo;
    const float *hi;

    __device__ tpw_lane_scales(const tpw_gemm_params &p, int32_t row, int32_t slice)
    {
        if (!E4M3)
            return;
        const int32_t first = (p.cut.col0 + slice * p.cut.slice_len) / TPW_PIECE - p.cut.col0 / TPW_PIECE;
        lo = p.scale + (int64_t)__ldg(p.scale_row + (row < p.n ? row : 0)) * p.scale_cols + first;
        hi = p.scale + (int64_t)__ldg(p.scale_row + (row + 8 < p.n ? row + 8 : 0)) * p.scale_cols + first;
    }
    // x (2^60) and the scale (2^60) undo the 2^-120 of the packed weight.
    __device__ float low(int32_t piece) const
    {
        return E4M3 ? __ldg(lo + piece) * TPW_TWO_60 : 1.0f;
    }
    __device__ float high(int32_t piece) const
    {
        return E4M3 ? __ldg(hi + piece) * TPW_TWO_60 : 1.0f;
    }
};

// acc = raw * scale + acc for the four sums of a lane: rows g, g, g + 8, g + 8.
static __device__ __forceinline__ void tpw_fold_piece(float *acc, const float *raw, float low, float high)
{
    acc[0] = __fmaf_rn(low, raw[0], acc[0]);
    acc[1] = __fmaf_rn(low, raw[1], acc[1]);
    acc[2] = __fmaf_rn(high, raw[2], acc[2]);
    acc[3] = __fmaf_rn(high, raw[3], acc[3]);
}

static __device__ __forceinline__ void tpw_store_y(const tpw_gemm_params &p, int32_t slice, int32_t m, int32_t row,
                                                   float v)
{
    if (m >= p.m || row >= p.n)
        return;
    const int64_t at = ((int64_t)slice * p.y_slice_rows + m) * p.y_stride + row;
    if (p.y_bf16)
        ((__nv_bfloat16 *)p.y)[at] = __float2bfloat16_rn(v);
    else
        ((float *)p.y)[at] = v;
}

// The four sums of a lane of one tile of 8 rows of x from m0: weight rows row, row + 8; x rows 2t, 2t + 1.
static __device__ __forceinline__ void tpw_store_tile(const tpw_gemm_params &p, int32_t slice, int32_t m0, int32_t row,
                                                      const float *acc)
{
    const int32_t m = m0 + (threadIdx.x & 3) * 2;
    tpw_store_y(p, slice, m, row, acc[0]);
    tpw_store_y(p, slice, m + 1, row, acc[1]);
    tpw_store_y(p, slice, m, row + 8, acc[2]);
    tpw_store_y(p, slice, m + 1, row + 8, acc[3]);
}

// Eight values of x for unit u (8 columns) of a slice of row m, times `factor` (a power of two), zero past the piece's end.
template <bool E4M3>
static __device__ __forceinline__ uint4 tpw_load_x(const tpw_gemm_params &p, int32_t slice, int32_t m, int32_t u)
{
    const int32_t first = tpw_cut_first(&p.cut, slice), c = u >> 2, piece = tpw_cut_piece_of(first, c);
    const int32_t at =
        tpw_cut_piece_col(first, piece) + (c - tpw_cut_piece_chunk(first, piece)) * TPW_CHUNK + (u & 3) * 8;
    int32_t end = tpw_cut_piece_col(first, piece + 1);
    end = end < p.cut.slice_len ? end : p.cut.slice_len;
    const __nv_bfloat16 *x = (const __nv_bfloat16 *)p.x + m * p.x_stride + slice * p.cut.slice_len + at;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (p.x_fast && at + 8 <= end) {
        v = __ldcg((const uint4 *)x);
    } else {
        uint32_t word[4] = {0, 0, 0, 0};
        for (int j = 0; j < 8; j++)
            if (at + j < end)
                word[j >> 1] |= (uint32_t)((const uint16_t *)x)[j] << (16 * (j & 1));
        v = make_uint4(word[0], word[1], word[2], word[3]);
    }
    if (E4M3) {
        const __nv_bfloat162 factor = __float2bfloat162_rn(TPW_TWO_60);
        __nv_bfloat162 *pair = (__nv_bfloat162 *)&v;
        for (int j = 0; j < 4; j++)
            pair[j] = __hmul2(pair[j], factor);
    }
    return v;
}

extern "C" {
// One kernel each; p.y takes slices apart (y_slice_rows) when there are several.
tpw_status tpw_gemm_skinny(const tpw_exec *exec, const tpw_gemm_params &p, bool e4m3, bool *fits, tpw_error *err);
tpw_status tpw_gemm_tile(const tpw_exec *exec, const tpw_gemm_params &p, bool e4m3, tpw_error *err);
bool tpw_gemm_wgmma_fits(const tpw_gemm_cut *cut); // all pieces whole
// Lays x out in `packed` (whole tiles of 128 rows) itself.
tpw_status tpw_gemm_wgmma(const tpw_exec *exec, const tpw_gemm_params &p, bool e4m3, void *packed, tpw_error *err);
}

#endif
