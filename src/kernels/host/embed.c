/* Embedding rows: copied by their owner, all-zero bits elsewhere.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"

#define BLOCK 1024 /* elements converted at a time */

/* One row from the table's type to that of `out`. */
static void copy_row(const tpw_vec *vec, const tpw_mat *table, int64_t from, const tpw_mat *out, int64_t to,
                     float *block)
{
    const int32_t cols = out->cols;
    if (table->dtype == out->dtype) {
        size_t size = tpw_dtype_size(out->dtype);
        memcpy((char *)out->data + (size_t)to * size, (const char *)table->data + (size_t)from * size,
               (size_t)cols * size);
        return;
    }
    for (int32_t c = 0; c < cols; c += BLOCK) {
        int32_t n = cols - c < BLOCK ? cols - c : BLOCK;
        vec->load(block, table->data, table->dtype, from + c, n);
        vec->store(out->data, out->dtype, to + c, block, n);
    }
}

tpw_status tpw_host_embed(const tpw_exec *exec, const tpw_embed_args *args, tpw_error *err)
{
    const tpw_mat *table = &args->table, *out = &args->out;
    if (table->dtype != TPW_BF16 && table->dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "host embed: table of type %s", tpw_dtype_name(table->dtype));
    if (out->dtype != TPW_BF16 && out->dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "host embed: output of type %s", tpw_dtype_name(out->dtype));
    tpw_scratch scratch = tpw_scratch_begin(exec);
    float *block;
    TPW_TRY(tpw_scratch_floats(&scratch, BLOCK, "host embed", &block, err));
    const size_t size = tpw_dtype_size(out->dtype);
    for (int32_t m = 0; m < out->rows; m++) {
        int64_t row = (int64_t)args->ids[m] - args->vocab0;
        if (row >= 0 && row < table->rows)
            copy_row(tpw_host_vec(exec), table, row * table->stride, out, m * out->stride, block);
        else
            memset((char *)out->data + (size_t)(m * out->stride) * size, 0, (size_t)out->cols * size);
    }
    return TPW_OK;
}
