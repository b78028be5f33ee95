/* The rotary table against libm in double, and its refusals. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/rope.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double ulp(float x)
{
    return (double)(nextafterf(fabsf(x), INFINITY) - fabsf(x));
}

static void check_table(int positions, int dim, double theta)
{
    size_t count;
    cr_assert(tpw_rope_count(positions, dim, &count));
    cr_assert_eq(count, (size_t)positions * (size_t)dim);
    float *table = malloc((count + 2) * sizeof *table);
    table[count] = table[count + 1] = 7.0f;
    tpw_error err = {0};
    cr_assert_eq(tpw_rope_fill(table, positions, dim, theta, &err), TPW_OK, "%s", err.text);
    cr_assert(table[count] == 7.0f && table[count + 1] == 7.0f, "written past the end");
    int inexact = 0;
    for (int j = 0; j < dim / 2; j++) {
        float frequency = (float)pow(theta, -2.0 * j / dim);
        for (int pos = 0; pos < positions; pos++) {
            float angle = (float)pos * frequency, *at = table + ((size_t)pos * (size_t)(dim / 2) + (size_t)j) * 2;
            double c = cos((double)angle), s = sin((double)angle);
            cr_assert(
                fabs((double)at[0] - c) <= 0.51 * ulp((float)c) && fabs((double)at[1] - s) <= 0.51 * ulp((float)s),
                "position %d frequency %d: (%.9g, %.9g), not (%.9g, %.9g)", pos, j, (double)at[0], (double)at[1], c, s);
            inexact += at[0] != (float)c || at[1] != (float)s;
        }
    }
    cr_assert_leq(inexact, (int)(count / 100000), "%d of %zu entries differ from the rounded libm value", inexact,
                  count);
    free(table);
}

Test(rope, agrees_with_double)
{
    check_table(3000, 64, 1e7);
    check_table(700, 2, 1e7);
    check_table(300, 6, 10000.0);
    check_table(300, 32, 1.0);
    check_table(40, 256, 1e6);
}

Test(rope, far_positions)
{
    enum { POSITIONS = 262144, DIM = 4 };
    float *table = malloc(sizeof *table * POSITIONS * DIM);
    cr_assert_eq(tpw_rope_fill(table, POSITIONS, DIM, 1e7, NULL), TPW_OK);
    for (int pos = POSITIONS - 2000; pos < POSITIONS; pos++) {
        cr_assert_float_eq(table[pos * DIM], cos((double)pos), 4e-8);
        cr_assert_float_eq(table[pos * DIM + 1], sin((double)pos), 4e-8);
    }
    free(table);
}

/* f_0, f_1, f_2, f_16 and f_31 of rotary 64 and theta 1e7, to nine digits, read back from the sine at position 1. */
Test(rope, known_frequencies)
{
    static const struct {
        int j;
        double f;
    } known[] = {{0, 1}, {1, 0.604296390}, {2, 0.365174127}, {16, 3.16227766e-4}, {31, 1.654817100e-7}};
    float table[2 * 64];
    cr_assert_eq(tpw_rope_fill(table, 2, 64, 1e7, NULL), TPW_OK);
    for (int i = 0; i < 5; i++) {
        const float *at = table + 64 + 2 * known[i].j;
        cr_assert_float_eq(asin((double)at[1]) / known[i].f, 1.0, 2e-7, "frequency %d", known[i].j);
        cr_assert_float_eq(at[0], cos(known[i].f), 1e-7);
        cr_assert(table[2 * known[i].j] == 1.0f && table[2 * known[i].j + 1] == 0.0f, "position 0 must not turn");
    }
}

Test(rope, what_cannot_be_made_is_refused)
{
    float table[8] = {0};
    size_t count = 77;
    tpw_error err;
    cr_assert(!tpw_rope_count(-1, 2, &count) && !tpw_rope_count(4, 3, &count) && !tpw_rope_count(4, 0, &count) &&
              !tpw_rope_count(INT64_MAX, 4, &count) && !tpw_rope_count(INT64_MAX / 2, 2, &count) && count == 77);
    cr_assert(tpw_rope_count(0, 2, &count) && count == 0);
    cr_assert_eq(tpw_rope_fill(table, 0, 2, 1e7, &err), TPW_OK);
    cr_assert_eq(tpw_rope_fill(table, 4, 3, 1e7, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_rope_fill(table, -4, 2, 1e7, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_rope_fill(table, 10000001, 2, 1e7, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_rope_fill(table, 4, 2, NAN, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "theta"));
    cr_assert_eq(tpw_rope_fill(table, 4, 2, INFINITY, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_rope_fill(table, 4, 2, 0.5, &err), TPW_ERR_ARGUMENT);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(table[i], 0.0f, "a refused call wrote");
}
