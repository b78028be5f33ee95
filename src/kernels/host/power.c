/* Every element to one power. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/array.h"
#include "kernels/elementary.h"
#include "kernels/host/element.h"
#include "kernels/host/host_ops.h"

tpw_status tpw_host_power(const tpw_exec *exec, const tpw_power_args *args, tpw_error *err)
{
    (void)exec;
    TPW_TRY(tpw_power_check("host power", args, err));
    const int64_t count = tpw_array_count(&args->x);
    for (int64_t i = 0; i < count; i++) {
        float x = tpw_element_get(args->x.data, args->x.dtype, tpw_array_offset(&args->x, i));
        tpw_element_set(args->y.data, args->y.dtype, tpw_array_offset(&args->y, i), tpw_power(x, args->exponent));
    }
    return TPW_OK;
}
