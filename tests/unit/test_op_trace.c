/* Tests of the exec that notes a digest of every output row. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "graph/op_trace.h"
#include "kernels/host/host.h"

#define ROWS   3
#define COLS   40
#define STRIDE 43 /* rows do not touch: what lies between must not count */

static tpw_exec *inner;
static tpw_op_trace trace;

static void open_trace(void)
{
    tpw_error err = {0};

    cr_assert_eq(tpw_host_create("baseline", &inner, &err), TPW_OK, "%s", err.text);
    tpw_op_trace_init(&trace, inner);
}

static void close_trace(void)
{
    tpw_op_trace_fini(&trace);
    tpw_host_destroy(inner);
}

TestSuite(op_trace, .init = open_trace, .fini = close_trace);

static void fill(float *x, int count, int seed)
{
    for (int i = 0; i < count; i++)
        x[i] = (float)((i * 37 + seed * 11) % 101 - 50) / 16.0f;
}

static tpw_mat f32(float *data, int32_t rows)
{
    return (tpw_mat){.data = data, .dtype = TPW_F32, .rows = rows, .cols = COLS, .stride = STRIDE};
}

/* The terms of one row, by hand. */
static uint64_t row_digest(const float *x, int row, uint64_t key)
{
    uint64_t sum = 0;

    for (int c = 0; c < COLS; c++) {
        uint32_t bits;

        memcpy(&bits, &x[row * STRIDE + c], sizeof bits);
        sum += tpw_digest_fin((key + (uint64_t)c * 0x9E3779B97F4A7C15ull) ^ bits);
    }
    return sum;
}

static tpw_status swiglu(const tpw_exec *exec, float *gate, float *up, float *y, int32_t rows)
{
    const tpw_swiglu_args args = {.gate = f32(gate, rows), .up = f32(up, rows), .y = f32(y, rows)};

    return exec->ops->swiglu(exec, &args, NULL);
}

Test(op_trace, a_digest_per_row)
{
    float gate[ROWS * STRIDE], up[ROWS * STRIDE], y[ROWS * STRIDE], plain[ROWS * STRIDE];

    fill(gate, ROWS * STRIDE, 1);
    fill(up, ROWS * STRIDE, 2);
    fill(y, ROWS * STRIDE, 3);
    memcpy(plain, y, sizeof y);
    trace.layer = 7;
    cr_assert_eq(swiglu(&trace.exec, gate, up, y, ROWS), TPW_OK);
    cr_assert_eq(swiglu(inner, gate, up, plain, ROWS), TPW_OK);
    cr_assert_eq(memcmp(y, plain, sizeof y), 0, "tracing changed the result");
    trace.layer = -1;
    cr_assert_eq(swiglu(&trace.exec, gate + STRIDE, up + STRIDE, y, 1), TPW_OK); /* row 1 again, alone */
    cr_assert(trace.calls == 2 && trace.rows == ROWS + 1);
    cr_assert_str_eq(trace.call[0].op, "swiglu");
    cr_assert(trace.call[0].layer == 7 && trace.call[0].rows == ROWS && trace.call[0].first == 0);
    cr_assert(trace.call[1].layer == -1 && trace.call[1].rows == 1 && trace.call[1].first == ROWS);
    for (int r = 0; r < ROWS; r++)
        cr_assert_eq(trace.row[r], row_digest(plain, r, 1), "row %d", r);
    cr_assert_eq(trace.row[ROWS], trace.row[1], "the same row alone has another digest");
    cr_assert(trace.row[0] != trace.row[1] && trace.row[1] != trace.row[2]);
}

/* Where an op has two outputs, both count, and which is which. */
Test(op_trace, second_outputs)
{
    float a[ROWS * STRIDE], b[ROWS * STRIDE], decay[ROWS * STRIDE], beta[ROWS * STRIDE], a_log[COLS], bias[COLS];
    const tpw_gates_args gates = {.a = f32(a, ROWS),
                                  .b = f32(b, ROWS),
                                  .a_log = a_log,
                                  .dt_bias = bias,
                                  .decay = f32(decay, ROWS),
                                  .beta = f32(beta, ROWS)};
    float h[ROWS * STRIDE], y[ROWS * STRIDE], sum[ROWS * COLS], weight[COLS];
    tpw_add_norm_args norm = {
        .h = f32(h, ROWS), .sum = sum, .weight = weight, .eps = 1e-6f, .y = {.data = NULL, .dtype = TPW_F32}};

    fill(a, ROWS * STRIDE, 1);
    fill(b, ROWS * STRIDE, 2);
    fill(a_log, COLS, 3);
    fill(bias, COLS, 4);
    fill(h, ROWS * STRIDE, 5);
    fill(sum, ROWS * COLS, 6);
    fill(weight, COLS, 7);
    cr_assert_eq(trace.exec.ops->gates(&trace.exec, &gates, NULL), TPW_OK);
    for (int r = 0; r < ROWS; r++)
        cr_assert_eq(trace.row[r], row_digest(decay, r, 1) + row_digest(beta, r, 2), "gates, row %d", r);
    cr_assert_eq(trace.exec.ops->add_norm(&trace.exec, &norm, NULL), TPW_OK); /* no y */
    for (int r = 0; r < ROWS; r++)
        cr_assert_eq(trace.row[ROWS + r], row_digest(h, r, 1), "add_norm without y, row %d", r);
    norm.sum = NULL;
    norm.y = f32(y, ROWS);
    cr_assert_eq(trace.exec.ops->add_norm(&trace.exec, &norm, NULL), TPW_OK);
    for (int r = 0; r < ROWS; r++)
        cr_assert_eq(trace.row[2 * ROWS + r], row_digest(h, r, 1) + row_digest(y, r, 2), "add_norm, row %d", r);
    cr_assert_str_eq(trace.call[0].op, "gates");
    cr_assert_str_eq(trace.call[2].op, "add_norm");
}

/* One changed bit of an output shows in that row alone. */
Test(op_trace, one_bit_shows_in_its_row)
{
    float gate[ROWS * STRIDE], up[ROWS * STRIDE], y[ROWS * STRIDE];

    fill(gate, ROWS * STRIDE, 1);
    fill(up, ROWS * STRIDE, 2);
    cr_assert_eq(swiglu(&trace.exec, gate, up, y, ROWS), TPW_OK);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < STRIDE; c++) {
            uint32_t bits;
            float kept = up[r * STRIDE + c];

            memcpy(&bits, &kept, sizeof bits);
            bits ^= 0x80000000u; /* the sign: the product's sign too */
            memcpy(&up[r * STRIDE + c], &bits, sizeof bits);
            trace.calls = 1;
            trace.rows = ROWS;
            cr_assert_eq(swiglu(&trace.exec, gate, up, y, ROWS), TPW_OK);
            for (int at = 0; at < ROWS; at++)
                cr_assert_eq(trace.row[at] != trace.row[ROWS + at], at == r && c < COLS, "row %d column %d in row %d",
                             r, c, at);
            up[r * STRIDE + c] = kept;
        }
}

/* Ops that only move or decide leave no record, and do what they do. */
Test(op_trace, others_pass_through)
{
    float x[ROWS * STRIDE], y[ROWS * STRIDE];
    int32_t rows[] = {2, 0, 1}, id[ROWS];
    float value[ROWS];
    uint64_t sum = 5;
    const tpw_gather_args gather = {.x = f32(x, ROWS), .rows = rows, .y = f32(y, ROWS)};
    const tpw_argmax_args argmax = {.logits = f32(x, ROWS), .vocab0 = 100, .value = value, .id = id};
    const tpw_digest_args digest = {.x = f32(x, 1), .key = 9, .sum = &sum};

    fill(x, ROWS * STRIDE, 1);
    x[STRIDE + 17] = 99;
    cr_assert_eq(trace.exec.ops->gather(&trace.exec, &gather, NULL), TPW_OK);
    for (int r = 0; r < ROWS; r++)
        cr_assert_eq(memcmp(&y[r * STRIDE], &x[rows[r] * STRIDE], COLS * sizeof *x), 0);
    cr_assert_eq(trace.exec.ops->argmax(&trace.exec, &argmax, NULL), TPW_OK);
    cr_assert(id[1] == 117 && value[1] == 99);
    cr_assert_eq(trace.exec.ops->digest(&trace.exec, &digest, NULL), TPW_OK);
    cr_assert_eq(sum, 5 + row_digest(x, 0, 9));
    cr_assert(trace.calls == 0 && trace.rows == 0);
}

Test(op_trace, array_ops_pass_through)
{
    float x[4] = {1, 2, 3, 4}, y[8] = {0};
    const tpw_array four = {x, TPW_F32, 1, {4}, {1}}, out = {y, TPW_F32, 1, {4}, {1}};
    const tpw_cast_args cast = {four, out};
    const tpw_sum_args sum = {four, 1, false, {y, TPW_F32, 0, {0}, {0}}};
    const tpw_power_args power = {four, 2.0f, out};
    const tpw_concat_args concat = {2, {four, four}, {y, TPW_F32, 1, {8}, {1}}};

    cr_assert_eq(trace.exec.ops->cast(&trace.exec, &cast, NULL), TPW_OK);
    cr_assert(y[0] == 1 && y[3] == 4);
    cr_assert_eq(trace.exec.ops->sum(&trace.exec, &sum, NULL), TPW_OK);
    cr_assert_eq(y[0], 10);
    cr_assert_eq(trace.exec.ops->power(&trace.exec, &power, NULL), TPW_OK);
    cr_assert(y[0] == 1 && y[3] == 16);
    cr_assert_eq(trace.exec.ops->concat(&trace.exec, &concat, NULL), TPW_OK);
    cr_assert(y[3] == 4 && y[4] == 1 && y[7] == 4);
    cr_assert(trace.calls == 0 && trace.rows == 0);
}

/* A GEMM in parts has one digest a row, made of all its slices, whatever the row count. */
Test(op_trace, a_row_of_parts_is_one_row)
{
    enum { K = 16, N = 2, SLICES = 8 };
    static float x[ROWS * K], w[N * K], y[SLICES * ROWS * N];
    tpw_gemm_args gemm = {.x = {x, TPW_F32, ROWS, K, K},
                          .w = {.data = w, .dtype = TPW_F32, .rows = N, .cols = K, .cols_global = K},
                          .kind = TPW_GEMM_ROW,
                          .y = {y, TPW_F32, SLICES * ROWS, N, N},
                          .parts = SLICES};

    fill(x, ROWS * K, 1);
    fill(w, N * K, 2);
    cr_assert_eq(trace.exec.ops->gemm(&trace.exec, &gemm, NULL), TPW_OK);
    cr_assert(trace.calls == 1 && trace.rows == ROWS && trace.call[0].rows == ROWS);
    for (int r = 0; r < ROWS; r++) {
        gemm.x.rows = 1;
        gemm.x.data = x + r * K;
        gemm.y.rows = SLICES;
        cr_assert_eq(trace.exec.ops->gemm(&trace.exec, &gemm, NULL), TPW_OK);
        cr_assert_eq(trace.row[ROWS + r], trace.row[r], "row %d alone", r);
    }
    cr_assert(trace.row[0] != trace.row[1]);
    x[(ROWS - 1) * K + K - 1] += 1; /* the last slice alone */
    cr_assert_eq(trace.exec.ops->gemm(&trace.exec, &gemm, NULL), TPW_OK);
    cr_assert_neq(trace.row[2 * ROWS], trace.row[ROWS - 1], "the last slice does not count");
}

static size_t fake_packed_bytes(const tpw_weight *w, tpw_gemm_kind kind)
{
    return kind == TPW_GEMM_ROW ? (size_t)w->rows * 3 : 0;
}

static tpw_status fake_pack(const tpw_exec *exec, const tpw_weight *w, tpw_gemm_kind kind, void *to, tpw_error *err)
{
    (void)kind;
    (void)err;
    *(const void **)to = w->data == NULL ? exec->impl : NULL; /* says which exec came */
    return TPW_ERR_LIMIT;
}

/* The layout of weights is the inner backend's; one without a layout stays without. */
Test(op_trace, weights_are_packed_by_the_inner_one)
{
    const tpw_weight w = {.rows = 7};
    tpw_device device = *inner->device;
    int here = 0;
    const tpw_exec packer = {.ops = inner->ops, .device = &device, .impl = &here};
    tpw_op_trace other;
    const void *got = NULL;

    cr_assert(inner->device->packed_bytes == NULL && trace.exec.device->packed_bytes == NULL);
    cr_assert_null(trace.exec.device->pack);
    device.packed_bytes = fake_packed_bytes;
    device.pack = fake_pack;
    tpw_op_trace_init(&other, &packer);
    cr_assert_eq(other.exec.device->packed_bytes(&w, TPW_GEMM_ROW), 21);
    cr_assert_eq(other.exec.device->packed_bytes(&w, TPW_GEMM_COLUMN), 0);
    cr_assert_eq(other.exec.device->pack(&other.exec, &w, TPW_GEMM_ROW, &got, NULL), TPW_ERR_LIMIT);
    cr_assert_eq(got, &here);
    tpw_op_trace_fini(&other);
}

/* An op that refuses leaves no record. */
Test(op_trace, errors_pass)
{
    float x[COLS] = {0};
    tpw_error err = {0};
    const tpw_conv_args conv = {.x = f32(x, 1), .width = 99, .y = f32(x, 1)};

    cr_assert_eq(trace.exec.ops->conv(&trace.exec, &conv, &err), TPW_ERR_UNSUPPORTED);
    cr_assert(err.text[0] != '\0');
    cr_assert_eq(trace.calls, 0);
}

Test(op_trace, grows_and_clears)
{
    enum { CALLS = 3000 };
    float gate[ROWS * STRIDE], up[ROWS * STRIDE], y[ROWS * STRIDE];

    fill(gate, ROWS * STRIDE, 1);
    fill(up, ROWS * STRIDE, 2);
    for (int i = 0; i < CALLS; i++) {
        trace.layer = i;
        up[0] = (float)i;
        cr_assert_eq(swiglu(&trace.exec, gate, up, y, ROWS), TPW_OK);
    }
    cr_assert(trace.calls == CALLS && trace.rows == CALLS * ROWS);
    for (int i = 0; i < CALLS; i++) {
        cr_assert(trace.call[i].layer == i && trace.call[i].first == (size_t)i * ROWS && trace.call[i].rows == ROWS);
        cr_assert_eq(trace.row[i * ROWS + 2], trace.row[2]);
        cr_assert(i == 0 || trace.row[i * ROWS] != trace.row[(i - 1) * ROWS]);
    }
    tpw_op_trace_clear(&trace);
    cr_assert(trace.calls == 0 && trace.rows == 0 && trace.layer == 0);
    cr_assert_eq(swiglu(&trace.exec, gate, up, y, 1), TPW_OK);
    cr_assert(trace.calls == 1 && trace.call[0].first == 0 && trace.row[0] == row_digest(y, 0, 1));
}

Test(op_trace, memory_is_the_inner_ones)
{
    const tpw_device *d = trace.exec.device;
    size_t before = inner->device->bytes_now(inner);
    char sent[] = "0123456789", got[sizeof sent];
    void *data = NULL;

    cr_assert_eq(d->alloc(&trace.exec, 1000, &data, NULL), TPW_OK);
    cr_assert_geq(inner->device->bytes_now(inner), before + 1000);
    cr_assert_eq(d->bytes_now(&trace.exec), inner->device->bytes_now(inner));
    cr_assert_eq(d->upload(&trace.exec, data, sent, sizeof sent, NULL), TPW_OK);
    cr_assert_eq(d->download(&trace.exec, got, data, sizeof got, NULL), TPW_OK);
    cr_assert_str_eq(got, sent);
    cr_assert_eq(d->fill(&trace.exec, data, 7, 3, NULL), TPW_OK);
    cr_assert_eq(d->download(&trace.exec, got, data, sizeof got, NULL), TPW_OK);
    cr_assert(got[2] == 7 && got[3] == '3');
    d->free(&trace.exec, data);
    cr_assert_eq(inner->device->bytes_now(inner), before);
    cr_assert_eq(d->bytes_peak(&trace.exec), inner->device->bytes_peak(inner));
}
