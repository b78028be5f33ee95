/* Arg-max, gather and digest: ties, NaN, zeros, infinities, raw copies, global indices.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"
#include "ops_test.h"

static void best_of(const tpw_exec *exec, const float *row, int32_t cols, float *value, int32_t *id)
{
    float copy[16];
    memcpy(copy, row, (size_t)cols * sizeof *row);
    tpw_argmax_args args = {{copy, TPW_F32, 1, cols, cols}, 100, value, id};
    cr_assert_eq(exec->ops->argmax(exec, &args, NULL), TPW_OK);
}

Test(argmax, ties_nan_zeros_and_infinities)
{
    const float inf = INFINITY, nan = NAN;
    const struct {
        float row[6];
        int32_t id;
        float value;
    } cases[] = {
        {{1, 3, 2, 3, 3, 0}, 101, 3},
        {{-5, -4, -3, -2, -1, -1}, 104, -1},
        {{nan, 1, nan, 2, 2, nan}, 103, 2},
        {{nan, nan, nan, nan, nan, nan}, -1, -inf},
        {{-inf, -inf, nan, -inf, nan, -inf}, 100, -inf},
        {{nan, -inf, nan, nan, nan, nan}, 101, -inf},
        {{-1, -0.0f, 0.0f, -0.0f, -2, 0}, 101, 0},
        {{-1, 0.0f, -0.0f, 0.0f, -2, 0}, 101, 0},
        {{inf, 1, inf, nan, 2, 3}, 100, inf},
        {{1e-45f, 2e-45f, 0, -1e-45f, 1e-45f, 3e-45f}, 105, 3e-45f},
        {{-inf, nan, -3e38f, nan, -3e38f, -inf}, 102, -3e38f},
    };
    tpw_exec *exec = ops_exec(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float value = 7;
        int32_t id = 7;
        best_of(exec, cases[i].row, 6, &value, &id);
        cr_assert_eq(id, cases[i].id, "case %zu: id %d", i, (int)id);
        cr_assert_eq(value, cases[i].value, "case %zu: value %g", i, (double)value);
    }
    tpw_host_destroy(exec);
}

/* A split over ranks, joined by (value, lowest id), chooses what one rank chooses. */
Test(argmax, parts_agree_with_the_whole)
{
    enum { V = 1003, R = 40 };
    tpw_exec *exec = ops_exec(0);
    ops_random r = {41};
    tpw_mat logits = ops_mat(TPW_F32, R, V, 5);
    float value[R], part_value[R];
    int32_t id[R], part_id[R], best_id[R];
    for (int32_t m = 0; m < R; m++)
        for (int32_t c = 0; c < V; c++) /* few different values: many ties */
            ops_set(&logits, m, c, (float)(ops_next(&r) % 50) - 25.0f);
    tpw_argmax_args args = {logits, 0, value, id};
    cr_assert_eq(exec->ops->argmax(exec, &args, NULL), TPW_OK);
    for (int32_t m = 0; m < R; m++) {
        best_id[m] = -1;
        for (int32_t c = V - 1; c >= 0; c--)
            if (best_id[m] < 0 || ops_get(&logits, m, c) >= ops_get(&logits, m, best_id[m]))
                best_id[m] = c;
        cr_assert_eq(id[m], best_id[m]);
        best_id[m] = -1;
    }
    for (int32_t begin = 0; begin < V; begin += 251) {
        tpw_mat part = logits;
        part.data = (float *)logits.data + begin;
        part.cols = V - begin < 251 ? V - begin : 251;
        args = (tpw_argmax_args){part, begin, part_value, part_id};
        cr_assert_eq(exec->ops->argmax(exec, &args, NULL), TPW_OK);
        for (int m = 0; m < R; m++)
            if (best_id[m] < 0 && part_value[m] == value[m])
                best_id[m] = part_id[m];
    }
    for (int m = 0; m < R; m++)
        cr_assert_eq(best_id[m], id[m]);
    free(logits.data);
    args.logits.dtype = TPW_BF16;
    tpw_error err = {0};
    cr_assert_eq(exec->ops->argmax(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    tpw_host_destroy(exec);
}

Test(gather, raw_rows_of_every_type)
{
    const tpw_dtype types[] = {TPW_F32, TPW_BF16, TPW_F16, TPW_E4M3, TPW_I64};
    const int32_t rows[] = {6, 0, 0, 3, 6};
    tpw_exec *exec = ops_exec(0);
    for (int t = 0; t < 5; t++) {
        ops_random r = {51};
        tpw_mat x = ops_mat(types[t], 7, 19, 4), y = ops_mat(types[t], 5, 19, 2);
        size_t size = tpw_dtype_size(types[t]);
        for (size_t i = 0; i < 7 * 23 * size; i++)
            ((unsigned char *)x.data)[i] = (unsigned char)ops_next(&r); /* any bits, NaN payloads too */
        tpw_gather_args args = {.x = x, .rows = rows, .y = y};
        cr_assert_eq(exec->ops->gather(exec, &args, NULL), TPW_OK);
        for (int i = 0; i < 5; i++)
            cr_assert_eq(
                memcmp((char *)y.data + (size_t)i * 21 * size, (char *)x.data + (size_t)rows[i] * 23 * size, 19 * size),
                0);
        cr_assert_eq(ops_padding_touched(&y), 0);
        free(x.data);
        free(y.data);
    }
    float cell[2] = {0};
    const int32_t outside = 2, negative = -1;
    tpw_error err = {0};
    tpw_gather_args args = {{cell, TPW_F32, 2, 1, 1}, &outside, {cell, TPW_F32, 1, 1, 1}, NULL, 0};
    cr_assert_eq(exec->ops->gather(exec, &args, &err), TPW_ERR_ARGUMENT);
    args.rows = &negative;
    cr_assert_eq(exec->ops->gather(exec, &args, &err), TPW_ERR_ARGUMENT);
    const int32_t zero = 0;
    args.rows = &zero, args.to = &outside, args.to_rows = 2;
    cr_assert_eq(exec->ops->gather(exec, &args, &err), TPW_ERR_ARGUMENT);
    args.y.dtype = TPW_BF16;
    cr_assert_eq(exec->ops->gather(exec, &args, &err), TPW_ERR_ARGUMENT);
    cr_assert(strstr(err.text, "BF16") != NULL, "%s", err.text);
    tpw_host_destroy(exec);
}

/* Against published values of the digest, and shard by shard with global indices. */
Test(digest, adds_up_over_shards)
{
    enum { N = 1000 };
    tpw_exec *exec = ops_exec(0);
    static int32_t data[N];
    const uint64_t key = 0x752905CBE04F6E55ull; /* of "recurrent.0" */
    for (uint32_t i = 0; i < N; i++)
        data[i] = (int32_t)(i * 2654435761u);
    uint64_t sum = 5;
    tpw_digest_args args = {{data, TPW_I32, 1, N, N}, key, 0, 0, &sum};
    cr_assert_eq(exec->ops->digest(exec, &args, NULL), TPW_OK);
    cr_assert_eq(sum, 5 + 0xF6AB218F526FAE78ull);
    sum = 0;
    for (int part = 0; part < 2; part++) { /* columns 0..11 and 12..24 of [40, 25] */
        args =
            (tpw_digest_args){{data + part * 12, TPW_I32, 40, part ? 13 : 12, 25}, key, (uint64_t)part * 12, 25, &sum};
        cr_assert_eq(exec->ops->digest(exec, &args, NULL), TPW_OK);
    }
    cr_assert_eq(sum, 0xF6AB218F526FAE78ull);
    tpw_host_destroy(exec);
}

/* A list is its blocks one by one, each added to the sum that it names. */
Test(digest, list_of_blocks)
{
    enum { COLS = 37, ROWS = 20, JOBS = 60 };
    tpw_exec *exec = ops_exec(0);
    ops_random r = {83};
    tpw_mat x = ops_mat(TPW_F32, ROWS, COLS, 3);
    tpw_digest_args jobs[JOBS];
    uint64_t got[3] = {5, 6, 7}, want[3] = {5, 6, 7};
    for (size_t i = 0; i < ROWS * (COLS + 3) * sizeof(float); i++)
        ((unsigned char *)x.data)[i] = (unsigned char)ops_next(&r);
    for (int i = 0; i < JOBS; i++) {
        const int32_t row = (int32_t)(ops_next(&r) % ROWS), rows = (int32_t)(ops_next(&r) % (uint64_t)(ROWS - row + 1));
        float *at = (float *)x.data + (int64_t)row * (COLS + 3);
        jobs[i] = (tpw_digest_args){.x = {at, TPW_F32, rows, i % COLS, COLS + 3},
                                    .key = (uint64_t)i,
                                    .index0 = ops_next(&r) % 1000,
                                    .index_stride = (uint64_t)(i % 5) * 11,
                                    .sum = &got[i % 3]};
        want[i % 3] +=
            tpw_digest_block(jobs[i].key, at, TPW_F32, rows, i % COLS, COLS + 3, jobs[i].index0, jobs[i].index_stride);
    }
    const tpw_digest_list_args args = {jobs, JOBS};
    cr_assert_eq(exec->ops->digest_list(exec, &args, NULL), TPW_OK);
    for (int i = 0; i < 3; i++)
        cr_assert(got[i] == want[i] && want[i] != (uint64_t)(5 + i));
    free(x.data);
    tpw_host_destroy(exec);
}

/* Each row of a step by its absolute position: the sum over a sequence is that of the whole block. */
Test(digest, rows_of_a_step)
{
    enum { COLS = 37, ROWS = 20 };
    const tpw_dtype types[] = {TPW_F32, TPW_BF16, TPW_I64, TPW_E4M3};
    const tpw_segment segments[] = {
        {.row0 = 0, .rows = 7, .pos = 100}, {.row0 = 7, .rows = 1}, {.row0 = 8, .rows = 12, .pos = 3}};
    const tpw_batch batch = {.rows = ROWS, .segment_count = 3, .segments = segments};
    tpw_exec *exec = ops_exec(0);
    for (int t = 0; t < 4; t++) {
        ops_random r = {81};
        tpw_mat x = ops_mat(types[t], ROWS, COLS, 3);
        const size_t pitch = (COLS + 3) * tpw_dtype_size(types[t]);
        uint64_t sums[ROWS + 1];
        memset(sums, OPS_POISON, sizeof sums);
        for (size_t i = 0; i < ROWS * pitch; i++)
            ((unsigned char *)x.data)[i] = (unsigned char)ops_next(&r);
        const tpw_digest_rows_args args = {&batch, x, 77, sums};
        cr_assert_eq(exec->ops->digest_rows(exec, &args, NULL), TPW_OK);
        cr_assert_eq(sums[ROWS], UINT64_MAX);
        for (int i = 0; i < 3; i++) {
            const tpw_segment *s = &segments[i];
            uint64_t sum = 0;
            for (int32_t m = s->row0; m < s->row0 + s->rows; m++)
                sum += sums[m];
            cr_assert_eq(sum, tpw_digest_block(77, (char *)x.data + (size_t)s->row0 * pitch, types[t], s->rows, COLS,
                                               COLS + 3, (uint64_t)s->pos * COLS, COLS));
        }
        free(x.data);
    }
    tpw_host_destroy(exec);
}

/* To rows of one's own choice: the others stay. */
Test(gather, to_chosen_rows)
{
    const int32_t rows[] = {2, 0, 1}, to[] = {4, 1, 3};
    tpw_exec *exec = ops_exec(0);
    int32_t x[3] = {10, 11, 12}, y[6] = {-1, -1, -1, -1, -1, -1};
    const tpw_gather_args args = {{x, TPW_I32, 3, 1, 1}, rows, {y, TPW_I32, 3, 1, 1}, to, 6};
    cr_assert_eq(exec->ops->gather(exec, &args, NULL), TPW_OK);
    cr_assert(y[0] == -1 && y[1] == 10 && y[2] == -1 && y[3] == 11 && y[4] == 12 && y[5] == -1);
    tpw_host_destroy(exec);
}
