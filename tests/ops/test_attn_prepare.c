/* Query and key norm, rotary and the page writes: bits against the formula, nothing else touched.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/rope.h"
#include "ops_test.h"

#define PAD       4
#define POSITIONS 600

typedef struct shape {
    int hq, hkv, dim, rope_dim, page_size;
    tpw_dtype act;
} shape;

static tpw_exec *open_best(void)
{
    tpw_exec *exec = NULL;
    cr_assert_eq(tpw_host_create("auto", &exec, NULL), TPW_OK);
    return exec;
}

static void *poison(size_t n)
{
    void *p = malloc(n);
    cr_assert_not_null(p);
    memset(p, 0xFF, n);
    return p;
}

static float get(const void *p, tpw_dtype dtype, int64_t i)
{
    return dtype == TPW_BF16 ? tpw_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static tpw_mat mat_make(int rows, int cols, tpw_dtype act, ops_random *seed)
{
    tpw_mat m = {.dtype = act, .rows = rows, .cols = cols, .stride = cols + PAD};
    m.data = poison((size_t)rows * (size_t)m.stride * tpw_dtype_size(act));
    for (int r = 0; r < rows && seed; r++)
        for (int c = 0; c < cols; c++) {
            int64_t at = r * m.stride + c;
            float x = 3.0f * ops_uniform(seed);
            if (act == TPW_BF16)
                ((uint16_t *)m.data)[at] = tpw_bf16_from_f32(x);
            else
                ((float *)m.data)[at] = x;
        }
    return m;
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

/* One head by the formula, in F32 with the norm's tree; `exact` is the same in double with libm's angles. */
static void model_head(const shape *s, const tpw_mat *m, int row, int col, const float *weight, const float *rope,
                       int pos, float *out, double *exact)
{
    float x[512];
    double sum = 0, y[512];
    for (int i = 0; i < s->dim; i++) {
        x[i] = get(m->data, s->act, row * m->stride + col + i);
        sum += (double)x[i] * (double)x[i];
    }
    float inverse = 1.0f / sqrtf(tree_of_squares(x, s->dim) / (float)s->dim + 1e-6f);
    for (int i = 0; i < s->dim; i++) {
        y[i] = (double)x[i] / sqrt(sum / s->dim + 1e-6) * (1 + (double)weight[i]);
        x[i] = x[i] * inverse * (1.0f + weight[i]);
        out[i] = x[i], exact[i] = y[i];
    }
    for (int j = 0; j < s->rope_dim / 2; j++) {
        int k = j + s->rope_dim / 2;
        float c = rope[(pos * s->rope_dim / 2 + j) * 2], sn = rope[(pos * s->rope_dim / 2 + j) * 2 + 1];
        double angle = (double)((float)pos * (float)pow(1e7, -2.0 * j / s->rope_dim));
        out[j] = x[j] * c - x[k] * sn;
        out[k] = x[k] * c + x[j] * sn;
        exact[j] = y[j] * cos(angle) - y[k] * sin(angle);
        exact[k] = y[k] * cos(angle) + y[j] * sin(angle);
    }
    for (int i = 0; i < s->dim; i++)
        out[i] = s->act == TPW_BF16 ? tpw_bf16_to_f32(tpw_bf16_from_f32(out[i])) : out[i];
}

typedef struct step {
    shape s;
    tpw_batch batch;
    tpw_segment segments[3];
    int32_t pages[3][POSITIONS];
    int64_t wide[POSITIONS]; /* the second segment's table, which has 64 bits */
    float rope[POSITIONS * 256], q_norm[512], k_norm[512];
    tpw_attn_prepare_args args;
} step;

/* Three segments, at the start, across page ends, and of one row; pages are handed out from the top downwards. */
static step *step_make(shape s, uint64_t start)
{
    ops_random seed = {start};
    static const int pos[] = {0, 13, 511}, rows[] = {3, 20, 1};
    step *t = poison(sizeof *t);
    t->s = s;
    t->batch = (tpw_batch){.rows = 24, .segment_count = 3, .segments = t->segments};
    int page = 1 + 3 * (POSITIONS / s.page_size + 1), row = 0;
    t->args = (tpw_attn_prepare_args){.batch = &t->batch, .q_heads = s.hq, .eps = 1e-6f, .rope_dim = s.rope_dim};
    t->args.kv = (tpw_kv){NULL, NULL, s.act, s.hkv, s.dim, s.page_size, page + 1};
    size_t bytes = (size_t)(page + 1) * (size_t)(s.hkv * s.page_size * s.dim) * tpw_dtype_size(s.act);
    t->args.kv.k = poison(bytes), t->args.kv.v = poison(bytes);
    for (int i = 0; i < 3; i++) {
        t->segments[i] = (tpw_segment){.row0 = row,
                                       .rows = rows[i],
                                       .rows_certain = rows[i],
                                       .slot = 1 + i,
                                       .pos = pos[i],
                                       .pages = i == 1 ? NULL : t->pages[i],
                                       .pages_wide = i == 1 ? t->wide : NULL};
        row += rows[i];
        for (int p = 0; p * s.page_size < POSITIONS; p++)
            t->pages[i][p] = p * s.page_size < pos[i] + rows[i] ? page-- : -1;
        for (int p = 0; i == 1 && p * s.page_size < POSITIONS; p++)
            t->wide[p] = t->pages[i][p];
    }
    for (int i = 0; i < s.dim; i++)
        t->q_norm[i] = ops_uniform(&seed), t->k_norm[i] = ops_uniform(&seed);
    if (s.rope_dim)
        cr_assert_eq(tpw_rope_fill(t->rope, POSITIONS, s.rope_dim, 1e7, NULL), TPW_OK);
    t->args.q_norm = t->q_norm, t->args.k_norm = t->k_norm, t->args.rope = t->rope;
    t->args.qg = mat_make(24, s.hq * 2 * s.dim, s.act, &seed);
    t->args.k = mat_make(24, s.hkv * s.dim, s.act, &seed);
    t->args.v = mat_make(24, s.hkv * s.dim, s.act, &seed);
    t->args.q = mat_make(24, s.hq * s.dim, s.act, NULL);
    memset(t->args.v.data, 0x80, 3); /* a -0 or so: v is copied as it is */
    return t;
}

static void step_free(step *t)
{
    free(t->args.kv.k), free(t->args.kv.v);
    free(t->args.qg.data), free(t->args.k.data), free(t->args.v.data), free(t->args.q.data);
    free(t);
}

static void expect_head(const step *t, const void *got, int64_t at, const float *want, const double *exact,
                        const char *what)
{
    for (int d = 0; d < t->s.dim; d++) {
        float x = get(got, t->s.act, at + d);
        cr_assert(tpw_f32_bits(x) == tpw_f32_bits(want[d]), "%s dim %d: %a, expected %a", what, d, (double)x,
                  (double)want[d]);
        cr_assert_float_eq(x, exact[d], t->s.act == TPW_BF16 ? 0.02 : 5e-6);
    }
}

static void check(tpw_exec *exec, shape s, uint64_t seed)
{
    step *t = step_make(s, seed);
    tpw_attn_prepare_args *a = &t->args;
    size_t size = tpw_dtype_size(s.act), cells = (size_t)a->kv.pages * (size_t)(s.hkv * s.page_size * s.dim),
           written = 0;
    tpw_error err = {0};
    cr_assert_eq(exec->ops->attn_prepare(exec, a, &err), TPW_OK, "%s", err.text);
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < t->segments[i].rows; r++) {
            int row = t->segments[i].row0 + r, pos = (int)t->segments[i].pos + r, page = t->pages[i][pos / s.page_size];
            float want[512];
            double exact[512];
            for (int h = 0; h < s.hq; h++) {
                model_head(&s, &a->qg, row, 2 * h * s.dim, t->q_norm, t->rope, pos, want, exact);
                expect_head(t, a->q.data, row * a->q.stride + h * s.dim, want, exact, "q");
            }
            for (int h = 0; h < s.hkv; h++) {
                int64_t at = (((int64_t)page * s.hkv + h) * s.page_size + pos % s.page_size) * s.dim;
                model_head(&s, &a->k, row, h * s.dim, t->k_norm, t->rope, pos, want, exact);
                expect_head(t, a->kv.k, at, want, exact, "k");
                cr_assert(memcmp((char *)a->kv.v + (size_t)at * size,
                                 (char *)a->v.data + (size_t)(row * a->v.stride + h * s.dim) * size,
                                 size * (size_t)s.dim) == 0,
                          "v was not copied as it is");
                memset((char *)a->kv.k + (size_t)at * size, 0xFF, size * (size_t)s.dim);
                memset((char *)a->kv.v + (size_t)at * size, 0xFF, size * (size_t)s.dim);
                written += (size_t)s.dim;
            }
            for (int c = 0; c < PAD; c++)
                cr_assert(isnan(get(a->q.data, s.act, row * a->q.stride + a->q.cols + c)), "padding of q was written");
        }
    cr_assert_eq(written, (size_t)(24 * s.hkv * s.dim));
    for (size_t i = 0; i < cells * size; i++)
        cr_assert(((unsigned char *)a->kv.k)[i] == 0xFF && ((unsigned char *)a->kv.v)[i] == 0xFF,
                  "a foreign place was written");
    step_free(t);
}

Test(attn_prepare, bits_places_and_accuracy_on_every_isa)
{
    static const shape shapes[] = {{4, 2, 256, 64, 64, TPW_BF16},   {6, 1, 64, 16, 16, TPW_F32},
                                   {1, 1, 128, 128, 256, TPW_BF16}, {3, 3, 40, 10, 1, TPW_F32},
                                   {2, 1, 300, 2, 16, TPW_BF16},    {2, 2, 32, 0, 64, TPW_F32}};
    for (int e = 0; e < OPS_ISAS; e++) {
        tpw_exec *exec = ops_exec(e);
        for (size_t i = 0; exec && i < sizeof shapes / sizeof *shapes; i++)
            check(exec, shapes[i], i);
        tpw_host_destroy(exec);
    }
}

Test(attn_prepare, what_cannot_be_done_is_refused)
{
    step *t = step_make((shape){2, 1, 32, 8, 16, TPW_F32}, 1);
    tpw_exec *exec = open_best();
    tpw_error err;
    t->wide[1] = 0;
    cr_assert_eq(exec->ops->attn_prepare(exec, &t->args, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "page 0 of position 16"), "%s", err.text);
    for (int d = 0; d < 16 * 32; d++)
        cr_assert(isnan(((float *)t->args.kv.k)[d]), "page 0 was written");
    t->wide[1] = t->args.kv.pages;
    cr_assert_eq(exec->ops->attn_prepare(exec, &t->args, NULL), TPW_ERR_ARGUMENT);
    t->wide[1] = INT64_C(1) << 32 | 3;
    cr_assert_eq(exec->ops->attn_prepare(exec, &t->args, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "page 4294967299 of position 16"), "%s", err.text);
    t->wide[1] = 3, t->pages[0][0] = 0;
    cr_assert_eq(exec->ops->attn_prepare(exec, &t->args, NULL), TPW_ERR_ARGUMENT);
    t->pages[0][0] = 4;
    t->args.rope_dim = 34;
    cr_assert_eq(exec->ops->attn_prepare(exec, &t->args, &err), TPW_ERR_UNSUPPORTED);
    t->args.rope_dim = 7;
    cr_assert_eq(exec->ops->attn_prepare(exec, &t->args, &err), TPW_ERR_UNSUPPORTED);
    t->args.rope_dim = 8, t->args.kv.dtype = TPW_BF16;
    cr_assert_eq(exec->ops->attn_prepare(exec, &t->args, &err), TPW_ERR_UNSUPPORTED);
    t->args.kv.dtype = TPW_F32, t->args.kv.page_size = 0;
    cr_assert_eq(exec->ops->attn_prepare(exec, &t->args, &err), TPW_ERR_UNSUPPORTED);
    t->args.kv.page_size = 16;
    step_free(t);
    tpw_host_destroy(exec);
}
