/* Residual addition and RMSNorm against the written tree, by bits; rows alone and together; accuracy in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops_test.h"

static float rounded(tpw_dtype act, float x)
{
    return act == TPW_BF16 ? tpw_bf16_to_f32(tpw_bf16_from_f32(x)) : x;
}

/* Sum of squares by the tree of the vector: every lane takes part in every exchange. */
static float tree(const float *x, int32_t n)
{
    float total = 0.0f;
    for (int32_t begin = 0; begin < n; begin += 256) {
        float lane[32] = {0}, next[32];
        for (int32_t k = begin; k < begin + 256; k++) {
            float v = k < n ? x[k] : 0.0f;
            int l = (k - begin) / 8;
            lane[l] = fmaf(v, v, lane[l]);
        }
        for (int mask = 16; mask; mask >>= 1) {
            for (int l = 0; l < 32; l++)
                next[l] = lane[l] + lane[l ^ mask];
            memcpy(lane, next, sizeof lane);
        }
        total = total + lane[7];
    }
    return total;
}

typedef struct norm_case {
    tpw_dtype act;
    int32_t rows;
    int32_t cols;
    bool sum;
    bool norm;
} norm_case;

/* Expected h and y of one row, from h before. */
static void expect_row(const norm_case *c, float *h, const float *sum, const float *weight, float *y)
{
    for (int32_t i = 0; c->sum && i < c->cols; i++)
        h[i] = rounded(c->act, h[i] + sum[i]);
    float inverse = 1.0f / sqrtf(tree(h, c->cols) / (float)c->cols + 1e-6f);
    for (int32_t i = 0; i < c->cols; i++)
        y[i] = rounded(c->act, (h[i] * inverse) * (1.0f + weight[i]));
}

static void check_case(const tpw_exec *exec, const norm_case *c)
{
    ops_random r = {21};
    size_t cols = (size_t)c->cols;
    tpw_mat h = ops_mat(c->act, c->rows, c->cols, 7), y = ops_mat(c->act, c->rows, c->cols, 2);
    float *sum = ops_alloc((size_t)c->rows * cols * 4), *weight = ops_alloc(cols * 4);
    float *row = ops_alloc(cols * 4), *want = ops_alloc(cols * 4);
    tpw_mat before = ops_mat(c->act, c->rows, c->cols, 7);
    ops_fill(&h, &r, 3.0f);
    memcpy(before.data, h.data, (size_t)c->rows * (size_t)h.stride * tpw_dtype_size(c->act));
    for (size_t i = 0; i < (size_t)c->rows * cols; i++)
        sum[i] = ops_uniform(&r) * ldexpf(1.0f, (int)(ops_next(&r) % 8) - 4);
    for (size_t i = 0; i < cols; i++)
        weight[i] = 0.5f * ops_uniform(&r);
    tpw_add_norm_args args = {.h = h, .sum = c->sum ? sum : NULL, .weight = weight, .eps = 1e-6f, .y = y};
    if (!c->norm)
        args.y.data = NULL;
    tpw_error err = {0};
    cr_assert_eq(exec->ops->add_norm(exec, &args, &err), TPW_OK, "%s", err.text);
    for (int32_t m = 0; m < c->rows; m++) {
        double squares = 0;
        for (int32_t i = 0; i < c->cols; i++)
            row[i] = ops_get(&before, m, i);
        expect_row(c, row, sum + (size_t)m * cols, weight, want);
        for (int32_t i = 0; i < c->cols; i++)
            squares += (double)row[i] * row[i];
        for (int32_t i = 0; i < c->cols; i++) {
            cr_assert_eq(tpw_f32_bits(ops_get(&h, m, i)), tpw_f32_bits(row[i]), "h of row %d, %d", (int)m, (int)i);
            if (!c->norm)
                continue;
            cr_assert_eq(tpw_f32_bits(ops_get(&y, m, i)), tpw_f32_bits(want[i]), "y of row %d, %d", (int)m, (int)i);
            double exact = row[i] / sqrt(squares / c->cols + 1e-6) * (1.0 + (double)weight[i]);
            cr_assert_float_eq(ops_get(&y, m, i), exact, (c->act == TPW_BF16 ? 0x1.1p-8 : 1e-6) * fabs(exact));
        }
    }
    cr_assert_eq(ops_padding_touched(&h) + ops_padding_touched(&y), 0);
    void *blocks[] = {h.data, y.data, sum, weight, row, want, before.data};
    for (int i = 0; i < 7; i++)
        free(blocks[i]);
}

Test(norm, the_tree_by_bits)
{
    const int32_t cols[] = {1, 7, 8, 64, 160, 255, 256, 257, 1000, 5120};
    int checked = 0;
    for (int isa = 0; isa < OPS_ISAS; isa++) {
        tpw_exec *exec = ops_exec(isa);
        if (!exec)
            continue;
        for (int i = 0; i < 10; i++)
            for (int f = 0; f < 8; f++, checked++) {
                norm_case c = {f & 1 ? TPW_BF16 : TPW_F32, i < 9 ? 5 : 2, cols[i], (f & 2) != 0, (f & 4) != 0};
                check_case(exec, &c);
            }
        tpw_host_destroy(exec);
    }
    cr_assert_geq(checked, 80);
}

/* A row alone gives the bits of the same row among many, and every instruction set gives the same. */
Test(norm, rows_do_not_meet)
{
    enum { M = 33, H = 777 };
    ops_random r = {22};
    tpw_mat h = ops_mat(TPW_BF16, M, H, 1), first = ops_mat(TPW_BF16, M, H, 0), y = ops_mat(TPW_BF16, M, H, 0);
    float weight[H];
    ops_fill(&h, &r, 1.0f);
    for (int i = 0; i < H; i++)
        weight[i] = ops_uniform(&r);
    for (int isa = 0; isa < OPS_ISAS; isa++) {
        tpw_exec *exec = ops_exec(isa);
        if (!exec)
            continue;
        tpw_add_norm_args args = {.h = h, .weight = weight, .eps = 1e-6f, .y = isa == 0 ? first : y};
        cr_assert_eq(exec->ops->add_norm(exec, &args, NULL), TPW_OK);
        if (isa > 0)
            cr_assert_eq(ops_diff(ops_isa_names[isa], &y, 0, &first, 0, M), 0);
        for (int m = 0; m < M; m++) {
            tpw_mat one = h, out = y;
            one.rows = out.rows = 1;
            one.data = (uint16_t *)h.data + m * h.stride;
            args = (tpw_add_norm_args){.h = one, .weight = weight, .eps = 1e-6f, .y = out};
            cr_assert_eq(exec->ops->add_norm(exec, &args, NULL), TPW_OK);
            cr_assert_eq(ops_diff("row alone", &y, 0, &first, m, 1), 0);
        }
        tpw_host_destroy(exec);
    }
    free(h.data);
    free(first.data);
    free(y.data);
}

/* The sum is added unrounded and rounded once: a sum rounded first would give another h. */
Test(norm, one_rounding_of_the_residual)
{
    tpw_exec *exec = ops_exec(0);
    uint16_t h = tpw_bf16_from_f32(1.0f);
    float sum =
        0x1.01p-8f; /* a little above half a step of BF16 at 1; rounded to BF16 first it would be exactly half */
    tpw_add_norm_args args = {.h = {&h, TPW_BF16, 1, 1, 1}, .sum = &sum, .eps = 1e-6f};
    cr_assert_eq(exec->ops->add_norm(exec, &args, NULL), TPW_OK);
    cr_assert_eq(h, tpw_bf16_from_f32(1.0078125f));
    tpw_error err = {0};
    args.h.dtype = TPW_F16;
    cr_assert_eq(exec->ops->add_norm(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "F16") != NULL, "%s", err.text);
    tpw_host_destroy(exec);
}

/* A sum in parts gives the bits of the sum that was joined before; the tree is written out here. */
Test(norm, parts_are_joined_by_their_tree)
{
    const int32_t cols[] = {1, 31, 256, 1000, 5120};
    int compared = 0;
    for (int n = 0; n < OPS_ISAS * 5 * 4 * 2; n++) {
        enum { M = 3 };
        tpw_exec *exec = ops_exec(n % OPS_ISAS);
        if (!exec)
            continue;
        const int32_t H = cols[n / OPS_ISAS % 5], parts = 1 << (n / (OPS_ISAS * 5) % 4);
        const tpw_dtype act = n / (OPS_ISAS * 5 * 4) ? TPW_BF16 : TPW_F32;
        const size_t size = (size_t)M * (size_t)H;
        ops_random r = {(uint64_t)n};
        tpw_mat h = ops_mat(act, M, H, 3), same = ops_mat(act, M, H, 3), y = ops_mat(act, M, H, 1),
                want = ops_mat(act, M, H, 1);
        float *part = ops_alloc(8 * size * 4), *sum = ops_alloc(size * 4), *weight = ops_alloc((size_t)H * 4);
        ops_fill(&h, &r, 1.0f);
        memcpy(same.data, h.data, (size_t)M * (size_t)h.stride * tpw_dtype_size(act));
        for (size_t i = 0; i < 8 * size; i++)
            part[i] = ops_uniform(&r) * ldexpf(1.0f, (int)(ops_next(&r) % 12) - 6);
        for (int32_t i = 0; i < H; i++)
            weight[i] = ops_uniform(&r);
        for (size_t i = 0; i < size; i++) {
            const float *p = part + i;
            float two = p[0] + p[size], four = two + (p[2 * size] + p[3 * size]);
            float eight = four + ((p[4 * size] + p[5 * size]) + (p[6 * size] + p[7 * size]));
            sum[i] = parts == 1 ? p[0] : parts == 2 ? two : parts == 4 ? four : eight;
        }
        tpw_add_norm_args args = {.h = h, .sum = part, .parts = parts, .weight = weight, .eps = 1e-6f, .y = y};
        cr_assert_eq(exec->ops->add_norm(exec, &args, NULL), TPW_OK);
        args = (tpw_add_norm_args){.h = same, .sum = sum, .weight = weight, .eps = 1e-6f, .y = want};
        cr_assert_eq(exec->ops->add_norm(exec, &args, NULL), TPW_OK);
        cr_assert_eq(ops_diff("h in parts", &h, 0, &same, 0, M) + ops_diff("y in parts", &y, 0, &want, 0, M), 0);
        cr_assert_eq(ops_padding_touched(&h) + ops_padding_touched(&y), 0);
        compared++;
        void *blocks[] = {h.data, same.data, y.data, want.data, part, sum, weight};
        for (int i = 0; i < 7; i++)
            free(blocks[i]);
        tpw_host_destroy(exec);
    }
    cr_assert_geq(compared, 40);
}

Test(norm, parts_that_make_no_tree_are_refused)
{
    float h = 1, sum[8] = {0}, weight = 0;
    tpw_exec *exec = ops_exec(0);
    const int32_t bad[] = {-1, 3, 5, 6, 7, 16};
    for (int i = 0; i < 6; i++) {
        tpw_error err = {0};
        const tpw_add_norm_args args = {.h = {&h, TPW_F32, 1, 1, 1}, .sum = sum, .parts = bad[i], .weight = &weight};
        cr_assert_eq(exec->ops->add_norm(exec, &args, &err), TPW_ERR_ARGUMENT);
        cr_assert(strstr(err.text, "parts") != NULL, "%s", err.text);
    }
    tpw_host_destroy(exec);
}
