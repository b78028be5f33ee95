/* The ops of the Gated DeltaNet layer on the GPU against the host backend, bit for bit: cuts, alignments, rejected
 * rows, rings, poisoned slots. SPDX-License-Identifier: Apache-2.0 */
#include "gdn_case.h"
#include "kernels/cuda/exec.h"

TestSuite(gpu_gdn, .timeout = 280);

static const tpw_dtype acts[] = {TPW_F32, TPW_BF16};
static const int heads[][2] = {{16, 48}, {8, 24}, {4, 12}, {2, 6}};

#define HEAD_COUNTS (int)(sizeof heads / sizeof *heads)

static size_t out_bytes(shape s, int n)
{
    return (size_t)n * (size_t)(s.hv * s.dv) * tpw_dtype_size(s.act);
}

static void expect_bytes(const unsigned char *got, const unsigned char *want, size_t bytes, const char *what)
{
    size_t i = 0;
    if (memcmp(got, want, bytes) != 0) {
        while (got[i] == want[i])
            i++;
        cr_assert_fail("%s: byte %zu of %zu differs", what, i, bytes);
    }
    twin_bytes_compared += bytes;
}

/* A prompt of some rows behind a first piece, which leaves a state and rows in the ring; and one from position 0. */
static void check_rows(shape s, int before, int rows)
{
    char what[80];
    snprintf(what, sizeof what, "%d/%d heads, %d rows after %d", s.hk, s.hv, rows, before);
    tape t = tape_inputs(s, before + rows, (uint64_t)(rows * 64 + s.hv));
    layer l = layer_make(s, 4);
    if (before > 0)
        step(&l, &(part){.t = &t, .rows = before, .certain = before, .slot = 2}, 1, 0);
    step(&l, &(part){.t = &t, .pos = before, .rows = rows, .certain = rows, .slot = 2}, 1, 0);
    layer_end(&l, 1u << 2, what);
    tape_free(&t);
}

Test(gpu_gdn, delta_of_every_head_count_and_row_count)
{
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 63, 64, 65, 127, 137, 1023, 1029};
    open_both();
    for (int i = 0; i < HEAD_COUNTS; i++)
        for (int n = 0; n < (int)(sizeof rows / sizeof *rows); n++) {
            const shape s = {heads[i][0], heads[i][1], 128, 128, acts[(n + i) % 2]};
            check_rows(s, n % 4 == 3 ? 0 : 16 * (n % 3) + (3 * n + i) % 16, rows[n]);
        }
    close_both(800u << 20);
}

/* Dims that fill no register tile, no row of columns, no 16 bytes. */
Test(gpu_gdn, delta_of_any_dims)
{
    const shape shapes[] = {{2, 2, 32, 32, TPW_F32},   {1, 2, 64, 128, TPW_BF16}, {2, 6, 24, 40, TPW_F32},
                            {1, 4, 128, 64, TPW_BF16}, {1, 8, 33, 17, TPW_BF16},  {1, 3, 7, 50, TPW_F32},
                            {1, 1, 1, 1, TPW_F32},     {1, 2, 250, 36, TPW_BF16}, {3, 3, 130, 33, TPW_F32},
                            {1, 1, 512, 8, TPW_F32},   {1, 70, 16, 64, TPW_BF16}};
    open_both();
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
        for (int odd = 0; odd < 2; odd++) {
            ops_random seed = {(uint64_t)i};
            const int n = 150;
            tape t = tape_inputs(shapes[i], n, 40 + (uint64_t)i);
            layer l = layer_make(shapes[i], 3);
            for (int pos = 0, rows; pos < n; pos += rows) {
                rows = 1 + below(&seed, 45);
                rows = rows < n - pos ? rows : n - pos;
                step(&l, &(part){.t = &t, .pos = pos, .rows = rows, .certain = rows, .slot = 1}, 1, odd);
            }
            layer_end(&l, 1u << 1, "dims");
            tape_free(&t);
        }
    close_both(1u << 20);
}

/* The bytes of o and of S must be those of the whole tape at once, however it is cut; 0: at random. */
Test(gpu_gdn, any_cut_gives_the_same_bits)
{
    static const int cuts[] = {0, 1, 7, 16, 17, 33, 64};
    const shape shapes[] = {{2, 6, 128, 128, TPW_BF16}, {1, 3, 128, 128, TPW_F32}};
    const int n = 331;
    open_both();
    for (int i = 0; i < 2; i++) {
        const shape s = shapes[i];
        const size_t bytes = out_bytes(s, n), each = bytes / (size_t)n, S = state_floats(s) * sizeof(float);
        unsigned char *whole = gpu_host_alloc(bytes), *cut = gpu_host_alloc(bytes), *end = gpu_host_alloc(S);
        tape t = tape_inputs(s, n, 7 + (uint64_t)i);
        layer l = layer_make(s, 2);
        step(&l, &(part){.t = &t, .rows = n, .certain = n, .slot = 1, .out = whole}, 1, 0);
        memcpy(end, (char *)l.h.S + S, S);
        layer_end(&l, 1u << 1, "the whole tape");
        for (int c = 0; c < (int)(sizeof cuts / sizeof *cuts); c++) {
            ops_random seed = {99};
            l = layer_make(s, 2);
            for (int pos = 0, rows; pos < n; pos += rows) {
                rows = cuts[c] > 0 ? cuts[c] : 1 + below(&seed, 40);
                rows = rows < n - pos ? rows : n - pos;
                step(&l, &(part){&t, pos, rows, rows, 1, cut + (size_t)pos * each, NULL, 0}, 1, 0);
            }
            expect_bytes(cut, whole, bytes, "o of a cut tape");
            expect_bytes((unsigned char *)l.h.S + S, end, S, "S of a cut tape");
            layer_end(&l, 1u << 1, "a cut tape");
        }
        tape_free(&t);
        free(whole), free(cut), free(end);
    }
    close_both(8u << 20);
}

/* A step of certain rows and drafts, of which some are accepted; then the sequence goes on. What was rejected leaves no
 * trace: o afterwards is that of the tape. */
static void check_rejected(const tape *t, const tape *junk, const unsigned char *want, int pos, int certain, int drafts,
                           int accepted, int odd)
{
    const shape s = t->s;
    const int mark = pos + certain + accepted, after = 3 + pos % 16;
    const size_t each = out_bytes(s, 1);
    unsigned char *out = gpu_host_alloc(out_bytes(s, certain + drafts + after));
    layer l = layer_make(s, 3);
    if (pos > 0)
        step(&l, &(part){.t = t, .rows = pos, .certain = pos, .slot = 2}, 1, odd);
    step(&l, &(part){t, pos, certain + drafts, certain, 2, out, junk, certain + accepted}, 1, odd);
    expect_bytes(out, want + (size_t)pos * each, (size_t)(certain + accepted) * each, "rows with drafts behind them");
    layer_check(&l, "before the commit");
    commit(&l, 2, pos + certain, mark);
    layer_check(&l, "after the commit");
    step(&l, &(part){t, mark, after, after, 2, out, NULL, 0}, 1, odd);
    expect_bytes(out, want + (size_t)mark * each, (size_t)after * each, "rows after a commit");
    layer_end(&l, 1u << 2, "rejected rows");
    free(out);
}

Test(gpu_gdn, rejected_rows_leave_no_trace_at_any_alignment)
{
    static const int certain[] = {1, 1, 1, 9, 17, 18, 31, 50, 1, 0}, drafts[] = {0, 3, 8, 7, 1, 16, 16, 16, 16, 4};
    const shape s = {1, 3, 128, 128, TPW_BF16};
    const int n = 160;
    open_both();
    tape t = tape_inputs(s, n, 21), junk = tape_inputs(s, n, 22);
    unsigned char *want = gpu_host_alloc(out_bytes(s, n));
    layer l = layer_make(s, 2);
    step(&l, &(part){.t = &t, .rows = n, .certain = n, .slot = 1, .out = want}, 1, 0);
    layer_end(&l, 1u << 1, "the tape");
    int cases = 0;
    for (int pos = 0; pos < 48; pos++)
        for (int i = 0; i < 10; i++)
            if (pos < 16 || (pos + i) % 3 == 0) {
                const int d = drafts[i], accepted = (pos * 5 + i) % (d + 1);
                check_rejected(&t, &junk, want, pos, certain[i], d, accepted, pos % 5 == 1);
                if (pos >= 9 && pos < 16) /* all, across a multiple of 16 */
                    check_rejected(&t, &junk, want, pos, certain[i], d, d, 0);
                cases++;
            }
    cr_assert_geq(cases, 16 * 10 + 32 * 3);
    tape_free(&t), tape_free(&junk);
    free(want);
    close_both(100u << 20);
}

/* Any state, any distance that a verify may have: no multiple of 16, and one. */
Test(gpu_gdn, commits_of_any_distance)
{
    static const int moves[][2] = {{5, 15}, {0, 16}, {15, 16}, {15, 31}, {48, 64}, {63, 79}, {32, 48}, {33, 33}};
    const shape shapes[] = {{2, 6, 128, 128, TPW_F32}, {1, 8, 33, 17, TPW_F32}, {1, 3, 7, 50, TPW_F32}};
    open_both();
    for (int n = 0; n < 8 * 3; n++) {
        ops_random r = {(uint64_t)n};
        layer l = layer_make(shapes[n / 8], 3);
        for (int i = 0; i < 4; i++) {
            float *x = (float *)(void *)l.part[i].host;
            for (size_t at = 0; at < l.part[i].bytes / sizeof(float); at++)
                x[at] = ops_uniform(&r);
            GPU_OK(gpu->device->upload(gpu, l.part[i].device, x, l.part[i].bytes, err));
        }
        commit(&l, 1 + n % 2, moves[n % 8][0], moves[n % 8][1]);
        for (int i = 0; i < 4; i++)
            twin_end(&l.part[i], "a commit");
    }
    close_both(10u << 20);
}

/* Sequences that prefill, decode, verify and end in one batch, at random; a slot is taken again uncleared. */
Test(gpu_gdn, many_segments_of_all_kinds)
{
    enum { SLOTS = PARTS_MAX, N = 400, ROUNDS = 120 };
    const shape s = {2, 6, 128, 128, TPW_BF16};
    open_both();
    ops_random seed = {5};
    tape t[SLOTS], junk = tape_inputs(s, N, 1000);
    int pos[SLOTS] = {0}, long_ones = 0, drafts = 0;
    for (int i = 0; i < SLOTS; i++)
        t[i] = tape_inputs(s, N, 50 + (uint64_t)i);
    layer l = layer_make(s, SLOTS + 2);
    for (int round = 0; round < ROUNDS; round++) {
        part parts[PARTS_MAX];
        int n = 0, accepted[PARTS_MAX];
        for (int i = 0; i < SLOTS; i++) {
            const int kind = below(&seed, 5);
            int rows = kind == 0 ? 1 : kind == 1 ? 1 + below(&seed, 9) : kind == 2 ? 1 + below(&seed, 120) : 0;
            if (pos[i] + rows >= N - 10)
                pos[i] = 0; /* a new sequence */
            if (rows == 0)
                continue;
            const int certain = kind == 1 ? 1 : rows - below(&seed, rows < 17 ? rows : 17);
            accepted[n] = below(&seed, rows - certain + 1);
            parts[n] = (part){&t[i], pos[i], rows, certain, i + 1, NULL, &junk, certain + accepted[n]};
            long_ones += rows > 17, drafts += certain < rows;
            n++;
        }
        if (n == 0)
            continue;
        step(&l, parts, n, 0);
        tpw_segment segments[PARTS_MAX];
        int32_t taken[PARTS_MAX];
        (void)batch_of(parts, n, segments);
        for (int i = 0; i < n; i++) {
            taken[i] = parts[i].certain + accepted[i];
            pos[parts[i].slot - 1] = parts[i].pos + taken[i];
        }
        commit_segments(&l, segments, n, taken);
        if (round % 8 == 7)
            layer_check(&l, "many segments");
    }
    cr_assert(long_ones >= 50 && drafts >= 100, "%d long segments, %d with drafts", long_ones, drafts);
    layer_end(&l, (1u << (SLOTS + 1)) - 2u, "many segments");
    for (int i = 0; i < SLOTS; i++)
        tape_free(&t[i]);
    tape_free(&junk);
    close_both(50u << 20);
}

/* Without scratch for the products, without room for two stages, without programmatic launch: the same bits. */
Test(gpu_gdn, delta_on_other_paths)
{
    const shape s = {2, 6, 128, 128, TPW_BF16};
    open_both();
    tpw_cuda *inner = tpw_cuda_of(gpu);
    const size_t scratch = inner->scratch_bytes, shared = inner->shared_bytes;
    inner->scratch_bytes = 1000;
    check_rows(s, 21, 200);
    inner->shared_bytes = 50000;
    check_rows(s, 5, 200);
    inner->scratch_bytes = scratch;
    check_rows(s, 11, 200);
    inner->shared_bytes = shared;
    close_both(10u << 20);
    open_both_with((tpw_cuda_options){.no_pdl = true});
    check_rows(s, 21, 200);
    check_rows(s, 3, 9);
    close_both(4u << 20);
}

/* Conv steps of several segments; the ring is compared with all its slots. */
typedef struct conv_case {
    int channels, width;
    tpw_dtype act;
    bool in_place;
} conv_case;

static void conv_step(const conv_case *c, const twin_mat *weight, const tpw_conv_state state[2], const part *parts,
                      int n, ops_random *r)
{
    tpw_segment segments[PARTS_MAX];
    const tpw_batch batch = batch_of(parts, n, segments);
    const int pad = (int)(ops_next(r) % 4);
    twin_mat x = twin_mat_make(c->act, batch.rows, c->channels, pad, pad % 2),
             y = twin_mat_make(c->act, batch.rows, c->channels, pad * 2, pad / 2);
    ops_fill(&x.h, r, 3.0f);
    twin_mat_send(&x);
    twin_mat_send(&y);
    const tpw_conv_args h = {&batch, x.h, weight->h.data, c->width, state[0], c->in_place ? x.h : y.h};
    const tpw_conv_args d = {&batch, x.d, weight->d.data, c->width, state[1], c->in_place ? x.d : y.d};
    GPU_OK(gpu->device->stage(gpu, &batch, 16, err));
    BOTH(conv, h, d);
    char what[80];
    snprintf(what, sizeof what, "conv of %d channels, width %d%s", c->channels, c->width,
             c->in_place ? ", in place" : "");
    twin_end(&x.block, what);
    twin_end(&y.block, what);
}

static void check_conv(const conv_case *c, int steps)
{
    enum { SLOTS = 6 };
    const size_t each = (size_t)c->channels * TPW_CONV_RING * tpw_dtype_size(c->act);
    ops_random r = {(uint64_t)(c->channels * 10 + c->width)};
    twin_mat weight = twin_mat_make(TPW_F32, 1, c->channels * c->width, 0, 0);
    ops_fill(&weight.h, &r, 1.0f);
    twin_mat_send(&weight);
    twin ring = twin_make(each * (SLOTS + 1));
    twin_send(&ring);
    const tpw_conv_state state[] = {{ring.host, c->act, SLOTS + 1, c->channels},
                                    {ring.device, c->act, SLOTS + 1, c->channels}};
    int pos[SLOTS] = {0};
    for (int k = 0; k < steps; k++) {
        part parts[PARTS_MAX];
        int n = 0;
        for (int i = 0; i < SLOTS - 1; i++) { /* the last slot is never used */
            static const int rows[] = {1, 0, 2, 9, 5, 16, 0, 17, 40, 3, 13, 64, 4, 7};
            const int m = rows[(k * 3 + i * 5) % 14], others = 16 - (c->width - 1) < m ? 16 - (c->width - 1) : m;
            if (m == 0)
                continue;
            const int certain = m - (int)(ops_next(&r) % (uint64_t)(others + 1));
            parts[n++] = (part){.pos = pos[i], .rows = m, .certain = certain, .slot = i + 1};
            pos[i] = pos[i] > 90 ? 0 : pos[i] + certain;
        }
        conv_step(c, &weight, state, parts, n, &r);
    }
    expect_poison(ring.host, each, "slot 0");
    expect_poison(ring.host + SLOTS * each, each, "a slot that no segment names");
    twin_end(&ring, "ring");
    twin_end(&weight.block, "weight");
}

Test(gpu_gdn, conv_of_every_width)
{
    static const int channels[] = {1, 96, 130, 1280};
    open_both();
    for (int width = 2; width <= 8; width++)
        for (int i = 0; i < 4 * 2 * 2; i++) {
            const conv_case c = {channels[i % 4], width, acts[i / 4 % 2], i >= 8};
            check_conv(&c, 14);
        }
    const conv_case real[] = {{10240, 4, TPW_BF16, false}, {2560, 4, TPW_BF16, false}, {10240, 4, TPW_F32, true}};
    for (int i = 0; i < 3; i++)
        check_conv(&real[i], 6);
    close_both(60u << 20);
}

/* Rows by the thousand, many a thread. Each slot goes on where it was: what was never written is NaN, and backends have NaNs of
 * their own. */
Test(gpu_gdn, conv_of_long_prompts)
{
    static const int rows[] = {1023, 1029, 300, 1};
    open_both();
    for (int act = 0; act < 2; act++) {
        const conv_case c = {5120, 4, acts[act], false};
        const size_t each = (size_t)c.channels * TPW_CONV_RING * tpw_dtype_size(c.act);
        ops_random r = {77};
        twin_mat weight = twin_mat_make(TPW_F32, 1, c.channels * c.width, 0, 0);
        ops_fill(&weight.h, &r, 1.0f);
        twin_mat_send(&weight);
        twin ring = twin_make(each * 4);
        twin_send(&ring);
        const tpw_conv_state state[] = {{ring.host, c.act, 4, c.channels}, {ring.device, c.act, 4, c.channels}};
        int pos = 0, other = 0;
        for (int k = 0; k < 4; k++) {
            const part parts[] = {{.pos = pos, .rows = rows[k], .certain = rows[k], .slot = 1},
                                  {.pos = other, .rows = rows[3 - k], .certain = rows[3 - k], .slot = 3},
                                  {.pos = 0, .rows = 700, .certain = 700, .slot = 2}};
            conv_step(&c, &weight, state, parts, 3, &r);
            pos += rows[k];
            other += rows[3 - k];
        }
        expect_poison(ring.host, each, "slot 0");
        twin_end(&ring, "ring");
        twin_end(&weight.block, "weight");
    }
    close_both(100u << 20);
}

Test(gpu_gdn, gates)
{
    static const int rows[] = {1, 2, 7, 64, 300}, widths[] = {1, 6, 12, 24, 48, 67};
    open_both();
    for (int n = 0; n < 5 * 6 * 2; n++) {
        const int M = rows[n % 5], hv = widths[n / 5 % 6], odd = n / 30;
        ops_random r = {(uint64_t)n};
        twin_mat a = twin_mat_make(TPW_F32, M, hv, odd, odd), b = twin_mat_make(TPW_F32, M, hv, 2 * odd, 0),
                 decay = twin_mat_make(TPW_F32, M, hv, 3 * odd, odd), beta = twin_mat_make(TPW_F32, M, hv, 0, odd),
                 a_log = twin_mat_make(TPW_F32, 1, hv, 0, 0), dt = twin_mat_make(TPW_F32, 1, hv, 0, odd);
        ops_fill(&a.h, &r, 30.0f);
        ops_fill(&b.h, &r, 12.0f);
        ops_fill(&a_log.h, &r, 4.0f);
        ops_fill(&dt.h, &r, 3.0f);
        for (int m = 0; m < M; m += 3) { /* numbers of every size */
            const float any = tpw_f32_from_bits((uint32_t)ops_next(&r));
            ops_set(&a.h, m, m % hv, any == any ? any : 20.0f);
            ops_set(&b.h, m, m % hv, any == any ? -any : -0.0f);
        }
        twin_mat *all[] = {&a, &b, &decay, &beta, &a_log, &dt};
        for (int i = 0; i < 6; i++)
            twin_mat_send(all[i]);
        const tpw_gates_args h = {a.h, b.h, a_log.h.data, dt.h.data, decay.h, beta.h};
        const tpw_gates_args d = {a.d, b.d, a_log.d.data, dt.d.data, decay.d, beta.d};
        BOTH(gates, h, d);
        for (int i = 0; i < 6; i++)
            twin_end(&all[i]->block, "gates");
    }
    close_both(1u << 20);
}

static const int norm_dims[] = {128, 64, 1, 7, 33, 250, 256, 257, 600};

#define NORM_DIMS (int)(sizeof norm_dims / sizeof *norm_dims)

Test(gpu_gdn, l2norm)
{
    static const int rows[] = {1, 3, 66}, head_counts[] = {16, 1, 6};
    open_both();
    for (int n = 0; n < NORM_DIMS * 3 * 3 * 2 * 2; n++) {
        const int dim = norm_dims[n % NORM_DIMS], M = rows[n / NORM_DIMS % 3], odd = n / (NORM_DIMS * 18);
        const int count = head_counts[n / (NORM_DIMS * 3) % 3];
        ops_random r = {(uint64_t)n};
        twin_mat x = twin_mat_make(acts[n / (NORM_DIMS * 9) % 2], M, count * dim, odd ? 5 : 64, odd),
                 y = twin_mat_make(TPW_F32, M, count * dim, odd, odd);
        ops_fill(&x.h, &r, 2.0f);
        twin_mat_send(&x);
        twin_mat_send(&y);
        const tpw_l2norm_args h = {x.h, count, 0.0883883461f, y.h}, d = {x.d, count, 0.0883883461f, y.d};
        BOTH(l2norm, h, d);
        twin_end(&y.block, "l2norm");
        twin_end(&x.block, "l2norm, x");
    }
    close_both(20u << 20);
}

Test(gpu_gdn, gated_norm)
{
    static const int rows[] = {1, 3, 66}, head_counts[] = {48, 1, 6};
    open_both();
    for (int n = 0; n < NORM_DIMS * 3 * 3 * 2 * 2 * 2; n++) {
        const int dim = norm_dims[n % NORM_DIMS], M = rows[n / NORM_DIMS % 3], odd = n / (NORM_DIMS * 18) % 2;
        const int count = head_counts[n / (NORM_DIMS * 3) % 3];
        const tpw_dtype act = acts[n / (NORM_DIMS * 9) % 2];
        const bool sigmoid = n / (NORM_DIMS * 36) != 0, in_place = n % 4 == 3;
        ops_random r = {(uint64_t)n};
        twin_mat x = twin_mat_make(act, M, count * dim, odd ? 5 : 64, odd),
                 z = twin_mat_make(act, M, count * dim, odd, 0), y = twin_mat_make(act, M, count * dim, 2 * odd, odd),
                 weight = twin_mat_make(TPW_F32, 1, dim, 0, odd);
        ops_fill(&x.h, &r, 2.0f);
        ops_fill(&z.h, &r, 9.0f);
        ops_fill(&weight.h, &r, 1.0f);
        twin_mat *all[] = {&y, &x, &z, &weight};
        for (int i = 0; i < 4; i++)
            twin_mat_send(all[i]);
        const tpw_gated_norm_args h = {x.h, z.h, weight.h.data, count, 1e-6f, sigmoid, in_place ? x.h : y.h};
        const tpw_gated_norm_args d = {x.d, z.d, weight.d.data, count, 1e-6f, sigmoid, in_place ? x.d : y.d};
        BOTH(gated_norm, h, d);
        for (int i = 0; i < 4; i++)
            twin_end(&all[i]->block, "gated_norm");
    }
    close_both(40u << 20);
}

static tpw_mat columns(tpw_mat m, int first, int cols)
{
    m.data = (char *)m.data + (size_t)first * tpw_dtype_size(m.dtype);
    m.cols = cols;
    return m;
}

/* The ops of a layer one after the other without a wait between them: each must see what the one before wrote. */
Test(gpu_gdn, a_layer_without_waits)
{
    enum { HK = 4, HV = 12, D = 128, KEYS = HK * D, VALUES = HV * D, C = 2 * KEYS + VALUES, STEPS = 24, M_MAX = 80 };
    const shape s = {HK, HV, D, D, TPW_BF16};
    open_both();
    layer l = layer_make(s, 3);
    ops_random r = {808};
    twin_mat x = twin_mat_make(TPW_BF16, M_MAX, C, 0, 0), z = twin_mat_make(TPW_BF16, M_MAX, VALUES, 0, 0),
             conv = twin_mat_make(TPW_BF16, M_MAX, C, 0, 0), q = twin_mat_make(TPW_F32, M_MAX, KEYS, 0, 0),
             k = twin_mat_make(TPW_F32, M_MAX, KEYS, 0, 0), a = twin_mat_make(TPW_F32, M_MAX, HV, 0, 0),
             b = twin_mat_make(TPW_F32, M_MAX, HV, 0, 0), decay = twin_mat_make(TPW_F32, M_MAX, HV, 0, 0),
             beta = twin_mat_make(TPW_F32, M_MAX, HV, 0, 0), o = twin_mat_make(TPW_BF16, M_MAX, VALUES, 0, 0),
             y = twin_mat_make(TPW_BF16, M_MAX, VALUES, 0, 0), weight = twin_mat_make(TPW_F32, 1, C * 4, 0, 0),
             heads_in = twin_mat_make(TPW_F32, 2, HV, 0, 0), norm = twin_mat_make(TPW_F32, 1, D, 0, 0);
    const int32_t none = 0;
    twin ring = twin_make((size_t)3 * TPW_CONV_RING * C * 2), taken = twin_words(&none, sizeof none);
    twin_send(&ring);
    twin_mat *all[] = {&x, &z, &conv, &q, &k, &a, &b, &decay, &beta, &o, &y, &weight, &heads_in, &norm};
    const int count = (int)(sizeof all / sizeof *all);
    for (int i = 0; i < count; i++) {
        ops_fill(&all[i]->h, &r, 1.0f);
        twin_mat_send(all[i]);
    }
    for (int place = 0; place < 2; place++) {
        const tpw_exec *exec = place ? gpu : host;
#define AT(m) (place ? (m).d : (m).h)
        int pos = 0;
        for (int i = 0; i < STEPS; i++) {
            static const int sizes[] = {80, 1, 1, 4, 1, 33, 1, 9, 1};
            const int rows = sizes[i % 9], drafts = rows < 17 ? rows - 1 : 0;
            const tpw_segment segment = {.rows = rows, .rows_certain = rows - drafts, .slot = 1, .pos = pos};
            const tpw_batch batch = {rows, 1, &segment};
            tpw_mat mats[11];
            for (int m = 0; m < 11; m++) {
                mats[m] = AT(*all[m]);
                mats[m].rows = rows;
            }
            const tpw_conv_args c = {
                &batch, mats[0], AT(weight).data, 4, {place ? ring.device : ring.host, TPW_BF16, 3, C}, mats[2]};
            const tpw_l2norm_args lq = {columns(mats[2], 0, KEYS), HK, 0.0883883461f, mats[3]};
            const tpw_l2norm_args lk = {columns(mats[2], KEYS, KEYS), HK, 1.0f, mats[4]};
            const tpw_gates_args g = {mats[5], mats[6], AT(heads_in).data, (float *)AT(heads_in).data + HV,
                                      mats[7], mats[8]};
            const tpw_delta_args dl = {&batch,  mats[3], mats[4],           columns(mats[2], 2 * KEYS, VALUES),
                                       mats[7], mats[8], place ? l.d : l.h, mats[9]};
            const tpw_gated_norm_args gn = {mats[9], mats[1], AT(norm).data, HV, 1e-6f, false, mats[10]};
            const int32_t some = rows - drafts / 2;
            GPU_OK(exec->device->send(exec, place ? taken.device : taken.host, &some, sizeof some, err));
            const tpw_delta_commit_args dc = {&batch, place ? l.d : l.h,
                                              (int32_t *)(void *)(place ? taken.device : taken.host)};
            if (exec->device->stage != NULL)
                GPU_OK(exec->device->stage(exec, &batch, 16, err));
            GPU_OK(exec->ops->conv(exec, &c, err));
            GPU_OK(exec->ops->l2norm(exec, &lq, err));
            GPU_OK(exec->ops->l2norm(exec, &lk, err));
            GPU_OK(exec->ops->gates(exec, &g, err));
            GPU_OK(exec->ops->delta(exec, &dl, err));
            GPU_OK(exec->ops->gated_norm(exec, &gn, err));
            GPU_OK(exec->ops->delta_commit(exec, &dc, err));
            pos += rows - drafts / 2;
            /* what comes out is in the next step's input */
            const tpw_array from = {mats[10].data, TPW_BF16, 1, {VALUES}, {1}},
                            to = {mats[0].data, TPW_BF16, 1, {VALUES}, {1}};
            const tpw_cast_args back = {from, to};
            GPU_OK(exec->ops->cast(exec, &back, err));
        }
#undef AT
    }
    GPU_OK(tpw_cuda_sync(gpu, err));
    for (int i = 0; i < count; i++)
        twin_end(&all[i]->block, "a layer without waits");
    twin_end(&ring, "the ring of a layer without waits");
    twin_end(&taken, "rows of a layer without waits");
    layer_end(&l, 1u << 1, "a layer without waits");
    close_both(4u << 20);
}

#define REFUSED(op, args, code, word)                     \
    cr_assert_eq(gpu->ops->op(gpu, &(args), &err), code); \
    cr_assert(strstr(err.text, word) != NULL, "%s", err.text)

Test(gpu_gdn, refusals_name_what_is_wrong)
{
    open_both();
    tpw_segment segment = {.rows = 1, .rows_certain = 1, .slot = 1};
    const tpw_batch batch = {1, 1, &segment}, other = batch;
    GPU_OK(gpu->device->stage(gpu, &batch, 16, err));
    tpw_error err = {0};
    float *cells = gpu_alloc(gpu, 1 << 20);
    const tpw_mat keys = {cells, TPW_F32, 1, 4, 4}, one = {cells, TPW_F32, 1, 1, 1}, f16 = {cells, TPW_F16, 1, 4, 4};
    const tpw_gdn_state state = {cells, cells, cells, cells, 3, 1, 1, 4, 4};
    tpw_delta_args delta = {&other, keys, keys, keys, one, one, state, keys};
    REFUSED(delta, delta, TPW_ERR_ARGUMENT, "not staged");
    delta.batch = &batch;
    segment.slot = 3;
    REFUSED(delta, delta, TPW_ERR_ARGUMENT, "slot 3");
    segment = (tpw_segment){.rows = 20, .rows_certain = 1, .slot = 1};
    REFUSED(delta, delta, TPW_ERR_UNSUPPORTED, "at most 16");
    segment = (tpw_segment){.rows = 1, .rows_certain = 1, .slot = 1};
    delta.v = f16;
    REFUSED(delta, delta, TPW_ERR_UNSUPPORTED, "F16");
    delta.v = one;
    REFUSED(delta, delta, TPW_ERR_ARGUMENT, "v is [1, 1]");
    delta.v = keys, delta.state.k_dim = 5000;
    REFUSED(delta, delta, TPW_ERR_UNSUPPORTED, "5000");
    delta.state.k_dim = 4, delta.state.k_heads = 2;
    REFUSED(delta, delta, TPW_ERR_UNSUPPORTED, "2 key heads");
    const tpw_delta_commit_args commit_args = {&batch, state, (int32_t *)(void *)cells},
                                unknown = {&other, state, (int32_t *)(void *)cells};
    REFUSED(delta_commit, unknown, TPW_ERR_ARGUMENT, "not staged");
    segment.slot = 0;
    REFUSED(delta_commit, commit_args, TPW_ERR_ARGUMENT, "slot 0");
    segment = (tpw_segment){.rows = 20, .rows_certain = 1, .slot = 1};
    REFUSED(delta_commit, commit_args, TPW_ERR_UNSUPPORTED, "at most 16");
    segment = (tpw_segment){.rows = 1, .rows_certain = 1, .slot = 1};
    tpw_conv_args conv = {&batch, keys, cells, 9, {cells, TPW_F32, 3, 4}, keys};
    REFUSED(conv, conv, TPW_ERR_UNSUPPORTED, "width of 9");
    conv.width = 4, conv.state.channels = 5;
    REFUSED(conv, conv, TPW_ERR_ARGUMENT, "5 channels");
    conv.state.channels = 4, conv.y = f16;
    REFUSED(conv, conv, TPW_ERR_UNSUPPORTED, "F16");
    const tpw_gates_args gates = {one, one, cells, cells, one, keys};
    REFUSED(gates, gates, TPW_ERR_UNSUPPORTED, "beta");
    const tpw_l2norm_args l2norm = {keys, 3, 1.0f, keys};
    REFUSED(l2norm, l2norm, TPW_ERR_ARGUMENT, "3 heads");
    const tpw_gated_norm_args gated = {keys, f16, cells, 1, 1e-6f, false, keys};
    REFUSED(gated_norm, gated, TPW_ERR_UNSUPPORTED, "z is F16");
    gpu_free(gpu, cells);
    close_both(0);
}
