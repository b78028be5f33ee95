/* The product of the feed-forward gate: y = act(silu(gate) * up).
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"

#define BLOCK 1024 /* elements between F32 in and act out */

tpw_status tpw_host_swiglu(const tpw_exec *exec, const tpw_swiglu_args *args, tpw_error *err)
{
    const tpw_vec *vec = tpw_host_vec(exec);
    const tpw_mat *gate = &args->gate, *up = &args->up, *y = &args->y;
    if (gate->dtype != TPW_F32 || up->dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "host swiglu: gate of type %s, up of type %s",
                        tpw_dtype_name(gate->dtype), tpw_dtype_name(up->dtype));
    if (y->dtype != TPW_BF16 && y->dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "host swiglu: y of type %s", tpw_dtype_name(y->dtype));
    tpw_scratch scratch = tpw_scratch_begin(exec);
    float *block;
    TPW_TRY(tpw_scratch_floats(&scratch, BLOCK, "host swiglu", &block, err));
    for (int32_t m = 0; m < y->rows; m++)
        for (int32_t c = 0; c < y->cols; c += BLOCK) {
            int32_t n = y->cols - c < BLOCK ? y->cols - c : BLOCK;
            vec->silu(block, (const float *)gate->data + m * gate->stride + c,
                      (const float *)up->data + m * up->stride + c, n);
            vec->store(y->data, y->dtype, m * y->stride + c, block, n);
        }
    return TPW_OK;
}
