/* The bits of attention against themselves: cuts, neighbours, passes, tiles, pages that are missing; attn_prepare against the host.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_rig.h"

TestSuite(gpu_attention_bits, .timeout = 250);

/* How a sequence is cut and what stands beside it. */
typedef struct cutting {
    int rows; /* a step */
    int page_size;
    int others; /* further sequences in each step */
    int pad;
    uint64_t shuffle;
} cutting;

/* K and V of the tape's positions as the caches have them, in order of position. */
static void cache_read(rig *g, const tape *t, int n, uint16_t *to)
{
    const size_t row = (size_t)g->s.dim;
    gpu_download(gpu, g->h.k, g->d.k, g->kv_bytes);
    gpu_download(gpu, g->h.v, g->d.v, g->kv_bytes);
    for (int pos = 0; pos < n; pos++)
        for (int h = 0; h < g->s.hkv; h++, to += 2 * row) {
            memcpy(to, (uint16_t *)g->h.k + cell(g, t, pos, h), row * 2);
            memcpy(to + row, (uint16_t *)g->h.v + cell(g, t, pos, h), row * 2);
        }
}

#define OTHER_ROWS 41

/* Runs a whole sequence of n positions through the layer; `out` gets its rows, `kv` what it left in the pages. */
static void run_sequence(tape *t, cutting c, uint16_t *out, uint16_t *kv)
{
    const shape s = t->s;
    const size_t width = (size_t)(s.hq * s.dim);
    tape other[PARTS_MAX];
    uint16_t *scrap = gpu_host_alloc(OTHER_ROWS * width * 2);
    t->s.page_size = c.page_size;
    free(t->pages);
    t->pages = gpu_host_alloc(sizeof(int32_t) * (size_t)(t->n / c.page_size + 1));
    rig g = rig_make(t->s, t->n + c.others * (OTHER_ROWS + 256), c.rows + c.others * OTHER_ROWS, c.pad);
    rig_layer(&g, t->n + OTHER_ROWS);
    for (int i = 0; i < c.others; i++) {
        other[i] = tape_make(t->s, OTHER_ROWS, 2.0f, c.shuffle + (uint64_t)i);
        give_pages(&g, &other[i], c.shuffle);
    }
    give_pages(&g, t, c.shuffle);
    for (int pos = 0, rows, n; pos < t->n; pos += rows) {
        part parts[PARTS_MAX];
        rows = c.rows < t->n - pos ? c.rows : t->n - pos;
        for (n = 0; n < c.others / 2; n++)
            parts[n] = (part){&other[n], 0, n % 2 ? OTHER_ROWS : 1 + pos % 9, scrap};
        parts[n++] = (part){t, pos, rows, out + (size_t)pos * width};
        for (; n <= c.others; n++)
            parts[n] = (part){&other[n - 1], 0, n % 2 ? 1 + pos % 23 : OTHER_ROWS, scrap};
        step_layer(&g, parts, n);
    }
    cache_read(&g, t, t->n, kv);
    for (int i = 0; i < c.others; i++)
        tape_free(&other[i]);
    free(scrap);
    rig_free(&g);
}

/* Does the sequence again in another way; every output row and every K and V must have the bits of the first run. */
static void check_cut(tape *t, cutting c, const uint16_t *out, const uint16_t *kv)
{
    const size_t width = (size_t)(t->s.hq * t->s.dim), kv_width = (size_t)(2 * t->s.hkv * t->s.dim);
    const size_t outs = (size_t)t->n * width, kvs = (size_t)t->n * kv_width;
    uint16_t *o = gpu_host_alloc(outs * 2), *k = gpu_host_alloc(kvs * 2);
    run_sequence(t, c, o, k);
    for (int pos = 0; pos < t->n; pos++) {
        cr_assert(memcmp(o + (size_t)pos * width, out + (size_t)pos * width, width * 2) == 0,
                  "position %d has other bits in steps of %d, pages of %d, %d others", pos, c.rows, c.page_size,
                  c.others);
        cr_assert(memcmp(k + (size_t)pos * kv_width, kv + (size_t)pos * kv_width, kv_width * 2) == 0,
                  "K/V of position %d have other bits in steps of %d", pos, c.rows);
    }
    for (size_t i = 0; i < outs; i++)
        cr_assert((o[i] & 0x7FFF) < 0x7F80, "element %zu is no number", i);
    cases++;
    elements += outs + kvs;
    free(o), free(k);
}

#define CUT_LENGTH 1100

static void check_cuts(shape s, const cutting *cuts, int n)
{
    tape t = tape_make(s, CUT_LENGTH, 2.0f, (uint64_t)(s.dim + s.hq));
    uint16_t *out = gpu_host_alloc((size_t)t.n * (size_t)(s.hq * s.dim) * 2),
             *kv = gpu_host_alloc((size_t)t.n * (size_t)(2 * s.hkv * s.dim) * 2);
    run_sequence(&t, (cutting){1024, 64, 0, 8, 1}, out, kv);
    for (int i = 0; i < n; i++) {
        under_test.wide = i % 3 == 1; /* whatever the tables' width */
        check_cut(&t, cuts[i], out, kv);
    }
    under_test.wide = false;
    free(out), free(kv);
    tape_free(&t);
}

Test(gpu_attention_bits, a_token_has_one_set_of_bits)
{
    static const shape shapes[] = {{1, 12, 2, 256, 64}, {1, 6, 1, 256, 64}, {1, 8, 2, 128, 64},
                                   {1, 6, 2, 64, 64},   {1, 4, 2, 128, 64}, {1, 3, 3, 64, 64}};
    static const cutting cuts[] = {{1, 64, 0, 8, 2},  {7, 8, 0, 3, 3},     {64, 16, 0, 8, 4},  {1024, 256, 0, 0, 5},
                                   {9, 32, 3, 8, 6},  {1, 1, 5, 1, 7},     {17, 128, 4, 8, 8}, {1024, 4, 8, 8, 9},
                                   {16, 2, 0, 8, 10}, {100, 64, 2, 8, 11}, {257, 64, 1, 8, 12}};
    open_counted();
    for (int i = 0; i < 6; i++)
        check_cuts(shapes[i], cuts, 11);
    close_counted(66, 66 * CUT_LENGTH * 3 * 64);
}

/* Plain kernel boundaries, and the kernels for older GPUs where there are two: the bits of the first exec. */
Test(gpu_attention_bits, execs_of_other_options_have_the_same_bits)
{
    static const cutting cuts[] = {{9, 32, 3, 8, 6}, {64, 16, 0, 8, 4}};
    static const tpw_cuda_options options[] = {{.no_pdl = true}, {.portable = true}};
    open_counted();
    tape t = tape_make((shape){1, 12, 2, 256, 64}, 400, 2.0f, 31);
    uint16_t *out = gpu_host_alloc((size_t)t.n * 12 * 256 * 2), *kv = gpu_host_alloc((size_t)t.n * 2 * 2 * 256 * 2);
    run_sequence(&t, (cutting){1024, 64, 0, 8, 1}, out, kv);
    close_both(0);
    for (int i = 0; i < 2; i++) {
        open_both_with(options[i]);
        for (int n = 0; n < 2; n++)
            check_cut(&t, cuts[n], out, kv);
        close_both(0);
    }
    cr_assert_eq(cases, 4);
    cr_assert_eq(elements, (size_t)(4 * 400) * (12 + 2 * 2) * 256);
    free(out), free(kv);
    tape_free(&t);
}

/* Row j of a verify step, whatever drafts stand after it, is the token's decode row; after a rejection its K/V are written anew. */
Test(gpu_attention_bits, verify_rows_are_decode_rows)
{
    static const int at[] = {0, 57, 247, 250, 255, 256, 505, 1015};
    const shape s = {1, 12, 2, 256, 64};
    const size_t width = 12 * 256;
    open_counted();
    tape t = tape_make(s, 1024, 2.0f, 21), wrong = tape_make(s, 1024, 2.0f, 22);
    rig g = rig_make(s, 1024, 1024, 8);
    rig_layer(&g, 1024);
    give_pages(&g, &t, 3);
    memcpy(wrong.pages, t.pages, sizeof(int32_t) * 16);
    uint16_t *all = gpu_host_alloc(1024 * width * 2), *out = gpu_host_alloc(9 * width * 2);
    step_layer(&g, &(part){&t, 0, 1024, all}, 1);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 9; j++) {
            /* rows after j are drafts of another text */
            memcpy(wrong.qg + (size_t)at[i] * width * 2, t.qg + (size_t)at[i] * width * 2, (size_t)(j + 1) * width * 4);
            memcpy(wrong.k + (size_t)at[i] * 512, t.k + (size_t)at[i] * 512, (size_t)(j + 1) * 1024);
            memcpy(wrong.v + (size_t)at[i] * 512, t.v + (size_t)at[i] * 512, (size_t)(j + 1) * 1024);
            step_layer(&g, &(part){&wrong, at[i], 9, out}, 1);
            for (int r = 0; r <= j; r++)
                cr_assert(memcmp(out + (size_t)r * width, all + (size_t)(at[i] + r) * width, width * 2) == 0,
                          "row %d of a verify at %d with %d right", r, at[i], j);
            step_layer(&g, &(part){&t, at[i] + j, 1, out}, 1);
            cr_assert(memcmp(out, all + (size_t)(at[i] + j) * width, width * 2) == 0, "decode at %d", at[i] + j);
            cases++;
            elements += (size_t)(j + 2) * width;
            step_layer(&g, &(part){&t, at[i], 9, out}, 1); /* the right text again for what follows */
        }
    free(all), free(out);
    tape_free(&t), tape_free(&wrong);
    rig_free(&g);
    close_counted(72, 72 * 2 * width);
}

/* Passes over little scratch, other tiles, parts and stages: the bits stay. */
static void check_resources(void)
{
    const shape s = {4, 12, 2, 256, 64};
    static const int pos[] = {3000, 255, 1500, 0}, rows[] = {1, 4, 9, 40};
    const size_t width = 12 * 256;
    tpw_cuda *inner = tpw_cuda_of(gpu);
    const size_t scratch = inner->scratch_bytes, shared = inner->shared_bytes;
    const int32_t processors = inner->gpu.processors;
    tape t[4];
    part parts[4];
    uint16_t *first = gpu_host_alloc(54 * width * 2), *out = gpu_host_alloc(54 * width * 2);
    rig g = rig_make(s, 5000, 54, 8);
    for (int i = 0, row = 0; i < 4; row += rows[i++]) {
        t[i] = tape_make(s, pos[i] + rows[i], 2.0f, (uint64_t)i);
        give_pages(&g, &t[i], 9);
        cache_fill(&g, &t[i], t[i].n);
        parts[i] = (part){&t[i], pos[i], rows[i], out + (size_t)row * width};
    }
    cache_send(&g);
    step_attend(&g, parts, 4);
    memcpy(first, out, 54 * width * 2);
    for (int n = 0; n < 4 * 3 * 4; n++) {
        const size_t slot = (size_t)(14 * 12) * 258 * 4;
        inner->scratch_bytes = n % 4 == 0 ? scratch : slot * (size_t)(1 + n % 4);
        inner->gpu.processors = n / 4 % 3 == 0 ? 1 : n / 4 % 3 == 1 ? 132 : 100000;
        inner->shared_bytes = n / 12 == 0 ? shared : n / 12 == 1 ? 101376 : n / 12 == 2 ? 166912 : 90000;
        if (inner->shared_bytes > shared)
            inner->shared_bytes = shared;
        memset(out, 0, 54 * width * 2);
        step_attend(&g, parts, 4);
        cr_assert(memcmp(first, out, 54 * width * 2) == 0,
                  "other bits with %zu bytes of scratch, %d processors, %zu shared", inner->scratch_bytes,
                  inner->gpu.processors, inner->shared_bytes);
        cases++;
        elements += 54 * width;
    }
    inner->scratch_bytes = scratch, inner->gpu.processors = processors, inner->shared_bytes = shared;
    for (int i = 0; i < 4; i++)
        tape_free(&t[i]);
    free(first), free(out);
    rig_free(&g);
}

Test(gpu_attention_bits, resources_change_no_bit)
{
    open_counted();
    for (int i = 0; i < FLAVOURS; i += 2) {
        under_test = flavours[i];
        check_resources();
    }
    close_counted(2 * 48, 2 * 48 * 54 * 12 * 256);
}

/* A page that cannot be: the sequence's rows are no numbers, its neighbour's are untouched. */
static void check_missing_page(void)
{
    const shape s = {2, 4, 2, 64, 16};
    const size_t width = 4 * 64;
    tape a = tape_make(s, 300, 2.0f, 1), b = tape_make(s, 300, 2.0f, 2);
    rig g = rig_make(s, 700, 60, 8);
    uint16_t *out = gpu_host_alloc(60 * width * 2), *good = gpu_host_alloc(60 * width * 2);
    give_pages(&g, &a, 1), give_pages(&g, &b, 2);
    cache_fill(&g, &a, 300), cache_fill(&g, &b, 300);
    cache_send(&g);
    for (int rows = 1; rows <= 20; rows += 19) {
        const part parts[2] = {{&a, 280, rows, out}, {&b, 270, rows, out + 30 * width}};
        step_attend(&g, parts, 2);
        memcpy(good, out, 60 * width * 2);
        const int32_t page = a.pages[5], wrong[] = {0, -7, g.h.pages, INT32_MAX};
        for (int n = 0; n < 4; n++) {
            a.pages[5] = wrong[n];
            step_attend(&g, parts, 2);
            for (size_t i = 0; i < (size_t)rows * width; i++)
                cr_assert(isnan(get(out, (int64_t)i)), "a number came of page %d", (int)wrong[n]);
            cr_assert(memcmp(out + 30 * width, good + 30 * width, (size_t)rows * width * 2) == 0);
            cases++;
            elements += (size_t)rows * width;
        }
        a.pages[5] = page;
    }
    under_test.wide = true; /* a page past 32 bits is named before anything runs */
    const part one = {&a, 280, 1, out};
    step_stage(&g, &one, 1);
    g.wide[0][5] = INT64_C(1) << 32 | a.pages[5];
    tpw_error error = {0};
    cr_assert_eq(gpu->device->stage(gpu, &g.batch, s.page_size, &error), TPW_ERR_ARGUMENT);
    cr_assert(strstr(error.text, "page 4294967") != NULL, "%s", error.text);
    const tpw_attention_args args = {&g.batch, g.q.h, g.qg.h, s.hq, g.h, g.out.h};
    cr_assert_eq(host->ops->attention(host, &args, NULL), TPW_ERR_ARGUMENT);
    free(out), free(good);
    tape_free(&a), tape_free(&b);
    rig_free(&g);
}

Test(gpu_attention_bits, a_page_that_is_not_there)
{
    open_counted();
    for (int i = 0; i < FLAVOURS; i += 2) {
        under_test = flavours[i];
        check_missing_page();
    }
    close_counted(2 * 8, 2 * 8 * 4 * 64);
}

/* One attn_prepare in both places: every byte of q and of the caches, so that foreign places and padding count too. */
static void check_prepare(shape s, tpw_dtype act, int rope_dim, int odd)
{
    static const int pos[] = {0, 13, 511, 90}, rows[] = {3, 20, 1, 17};
    const int32_t m = 41, pages = 4 * (600 / s.page_size + 2);
    int32_t *list = gpu_host_alloc(sizeof *list * 4 * 601);
    tpw_segment segments[4];
    const tpw_batch batch = {.rows = m, .segment_count = 4, .segments = segments};
    ops_random r = {(uint64_t)(s.dim + rope_dim)};
    twin_mat qg = twin_mat_make(act, m, 2 * s.hq * s.dim, odd ? 5 : 8, odd),
             k = twin_mat_make(act, m, s.hkv * s.dim, odd, odd), v = twin_mat_make(act, m, s.hkv * s.dim, odd * 3, 0),
             q = twin_mat_make(act, m, s.hq * s.dim, odd * 7, odd);
    twin_mat cache_k = twin_mat_make(act, pages, s.hkv * s.page_size * s.dim, 0, 0),
             cache_v = twin_mat_make(act, pages, s.hkv * s.page_size * s.dim, 0, odd),
             q_norm = twin_mat_make(TPW_F32, 1, s.dim, 0, odd), k_norm = twin_mat_make(TPW_F32, 1, s.dim, 0, 0),
             rope = twin_mat_make(TPW_F32, 600, rope_dim > 0 ? rope_dim : 2, 0, odd);
    twin_mat *all[] = {&qg, &k, &v, &q, &cache_k, &cache_v, &q_norm, &k_norm, &rope};
    for (int i = 0, row = 0, page = pages - 1; i < 4; row += rows[i++]) {
        segments[i] = (tpw_segment){
            .row0 = row, .rows = rows[i], .rows_certain = 1, .slot = 1 + i, .pos = pos[i], .pages = list + i * 601};
        for (int p = 0; p <= 600 / s.page_size; p++)
            list[i * 601 + p] = p * s.page_size < pos[i] + rows[i] ? page-- : -1;
    }
    ops_fill(&qg.h, &r, 3.0f), ops_fill(&k.h, &r, 3.0f), ops_fill(&v.h, &r, 3.0f);
    ops_fill(&q_norm.h, &r, 1.0f), ops_fill(&k_norm.h, &r, 1.0f);
    if (rope_dim > 0)
        GPU_OK(tpw_rope_fill(rope.h.data, 600, rope_dim, 1e7, err));
    for (int i = 0; i < 9; i++)
        twin_mat_send(all[i]);
    tpw_attn_prepare_args h = {&batch,
                               qg.h,
                               k.h,
                               v.h,
                               s.hq,
                               q_norm.h.data,
                               k_norm.h.data,
                               1e-6f,
                               rope.h.data,
                               rope_dim,
                               {cache_k.h.data, cache_v.h.data, act, s.hkv, s.dim, s.page_size, pages},
                               q.h},
                          d = {&batch,
                               qg.d,
                               k.d,
                               v.d,
                               s.hq,
                               q_norm.d.data,
                               k_norm.d.data,
                               1e-6f,
                               rope.d.data,
                               rope_dim,
                               {cache_k.d.data, cache_v.d.data, act, s.hkv, s.dim, s.page_size, pages},
                               q.d};
    GPU_OK(gpu->device->stage(gpu, &batch, s.page_size, err));
    BOTH(attn_prepare, h, d);
    for (int i = 0; i < 9; i++)
        twin_end(&all[i]->block, "attn_prepare");
    free(list);
    cases++;
}

Test(gpu_attention_bits, prepare_has_the_bits_of_the_host)
{
    static const struct {
        shape s;
        int rope_dim;
    } runs[] = {{{1, 12, 2, 256, 64}, 64}, {{1, 6, 1, 256, 16}, 256}, {{1, 4, 4, 128, 8}, 32},
                {{1, 2, 1, 64, 256}, 0},   {{1, 3, 3, 40, 1}, 10},    {{1, 2, 1, 300, 16}, 2},
                {{1, 1, 1, 576, 4}, 64},   {{1, 2, 2, 7, 24}, 4},     {{1, 5, 1, 512, 32}, 512}};
    open_counted();
    for (int n = 0; n < 9 * 4; n++)
        check_prepare(runs[n / 4].s, n % 2 ? TPW_BF16 : TPW_F32, runs[n / 4].rope_dim, n / 2 % 2);
    cr_assert_eq(cases, 36);
    close_both(40 << 20);
}

#define REFUSED(op, args, code, word)                                                           \
    do {                                                                                        \
        tpw_error refused_err_ = {0};                                                           \
        cr_assert_eq(gpu->ops->op(gpu, &(args), &refused_err_), code, "%s", refused_err_.text); \
        cr_assert(strstr(refused_err_.text, word) != NULL, "%s", refused_err_.text);            \
    } while (0)

Test(gpu_attention_bits, refusals_name_what_is_wrong)
{
    const shape s = {1, 4, 2, 64, 16};
    open_both();
    tpw_cuda *inner = tpw_cuda_of(gpu);
    const size_t scratch = inner->scratch_bytes, shared = inner->shared_bytes;
    tape t = tape_make(s, 600, 2.0f, 1);
    rig g = rig_make(s, 700, 4, 8);
    uint16_t out[4 * 256];
    give_pages(&g, &t, 1);
    step_attend(&g, &(part){&t, 590, 4, out}, 1);
    const tpw_attention_args good = attention_of(&g);
    tpw_attention_args a = good;
    a.kv.head_dim = 576;
    REFUSED(attention, a, TPW_ERR_UNSUPPORTED, "heads of 576");
    a = good, a.q.dtype = TPW_F32;
    REFUSED(attention, a, TPW_ERR_UNSUPPORTED, "F32");
    a = good, a.kv.dtype = TPW_F16;
    REFUSED(attention, a, TPW_ERR_UNSUPPORTED, "K/V F16");
    a = good, a.kv.page_size = 24;
    REFUSED(attention, a, TPW_ERR_UNSUPPORTED, "24");
    a = good, a.kv.page_size = 512;
    REFUSED(attention, a, TPW_ERR_UNSUPPORTED, "512");
    a = good, a.q_heads = 3;
    REFUSED(attention, a, TPW_ERR_UNSUPPORTED, "3 query heads");
    a = good, a.out.cols = 128;
    REFUSED(attention, a, TPW_ERR_ARGUMENT, "out is [4, 128]");
    a = good, a.kv.v = (char *)a.kv.v + 2;
    REFUSED(attention, a, TPW_ERR_ARGUMENT, "multiple of 16");
    a = good, a.kv.pages = INT32_MAX;
    REFUSED(attention, a, TPW_ERR_LIMIT, "pages");
    const tpw_batch unknown = g.batch;
    a = good, a.batch = &unknown;
    REFUSED(attention, a, TPW_ERR_ARGUMENT, "not staged");
    inner->scratch_bytes = 16 * 66 * 4;
    REFUSED(attention, good, TPW_ERR_LIMIT, "8448 bytes of scratch");
    inner->scratch_bytes = scratch, inner->shared_bytes = 49152;
    REFUSED(attention, good, TPW_ERR_UNSUPPORTED, "shared memory");
    inner->shared_bytes = shared;
    tpw_attn_prepare_args p = {&g.batch,   g.qg.d, g.k.d,      g.v.d, 4,   g.q.d.data,
                               g.q.d.data, 1e-6f,  g.q.d.data, 8,     g.d, g.q.d};
    p.rope_dim = 7;
    REFUSED(attn_prepare, p, TPW_ERR_UNSUPPORTED, "7 rotary dims");
    p.rope_dim = 8, p.k.dtype = TPW_F32;
    REFUSED(attn_prepare, p, TPW_ERR_UNSUPPORTED, "k F32");
    p.k.dtype = TPW_BF16, p.v.rows = 3;
    REFUSED(attn_prepare, p, TPW_ERR_ARGUMENT, "v is [3, 128]");
    p.v.rows = 4, t.pages[37] = 0; /* position 592 */
    REFUSED(attn_prepare, p, TPW_ERR_ARGUMENT, "page 0 of position 592");
    tape_free(&t);
    rig_free(&g);
    close_both(0);
}
