/* Gates and the l2 norm of q and k: accuracy against double, bits of the norm against its tree, extremes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops_test.h"

static tpw_exec *open_best(void)
{
    tpw_exec *exec = NULL;
    cr_assert_eq(tpw_host_create("auto", &exec, NULL), TPW_OK);
    return exec;
}

static tpw_mat view(float *data, int rows, int cols, int stride)
{
    return (tpw_mat){data, TPW_F32, rows, cols, stride};
}

/* decay to the accuracy that an F32 exponent allows, beta to a unit in the last place or two. */
static void expect_gates(const float *a, const float *b, const float *a_log, const float *dt_bias, const float *decay,
                         const float *beta, int n)
{
    for (int i = 0; i < n; i++) {
        double x = (double)a[i] + (double)dt_bias[i];
        double g = -exp((double)a_log[i]) * (x > 20 ? x : log1p(exp(x))), exact = exp(g);
        double bound = (3 + 4 * fabs(g)) * 6e-8 * exact + 1e-44;
        cr_assert_float_eq(decay[i], exact, bound, "decay of a = %g, A_log = %g is %g, expected %g", (double)a[i],
                           (double)a_log[i], (double)decay[i], exact);
        cr_assert(decay[i] >= 0.0f && decay[i] <= 1.0f);
        exact = 1 / (1 + exp(-(double)b[i]));
        cr_assert_float_eq(beta[i], exact, 1.5e-7 * exact + 1e-44, "beta of %g is %g", (double)b[i], (double)beta[i]);
    }
}

Test(gates, agree_with_double_over_the_whole_range)
{
    enum { ROWS = 37, HEADS = 11, STRIDE = 14 };
    float a[ROWS * STRIDE], b[ROWS * STRIDE], decay[ROWS * STRIDE], beta[ROWS * STRIDE], a_log[HEADS], dt_bias[HEADS];
    ops_random seed = {2};
    for (int i = 0; i < ROWS * STRIDE; i++) {
        a[i] = b[i] = decay[i] = beta[i] = NAN;
        if (i % STRIDE < HEADS)
            a[i] = 30.0f * ops_uniform(&seed), b[i] = 100.0f * ops_uniform(&seed);
    }
    for (int h = 0; h < HEADS; h++)
        a_log[h] = 3.0f * ops_uniform(&seed), dt_bias[h] = 5.0f * ops_uniform(&seed);
    tpw_exec *exec = open_best();
    tpw_gates_args args = {view(a, ROWS, HEADS, STRIDE),     view(b, ROWS, HEADS, STRIDE),   a_log, dt_bias,
                           view(decay, ROWS, HEADS, STRIDE), view(beta, ROWS, HEADS, STRIDE)};
    cr_assert_eq(exec->ops->gates(exec, &args, NULL), TPW_OK);
    for (int r = 0; r < ROWS; r++) {
        expect_gates(a + r * STRIDE, b + r * STRIDE, a_log, dt_bias, decay + r * STRIDE, beta + r * STRIDE, HEADS);
        for (int i = HEADS; i < STRIDE; i++)
            cr_assert(isnan(decay[r * STRIDE + i]) && isnan(beta[r * STRIDE + i]), "padding was written");
    }
    tpw_host_destroy(exec);
}

Test(gates, extremes_and_the_worked_example)
{
    float a[] = {-100, 100, 19.999f, 20.0f, 20.001f, 0, 0.1f, -0.4f, 2.0f, -INFINITY, 0};
    float b[] = {-200, 200, 0, -0.0f, 1, -1, 0.3f, -0.2f, 1.5f, -INFINITY, INFINITY};
    float a_log[] = {0, 4, 0, 0, 0, -80, 0.5f, 0.5f, 0.5f, 1, 5};
    float dt_bias[] = {0, 0, 0, 0, 0, 0, -0.25f, -0.25f, -0.25f, 0, -50};
    static const double g[] = {-1.023785093, -0.692554167, -3.149427189},
                        want[] = {0.574442517, 0.450166003, 0.817574476};
    enum { N = sizeof a / sizeof *a };
    float decay[N], beta[N];
    tpw_exec *exec = open_best();
    tpw_gates_args args = {view(a, 1, N, N), view(b, 1, N, N),     a_log,
                           dt_bias,          view(decay, 1, N, N), view(beta, 1, N, N)};
    cr_assert_eq(exec->ops->gates(exec, &args, NULL), TPW_OK);
    expect_gates(a, b, a_log, dt_bias, decay, beta, N);
    cr_assert_eq(decay[0], 1.0f, "no decay at all must be exactly 1");
    cr_assert_eq(decay[1], 0.0f);
    cr_assert_eq(decay[9], 1.0f);
    cr_assert_eq(beta[2], 0.5f);
    cr_assert(beta[1] == 1.0f && beta[9] == 0.0f && beta[10] == 1.0f);
    for (int i = 0; i < 3; i++) {
        cr_assert_float_eq(decay[6 + i], exp(g[i]), 3e-7);
        cr_assert_float_eq(beta[6 + i], want[i], 1e-7);
    }
    args.beta.dtype = TPW_BF16;
    tpw_error err;
    cr_assert_eq(exec->ops->gates(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    args.beta.dtype = TPW_F32, args.beta.cols = 3;
    cr_assert_eq(exec->ops->gates(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    tpw_host_destroy(exec);
}

/* The norm tree: pieces of 256, lane l of 32 sums elements 8l..8l+7, xor butterfly 16, 8, 4, 2, 1. */
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

static void check_l2norm(tpw_exec *exec, int heads, int dim, tpw_dtype act)
{
    enum { ROWS = 3, PAD = 5 };
    int cols = heads * dim, stride = cols + PAD;
    float *x = malloc(sizeof *x * (size_t)(ROWS * stride)), *y = malloc(sizeof *y * (size_t)(ROWS * stride));
    uint16_t *raw = malloc(sizeof *raw * (size_t)(ROWS * stride));
    float scale = act == TPW_BF16 ? 1.0f : 1.0f / sqrtf((float)dim);
    ops_random seed = {(uint64_t)dim};
    for (int i = 0; i < ROWS * stride; i++) {
        raw[i] = i % stride < cols ? tpw_bf16_from_f32(i % stride < dim ? 0.0f : 4.0f * ops_uniform(&seed)) : 0xFFFF;
        x[i] = tpw_bf16_to_f32(raw[i]), y[i] = NAN; /* the first head of each row is zero */
    }
    tpw_l2norm_args args = {{act == TPW_BF16 ? (void *)raw : (void *)x, act, ROWS, cols, stride},
                            heads,
                            scale,
                            view(y, ROWS, cols, stride)};
    cr_assert_eq(exec->ops->l2norm(exec, &args, NULL), TPW_OK);
    for (int r = 0; r < ROWS; r++) {
        for (int h = 0; h < heads; h++) {
            const float *in = x + r * stride + h * dim, *out = y + r * stride + h * dim;
            double exact = 0;
            for (int i = 0; i < dim; i++)
                exact += (double)in[i] * (double)in[i];
            float inverse = 1.0f / sqrtf(tree_of_squares(in, dim) + 1e-6f);
            for (int i = 0; i < dim; i++) {
                cr_assert(tpw_f32_bits(out[i]) == tpw_f32_bits(in[i] * inverse * scale), "dim %d head %d element %d",
                          dim, h, i);
                double want = (double)in[i] / sqrt(exact + 1e-6) * (double)scale;
                cr_assert_float_eq(out[i], want, 1e-6 * fabs(want));
            }
        }
        for (int i = cols; i < stride; i++)
            cr_assert(isnan(y[r * stride + i]), "padding was written");
    }
    free(x), free(y), free(raw);
}

Test(l2norm, bits_of_the_tree_on_every_isa)
{
    static const int dims[] = {1, 2, 24, 32, 64, 128, 256, 300};
    for (int e = 0; e < OPS_ISAS; e++) {
        tpw_exec *exec = ops_exec(e);
        for (size_t i = 0; exec && i < sizeof dims / sizeof *dims; i++) {
            check_l2norm(exec, 3, dims[i], TPW_BF16);
            check_l2norm(exec, 2, dims[i], TPW_F32);
        }
        tpw_host_destroy(exec);
    }
}

Test(l2norm, what_cannot_be_done_is_refused)
{
    float x[12] = {0}, y[12];
    tpw_exec *exec = open_best();
    tpw_l2norm_args args = {{x, TPW_E4M3, 1, 12, 12}, 3, 1.0f, view(y, 1, 12, 12)};
    tpw_error err;
    cr_assert_eq(exec->ops->l2norm(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    args.x.dtype = TPW_F32, args.heads = 5;
    cr_assert_eq(exec->ops->l2norm(exec, &args, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "5 heads"));
    args.heads = 0;
    cr_assert_eq(exec->ops->l2norm(exec, &args, NULL), TPW_ERR_ARGUMENT);
    tpw_host_destroy(exec);
}
