/* Strided arrays for the ops that take any shape: checks, and where an element lies. For backends, valid in C and CUDA.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_ARRAY_H
#define TPW_KERNELS_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checked.h"
#include "base/device_code.h"
#include "kernels/ops.h"

/* Elements; 0 when an extent is 0. For a checked array. */
TPW_HD int64_t tpw_array_count(const tpw_array *a)
{
    int64_t count = 1;
    for (int32_t d = 0; d < a->dims; d++)
        count *= a->extent[d];
    return count;
}

/* Offset in elements of the element with row-major number `index`. */
TPW_HD int64_t tpw_array_offset(const tpw_array *a, int64_t index)
{
    int64_t offset = 0;
    for (int32_t d = a->dims - 1; d >= 0; d--) {
        offset += index % a->extent[d] * a->stride[d];
        index /= a->extent[d];
    }
    return offset;
}

/* Bytes from the first to the last element, in both directions together, fit the address space. */
static inline bool tpw_array_span_good(const tpw_array *a, size_t size)
{
    size_t span = 0, part;
    for (int32_t d = 0; d < a->dims; d++) {
        size_t step = a->stride[d] < 0 ? 0 - (size_t)a->stride[d] : (size_t)a->stride[d];
        size_t steps = a->extent[d] > 0 ? (size_t)(a->extent[d] - 1) : 0;
        if (!tpw_mul_size(steps, step, &part) || !tpw_add_size(span, part, &span))
            return false;
    }
    return tpw_add_size(span, 1, &span) && tpw_mul_size(span, size, &span) && span <= PTRDIFF_MAX;
}

/* ERR_ARGUMENT, naming `op` and `name`, for what cannot be an array: dims, extents, an unknown dtype, NULL, a size past the
 * address space. On success every offset and the product of any extents fit an int64_t, also where one extent is 0 (then
 * data may be NULL). */
static inline tpw_status tpw_array_check(const char *op, const char *name, const tpw_array *a, tpw_error *err)
{
    size_t size = tpw_dtype_size(a->dtype), count = 1;
    if (size == 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: %s has the unknown dtype %d", op, name, (int)a->dtype);
    if (a->dims < 0 || a->dims > TPW_DIMS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: %s has %d dims; 0 to %d are possible", op, name, (int)a->dims,
                        TPW_DIMS_MAX);
    bool empty = false, good = true;
    for (int32_t d = 0; d < a->dims; d++) {
        if (a->extent[d] < 0)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: %s has extent %lld on axis %d", op, name,
                            (long long)a->extent[d], (int)d);
        empty = empty || a->extent[d] == 0;
        good = good && tpw_mul_size(count, a->extent[d] > 0 ? (size_t)a->extent[d] : 1, &count) && count <= PTRDIFF_MAX;
    }
    if (!good || !tpw_array_span_good(a, size))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: %s spans more than the address space; check its shape", op, name);
    if (a->data == NULL && !empty)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: %s is NULL though it has %zu elements", op, name, count);
    return TPW_OK;
}

/* ERR_ARGUMENT unless both have the same extents. */
static inline tpw_status tpw_array_same(const char *op, const tpw_array *x, const tpw_array *y, tpw_error *err)
{
    if (x->dims != y->dims)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: x has %d dims, y has %d", op, (int)x->dims, (int)y->dims);
    for (int32_t d = 0; d < x->dims; d++)
        if (x->extent[d] != y->extent[d])
            return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: axis %d is %lld in x and %lld in y", op, (int)d,
                            (long long)x->extent[d], (long long)y->extent[d]);
    return TPW_OK;
}

static inline tpw_status tpw_array_float(const char *op, const char *name, tpw_dtype dtype, tpw_error *err)
{
    if (dtype == TPW_F32 || dtype == TPW_BF16 || dtype == TPW_F16)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_UNSUPPORTED, "%s: %s of type %s; F32, BF16 and F16 are supported", op, name,
                    tpw_dtype_name(dtype));
}

static inline tpw_status tpw_cast_check(const char *op, const tpw_cast_args *args, tpw_error *err)
{
    TPW_TRY(tpw_array_check(op, "x", &args->x, err));
    TPW_TRY(tpw_array_check(op, "y", &args->y, err));
    return tpw_array_same(op, &args->x, &args->y, err);
}

static inline tpw_status tpw_power_check(const char *op, const tpw_power_args *args, tpw_error *err)
{
    TPW_TRY(tpw_array_check(op, "x", &args->x, err));
    TPW_TRY(tpw_array_check(op, "y", &args->y, err));
    TPW_TRY(tpw_array_float(op, "x", args->x.dtype, err));
    TPW_TRY(tpw_array_float(op, "y", args->y.dtype, err));
    return tpw_array_same(op, &args->x, &args->y, err);
}

/* Splits x of a sum into its kept axes, with y's strides beside them, and its summed ones. ERR_ARGUMENT when y has another
 * shape than x without the summed axes (with `keep`: with 1 in their place), or when a bit of `axes` is past x's axes. */
static inline tpw_status tpw_sum_split(const char *op, const tpw_sum_args *args, tpw_array *kept, tpw_array *out,
                                       tpw_array *summed, tpw_error *err)
{
    const tpw_array *x = &args->x, *y = &args->y;
    *kept = *summed = *x;
    *out = *y;
    kept->dims = summed->dims = out->dims = 0;
    TPW_TRY(tpw_array_check(op, "x", x, err));
    TPW_TRY(tpw_array_check(op, "y", y, err));
    TPW_TRY(tpw_array_float(op, "x", x->dtype, err));
    TPW_TRY(tpw_array_float(op, "y", y->dtype, err));
    if ((args->axes >> x->dims) != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: axes 0x%x of an array of %d dims", op, (unsigned)args->axes,
                        (int)x->dims);
    int32_t at = 0; /* the axis of y */
    for (int32_t d = 0; d < x->dims; d++) {
        bool sum = (args->axes >> d & 1) != 0;
        tpw_array *to = sum ? summed : kept;
        to->extent[to->dims] = x->extent[d];
        to->stride[to->dims++] = x->stride[d];
        if (sum && !args->keep)
            continue;
        if (at >= y->dims || y->extent[at] != (sum ? 1 : x->extent[d]))
            return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: axis %d of y should have extent %lld", op, (int)at,
                            (long long)(sum ? 1 : x->extent[d]));
        if (!sum) {
            out->extent[out->dims] = y->extent[at];
            out->stride[out->dims++] = y->stride[at];
        }
        at++;
    }
    if (at != y->dims)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: y has %d dims, but %d are left of x", op, (int)y->dims, (int)at);
    return TPW_OK;
}

static inline tpw_status tpw_concat_check(const char *op, const tpw_concat_args *args, tpw_error *err)
{
    const tpw_array *y = &args->y;
    int64_t width = 0;
    TPW_TRY(tpw_array_check(op, "y", y, err));
    if (args->count < 1 || args->count > TPW_CONCAT_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: %d inputs; 1 to %d are possible", op, (int)args->count,
                        TPW_CONCAT_MAX);
    if (y->dims < 1)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: y has no axis", op);
    for (int32_t i = 0; i < args->count; i++) {
        const tpw_array *x = &args->x[i];
        TPW_TRY(tpw_array_check(op, "an input", x, err));
        bool same = x->dtype == y->dtype && x->dims == y->dims;
        for (int32_t d = 0; same && d < y->dims - 1; d++)
            same = x->extent[d] == y->extent[d];
        if (!same)
            return tpw_fail(err, TPW_ERR_ARGUMENT,
                            "%s: input %d (%s, %d dims) has another type or leading extent than y", op, (int)i,
                            tpw_dtype_name(x->dtype), (int)x->dims);
        if (!tpw_add_i64(width, x->extent[y->dims - 1], &width))
            return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: the inputs' last axes add up past the address space", op);
    }
    if (width != y->extent[y->dims - 1])
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: the inputs' last axes add up to %lld, y's has %lld", op,
                        (long long)width, (long long)y->extent[y->dims - 1]);
    return TPW_OK;
}

#endif
