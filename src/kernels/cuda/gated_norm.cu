// The gated norm of the recurrence's output, a warp a head: ((x * inverse) * weight) * gate(z).
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/head_rows.cuh"

extern "C" {
#include "kernels/elementary.h"
}

namespace
{

struct gated_params {
    const void *x;
    int64_t x_stride;
    const void *z;
    int64_t z_stride;
    const float *weight;
    void *y;
    int64_t y_stride;
    int64_t count; // rows * heads
    int32_t heads;
    int32_t dim;
    float eps;
    bool sigmoid;
    bool x_bf16;
    bool z_bf16;
    bool y_bf16;
    bool wide;
};

__global__ void __launch_bounds__(TPW_HEAD_WARPS *TPW_WARP) gated_norm(gated_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t warps = blockDim.x / TPW_WARP, step = (int64_t)gridDim.x * warps;
    for (int64_t i = blockIdx.x * warps + threadIdx.x / TPW_WARP; i < p.count; i += step) {
        const int64_t m = i / p.heads, first = i % p.heads * p.dim, at = m * p.x_stride + first;
        const float squares = tpw_head_squares(p.x, p.x_bf16, at, p.dim, p.wide);
        const float inverse = tpw_rsqrt(squares / (float)p.dim + p.eps);
        for (int32_t c = (int32_t)(threadIdx.x % TPW_WARP); c < p.dim; c += TPW_WARP) {
            const float z = tpw_row_get(p.z, p.z_bf16, m * p.z_stride + first + c);
            const float x = tpw_row_get(p.x, p.x_bf16, at + c) * inverse * p.weight[c];
            tpw_row_set(p.y, p.y_bf16, m * p.y_stride + first + c, x * (p.sigmoid ? tpw_sigmoid(z) : tpw_silu(z)));
        }
    }
}

tpw_status check(const tpw_gated_norm_args *a, tpw_error *err)
{
    const tpw_mat *mats[] = {&a->x, &a->z, &a->y};
    const char *const names[] = {"x", "z", "y"};
    if (a->heads < 1 || a->x.cols % a->heads != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda gated_norm: %d heads do not divide %d columns", (int)a->heads,
                        (int)a->x.cols);
    for (int i = 0; i < 3; i++) {
        if (!tpw_is_act(mats[i]->dtype))
            return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda gated_norm: %s is %s, but only F32 and BF16 are supported",
                            names[i], tpw_dtype_name(mats[i]->dtype));
        if (mats[i]->rows != a->x.rows || mats[i]->cols != a->x.cols)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda gated_norm: %s is [%d, %d], not [%d, %d]", names[i],
                            (int)mats[i]->rows, (int)mats[i]->cols, (int)a->x.rows, (int)a->x.cols);
        TPW_TRY(tpw_mat_check("cuda gated_norm", names[i], mats[i], err));
    }
    return TPW_OK;
}

} // namespace

extern "C" tpw_status tpw_cuda_gated_norm(const tpw_exec *exec, const tpw_gated_norm_args *args, tpw_error *err)
{
    TPW_TRY(check(args, err));
    if (args->x.cols == 0)
        return TPW_OK;
    gated_params p = {};
    p.x = args->x.data, p.x_stride = args->x.stride, p.x_bf16 = args->x.dtype == TPW_BF16;
    p.z = args->z.data, p.z_stride = args->z.stride, p.z_bf16 = args->z.dtype == TPW_BF16;
    p.y = args->y.data, p.y_stride = args->y.stride, p.y_bf16 = args->y.dtype == TPW_BF16;
    p.weight = args->weight, p.eps = args->eps, p.sigmoid = args->sigmoid_gate;
    p.count = (int64_t)args->x.rows * args->heads, p.heads = args->heads, p.dim = args->x.cols / args->heads;
    p.wide = tpw_head_wide(&args->x, p.dim);
    const unsigned warps = tpw_head_warps(exec, p.count);
    return tpw_cuda_launch(exec, "gated_norm", err, gated_norm, dim3(tpw_blocks(exec, p.count, warps, 32)),
                           dim3(warps * TPW_WARP), 0, 1, p);
}
