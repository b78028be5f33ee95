/* The state digest as ops of the host backend: of a block, of many, and of every row of a step.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"
#include "kernels/host/host_ops.h"

tpw_status tpw_host_digest(const tpw_exec *exec, const tpw_digest_args *args, tpw_error *err)
{
    (void)exec;
    (void)err;
    const tpw_mat *x = &args->x;
    *args->sum +=
        tpw_digest_block(args->key, x->data, x->dtype, x->rows, x->cols, x->stride, args->index0, args->index_stride);
    return TPW_OK;
}

tpw_status tpw_host_digest_list(const tpw_exec *exec, const tpw_digest_list_args *args, tpw_error *err)
{
    for (int32_t i = 0; i < args->count; i++)
        TPW_TRY(tpw_host_digest(exec, &args->jobs[i], err));
    return TPW_OK;
}

tpw_status tpw_host_digest_rows(const tpw_exec *exec, const tpw_digest_rows_args *args, tpw_error *err)
{
    (void)exec;
    (void)err;
    const tpw_mat *x = &args->x;
    const size_t pitch = (size_t)x->stride * tpw_dtype_size(x->dtype);
    for (int32_t i = 0; i < args->batch->segment_count; i++) {
        const tpw_segment *s = &args->batch->segments[i];
        for (int32_t r = 0; r < s->rows; r++)
            args->sums[s->row0 + r] =
                tpw_digest_block(args->key, (const char *)x->data + (size_t)(s->row0 + r) * pitch, x->dtype, 1, x->cols,
                                 x->cols, (uint64_t)(s->pos + r) * (uint64_t)x->cols, 0);
    }
    return TPW_OK;
}
