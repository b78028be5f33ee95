/* Elementary functions against libm in double: every 1021st F32, special values, and the double functions against
 * long double. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/elementary.h"

#include "kernels/host/vec.h"
#include "ops_test.h"

#define SWEEP_STEP 1021u /* prime: all exponents and varied mantissas */

static double exact_silu(double x)
{
    return x == -INFINITY ? -0.0 : x / (1.0 + exp(-x));
}

static double exact_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double exact_softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

static double sweep(const char *name, float (*ours)(float), double (*exact)(double))
{
    double worst = 0;
    float at = 0;
    for (uint64_t u = 0; u <= UINT32_MAX; u += SWEEP_STEP) {
        float x = tpw_f32_from_bits((uint32_t)u);
        double ulps = ops_ulps(ours(x), exact(x));
        if (ulps > worst) {
            worst = ulps;
            at = x;
        }
    }
    fprintf(stderr, "%s: worst %.4f ulp at %a\n", name, worst, (double)at);
    return worst;
}

Test(elementary, f32_functions_are_within_0_51_ulp)
{
    cr_assert_lt(sweep("exp", tpw_exp, exp), 0.51);
    cr_assert_lt(sweep("log1p", tpw_log1p, log1p), 0.51);
    cr_assert_lt(sweep("sigmoid", tpw_sigmoid, exact_sigmoid), 0.51);
    cr_assert_lt(sweep("silu", tpw_silu, exact_silu), 0.51);
    cr_assert_lt(sweep("softplus", tpw_softplus, exact_softplus), 0.51);
}

Test(elementary, dense_near_the_working_range)
{
    double worst[4] = {0};
    for (int i = -1200000; i <= 1200000; i++) {
        float x = (float)i * 0x1.9p-14f;
        double u[4] = {ops_ulps(tpw_exp(x), exp(x)), ops_ulps(tpw_sigmoid(x), exact_sigmoid(x)),
                       ops_ulps(tpw_silu(x), exact_silu(x)), ops_ulps(tpw_softplus(x), exact_softplus(x))};
        for (int f = 0; f < 4; f++)
            worst[f] = u[f] > worst[f] ? u[f] : worst[f];
    }
    for (int f = 0; f < 4; f++)
        cr_assert_lt(worst[f], 0.51, "function %d: %g ulp", f, worst[f]);
}

Test(elementary, special_values)
{
    cr_assert_eq(tpw_f32_bits(tpw_exp(0.0f)), 0x3F800000u);
    cr_assert_eq(tpw_f32_bits(tpw_exp(-0.0f)), 0x3F800000u);
    cr_assert_eq(tpw_f32_bits(tpw_exp(-INFINITY)), 0u);
    cr_assert_eq(tpw_f32_bits(tpw_exp(-200.0f)), 0u);
    cr_assert_eq(tpw_exp(INFINITY), INFINITY);
    cr_assert_eq(tpw_exp(89.5f), INFINITY);
    cr_assert_eq(tpw_exp(3e38f), INFINITY);
    cr_assert(isfinite(tpw_exp(88.72f)));
    cr_assert(isnan(tpw_exp(NAN)) && isnan(tpw_silu(NAN)) && isnan(tpw_sigmoid(-NAN)) && isnan(tpw_softplus(NAN)));
    cr_assert_eq(tpw_sigmoid(0.0f), 0.5f);
    cr_assert_eq(tpw_sigmoid(INFINITY), 1.0f);
    cr_assert_eq(tpw_f32_bits(tpw_sigmoid(-INFINITY)), 0u);
    cr_assert_eq(tpw_silu(INFINITY), INFINITY);
    cr_assert_eq(tpw_silu(-INFINITY), 0.0f);
    cr_assert_eq(tpw_softplus(20.5f), 20.5f);
    cr_assert_eq(tpw_softplus(INFINITY), INFINITY);
    cr_assert_eq(tpw_softplus(-INFINITY), 0.0f);
    cr_assert_eq(tpw_log1p(-1.0f), -INFINITY);
    cr_assert_eq(tpw_log1p(INFINITY), INFINITY);
    cr_assert(isnan(tpw_log1p(-1.5f)));
    cr_assert_eq(tpw_f32_bits(tpw_log1p(-0.0f)), 0x80000000u);
    cr_assert_eq(tpw_rsqrt(4.0f), 0.5f);
    cr_assert_eq(tpw_exp_d(0.0), 1.0);
    cr_assert_eq(tpw_exp_d(-INFINITY), 0.0);
    cr_assert_eq(tpw_exp_d(710.0), INFINITY);
    cr_assert_eq(tpw_log_d(1.0), 0.0);
    cr_assert_eq(tpw_log_d(0.0), -INFINITY);
    cr_assert_eq(tpw_log_d(INFINITY), INFINITY);
    cr_assert(isnan(tpw_log_d(-1.0)) && isnan(tpw_exp_d(NAN)) && isnan(tpw_sin_d(2e7)) && isnan(tpw_cos_d(NAN)));
    cr_assert_eq(tpw_pow_d(10000.0, 0.0), 1.0);
    cr_assert_eq(tpw_sin_d(0.0), 0.0);
    cr_assert_eq(tpw_cos_d(0.0), 1.0);
}

/* Vectorised loops of every instruction set give the bits of the scalar function, special values and tails included. */
Test(elementary, loops_equal_the_scalar_functions)
{
    enum { N = 1000 };
    static float x[N], g[N], y[N];
    ops_random r = {5};
    for (int i = 0; i < N; i++) {
        x[i] = 110.0f * ops_uniform(&r);
        g[i] = i % 3 ? 12.0f * ops_uniform(&r) : tpw_f32_from_bits((uint32_t)ops_next(&r));
        if (isnan(g[i]))
            g[i] = NAN; /* one payload: which of two is kept is the CPU's choice */
    }
    const float special[] = {0.0f,   -0.0f,  INFINITY, -INFINITY, NAN,     1e-40f,
                             88.72f, 88.73f, -87.4f,   -103.9f,   -104.0f, 3e38f};
    memcpy(x + 8, special, sizeof special);
    for (int isa = 0; isa < OPS_ISAS; isa++) {
        tpw_exec *exec = ops_exec(isa);
        if (!exec)
            continue;
        const tpw_vec *vec = tpw_host_vec(exec);
        for (int n = N; n > N - 17; n--) {
            vec->exp_shift(y, x, 1.5f, n);
            for (int i = 0; i < n; i++)
                cr_assert_eq(tpw_f32_bits(y[i]), tpw_f32_bits(tpw_exp(x[i] - 1.5f)), "%s exp at %a", vec->isa,
                             (double)x[i]);
            memcpy(y, x, sizeof y);
            vec->silu(y, y, NULL, n);
            for (int i = 0; i < n; i++)
                cr_assert_eq(tpw_f32_bits(y[i]), tpw_f32_bits(tpw_silu(x[i])), "%s silu at %a", vec->isa, (double)x[i]);
            vec->sigmoid_mul(y, y, g, n);
            for (int i = 0; i < n; i++) {
                float expected = tpw_silu(x[i]) * tpw_sigmoid(g[i]);
                if (isnan(expected))
                    cr_assert(isnan(y[i]));
                else
                    cr_assert_eq(tpw_f32_bits(y[i]), tpw_f32_bits(expected), "%s at %d", vec->isa, i);
            }
        }
        tpw_host_destroy(exec);
    }
}

Test(elementary, sin_and_cos_to_1e_15_up_to_1e7)
{
    ops_random r = {7};
    double worst = 0;
    for (int i = 0; i < 300000; i++) {
        double x = (double)(int64_t)ops_next(&r) * 0x1p-63 * (i % 3 == 0 ? 1e7 : i % 3 == 1 ? 1000.0 : 3.0);
        if (i < 20000)
            x = (double)i * 1.5707963267948966; /* next to the zeros and ends of the reduction */
        double s = fabs((double)((long double)tpw_sin_d(x) - sinl((long double)x)));
        double c = fabs((double)((long double)tpw_cos_d(x) - cosl((long double)x)));
        worst = s > worst ? s : worst;
        worst = c > worst ? c : worst;
    }
    fprintf(stderr, "sin, cos: worst absolute error %.3g\n", worst);
    cr_assert_lt(worst, 1e-15);
}

Test(elementary, exp_log_and_pow_to_1e_15)
{
    ops_random r = {9};
    double worst[3] = {0};
    for (int i = 0; i < 200000; i++) {
        double u = (double)(int64_t)ops_next(&r) * 0x1p-63;
        long double e = expl((long double)(700.0 * u));
        double error = (double)fabsl((tpw_exp_d(700.0 * u) - e) / e);
        worst[0] = error > worst[0] ? error : worst[0];
        double v = i % 2 ? 1.0 + 0.4 * u : exp(300.0 * u);
        long double l = logl((long double)v);
        error = l == 0 ? 0 : (double)fabsl((tpw_log_d(v) - l) / l);
        worst[1] = error > worst[1] ? error : worst[1];
        double base = i % 3 ? 1e7 : 1e4;
        long double p = powl((long double)base, (long double)u);
        error = (double)fabsl((tpw_pow_d(base, u) - p) / p);
        worst[2] = error > worst[2] ? error : worst[2];
    }
    fprintf(stderr, "exp %.3g, log %.3g, pow %.3g: worst relative errors\n", worst[0], worst[1], worst[2]);
    for (int f = 0; f < 3; f++)
        cr_assert_lt(worst[f], 1e-15);
    cr_assert_float_eq(tpw_log_d(0x1p-1060), -1060 * 0.69314718055994530942, 1e-12);
}
