/* Attention against double precision and the host: seed shapes, decode to 32,768 keys, groups, pages and borders, small weights, in
 * BF16 and F16, with tables of 32 and 64 bits. SPDX-License-Identifier: Apache-2.0 */
#include "attention_rig.h"

TestSuite(gpu_attention, .timeout = 250);

/* The seed system's prefill shapes without MLA. */
static const shape seed_shapes[] = {{1, 1, 1, 128, 8},   {1, 4, 4, 128, 8},  {2, 8, 8, 128, 16}, {4, 16, 16, 128, 8},
                                    {8, 64, 64, 128, 8}, {1, 24, 4, 256, 8}, {1, 12, 2, 256, 8}, {1, 6, 1, 256, 8},
                                    {2, 12, 2, 256, 64}, {1, 24, 4, 256, 64}};
#define SEED_SHAPES (int)(sizeof seed_shapes / sizeof *seed_shapes)

static void exact_row(const tape *t, int pos, int head, double *out)
{
    const shape s = t->s;
    const int kh = head / (s.hq / s.hkv);
    const int64_t q = ((int64_t)pos * s.hq + head) * s.dim;
    double *p = gpu_host_alloc(sizeof *p * (size_t)(pos + 1)), most = -INFINITY, sum = 0;
    for (int j = 0; j <= pos; j++) {
        p[j] = 0;
        for (int d = 0; d < s.dim; d++)
            p[j] += get(t->q, q + d) * get(t->k, ((int64_t)j * s.hkv + kh) * s.dim + d);
        p[j] /= sqrt(s.dim);
        most = p[j] > most ? p[j] : most;
    }
    for (int d = 0; d < s.dim; d++)
        out[d] = 0;
    for (int j = 0; j <= pos; j++) {
        const double w = exp(p[j] - most);
        sum += w;
        for (int d = 0; d < s.dim; d++)
            out[d] += w * get(t->v, ((int64_t)j * s.hkv + kh) * s.dim + d);
    }
    for (int d = 0; d < s.dim; d++)
        out[d] = out[d] / sum / (1 + exp(-get(t->qg, 2 * q + s.dim + d)));
    free(p);
}

/* |v| <= 1.1. Rounding p to BF16 moves a mean of v by at most 2^-9 of that, rounding the result as much again; all that is in FP32
 * adds less than a twentieth. F16 has three bits more, and weights below 2^-14 lose up to 2^-25 each. */
static double bound(int keys)
{
    return 1.1 * (under_test.act == TPW_F16 ? 0x1p-11 * 1.05 + keys * 0x1p-25 : 0x1p-8 * 1.05);
}

static void expect_exact(const part *p, int row, int head, const char *what)
{
    const shape s = p->t->s;
    double want[256];
    exact_row(p->t, p->pos + row, head, want);
    for (int d = 0; d < s.dim; d++) {
        const double got = get(p->out, ((int64_t)row * s.hq + head) * s.dim + d);
        cr_assert(fabs(got - want[d]) <= bound(p->pos + row + 1), "%s: position %d head %d dim %d: %g, exact %g", what,
                  p->pos + row, head, d, got, want[d]);
    }
    elements += (size_t)s.dim;
}

/* The host op over the same caches: every element within the two bounds. */
static void expect_host(rig *g, const part *parts, int n, const char *what)
{
    const tpw_attention_args args = {&g->batch, g->q.h, g->qg.h, g->s.hq, g->h, g->out.h};
    GPU_OK(host->ops->attention(host, &args, err));
    for (int i = 0; i < n; i++)
        for (int r = 0; r < parts[i].rows; r++)
            for (int c = 0; c < g->out.h.cols; c++) {
                const double got = get(parts[i].out, (int64_t)r * g->out.h.cols + c),
                             want = get(g->out.h.data, (g->segments[i].row0 + r) * g->out.h.stride + c);
                cr_assert(fabs(got - want) <= 2 * bound(parts[i].pos + r + 1),
                          "%s: part %d row %d column %d: %g, the host has %g", what, i, r, c, got, want);
            }
    elements += (size_t)g->batch.rows * (size_t)g->out.h.cols;
}

/* One seed shape: the first sequence takes `rows` rows after `history`, the others fewer at other places. */
static void check_seed_shape(shape s, int rows, int history, int pad)
{
    char what[128];
    tape t[PARTS_MAX];
    part parts[PARTS_MAX] = {0};
    int positions = 0, total = 0;
    snprintf(what, sizeof what, "%d x %d/%d heads of %d, pages of %d, %d rows after %d, %s, tables of %d bits",
             s.sequences, s.hq, s.hkv, s.dim, s.page_size, rows, history, tpw_dtype_name(under_test.act),
             under_test.wide ? 64 : 32);
    for (int i = 0; i < s.sequences; i++) {
        const int mine = i == 0 ? rows : (rows * i * 5) % 37 + 1, before = i == 0 ? history : (history * i) % 531;
        t[i] = tape_make(s, before + mine, i % 2 ? 1.0f : 3.0f, (uint64_t)(rows * 100 + i));
        parts[i] = (part){&t[i], before, mine, gpu_host_alloc((size_t)mine * (size_t)(s.hq * s.dim) * 2)};
        positions += before + mine + s.page_size, total += mine;
    }
    rig g = rig_make(s, positions, total, pad);
    for (int i = 0; i < s.sequences; i++) {
        give_pages(&g, &t[i], (uint64_t)(i + rows));
        cache_fill(&g, &t[i], t[i].n);
    }
    cache_send(&g);
    step_attend(&g, parts, s.sequences);
    if (total <= 300)
        expect_host(&g, parts, s.sequences, what);
    for (int i = 0; i < s.sequences; i++)
        for (int n = 0; n < 5; n++)
            expect_exact(&parts[i], (parts[i].rows - 1) * n / 4, (i + n * 7) % s.hq, what);
    cases++;
    for (int i = 0; i < s.sequences; i++) {
        tape_free(&t[i]);
        free(parts[i].out);
    }
    rig_free(&g);
}

static void check_seed_shapes(int first, int last)
{
    for (int i = first; i < last; i++) {
        const int page = seed_shapes[i].page_size, lengths[] = {1, page - 1, page, page + 1, 137, 1023, 1024};
        for (int n = 0; n < 7; n++)
            for (int history = 0; history < 2; history++)
                check_seed_shape(seed_shapes[i], lengths[n], history ? 301 + 5 * page : 0, n % 3 == 1 ? 3 : 8);
    }
}

static void check_seed(int first, int last, flavour f)
{
    open_counted();
    under_test = f;
    check_seed_shapes(first, last);
    close_counted(70, 3000000);
}

/* One key in 256 has weight 1 and value 0, all others weights of some 2^-14.5 and value 1: in F16 those are subnormal, and together
 * (before the gate) some 17 times the bound. In BF16 they are not: there the test is of the weights' sum. */
static void check_small_weights(int dim, int rows, int history, flavour f)
{
    under_test = f;
    const shape s = {1, 2, 1, dim, 16};
    tape t = tape_make(s, history + rows, 1.0f, 5);
    const double gap = 14.5 * log(2.0) / sqrt(dim); /* of a product; q is 1 everywhere */
    for (int pos = 0; pos < t.n; pos++)
        for (int d = 0; d < dim; d++) {
            const bool large = pos % 256 == 7;
            for (int h = 0; h < s.hq; h++)
                t.q[((int64_t)pos * s.hq + h) * dim + d] = act_of(1.0f);
            t.k[(int64_t)pos * dim + d] = act_of(large ? (float)gap : 0.0f);
            t.v[(int64_t)pos * dim + d] = act_of(large ? 0.0f : 1.0f);
        }
    part p = {&t, history, rows, gpu_host_alloc((size_t)rows * (size_t)(s.hq * dim) * 2)};
    rig g = rig_make(s, t.n, rows, 8);
    give_pages(&g, &t, 3);
    cache_fill(&g, &t, t.n);
    cache_send(&g);
    step_attend(&g, &p, 1);
    expect_host(&g, &p, 1, "small weights");
    for (int h = 0; h < s.hq; h++) {
        expect_exact(&p, rows - 1, h, "small weights");
        const float gate = (float)get(t.qg, 2 * ((int64_t)(t.n - 1) * s.hq + h) * dim + dim);
        const double got = get(p.out, ((int64_t)(rows - 1) * s.hq + h) * dim) * (1 + exp(-(double)gate));
        cr_assert(got > 0.007 && got < 0.015, "%s, %d rows after %d: %g", tpw_dtype_name(f.act), rows, history, got);
    }
    cases++;
    rig_free(&g);
    free(p.out);
    tape_free(&t);
}

Test(gpu_attention, weights_that_are_subnormal_count)
{
    open_counted();
    for (int f = 0; f < FLAVOURS; f++)
        for (int dim = 64; dim <= 256; dim *= 2) {
            check_small_weights(dim, 1, 255, flavours[f]);
            check_small_weights(dim, 1, 2047, flavours[f]);
            check_small_weights(dim, 9, 503, flavours[f]);
            check_small_weights(dim, 200, 568, flavours[f]);
        }
    close_counted(48, 100000);
}

Test(gpu_attention, seed_prefill_shapes_of_128_bf16_i32)
{
    check_seed(0, 5, (flavour){TPW_BF16, false});
}

Test(gpu_attention, seed_prefill_shapes_of_128_bf16_i64)
{
    check_seed(0, 5, (flavour){TPW_BF16, true});
}

Test(gpu_attention, seed_prefill_shapes_of_128_f16_i32)
{
    check_seed(0, 5, (flavour){TPW_F16, false});
}

Test(gpu_attention, seed_prefill_shapes_of_128_f16_i64)
{
    check_seed(0, 5, (flavour){TPW_F16, true});
}

Test(gpu_attention, seed_prefill_shapes_of_256_bf16_i32)
{
    check_seed(5, SEED_SHAPES, (flavour){TPW_BF16, false});
}

Test(gpu_attention, seed_prefill_shapes_of_256_bf16_i64)
{
    check_seed(5, SEED_SHAPES, (flavour){TPW_BF16, true});
}

Test(gpu_attention, seed_prefill_shapes_of_256_f16_i32)
{
    check_seed(5, SEED_SHAPES, (flavour){TPW_F16, false});
}

Test(gpu_attention, seed_prefill_shapes_of_256_f16_i64)
{
    check_seed(5, SEED_SHAPES, (flavour){TPW_F16, true});
}

/* The seed's decode shapes: one row after many. */
Test(gpu_attention, seed_decode_shapes)
{
    static const shape shapes[] = {{1, 1, 1, 128, 16},  {4, 40, 40, 128, 16}, {6, 40, 40, 128, 16},
                                   {3, 8, 8, 128, 16},  {3, 8, 8, 64, 16},    {8, 64, 8, 128, 16},
                                   {1, 24, 4, 256, 16}, {1, 12, 2, 256, 16},  {1, 6, 1, 256, 16}};
    static const int keys[] = {15, 1024, 1024, 1024, 1024, 2048, 32, 32, 32};
    open_counted();
    for (int i = 0; i < FLAVOURS * 9; i++)
        for (int n = 0; n < 3; n++) {
            under_test = flavours[i / 9];
            check_seed_shape(shapes[i % 9], 1, keys[i % 9] - 1 - n * keys[i % 9] / 3, 8);
        }
    close_counted(FLAVOURS * 27, FLAVOURS * 100000);
}

/* Every grouping, head size and page size; rows on both sides of each border of tiles and splits. */
Test(gpu_attention, groups_pages_and_borders)
{
    static const int groups[] = {6, 4, 3, 2, 1}, rows[] = {1, 2, 3, 5, 9, 16, 17, 33}, at[] = {0, 62, 255, 256, 511};
    open_counted();
    for (int n = 0; n < 5 * 3 * 9; n++) {
        const int page = 1 << n % 9;
        under_test = flavours[n / 7 % FLAVOURS];
        check_seed_shape((shape){1 + n % 2, 2 * groups[n % 5], 2, 64 << n / 5 % 3, page}, rows[n % 8], at[n / 3 % 5],
                         n % 4);
    }
    close_counted(135, 500000);
}

static void check_decode(void)
{
    const shape s = {1, 12, 2, 256, 64};
    const int keys[] = {32768, 32767, 32001, 16385, 8192, 4097, 2048}, most = 32768;
    tape t = tape_make(s, most, 2.0f, 5);
    rig g = rig_make(s, most, 64, 8);
    uint16_t *out = gpu_host_alloc(64 * 12 * 256 * 2), *other = gpu_host_alloc(64 * 12 * 256 * 2);
    const size_t row = 12 * 256;
    give_pages(&g, &t, 6);
    cache_fill(&g, &t, most);
    cache_send(&g);
    for (int i = 0; i < 7; i++) {
        const part one = {&t, keys[i] - 1, 1, out}, verify = {&t, keys[i] - 9, 9, other},
                   walk = {&t, keys[i] - 64, 64, other};
        step_attend(&g, &one, 1);
        expect_exact(&one, 0, i, "decode");
        expect_exact(&one, 0, 11 - i, "decode");
        step_attend(&g, &verify, 1);
        cr_assert(memcmp(out, other + 8 * row, row * 2) == 0, "the last of nine rows has other bits at %d", keys[i]);
        step_attend(&g, &walk, 1);
        cr_assert(memcmp(out, other + 63 * row, row * 2) == 0, "the last of 64 rows has other bits at %d", keys[i]);
        cases++;
        elements += 2 * row;
    }
    free(out), free(other);
    tape_free(&t);
    rig_free(&g);
}

/* Each length as decode row, as the last of nine and as the last of 64. */
Test(gpu_attention, decode_to_32768_keys)
{
    open_counted();
    for (int i = 0; i < FLAVOURS; i++) {
        under_test = flavours[i];
        check_decode();
    }
    close_counted(FLAVOURS * 7, FLAVOURS * 7 * 2 * 12 * 256);
}
