/* The gated norm: bits against the formula and its tree, accuracy against double, the worked example.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/elementary.h"
#include "ops_test.h"

static tpw_exec *open_best(void)
{
    tpw_exec *exec = NULL;
    cr_assert_eq(tpw_host_create("auto", &exec, NULL), TPW_OK);
    return exec;
}

static float tree_of_squares(const float *x, int n)
{
    float sum = 0.0f;
    for (int p = 0; p < n; p += 256) {
        float lane[32] = {0}, next[32];
        for (int i = 0; i < 256 && p + i < n; i++)
            lane[i / 8] = fmaf(x[p + i], x[p + i], lane[i / 8]);
        for (int mask = 16; mask; mask /= 2) {
            for (int l = 0; l < 32; l++)
                next[l] = lane[l] + lane[l ^ mask];
            memcpy(lane, next, sizeof lane);
        }
        sum += lane[0];
    }
    return sum;
}

static float get(const void *p, tpw_dtype dtype, int i)
{
    return dtype == TPW_BF16 ? tpw_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static void put(void *p, tpw_dtype dtype, int i, float value)
{
    if (dtype == TPW_BF16)
        ((uint16_t *)p)[i] = tpw_bf16_from_f32(value);
    else
        ((float *)p)[i] = value;
}

/* In place (y is x), with rows that are padded by NaN. */
static void check(tpw_exec *exec, int heads, int dim, tpw_dtype act, bool sigmoid)
{
    enum { ROWS = 4, PAD = 3 };
    int cols = heads * dim, stride = cols + PAD, n = ROWS * stride;
    void *x = malloc((size_t)n * 4), *z = malloc((size_t)n * 4), *before = malloc((size_t)n * 4);
    float *weight = malloc((size_t)dim * 4), *head = malloc((size_t)dim * 4);
    ops_random seed = {(uint64_t)(dim + heads)};
    for (int i = 0; i < n; i++) {
        put(x, act, i, i % stride < cols ? 5.0f * ops_uniform(&seed) : NAN);
        put(z, act, i, i % stride < cols ? 12.0f * ops_uniform(&seed) : NAN);
    }
    for (int i = 0; i < dim; i++)
        weight[i] = 1.0f + ops_uniform(&seed), put(x, act, i, 0.0f); /* a head of zeros too */
    memcpy(before, x, (size_t)n * tpw_dtype_size(act));
    tpw_gated_norm_args args = {
        {x, act, ROWS, cols, stride}, {z, act, ROWS, cols, stride}, weight, heads, 1e-6f, sigmoid,
        {x, act, ROWS, cols, stride}};
    cr_assert_eq(exec->ops->gated_norm(exec, &args, NULL), TPW_OK);
    for (int at = 0; at < n; at++) {
        int col = at % stride, first = at - col % dim;
        if (col >= cols) {
            cr_assert(isnan(get(x, act, at)), "padding was written");
            continue;
        }
        double sum = 0;
        for (int i = 0; i < dim; i++) {
            head[i] = get(before, act, first + i);
            sum += (double)head[i] * (double)head[i];
        }
        float inverse = 1.0f / sqrtf(tree_of_squares(head, dim) / (float)dim + 1e-6f), gate = get(z, act, at);
        float normed = head[col % dim] * inverse * weight[col % dim], want;
        want = sigmoid ? normed * tpw_sigmoid(gate) : tpw_silu(gate) * normed;
        want = act == TPW_BF16 ? tpw_bf16_to_f32(tpw_bf16_from_f32(want)) : want;
        cr_assert(tpw_f32_bits(get(x, act, at)) == tpw_f32_bits(want), "dim %d element %d", dim, at);
        double exact = (double)head[col % dim] / sqrt(sum / dim + 1e-6) * (double)weight[col % dim];
        exact *= (sigmoid ? 1 : (double)gate) / (1 + exp(-(double)gate));
        cr_assert_float_eq(want, exact, (act == TPW_BF16 ? 4e-3 : 1e-6) * fabs(exact) + 1e-30);
    }
    free(x), free(z), free(before), free(weight), free(head);
}

Test(gated_norm, bits_and_accuracy_on_every_isa)
{
    static const int dims[] = {1, 24, 40, 64, 128, 300};
    for (int e = 0; e < OPS_ISAS; e++) {
        tpw_exec *exec = ops_exec(e);
        for (size_t i = 0; exec && i < sizeof dims / sizeof *dims; i++) {
            check(exec, 3, dims[i], TPW_BF16, false);
            check(exec, 2, dims[i], TPW_F32, false);
            check(exec, 2, dims[i], TPW_BF16, true);
            check(exec, 1, dims[i], TPW_F32, true);
        }
        tpw_host_destroy(exec);
    }
}

Test(gated_norm, worked_example_and_refusals)
{
    float x[2] = {1.733487288f, 0.146257536f}, z[2] = {0.5f, -1.0f}, weight[2] = {0.9f, 1.1f}, y[2];
    tpw_exec *exec = open_best();
    tpw_gated_norm_args args = {{x, TPW_F32, 1, 2, 2}, {z, TPW_F32, 1, 2, 2}, weight, 1, 1e-6f, false,
                                {y, TPW_F32, 1, 2, 2}};
    tpw_error err;
    cr_assert_eq(exec->ops->gated_norm(exec, &args, &err), TPW_OK);
    cr_assert_float_eq(y[0], 0.394728096, 1e-7);
    cr_assert_float_eq(y[1], -0.035174061, 1e-8);
    args.heads = 3;
    cr_assert_eq(exec->ops->gated_norm(exec, &args, &err), TPW_ERR_ARGUMENT);
    args.heads = 1, args.z.cols = 1;
    cr_assert_eq(exec->ops->gated_norm(exec, &args, &err), TPW_ERR_ARGUMENT);
    args.z.cols = 2, args.y.dtype = TPW_F16;
    cr_assert_eq(exec->ops->gated_norm(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    tpw_host_destroy(exec);
}
