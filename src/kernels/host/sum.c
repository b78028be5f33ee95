/* Sum over any axes by the tree of the vector. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/array.h"
#include "kernels/host/element.h"
#include "kernels/host/host_ops.h"
#include "kernels/tree.h"

/* One piece: terms `first`.. of the summed axes, at most 256; lanes past the end stay +0. */
static float sum_piece(const tpw_array *summed, int64_t base, int64_t first, int64_t count)
{
    float lane[TPW_TREE_LANES] = {0};
    for (int64_t i = 0; i < count; i++)
        lane[i / TPW_TREE_RUN] +=
            tpw_element_get(summed->data, summed->dtype, base + tpw_array_offset(summed, first + i));
    return tpw_tree_lanes(lane);
}

tpw_status tpw_host_sum(const tpw_exec *exec, const tpw_sum_args *args, tpw_error *err)
{
    (void)exec;
    tpw_array kept, out, summed;
    TPW_TRY(tpw_sum_split("host sum", args, &kept, &out, &summed, err));
    const int64_t outs = tpw_array_count(&out), terms = tpw_array_count(&summed);
    for (int64_t o = 0; o < outs; o++) {
        const int64_t base = tpw_array_offset(&kept, o);
        float total = 0.0f;
        for (int64_t first = 0; first < terms; first += TPW_TREE_PIECE)
            total += sum_piece(&summed, base, first, terms - first < TPW_TREE_PIECE ? terms - first : TPW_TREE_PIECE);
        tpw_element_set(out.data, out.dtype, tpw_array_offset(&out, o), total);
    }
    return TPW_OK;
}
