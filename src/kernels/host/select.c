/* Choosing rows and tokens: gather and arg-max.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "kernels/host/host_ops.h"

tpw_status tpw_host_gather(const tpw_exec *exec, const tpw_gather_args *args, tpw_error *err)
{
    (void)exec;
    const tpw_mat *x = &args->x, *y = &args->y;
    if (x->dtype != y->dtype || x->cols != y->cols)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "host gather: rows of %d %s into rows of %d %s", (int)x->cols,
                        tpw_dtype_name(x->dtype), (int)y->cols, tpw_dtype_name(y->dtype));
    const size_t size = tpw_dtype_size(x->dtype);
    for (int32_t i = 0; i < y->rows; i++) {
        const int32_t to = args->to == NULL ? i : args->to[i];
        if (args->rows[i] < 0 || args->rows[i] >= x->rows)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "host gather: row %d of %d", (int)args->rows[i], (int)x->rows);
        if (args->to != NULL && (to < 0 || to >= args->to_rows))
            return tpw_fail(err, TPW_ERR_ARGUMENT, "host gather: to row %d of %d", (int)to, (int)args->to_rows);
        memcpy((char *)y->data + (size_t)(to * y->stride) * size,
               (const char *)x->data + (size_t)(args->rows[i] * x->stride) * size, (size_t)x->cols * size);
    }
    return TPW_OK;
}

tpw_status tpw_host_argmax(const tpw_exec *exec, const tpw_argmax_args *args, tpw_error *err)
{
    (void)exec;
    const tpw_mat *logits = &args->logits;
    if (logits->dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "host argmax: logits of type %s", tpw_dtype_name(logits->dtype));
    for (int32_t r = 0; r < logits->rows; r++) {
        const float *row = (const float *)logits->data + r * logits->stride;
        float best = -INFINITY;
        int32_t at = -1;
        for (int32_t c = 0; c < logits->cols; c++)
            /* false for NaN; the second half lets a first -infinity count as a number */
            if (row[c] > best || (at < 0 && row[c] == best)) {
                best = row[c];
                at = c;
            }
        args->value[r] = best;
        args->id[r] = at < 0 ? -1 : args->vocab0 + at;
    }
    return TPW_OK;
}
