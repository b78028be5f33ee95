/* Tests of dtype sizes, names and scalar conversions: all codes, all rounding midpoints and their neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "base/dtype.h"
#include "float_reference.h"

Test(dtype, sizes_and_names)
{
    const struct {
        tpw_dtype dtype;
        size_t size;
        const char *name;
    } rows[] = {{TPW_F32, 4, "F32"},   {TPW_F16, 2, "F16"}, {TPW_BF16, 2, "BF16"}, {TPW_E4M3, 1, "E4M3"},
                {TPW_BOOL, 1, "BOOL"}, {TPW_I32, 4, "I32"}, {TPW_I64, 8, "I64"}};
    cr_assert_eq(sizeof rows / sizeof rows[0], (size_t)TPW_DTYPE_COUNT);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_expect_eq(tpw_dtype_size(rows[i].dtype), rows[i].size);
        cr_expect_str_eq(tpw_dtype_name(rows[i].dtype), rows[i].name);
    }
    const int outside[] = {TPW_DTYPE_COUNT, TPW_DTYPE_COUNT + 1, 1000};
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(tpw_dtype_size((tpw_dtype)outside[i]), 0);
        cr_expect_str_eq(tpw_dtype_name((tpw_dtype)outside[i]), "?");
    }
}

/* The three narrow formats behind one face. */
typedef struct narrow {
    const char *name;
    const ref_format *format;
    uint32_t (*encode)(float x, size_t *cut);
    float (*decode)(uint32_t code);
} narrow;

static uint32_t encode_f16(float x, size_t *cut)
{
    (void)cut;
    return tpw_f16_from_f32(x);
}

static uint32_t encode_bf16(float x, size_t *cut)
{
    (void)cut;
    return tpw_bf16_from_f32(x);
}

static uint32_t encode_e4m3(float x, size_t *cut)
{
    return tpw_e4m3_from_f32(x, cut);
}

static float decode_f16(uint32_t code)
{
    return tpw_f16_to_f32((uint16_t)code);
}

static float decode_bf16(uint32_t code)
{
    return tpw_bf16_to_f32((uint16_t)code);
}

static float decode_e4m3(uint32_t code)
{
    return tpw_e4m3_to_f32((uint8_t)code);
}

static const narrow narrows[] = {
    {"F16", &ref_f16, encode_f16, decode_f16},
    {"BF16", &ref_bf16, encode_bf16, decode_bf16},
    {"E4M3", &ref_e4m3, encode_e4m3, decode_e4m3},
};
#define NARROWS (sizeof narrows / sizeof narrows[0])

Test(dtype, the_reference_knows_the_formats)
{
    cr_assert(ref_decode(&ref_e4m3, 0x7E) == 448 && ref_decode(&ref_e4m3, 0x01) == 0x1p-9L);
    cr_assert(ref_is_nan(&ref_e4m3, 0x7F) && ref_is_nan(&ref_e4m3, 0xFF) && !ref_is_nan(&ref_e4m3, 0x78));
    cr_assert(ref_decode(&ref_f16, 0x7BFF) == 65504 && ref_decode(&ref_f16, 0x8001) == -0x1p-24L);
    cr_assert(ref_decode(&ref_bf16, 0x3F80) == 1 && ref_decode(&ref_bf16, 0x0001) == 0x1p-133L);
    for (size_t f = 0; f < NARROWS; f++) {
        for (uint32_t code = 0; code < ref_max_code(narrows[f].format); code++)
            cr_assert(ref_decode(narrows[f].format, code) < ref_decode(narrows[f].format, code + 1));
    }
}

Test(dtype, every_code_decodes_to_its_value)
{
    for (size_t f = 0; f < NARROWS; f++) {
        const narrow *n = &narrows[f];
        size_t nans = 0;
        for (uint32_t code = 0; code < 2 * ref_sign_bit(n->format); code++) {
            float got = n->decode(code);
            bool negative = (code & ref_sign_bit(n->format)) != 0;
            cr_assert_eq(signbit(got) != 0, negative, "%s %04x: sign", n->name, code);
            if (ref_is_nan(n->format, code)) {
                cr_assert(isnan(got), "%s %04x gave %a", n->name, code, (double)got);
                nans++;
            } else {
                cr_assert((long double)got == ref_decode(n->format, code), "%s %04x gave %a", n->name, code,
                          (double)got);
            }
        }
        size_t expected = n->format->has_infinity ? 2 * (((size_t)1 << n->format->fraction_bits) - 1) : 2;
        cr_assert_eq(nans, expected, "%s has %zu NaN codes", n->name, nans);
    }
}

Test(dtype, every_code_comes_back)
{
    for (size_t f = 0; f < NARROWS; f++) {
        const narrow *n = &narrows[f];
        for (uint32_t code = 0; code < 2 * ref_sign_bit(n->format); code++) {
            size_t cut = 0;
            uint32_t back = n->encode(n->decode(code), &cut);
            uint32_t expected = code;
            if (n->format->has_infinity && ref_is_nan(n->format, code))
                expected |= (uint32_t)1 << (n->format->fraction_bits - 1); /* quiet, same payload */
            cr_assert(back == expected && cut == 0, "%s %04x came back as %04x", n->name, code, back);
        }
    }
}

/* Between each code and the next: just below the midpoint, on it, just above it, in both signs. The last midpoint is
 * the overflow threshold. */
Test(dtype, every_midpoint_rounds_to_even_and_its_neighbours_to_nearest)
{
    for (size_t f = 0; f < NARROWS; f++) {
        const narrow *n = &narrows[f];
        uint32_t max = ref_max_code(n->format);
        for (uint32_t code = 0; code <= max; code++) {
            float midpoint = (float)ref_midpoint(n->format, code);
            cr_assert((long double)midpoint == ref_midpoint(n->format, code));
            const float x[3] = {nextafterf(midpoint, 0), midpoint, nextafterf(midpoint, INFINITY)};
            const uint32_t nearest[3] = {code, code + (code & 1), code + 1};
            for (int i = 0; i < 3; i++) {
                bool cut = nearest[i] > max && !n->format->has_infinity;
                uint32_t expected = cut ? max : nearest[i];
                size_t cuts = 0;
                uint32_t plus = n->encode(x[i], &cuts);
                uint32_t minus = n->encode(-x[i], &cuts);
                cr_assert_eq(plus, expected, "%s: %a gave %04x, not %04x", n->name, (double)x[i], plus, expected);
                cr_assert_eq(minus, expected | ref_sign_bit(n->format), "%s: -%a", n->name, (double)x[i]);
                cr_assert_eq(cuts, cut ? 2 : 0, "%s: %a was cut %zu times", n->name, (double)x[i], cuts);
            }
        }
    }
}

Test(dtype, random_bits_round_to_nearest)
{
    uint64_t state = 20240229;
    for (int i = 0; i < 150000; i++) {
        uint32_t bits = (uint32_t)(ref_random(&state) >> 32);
        if (i % 2 == 0) /* into the range of the narrow exponents, where bits alone seldom fall */
            bits = (bits & 0x80FFFFFFu) | (uint32_t)(88 + bits % 60) << 23;
        float x = tpw_f32_from_bits(bits);
        if (isnan(x))
            continue;
        for (size_t f = 0; f < NARROWS; f++) {
            bool cut;
            uint32_t expected = ref_encode(narrows[f].format, x, &cut);
            size_t cuts = 0;
            uint32_t got = narrows[f].encode(x, &cuts);
            cr_assert(got == expected && cuts == cut, "%s: %08x gave %04x, not %04x", narrows[f].name, bits, got,
                      expected);
        }
    }
}

Test(dtype, e4m3_overflow_table)
{
    const struct {
        float x;
        uint8_t code;
        size_t cut;
    } rows[] = {
        {416.0f, 0x7D, 0},
        {432.0f, 0x7E, 0}, /* tie between 416 (odd) and 448 */
        {447.0f, 0x7E, 0},
        {448.0f, 0x7E, 0},
        {nextafterf(448.0f, INFINITY), 0x7E, 0},
        {463.99f, 0x7E, 0},
        {464.0f, 0x7E, 0}, /* tie: 448 is the even one */
        {nextafterf(464.0f, INFINITY), 0x7E, 1},
        {479.0f, 0x7E, 1},
        {480.0f, 0x7E, 1},
        {1e30f, 0x7E, 1},
        {FLT_MAX, 0x7E, 1},
        {INFINITY, 0x7E, 1},
        {0x1p-9f, 0x01, 0},
        {0x1p-10f, 0x00, 0}, /* tie between 0 and the least subnormal */
        {nextafterf(0x1p-10f, 1), 0x01, 0},
        {0x1.8p-9f, 0x02, 0},
        {0x1.Ep-7f, 0x08, 0}, /* tie that carries into the least normal */
        {FLT_TRUE_MIN, 0x00, 0},
        {0.0f, 0x00, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t plus = 5, minus = 5;
        cr_expect_eq(tpw_e4m3_from_f32(rows[i].x, &plus), rows[i].code, "%a", (double)rows[i].x);
        cr_expect_eq(tpw_e4m3_from_f32(-rows[i].x, &minus), rows[i].code | 0x80, "-%a", (double)rows[i].x);
        cr_expect(plus == 5 + rows[i].cut && minus == 5 + rows[i].cut, "%a: counted %zu, %zu", (double)rows[i].x,
                  plus - 5, minus - 5);
        cr_expect_eq(tpw_e4m3_from_f32(rows[i].x, NULL), rows[i].code);
    }
}

Test(dtype, nan_stays_nan_with_its_sign)
{
    const uint32_t payloads[] = {0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x7FBFFFFF, 0x7F80FFFF, 0x7F801FFF, 0x7FA00000};
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
        for (uint32_t sign = 0; sign <= 1; sign++) {
            float x = tpw_f32_from_bits(payloads[i] | sign << 31);
            for (size_t f = 0; f < NARROWS; f++) {
                size_t cut = 0;
                uint32_t code = narrows[f].encode(x, &cut);
                cr_expect(ref_is_nan(narrows[f].format, code) && cut == 0, "%s: %08x gave %04x", narrows[f].name,
                          payloads[i], code);
                cr_expect_eq((code & ref_sign_bit(narrows[f].format)) != 0, sign == 1);
            }
        }
    }
}

Test(dtype, infinities_and_the_largest_values)
{
    cr_assert(tpw_f16_from_f32(INFINITY) == 0x7C00 && tpw_f16_from_f32(-INFINITY) == 0xFC00);
    cr_assert(tpw_bf16_from_f32(INFINITY) == 0x7F80 && tpw_bf16_from_f32(-INFINITY) == 0xFF80);
    cr_assert(tpw_f16_from_f32(65519.996f) == 0x7BFF && tpw_f16_from_f32(65520.0f) == 0x7C00);
    cr_assert(tpw_f16_from_f32(65535.9f) == 0x7C00 && tpw_f16_from_f32(65536.0f) == 0x7C00);
    cr_assert(tpw_f16_from_f32(-FLT_MAX) == 0xFC00 && tpw_bf16_from_f32(FLT_MAX) == 0x7F80);
}

/* All results on a spread of inputs, one after the other. */
static void fill_results(uint32_t *out, size_t n)
{
    uint64_t state = 77;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)(ref_random(&state) >> 32);
        if (i % 3 == 0)
            bits &= 0x807FFFFFu; /* subnormal */
        if (i % 3 == 1)
            bits = (bits & 0x80FFFFFFu) | (uint32_t)(95 + bits % 50) << 23;
        float x = tpw_f32_from_bits(bits);
        out[i] = (uint32_t)tpw_f16_from_f32(x) << 16 | tpw_bf16_from_f32(x);
        out[i] ^= (uint32_t)tpw_e4m3_from_f32(x, NULL) * 0x10101u;
        out[i] ^= tpw_f32_bits(tpw_f16_to_f32((uint16_t)bits)) * 3u;
        out[i] ^= tpw_f32_bits(tpw_bf16_to_f32((uint16_t)bits)) * 5u;
        out[i] ^= tpw_f32_bits(tpw_e4m3_to_f32((uint8_t)bits)) * 7u;
    }
}

Test(dtype, bits_do_not_depend_on_the_floating_point_mode)
{
    enum { N = 20000 };
    uint32_t *plain = malloc(N * sizeof *plain);
    uint32_t *other = malloc(N * sizeof *other);
    cr_assert(plain != NULL && other != NULL);
    fill_results(plain, N);
    const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(fesetround(modes[i]), 0);
        fill_results(other, N);
        fesetround(FE_TONEAREST);
        cr_expect_eq(memcmp(plain, other, N * sizeof *plain), 0, "rounding mode %zu", i);
    }
#if defined(__SSE2__)
    unsigned csr = _mm_getcsr();
    _mm_setcsr(csr | 0x8040u); /* flush to zero, denormals are zero */
    fill_results(other, N);
    _mm_setcsr(csr);
    cr_expect_eq(memcmp(plain, other, N * sizeof *plain), 0, "flush to zero");
#endif
    free(plain);
    free(other);
}
