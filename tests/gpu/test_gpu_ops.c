/* Every small op of the CUDA backend against the host backend, bit for bit: shapes, strides, types, special values.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"
#include "kernels/cuda/dummy.h"
#include "kernels/cuda/exec.h"
#include "model/dummy.h"
#include "twin.h"

TestSuite(gpu_ops, .timeout = 250);

static const int32_t row_counts[] = {1, 2, 7, 33};
static const int32_t widths[] = {1, 31, 128, 1000, 5120, 8704};
static const tpw_dtype acts[] = {TPW_F32, TPW_BF16};
static const tpw_dtype floats[] = {TPW_F32, TPW_BF16, TPW_F16};

#define ROW_COUNTS (int)(sizeof row_counts / sizeof *row_counts)
#define WIDTHS     (int)(sizeof widths / sizeof *widths)

Test(gpu_ops, embed)
{
    open_both();
    for (int n = 0; n < ROW_COUNTS * WIDTHS * 4 * 3; n++) {
        const int32_t rows = row_counts[n % ROW_COUNTS], cols = widths[n / ROW_COUNTS % WIDTHS], kind = n / 24 % 4;
        const int32_t odd = n / 96; /* 0: aligned; 1: rows apart; 2: nothing aligned */
        ops_random r = {(uint64_t)n};
        twin_mat table = twin_mat_make(acts[kind % 2], 40, cols, odd == 1 ? 8 : odd * 3, odd == 2);
        twin_mat out = twin_mat_make(acts[kind / 2], rows, cols, odd == 1 ? 16 : odd, odd == 2);
        int32_t id[33];
        twin_mat_bits(&table, &r);
        for (int32_t i = 0; i < 33; i++)
            id[i] = (int32_t)(ops_next(&r) % 60) + 90; /* the table holds 100..139 */
        id[0] = n % 2 ? -5 : 139;
        twin ids = twin_words(id, sizeof id);
        twin_mat_send(&table);
        twin_mat_send(&out);
        const tpw_embed_args h = {id, table.h, 100, out.h}, d = {(int32_t *)ids.device, table.d, 100, out.d};
        BOTH(embed, h, d);
        twin_end(&out.block, "embed");
        twin_end(&table.block, "embed, the table");
        twin_end(&ids, "embed, ids");
    }
    close_both(100 << 20);
}

/* One add_norm in both places. `parts` < 0: no sum; y_type past the acts: no norm. */
static void check_norm(int32_t rows, int32_t cols, int32_t parts, tpw_dtype act, int y_type, int odd)
{
    ops_random r = {(uint64_t)(rows * 100 + cols)};
    twin_mat h = twin_mat_make(act, rows, cols, odd * 3, odd), y = twin_mat_make(acts[y_type % 2], rows, cols, odd, 0);
    const int32_t slices = parts > 1 ? parts : 1;
    twin_mat sum = twin_mat_make(TPW_F32, slices * rows, cols, 0, odd),
             weight = twin_mat_make(TPW_F32, 1, cols, 0, odd);
    ops_fill(&h.h, &r, 2.0f);
    ops_fill(&sum.h, &r, 0.75f);
    ops_fill(&weight.h, &r, 0.5f);
    twin_mat *all[] = {&h, &y, &sum, &weight};
    for (int i = 0; i < 4; i++)
        twin_mat_send(all[i]);
    tpw_add_norm_args ha = {h.h, sum.h.data, parts, weight.h.data, 1e-6f, y.h};
    tpw_add_norm_args da = {h.d, sum.d.data, parts, weight.d.data, 1e-6f, y.d};
    if (parts < 0)
        ha.sum = da.sum = NULL, ha.parts = da.parts = 0;
    if (y_type > 1)
        ha.y.data = da.y.data = NULL;
    BOTH(add_norm, ha, da);
    char what[96];
    snprintf(what, sizeof what, "add_norm [%d, %d] %s, %d parts, y %d, odd %d", (int)rows, (int)cols,
             tpw_dtype_name(act), (int)parts, y_type, odd);
    for (int i = 0; i < 4; i++)
        twin_end(&all[i]->block, what);
}

static void check_norms(int skip)
{
    static const int32_t parts[] = {-1, 0, 1, 2, 4, 8};
    for (int n = 0; n < ROW_COUNTS * WIDTHS * 6 * 2 * 3; n += skip) {
        const int odd = n / ROW_COUNTS % 2;
        check_norm(row_counts[n % ROW_COUNTS], widths[n / ROW_COUNTS % WIDTHS], parts[n / 24 % 6], acts[n / 144 % 2],
                   n / 288, odd);
        if (widths[n / ROW_COUNTS % WIDTHS] == 5120)
            check_norm(row_counts[n % ROW_COUNTS], 5120, parts[n / 24 % 6], acts[n / 144 % 2], n / 288, !odd);
    }
}

Test(gpu_ops, add_norm)
{
    open_both();
    check_norms(1);
    close_both(500 << 20);
}

/* Rows past what one CTA's registers hold; so many rows that no clusters are used. */
Test(gpu_ops, add_norm_of_long_rows_and_many)
{
    open_both();
    const int32_t shapes[][2] = {{1, 20000}, {3, 70001}, {40, 12288}, {300, 5120}, {257, 333}, {1, 1000000}};
    for (int i = 0; i < 6; i++)
        for (int n = 0; n < 4; n++)
            check_norm(shapes[i][0], shapes[i][1], n % 2 ? 4 : 0, acts[n / 2], n / 2, n % 2);
    close_both(50 << 20);
}

/* Without clusters, and without programmatic launch. */
Test(gpu_ops, add_norm_on_other_paths)
{
    open_both_with((tpw_cuda_options){.portable = true});
    check_norms(5);
    close_both(50 << 20);
    open_both_with((tpw_cuda_options){.no_pdl = true});
    check_norms(5);
    close_both(50 << 20);
}

Test(gpu_ops, swiglu)
{
    open_both();
    for (int n = 0; n < ROW_COUNTS * WIDTHS * 2 * 3; n++) {
        const int32_t rows = row_counts[n % ROW_COUNTS], cols = widths[n / ROW_COUNTS % WIDTHS];
        const int odd = n / 48;
        ops_random r = {(uint64_t)n};
        twin_mat gate = twin_mat_make(TPW_F32, rows, cols, odd * 4, odd == 2),
                 up = twin_mat_make(TPW_F32, rows, cols, odd, 0);
        twin_mat y = twin_mat_make(acts[n / 24 % 2], rows, cols, odd == 1 ? 4 : odd, odd == 2);
        ops_fill(&up.h, &r, 1.0f);
        ops_fill(&gate.h, &r, 8.0f);
        for (int32_t m = 0; m < rows; m++)
            for (int32_t c = 0; c < cols; c++) {
                float any = tpw_f32_from_bits((uint32_t)ops_next(&r)), u = ops_get(&up.h, m, c);
                if (c % 3 == 0 && any == any) /* every size, infinities too */
                    ops_set(&gate.h, m, c, any);
                ops_set(&up.h, m, c, u == 0 ? 0.5f : u); /* no infinity times zero */
            }
        twin_mat *all[] = {&gate, &up, &y};
        for (int i = 0; i < 3; i++)
            twin_mat_send(all[i]);
        const tpw_swiglu_args h = {gate.h, up.h, y.h}, d = {gate.d, up.d, y.d};
        BOTH(swiglu, h, d);
        for (int i = 0; i < 3; i++)
            twin_end(&all[i]->block, "swiglu");
    }
    close_both(40 << 20);
}

Test(gpu_ops, gather)
{
    open_both();
    for (int n = 0; n < ROW_COUNTS * WIDTHS * TPW_DTYPE_COUNT; n++) {
        const int32_t rows = row_counts[n % ROW_COUNTS], cols = widths[n / ROW_COUNTS % WIDTHS];
        const tpw_dtype dtype = (tpw_dtype)(n / 24);
        ops_random r = {(uint64_t)n};
        twin_mat x = twin_mat_make(dtype, 9, cols, n % 3, n % 2), y = twin_mat_make(dtype, rows, cols, n % 5, n % 2);
        int32_t row[33];
        twin_mat_bits(&x, &r);
        for (int i = 0; i < 33; i++)
            row[i] = (int32_t)(ops_next(&r) % 9);
        twin list = twin_words(row, sizeof row);
        twin_mat_send(&x);
        twin_mat_send(&y);
        const tpw_gather_args h = {x.h, row, y.h, NULL, 0}, d = {x.d, (int32_t *)list.device, y.d, NULL, 0};
        BOTH(gather, h, d);
        twin_end(&y.block, "gather");
        twin_end(&x.block, "gather, x");
        twin_end(&list, "gather, rows");
    }
    close_both(10 << 20);
}

/* A row that is not there: the device cannot say so, hence gives NaN. */
Test(gpu_ops, gather_of_no_row)
{
    open_both();
    const int32_t row[3] = {9, -1, 1};
    uint16_t x[18] = {0}, y[27];
    twin list = twin_words(row, sizeof row), from = twin_words(x, sizeof x), to = twin_make(sizeof y);
    memset(to.host, 0, sizeof y);
    twin_send(&to);
    const tpw_gather_args args = {
        {from.device, TPW_BF16, 2, 9, 9}, (int32_t *)list.device, {to.device, TPW_BF16, 3, 9, 9}, NULL, 0};
    GPU_OK(gpu->ops->gather(gpu, &args, err));
    memset(to.host, 0xFF, sizeof y / 3 * 2);
    twin_end(&to, "gather of no row");
    twin_end(&list, "rows");
    twin_end(&from, "x");
    close_both(sizeof y);
}

/* One row of logits: few different values, so that most tie; numbers of every kind; or none. */
static void fill_logits(tpw_mat *m, int32_t row, int kind, ops_random *r)
{
    static const float special[] = {-INFINITY, NAN, -0.0f, 0.0f, -1.0f};
    for (int32_t c = 0; c < m->cols; c++) {
        uint64_t bits = ops_next(r);
        float x = kind == 0   ? (float)(bits % 50) - 25.0f
                  : kind == 1 ? tpw_f32_from_bits((uint32_t)bits)
                  : kind == 2 ? special[bits % 5]
                  : kind == 3 ? NAN
                  : kind == 4 ? special[bits % 2]
                              : -1.0f - (float)(bits % 1000);
        ops_set(m, row, c, x);
    }
}

static void check_argmax(int32_t rows, int32_t cols, int odd, int kinds)
{
    ops_random r = {(uint64_t)(rows * 7 + cols)};
    twin_mat logits = twin_mat_make(TPW_F32, rows, cols, odd, odd);
    for (int32_t m = 0; m < rows; m++)
        fill_logits(&logits.h, m, (kinds + m) % 6, &r);
    twin value = twin_make((size_t)rows * 4 + 4), id = twin_make((size_t)rows * 4 + 4);
    twin_mat_send(&logits);
    twin_send(&value);
    twin_send(&id);
    const tpw_argmax_args h = {logits.h, 1000, (float *)value.host, (int32_t *)id.host};
    const tpw_argmax_args d = {logits.d, 1000, (float *)value.device, (int32_t *)id.device};
    BOTH(argmax, h, d);
    for (int32_t m = 0; m < rows; m++) {
        const int32_t at = ((const int32_t *)(void *)id.host)[m];
        cr_assert(at == -1 || (at >= 1000 && at < 1000 + cols));
        cr_assert((kinds + m) % 6 != 3 || at == -1);
    }
    twin_end(&id, "arg-max, id");
    twin_end(&value, "arg-max, value");
    twin_end(&logits.block, "arg-max, logits");
}

Test(gpu_ops, argmax)
{
    open_both();
    const int32_t cols[] = {1, 7, 255, 2048, 2049, 5000, 124160, 248320};
    for (int n = 0; n < 8 * ROW_COUNTS * 2; n++)
        check_argmax(row_counts[n / 8 % ROW_COUNTS], cols[n % 8], n / 32, n);
    for (int n = 0; n < 6 * 4; n++)
        check_argmax(1, cols[4 + n % 4], 0, n / 4);
    /* little scratch spreads a row over fewer CTAs */
    tpw_cuda *inner = tpw_cuda_of(gpu);
    const size_t whole = inner->scratch_bytes;
    for (inner->scratch_bytes = 8; inner->scratch_bytes < 4096; inner->scratch_bytes *= 3)
        check_argmax(7, 30000, 1, 1);
    inner->scratch_bytes = whole;
    close_both(50 << 20);
}

Test(gpu_ops, digest)
{
    open_both();
    const uint64_t index0[] = {0, 5, (1ull << 32) - 3, (1ull << 40) + 1, UINT64_MAX - 10};
    int compared = 0;
    for (int n = 0; n < ROW_COUNTS * WIDTHS * TPW_DTYPE_COUNT * 3; n++, compared++) {
        const int32_t rows = row_counts[n % ROW_COUNTS], cols = widths[n / ROW_COUNTS % WIDTHS];
        ops_random r = {(uint64_t)n};
        twin_mat x = twin_mat_make((tpw_dtype)(n / 24 % TPW_DTYPE_COUNT), rows, cols, n % 3, n / 3 % 3);
        twin_mat_bits(&x, &r);
        twin_mat_send(&x);
        const uint64_t before[2] = {ops_next(&r), 77}, key = ops_next(&r);
        const uint64_t step = n % 4 == 0 ? (uint64_t)cols : n % 4 == 1 ? (uint64_t)x.h.stride : ops_next(&r);
        twin sum = twin_words(before, sizeof before);
        const tpw_digest_args h = {x.h, key, index0[n % 5], step, (uint64_t *)(void *)sum.host};
        const tpw_digest_args d = {x.d, key, index0[n % 5], step, (uint64_t *)(void *)sum.device};
        BOTH(digest, h, d);
        cr_assert_neq(((uint64_t *)(void *)sum.host)[0], before[0]);
        twin_end(&sum, "digest");
        twin_end(&x.block, "digest, x");
    }
    cr_assert_eq(compared, 504);
    close_both(30 << 20);
}

Test(gpu_ops, dummy_weights)
{
    open_both();
    const tpw_dummy_recipe recipes[] = {{0x752905CBE04F6E55ull, 5120, TPW_E4M3, 0, 0, 0},
                                        {0x123456789ABCDEFull, 5120, TPW_BF16, -128, 257, -8},
                                        {0xFEDCBA9876543210ull, 5120, TPW_F32, 786432, 524288, -20}};
    const int64_t blocks[][4] = {{0, 3, 0, 5120}, {7, 2, 1, 5000},      {1ll << 33, 5, 17, 33},
                                 {1, 1, 5119, 1}, {1000, 64, 128, 128}, {0, 4, 16, 640}};
    for (int n = 0; n < 3 * 6 * 3; n++) {
        const tpw_dummy_recipe *recipe = &recipes[n % 3];
        const int64_t *b = blocks[n / 3 % 6];
        twin_mat out = twin_mat_make(recipe->dtype, (int32_t)b[1], (int32_t)b[3], n / 18 * 5, n / 18);
        twin_mat_send(&out);
        tpw_dummy_fill(recipe, b[0], b[1], b[2], b[3], out.h.data, out.h.stride);
        GPU_OK(tpw_cuda_dummy_fill(gpu, recipe, b[0], b[1], b[2], b[3], out.d.data, out.d.stride, err));
        GPU_OK(tpw_cuda_sync(gpu, err));
        size_t written = 0; /* no element of a dummy tensor is all ones */
        for (size_t i = 0; i < out.block.bytes; i++)
            written += out.block.host[i] != OPS_POISON;
        cr_assert_geq(written, (size_t)(b[1] * b[3]));
        twin_end(&out.block, "dummy weights");
    }
    tpw_dummy_recipe bad = recipes[0];
    bad.dtype = TPW_I32;
    cr_assert_eq(tpw_cuda_dummy_fill(gpu, &bad, 0, 1, 0, 1, NULL, 1, NULL), TPW_ERR_UNSUPPORTED);
    cr_assert_eq(tpw_cuda_dummy_fill(gpu, &recipes[0], 0, 1, 0, 1, NULL, 1, NULL), TPW_ERR_ARGUMENT);
    close_both(700000);
}

/* Casts one box to another in both places, frees the input's twin and compares the output. */
static void check_cast(box *x, tpw_dtype to, box_layout layout, const char *what)
{
    tpw_array dx, dy;
    box y = box_make(to, x->a.dims, x->a.extent, layout);
    twin from = twin_of_box(x, &dx), out = twin_of_box(&y, &dy);
    const tpw_cast_args h = {x->a, y.a}, d = {dx, dy};
    BOTH(cast, h, d);
    twin_end(&out, what);
    twin_end(&from, what); /* frees x's block */
}

static const int64_t shapes[][TPW_DIMS_MAX] = {{37}, {5, 33}, {3, 1, 64}, {2, 3, 5, 7}, {1}, {4, 257}, {2, 2, 301}};
static const int32_t shape_dims[] = {1, 2, 3, 4, 1, 2, 3};

#define SHAPES (int)(sizeof shape_dims / sizeof *shape_dims)

Test(gpu_ops, cast_of_every_pair_and_layout)
{
    open_both();
    ops_random r = {601};
    const int64_t many = 100003;
    for (int n = 0; n < TPW_DTYPE_COUNT * TPW_DTYPE_COUNT * (BOX_LAYOUTS * BOX_LAYOUTS + 1); n++) {
        const tpw_dtype from = (tpw_dtype)(n % TPW_DTYPE_COUNT),
                        to = (tpw_dtype)(n / TPW_DTYPE_COUNT % TPW_DTYPE_COUNT);
        const int layouts = n / 49, shape = n % SHAPES;
        const bool large = layouts == BOX_LAYOUTS * BOX_LAYOUTS;
        box x = large ? box_make(from, 1, &many, BOX_PLAIN)
                      : box_make(from, shape_dims[shape], shapes[shape], (box_layout)(layouts % BOX_LAYOUTS));
        box_fill_bits(&x, &r);
        check_cast(&x, to, large ? BOX_PLAIN : (box_layout)(layouts / BOX_LAYOUTS), "cast");
    }
    close_both(10 << 20);
}

/* Every code of the narrow types to every type. */
Test(gpu_ops, cast_of_every_code)
{
    open_both();
    const tpw_dtype narrow[] = {TPW_E4M3, TPW_BOOL, TPW_F16, TPW_BF16};
    for (int n = 0; n < 4 * TPW_DTYPE_COUNT * 2; n++) {
        const tpw_dtype from = narrow[n % 4];
        const int64_t codes = tpw_dtype_size(from) == 1 ? 256 : 65536;
        box x = box_make(from, 1, &codes, n / 28 ? BOX_STRIDED : BOX_PLAIN);
        for (int64_t i = 0; i < codes; i++)
            memcpy(box_at(&x, i), &i, tpw_dtype_size(from));
        check_cast(&x, (tpw_dtype)(n / 4 % TPW_DTYPE_COUNT), BOX_PLAIN, "cast of every code");
    }
    close_both(1 << 20);
}

/* F32 around every place where a target rounds, overflows or saturates, and every 4099th F32. */
Test(gpu_ops, cast_of_borders)
{
    open_both();
    const float border[] = {0x1p-6f,   0x1p-9f, 0x1p-10f, 0x1.8p-9f, 416,         432,         440,      447,
                            448,       464,     480,      512,       0x1p-14f,    0x1p-24f,    0x1p-25f, 0x1p-149f,
                            0x1p-126f, 65504,   65520,    65536,     0x1.fep127f, 0x1.ffp127f, 0x1p31f,  0x1p63f,
                            0x1p62f,   0x1p30f, 0.5f,     1,         2,           INFINITY};
    enum { BORDERS = sizeof border / sizeof *border, NEAR = 9 };
    const int64_t count = BORDERS * NEAR * 2 + 1047808;
    for (int to = 0; to < TPW_DTYPE_COUNT; to++) {
        box x = box_make(TPW_F32, 1, &count, BOX_PLAIN);
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)(i * 4099);
            if (i < BORDERS * NEAR * 2)
                bits = (tpw_f32_bits(border[i / NEAR / 2]) + (uint32_t)(i / 2 % NEAR) - NEAR / 2) ^ (uint32_t)(i % 2)
                                                                                                        << 31;
            memcpy(box_at(&x, i), &bits, sizeof bits);
        }
        check_cast(&x, (tpw_dtype)to, BOX_PLAIN, tpw_dtype_name((tpw_dtype)to));
    }
    close_both(20 << 20);
}

static void check_sum(box *x, uint32_t axes, bool keep, tpw_dtype to, box_layout layout)
{
    int64_t extent[TPW_DIMS_MAX];
    int32_t dims = 0;
    for (int32_t d = 0; d < x->a.dims; d++)
        if (!(axes >> d & 1) || keep)
            extent[dims++] = axes >> d & 1 ? 1 : x->a.extent[d];
    tpw_array dx, dy;
    box y = box_make(to, dims, extent, layout);
    twin from = twin_of_box(x, &dx), out = twin_of_box(&y, &dy);
    const tpw_sum_args h = {x->a, axes, keep, y.a}, d = {dx, axes, keep, dy};
    BOTH(sum, h, d);
    char what[64];
    snprintf(what, sizeof what, "sum of %s over %x into %s", tpw_dtype_name(x->a.dtype), (unsigned)axes,
             tpw_dtype_name(to));
    twin_end(&out, what);
    twin_end(&from, what);
}

Test(gpu_ops, sum_over_every_subset_of_axes)
{
    open_both();
    ops_random r = {602};
    int sums = 0;
    for (int shape = 0; shape < SHAPES; shape++)
        for (uint32_t axes = 0; axes < 1u << shape_dims[shape]; axes++)
            for (int layouts = 0; layouts < BOX_LAYOUTS * BOX_LAYOUTS; layouts += 2, sums++) {
                box x =
                    box_make(floats[sums % 3], shape_dims[shape], shapes[shape], (box_layout)(layouts % BOX_LAYOUTS));
                box_fill_numbers(&x, &r);
                check_sum(&x, axes, layouts / 2 % 2, floats[sums / 3 % 3], (box_layout)(layouts / BOX_LAYOUTS));
            }
    cr_assert_eq(sums, 13 * (2 + 4 + 8 + 16 + 2 + 4 + 8));
    close_both(1 << 20);
}

static void check_long_sums(void)
{
    static const int64_t extents[][2] = {{1, 1000003}, {3, 70000}, {70000, 3}, {2000, 300}, {300, 2000}, {1, 257}};
    ops_random r = {603};
    for (int n = 0; n < 6 * 3 * 3; n++) {
        box x = box_make(floats[n / 6 % 3], 2, extents[n % 6], n % 2 ? BOX_PADDED : BOX_PLAIN);
        box_fill_numbers(&x, &r);
        check_sum(&x, (uint32_t)(n / 18) + 1, false, n % 3 == 1 ? TPW_BF16 : TPW_F32, BOX_PLAIN);
    }
}

Test(gpu_ops, sum_of_many_terms)
{
    open_both();
    check_long_sums();
    close_both(20 << 20);
}

/* Little scratch cuts a long sum into more launches; the bits stay. */
Test(gpu_ops, sum_with_little_scratch)
{
    open_both();
    tpw_cuda *inner = tpw_cuda_of(gpu);
    const size_t whole = inner->scratch_bytes;
    inner->scratch_bytes = 40 * 1000;
    check_long_sums();
    const int64_t long_one = 300001;
    ops_random r = {604};
    for (inner->scratch_bytes = 8; inner->scratch_bytes <= 800; inner->scratch_bytes *= 10) {
        box x = box_make(TPW_F32, 1, &long_one, BOX_PLAIN);
        box_fill_numbers(&x, &r);
        check_sum(&x, 1, false, TPW_F32, BOX_PLAIN);
    }
    inner->scratch_bytes = whole;
    close_both(20 << 20);
}

static void check_power(box *x, float exponent, tpw_dtype to, box_layout layout)
{
    tpw_array dx, dy;
    box y = box_make(to, x->a.dims, x->a.extent, layout);
    twin from = twin_of_box(x, &dx), out = twin_of_box(&y, &dy);
    const tpw_power_args h = {x->a, exponent, y.a}, d = {dx, exponent, dy};
    BOTH(power, h, d);
    char what[64];
    snprintf(what, sizeof what, "%s ^ %a to %s", tpw_dtype_name(x->a.dtype), (double)exponent, tpw_dtype_name(to));
    twin_end(&out, what);
    twin_end(&from, what);
}

/* Any bits, NaN too: results that are no numbers are the same ones. */
Test(gpu_ops, power)
{
    open_both();
    const float exponent[] = {-0.5f, 0,     1,        2,         0.5f, -1,       3,        -2,        0.3333333f,
                              7.25f, -1.7f, INFINITY, -INFINITY, NAN,  16777215, 16777216, -16777215, 1e30f};
    enum { EXPONENTS = sizeof exponent / sizeof *exponent };
    ops_random r = {605};
    const int64_t count = 20000;
    for (int n = 0; n < EXPONENTS * 9; n++) {
        box x = box_make(floats[n / EXPONENTS % 3], 1, &count, BOX_PLAIN);
        box_fill_bits(&x, &r);
        const float special[] = {0, -0.0f, 1, -1, INFINITY, -INFINITY, NAN, 0x1p-14f, 2, -2, 0.5f};
        for (int i = 0; i < 11; i++)
            box_set(&x, i, special[i]);
        check_power(&x, exponent[n % EXPONENTS], floats[n / EXPONENTS / 3], BOX_PLAIN);
    }
    for (int n = 0; n < BOX_LAYOUTS * BOX_LAYOUTS * 3; n++) {
        box x = box_make(floats[n % 3], shape_dims[n % SHAPES], shapes[n % SHAPES], (box_layout)(n / 3 % BOX_LAYOUTS));
        box_fill_numbers(&x, &r);
        check_power(&x, -0.5f, floats[n / 5 % 3], (box_layout)(n / 3 / BOX_LAYOUTS));
    }
    close_both(10 << 20);
}

static void check_concat(tpw_dtype dtype, int32_t dims, const int64_t *width, int32_t count, int layouts, ops_random *r)
{
    static const int64_t lead[] = {3, 2, 2};
    tpw_concat_args h = {.count = count}, d = {.count = count};
    twin in[TPW_CONCAT_MAX];
    int64_t extent[TPW_DIMS_MAX] = {0}, total = 0;
    for (int32_t i = 0; i < dims - 1; i++)
        extent[i] = lead[i];
    for (int32_t i = 0; i < count; i++, total += width[i - 1]) {
        extent[dims - 1] = width[i];
        box x = box_make(dtype, dims, extent, layouts < 0 ? BOX_PLAIN : (box_layout)((layouts + i) % BOX_LAYOUTS));
        box_fill_bits(&x, r);
        h.x[i] = x.a;
        in[i] = twin_of_box(&x, &d.x[i]);
    }
    extent[dims - 1] = total;
    box y = box_make(dtype, dims, extent, layouts < 0 ? BOX_PLAIN : (box_layout)(layouts / BOX_LAYOUTS));
    h.y = y.a;
    twin out = twin_of_box(&y, &d.y);
    BOTH(concat, h, d);
    twin_end(&out, "concat");
    for (int32_t i = 0; i < count; i++)
        twin_end(&in[i], "concat, an input");
}

Test(gpu_ops, concat)
{
    open_both();
    const int64_t odd[TPW_CONCAT_MAX] = {64, 32, 33, 1, 7, 0, 5, 2}, even[] = {64, 32, 96, 128, 16, 4, 2, 1024};
    ops_random r = {606};
    for (int layouts = -1; layouts < BOX_LAYOUTS * BOX_LAYOUTS; layouts++)
        for (int32_t count = 1; count <= TPW_CONCAT_MAX; count++)
            for (int n = 0; n < 2; n++)
                check_concat((tpw_dtype)((layouts + 1 + count) % TPW_DTYPE_COUNT), 1 + (layouts + 1 + count) % 4,
                             n ? even : odd, count, layouts, &r);
    close_both(1 << 20);
}

/* Ops one after the other without a wait between them: each must see what the one before wrote. */
Test(gpu_ops, a_chain_of_ops)
{
    enum { M = 2, H = 5120, ROUNDS = 60 };
    open_both();
    ops_random r = {607};
    twin_mat h = twin_mat_make(TPW_BF16, M, H, 0, 0), y = twin_mat_make(TPW_F32, M, H, 0, 0),
             sum = twin_mat_make(TPW_F32, M, H, 0, 0), weight = twin_mat_make(TPW_F32, 1, H, 0, 0);
    ops_fill(&h.h, &r, 1.0f);
    ops_fill(&sum.h, &r, 1.0f);
    ops_fill(&weight.h, &r, 0.5f);
    twin_mat *all[] = {&h, &y, &sum, &weight};
    for (int i = 0; i < 4; i++)
        twin_mat_send(all[i]);
    for (int place = 0; place < 2; place++)
        for (int round = 0; round < ROUNDS; round++) {
            const tpw_exec *exec = place ? gpu : host;
            const tpw_mat mh = place ? h.d : h.h, my = place ? y.d : y.h, ms = place ? sum.d : sum.h;
            const tpw_array flat_h = {mh.data, TPW_BF16, 1, {M * H}, {1}}, flat_s = {ms.data, TPW_F32, 1, {M * H}, {1}};
            const tpw_add_norm_args norm = {mh, ms.data, 1, (place ? weight.d : weight.h).data, 1e-6f, my};
            const tpw_swiglu_args swiglu = {my, my, ms};
            const tpw_power_args power = {flat_s, 1.0f, flat_s};
            const tpw_cast_args cast = {flat_s, flat_h};
            GPU_OK(exec->ops->add_norm(exec, &norm, err));
            GPU_OK(exec->ops->swiglu(exec, &swiglu, err));
            GPU_OK(exec->ops->power(exec, &power, err));
            if (round % 7 == 3)
                GPU_OK(exec->ops->cast(exec, &cast, err));
        }
    GPU_OK(tpw_cuda_sync(gpu, err));
    for (int i = 0; i < 4; i++)
        twin_end(&all[i]->block, "a chain of ops");
    close_both(M * H * 10);
}

#define REFUSED(op, args, code, word)                     \
    cr_assert_eq(gpu->ops->op(gpu, &(args), &err), code); \
    cr_assert(strstr(err.text, word) != NULL, "%s", err.text)

Test(gpu_ops, refusals_name_what_is_wrong)
{
    open_both();
    tpw_error err = {0};
    void *cells = gpu_alloc(gpu, 4096);
    const tpw_mat f32 = {cells, TPW_F32, 1, 4, 4}, f16 = {cells, TPW_F16, 1, 4, 4};
    const tpw_array one = {cells, TPW_F32, 1, {4}, {1}}, i32 = {cells, TPW_I32, 1, {4}, {1}};
    const tpw_embed_args embed = {cells, f16, 0, f32};
    REFUSED(embed, embed, TPW_ERR_UNSUPPORTED, "F16");
    tpw_add_norm_args norm = {f16, NULL, 0, cells, 1e-6f, f32};
    REFUSED(add_norm, norm, TPW_ERR_UNSUPPORTED, "F16");
    norm = (tpw_add_norm_args){f32, cells, 3, cells, 1e-6f, f32};
    REFUSED(add_norm, norm, TPW_ERR_ARGUMENT, "3 parts");
    const tpw_swiglu_args swiglu = {f32, f16, f32};
    REFUSED(swiglu, swiglu, TPW_ERR_UNSUPPORTED, "F16");
    const tpw_gather_args gather = {f32, cells, f16, NULL, 0};
    REFUSED(gather, gather, TPW_ERR_ARGUMENT, "F16");
    const tpw_argmax_args argmax = {f16, 0, cells, cells};
    REFUSED(argmax, argmax, TPW_ERR_UNSUPPORTED, "F16");
    tpw_digest_args digest = {f32, 0, 0, 0, cells};
    digest.x.data = (char *)cells + 1;
    REFUSED(digest, digest, TPW_ERR_ARGUMENT, "multiple of 4");
    tpw_cast_args cast = {one, i32};
    cast.y.extent[0] = 3;
    REFUSED(cast, cast, TPW_ERR_ARGUMENT, "axis 0");
    const tpw_sum_args sum = {i32, 1, true, one};
    REFUSED(sum, sum, TPW_ERR_UNSUPPORTED, "I32");
    const tpw_power_args power = {one, 1, i32};
    REFUSED(power, power, TPW_ERR_UNSUPPORTED, "I32");
    const tpw_concat_args concat = {2, {one, i32}, one};
    REFUSED(concat, concat, TPW_ERR_ARGUMENT, "I32");
    gpu_free(gpu, cells);
    close_both(0);
}
