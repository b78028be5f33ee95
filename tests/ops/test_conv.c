/* The convolution: bits against the plain formula for every cut, the ring, rejected rows, blocks of channels.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/elementary.h"
#include "ops_test.h"

#define PAD 3

/* One sequence: inputs in act (raw), taps, and the outputs of the formula (raw). */
typedef struct tape {
    int n, channels, width;
    tpw_dtype act;
    unsigned char *x, *y;
    float *weight;
} tape;

static tpw_exec *open_best(void)
{
    tpw_exec *exec = NULL;
    cr_assert_eq(tpw_host_create("auto", &exec, NULL), TPW_OK);
    return exec;
}

static int below(ops_random *seed, int n)
{
    return (int)(ops_next(seed) % (uint64_t)n);
}

static void *bytes(size_t n)
{
    void *p = malloc(n ? n : 1);
    cr_assert_not_null(p);
    memset(p, 0xFF, n); /* NaN in every type */
    return p;
}

static size_t size_of(tpw_dtype dtype)
{
    return dtype == TPW_BF16 ? 2 : 4;
}

static float get(const void *p, tpw_dtype dtype, size_t i)
{
    return dtype == TPW_BF16 ? tpw_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static void put(void *p, tpw_dtype dtype, size_t i, float value)
{
    if (dtype == TPW_BF16)
        ((uint16_t *)p)[i] = tpw_bf16_from_f32(value);
    else
        ((float *)p)[i] = value;
}

static tape tape_make(int n, int channels, int width, tpw_dtype act, uint64_t start)
{
    ops_random seed = {start};
    size_t cells = (size_t)n * (size_t)channels;
    tape t = {n,
              channels,
              width,
              act,
              bytes(cells * size_of(act)),
              bytes(cells * size_of(act)),
              bytes(sizeof(float) * (size_t)channels * (size_t)width)};
    for (size_t i = 0; i < cells; i++)
        put(t.x, act, i, 3.0f * ops_uniform(&seed));
    ops_random taps = {99}; /* the same for every tape, since the sequences of a step share them */
    for (int i = 0; i < channels * width; i++)
        t.weight[i] = ops_uniform(&taps);
    for (int p = 0; p < n; p++)
        for (int c = 0; c < channels; c++) {
            float sum = 0.0f;
            for (int i = 0; i < width; i++) {
                int at = p - (width - 1) + i;
                float x = at < 0 ? 0.0f : get(t.x, act, (size_t)at * (size_t)channels + (size_t)c);
                sum = fmaf(t.weight[c * width + i], x, sum);
            }
            double exact = (double)sum / (1.0 + exp(-(double)sum));
            cr_assert_float_eq(tpw_silu(sum), exact, 1e-6 * fabs(exact) + 1e-30);
            put(t.y, act, (size_t)p * (size_t)channels + (size_t)c, tpw_silu(sum));
        }
    return t;
}

static void tape_free(tape *t)
{
    free(t->x), free(t->y), free(t->weight);
}

static tpw_conv_state state_make(const tape *t, int slots)
{
    tpw_conv_state s = {.dtype = t->act, .slots = slots, .channels = t->channels};
    s.x = bytes((size_t)slots * TPW_CONV_RING * (size_t)t->channels * size_of(t->act));
    return s;
}

/* Tokens [pos, pos + rows) of a tape; rows from `rejected` on are read from position `junk` of the tape instead. */
typedef struct part {
    const tape *t;
    int pos, rows, certain, slot, rejected, junk;
} part;

static tpw_status try_step(tpw_exec *exec, tpw_conv_state state, const part *parts, int n, bool in_place,
                           tpw_error *err)
{
    const tape *t = parts[0].t;
    size_t size = size_of(t->act), row_bytes = (size_t)t->channels * size, stride = (size_t)(t->channels + PAD);
    tpw_segment segments[4];
    tpw_batch batch = {.segment_count = n, .segments = segments};
    for (int i = 0; i < n; i++) {
        segments[i] = (tpw_segment){.row0 = batch.rows,
                                    .rows = parts[i].rows,
                                    .rows_certain = parts[i].certain,
                                    .slot = parts[i].slot,
                                    .pos = parts[i].pos};
        batch.rows += parts[i].rows;
    }
    unsigned char *x = bytes((size_t)batch.rows * stride * size),
                  *y = in_place ? x : bytes((size_t)batch.rows * stride * size);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < parts[i].rows; r++) {
            int at = r < parts[i].rejected ? parts[i].pos + r : parts[i].junk;
            memcpy(x + (size_t)(segments[i].row0 + r) * stride * size, parts[i].t->x + (size_t)at * row_bytes,
                   row_bytes);
        }
    tpw_mat mx = {x, t->act, batch.rows, t->channels, (int64_t)stride},
            my = {y, t->act, batch.rows, t->channels, (int64_t)stride};
    tpw_conv_args a = {.batch = &batch, .x = mx, .weight = t->weight, .width = t->width, .state = state, .y = my};
    tpw_status st = exec->ops->conv(exec, &a, err);
    for (int i = 0; i < n && st == TPW_OK; i++)
        for (int r = 0; r < parts[i].rows; r++) {
            const unsigned char *got = y + (size_t)(segments[i].row0 + r) * stride * size;
            const unsigned char *want = parts[i].t->y + (size_t)(parts[i].pos + r) * row_bytes;
            if (r < parts[i].rejected)
                cr_assert(memcmp(got, want, row_bytes) == 0, "outputs of position %d differ from the formula",
                          parts[i].pos + r);
            for (size_t b = 0; b < PAD * size; b++)
                cr_assert_eq(got[row_bytes + b], 0xFF, "padding of y was written");
        }
    free(x);
    if (!in_place)
        free(y);
    return st;
}

static void step(tpw_exec *exec, tpw_conv_state state, const part *parts, int n)
{
    tpw_error err = {0};
    cr_assert_eq(try_step(exec, state, parts, n, false, &err), TPW_OK, "%s", err.text);
}

static part certain(const tape *t, int pos, int rows, int slot)
{
    return (part){t, pos, rows, rows, slot, rows, 0};
}

/* The ring holds the raw inputs of the last positions that later rows may ask for. */
static void expect_ring(const tpw_conv_state *state, int slot, const tape *t, int mark, int count)
{
    size_t row = (size_t)t->channels * size_of(t->act);
    for (int p = mark - count > 0 ? mark - count : 0; p < mark; p++)
        cr_assert(memcmp((unsigned char *)state->x + (size_t)(slot * TPW_CONV_RING + p % TPW_CONV_RING) * row,
                         t->x + (size_t)p * row, row) == 0,
                  "ring of slot %d lacks position %d", slot, p);
}

Test(conv, any_cut_gives_the_bits_of_the_formula)
{
    static const int cuts[] = {130, 1, 2, 3, 5, 15, 16, 17, 40, 0}, widths[] = {2, 3, 4, 5, 8},
                     channels[] = {1, 7, 33, 128, 48};
    ops_random seed = {4};
    int compared = 0;
    for (int e = 0; e < OPS_ISAS; e++) {
        tpw_exec *exec = ops_exec(e);
        for (int i = 0; exec && i < 10; i++) {
            tape t = tape_make(130, channels[i % 5], widths[i % 5], i < 5 ? TPW_BF16 : TPW_F32, (uint64_t)i);
            for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
                tpw_conv_state state = state_make(&t, 3);
                for (int pos = 0, rows; pos < t.n; pos += rows) {
                    rows = cuts[c] ? cuts[c] : 1 + below(&seed, 25);
                    rows = rows < t.n - pos ? rows : t.n - pos;
                    step(exec, state, &(part){&t, pos, rows, rows, 1, rows, 0}, 1);
                    expect_ring(&state, 1, &t, pos + rows, rows < t.width ? t.width - 1 : rows < 16 ? rows : 16);
                    compared++;
                }
                cr_assert(isnan(get(state.x, t.act, 0)), "slot 0 was written");
                cr_assert(isnan(get(state.x, t.act, (size_t)(2 * TPW_CONV_RING * t.channels))), "slot 2 was written");
                free(state.x);
            }
            tape_free(&t);
        }
        tpw_host_destroy(exec);
    }
    cr_assert_gt(compared, 1000);
}

Test(conv, rejected_rows_leave_no_trace)
{
    tpw_exec *exec = open_best();
    int compared = 0;
    for (int width = 4; width <= 8; width += 4) {
        tape t = tape_make(70, 20, width, TPW_BF16, 3);
        for (int start = 16; start < 32; start++)
            for (int accepted = 0; accepted <= 8; accepted++) {
                tpw_conv_state state = state_make(&t, 2);
                step(exec, state, &(part){&t, 0, start, start, 1, start, 0}, 1);
                step(exec, state, &(part){&t, start, 9, 1, 1, accepted + 1, 60 + accepted}, 1);
                int pos = start + accepted + 1;
                expect_ring(&state, 1, &t, pos, width - 1);
                step(exec, state, &(part){&t, pos, 9, 1, 1, 9 - accepted, 50}, 1);
                pos += 9 - accepted;
                step(exec, state, &(part){&t, pos, t.n - pos, t.n - pos, 1, t.n, 0}, 1);
                free(state.x);
                compared++;
            }
        tape_free(&t);
    }
    cr_assert_eq(compared, 2 * 16 * 9);
    tpw_host_destroy(exec);
}

Test(conv, sequences_of_one_step_do_not_touch)
{
    tape a = tape_make(60, 24, 4, TPW_F32, 1), b = tape_make(60, 24, 4, TPW_F32, 2);
    tpw_exec *exec = open_best();
    tpw_conv_state both = state_make(&a, 4);
    ops_random seed = {3};
    for (int i = 0, j = 0; i < 60;) {
        int ra = 1 + below(&seed, 9), rb = 1 + below(&seed, 9);
        ra = ra < 60 - i ? ra : 60 - i, rb = rb < 60 - j ? rb : 60 - j;
        part parts[2] = {certain(&a, i, ra, 3), certain(&b, j, rb, 1)};
        step(exec, both, parts, rb > 0 ? 2 : 1);
        i += ra, j += rb;
    }
    expect_ring(&both, 3, &a, 60, 3);
    expect_ring(&both, 1, &b, 60, 3);
    free(both.x);
    tape_free(&a), tape_free(&b);
    tpw_host_destroy(exec);
}

Test(conv, in_place_and_in_blocks_of_channels)
{
    tape t = tape_make(20, 50, 4, TPW_BF16, 8), wide = tape_make(3, 150000, 8, TPW_F32, 9);
    tpw_exec *exec = open_best();
    tpw_conv_state state = state_make(&t, 2), wide_state = state_make(&wide, 2);
    part whole = certain(&t, 0, 20, 1), two = certain(&wide, 0, 2, 1), third = certain(&wide, 2, 1, 1);
    cr_assert_eq(try_step(exec, state, &whole, 1, true, NULL), TPW_OK);
    expect_ring(&state, 1, &t, 20, 16);
    step(exec, wide_state, &two, 1);
    step(exec, wide_state, &third, 1);
    free(state.x), free(wide_state.x);
    tape_free(&t), tape_free(&wide);
    tpw_host_destroy(exec);
}

Test(conv, what_cannot_be_done_is_refused)
{
    tape t = tape_make(20, 4, 4, TPW_F32, 8);
    tpw_exec *exec = open_best();
    tpw_conv_state state = state_make(&t, 2);
    tpw_error err;
    part p = certain(&t, 0, 5, 0);
    cr_assert_eq(try_step(exec, state, &p, 1, false, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "slot 0"));
    p.slot = 2;
    cr_assert_eq(try_step(exec, state, &p, 1, false, &err), TPW_ERR_ARGUMENT);
    p = (part){&t, 0, 15, 1, 1, 15, 0};
    cr_assert_eq(try_step(exec, state, &p, 1, false, &err), TPW_ERR_UNSUPPORTED);
    cr_assert_not_null(strstr(err.text, "15 rows of which 1"));
    p.rows = 14;
    cr_assert_eq(try_step(exec, state, &p, 1, false, &err), TPW_OK);
    t.width = 9;
    cr_assert_eq(try_step(exec, state, &p, 1, false, &err), TPW_ERR_UNSUPPORTED);
    t.width = 1;
    cr_assert_eq(try_step(exec, state, &p, 1, false, NULL), TPW_ERR_UNSUPPORTED);
    t.width = 4, state.dtype = TPW_BF16;
    cr_assert_eq(try_step(exec, state, &p, 1, false, &err), TPW_ERR_UNSUPPORTED);
    state.dtype = TPW_F32, state.channels = 3;
    cr_assert_eq(try_step(exec, state, &p, 1, false, &err), TPW_ERR_ARGUMENT);
    free(state.x);
    tape_free(&t);
    tpw_host_destroy(exec);
}
