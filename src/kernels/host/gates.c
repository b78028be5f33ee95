/* What feeds the recurrence beside the convolution: decay and beta of each value head, and the l2 norm of q and k.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "kernels/elementary.h"
#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"

#define L2_EPS 1e-6f

static float *row_of(const tpw_mat *m, int32_t row)
{
    return (float *)m->data + row * m->stride;
}

tpw_status tpw_host_gates(const tpw_exec *exec, const tpw_gates_args *args, tpw_error *err)
{
    (void)exec; /* few values: no loop of the table is worth it */
    const tpw_mat *mats[] = {&args->a, &args->b, &args->decay, &args->beta};
    for (int i = 0; i < 4; i++)
        if (mats[i]->dtype != TPW_F32 || mats[i]->rows != args->a.rows || mats[i]->cols != args->a.cols)
            return tpw_fail(err, TPW_ERR_UNSUPPORTED, "gates: operand %d is %s [%d, %d], not F32 [%d, %d]", i,
                            tpw_dtype_name(mats[i]->dtype), mats[i]->rows, mats[i]->cols, args->a.rows, args->a.cols);
    for (int32_t m = 0; m < args->a.rows; m++) {
        const float *a = row_of(&args->a, m), *b = row_of(&args->b, m);
        float *decay = row_of(&args->decay, m), *beta = row_of(&args->beta, m);
        for (int32_t h = 0; h < args->a.cols; h++) {
            decay[h] = tpw_exp(-tpw_exp(args->a_log[h]) * tpw_softplus(a[h] + args->dt_bias[h]));
            beta[h] = tpw_sigmoid(b[h]);
        }
    }
    return TPW_OK;
}

tpw_status tpw_host_l2norm(const tpw_exec *exec, const tpw_l2norm_args *args, tpw_error *err)
{
    const tpw_vec *vec = tpw_host_vec(exec);
    if ((args->x.dtype != TPW_F32 && args->x.dtype != TPW_BF16) || args->y.dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "l2norm: %s to %s is not supported, only F32 or BF16 to F32",
                        tpw_dtype_name(args->x.dtype), tpw_dtype_name(args->y.dtype));
    if (args->heads < 1 || args->x.cols % args->heads != 0 || args->y.cols != args->x.cols)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "l2norm: %d heads do not divide %d columns into %d", args->heads,
                        args->x.cols, args->y.cols);
    int32_t dim = args->x.cols / args->heads;
    for (int32_t m = 0; m < args->x.rows; m++) {
        vec->load(row_of(&args->y, m), args->x.data, args->x.dtype, m * args->x.stride, args->x.cols);
        for (int32_t h = 0; h < args->heads; h++) {
            float *y = row_of(&args->y, m) + (int64_t)h * dim;
            float inverse = tpw_rsqrt(vec->sum_squares(y, dim) + L2_EPS);
            for (int32_t i = 0; i < dim; i++)
                y[i] = y[i] * inverse * args->scale;
        }
    }
    return TPW_OK;
}
