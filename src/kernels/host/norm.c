/* Residual addition and RMSNorm of one step, row by row.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "kernels/elementary.h"
#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"
#include "kernels/tree.h"

static tpw_status check_act(const char *name, tpw_dtype dtype, tpw_error *err)
{
    if (dtype == TPW_BF16 || dtype == TPW_F32)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_UNSUPPORTED, "host add_norm: %s of type %s", name, tpw_dtype_name(dtype));
}

/* x += the slices of row m, joined by their tree. */
static void add_parts(const tpw_add_norm_args *args, int32_t m, float *x)
{
    const size_t cols = (size_t)args->h.cols, step = (size_t)args->h.rows * cols;
    const float *sum = args->sum + (size_t)m * cols;
    if (args->parts <= 1) {
        for (size_t c = 0; c < cols; c++)
            x[c] += sum[c];
        return;
    }
    for (size_t c = 0; c < cols; c++)
        x[c] += tpw_tree_parts(sum + c, step, args->parts);
}

tpw_status tpw_host_add_norm(const tpw_exec *exec, const tpw_add_norm_args *args, tpw_error *err)
{
    const tpw_vec *vec = tpw_host_vec(exec);
    const tpw_mat *h = &args->h, *y = &args->y;
    const int32_t cols = h->cols;
    TPW_TRY(check_act("h", h->dtype, err));
    if (y->data)
        TPW_TRY(check_act("y", y->dtype, err));
    if (args->parts != 0 && !tpw_parts_good(args->parts))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "host add_norm: a sum in %d parts; 1, 2, 4 or 8 make a tree",
                        (int)args->parts);
    tpw_scratch scratch = tpw_scratch_begin(exec);
    float *x, *gain;
    TPW_TRY(tpw_scratch_floats(&scratch, (size_t)cols, "host add_norm", &x, err));
    TPW_TRY(tpw_scratch_floats(&scratch, (size_t)cols, "host add_norm", &gain, err));
    for (int32_t c = 0; y->data && c < cols; c++)
        gain[c] = 1.0f + args->weight[c];
    for (int32_t m = 0; m < h->rows; m++) {
        vec->load(x, h->data, h->dtype, m * h->stride, cols);
        if (args->sum) {
            add_parts(args, m, x);
            vec->store(h->data, h->dtype, m * h->stride, x, cols);
            vec->load(x, h->data, h->dtype, m * h->stride, cols); /* the norm reads the rounded h */
        }
        if (!y->data)
            continue;
        float inverse = tpw_rsqrt(vec->sum_squares(x, cols) / (float)cols + args->eps);
        for (int32_t c = 0; c < cols; c++)
            x[c] = x[c] * inverse * gain[c];
        vec->store(y->data, y->dtype, m * y->stride, x, cols);
    }
    return TPW_OK;
}
