/* Conversion of a strided array, element by element, by the rules of tpw_convert.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/array.h"
#include "kernels/host/host_ops.h"

tpw_status tpw_host_cast(const tpw_exec *exec, const tpw_cast_args *args, tpw_error *err)
{
    (void)exec;
    TPW_TRY(tpw_cast_check("host cast", args, err));
    tpw_array x = args->x, y = args->y; /* of the outer axes; the last one is a strided row */
    int64_t n = 1, x_step = 0, y_step = 0;
    if (x.dims > 0) {
        x.dims = --y.dims;
        n = x.extent[x.dims];
        x_step = x.stride[x.dims];
        y_step = y.stride[y.dims];
    }
    const int64_t rows = n > 0 ? tpw_array_count(&x) : 0;
    const int64_t x_size = (int64_t)tpw_dtype_size(x.dtype), y_size = (int64_t)tpw_dtype_size(y.dtype);
    for (int64_t r = 0; r < rows; r++) {
        tpw_strided from = {(char *)x.data + tpw_array_offset(&x, r) * x_size, x.dtype, (ptrdiff_t)x_step};
        tpw_strided to = {(char *)y.data + tpw_array_offset(&y, r) * y_size, y.dtype, (ptrdiff_t)y_step};
        TPW_TRY(tpw_convert(to, from, (size_t)n, NULL, err));
    }
    return TPW_OK;
}
