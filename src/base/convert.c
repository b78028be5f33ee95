/* Strided conversion between any two dtypes with one rounding.
 *
 * Floats pass through F32, which holds every narrower float exactly. Integers pass through I64; on the way to a float
 * narrower than F32 they become an F32 rounded to odd, which a second rounding cannot tell from the exact value (24
 * bits are at least two more than the target's). SPDX-License-Identifier: Apache-2.0 */
#include "base/checked.h"
#include "base/dtype.h"

#define CHUNK    256 /* elements converted at a time, in buffers on the stack */
#define F32_SIGN 0x80000000u

static bool dtype_is_integer(tpw_dtype dtype)
{
    return dtype == TPW_BOOL || dtype == TPW_I32 || dtype == TPW_I64;
}

/* Address of element i; `size` is a constant at every call. memcpy at the callers: elements may be unaligned. */
static inline unsigned char *element(const tpw_strided *view, size_t i, ptrdiff_t size)
{
    return (unsigned char *)view->data + (ptrdiff_t)i * view->stride * size;
}

static inline uint16_t read_u16(const tpw_strided *view, size_t i)
{
    uint16_t bits;
    memcpy(&bits, element(view, i, 2), sizeof bits);
    return bits;
}

static inline uint32_t read_u32(const tpw_strided *view, size_t i)
{
    uint32_t bits;
    memcpy(&bits, element(view, i, 4), sizeof bits);
    return bits;
}

static inline void write_u16(const tpw_strided *view, size_t i, uint16_t bits)
{
    memcpy(element(view, i, 2), &bits, sizeof bits);
}

static inline void write_i32(const tpw_strided *view, size_t i, int32_t value)
{
    memcpy(element(view, i, 4), &value, sizeof value);
}

static inline void write_i64(const tpw_strided *view, size_t i, int64_t value)
{
    memcpy(element(view, i, 8), &value, sizeof value);
}

/* Elements first..first+n-1 of a float view as F32 bits, exact. */
static void load_floats(const tpw_strided *src, size_t first, size_t n, uint32_t *out)
{
    switch (src->dtype) {
    case TPW_F16:
        for (size_t i = 0; i < n; i++)
            out[i] = tpw_f32_bits(tpw_f16_to_f32(read_u16(src, first + i)));
        break;
    case TPW_BF16:
        for (size_t i = 0; i < n; i++)
            out[i] = (uint32_t)read_u16(src, first + i) << 16;
        break;
    case TPW_E4M3:
        for (size_t i = 0; i < n; i++)
            out[i] = tpw_f32_bits(tpw_e4m3_to_f32(*element(src, first + i, 1)));
        break;
    default: /* F32 */
        for (size_t i = 0; i < n; i++)
            out[i] = read_u32(src, first + i);
        break;
    }
}

static void load_integers(const tpw_strided *src, size_t first, size_t n, int64_t *out)
{
    switch (src->dtype) {
    case TPW_BOOL:
        for (size_t i = 0; i < n; i++)
            out[i] = *element(src, first + i, 1) != 0;
        break;
    case TPW_I32:
        for (size_t i = 0; i < n; i++) {
            int32_t value;
            memcpy(&value, element(src, first + i, 4), sizeof value);
            out[i] = value;
        }
        break;
    default: /* I64 */
        for (size_t i = 0; i < n; i++)
            memcpy(&out[i], element(src, first + i, 8), sizeof out[i]);
        break;
    }
}

/* F32 bits of an integer, rounded to nearest even, or to odd: bits that fall off set the last place. */
static uint32_t f32_from_integer(int64_t value, bool to_odd)
{
    if (value == 0)
        return 0;
    uint32_t sign = value < 0 ? F32_SIGN : 0;
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int top = 63 - __builtin_clzll(magnitude);
    uint32_t exponent = (uint32_t)(top + 126) << 23; /* one low: the significand's hidden bit adds it */
    if (top <= 23)
        return sign | (exponent + (uint32_t)(magnitude << (23 - top)));

    int shift = top - 23;
    uint32_t significand = (uint32_t)(magnitude >> shift);
    uint64_t remainder = magnitude & (((uint64_t)1 << shift) - 1);
    uint64_t half = (uint64_t)1 << (shift - 1);
    if (to_odd)
        significand |= remainder != 0;
    else if (remainder > half || (remainder == half && (significand & 1u) != 0))
        significand++;
    return sign | (exponent + significand);
}

/* Truncates toward zero to a signed integer of value_bits (31 or 63) bits and sign; NaN is 0. */
static int64_t integer_from_f32(uint32_t bits, int value_bits, size_t *cut)
{
    uint32_t magnitude = bits & ~F32_SIGN;
    bool negative = (bits & F32_SIGN) != 0;
    if (magnitude > 0x7F800000u)
        return 0;
    int exponent = (int)(magnitude >> 23) - 127;
    if (exponent < 0)
        return 0;
    if (exponent >= value_bits) {
        int64_t max = value_bits == 31 ? INT32_MAX : INT64_MAX;
        bool is_min = negative && exponent == value_bits && (magnitude & 0x7FFFFFu) == 0;
        *cut += !is_min;
        return negative ? -max - 1 : max;
    }
    uint64_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
    int64_t value = (int64_t)(exponent >= 23 ? significand << (exponent - 23) : significand >> (23 - exponent));
    return negative ? -value : value;
}

static void store_floats(const tpw_strided *dst, size_t first, size_t n, const uint32_t *in, size_t *cut)
{
    switch (dst->dtype) {
    case TPW_F16:
        for (size_t i = 0; i < n; i++)
            write_u16(dst, first + i, tpw_f16_from_f32(tpw_f32_from_bits(in[i])));
        break;
    case TPW_BF16:
        for (size_t i = 0; i < n; i++)
            write_u16(dst, first + i, tpw_bf16_from_f32(tpw_f32_from_bits(in[i])));
        break;
    case TPW_E4M3:
        for (size_t i = 0; i < n; i++)
            *element(dst, first + i, 1) = tpw_e4m3_from_f32(tpw_f32_from_bits(in[i]), cut);
        break;
    case TPW_BOOL:
        for (size_t i = 0; i < n; i++)
            *element(dst, first + i, 1) = (in[i] & ~F32_SIGN) != 0;
        break;
    case TPW_I32:
        for (size_t i = 0; i < n; i++)
            write_i32(dst, first + i, (int32_t)integer_from_f32(in[i], 31, cut));
        break;
    case TPW_I64:
        for (size_t i = 0; i < n; i++)
            write_i64(dst, first + i, integer_from_f32(in[i], 63, cut));
        break;
    default: /* F32 */
        for (size_t i = 0; i < n; i++)
            memcpy(element(dst, first + i, 4), &in[i], sizeof in[i]);
        break;
    }
}

/* Integers to BOOL, I32 or I64. */
static void store_integers(const tpw_strided *dst, size_t first, size_t n, const int64_t *in, size_t *cut)
{
    switch (dst->dtype) {
    case TPW_BOOL:
        for (size_t i = 0; i < n; i++)
            *element(dst, first + i, 1) = in[i] != 0;
        break;
    case TPW_I32:
        for (size_t i = 0; i < n; i++) {
            int64_t value = in[i] > INT32_MAX ? INT32_MAX : in[i] < INT32_MIN ? INT32_MIN : in[i];
            *cut += value != in[i];
            write_i32(dst, first + i, (int32_t)value);
        }
        break;
    default: /* I64 */
        for (size_t i = 0; i < n; i++)
            write_i64(dst, first + i, in[i]);
        break;
    }
}

/* Same dtype, not BOOL: raw bits, so that NaN payloads survive. */
static void copy_raw(const tpw_strided *dst, const tpw_strided *src, size_t count)
{
    ptrdiff_t size = (ptrdiff_t)tpw_dtype_size(dst->dtype);
    if (dst->stride == 1 && src->stride == 1) {
        memmove(dst->data, src->data, count * (size_t)size);
        return;
    }
    for (size_t i = 0; i < count; i++)
        memmove(element(dst, i, size), element(src, i, size), (size_t)size);
}

static tpw_status check_view(const tpw_strided *view, size_t count, const char *role, tpw_error *err)
{
    size_t size = tpw_dtype_size(view->dtype);
    if (size == 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "convert: the %s has the unknown dtype %d; give one of tpw_dtype", role,
                        (int)view->dtype);
    if (count == 0)
        return TPW_OK;
    if (view->data == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "convert: the %s (%s) is NULL though %zu elements are asked for", role,
                        tpw_dtype_name(view->dtype), count);

    size_t stride = view->stride < 0 ? 0 - (size_t)view->stride : (size_t)view->stride;
    size_t bytes;
    if (!tpw_mul_size(count - 1, stride, &bytes) || !tpw_mul_size(bytes, size, &bytes) ||
        !tpw_add_size(bytes, size, &bytes) || bytes > PTRDIFF_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "convert: the %s (%zu x %s, stride %td) spans more than the address space; check its shape",
                        role, count, tpw_dtype_name(view->dtype), view->stride);
    return TPW_OK;
}

tpw_status tpw_convert(tpw_strided dst, tpw_strided src, size_t count, size_t *saturated, tpw_error *err)
{
    TPW_TRY(check_view(&dst, count, "destination", err));
    TPW_TRY(check_view(&src, count, "source", err));

    size_t cut = 0;
    if (dst.dtype == src.dtype && dst.dtype != TPW_BOOL && count > 0) {
        copy_raw(&dst, &src, count);
        count = 0;
    }
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t n = count - first < CHUNK ? count - first : CHUNK;
        uint32_t floats[CHUNK];
        int64_t integers[CHUNK];
        if (!dtype_is_integer(src.dtype)) {
            load_floats(&src, first, n, floats);
            store_floats(&dst, first, n, floats, &cut);
            continue;
        }
        load_integers(&src, first, n, integers);
        if (dtype_is_integer(dst.dtype)) {
            store_integers(&dst, first, n, integers, &cut);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            floats[i] = f32_from_integer(integers[i], dst.dtype != TPW_F32);
        store_floats(&dst, first, n, floats, &cut);
    }
    if (saturated != NULL)
        *saturated = cut;
    return TPW_OK;
}
