/* Arrays side by side on the last axis, raw bits. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/array.h"
#include "kernels/host/host_ops.h"

/* One row of the last axis. */
static void copy_row(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, size_t size)
{
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * to_step * (int64_t)size, from + i * from_step * (int64_t)size, size);
}

tpw_status tpw_host_concat(const tpw_exec *exec, const tpw_concat_args *args, tpw_error *err)
{
    (void)exec;
    TPW_TRY(tpw_concat_check("host concat", args, err));
    const size_t size = tpw_dtype_size(args->y.dtype);
    const int32_t last = args->y.dims - 1;
    const int64_t y_step = args->y.stride[last];
    tpw_array y = args->y;
    y.dims = last;
    const int64_t rows = tpw_array_count(&y);
    int64_t begin = 0;
    for (int32_t i = 0; i < args->count; i++) {
        tpw_array x = args->x[i];
        const int64_t n = x.extent[last];
        x.dims = last;
        for (int64_t r = 0; n > 0 && r < rows; r++)
            copy_row((char *)args->y.data + (tpw_array_offset(&y, r) + begin * y_step) * (int64_t)size, y_step,
                     (const char *)x.data + tpw_array_offset(&x, r) * (int64_t)size, x.stride[last], n, size);
        begin += n;
    }
    return TPW_OK;
}
