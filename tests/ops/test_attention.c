/* Attention: bits against a literal model of the contract, accuracy against double, pages, cuts and poison.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/elementary.h"
#include "kernels/host/element.h"
#include "ops_test.h"

#define PAD 6

typedef struct shape {
    int hq, hkv, dim, page_size;
    tpw_dtype act;
} shape;

/* One sequence: act values of q, gate, k and v of each position, contiguous. */
typedef struct tape {
    shape s;
    int n;
    float *q, *gate, *k, *v;
} tape;

/* Its K/V in pages. */
typedef struct cache {
    tpw_kv kv;
    int32_t *pages;
    int64_t *wide; /* the table in 64 bits, or NULL */
} cache;

static tpw_exec *open_best(void)
{
    tpw_exec *exec = NULL;
    cr_assert_eq(tpw_host_create("auto", &exec, NULL), TPW_OK);
    return exec;
}

/* Not by the op's own helper: a rounding left out there must show. */
static float to_act(float x, tpw_dtype act)
{
    if (act == TPW_F16)
        return tpw_f16_to_f32(tpw_f16_from_f32(x));
    return act == TPW_BF16 ? tpw_bf16_to_f32(tpw_bf16_from_f32(x)) : x;
}

static void *poison(size_t n)
{
    void *p = malloc(n);
    cr_assert_not_null(p);
    memset(p, 0xFF, n);
    return p;
}

/* Keys grow or shrink along the sequence, so that the running maximum moves from split to split in both ways. */
static tape tape_make(shape s, int n, float spread, uint64_t start)
{
    ops_random seed = {start};
    size_t nq = (size_t)(n * s.hq * s.dim), nk = (size_t)(n * s.hkv * s.dim);
    tape t = {s, n, malloc(nq * 4), malloc(nq * 4), malloc(nk * 4), malloc(nk * 4)};
    for (size_t i = 0; i < nq; i++)
        t.q[i] = to_act(spread * ops_uniform(&seed), s.act), t.gate[i] = to_act(6.0f * ops_uniform(&seed), s.act);
    for (size_t i = 0; i < nk; i++) {
        float along = (float)i / (float)nk;
        t.k[i] = to_act((i / (size_t)s.dim % 2 ? 0.3f + along : 1.3f - along) * 2.0f * ops_uniform(&seed), s.act);
        t.v[i] = to_act(ops_uniform(&seed) + 0.1f, s.act);
    }
    return t;
}

static void tape_free(tape *t)
{
    free(t->q), free(t->gate), free(t->k), free(t->v);
}

/* Pages of NaN, page 0 included, handed out in a shuffled order. */
static cache cache_make(const tape *t, uint64_t start)
{
    ops_random seed = {start};
    shape s = t->s;
    int count = t->n / s.page_size + 1, all = count + 4;
    size_t bytes = (size_t)all * (size_t)(s.hkv * s.page_size * s.dim) * tpw_dtype_size(s.act);
    cache c = {{poison(bytes), poison(bytes), s.act, s.hkv, s.dim, s.page_size, all},
               malloc(sizeof(int32_t) * (size_t)all),
               NULL};
    for (int i = 0; i < all - 1; i++)
        c.pages[i] = i + 1;
    for (int i = all - 2; i > 0; i--) {
        int j = (int)(ops_next(&seed) % (uint64_t)(i + 1)), swap = c.pages[i];
        c.pages[i] = c.pages[j], c.pages[j] = swap;
    }
    return c;
}

static void cache_free(cache *c)
{
    free(c->kv.k), free(c->kv.v), free(c->pages), free(c->wide);
}

/* From now on the op is given a table of 64 bits, and no other. */
static void cache_widen(cache *c, int count)
{
    c->wide = malloc(sizeof(int64_t) * (size_t)count);
    for (int i = 0; i < count; i++)
        c->wide[i] = c->pages[i];
}

static void cache_write(const cache *c, const tape *t, int from, int to)
{
    shape s = t->s;
    for (int p = from; p < to; p++)
        for (int h = 0; h < s.hkv; h++)
            for (int d = 0; d < s.dim; d++) {
                int64_t at =
                    (((int64_t)c->pages[p / s.page_size] * s.hkv + h) * s.page_size + p % s.page_size) * s.dim + d;
                tpw_element_set(c->kv.k, s.act, at, t->k[(p * s.hkv + h) * s.dim + d]);
                tpw_element_set(c->kv.v, s.act, at, t->v[(p * s.hkv + h) * s.dim + d]);
            }
}

/* Rows [pos, pos + rows) of a tape whose K/V are in a cache; out holds rows of hq * dim, widened. */
typedef struct part {
    const tape *t;
    const cache *c;
    int pos, rows;
    float *out;
} part;

static tpw_status try_step(tpw_exec *exec, const part *parts, int n, tpw_error *err)
{
    shape s = parts[0].t->s;
    tpw_segment segments[4];
    tpw_batch batch = {.segment_count = n, .segments = segments};
    for (int i = 0; i < n; i++) {
        segments[i] = (tpw_segment){.row0 = batch.rows,
                                    .rows = parts[i].rows,
                                    .rows_certain = parts[i].rows,
                                    .slot = 1 + i,
                                    .pos = parts[i].pos,
                                    .pages = parts[i].c->wide != NULL ? NULL : parts[i].c->pages,
                                    .pages_wide = parts[i].c->wide};
        batch.rows += parts[i].rows;
    }
    int width = s.hq * s.dim, stride = width + PAD, stride2 = 2 * width + PAD;
    size_t size = tpw_dtype_size(s.act), rows = (size_t)batch.rows;
    tpw_mat q = {poison(rows * (size_t)stride * size), s.act, batch.rows, width, stride};
    tpw_mat qg = {poison(rows * (size_t)stride2 * size), s.act, batch.rows, 2 * width, stride2};
    tpw_mat out = {poison(rows * (size_t)stride * size), s.act, batch.rows, width, stride};
    for (int i = 0; i < n; i++)
        for (int r = 0; r < parts[i].rows; r++)
            for (int c = 0; c < width; c++) {
                int row = segments[i].row0 + r, from = (parts[i].pos + r) * width + c;
                tpw_element_set(q.data, s.act, row * (int64_t)stride + c, parts[i].t->q[from]);
                tpw_element_set(qg.data, s.act, row * (int64_t)stride2 + c / s.dim * 2 * s.dim + s.dim + c % s.dim,
                                parts[i].t->gate[from]);
            }
    tpw_attention_args a = {&batch, q, qg, s.hq, parts[0].c->kv, out};
    tpw_status st = exec->ops->attention(exec, &a, err);
    for (int i = 0; i < n && st == TPW_OK; i++)
        for (int r = 0; r < parts[i].rows; r++)
            for (int c = 0; c < stride; c++) {
                float x = tpw_element_get(out.data, s.act, (segments[i].row0 + r) * (int64_t)stride + c);
                if (c < width)
                    parts[i].out[r * width + c] = x;
                else
                    cr_assert(isnan(x), "padding of out was written");
            }
    free(q.data), free(qg.data), free(out.data);
    return st;
}

static void step(tpw_exec *exec, const part *parts, int n)
{
    tpw_error err = {0};
    cr_assert_eq(try_step(exec, parts, n, &err), TPW_OK, "%s", err.text);
}

static float model_dot(const float *a, const float *b, int n)
{
    float l[16] = {0};
    for (int i = 0; i < (n + 15) / 16 * 16; i++)
        l[i % 16] = fmaf(i < n ? a[i] : 0.0f, i < n ? b[i] : 0.0f, l[i % 16]);
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++)
            l[i] = l[i] + l[i + w];
    return l[0];
}

/* One head of one row, written from the contract: split after split, element after element. */
static void model_row(const tape *t, int pos, int head, float *out)
{
    shape s = t->s;
    int kh = head / (s.hq / s.hkv);
    float root = 1.0f / sqrtf((float)s.dim), p[256], M = 0, L = 0, O[512];
    const float *q = t->q + (pos * s.hq + head) * s.dim, *gate = t->gate + (pos * s.hq + head) * s.dim;
    for (int first = 0; first <= pos; first += 256) {
        int n = pos + 1 - first < 256 ? pos + 1 - first : 256;
        float m = -INFINITY, l[4] = {0};
        for (int j = 0; j < n; j++) {
            p[j] = model_dot(q, t->k + ((first + j) * s.hkv + kh) * s.dim, s.dim) * root;
            m = fmaxf(m, p[j]);
        }
        for (int j = 0; j < n; j++) {
            p[j] = tpw_exp(p[j] - m);
            l[j / 64] += p[j];
        }
        float sum = (l[0] + l[1]) + (l[2] + l[3]), top = first == 0 || m > M ? m : M;
        float keep = tpw_exp(M - top), take = tpw_exp(m - top);
        for (int d = 0; d < s.dim; d++) {
            float o[4] = {0};
            for (int j = 0; j < n; j++)
                o[j / 64] = fmaf(to_act(p[j], s.act), t->v[((first + j) * s.hkv + kh) * s.dim + d], o[j / 64]);
            float x = (o[0] + o[1]) + (o[2] + o[3]);
            O[d] = first == 0 ? x : fmaf(O[d], keep, x * take);
        }
        L = first == 0 ? sum : fmaf(L, keep, sum * take);
        M = top;
    }
    for (int d = 0; d < s.dim; d++)
        out[d] = to_act((O[d] * (1.0f / L)) * tpw_sigmoid(gate[d]), s.act);
}

static void exact_row(const tape *t, int pos, int head, double *out)
{
    shape s = t->s;
    int kh = head / (s.hq / s.hkv);
    double *p = malloc(sizeof *p * (size_t)(pos + 1)), m = -INFINITY, l = 0;
    for (int j = 0; j <= pos; j++) {
        p[j] = 0;
        for (int d = 0; d < s.dim; d++)
            p[j] += (double)t->q[(pos * s.hq + head) * s.dim + d] * (double)t->k[(j * s.hkv + kh) * s.dim + d];
        p[j] /= sqrt(s.dim);
        m = fmax(m, p[j]);
    }
    for (int d = 0; d < s.dim; d++)
        out[d] = 0;
    for (int j = 0; j <= pos; j++) {
        double w = exp(p[j] - m);
        l += w;
        for (int d = 0; d < s.dim; d++)
            out[d] += w * (double)t->v[(j * s.hkv + kh) * s.dim + d];
    }
    for (int d = 0; d < s.dim; d++)
        out[d] = out[d] / l / (1 + exp(-(double)t->gate[(pos * s.hq + head) * s.dim + d]));
    free(p);
}

static void expect_row(const tape *t, int pos, const float *out)
{
    shape s = t->s;
    float want[512];
    for (int h = 0; h < s.hq; h++) {
        model_row(t, pos, h, want);
        for (int d = 0; d < s.dim; d++)
            cr_assert(tpw_f32_bits(out[h * s.dim + d]) == tpw_f32_bits(want[d]),
                      "position %d head %d dim %d: %a, expected %a", pos, h, d, (double)out[h * s.dim + d],
                      (double)want[d]);
    }
}

static void expect_exact(const tape *t, int pos, const float *out)
{
    shape s = t->s;
    double want[512], bound = s.act == TPW_BF16 ? 6e-3 : s.act == TPW_F16 ? 8e-4 : 3e-6;
    for (int h = 0; h < s.hq; h++) {
        exact_row(t, pos, h, want);
        for (int d = 0; d < s.dim; d++)
            cr_assert_float_eq(out[h * s.dim + d], want[d], bound, "position %d head %d dim %d: %g, expected %g", pos,
                               h, d, (double)out[h * s.dim + d], want[d]);
    }
}

/* The last row of sequences of every awkward length: against the contract's bits and against double. */
static void check_lengths(tpw_exec *exec, shape s, float spread)
{
    static const int lengths[] = {1, 2, 63, 64, 65, 128, 255, 256, 257, 320, 512, 1023, 1500};
    tape t = tape_make(s, 1500, spread, (uint64_t)(s.dim + s.hq));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        float out[6 * 256];
        cache c = cache_make(&t, i); /* keys past the row stay NaN */
        cache_write(&c, &t, 0, lengths[i]);
        if (i % 2)
            cache_widen(&c, (lengths[i] - 1) / s.page_size + 1);
        step(exec, &(part){&t, &c, lengths[i] - 1, 1, out}, 1);
        expect_row(&t, lengths[i] - 1, out);
        expect_exact(&t, lengths[i] - 1, out);
        cache_free(&c);
    }
    tape_free(&t);
}

Test(attention, lengths_dims_and_ratios)
{
    static const shape shapes[] = {{6, 1, 64, 16, TPW_F32},  {2, 2, 128, 64, TPW_BF16}, {4, 2, 256, 64, TPW_BF16},
                                   {3, 1, 40, 256, TPW_F32}, {1, 1, 256, 1, TPW_F32},   {6, 2, 64, 64, TPW_BF16},
                                   {6, 1, 256, 64, TPW_F16}, {4, 4, 128, 8, TPW_F16}};
    tpw_exec *exec = open_best();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_lengths(exec, shapes[i], i % 2 ? 2.0f : 0.5f);
    tpw_host_destroy(exec);
}

Test(attention, sharp_and_flat_scores_on_every_isa)
{
    static const float spreads[] = {0.0f, 1.0f, 40.0f};
    for (int e = 0; e < OPS_ISAS; e++) {
        tpw_exec *exec = ops_exec(e);
        for (int i = 0; exec && i < 6; i++) {
            tape t = tape_make((shape){2, 1, 48, 16,
                                       i == 1  ? TPW_BF16
                                       : i < 3 ? TPW_F32
                                               : TPW_F16},
                               700, spreads[i % 3], 5);
            cache c = cache_make(&t, 1);
            float out[9 * 96];
            cache_write(&c, &t, 0, t.n);
            step(exec, &(part){&t, &c, 691, 9, out}, 1);
            for (int r = 0; r < 9; r++)
                expect_row(&t, 691 + r, out + r * 96);
            cache_free(&c);
            tape_free(&t);
        }
        tpw_host_destroy(exec);
    }
}

Test(attention, prefill_in_chunks_equals_token_by_token)
{
    static const int chunks[] = {530, 1, 7, 64, 100, 256, 257};
    tpw_exec *exec = open_best();
    tape t = tape_make((shape){3, 1, 32, 16, TPW_BF16}, 530, 1.5f, 9);
    int width = 3 * 32;
    float *first = malloc(sizeof(float) * (size_t)(t.n * width)), *out = malloc(sizeof(float) * (size_t)(t.n * width));
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        t.s.page_size = i % 2 ? 64 : 16;
        cache c = cache_make(&t, i);
        for (int pos = 0, rows; pos < t.n; pos += rows) {
            rows = chunks[i] < t.n - pos ? chunks[i] : t.n - pos;
            cache_write(&c, &t, pos, pos + rows);
            step(exec, &(part){&t, &c, pos, rows, out + pos * width}, 1);
        }
        if (i == 0)
            memcpy(first, out, sizeof(float) * (size_t)(t.n * width));
        cr_assert(memcmp(first, out, sizeof(float) * (size_t)(t.n * width)) == 0, "chunks of %d change the bits",
                  chunks[i]);
        cache_free(&c);
    }
    for (int pos = 0; pos < t.n; pos += 13)
        expect_row(&t, pos, first + pos * width);
    free(first), free(out);
    tape_free(&t);
    tpw_host_destroy(exec);
}

/* Two sequences of one step share the pages' arrays, and more queries than the scratch holds are done in groups. */
Test(attention, sequences_side_by_side_and_many_queries)
{
    tpw_exec *exec = open_best();
    tape a = tape_make((shape){4, 2, 16, 16, TPW_F32}, 90, 1.0f, 1),
         b = tape_make((shape){4, 2, 16, 16, TPW_F32}, 90, 1.0f, 2);
    cache both = cache_make(&a, 3), second = both;
    tpw_kv kv = {poison(40 * 2 * 16 * 16 * 4), poison(40 * 2 * 16 * 16 * 4), TPW_F32, 2, 16, 16, 40};
    int32_t pages[6] = {31, 17, 39, 12, 25, 20};
    free(both.kv.k), free(both.kv.v);
    both.kv = kv, second.kv = kv, second.pages = pages;
    float oa[40 * 64], ob[64];
    cache_write(&both, &a, 0, 80);
    cache_write(&second, &b, 0, 71);
    part parts[2] = {{&b, &second, 70, 1, ob}, {&a, &both, 40, 40, oa}};
    step(exec, parts, 2);
    expect_row(&b, 70, ob);
    for (int r = 0; r < 40; r++)
        expect_row(&a, 40 + r, oa + r * 64);
    cache_free(&both);
    tape_free(&a), tape_free(&b);

    tape many = tape_make((shape){20, 1, 8, 64, TPW_F32}, 400, 1.0f, 4); /* 8 MiB hold some 7500 of its 8000 queries */
    cache c = cache_make(&many, 1);
    float *out = malloc(sizeof(float) * 400 * 160);
    cache_write(&c, &many, 0, 400);
    step(exec, &(part){&many, &c, 0, 400, out}, 1);
    for (int r = 330; r < 400; r++)
        expect_row(&many, r, out + r * 160);
    expect_row(&many, 0, out);
    free(out);
    cache_free(&c);
    tape_free(&many);
    tpw_host_destroy(exec);
}

Test(attention, what_cannot_be_done_is_refused)
{
    tpw_exec *exec = open_best();
    tape t = tape_make((shape){2, 1, 8, 16, TPW_F32}, 40, 1.0f, 4);
    cache c = cache_make(&t, 1);
    float out[2 * 16];
    tpw_error err;
    part p = {&t, &c, 37, 2, out};
    cache_write(&c, &t, 0, 39);
    c.pages[1] = 0;
    cr_assert_eq(try_step(exec, &p, 1, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "page 0 of position 16"));
    c.pages[1] = c.kv.pages;
    cr_assert_eq(try_step(exec, &p, 1, NULL), TPW_ERR_ARGUMENT);
    cache_widen(&c, 3);
    c.wide[1] = INT64_C(1) << 32 | 2;
    cr_assert_eq(try_step(exec, &p, 1, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "page 4294967298 of position 16"));
    free(c.wide), c.wide = NULL;
    c.pages[1] = 2, c.kv.page_size = 24;
    cr_assert_eq(try_step(exec, &p, 1, &err), TPW_ERR_UNSUPPORTED);
    c.kv.page_size = 512;
    cr_assert_eq(try_step(exec, &p, 1, &err), TPW_ERR_UNSUPPORTED);
    c.kv.page_size = 16, c.kv.heads = 3;
    cr_assert_eq(try_step(exec, &p, 1, &err), TPW_ERR_UNSUPPORTED);
    c.kv.heads = 1, c.kv.dtype = TPW_BF16;
    cr_assert_eq(try_step(exec, &p, 1, &err), TPW_ERR_UNSUPPORTED);
    c.kv.dtype = TPW_F32, c.kv.head_dim = 9000;
    cr_assert_eq(try_step(exec, &p, 1, &err), TPW_ERR_LIMIT, "a split larger than the scratch");
    cache_free(&c);
    tape_free(&t);
    tpw_host_destroy(exec);
}
