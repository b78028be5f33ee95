/* The state digest as an op of the host backend.
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
