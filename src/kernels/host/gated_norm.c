/* The gated norm of the recurrence's output: norm first, weight not centred on zero, then the gate.
 *
 * The products are formed from the left: ((x * inverse) * weight) * gate(z). SPDX-License-Identifier: Apache-2.0 */
#include "kernels/elementary.h"
#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"

static tpw_status norm_check(const tpw_gated_norm_args *a, tpw_error *err)
{
    const tpw_mat *mats[] = {&a->x, &a->z, &a->y};
    if (a->heads < 1 || a->x.cols % a->heads != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "gated_norm: %d heads do not divide %d columns", a->heads, a->x.cols);
    for (int i = 0; i < 3; i++) {
        if (mats[i]->dtype != TPW_F32 && mats[i]->dtype != TPW_BF16)
            return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                            "gated_norm: operand %d is %s, but only F32 and BF16 are supported", i,
                            tpw_dtype_name(mats[i]->dtype));
        if (mats[i]->rows != a->x.rows || mats[i]->cols != a->x.cols)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "gated_norm: operand %d is [%d, %d], not [%d, %d]", i, mats[i]->rows,
                            mats[i]->cols, a->x.rows, a->x.cols);
    }
    return TPW_OK;
}

tpw_status tpw_host_gated_norm(const tpw_exec *exec, const tpw_gated_norm_args *args, tpw_error *err)
{
    TPW_TRY(norm_check(args, err));
    const tpw_vec *vec = tpw_host_vec(exec);
    int32_t dim = args->x.cols / args->heads;
    tpw_scratch scratch = tpw_scratch_begin(exec);
    float *x, *z;
    TPW_TRY(tpw_scratch_floats(&scratch, (size_t)dim, "gated_norm", &x, err));
    TPW_TRY(tpw_scratch_floats(&scratch, (size_t)dim, "gated_norm", &z, err));
    for (int32_t m = 0; m < args->x.rows; m++) {
        for (int32_t h = 0; h < args->heads; h++) {
            int64_t col = (int64_t)h * dim;
            vec->load(x, args->x.data, args->x.dtype, m * args->x.stride + col, dim);
            vec->load(z, args->z.data, args->z.dtype, m * args->z.stride + col, dim);
            float inverse = tpw_rsqrt(vec->sum_squares(x, dim) / (float)dim + args->eps);
            for (int32_t i = 0; i < dim; i++)
                x[i] = x[i] * inverse * args->weight[i];
            if (args->sigmoid_gate)
                vec->sigmoid_mul(x, x, z, dim);
            else
                vec->silu(x, z, x, dim);
            vec->store(args->y.data, args->y.dtype, m * args->y.stride + col, x, dim);
        }
    }
    return TPW_OK;
}
