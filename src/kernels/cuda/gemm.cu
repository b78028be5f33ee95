// The gemm of the CUDA backend: checks, the choice of a kernel (of speed only), the layout of x, the join of slices.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm_params.cuh"

namespace
{

// x as the tile kernel reads it: [row][chunk of the rank][32], from row m0.
template <bool E4M3> __global__ void pack_x(tpw_gemm_params p, uint4 *to)
{
    const int32_t units = p.cut.chunk_begin[p.cut.slices] * 4;
    tpw_pdl_trigger();
    tpw_pdl_wait();
    for (int32_t u = blockIdx.x * blockDim.x + threadIdx.x; u < units; u += gridDim.x * blockDim.x) {
        int32_t s = 0;
        while (u >= p.cut.chunk_begin[s + 1] * 4)
            s++;
        to[(int64_t)blockIdx.y * units + u] = tpw_load_x<E4M3>(p, s, blockIdx.y, u - p.cut.chunk_begin[s] * 4);
    }
}

struct join_params {
    const float *part; // [slices][m][n]
    int32_t slices;
    int32_t m;
    int32_t n;
    void *y;
    int64_t y_stride;
    bool y_bf16;
};

__global__ void join(join_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int32_t m = blockIdx.y;
    for (int32_t c = blockIdx.x * blockDim.x + threadIdx.x; c < p.n; c += gridDim.x * blockDim.x) {
        float v[TPW_SLICES_ROW_PARALLEL];
#pragma unroll
        for (int s = 0; s < TPW_SLICES_ROW_PARALLEL; s++)
            v[s] = s < p.slices ? p.part[((int64_t)s * p.m + m) * p.n + c] : 0.0f;
#pragma unroll
        for (int step = 1; step < TPW_SLICES_ROW_PARALLEL; step *= 2)
            if (step < p.slices)
#pragma unroll
                for (int s = 0; s + step < TPW_SLICES_ROW_PARALLEL; s += 2 * step)
                    v[s] = __fadd_rn(v[s], v[s + step]);
        if (p.y_bf16)
            ((__nv_bfloat16 *)p.y)[m * p.y_stride + c] = __float2bfloat16_rn(v[0]);
        else
            ((float *)p.y)[m * p.y_stride + c] = v[0];
    }
}

tpw_status check(const tpw_gemm_args *a, const tpw_gemm_cut *cut, tpw_error *err)
{
    const int32_t parts = a->parts > 0 ? a->parts : 1;
    if (a->w.dtype != TPW_E4M3 && a->w.dtype != TPW_BF16)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda gemm: weights of type %s; E4M3 and BF16 are there",
                        tpw_dtype_name(a->w.dtype));
    if (a->x.dtype != TPW_BF16)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda gemm: x of type %s; BF16 is there (--compute=bf16)",
                        tpw_dtype_name(a->x.dtype));
    if (a->y.dtype != TPW_BF16 && a->y.dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda gemm: y of type %s", tpw_dtype_name(a->y.dtype));
    if (a->w.packed == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda gemm: the weight [%d, %d] was not packed", (int)a->w.rows,
                        (int)a->w.cols);
    if (a->w.dtype == TPW_E4M3 && (a->w.scale == NULL || a->w.scale_row == NULL))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda gemm: E4M3 weights without block scales");
    if (a->parts != 0 && (a->parts != cut->slices || a->y.dtype != TPW_F32))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda gemm: %d parts of type %s; this rank has %d slices of type F32",
                        (int)a->parts, tpw_dtype_name(a->y.dtype), (int)cut->slices);
    if (a->x.cols != a->w.cols || a->y.cols != a->w.rows || (int64_t)a->y.rows != (int64_t)parts * a->x.rows)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda gemm: x [%d, %d] times w [%d, %d] into y [%d, %d]", (int)a->x.rows,
                        (int)a->x.cols, (int)a->w.rows, (int)a->w.cols, (int)a->y.rows, (int)a->y.cols);
    return TPW_OK;
}

// Is every unit of 8 columns an aligned 16-byte load? Then all columns where pieces begin are multiples of 8.
bool fast_x(const tpw_gemm_args *a, const tpw_gemm_cut *cut)
{
    return (uintptr_t)a->x.data % 16 == 0 && a->x.stride % 8 == 0 && cut->slice_len % 8 == 0 && cut->col0 % 8 == 0;
}

tpw_status join_slices(const tpw_exec *exec, const tpw_gemm_args *a, const float *part, int32_t slices, int32_t m0,
                       int32_t m, tpw_error *err)
{
    join_params p = {};
    p.part = part, p.slices = slices, p.m = m, p.n = a->w.rows;
    p.y = (char *)a->y.data + m0 * a->y.stride * (int64_t)tpw_dtype_size(a->y.dtype);
    p.y_stride = a->y.stride, p.y_bf16 = a->y.dtype == TPW_BF16;
    return tpw_cuda_launch(exec, "gemm (join of slices)", err, join, dim3((unsigned)((p.n + 255) / 256), (unsigned)m),
                           dim3(256), 0, 1, p);
}

// Rows m0..m0+m of x, with `scratch` for packed x and for slices that are joined here.
tpw_status rows(const tpw_exec *exec, const tpw_gemm_args *a, tpw_gemm_params p, tpw_gemm_path path, int32_t m0,
                int32_t m, tpw_error *err)
{
    const bool e4m3 = a->w.dtype == TPW_E4M3, apart = a->parts == 0 && p.cut.slices > 1;
    char *scratch = (char *)tpw_cuda_of(exec)->scratch;
    float *part = (float *)scratch;
    bool fits = false;

    p.x = (const __nv_bfloat16 *)a->x.data + m0 * a->x.stride;
    p.m = m;
    p.y = (char *)a->y.data + m0 * a->y.stride * (int64_t)tpw_dtype_size(a->y.dtype);
    p.y_stride = a->y.stride, p.y_slice_rows = a->x.rows, p.y_bf16 = a->y.dtype == TPW_BF16;
    if (apart) {
        p.y = part, p.y_stride = p.n, p.y_slice_rows = m, p.y_bf16 = false;
        scratch += (size_t)p.cut.slices * (size_t)m * (size_t)p.n * sizeof(float);
    }
    if (path == TPW_GEMM_AUTO || path == TPW_GEMM_SKINNY)
        TPW_TRY(tpw_gemm_skinny(exec, p, e4m3, &fits, err));
    if (!fits && path == TPW_GEMM_SKINNY)
        return tpw_fail(err, TPW_ERR_LIMIT, "cuda gemm: %d rows of %d columns do not stay in shared memory", (int)m,
                        (int)a->x.cols);
    const bool wgmma =
        path == TPW_GEMM_WGMMA || (path == TPW_GEMM_AUTO && tpw_cuda_of(exec)->wgmma && tpw_gemm_wgmma_fits(&p.cut));
    if (!fits && wgmma) {
        TPW_TRY(tpw_gemm_wgmma(exec, p, e4m3, (void *)(((uintptr_t)scratch + 255) / 256 * 256), err));
    } else if (!fits) {
        uint4 *packed = (uint4 *)(((uintptr_t)scratch + 255) / 256 * 256);
        const unsigned units = (unsigned)p.cut.chunk_begin[p.cut.slices] * 4;
        TPW_TRY(tpw_cuda_launch(exec, "gemm (layout of x)", err, e4m3 ? pack_x<true> : pack_x<false>,
                                dim3((units + 255) / 256, (unsigned)m), dim3(256), 0, 1, p, packed));
        p.x = packed;
        TPW_TRY(tpw_gemm_tile(exec, p, e4m3, err));
    }
    return apart ? join_slices(exec, a, part, p.cut.slices, m0, m, err) : TPW_OK;
}

} // namespace

extern "C" tpw_status tpw_cuda_gemm_path(const tpw_exec *exec, const tpw_gemm_args *a, tpw_gemm_path path,
                                         tpw_error *err)
{
    tpw_gemm_params p = {};
    TPW_TRY(tpw_gemm_cut_of(&a->w, a->kind, &p.cut, err));
    TPW_TRY(check(a, &p.cut, err));
    p.w = (const uint4 *)a->w.packed;
    p.scale = a->w.scale, p.scale_row = a->w.scale_row, p.scale_cols = a->w.scale_cols;
    p.n = a->w.rows;
    p.x_stride = a->x.stride;
    p.x_fast = fast_x(a, &p.cut);
    if (path == TPW_GEMM_WGMMA && (!tpw_cuda_of(exec)->wgmma || !tpw_gemm_wgmma_fits(&p.cut)))
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda gemm: no wgmma for %d columns from %d here", (int)a->w.cols,
                        (int)a->w.col0);
    // one row of packed x and of slices apart, in bytes; x may be padded to a whole tile
    const size_t x_row = (size_t)p.cut.chunk_begin[p.cut.slices] * TPW_CHUNK * 2, spare = 256 + 127 * x_row;
    const size_t row =
        x_row + (a->parts == 0 && p.cut.slices > 1 ? (size_t)p.cut.slices * (size_t)p.n * sizeof(float) : 0);
    const size_t have = tpw_cuda_of(exec)->scratch_bytes, fit = have > spare ? (have - spare) / row : 0;
    if (fit < 1)
        return tpw_fail(err, TPW_ERR_LIMIT, "cuda gemm: scratch of %zu bytes does not hold one row of %zu",
                        tpw_cuda_of(exec)->scratch_bytes, row);
    int32_t block = fit > 32768 ? 32768 : (int32_t)fit; // a grid has at most 65,535 rows
    block = block >= 128 ? block / 128 * 128 : block;
    for (int32_t m0 = 0; m0 < a->x.rows; m0 += block)
        TPW_TRY(rows(exec, a, p, path, m0, a->x.rows - m0 < block ? a->x.rows - m0 : block, err));
    return TPW_OK;
}

extern "C" tpw_status tpw_cuda_gemm(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err)
{
    return tpw_cuda_gemm_path(exec, args, TPW_GEMM_AUTO, err);
}
