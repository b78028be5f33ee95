/* Checked arithmetic: every size that comes from a file, a flag or a product of dimensions goes through here.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BASE_CHECKED_H
#define TPW_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns true and sets *out when the exact result fits, else returns false and leaves *out alone. */
static inline bool tpw_add_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool tpw_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool tpw_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool tpw_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Rounds `a` up to a multiple of `unit` (unit > 0). */
static inline bool tpw_align_size(size_t a, size_t unit, size_t *out)
{
    size_t padded;
    if (!tpw_add_size(a, unit - 1, &padded))
        return false;
    *out = padded / unit * unit;
    return true;
}

/* Product of n factors, all of which must be >= 0. */
bool tpw_product_size(const int64_t *factors, int n, size_t *out);

#endif
