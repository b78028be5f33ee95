/* GEMM against the written arithmetic of slices.h, by bits: real shapes, all types, row counts, instruction sets,
 * rank cuts. SPDX-License-Identifier: Apache-2.0 */
#include "ops_test.h"

/* One weight of the whole model and what it means in F32. Scales vary by block; block rows are named out of order. */
typedef struct whole {
    tpw_dtype dtype;
    int32_t rows;
    int32_t cols;
    void *data;
    float *value; /* [rows, cols] */
    float *scale; /* [blocks, blocks_k] */
    int32_t *scale_row;
    int32_t blocks_k;
} whole;

static float e4m3_value(uint8_t code)
{
    int e = code >> 3 & 15, m = code & 7;
    float v = e == 0 ? ldexpf((float)m, -9) : ldexpf((float)(8 + m), e - 10);
    return code & 0x80 ? -v : v;
}

static whole make_whole(tpw_dtype dtype, int32_t rows, int32_t cols, ops_random *r)
{
    size_t n = (size_t)rows * (size_t)cols;
    whole w = {.dtype = dtype, .rows = rows, .cols = cols, .blocks_k = (cols + 127) / 128};
    int32_t blocks = rows / 5 + 2;
    w.data = ops_alloc(n * tpw_dtype_size(dtype));
    w.value = ops_alloc(n * sizeof(float));
    w.scale = ops_alloc((size_t)blocks * (size_t)w.blocks_k * sizeof(float));
    w.scale_row = ops_alloc((size_t)rows * sizeof(int32_t));
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = ops_next(r);
        float v = ops_uniform(r);
        if (dtype == TPW_E4M3) {
            uint8_t code = (uint8_t)bits;
            code = (code & 0x7F) == 0x7F ? 0x80 : code;
            ((uint8_t *)w.data)[i] = code;
            w.value[i] = e4m3_value(code);
        } else if (dtype == TPW_BF16) {
            ((uint16_t *)w.data)[i] = tpw_bf16_from_f32(v);
            w.value[i] = tpw_bf16_to_f32(tpw_bf16_from_f32(v));
        } else {
            ((float *)w.data)[i] = w.value[i] = v;
        }
    }
    for (int32_t i = 0; i < blocks * w.blocks_k; i++)
        w.scale[i] = 0.001f + 0.0005f * ops_uniform(r);
    for (int32_t i = 0; i < rows; i++)
        w.scale_row[i] = (i * 7 + 3) % blocks;
    return w;
}

static void free_whole(whole *w)
{
    free(w->data);
    free(w->value);
    free(w->scale);
    free(w->scale_row);
}

/* The part of rank `rank` of `size`: its columns, contiguous, with its own columns of the scales. Free data and
 * scale. */
static tpw_weight cut(const whole *w, int rank, int size)
{
    int32_t cols = w->cols / size, col0 = rank * cols, blocks = w->rows / 5 + 2, first = col0 / 128;
    size_t bytes = tpw_dtype_size(w->dtype);
    tpw_weight part = {.dtype = w->dtype,
                       .rows = w->rows,
                       .cols = cols,
                       .col0 = col0,
                       .cols_global = w->cols,
                       .scale_row = w->scale_row,
                       .scale_cols = (col0 + cols + 127) / 128 - first};
    char *data = ops_alloc((size_t)w->rows * (size_t)cols * bytes);
    for (int32_t r = 0; r < w->rows; r++)
        memcpy(data + (size_t)r * (size_t)cols * bytes,
               (char *)w->data + ((size_t)r * (size_t)w->cols + (size_t)col0) * bytes, (size_t)cols * bytes);
    part.data = data;
    if (w->dtype != TPW_E4M3)
        return part;
    float *scale = ops_alloc((size_t)(blocks * part.scale_cols) * sizeof(float));
    for (int32_t b = 0; b < blocks; b++)
        for (int32_t c = 0; c < part.scale_cols; c++)
            scale[b * part.scale_cols + c] = w->scale[b * w->blocks_k + first + c];
    part.scale = scale;
    return part;
}

static void free_cut(tpw_weight *part)
{
    free((void *)part->data);
    free((void *)part->scale);
}

/* One slice: pieces end at multiples of 128 and at the slice's end; 16 lanes by column from the piece's begin. */
static float slice_sum(const whole *w, const float *x, int32_t n, int32_t begin, int32_t end)
{
    float sum = 0.0f;
    for (int32_t k = begin; k < end;) {
        float lane[16] = {0};
        int32_t stop = k - k % 128 + 128;
        stop = stop > end ? end : stop;
        int32_t count = (stop - k + 15) / 16 * 16;
        for (int32_t i = 0; i < count; i++) {
            bool in = k + i < stop;
            lane[i % 16] = fmaf(in ? x[k + i] : 0.0f,
                                in ? w->value[(size_t)n * (size_t)w->cols + (size_t)(k + i)] : 0.0f, lane[i % 16]);
        }
        for (int half = 8; half; half /= 2)
            for (int l = 0; l < half; l++)
                lane[l] += lane[l + half];
        sum = fmaf(lane[0], w->dtype == TPW_E4M3 ? w->scale[w->scale_row[n] * w->blocks_k + k / 128] : 1.0f, sum);
        k = stop;
    }
    return sum;
}

static float expected(const whole *w, const float *x, int32_t n, tpw_gemm_kind kind)
{
    if (kind == TPW_GEMM_COLUMN || w->cols % 8 != 0)
        return slice_sum(w, x, n, 0, w->cols);
    float s[8];
    int32_t len = w->cols / 8;
    for (int i = 0; i < 8; i++)
        s[i] = slice_sum(w, x, n, i * len, (i + 1) * len);
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static void run(const tpw_exec *exec, tpw_mat x, tpw_weight w, tpw_gemm_kind kind, tpw_mat y)
{
    tpw_error err = {0};
    tpw_gemm_args args = {.x = x, .w = w, .kind = kind, .y = y};
    cr_assert_eq(exec->ops->gemm(exec, &args, &err), TPW_OK, "%s", err.text);
}

typedef struct gemm_case {
    int32_t cols;
    int32_t rows;
    tpw_gemm_kind kind;
    tpw_dtype weight;
    tpw_dtype act;
    int32_t m_max;
} gemm_case;

/* All row counts up to m_max on all instruction sets, F32 and act outputs; returns outputs compared. */
static size_t check_case(const gemm_case *c, tpw_exec *const execs[OPS_ISAS])
{
    static const int32_t counts[] = {1, 2, 3, 5, 9, 17, 64};
    size_t compared = 0;
    ops_random r = {(uint64_t)c->cols * 31 + (uint64_t)c->rows};
    whole w = make_whole(c->weight, c->rows, c->cols, &r);
    tpw_weight part = cut(&w, 0, 1);
    tpw_mat x = ops_mat(c->act, c->m_max, c->cols, 11), want = ops_mat(TPW_F32, c->m_max, c->rows, 0);
    float *row = ops_alloc((size_t)c->cols * sizeof(float));
    ops_fill(&x, &r, 1.0f);
    for (int32_t m = 0; m < c->m_max; m++) {
        for (int32_t k = 0; k < c->cols; k++)
            row[k] = ops_get(&x, m, k);
        for (int32_t n = 0; n < c->rows; n++)
            ops_set(&want, m, n, expected(&w, row, n, c->kind));
    }
    for (int isa = 0; isa < OPS_ISAS; isa++)
        for (int i = 0; execs[isa] && i < 7 && counts[i] <= c->m_max; i++) {
            tpw_mat some = x, y = ops_mat(i % 3 == 2 ? TPW_BF16 : TPW_F32, counts[i], c->rows, 5);
            some.rows = counts[i];
            run(execs[isa], some, part, c->kind, y);
            for (int32_t m = 0; m < y.rows; m++)
                for (int32_t n = 0; n < y.cols; n++, compared++) {
                    float e = ops_get(&want, m, n);
                    e = y.dtype == TPW_BF16 ? tpw_bf16_to_f32(tpw_bf16_from_f32(e)) : e;
                    cr_assert_eq(tpw_f32_bits(ops_get(&y, m, n)), tpw_f32_bits(e),
                                 "%s K %d N %d M %d type %s: (%d, %d) %a, not %a", ops_isa_names[isa], (int)c->cols,
                                 (int)c->rows, (int)y.rows, tpw_dtype_name(c->weight), (int)m, (int)n,
                                 (double)ops_get(&y, m, n), (double)e);
                }
            cr_assert_eq(ops_padding_touched(&y), 0);
            free(y.data);
        }
    free(row);
    free(x.data);
    free(want.data);
    free_cut(&part);
    free_whole(&w);
    return compared;
}

static void check_cases(const gemm_case *cases, size_t count)
{
    tpw_exec *execs[OPS_ISAS];
    size_t compared = 0;
    for (int isa = 0; isa < OPS_ISAS; isa++)
        execs[isa] = ops_exec(isa);
    for (size_t i = 0; i < count; i++) {
        size_t n = check_case(&cases[i], execs);
        cr_assert_gt(n, 0);
        compared += n;
    }
    fprintf(stderr, "%zu cases, %zu outputs equal\n", count, compared);
    for (int isa = 0; isa < OPS_ISAS; isa++)
        tpw_host_destroy(execs[isa]);
}

#define COL TPW_GEMM_COLUMN
#define ROW TPW_GEMM_ROW

/* Weights of the small trained model: projections, a and b, feed-forward, output heads; large N cut to 100. */
Test(gemm, pocket_shapes)
{
    const gemm_case cases[] = {
        {256, 100, COL, TPW_E4M3, TPW_BF16, 17}, {256, 100, COL, TPW_E4M3, TPW_F32, 9},
        {256, 8, COL, TPW_BF16, TPW_BF16, 64},   {256, 8, COL, TPW_F32, TPW_F32, 64},
        {1024, 64, ROW, TPW_E4M3, TPW_BF16, 9},  {768, 64, ROW, TPW_E4M3, TPW_BF16, 17},
        {768, 31, ROW, TPW_E4M3, TPW_F32, 9},    {256, 101, COL, TPW_BF16, TPW_BF16, 9},
        {512, 48, COL, TPW_BF16, TPW_BF16, 9},   {1024, 23, ROW, TPW_BF16, TPW_F32, 9},
    };
    check_cases(cases, sizeof cases / sizeof *cases);
}

/* Nothing divides evenly: K = 160 and 352 (slices of 20 and 44), 8 not dividing K, tails shorter than 16. */
Test(gemm, odd_shapes)
{
    const gemm_case cases[] = {
        {160, 101, COL, TPW_BF16, TPW_BF16, 17}, {160, 101, COL, TPW_F32, TPW_F32, 17},
        {160, 12, COL, TPW_BF16, TPW_F32, 64},   {160, 64, COL, TPW_E4M3, TPW_BF16, 9},
        {352, 40, ROW, TPW_BF16, TPW_F32, 9},    {352, 40, ROW, TPW_E4M3, TPW_BF16, 17},
        {768, 40, ROW, TPW_F32, TPW_BF16, 9},    {256, 40, ROW, TPW_BF16, TPW_BF16, 9},
        {1, 1, COL, TPW_F32, TPW_F32, 3},        {8, 2, ROW, TPW_E4M3, TPW_F32, 3},
        {127, 25, COL, TPW_E4M3, TPW_F32, 9},    {129, 25, COL, TPW_E4M3, TPW_BF16, 9},
        {1003, 7, ROW, TPW_BF16, TPW_F32, 17},   {136, 49, ROW, TPW_E4M3, TPW_F32, 64},
        {1031, 26, COL, TPW_F32, TPW_F32, 5},
    };
    check_cases(cases, sizeof cases / sizeof *cases);
}

/* K of the 27B model with few outputs: hidden 5120, mixer output 6144, feed-forward 17408. */
Test(gemm, large_k)
{
    const gemm_case cases[] = {
        {5120, 24, COL, TPW_E4M3, TPW_BF16, 17}, {5120, 12, COL, TPW_BF16, TPW_BF16, 17},
        {5120, 5, COL, TPW_F32, TPW_F32, 9},     {5120, 40, COL, TPW_E4M3, TPW_F32, 5},
        {6144, 25, ROW, TPW_E4M3, TPW_BF16, 17}, {6144, 7, ROW, TPW_BF16, TPW_F32, 9},
        {17408, 26, ROW, TPW_E4M3, TPW_BF16, 9}, {17408, 7, ROW, TPW_F32, TPW_F32, 5},
        {17408, 3, ROW, TPW_BF16, TPW_BF16, 17},
    };
    check_cases(cases, sizeof cases / sizeof *cases);
}

/* Row r of any M is the row alone. */
Test(gemm, row_does_not_depend_on_the_row_count)
{
    enum { K = 320, N = 29, M = 256 };
    ops_random r = {77};
    const tpw_dtype types[] = {TPW_E4M3, TPW_BF16, TPW_F32};
    tpw_mat x = ops_mat(TPW_BF16, M, K, 0), alone = ops_mat(TPW_F32, M, N, 0), y = ops_mat(TPW_F32, M, N, 3);
    ops_fill(&x, &r, 1.0f);
    for (int t = 0; t < 3; t++) {
        whole w = make_whole(types[t], N, K, &r);
        tpw_weight part = cut(&w, 0, 1);
        for (int isa = 0; isa < OPS_ISAS; isa++) {
            tpw_exec *exec = ops_exec(isa);
            if (!exec)
                continue;
            for (int m = 0; m < M; m++) {
                tpw_mat x1 = x, y1 = alone;
                x1.rows = y1.rows = 1;
                x1.data = (uint16_t *)x.data + m * x.stride;
                y1.data = (float *)alone.data + m * alone.stride;
                run(exec, x1, part, ROW, y1);
            }
            for (int m = 1; m <= M; m += isa == 0 ? 85 : m < 70 ? 1 : 31) {
                tpw_mat some = x, out = y;
                some.rows = out.rows = m;
                ops_poison(&y);
                run(exec, some, part, ROW, out);
                cr_assert_eq(ops_diff("rows together", &out, 0, &alone, 0, m), 0, "M %d", m);
            }
            tpw_host_destroy(exec);
        }
        free_cut(&part);
        free_whole(&w);
    }
    free(x.data);
    free(alone.data);
    free(y.data);
}

/* Partial sums of 2, 4, 8 ranks, joined by the same tree, are one rank's bits; so cuts inside a block of 128 too. */
Test(gemm, ranks_are_subtrees)
{
    const int32_t shapes[][2] = {{768, 40}, {352, 30}, {1024, 7}, {6144, 9}, {17408, 6}, {160, 9}, {8, 2}};
    const tpw_dtype types[] = {TPW_E4M3, TPW_BF16, TPW_F32};
    tpw_exec *exec = NULL;
    int compared = 0;
    cr_assert_eq(tpw_host_create("auto", &exec, NULL), TPW_OK);
    for (int s = 0; s < 7 * 3; s++) {
        enum { M = 5 };
        int32_t K = shapes[s / 3][0], N = shapes[s / 3][1];
        ops_random r = {(uint64_t)s};
        whole w = make_whole(types[s % 3], N, K, &r);
        tpw_weight all = cut(&w, 0, 1);
        tpw_mat x = ops_mat(TPW_BF16, M, K, 0), one = ops_mat(TPW_F32, M, N, 0), y[8];
        ops_fill(&x, &r, 1.0f);
        run(exec, x, all, ROW, one);
        for (int size = 2; size <= 8; size *= 2) {
            for (int rank = 0; rank < size; rank++) {
                tpw_weight part = cut(&w, rank, size);
                tpw_mat local = x;
                local.cols = part.cols;
                local.data = (uint16_t *)x.data + part.col0;
                y[rank] = ops_mat(TPW_F32, M, N, 0);
                run(exec, local, part, ROW, y[rank]);
                free_cut(&part);
            }
            for (int step = 1; step < size; step *= 2)
                for (int rank = 0; rank < size; rank += 2 * step)
                    for (int i = 0; i < M * N; i++)
                        ((float *)y[rank].data)[i] += ((float *)y[rank + step].data)[i];
            cr_assert_eq(ops_diff("ranks", &y[0], 0, &one, 0, M), 0, "K %d, %d ranks", (int)K, size);
            compared++;
            for (int rank = 0; rank < size; rank++)
                free(y[rank].data);
        }
        free(x.data);
        free(one.data);
        free_cut(&all);
        free_whole(&w);
    }
    cr_assert_eq(compared, 63);
    tpw_host_destroy(exec);
}

/* Slices that are not joined: by their tree they give the joined result, and add_norm in parts gives what add_norm of the
 * joined sum does. Also where rows of x are cut into blocks. */
static int check_parts(const tpw_exec *exec, const whole *w, int32_t M, int rank, int size, ops_random *r)
{
    const int32_t N = w->rows, slices = tpw_slices_global(ROW, w->cols) / size;
    tpw_weight part = cut(w, rank, size);
    tpw_mat x = ops_mat(TPW_BF16, M, part.cols, 3), one = ops_mat(TPW_F32, M, N, 0);
    tpw_mat y = ops_mat(TPW_F32, slices * M, N, 0), padded = ops_mat(TPW_F32, slices * M, N, 5);
    tpw_mat h[2] = {ops_mat(TPW_BF16, M, N, 0), ops_mat(TPW_BF16, M, N, 0)};
    float *weight = ops_alloc((size_t)N * sizeof(float));
    ops_fill(&x, r, 1.0f);
    ops_fill(&h[0], r, 1.0f);
    memcpy(h[1].data, h[0].data, (size_t)M * (size_t)N * 2);
    memset(weight, 0, (size_t)N * sizeof(float));
    run(exec, x, part, ROW, one);
    tpw_error err = {0};
    tpw_gemm_args args = {.x = x, .w = part, .kind = ROW, .y = y, .parts = slices};
    cr_assert_eq(exec->ops->gemm(exec, &args, &err), TPW_OK, "%s", err.text);
    args.y = padded;
    cr_assert_eq(exec->ops->gemm(exec, &args, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(ops_diff("padded parts", &padded, 0, &y, 0, slices * M) + ops_padding_touched(&padded), 0);
    for (int i = 0; i < 2; i++) {
        const tpw_add_norm_args norm = {
            .h = h[i], .sum = (i == 0 ? one : y).data, .parts = i == 0 ? 0 : slices, .weight = weight, .eps = 1e-6f};
        cr_assert_eq(exec->ops->add_norm(exec, &norm, &err), TPW_OK, "%s", err.text);
    }
    cr_assert_eq(ops_diff("add_norm of parts", &h[1], 0, &h[0], 0, M), 0);
    for (int32_t step = 1; step < slices; step *= 2)
        for (int32_t s = 0; s < slices; s += 2 * step)
            for (int32_t i = 0; i < M * N; i++)
                ((float *)y.data)[s * M * N + i] += ((float *)y.data)[(s + step) * M * N + i];
    cr_assert_eq(ops_diff("joined parts", &y, 0, &one, 0, M), 0);
    void *blocks[] = {x.data, one.data, y.data, padded.data, h[0].data, h[1].data, weight};
    for (int i = 0; i < 7; i++)
        free(blocks[i]);
    free_cut(&part);
    return 1;
}

Test(gemm, parts_are_the_slices)
{
    const int32_t shapes[][3] = {{768, 40, 5}, {352, 30, 1}, {1024, 25, 70}, {17408, 6, 2}, {8, 2, 3}, {1003, 7, 4}};
    const tpw_dtype types[] = {TPW_E4M3, TPW_BF16, TPW_F32};
    int compared = 0, wanted = 0;
    for (int isa = 0; isa < OPS_ISAS; isa++) {
        tpw_exec *exec = ops_exec(isa);
        if (!exec)
            continue;
        for (int s = 0; s < 6; s++) {
            ops_random r = {(uint64_t)(s + 50)};
            whole w = make_whole(types[s % 3], shapes[s][1], shapes[s][0], &r);
            for (int size = 1; size <= tpw_slices_global(ROW, w.cols); size *= 2)
                compared += check_parts(exec, &w, shapes[s][2], size - 1, size, &r);
            free_whole(&w);
        }
        wanted += 5 * 4 + 1; /* 8 does not divide the last K */
        tpw_host_destroy(exec);
    }
    cr_assert_geq(compared, 21);
    cr_assert_eq(compared, wanted);
}

/* The error against double stays within what F32 sums of this length may have. */
Test(gemm, accuracy_against_double)
{
    enum { K = 17408, N = 6, M = 3 };
    tpw_exec *exec = NULL;
    ops_random r = {91};
    double worst = 0;
    cr_assert_eq(tpw_host_create("auto", &exec, NULL), TPW_OK);
    whole w = make_whole(TPW_E4M3, N, K, &r);
    tpw_weight part = cut(&w, 0, 1);
    tpw_mat x = ops_mat(TPW_BF16, M, K, 0), y = ops_mat(TPW_F32, M, N, 0);
    ops_fill(&x, &r, 1.0f);
    run(exec, x, part, ROW, y);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                double term =
                    (double)ops_get(&x, m, k) * w.value[n * K + k] * w.scale[w.scale_row[n] * w.blocks_k + k / 128];
                sum += term;
                size += fabs(term);
            }
            double error = fabs(ops_get(&y, m, n) - sum) / size;
            worst = error > worst ? error : worst;
        }
    fprintf(stderr, "worst error %.3g of the sum of magnitudes\n", worst);
    cr_assert_lt(worst, 1e-7);
    free(x.data);
    free(y.data);
    free_cut(&part);
    free_whole(&w);
    tpw_host_destroy(exec);
}

/* More rows than the scratch holds at once at the longest K: the op cuts its work and keeps the bits. */
Test(gemm, long_k_fits_the_fixed_scratch)
{
    enum { K = 65528, N = 2, M = 40 };
    tpw_exec *exec = NULL;
    ops_random r = {92};
    cr_assert_eq(tpw_host_create("auto", &exec, NULL), TPW_OK);
    whole w = make_whole(TPW_BF16, N, K, &r);
    tpw_weight part = cut(&w, 0, 1);
    tpw_mat x = ops_mat(TPW_BF16, M, K, 0), y = ops_mat(TPW_F32, M, N, 0), alone = ops_mat(TPW_F32, 1, N, 0);
    ops_fill(&x, &r, 1.0f);
    run(exec, x, part, ROW, y);
    for (int m = 0; m < M; m++) {
        tpw_mat x1 = x;
        x1.rows = 1;
        x1.data = (uint16_t *)x.data + (size_t)m * K;
        run(exec, x1, part, ROW, alone);
        cr_assert_eq(ops_diff("long row", &y, m, &alone, 0, 1), 0, "row %d", m);
    }
    free(x.data);
    free(y.data);
    free(alone.data);
    free_cut(&part);
    free_whole(&w);
    tpw_host_destroy(exec);
}

Test(gemm, zero_rows_and_wrong_arguments)
{
    static float cells[1024], scale[8];
    static int32_t scale_row[8];
    tpw_exec *exec = ops_exec(0);
    tpw_error err = {0};
    const tpw_gemm_args good = {
        .x = {cells, TPW_F32, 1, 96, 96},
        .w = {.data = cells, .dtype = TPW_F32, .rows = 2, .cols = 96, .cols_global = 768},
        .kind = ROW,
        .y = {cells + 900, TPW_F32, 1, 2, 2},
    };
    tpw_gemm_args a = good;
    cr_assert_eq(exec->ops->gemm(exec, &a, &err), TPW_OK, "%s", err.text);
    a.x.rows = a.y.rows = 0;
    cr_assert_eq(exec->ops->gemm(exec, &a, &err), TPW_OK, "%s", err.text);
    a = good, a.w.rows = a.y.cols = 0;
    cr_assert_eq(exec->ops->gemm(exec, &a, &err), TPW_OK, "%s", err.text);
#define REFUSED(code, word)                                    \
    cr_assert_eq(exec->ops->gemm(exec, &a, &err), code);       \
    cr_assert(strstr(err.text, word) != NULL, "%s", err.text); \
    cr_assert_eq(err.status, code)
    a = good, a.w.col0 = 48;
    REFUSED(TPW_ERR_ARGUMENT, "subtree"); /* begins inside a slice */
    a = good, a.w.cols = a.x.cols = 100;
    REFUSED(TPW_ERR_ARGUMENT, "subtree"); /* ends inside a slice */
    a = good, a.w.cols = a.x.cols = 288;
    REFUSED(TPW_ERR_ARGUMENT, "subtree"); /* three slices */
    a = good, a.w.cols = a.x.cols = 192, a.w.col0 = 96;
    REFUSED(TPW_ERR_ARGUMENT, "subtree"); /* slices 1 and 2 are no subtree */
    a = good, a.w.col0 = 720;
    REFUSED(TPW_ERR_ARGUMENT, "columns"); /* past the end */
    a = good, a.kind = COL;
    REFUSED(TPW_ERR_ARGUMENT, "subtree"); /* a column-parallel K is whole */
    a = good, a.w.cols_global = 100, a.w.cols = a.x.cols = 50;
    REFUSED(TPW_ERR_ARGUMENT, "subtree"); /* 8 does not divide K: one rank only */
    a = good, a.x.cols = 95;
    REFUSED(TPW_ERR_ARGUMENT, "95");
    a = good, a.w.dtype = TPW_E4M3, a.w.scale_row = scale_row;
    REFUSED(TPW_ERR_ARGUMENT, "scales");
    a = good, a.w.dtype = TPW_E4M3, a.w.scale = scale;
    REFUSED(TPW_ERR_ARGUMENT, "scales");
    a = good, a.w.dtype = TPW_F16;
    REFUSED(TPW_ERR_UNSUPPORTED, "F16");
    a = good, a.x.dtype = TPW_E4M3;
    REFUSED(TPW_ERR_UNSUPPORTED, "E4M3");
    a = good, a.y.dtype = TPW_I32;
    REFUSED(TPW_ERR_UNSUPPORTED, "I32");
    a = good, a.parts = 1;
    cr_assert_eq(exec->ops->gemm(exec, &a, &err), TPW_OK, "%s", err.text);
    a.y.dtype = TPW_BF16;
    REFUSED(TPW_ERR_ARGUMENT, "parts"); /* rounded parts are of no use */
    a = good, a.parts = 2, a.y.rows = 2;
    REFUSED(TPW_ERR_ARGUMENT, "parts"); /* one slice lies here */
    a = good, a.parts = 2;
    REFUSED(TPW_ERR_ARGUMENT, "into y"); /* no rows for the second part */
    a = good, a.parts = -1;
    REFUSED(TPW_ERR_ARGUMENT, "parts");
    tpw_host_destroy(exec);
}
