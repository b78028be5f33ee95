/* The ops on arrays of any shape: cast, sum, power, concat, over all types, layouts and subsets of axes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "array_test.h"

static const tpw_dtype floats[] = {TPW_F32, TPW_BF16, TPW_F16};
static const int64_t shapes[][TPW_DIMS_MAX] = {{37}, {5, 33}, {3, 1, 64}, {2, 3, 5, 7}, {1}, {4, 257}, {2, 2, 301}};
static const int32_t shape_dims[] = {1, 2, 3, 4, 1, 2, 3};

#define SHAPES (sizeof shape_dims / sizeof *shape_dims)

static tpw_exec *exec;

static void open_exec(void)
{
    tpw_error err = {0};
    cr_assert_eq(tpw_host_create("auto", &exec, &err), TPW_OK, "%s", err.text);
}

static void close_exec(void)
{
    tpw_host_destroy(exec);
}

TestSuite(array, .init = open_exec, .fini = close_exec);

#define REFUSED(op, args, code, word)                          \
    cr_assert_eq(exec->ops->op(exec, &(args), &err), code);    \
    cr_assert(strstr(err.text, word) != NULL, "%s", err.text); \
    cr_assert_eq(err.status, code)

/* One cast against tpw_convert of each element by itself. */
static int64_t check_cast(tpw_dtype from, tpw_dtype to, size_t shape, int layouts, ops_random *r)
{
    box x = box_make(from, shape_dims[shape], shapes[shape], (box_layout)(layouts % BOX_LAYOUTS));
    box y = box_make(to, shape_dims[shape], shapes[shape], (box_layout)(layouts / BOX_LAYOUTS));
    const tpw_cast_args args = {x.a, y.a};
    tpw_error err = {0};
    box_fill_bits(&x, r);
    cr_assert_eq(exec->ops->cast(exec, &args, &err), TPW_OK, "%s", err.text);
    for (int64_t i = 0; i < box_count(&x); i++) {
        unsigned char want[8];
        cr_assert_eq(tpw_convert((tpw_strided){want, to, 1}, (tpw_strided){box_at(&x, i), from, 1}, 1, NULL, NULL),
                     TPW_OK);
        cr_assert_eq(memcmp(want, box_at(&y, i), tpw_dtype_size(to)), 0, "%s to %s, shape %zu, layouts %d, element %d",
                     tpw_dtype_name(from), tpw_dtype_name(to), shape, layouts, (int)i);
    }
    cr_assert_eq(box_touched(&x) + box_touched(&y), 0);
    free(x.block);
    free(y.block);
    return box_count(&x);
}

Test(array, cast_of_every_pair)
{
    ops_random r = {501};
    int64_t compared = 0;
    for (int from = 0; from < TPW_DTYPE_COUNT; from++)
        for (int to = 0; to < TPW_DTYPE_COUNT; to++)
            for (int layouts = 0; layouts < BOX_LAYOUTS * BOX_LAYOUTS; layouts++)
                compared += check_cast((tpw_dtype)from, (tpw_dtype)to, (size_t)(layouts + from) % SHAPES, layouts, &r);
    fprintf(stderr, "%lld casts equal\n", (long long)compared);
    cr_assert_gt(compared, 49 * 25 * 100);
}

/* One element without axes, a repeated element, nothing at all, and the cuts that a cast makes. */
Test(array, cast_edges)
{
    float one = 448.5f, many[3];
    uint8_t code[3] = {1, 1, 1};
    tpw_cast_args args = {{&one, TPW_F32, 0, {0}, {0}}, {code, TPW_E4M3, 0, {0}, {0}}};
    cr_assert_eq(exec->ops->cast(exec, &args, NULL), TPW_OK);
    cr_assert(code[0] == 0x7E && code[1] == 1);
    one = -1e30f;
    args = (tpw_cast_args){{&one, TPW_F32, 1, {3}, {0}}, {code, TPW_E4M3, 1, {3}, {1}}};
    cr_assert_eq(exec->ops->cast(exec, &args, NULL), TPW_OK);
    cr_assert(code[0] == 0xFE && code[2] == 0xFE);
    args = (tpw_cast_args){{code, TPW_E4M3, 1, {3}, {-1}}, {many, TPW_F32, 1, {3}, {1}}};
    args.x.data = code + 2;
    code[2] = 0x38;
    cr_assert_eq(exec->ops->cast(exec, &args, NULL), TPW_OK);
    cr_assert(many[0] == 1.0f && many[2] == -448.0f);
    args = (tpw_cast_args){{NULL, TPW_F32, 2, {3, 0}, {1, 1}}, {NULL, TPW_I64, 2, {3, 0}, {1, 1}}};
    cr_assert_eq(exec->ops->cast(exec, &args, NULL), TPW_OK);
}

Test(array, cast_refuses)
{
    float x[4] = {0}, y[4] = {0};
    tpw_error err = {0};
    const tpw_cast_args good = {{x, TPW_F32, 2, {2, 2}, {2, 1}}, {y, TPW_F32, 2, {2, 2}, {2, 1}}};
    tpw_cast_args a = good;
    cr_assert_eq(exec->ops->cast(exec, &a, &err), TPW_OK, "%s", err.text);
    a = good, a.x.extent[1] = 1;
    REFUSED(cast, a, TPW_ERR_ARGUMENT, "axis 1");
    a = good, a.y.dims = 1;
    REFUSED(cast, a, TPW_ERR_ARGUMENT, "dims");
    a = good, a.x.dims = 5;
    REFUSED(cast, a, TPW_ERR_ARGUMENT, "5 dims");
    a = good, a.x.extent[0] = -1;
    REFUSED(cast, a, TPW_ERR_ARGUMENT, "-1");
    a = good, a.x.dtype = TPW_DTYPE_COUNT;
    REFUSED(cast, a, TPW_ERR_ARGUMENT, "dtype");
    a = good, a.y.data = NULL;
    REFUSED(cast, a, TPW_ERR_ARGUMENT, "NULL");
    a = good, a.x.extent[0] = a.y.extent[0] = INT64_MAX / 2;
    REFUSED(cast, a, TPW_ERR_ARGUMENT, "address space");
    a = good, a.x.stride[0] = INT64_MIN;
    REFUSED(cast, a, TPW_ERR_ARGUMENT, "address space");
    a = good, a.x.extent[0] = a.y.extent[0] = 0, a.x.extent[1] = a.y.extent[1] = INT64_MAX, a.x.stride[1] = 3;
    REFUSED(cast, a, TPW_ERR_ARGUMENT, "address space");
}

/* Terms of the output with row-major number `o` of the kept axes, in row-major order of the summed ones. */
static int64_t gather_terms(const box *x, uint32_t axes, int64_t o, float *term)
{
    int64_t n = 0;
    for (int64_t i = 0; i < box_count(x); i++) {
        int64_t rest = i, kept = 0, scale = 1;
        for (int32_t d = x->a.dims - 1; d >= 0; d--) {
            if (!(axes >> d & 1)) {
                kept += rest % x->a.extent[d] * scale;
                scale *= x->a.extent[d];
            }
            rest /= x->a.extent[d];
        }
        if (kept == o)
            term[n++] = box_get(x, i);
    }
    return n;
}

static int64_t check_sum(size_t shape, uint32_t axes, bool keep, int layouts, tpw_dtype from, tpw_dtype to,
                         ops_random *r)
{
    box x = box_make(from, shape_dims[shape], shapes[shape], (box_layout)(layouts % BOX_LAYOUTS));
    int64_t extent[TPW_DIMS_MAX];
    int32_t dims = 0;
    for (int32_t d = 0; d < x.a.dims; d++)
        if (!(axes >> d & 1) || keep)
            extent[dims++] = axes >> d & 1 ? 1 : x.a.extent[d];
    box y = box_make(to, dims, extent, (box_layout)(layouts / BOX_LAYOUTS));
    float *term = ops_alloc((size_t)box_count(&x) * sizeof *term);
    const tpw_sum_args args = {x.a, axes, keep, y.a};
    tpw_error err = {0};
    box_fill_numbers(&x, r);
    cr_assert_eq(exec->ops->sum(exec, &args, &err), TPW_OK, "%s", err.text);
    for (int64_t o = 0; o < box_count(&y); o++) {
        int64_t n = gather_terms(&x, axes, o, term);
        float want = box_rounded(to, box_tree(term, n));
        cr_assert_eq(n * box_count(&y), box_count(&x));
        cr_assert_eq(tpw_f32_bits(box_get(&y, o)), tpw_f32_bits(want), "shape %zu axes %x layouts %d output %d", shape,
                     (unsigned)axes, layouts, (int)o);
    }
    cr_assert_eq(box_touched(&x) + box_touched(&y), 0);
    free(term);
    free(x.block);
    free(y.block);
    return box_count(&y);
}

Test(array, sum_over_every_subset_of_axes)
{
    ops_random r = {502};
    int64_t sums = 0, outputs = 0;
    for (size_t shape = 0; shape < SHAPES; shape++)
        for (uint32_t axes = 0; axes < 1u << shape_dims[shape]; axes++)
            for (int layouts = 0; layouts < BOX_LAYOUTS * BOX_LAYOUTS; layouts += 2, sums++)
                outputs += check_sum(shape, axes, layouts / 2 % 2, layouts, floats[sums % 3], floats[sums / 3 % 3], &r);
    fprintf(stderr, "%lld sums, %lld outputs equal\n", (long long)sums, (long long)outputs);
    cr_assert_eq(sums, 13 * (2 + 4 + 8 + 16 + 2 + 4 + 8));
    cr_assert_gt(outputs, 1000);
}

/* Long reductions: at, below and above the ends of pieces. */
Test(array, full_sum_of_many_terms)
{
    const int64_t lengths[] = {1, 7, 8, 255, 256, 257, 511, 512, 5000, 65537};
    ops_random r = {503};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        box x = box_make(TPW_F32, 1, &lengths[i], BOX_BACKWARDS);
        float *term = ops_alloc((size_t)lengths[i] * sizeof *term), y = 0;
        box_fill_numbers(&x, &r);
        for (int64_t k = 0; k < lengths[i]; k++)
            term[k] = box_get(&x, k);
        const tpw_sum_args args = {x.a, 1, false, {&y, TPW_F32, 0, {0}, {0}}};
        cr_assert_eq(exec->ops->sum(exec, &args, NULL), TPW_OK);
        cr_assert_eq(tpw_f32_bits(y), tpw_f32_bits(box_tree(term, lengths[i])), "%lld terms", (long long)lengths[i]);
        free(term);
        free(x.block);
    }
}

Test(array, sum_edges)
{
    float x[6] = {-0.0f, 1, 2, 3, 4, 5}, y[3] = {9, 9, 9};
    tpw_sum_args args = {{x, TPW_F32, 1, {1}, {1}}, 0, false, {y, TPW_F32, 1, {1}, {1}}};
    tpw_error err = {0};
    cr_assert_eq(exec->ops->sum(exec, &args, NULL), TPW_OK);
    cr_assert_eq(tpw_f32_bits(y[0]), 0u, "+0 + -0 is +0");
    args = (tpw_sum_args){{NULL, TPW_F32, 2, {3, 0}, {1, 1}}, 2, false, {y, TPW_F32, 1, {3}, {1}}};
    y[0] = 9;
    cr_assert_eq(exec->ops->sum(exec, &args, NULL), TPW_OK);
    cr_assert(y[0] == 0 && y[1] == 0 && y[2] == 0, "a sum of nothing is 0");
    const tpw_sum_args good = {{x, TPW_F32, 2, {2, 3}, {3, 1}}, 2, false, {y, TPW_F32, 1, {2}, {1}}};
    args = good;
    cr_assert_eq(exec->ops->sum(exec, &args, &err), TPW_OK, "%s", err.text);
    cr_assert(y[0] == 3 && y[1] == 12);
    args = good, args.keep = true;
    REFUSED(sum, args, TPW_ERR_ARGUMENT, "extent 1");
    args = good, args.axes = 1;
    REFUSED(sum, args, TPW_ERR_ARGUMENT, "extent 3");
    args = good, args.axes = 4;
    REFUSED(sum, args, TPW_ERR_ARGUMENT, "axes 0x4");
    args = good, args.axes = 3;
    REFUSED(sum, args, TPW_ERR_ARGUMENT, "y has 1 dims, but 0 are left");
    args = good, args.x.dtype = TPW_I32;
    REFUSED(sum, args, TPW_ERR_UNSUPPORTED, "I32");
    args = good, args.y.dtype = TPW_E4M3;
    REFUSED(sum, args, TPW_ERR_UNSUPPORTED, "E4M3");
}

/* The op on one F32. */
static float power_of(float x, float y)
{
    float out = 9;
    const tpw_power_args args = {{&x, TPW_F32, 0, {0}, {0}}, y, {&out, TPW_F32, 0, {0}, {0}}};
    cr_assert_eq(exec->ops->power(exec, &args, NULL), TPW_OK);
    return out;
}

/* Every special value as C's pow has it; where pow is exact, so are we. */
Test(array, power_of_special_values)
{
    const float x[] = {0.0f,  -0.0f, 1.0f,      -1.0f, INFINITY, -INFINITY, NAN,    0.5f,      -0.5f,   2.0f,
                       -2.0f, 4.0f,  0x1p-149f, 3.0f,  -3.0f,    3e38f,     -3e38f, 0x1p-126f, 0x1p127f};
    const float y[] = {0.0f, -0.0f,    1.0f,      -1.0f, 2.0f,     -2.0f,    3.0f,  -3.0f,  0.5f,      -0.5f,
                       1.5f, INFINITY, -INFINITY, NAN,   16777215, 16777216, 1e30f, -1e30f, -16777215, 0.25f};
    int compared = 0;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        for (size_t k = 0; k < sizeof y / sizeof *y; k++, compared++) {
            double exact = pow((double)x[i], (double)y[k]);
            float got = power_of(x[i], y[k]), want = (float)exact;
            if (isnan(exact)) {
                cr_assert_eq(tpw_f32_bits(got), 0x7FC00000u, "%a ^ %a is %a", (double)x[i], (double)y[k], (double)got);
                continue;
            }
            cr_assert_eq(signbit(got), signbit(want), "%a ^ %a is %a", (double)x[i], (double)y[k], (double)got);
            if (want == 0 || isinf(want) || exact == (double)want)
                cr_assert_eq(tpw_f32_bits(got), tpw_f32_bits(want), "%a ^ %a is %a", (double)x[i], (double)y[k],
                             (double)got);
            cr_assert_leq(ops_ulps(got, exact), 0.5001, "%a ^ %a is %a", (double)x[i], (double)y[k], (double)got);
        }
    cr_assert_eq(compared, 19 * 20);
}

Test(array, power_of_many)
{
    const float y[] = {-0.5f, 0.5f, 1.0f, -1.0f, 2.0f, 3.0f, -2.0f, 0.3333333f, 7.25f, -1.7f};
    ops_random r = {504};
    double worst = 0;
    int checked = 0;
    for (int i = 0; i < 40000; i++) {
        float x = tpw_f32_from_bits((uint32_t)ops_next(&r) & 0x7FFFFFFFu), e = y[i % 10];
        if (isnan(x))
            continue;
        double ulps = ops_ulps(power_of(x, e), pow((double)x, (double)e));
        worst = ulps > worst ? ulps : worst;
        checked++;
        if (e == 2.0f)
            cr_assert_eq(tpw_f32_bits(power_of(x, e)), tpw_f32_bits((float)((double)x * x)));
        if (e == 0.5f)
            cr_assert_eq(tpw_f32_bits(power_of(x, e)), tpw_f32_bits(sqrtf(x)));
    }
    fprintf(stderr, "%d powers, worst %.5f ulp\n", checked, worst);
    cr_assert_gt(checked, 39000);
    cr_assert_lt(worst, 0.5001);
}

Test(array, power_over_layouts_and_types)
{
    ops_random r = {505};
    int64_t compared = 0;
    for (int n = 0; n < BOX_LAYOUTS * BOX_LAYOUTS * 9; n++) {
        size_t shape = (size_t)n % SHAPES;
        tpw_dtype from = floats[n % 3], to = floats[n / 3 % 3];
        box x = box_make(from, shape_dims[shape], shapes[shape], (box_layout)(n / 9 % BOX_LAYOUTS));
        box y = box_make(to, shape_dims[shape], shapes[shape], (box_layout)(n / 9 / BOX_LAYOUTS));
        const float exponent = n % 2 ? -0.5f : 3.0f;
        const tpw_power_args args = {x.a, exponent, y.a};
        box_fill_numbers(&x, &r);
        cr_assert_eq(exec->ops->power(exec, &args, NULL), TPW_OK);
        for (int64_t i = 0; i < box_count(&x); i++, compared++)
            cr_assert_eq(tpw_f32_bits(box_get(&y, i)),
                         tpw_f32_bits(box_rounded(to, power_of(box_get(&x, i), exponent))));
        cr_assert_eq(box_touched(&x) + box_touched(&y), 0);
        free(x.block);
        free(y.block);
    }
    cr_assert_gt(compared, 10000);
    float cell = 0;
    tpw_error err = {0};
    tpw_power_args a = {{&cell, TPW_BOOL, 0, {0}, {0}}, 1, {&cell, TPW_F32, 0, {0}, {0}}};
    REFUSED(power, a, TPW_ERR_UNSUPPORTED, "BOOL");
    a.x.dtype = TPW_F32, a.y.dims = 1, a.y.extent[0] = 1;
    REFUSED(power, a, TPW_ERR_ARGUMENT, "dims");
}

/* Inputs of these widths side by side, behind the leading extents of a shape. */
static int64_t check_concat(tpw_dtype dtype, int32_t dims, const int64_t *lead, const int64_t *width, int32_t count,
                            int layouts, ops_random *r)
{
    tpw_concat_args args = {.count = count};
    box x[TPW_CONCAT_MAX];
    int64_t extent[TPW_DIMS_MAX] = {0}, total = 0, compared = 0, rows = 1;
    for (int32_t d = 0; d < dims - 1; d++)
        rows *= extent[d] = lead[d];
    for (int32_t i = 0; i < count; i++) {
        extent[dims - 1] = width[i];
        x[i] = box_make(dtype, dims, extent, (box_layout)((layouts + i) % BOX_LAYOUTS));
        box_fill_bits(&x[i], r);
        args.x[i] = x[i].a;
        total += width[i];
    }
    extent[dims - 1] = total;
    box y = box_make(dtype, dims, extent, (box_layout)(layouts / BOX_LAYOUTS % BOX_LAYOUTS));
    args.y = y.a;
    tpw_error err = {0};
    cr_assert_eq(exec->ops->concat(exec, &args, &err), TPW_OK, "%s", err.text);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0, begin = 0; i < count; begin += width[i++])
            for (int64_t c = 0; c < width[i]; c++, compared++)
                cr_assert_eq(memcmp(box_at(&y, row * total + begin + c), box_at(&x[i], row * width[i] + c),
                                    tpw_dtype_size(dtype)),
                             0, "input %d row %d column %d", (int)i, (int)row, (int)c);
    cr_assert_eq(box_touched(&y), 0);
    for (int32_t i = 0; i < count; i++)
        free(x[i].block);
    free(y.block);
    return compared;
}

Test(array, concat_of_any_views)
{
    const int64_t lead[] = {3, 2, 2}, width[TPW_CONCAT_MAX] = {64, 32, 33, 1, 7, 0, 5, 2};
    ops_random r = {506};
    int64_t compared = 0;
    for (int layouts = 0; layouts < BOX_LAYOUTS * BOX_LAYOUTS; layouts++)
        for (int32_t count = 1; count <= TPW_CONCAT_MAX; count++)
            compared += check_concat((tpw_dtype)(layouts % TPW_DTYPE_COUNT), 1 + (layouts + count) % 4, lead, width,
                                     count, layouts, &r);
    fprintf(stderr, "%lld elements equal\n", (long long)compared);
    cr_assert_gt(compared, 25 * 8 * 64);
}

Test(array, concat_refuses)
{
    float x[8] = {0}, y[8] = {0};
    tpw_error err = {0};
    const tpw_concat_args good = {
        2, {{x, TPW_F32, 2, {2, 1}, {1, 1}}, {x, TPW_F32, 2, {2, 2}, {2, 1}}}, {y, TPW_F32, 2, {2, 3}, {3, 1}}};
    tpw_concat_args a = good;
    cr_assert_eq(exec->ops->concat(exec, &a, &err), TPW_OK, "%s", err.text);
    a = good, a.count = 0;
    REFUSED(concat, a, TPW_ERR_ARGUMENT, "0 inputs");
    a = good, a.count = 9;
    REFUSED(concat, a, TPW_ERR_ARGUMENT, "9 inputs");
    a = good, a.count = 1;
    REFUSED(concat, a, TPW_ERR_ARGUMENT, "add up");
    a = good, a.x[1].dtype = TPW_I32;
    REFUSED(concat, a, TPW_ERR_ARGUMENT, "I32");
    a = good, a.x[1].extent[0] = 1;
    REFUSED(concat, a, TPW_ERR_ARGUMENT, "input 1");
    a = good, a.x[0].dims = a.x[1].dims = a.y.dims = 0;
    REFUSED(concat, a, TPW_ERR_ARGUMENT, "no axis");
    a = good, a.x[0].data = NULL;
    REFUSED(concat, a, TPW_ERR_ARGUMENT, "NULL");
}
