/* The delta rule: bits against a literal model of the contract for every cut, accuracy against double, rejected rows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/delta.h"

#include "delta_model.h"

#define PAD 5

static tpw_exec *open_best(void)
{
    tpw_exec *exec = NULL;
    cr_assert_eq(tpw_host_create("auto", &exec, NULL), TPW_OK);
    return exec;
}

/* A layer whose slots, slot 0 included, hold NaN everywhere. */
static tpw_gdn_state layer_make(shape s, int slots)
{
    size_t hk = (size_t)s.hk, hv = (size_t)s.hv, n = (size_t)slots;
    tpw_gdn_state g = {.slots = slots, .k_heads = s.hk, .v_heads = s.hv, .k_dim = s.dk, .v_dim = s.dv};
    size_t counts[] = {n * state_floats(s), n * 32 * hk * (size_t)s.dk, n * 32 * hv * (size_t)s.dv, n * 32 * hv};
    float **parts[] = {&g.S, &g.k, &g.u, &g.decay};
    for (int i = 0; i < 4; i++) {
        *parts[i] = floats(counts[i]);
        for (size_t j = 0; j < counts[i]; j++)
            (*parts[i])[j] = NAN;
    }
    return g;
}

static void layer_free(tpw_gdn_state *g)
{
    free(g->S), free(g->k), free(g->u), free(g->decay);
}

/* A matrix with NaN between its rows. */
static tpw_mat mat_make(int rows, int cols, tpw_dtype dtype)
{
    tpw_mat m = ops_mat(dtype, rows, cols, PAD);
    memset(m.data, 0xFF, (size_t)rows * (size_t)m.stride * tpw_dtype_size(dtype));
    return m;
}

static void mat_put(tpw_mat *m, int row, const float *from)
{
    for (int c = 0; c < m->cols; c++)
        ops_set(m, row, c, from[c]);
}

/* One segment of a step: tokens [pos, pos + rows) of a tape; out receives the widened outputs. */
typedef struct part {
    const tape *t;
    int pos, rows, certain, slot;
    float *out; /* [rows][hv * dv] */
} part;

static tpw_status try_step(tpw_exec *exec, tpw_gdn_state g, const part *parts, int n, tpw_error *err)
{
    shape s = parts[0].t->s;
    tpw_segment segments[8];
    tpw_batch batch = {.segment_count = n, .segments = segments};
    for (int i = 0; i < n; i++) {
        segments[i] = (tpw_segment){.row0 = batch.rows,
                                    .rows = parts[i].rows,
                                    .rows_certain = parts[i].certain,
                                    .slot = parts[i].slot,
                                    .pos = parts[i].pos};
        batch.rows += parts[i].rows;
    }
    int M = batch.rows, keys = s.hk * s.dk, values = s.hv * s.dv;
    tpw_delta_args a = {&batch,
                        mat_make(M, keys, TPW_F32),
                        mat_make(M, keys, TPW_F32),
                        mat_make(M, values, s.act),
                        mat_make(M, s.hv, TPW_F32),
                        mat_make(M, s.hv, TPW_F32),
                        g,
                        mat_make(M, values, s.act)};
    for (int i = 0; i < n; i++)
        for (int r = 0; r < parts[i].rows; r++) {
            const tape *t = parts[i].t;
            size_t at = (size_t)(parts[i].pos + r);
            int row = segments[i].row0 + r;
            mat_put(&a.q, row, t->q + at * (size_t)a.q.cols);
            mat_put(&a.k, row, t->k + at * (size_t)a.k.cols);
            mat_put(&a.v, row, t->v + at * (size_t)a.v.cols);
            mat_put(&a.decay, row, t->decay + at * (size_t)s.hv);
            mat_put(&a.beta, row, t->beta + at * (size_t)s.hv);
        }
    tpw_status st = exec->ops->delta(exec, &a, err);
    for (int i = 0; i < n && st == TPW_OK; i++)
        for (int r = 0; r < parts[i].rows; r++) {
            for (int c = 0; c < a.o.cols; c++)
                parts[i].out[(size_t)r * (size_t)a.o.cols + (size_t)c] = ops_get(&a.o, segments[i].row0 + r, c);
            for (int c = 0; c < PAD; c++)
                cr_assert(isnan(ops_get(&a.o, segments[i].row0 + r, a.o.cols + c)), "padding of o was written");
        }
    tpw_mat *mats[] = {&a.q, &a.k, &a.v, &a.decay, &a.beta, &a.o};
    for (int i = 0; i < 6; i++)
        free(mats[i]->data);
    return st;
}

static void step(tpw_exec *exec, tpw_gdn_state g, const part *parts, int n)
{
    tpw_error err = {0};
    cr_assert_eq(try_step(exec, g, parts, n, &err), TPW_OK, "%s", err.text);
}

static void expect_bits(const float *got, const float *want, size_t n, const char *what, int pos)
{
    for (size_t i = 0; i < n; i++)
        cr_assert(tpw_f32_bits(got[i]) == tpw_f32_bits(want[i]), "%s at %d, element %zu: %a, expected %a", what, pos, i,
                  (double)got[i], (double)want[i]);
}

/* S and the live rows of the ring are those of the tape's first `pos` tokens. */
static void expect_state(const tpw_gdn_state *g, int slot, const tape *t, int pos)
{
    shape s = t->s;
    size_t ks = (size_t)(s.hk * s.dk), vs = (size_t)(s.hv * s.dv), hv = (size_t)s.hv, n = state_floats(s);
    expect_bits(g->S + (size_t)slot * n, t->S + (size_t)(pos / 16) * n, n, "S", pos);
    for (int p = pos / 16 * 16; p < pos; p++) {
        size_t ring = (size_t)slot * 32 + (size_t)(p % 32);
        expect_bits(g->k + ring * ks, t->k + (size_t)p * ks, ks, "k", p);
        expect_bits(g->u + ring * vs, t->u + (size_t)p * vs, vs, "u", p);
        expect_bits(g->decay + ring * hv, t->decay + (size_t)p * hv, hv, "decay", p);
    }
}

/* Whole tape in pieces of `cut` (0: random) certain tokens. */
static void run_cut(tpw_exec *exec, const tape *t, int cut, uint64_t start)
{
    ops_random seed = {start};
    size_t vs = (size_t)(t->s.hv * t->s.dv);
    float *out = floats((size_t)t->n * vs);
    tpw_gdn_state g = layer_make(t->s, 3);
    for (int pos = 0, rows; pos < t->n; pos += rows) {
        rows = cut ? cut : 1 + below(&seed, 40);
        rows = rows < t->n - pos ? rows : t->n - pos;
        step(exec, g, &(part){t, pos, rows, rows, 2, out + (size_t)pos * vs}, 1);
        if (cut != 1 || pos % 7 == 0)
            expect_state(&g, 2, t, pos + rows);
    }
    expect_bits(out, t->o, (size_t)t->n * vs, "o", cut);
    cr_assert(isnan(g.S[0]) && isnan(g.k[0]) && isnan(g.S[state_floats(t->s)]), "another slot was written");
    layer_free(&g);
    free(out);
}

Test(delta, any_cut_gives_the_bits_of_the_contract)
{
    static const int cuts[] = {331, 1, 7, 16, 17, 64, 0};
    shape shapes[] = {{2, 6, 24, 40, TPW_BF16}, {1, 1, 32, 64, TPW_F32}};
    tpw_exec *exec = open_best();
    for (int i = 0; i < 2; i++) {
        tape t = tape_make(shapes[i], 331, 11 + (uint64_t)i);
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
            run_cut(exec, &t, cuts[c], 5 + c);
        tape_free(&t);
    }
    tpw_host_destroy(exec);
}

Test(delta, head_ratios_and_dims_on_every_isa)
{
    shape shapes[] = {{2, 2, 32, 32, TPW_F32},  {1, 2, 64, 128, TPW_BF16}, {2, 6, 24, 40, TPW_F32},
                      {1, 4, 128, 64, TPW_F32}, {1, 8, 33, 17, TPW_BF16},  {1, 3, 128, 128, TPW_BF16},
                      {1, 1, 1, 1, TPW_F32}};
    for (int e = 0; e < OPS_ISAS; e++) {
        tpw_exec *exec = ops_exec(e);
        for (size_t i = 0; exec && i < sizeof shapes / sizeof *shapes; i++) {
            tape t = tape_make(shapes[i], 53, 100 + i);
            run_cut(exec, &t, 19, 1);
            tape_free(&t);
        }
        tpw_host_destroy(exec);
    }
}

/* The recurrence of the model's definition, token by token in double: o of every token and the state after `n`. */
static void exact_head(const tape *t, int h, int n, double *S, double *o)
{
    shape s = t->s;
    int kh = h / (s.hv / s.hk);
    memset(S, 0, sizeof *S * (size_t)(s.dk * s.dv));
    for (int p = 0; p < n; p++) {
        const float *k = t->k + (size_t)(p * s.hk + kh) * (size_t)s.dk,
                    *q = t->q + (size_t)(p * s.hk + kh) * (size_t)s.dk;
        for (int x = 0; x < s.dv; x++) {
            double guess = 0, out = 0;
            for (int r = 0; r < s.dk; r++) {
                S[r * s.dv + x] *= (double)t->decay[p * s.hv + h];
                guess += S[r * s.dv + x] * (double)k[r];
            }
            double u = (double)t->beta[p * s.hv + h] * ((double)t->v[(p * s.hv + h) * s.dv + x] - guess);
            for (int r = 0; r < s.dk; r++) {
                S[r * s.dv + x] += (double)k[r] * u;
                out += S[r * s.dv + x] * (double)q[r];
            }
            o[p * s.dv + x] = out;
        }
    }
}

/* Largest error over largest value. */
static double relative_error(const float *got, const double *want, int n, int got_stride, int run)
{
    double error = 0, size = 1e-30;
    for (int i = 0; i < n; i++) {
        error = fmax(error, fabs((double)got[i / run * got_stride + i % run] - want[i]));
        size = fmax(size, fabs(want[i]));
    }
    return error / size;
}

Test(delta, agrees_with_the_definition_in_double)
{
    shape s = {1, 3, 128, 128, TPW_F32};
    tpw_exec *exec = open_best();
    for (int kind = 0; kind < 4; kind++) {
        int n = kind == 3 ? 600 : 200;
        tape t = tape_alloc(s, n);
        tape_fill(&t, 77 + (uint64_t)kind);
        for (int i = 0; i < n * s.hv && kind < 3;
             i++) /* g = 0, weak, and -50 now and then; 3: the mixture of tape_fill */
            t.decay[i] = kind == 0 ? 1.0f : kind == 1 ? expf(-0.002f) : i % 7 == 0 ? expf(-50.0f) : expf(-1e-4f);
        float *out = floats((size_t)(n * s.hv * s.dv)), *S = floats(state_floats(s));
        double *exact = malloc(sizeof *exact * (size_t)(s.dk * s.dv)), *o = malloc(sizeof *o * (size_t)(n * s.dv));
        tpw_gdn_state g = layer_make(s, 2);
        step(exec, g, &(part){&t, 0, n, n, 1, out}, 1);
        cr_assert_eq(tpw_gdn_materialize(exec, &g, 1, n, S, NULL), TPW_OK);
        for (int h = 0; h < s.hv; h++) {
            exact_head(&t, h, n, exact, o);
            double eo = relative_error(out + h * s.dv, o, n * s.dv, s.hv * s.dv, s.dv);
            double eS = relative_error(S + h * s.dk * s.dv, exact, s.dk * s.dv, s.dv, s.dv);
            cr_expect(eo < 1e-5 && eS < 1e-5, "kind %d head %d: outputs off by %.2e, state by %.2e", kind, h, eo, eS);
        }
        layer_free(&g);
        free(out), free(S), free(exact), free(o);
        tape_free(&t);
    }
    tpw_host_destroy(exec);
}

Test(delta, materialized_state_at_every_position)
{
    shape s = {1, 2, 16, 24, TPW_F32};
    tape t = tape_make(s, 50, 9);
    tpw_exec *exec = open_best();
    tpw_gdn_state g = layer_make(s, 2);
    float S[2 * 16 * 24], o[2 * 24];
    double exact[16 * 24], outputs[50 * 24];
    cr_assert_eq(tpw_gdn_materialize(exec, &g, 1, 0, S, NULL), TPW_OK);
    for (int i = 0; i < 2 * 16 * 24; i++)
        cr_assert_eq(S[i], 0.0f, "a state at position 0 must be zero whatever the slot holds");
    for (int pos = 0; pos < 50; pos++) {
        step(exec, g, &(part){&t, pos, 1, 1, 1, o}, 1);
        cr_assert_eq(tpw_gdn_materialize(exec, &g, 1, pos + 1, S, NULL), TPW_OK);
        for (int h = 0; h < 2; h++) {
            exact_head(&t, h, pos + 1, exact, outputs);
            double e = relative_error(S + h * 16 * 24, exact, 16 * 24, 24, 24);
            cr_assert_lt(e, 1e-5, "position %d head %d: off by %.2e", pos + 1, h, e);
        }
        if ((pos + 1) % 16 == 0)
            expect_bits(S, t.S + (size_t)((pos + 1) / 16) * state_floats(s), state_floats(s), "S", pos + 1);
    }
    tpw_error err;
    cr_assert_eq(tpw_gdn_materialize(exec, &g, 0, 50, S, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_gdn_materialize(exec, &g, 1, -1, S, &err), TPW_ERR_ARGUMENT);
    layer_free(&g);
    tape_free(&t);
    tpw_host_destroy(exec);
}

/* Tokens [0, pos + 1 + accepted) of `truth`, then `others` tokens of junk. */
static void mix_drafts(tape *mix, const tape *truth, const tape *junk, int pos, int accepted, int rows)
{
    size_t qs = (size_t)(mix->s.hk * mix->s.dk), vs = (size_t)(mix->s.hv * mix->s.dv), hv = (size_t)mix->s.hv;
    for (int p = pos; p < pos + rows && p < mix->n; p++) {
        const tape *from = p <= pos + accepted ? truth : junk;
        memcpy(mix->q + (size_t)p * qs, from->q + (size_t)p * qs, qs * sizeof(float));
        memcpy(mix->k + (size_t)p * qs, from->k + (size_t)p * qs, qs * sizeof(float));
        memcpy(mix->v + (size_t)p * vs, from->v + (size_t)p * vs, vs * sizeof(float));
        memcpy(mix->decay + (size_t)p * hv, from->decay + (size_t)p * hv, hv * sizeof(float));
        memcpy(mix->beta + (size_t)p * hv, from->beta + (size_t)p * hv, hv * sizeof(float));
    }
}

/* One verify of `rows` rows of which `accepted` + 1 are true, checked, then committed. */
static int verify_once(tpw_exec *exec, tpw_gdn_state g, const tape *truth, const tape *junk, tape *mix, int pos,
                       int accepted, int rows, float *out)
{
    size_t vs = (size_t)(truth->s.hv * truth->s.dv), n = state_floats(truth->s);
    int mark = pos + 1 + accepted;
    tpw_error err = {0};
    mix_drafts(mix, truth, junk, pos, accepted, rows);
    step(exec, g, &(part){mix, pos, rows, 1, 1, out}, 1);
    expect_bits(out, truth->o + (size_t)pos * vs, (size_t)(accepted + 1) * vs, "o of accepted rows", pos);
    expect_bits(g.S + n, truth->S + (size_t)((pos + 1) / 16) * n, n, "S before the commit", pos);
    const int32_t taken = mark - pos;
    const tpw_segment segment = {.rows = rows, .rows_certain = 1, .slot = 1, .pos = pos};
    const tpw_batch batch = {.rows = rows, .segment_count = 1, .segments = &segment};
    tpw_delta_commit_args c = {.batch = &batch, .state = g, .taken = &taken};
    cr_assert_eq(exec->ops->delta_commit(exec, &c, &err), TPW_OK, "%s", err.text);
    expect_state(&g, 1, truth, mark);
    return mark;
}

Test(delta, rejected_rows_leave_no_trace)
{
    shape s = {1, 2, 24, 16, TPW_BF16};
    tape truth = tape_make(s, 80, 1), junk = tape_make(s, 80, 2), mix = tape_alloc(s, 80);
    tpw_exec *exec = open_best();
    float *out = floats(80 * 32);
    int compared = 0;
    for (int start = 16; start < 32; start++)
        for (int accepted = 0; accepted <= 8; accepted++) {
            tpw_gdn_state g = layer_make(s, 2);
            step(exec, g, &(part){&truth, 0, start, start, 1, out}, 1);
            int pos = verify_once(exec, g, &truth, &junk, &mix, start, accepted, 9, out);
            pos = verify_once(exec, g, &truth, &junk, &mix, pos, 8 - accepted, 9, out);
            step(exec, g, &(part){&truth, pos, 80 - pos, 80 - pos, 1, out}, 1);
            expect_bits(out, truth.o + (size_t)pos * 32, (size_t)(80 - pos) * 32, "o after", pos);
            expect_state(&g, 1, &truth, 80);
            layer_free(&g);
            compared++;
        }
    cr_assert_eq(compared, 144);
    free(out);
    tape_free(&truth), tape_free(&junk), tape_free(&mix);
    tpw_host_destroy(exec);
}

Test(delta, long_run_of_verifies_and_the_longest_ones)
{
    shape s = {2, 6, 24, 40, TPW_F32};
    tape truth = tape_make(s, 420, 3), junk = tape_make(s, 420, 4), mix = tape_alloc(s, 420);
    tpw_exec *exec = open_best();
    tpw_gdn_state g = layer_make(s, 2);
    float *out = floats(17 * 240);
    ops_random seed = {8};
    int pos = 0;
    while (pos < 400) {
        int rows = 1 + below(&seed, pos < 200 ? 9 : 17); /* 17 rows may end two chunks that are not certain */
        pos = verify_once(exec, g, &truth, &junk, &mix, pos, below(&seed, rows), rows, out);
    }
    layer_free(&g);
    free(out);
    tape_free(&truth), tape_free(&junk), tape_free(&mix);
    tpw_host_destroy(exec);
}

Test(delta, sequences_of_one_step_do_not_touch)
{
    shape s = {2, 4, 32, 24, TPW_BF16};
    tape a = tape_make(s, 120, 21), b = tape_make(s, 90, 22);
    tpw_exec *exec = open_best();
    tpw_gdn_state g = layer_make(s, 4);
    float *oa = floats(120 * 96), *ob = floats(90 * 96);
    ops_random seed = {6};
    for (int i = 0, j = 0; i < 120 || j < 90;) {
        part parts[2];
        int n = 0, ra = below(&seed, 30), rb = below(&seed, 24);
        ra = ra < 120 - i ? ra : 120 - i, rb = rb < 90 - j ? rb : 90 - j;
        if (rb > 0)
            parts[n++] = (part){&b, j, rb, rb, 1, ob + j * 96};
        if (ra > 0)
            parts[n++] = (part){&a, i, ra, ra, 3, oa + i * 96};
        if (n > 0)
            step(exec, g, parts, n);
        i += ra, j += rb;
    }
    expect_bits(oa, a.o, 120 * 96, "o of a", 0);
    expect_bits(ob, b.o, 90 * 96, "o of b", 0);
    expect_state(&g, 3, &a, 120);
    expect_state(&g, 1, &b, 90);
    cr_assert(isnan(g.S[2 * state_floats(s)]) && isnan(g.S[0]), "an idle slot was written");
    layer_free(&g);
    free(oa), free(ob);
    tape_free(&a), tape_free(&b);
    tpw_host_destroy(exec);
}

/* A state larger than the scratch is done in blocks of columns; columns do not depend on each other. */
Test(delta, columns_in_blocks)
{
    shape wide = {1, 1, 1100, 2000, TPW_F32}, narrow = {1, 1, 1100, 30, TPW_F32};
    tape w = tape_alloc(wide, 4), n = tape_alloc(narrow, 4);
    tape_fill(&w, 31);
    memcpy(n.q, w.q, sizeof(float) * 4 * 1100), memcpy(n.k, w.k, sizeof(float) * 4 * 1100);
    memcpy(n.decay, w.decay, sizeof(float) * 4), memcpy(n.beta, w.beta, sizeof(float) * 4);
    for (int p = 0; p < 4; p++)
        memcpy(n.v + p * 30, w.v + p * 2000 + 1890,
               sizeof(float) * 30); /* across the edge of a block: 8 MiB hold 1903 columns */
    model_head(&n, 0);
    tpw_exec *exec = open_best();
    tpw_gdn_state g = layer_make(wide, 2);
    float *out = floats(4 * 2000);
    step(exec, g, &(part){&w, 0, 4, 4, 1, out}, 1);
    for (int p = 0; p < 4; p++)
        expect_bits(out + p * 2000 + 1890, n.o + p * 30, 30, "o", p);
    layer_free(&g);
    free(out);
    tape_free(&w), tape_free(&n);
    tpw_host_destroy(exec);
}

/* Three tokens of one 2x2 head, worked out in double to nine digits. */
Test(delta, worked_example)
{
    static const float q[3][2] = {{1, 2}, {0.5f, -1}, {-2, 1}}, k[3][2] = {{2, 1}, {1, 3}, {-1, 0.5f}};
    static const float v[3][2] = {{1, -1}, {0.5f, 2}, {3, 0.25f}};
    static const double g[3] = {-1.023785093, -0.692554167, -3.149427189},
                        beta[3] = {0.574442517, 0.450166003, 0.817574476};
    static const double u[3][2] = {{0.574442517, -0.574442517}, {0.133601822, 0.991813184}, {2.458105781, 0.193432014}};
    static const double o[3][2] = {
        {0.324953694, -0.324953694}, {-0.066800881, -0.495906369}, {1.733487288, 0.146257536}};
    static const double S_end[4] = {-2.185762802, -0.170584479, 1.110243068, 0.121338026};
    tape t = tape_alloc((shape){1, 1, 2, 2, TPW_F32}, 3);
    for (int p = 0; p < 3; p++)
        for (int d = 0; d < 2; d++) {
            t.q[2 * p + d] = (float)(q[p][d] / sqrt(q[p][0] * q[p][0] + q[p][1] * q[p][1] + 1e-6) / sqrt(2.0));
            t.k[2 * p + d] = (float)(k[p][d] / sqrt(k[p][0] * k[p][0] + k[p][1] * k[p][1] + 1e-6));
            t.v[2 * p + d] = v[p][d];
            t.decay[p] = (float)exp(g[p]), t.beta[p] = (float)beta[p];
        }
    tpw_exec *exec = open_best();
    tpw_gdn_state layer = layer_make(t.s, 2);
    float out[6], S[4];
    step(exec, layer, &(part){&t, 0, 3, 3, 1, out}, 1);
    cr_assert_eq(tpw_gdn_materialize(exec, &layer, 1, 3, S, NULL), TPW_OK);
    for (int i = 0; i < 6; i++) {
        cr_expect_float_eq(out[i], o[i / 2][i % 2], 5e-7, "o[%d] is %.9f", i, (double)out[i]);
        cr_expect_float_eq(layer.u[(32 + i / 2) * 2 + i % 2], u[i / 2][i % 2], 5e-7, "u[%d]", i);
    }
    for (int i = 0; i < 4; i++)
        cr_expect_float_eq(S[i], S_end[i], 5e-7, "S[%d] is %.9f", i, (double)S[i]);
    layer_free(&layer);
    tape_free(&t);
    tpw_host_destroy(exec);
}

Test(delta, what_cannot_be_done_is_refused)
{
    shape s = {1, 2, 8, 8, TPW_F32};
    tape t = tape_make(s, 64, 1);
    tpw_exec *exec = open_best();
    tpw_gdn_state g = layer_make(s, 3);
    float out[64 * 16];
    tpw_error err;
    cr_assert_eq(try_step(exec, g, &(part){&t, 0, 4, 4, 0, out}, 1, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "slot 0"));
    cr_assert_eq(try_step(exec, g, &(part){&t, 0, 4, 4, 3, out}, 1, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(try_step(exec, g, &(part){&t, 0, 18, 1, 1, out}, 1, &err), TPW_ERR_UNSUPPORTED);
    cr_assert_not_null(strstr(err.text, "18 rows of which 1"));
    cr_assert_eq(try_step(exec, g, &(part){&t, 0, 4, 5, 1, out}, 1, NULL), TPW_ERR_UNSUPPORTED);
    g.v_heads = 3, g.k_heads = 2;
    cr_assert_eq(try_step(exec, g, &(part){&t, 0, 4, 4, 1, out}, 1, &err), TPW_ERR_UNSUPPORTED);
    g.v_heads = 2, g.k_heads = 1;
    tpw_segment segment = {.rows = 9, .rows_certain = 2, .slot = 1, .pos = 14};
    const tpw_batch batch = {.rows = 9, .segment_count = 1, .segments = &segment};
    int32_t taken = 1;
    tpw_delta_commit_args c = {.batch = &batch, .state = g, .taken = &taken};
    cr_assert_eq(exec->ops->delta_commit(exec, &c, &err), TPW_ERR_ARGUMENT);
    taken = 10;
    cr_assert_eq(exec->ops->delta_commit(exec, &c, &err), TPW_ERR_ARGUMENT);
    taken = 5, segment.slot = 0;
    cr_assert_eq(exec->ops->delta_commit(exec, &c, &err), TPW_ERR_ARGUMENT);
    segment.slot = 1, segment.rows = 40;
    cr_assert_eq(exec->ops->delta_commit(exec, &c, &err), TPW_ERR_UNSUPPORTED);
    cr_assert(isnan(g.S[0]) && isnan(g.S[state_floats(s)]), "a refused call wrote");
    layer_free(&g);
    tape_free(&t);
    tpw_host_destroy(exec);
}
