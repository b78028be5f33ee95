// The l2 norm of queries and keys, a warp a head. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/head_rows.cuh"

extern "C" {
#include "kernels/elementary.h"
}

namespace
{

#define L2_EPS 1e-6f

struct l2norm_params {
    const void *x;
    int64_t x_stride;
    float *y;
    int64_t y_stride;
    int64_t count; // rows * heads
    int32_t heads;
    int32_t dim;
    float scale;
    bool bf16;
    bool wide;
};

__global__ void __launch_bounds__(TPW_HEAD_WARPS *TPW_WARP) l2norm(l2norm_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t warps = blockDim.x / TPW_WARP, step = (int64_t)gridDim.x * warps;
    for (int64_t i = blockIdx.x * warps + threadIdx.x / TPW_WARP; i < p.count; i += step) {
        const int64_t m = i / p.heads, first = i % p.heads * p.dim, at = m * p.x_stride + first;
        const float inverse = tpw_rsqrt(tpw_head_squares(p.x, p.bf16, at, p.dim, p.wide) + L2_EPS);
        for (int32_t c = (int32_t)(threadIdx.x % TPW_WARP); c < p.dim; c += TPW_WARP)
            p.y[m * p.y_stride + first + c] = tpw_row_get(p.x, p.bf16, at + c) * inverse * p.scale;
    }
}

} // namespace

extern "C" tpw_status tpw_cuda_l2norm(const tpw_exec *exec, const tpw_l2norm_args *args, tpw_error *err)
{
    const tpw_mat *x = &args->x, *y = &args->y;
    if (!tpw_is_act(x->dtype) || y->dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda l2norm: %s to %s is not supported, only F32 or BF16 to F32",
                        tpw_dtype_name(x->dtype), tpw_dtype_name(y->dtype));
    TPW_TRY(tpw_mat_check("cuda l2norm", "x", x, err));
    TPW_TRY(tpw_mat_check("cuda l2norm", "y", y, err));
    if (args->heads < 1 || x->cols % args->heads != 0 || y->cols != x->cols || y->rows < x->rows)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda l2norm: %d heads do not divide x [%d, %d] into y [%d, %d]",
                        (int)args->heads, (int)x->rows, (int)x->cols, (int)y->rows, (int)y->cols);
    if (x->cols == 0)
        return TPW_OK;
    l2norm_params p = {};
    p.x = x->data, p.x_stride = x->stride, p.bf16 = x->dtype == TPW_BF16;
    p.y = (float *)y->data, p.y_stride = y->stride;
    p.count = (int64_t)x->rows * args->heads, p.heads = args->heads, p.dim = x->cols / args->heads;
    p.scale = args->scale, p.wide = tpw_head_wide(x, p.dim);
    const unsigned warps = tpw_head_warps(exec, p.count);
    return tpw_cuda_launch(exec, "l2norm", err, l2norm, dim3(tpw_blocks(exec, p.count, warps, 32)),
                           dim3(warps * TPW_WARP), 0, 1, p);
}
