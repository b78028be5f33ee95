/* Checked products of dimensions. SPDX-License-Identifier: Apache-2.0 */
#include "base/checked.h"

bool tpw_product_size(const int64_t *factors, int n, size_t *out)
{
    if (n < 0)
        return false;

    bool empty = false;
    for (int i = 0; i < n; i++) {
        if (factors[i] < 0)
            return false;
        empty |= factors[i] == 0;
    }

    /* a zero anywhere makes the exact product 0, though the factors before it may overflow */
    size_t product = empty ? 0 : 1;
    for (int i = 0; i < n && !empty; i++) {
        if (__builtin_mul_overflow(product, factors[i], &product))
            return false;
    }
    *out = product;
    return true;
}
