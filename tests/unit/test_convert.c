/* Tests of tpw_convert: every pair of dtypes against the reference, strides, lengths, single rounding, cut counts and
 * refusals. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "float_reference.h"

#define GUARD 0xA5

static const ref_format *format_of(tpw_dtype dtype)
{
    switch (dtype) {
    case TPW_F32:
        return &ref_f32;
    case TPW_F16:
        return &ref_f16;
    case TPW_BF16:
        return &ref_bf16;
    case TPW_E4M3:
        return &ref_e4m3;
    default:
        return NULL;
    }
}

static const size_t sizes[TPW_DTYPE_COUNT] = {
    [TPW_F32] = 4, [TPW_F16] = 2, [TPW_BF16] = 2, [TPW_E4M3] = 1, [TPW_BOOL] = 1, [TPW_I32] = 4, [TPW_I64] = 8};

/* Zero-extended raw bits of one element (little endian). */
static uint64_t bits_at(const unsigned char *at, tpw_dtype dtype)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < sizes[dtype]; i++)
        bits |= (uint64_t)at[i] << (8 * i);
    return bits;
}

/* The exact value of raw bits; -0, infinities and NaN included. */
static long double value_of(uint64_t bits, tpw_dtype dtype)
{
    if (format_of(dtype) != NULL)
        return ref_decode(format_of(dtype), (uint32_t)bits);
    if (dtype == TPW_BOOL)
        return bits != 0;
    if (dtype == TPW_I32)
        return (long double)(int32_t)(uint32_t)bits;
    return (long double)(int64_t)bits;
}

static uint64_t integer_bits(long double x, tpw_dtype dtype, bool *cut)
{
    long double limit = dtype == TPW_I32 ? 0x1p31L : 0x1p63L;
    long double whole = truncl(x);
    *cut = whole < -limit || whole >= limit;
    int64_t result;
    if (dtype == TPW_I32)
        result = whole < -limit ? INT32_MIN : whole >= limit ? INT32_MAX : (int64_t)whole;
    else
        result = whole < -limit ? INT64_MIN : whole >= limit ? INT64_MAX : (int64_t)whole;
    return dtype == TPW_I32 ? (uint32_t)(int32_t)result : (uint64_t)result;
}

/* Checks one result and returns whether the reference counts it as cut. */
static bool check_element(uint64_t got, tpw_dtype dst, uint64_t from, tpw_dtype src)
{
    const ref_format *format = format_of(dst);
    long double x = value_of(from, src);
    bool cut = false;
    uint64_t expected;
    if (dst == src && dst != TPW_BOOL) {
        expected = from;
    } else if (format != NULL && isnan(x)) {
        cr_assert(ref_is_nan(format, (uint32_t)got), "%s %jx to %s: NaN became %jx", tpw_dtype_name(src),
                  (uintmax_t)from, tpw_dtype_name(dst), (uintmax_t)got);
        expected = (got & (ref_sign_bit(format) - 1)) | (signbit(x) ? ref_sign_bit(format) : 0);
    } else if (format == &ref_f32) {
        float rounded = (float)x;
        uint32_t bits;
        memcpy(&bits, &rounded, sizeof bits);
        expected = bits;
    } else if (format != NULL) {
        expected = ref_encode(format, x, &cut);
    } else if (dst == TPW_BOOL) {
        expected = isnan(x) || x != 0;
    } else {
        expected = isnan(x) ? 0 : integer_bits(x, dst, &cut);
    }
    cr_assert_eq(got, expected, "%s %jx to %s: %jx, not %jx", tpw_dtype_name(src), (uintmax_t)from, tpw_dtype_name(dst),
                 (uintmax_t)got, (uintmax_t)expected);
    return cut;
}

/* A strided array in a heap block of exact size, one byte off alignment, all other bytes GUARD. */
typedef struct array {
    unsigned char *block;
    size_t bytes;
    tpw_strided view;
    size_t count;
} array;

static unsigned char *at(const array *a, size_t i)
{
    return (unsigned char *)a->view.data + (ptrdiff_t)i * a->view.stride * (ptrdiff_t)sizes[a->view.dtype];
}

static array array_make(tpw_dtype dtype, ptrdiff_t stride, size_t count)
{
    size_t step = (size_t)(stride < 0 ? -stride : stride);
    size_t span = count == 0 ? 0 : (count - 1) * step + 1;
    array a = {.bytes = 1 + span * sizes[dtype], .count = count};
    a.block = malloc(a.bytes);
    cr_assert_not_null(a.block);
    memset(a.block, GUARD, a.bytes);
    size_t first = stride < 0 && count > 0 ? (span - 1) * sizes[dtype] : 0;
    a.view = (tpw_strided){a.block + 1 + first, dtype, stride};
    return a;
}

/* Random bits of a kind that exercises the dtype: all exponents, all integer lengths, specials. */
static uint64_t random_bits(tpw_dtype dtype, uint64_t *state)
{
    static const uint32_t specials[] = {0,          0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x43E00000,
                                        0x43E80000, 0x43E80001, 0xCF000000, 0x4F000000, 0xDF000000, 0x5F000000,
                                        0x3F7FFFFF, 0x477FF000, 0x00000001, 0xCF000001, 0xDF000001, 0x4EFFFFFF};
    uint64_t r = ref_random(state);
    uint64_t choice = ref_random(state) >> 40;
    if (dtype == TPW_F32 && choice % 4 == 0)
        return specials[choice / 4 % (sizeof specials / sizeof specials[0])];
    if (dtype == TPW_F32 && choice % 4 == 1) /* exponents near those of the narrow formats and of the integers */
        return (r & 0x80FFFFFFu) | (uint64_t)(100 + choice / 4 % 95) << 23;
    if ((dtype == TPW_F16 || dtype == TPW_BF16) && choice % 8 == 0) {
        uint32_t infinity = dtype == TPW_F16 ? 0x7C00 : 0x7F80;
        return infinity + choice / 8 % 3 - 1 + (choice & 64) * 512; /* the largest, infinity, NaN; either sign */
    }
    if (dtype == TPW_I64 || dtype == TPW_I32) {
        int width = dtype == TPW_I64 ? 64 : 32;
        int64_t value = (int64_t)(r << (64 - width)) >> (64 - width);
        return (uint64_t)(value >> (choice % (uint64_t)width)) & (dtype == TPW_I64 ? UINT64_MAX : UINT32_MAX);
    }
    if (dtype == TPW_BOOL && choice % 2 == 0)
        return 0;
    return sizes[dtype] == 8 ? r : r >> 7 & (((uint64_t)1 << (8 * sizes[dtype])) - 1);
}

static void put_bits(unsigned char *to, tpw_dtype dtype, uint64_t bits)
{
    for (size_t i = 0; i < sizes[dtype]; i++)
        to[i] = (unsigned char)(bits >> (8 * i));
}

/* Bytes between and before elements must keep GUARD. */
static void check_guards(const array *a)
{
    unsigned char *copy = malloc(a->bytes);
    cr_assert_not_null(copy);
    memcpy(copy, a->block, a->bytes);
    for (size_t i = 0; i < a->count; i++)
        memset(copy + (at(a, i) - a->block), GUARD, sizes[a->view.dtype]);
    for (size_t i = 0; i < a->bytes; i++)
        cr_assert_eq(copy[i], GUARD, "byte %zu outside the view was written", i);
    free(copy);
}

/* One conversion of random elements between two geometries, checked element by element. Returns the count of cuts. */
static size_t convert_and_check(tpw_dtype dst, ptrdiff_t dst_stride, tpw_dtype src, ptrdiff_t src_stride, size_t count,
                                uint64_t *state)
{
    array from = array_make(src, src_stride, count);
    array to = array_make(dst, dst_stride, count);
    for (size_t i = 0; i < count; i++)
        put_bits(at(&from, i), src, random_bits(src, state));
    unsigned char *before = malloc(from.bytes);
    cr_assert_not_null(before);
    memcpy(before, from.block, from.bytes);

    size_t saturated = 999;
    tpw_error err = {0};
    cr_assert_eq(tpw_convert(to.view, from.view, count, &saturated, &err), TPW_OK, "%s", err.text);
    size_t cuts = 0;
    for (size_t i = 0; i < count; i++)
        cuts += check_element(bits_at(at(&to, i), dst), dst, bits_at(at(&from, i), src), src);
    cr_assert_eq(saturated, cuts, "%s to %s: %zu reported as cut, %zu were", tpw_dtype_name(src), tpw_dtype_name(dst),
                 saturated, cuts);
    cr_assert_eq(memcmp(before, from.block, from.bytes), 0, "the source was written");
    check_guards(&to);
    free(before);
    free(from.block);
    free(to.block);
    return cuts;
}

Test(convert, every_pair_stride_and_length)
{
    const ptrdiff_t strides[] = {1, 2, -1, 3};
    const size_t lengths[] = {0, 1, 7, 33};
    uint64_t state = 4711;
    size_t cells = 0;
    for (int pair = 0; pair < TPW_DTYPE_COUNT * TPW_DTYPE_COUNT; pair++) {
        for (int s = 0; s < 16; s++) {
            for (int n = 0; n < 4; n++, cells++)
                convert_and_check((tpw_dtype)(pair / TPW_DTYPE_COUNT), strides[s / 4],
                                  (tpw_dtype)(pair % TPW_DTYPE_COUNT), strides[s % 4], lengths[n], &state);
        }
    }
    cr_assert_eq(cells, 7 * 7 * 16 * 4);
}

/* Lengths around the internal chunk, and enough random elements that every narrowing meets cuts. */
Test(convert, every_pair_at_longer_lengths)
{
    const size_t lengths[] = {255, 256, 257, 511, 512, 513, 1001};
    uint64_t state = 815;
    for (int pair = 0; pair < TPW_DTYPE_COUNT * TPW_DTYPE_COUNT; pair++) {
        tpw_dtype dst = (tpw_dtype)(pair / TPW_DTYPE_COUNT);
        tpw_dtype src = (tpw_dtype)(pair % TPW_DTYPE_COUNT);
        size_t cuts = 0;
        for (size_t n = 0; n < sizeof lengths / sizeof lengths[0]; n++)
            cuts += convert_and_check(dst, n % 2 == 0 ? 1 : -2, src, n % 3 == 0 ? -1 : 1, lengths[n], &state);
        bool narrows = src != dst && ((dst == TPW_E4M3 && src != TPW_BOOL) || (dst == TPW_I32 && src != TPW_BOOL) ||
                                      (dst == TPW_I64 && src != TPW_BOOL && src != TPW_I32));
        if (dst != TPW_E4M3 && src == TPW_E4M3)
            narrows = false; /* at most 448 */
        cr_assert_eq(cuts > 0, narrows, "%s to %s: %zu cuts", tpw_dtype_name(src), tpw_dtype_name(dst), cuts);
    }
}

Test(convert, every_code_of_the_narrow_dtypes_to_every_dtype)
{
    const tpw_dtype sources[] = {TPW_F16, TPW_BF16, TPW_E4M3, TPW_BOOL};
    size_t checked = 0;
    for (size_t s = 0; s < 4; s++) {
        size_t codes = sizes[sources[s]] == 2 ? 65536 : 256;
        array from = array_make(sources[s], 1, codes);
        for (size_t i = 0; i < codes; i++)
            put_bits(at(&from, i), sources[s], i);
        for (int d = 0; d < TPW_DTYPE_COUNT; d++) {
            array to = array_make((tpw_dtype)d, 1, codes);
            size_t saturated, cuts = 0;
            cr_assert_eq(tpw_convert(to.view, from.view, codes, &saturated, NULL), TPW_OK);
            for (size_t i = 0; i < codes; i++, checked++)
                cuts += check_element(bits_at(at(&to, i), (tpw_dtype)d), (tpw_dtype)d, i, sources[s]);
            cr_assert_eq(saturated, cuts);
            free(to.block);
        }
        free(from.block);
    }
    cr_assert_eq(checked, 7 * (2 * 65536 + 2 * 256));
}

/* Integers whose F32 or double is a tie that the integer itself is not: two roundings would give another result. */
Test(convert, integers_are_rounded_once)
{
    const struct {
        tpw_dtype src, dst;
        int64_t value;
        uint64_t expected;
        size_t cut;
    } rows[] = {
        {TPW_I64, TPW_BF16, 0x10100000000, 0x5380, 0}, /* 2^40 + 2^32: a tie */
        {TPW_I64, TPW_BF16, 0x10100000001, 0x5381, 0},
        {TPW_I64, TPW_BF16, 0x100FFFFFFFF, 0x5380, 0},
        {TPW_I64, TPW_BF16, 0x10300000000, 0x5382, 0}, /* the next tie goes up */
        {TPW_I64, TPW_BF16, 0x102FFFFFFFF, 0x5381, 0},
        {TPW_I64, TPW_BF16, -0x10100000001, 0xD381, 0},
        {TPW_I64, TPW_BF16, INT64_MAX, 0x5F00, 0},
        {TPW_I64, TPW_BF16, INT64_MIN, 0xDF00, 0},
        {TPW_I32, TPW_BF16, 0x40400000, 0x4E80, 0}, /* 2^30 + 2^22: a tie */
        {TPW_I32, TPW_BF16, 0x40400001, 0x4E81, 0},
        {TPW_I32, TPW_BF16, INT32_MIN, 0xCF00, 0},
        {TPW_I64, TPW_F32, 0x1000001000000000, 0x5D800000, 0}, /* 2^60 + 2^36: a tie */
        {TPW_I64, TPW_F32, 0x1000001000000001, 0x5D800001, 0},
        {TPW_I64, TPW_F32, 0x1000003000000000, 0x5D800002, 0},
        {TPW_I64, TPW_F32, 0x1000002FFFFFFFFF, 0x5D800001, 0},
        {TPW_I64, TPW_F32, INT64_MAX, 0x5F000000, 0},
        {TPW_I64, TPW_F32, INT64_MIN, 0xDF000000, 0},
        {TPW_I32, TPW_F32, 16777217, 0x4B800000, 0},
        {TPW_I32, TPW_F32, 16777219, 0x4B800002, 0},
        {TPW_I32, TPW_F32, INT32_MAX, 0x4F000000, 0},
        {TPW_I64, TPW_F16, 2049, 0x6800, 0},
        {TPW_I64, TPW_F16, 2051, 0x6802, 0},
        {TPW_I64, TPW_F16, 65519, 0x7BFF, 0},
        {TPW_I64, TPW_F16, 65520, 0x7C00, 0}, /* overflow to infinity is not a cut */
        {TPW_I64, TPW_F16, INT64_MIN, 0xFC00, 0},
        {TPW_I64, TPW_E4M3, 17, 0x58, 0}, /* ties at a spacing of 2 */
        {TPW_I64, TPW_E4M3, 19, 0x5A, 0},
        {TPW_I64, TPW_E4M3, 464, 0x7E, 0},
        {TPW_I64, TPW_E4M3, 465, 0x7E, 1},
        {TPW_I32, TPW_E4M3, -465, 0xFE, 1},
        {TPW_I64, TPW_E4M3, INT64_MIN, 0xFE, 1},
        {TPW_I64, TPW_I32, INT32_MAX, 0x7FFFFFFF, 0},
        {TPW_I64, TPW_I32, (int64_t)INT32_MAX + 1, 0x7FFFFFFF, 1},
        {TPW_I64, TPW_I32, INT32_MIN, 0x80000000, 0},
        {TPW_I64, TPW_I32, (int64_t)INT32_MIN - 1, 0x80000000, 1},
        {TPW_I64, TPW_BOOL, INT64_MIN, 1, 0},
        {TPW_I64, TPW_BOOL, 0x100000000, 1, 0}, /* not by its low half */
        {TPW_I32, TPW_I64, -1, UINT64_MAX, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned char from[8], to[8] = {0};
        put_bits(from, TPW_I64, (uint64_t)rows[i].value);
        size_t cut = 77;
        cr_assert_eq(tpw_convert((tpw_strided){to, rows[i].dst, 1}, (tpw_strided){from, rows[i].src, 1}, 1, &cut, NULL),
                     TPW_OK);
        cr_expect(bits_at(to, rows[i].dst) == rows[i].expected && cut == rows[i].cut, "row %zu: %jx, cut %zu", i,
                  (uintmax_t)bits_at(to, rows[i].dst), cut);
    }
}

Test(convert, floats_to_integers_at_their_edges)
{
    const struct {
        float x;
        int64_t i64;
        int32_t i32;
        size_t cut64, cut32;
    } rows[] = {
        {0.999f, 0, 0, 0, 0},
        {-0.999f, 0, 0, 0, 0},
        {-1.5f, -1, -1, 0, 0},
        {8388607.5f, 8388607, 8388607, 0, 0},
        {2147483520.0f, 2147483520, 2147483520, 0, 0},
        {2147483648.0f, 2147483648, INT32_MAX, 0, 1},
        {-2147483648.0f, INT32_MIN, INT32_MIN, 0, 0},
        {-2147483904.0f, -2147483904, INT32_MIN, 0, 1},
        {0x1.fffffep62f, 0x7FFFFF8000000000, INT32_MAX, 0, 1},
        {0x1p63f, INT64_MAX, INT32_MAX, 1, 1},
        {-0x1p63f, INT64_MIN, INT32_MIN, 0, 1},
        {-0x1.000002p63f, INT64_MIN, INT32_MIN, 1, 1},
        {FLT_MAX, INT64_MAX, INT32_MAX, 1, 1},
        {INFINITY, INT64_MAX, INT32_MAX, 1, 1},
        {-INFINITY, INT64_MIN, INT32_MIN, 1, 1},
        {NAN, 0, 0, 0, 0},
        {-NAN, 0, 0, 0, 0},
        {FLT_TRUE_MIN, 0, 0, 0, 0},
        {-0.0f, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float x = rows[i].x;
        int64_t i64 = 5;
        int32_t i32 = 5;
        size_t cut64 = 9, cut32 = 9;
        tpw_strided src = {&x, TPW_F32, 1};
        cr_assert_eq(tpw_convert((tpw_strided){&i64, TPW_I64, 1}, src, 1, &cut64, NULL), TPW_OK);
        cr_assert_eq(tpw_convert((tpw_strided){&i32, TPW_I32, 1}, src, 1, &cut32, NULL), TPW_OK);
        cr_expect(i64 == rows[i].i64 && i32 == rows[i].i32, "%a: %jd, %d", (double)x, (intmax_t)i64, i32);
        cr_expect(cut64 == rows[i].cut64 && cut32 == rows[i].cut32, "%a: cut %zu, %zu", (double)x, cut64, cut32);
    }
}

Test(convert, any_non_zero_byte_is_true)
{
    const uint64_t one[TPW_DTYPE_COUNT] = {
        [TPW_F32] = 0x3F800000, [TPW_F16] = 0x3C00, [TPW_BF16] = 0x3F80, [TPW_E4M3] = 0x38,
        [TPW_BOOL] = 1,         [TPW_I32] = 1,      [TPW_I64] = 1};
    for (int byte = 0; byte < 256; byte++) {
        for (int d = 0; d < TPW_DTYPE_COUNT; d++) {
            unsigned char from = (unsigned char)byte, to[8];
            memset(to, GUARD, sizeof to);
            cr_assert_eq(
                tpw_convert((tpw_strided){to, (tpw_dtype)d, 1}, (tpw_strided){&from, TPW_BOOL, 1}, 1, NULL, NULL),
                TPW_OK);
            cr_expect_eq(bits_at(to, (tpw_dtype)d), byte == 0 ? 0 : one[d], "byte %d to %s", byte,
                         tpw_dtype_name((tpw_dtype)d));
        }
    }
}

Test(convert, to_bool_only_zeros_are_false)
{
    const uint32_t f32[] = {0, 0x80000000, 1, 0x80000001, 0x7FC00000, 0xFF800000, 0x3F800000};
    const unsigned char expected[] = {0, 0, 1, 1, 1, 1, 1};
    unsigned char to[7];
    cr_assert_eq(tpw_convert((tpw_strided){to, TPW_BOOL, 1}, (tpw_strided){(void *)f32, TPW_F32, 1}, 7, NULL, NULL),
                 TPW_OK);
    cr_assert_eq(memcmp(to, expected, sizeof to), 0);
}

Test(convert, equal_dtypes_keep_signalling_nan)
{
    const uint32_t f32[3] = {0x7F800001, 0xFFBFFFFF, 0x7FC12345};
    uint32_t to[3] = {0};
    cr_assert_eq(tpw_convert((tpw_strided){to, TPW_F32, 1}, (tpw_strided){(void *)f32, TPW_F32, 1}, 3, NULL, NULL),
                 TPW_OK);
    cr_assert_eq(memcmp(to, f32, sizeof to), 0);
}

Test(convert, in_place_on_identical_views)
{
    enum { N = 700 };
    static uint16_t half[2 * N];
    static uint32_t word[N];
    for (uint32_t i = 0; i < N; i++) {
        half[2 * i] = (uint16_t)(0x3C00 + i); /* F16 from 1.0 upward */
        half[2 * i + 1] = 0xABCD;
        word[i] = 0x4F000000u + i * 0x1000u; /* F32 from 2^31 upward */
    }
    tpw_strided f16 = {half, TPW_F16, 2}, bf16 = {half, TPW_BF16, 2};
    tpw_strided f32 = {word, TPW_F32, 1}, i32 = {word, TPW_I32, 1};
    size_t cut;
    cr_assert_eq(tpw_convert(bf16, f16, N, NULL, NULL), TPW_OK);
    cr_assert_eq(tpw_convert(i32, f32, N, &cut, NULL), TPW_OK);
    cr_assert_eq(cut, N);
    for (uint32_t i = 0; i < N; i++) {
        bool unused;
        cr_assert_eq(half[2 * i], ref_encode(&ref_bf16, ref_decode(&ref_f16, 0x3C00 + i), &unused), "element %u", i);
        cr_assert_eq(half[2 * i + 1], 0xABCD);
        cr_assert_eq(word[i], 0x7FFFFFFF);
    }
    cr_assert_eq(tpw_convert(i32, i32, N, &cut, NULL), TPW_OK);
    cr_assert(cut == 0 && word[N - 1] == 0x7FFFFFFF);
}

Test(convert, stride_zero_repeats_one_element)
{
    int64_t value = -3;
    float out[5];
    cr_assert_eq(tpw_convert((tpw_strided){out, TPW_F32, 1}, (tpw_strided){&value, TPW_I64, 0}, 5, NULL, NULL), TPW_OK);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(out[i], -3.0f);
}

/* A refusal names its reason and side, and touches neither the target nor the count. */
static void expect_refusal(tpw_strided dst, tpw_strided src, size_t count, const char *part)
{
    tpw_error err = {0};
    size_t cut = 321;
    cr_expect_eq(tpw_convert(dst, src, count, &cut, &err), TPW_ERR_ARGUMENT, "%s", part);
    cr_expect_eq(err.status, TPW_ERR_ARGUMENT);
    cr_expect(strstr(err.text, part) != NULL, "\"%s\" does not say \"%s\"", err.text, part);
    cr_expect_eq(cut, 321);
    cr_expect_eq(tpw_convert(dst, src, count, NULL, NULL), TPW_ERR_ARGUMENT);
}

Test(convert, refusals)
{
    uint32_t a[4] = {1, 2, 3, 4}, b[4] = {9, 9, 9, 9};
    tpw_strided src = {a, TPW_I32, 1}, dst = {b, TPW_F32, 1};
    expect_refusal((tpw_strided){NULL, TPW_F32, 1}, src, 4, "destination (F32) is NULL though 4");
    expect_refusal(dst, (tpw_strided){NULL, TPW_I32, 1}, 1, "source (I32) is NULL");
    expect_refusal((tpw_strided){b, TPW_DTYPE_COUNT, 1}, src, 4, "destination has the unknown dtype 7");
    expect_refusal(dst, (tpw_strided){a, (tpw_dtype)99, 1}, 0, "source has the unknown dtype 99");
    expect_refusal(dst, src, SIZE_MAX, "destination (");
    expect_refusal(dst, src, (size_t)PTRDIFF_MAX / 4 + 1, "destination (");
    expect_refusal(dst, (tpw_strided){a, TPW_I32, PTRDIFF_MIN}, 2, "source (2 x I32");
    expect_refusal(dst, (tpw_strided){a, TPW_I32, PTRDIFF_MAX}, 3, "source (3 x I32");
    expect_refusal(dst, (tpw_strided){a, TPW_I32, -(PTRDIFF_MAX / 4)}, 3, "address space");
    for (int i = 0; i < 4; i++)
        cr_assert_eq(b[i], 9);
}

Test(convert, nothing_to_do_needs_no_memory)
{
    size_t cut = 5;
    cr_assert_eq(
        tpw_convert((tpw_strided){NULL, TPW_E4M3, 1}, (tpw_strided){NULL, TPW_F32, PTRDIFF_MIN}, 0, &cut, NULL),
        TPW_OK);
    cr_assert_eq(cut, 0);
}
