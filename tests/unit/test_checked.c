/* Tests of checked arithmetic at its edges. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "base/checked.h"

#define UNTOUCHED 0x1234567

Test(checked, sizes_at_the_edge)
{
    size_t r = UNTOUCHED;
    cr_assert(tpw_add_size(SIZE_MAX - 5, 5, &r) && r == SIZE_MAX);
    cr_assert(tpw_add_size(0, 0, &r) && r == 0);
    r = UNTOUCHED;
    cr_assert(!tpw_add_size(SIZE_MAX - 5, 6, &r) && r == UNTOUCHED);
    cr_assert(!tpw_add_size(SIZE_MAX, SIZE_MAX, &r) && r == UNTOUCHED);

    size_t half = (size_t)1 << (sizeof(size_t) * 4);
    cr_assert(tpw_mul_size(half - 1, half + 1, &r) && r == SIZE_MAX);
    cr_assert(tpw_mul_size(SIZE_MAX, 0, &r) && r == 0);
    r = UNTOUCHED;
    cr_assert(!tpw_mul_size(half, half, &r) && r == UNTOUCHED);
    cr_assert(!tpw_mul_size(SIZE_MAX, 2, &r) && r == UNTOUCHED);
}

Test(checked, signed_at_the_edge)
{
    int64_t r = UNTOUCHED;
    cr_assert(tpw_add_i64(INT64_MAX, INT64_MIN, &r) && r == -1);
    cr_assert(tpw_add_i64(INT64_MIN + 1, -1, &r) && r == INT64_MIN);
    r = UNTOUCHED;
    cr_assert(!tpw_add_i64(INT64_MAX, 1, &r) && r == UNTOUCHED);
    cr_assert(!tpw_add_i64(INT64_MIN, -1, &r) && r == UNTOUCHED);

    cr_assert(tpw_mul_i64((int64_t)1 << 62, -2, &r) && r == INT64_MIN);
    cr_assert(tpw_mul_i64(-3037000499, 3037000499, &r) && r == -9223372030926249001);
    r = UNTOUCHED;
    cr_assert(!tpw_mul_i64(INT64_MIN, -1, &r) && r == UNTOUCHED);
    cr_assert(!tpw_mul_i64(3037000500, 3037000500, &r) && r == UNTOUCHED);
}

Test(checked, results_may_replace_operands)
{
    size_t r = 6;
    cr_assert(tpw_mul_size(r, r, &r) && tpw_add_size(r, r, &r) && tpw_align_size(r, 50, &r));
    cr_assert_eq(r, 100);
}

Test(checked, align)
{
    const size_t units[] = {1, 2, 3, 7, 64, 4096};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        for (size_t a = 0; a < 200; a++) {
            size_t expected = 0;
            while (expected < a)
                expected += units[u];
            size_t r = UNTOUCHED;
            cr_assert(tpw_align_size(a, units[u], &r) && r == expected, "%zu to %zu gave %zu", a, units[u], r);
        }
    }
    size_t r = UNTOUCHED;
    cr_assert(!tpw_align_size(SIZE_MAX, 2, &r) && r == UNTOUCHED);
    cr_assert(!tpw_align_size(SIZE_MAX - 62, 64, &r) && r == UNTOUCHED);
    cr_assert(tpw_align_size(SIZE_MAX - 63, 64, &r) && r == SIZE_MAX - 63);
    cr_assert(tpw_align_size(SIZE_MAX, 1, &r) && r == SIZE_MAX);
}

Test(checked, products)
{
    size_t r = UNTOUCHED;
    cr_assert(tpw_product_size(NULL, 0, &r) && r == 1, "the empty product is 1");
    cr_assert(tpw_product_size((int64_t[]){7}, 1, &r) && r == 7);
    cr_assert(tpw_product_size((int64_t[]){3, 5, 7, 11}, 4, &r) && r == 1155);
    cr_assert(tpw_product_size((int64_t[]){3, 5, 7, 11}, 2, &r) && r == 15, "factors past n are not read");
    cr_assert(tpw_product_size((int64_t[]){4294967295, 4294967297}, 2, &r) && r == 18446744073709551615u);
    cr_assert(tpw_product_size((int64_t[]){INT64_MAX, 2, 1}, 3, &r) && r == 18446744073709551614u);
}

Test(checked, products_that_do_not_fit)
{
    size_t r = UNTOUCHED;
    cr_assert(!tpw_product_size((int64_t[]){4294967296, 4294967296}, 2, &r) && r == UNTOUCHED);
    cr_assert(!tpw_product_size((int64_t[]){INT64_MAX, INT64_MAX, INT64_MAX}, 3, &r) && r == UNTOUCHED);
    /* 2^32 * 2^32 * 2: wraps back to 0 and must not look small */
    cr_assert(!tpw_product_size((int64_t[]){4294967296, 4294967296, 2}, 3, &r) && r == UNTOUCHED);
}

Test(checked, negative_factors_and_counts_are_refused)
{
    size_t r = UNTOUCHED;
    cr_assert(!tpw_product_size((int64_t[]){-1}, 1, &r) && r == UNTOUCHED);
    cr_assert(!tpw_product_size((int64_t[]){-2, -3}, 2, &r) && r == UNTOUCHED, "the product would be positive");
    cr_assert(!tpw_product_size((int64_t[]){0, -1}, 2, &r) && r == UNTOUCHED, "a zero does not excuse it");
    cr_assert(!tpw_product_size((int64_t[]){INT64_MIN, 0}, 2, &r) && r == UNTOUCHED);
    cr_assert(!tpw_product_size((int64_t[]){1}, -1, &r) && r == UNTOUCHED);
}

Test(checked, a_zero_factor_makes_zero_wherever_it_stands)
{
    for (int zero = 0; zero < 3; zero++) {
        int64_t factors[3] = {INT64_MAX, INT64_MAX, INT64_MAX};
        factors[zero] = 0;
        size_t r = UNTOUCHED;
        cr_assert(tpw_product_size(factors, 3, &r) && r == 0, "zero at %d", zero);
    }
}
