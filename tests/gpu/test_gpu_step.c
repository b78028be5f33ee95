/* What makes a step one: its ops on tokens against the host's, several batches staged at a time, one watched wait at its end.
 * SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <time.h>

#include "../ops/exchange_case.h"
#include "base/clock.h"
#include "base/digest.h"
#include "kernels/cuda/exec.h"
#include "twin.h"

TestSuite(gpu_step, .timeout = 100);

Test(gpu_step, record_and_pick)
{
    open_both();
    ops_random r = {91};
    for (int n = 0; n < 4 * 40; n++) {
        const int32_t size = 1 << n % 4, rows = n / 4, words = size * (1 + rows);
        uint64_t *all = gpu_host_alloc((size_t)words * sizeof *all);
        memset(all, 0, (size_t)words * sizeof *all);
        for (int32_t rank = 0; rank < size; rank++) {
            float value[EXCHANGE_ROWS];
            int32_t id[EXCHANGE_ROWS];
            const uint64_t agree = ops_next(&r);
            exchange_fill(value, id, EXCHANGE_ROWS, rank, &r);
            twin values = twin_words(value, sizeof value), ids = twin_words(id, sizeof id),
                 agreed = twin_words(&agree, sizeof agree), out = twin_make((size_t)words * 8);
            twin_send(&out);
            const tpw_record_args h = {&agree, value, id, rows, rank, size, (uint64_t *)(void *)out.host};
            const tpw_record_args d = {(uint64_t *)(void *)agreed.device,
                                       (float *)(void *)values.device,
                                       (int32_t *)(void *)ids.device,
                                       rows,
                                       rank,
                                       size,
                                       (uint64_t *)(void *)out.device};
            BOTH(record, h, d);
            for (int32_t i = 0; i < words; i++)
                all[i] |= ((uint64_t *)(void *)out.host)[i];
            twin_end(&out, "record"), twin_end(&values, "value"), twin_end(&ids, "id"), twin_end(&agreed, "agree");
        }
        int32_t place[EXCHANGE_ROWS];
        for (int32_t i = 0; i < EXCHANGE_ROWS; i++)
            place[i] = 2 * (EXCHANGE_ROWS - 1 - i);
        twin records = twin_words(all, (size_t)words * 8), to = twin_words(place, sizeof place),
             best = twin_make(sizeof place), tokens = twin_make(2 * sizeof place);
        twin_send(&best), twin_send(&tokens);
        const tpw_pick_args h = {all, rows, size, (int32_t *)(void *)best.host, place, (int32_t *)(void *)tokens.host};
        const tpw_pick_args d = {(uint64_t *)(void *)records.device,
                                 rows,
                                 size,
                                 (int32_t *)(void *)best.device,
                                 (int32_t *)(void *)to.device,
                                 (int32_t *)(void *)tokens.device};
        BOTH(pick, h, d);
        twin_end(&best, "pick"), twin_end(&tokens, "pick, tokens"), twin_end(&records, "records"), twin_end(&to, "to");
        free(all);
    }
    close_both(100000);
}

Test(gpu_step, accept)
{
    open_both();
    ops_random r = {92};
    for (int n = 0; n < 300; n++) {
        static accept_case c;
        accept_fill(&c, &r);
        twin entries = twin_words(c.entries, sizeof c.entries), tokens = twin_words(c.tokens, sizeof c.tokens),
             best = twin_words(c.best, sizeof c.best), out = twin_make(2 * EXCHANGE_ENTRIES * sizeof(int32_t));
        twin_send(&out);
        const int32_t count = n < EXCHANGE_ENTRIES ? n : EXCHANGE_ENTRIES;
        int32_t *h_out = (int32_t *)(void *)out.host, *d_out = (int32_t *)(void *)out.device;
        tpw_accept_args h = {c.entries, count, c.tokens, c.best, {0}, c.end_count, h_out, h_out + EXCHANGE_ENTRIES};
        memcpy(h.end_ids, c.end_ids, sizeof h.end_ids);
        tpw_accept_args d = h;
        d.entries = (tpw_accept_entry *)(void *)entries.device;
        d.tokens = (int32_t *)(void *)tokens.device, d.best = (int32_t *)(void *)best.device;
        d.taken = d_out, d.last = d_out + EXCHANGE_ENTRIES;
        BOTH(accept, h, d);
        twin_end(&out, "accept"), twin_end(&entries, "entries"), twin_end(&tokens, "tokens"), twin_end(&best, "best");
    }
    close_both(100000);
}

Test(gpu_step, gather_to_chosen_rows)
{
    open_both();
    ops_random r = {93};
    for (int n = 0; n < 60; n++) {
        static const int32_t widths[] = {1, 7, 1024, 5120};
        const tpw_dtype dtype = n % 3 == 0 ? TPW_I32 : n % 3 == 1 ? TPW_BF16 : TPW_F32;
        const int32_t cols = widths[n % 4], odd = n / 4 % 2;
        twin_mat x = twin_mat_make(dtype, 11, cols, odd, odd), y = twin_mat_make(dtype, 30, cols, odd * 3, odd);
        int32_t row[9], to[9];
        for (int i = 0; i < 9; i++) {
            row[i] = (int32_t)(ops_next(&r) % 11);
            to[i] = 3 * i + (int32_t)(ops_next(&r) % 3);
        }
        twin rows = twin_words(row, sizeof row), places = twin_words(to, sizeof to);
        twin_mat_bits(&x, &r);
        twin_mat_send(&x);
        twin_mat_send(&y);
        tpw_gather_args h = {x.h, row, y.h, to, 30}, d = {x.d, NULL, y.d, NULL, 30};
        h.y.rows = d.y.rows = 9;
        d.rows = (int32_t *)(void *)rows.device, d.to = (int32_t *)(void *)places.device;
        BOTH(gather, h, d);
        twin_end(&y.block, "gather"), twin_end(&x.block, "x"), twin_end(&rows, "rows"), twin_end(&places, "places");
    }
    close_both(1 << 20);
}

/* A random batch: what counts is rows and positions. */
static tpw_batch random_batch(tpw_segment *segments, int32_t *pages, ops_random *r)
{
    tpw_batch batch = {.segment_count = 1 + (int32_t)(ops_next(r) % 4), .segments = segments};
    for (int32_t i = 0; i < batch.segment_count; i++) {
        const int32_t rows = 1 + (int32_t)(ops_next(r) % 9);
        segments[i] = (tpw_segment){.row0 = batch.rows,
                                    .rows = rows,
                                    .rows_certain = 1,
                                    .slot = 1 + i,
                                    .pos = (int64_t)(ops_next(r) % 200),
                                    .pages = pages};
        batch.rows += rows;
    }
    return batch;
}

Test(gpu_step, digest_rows)
{
    open_both();
    ops_random r = {94};
    for (int n = 0; n < 300; n++) {
        static const int32_t widths[] = {1, 31, 128, 1000, 5120, 8704};
        tpw_segment segments[4];
        int32_t pages[64] = {0};
        const tpw_batch batch = random_batch(segments, pages, &r);
        const int32_t cols = widths[n % 6], odd = n / 12 % 3;
        twin_mat x = twin_mat_make((tpw_dtype)(n % TPW_DTYPE_COUNT), batch.rows, cols, odd, odd);
        twin sums = twin_make(((size_t)batch.rows + 1) * sizeof(uint64_t));
        twin_mat_bits(&x, &r);
        twin_mat_send(&x);
        twin_send(&sums);
        const uint64_t key = ops_next(&r);
        const tpw_digest_rows_args h = {&batch, x.h, key, (uint64_t *)(void *)sums.host};
        const tpw_digest_rows_args d = {&batch, x.d, key, (uint64_t *)(void *)sums.device};
        GPU_OK(gpu->device->stage(gpu, &batch, 16, err));
        BOTH(digest_rows, h, d);
        twin_end(&sums, "digest_rows"), twin_end(&x.block, "x");
    }
    close_both(1 << 20);
}

/* Steps of nine batches, staged before the first op and each used; data sent with them; one wait a step, whatever the ring does. */
Test(gpu_step, nine_batches_and_one_wait_a_step)
{
    enum { BATCHES = 9, STEPS = 200, COLS = 64, ROWS_MAX = 36, DATA = 5000 };
    const tpw_watch watch = {.timeout_ms = 5000};
    open_both();
    ops_random r = {95};
    twin_mat x = twin_mat_make(TPW_BF16, ROWS_MAX, COLS, 0, 0);
    twin_mat_bits(&x, &r);
    twin_mat_send(&x);
    unsigned char *data = gpu_alloc(gpu, DATA), sent[DATA], *got;
    uint64_t *sums = gpu_alloc(gpu, BATCHES * ROWS_MAX * sizeof *sums), *fetched, want[ROWS_MAX];
    GPU_OK(gpu->device->alloc_host(gpu, BATCHES * ROWS_MAX * sizeof *fetched, (void **)&fetched, err));
    GPU_OK(gpu->device->alloc_host(gpu, DATA, (void **)&got, err));
    GPU_OK(gpu->device->stage_reserve(gpu, BATCHES, ROWS_MAX, 4, 64, DATA, err));
    for (int step = 0; step < STEPS; step++) {
        tpw_segment segments[BATCHES][4];
        tpw_batch batches[BATCHES];
        int32_t pages[64] = {0};
        const int64_t waits = tpw_cuda_waits(gpu);
        for (int b = 0; b < BATCHES; b++) {
            batches[b] = random_batch(segments[b], pages, &r);
            GPU_OK(gpu->device->stage(gpu, &batches[b], 16, err));
        }
        for (int i = 0; i < DATA; i++)
            sent[i] = (unsigned char)ops_next(&r);
        GPU_OK(gpu->device->send(gpu, data, sent, DATA, err));
        for (int b = BATCHES - 1; b >= 0; b--) {
            tpw_digest_rows_args args = {&batches[b], x.d, (uint64_t)b, sums + (size_t)b * ROWS_MAX};
            GPU_OK(gpu->ops->digest_rows(gpu, &args, err));
        }
        cr_assert_eq(tpw_cuda_waits(gpu), waits, "a wait before the end of step %d", step);
        GPU_OK(gpu->device->fetch(gpu, fetched, sums, BATCHES * ROWS_MAX * sizeof *sums, &watch, err));
        cr_assert_eq(tpw_cuda_waits(gpu), waits + 1);
        GPU_OK(gpu->device->fetch(gpu, got, data, DATA, &watch, err));
        cr_assert_eq(memcmp(got, sent, DATA), 0, "what was sent in step %d did not arrive", step);
        for (int b = 0; b < BATCHES; b++) {
            const tpw_digest_rows_args args = {&batches[b], x.h, (uint64_t)b, want};
            GPU_OK(host->ops->digest_rows(host, &args, err));
            cr_assert_eq(memcmp(want, fetched + (size_t)b * ROWS_MAX, (size_t)batches[b].rows * sizeof *want), 0,
                         "step %d, batch %d", step, b);
        }
    }
    gpu->device->free_host(gpu, fetched);
    gpu->device->free_host(gpu, got);
    gpu_free(gpu, sums);
    gpu_free(gpu, data);
    twin_end(&x.block, "x");
    close_both(1000);
}

/* A refused batch takes nothing of the ring, and what was staged before under its address is gone. */
Test(gpu_step, a_refused_batch_is_no_batch)
{
    open_both();
    twin_mat x = twin_mat_make(TPW_BF16, 8, 64, 0, 0);
    ops_random r = {97};
    twin_mat_bits(&x, &r);
    twin_mat_send(&x);
    uint64_t *sums = gpu_alloc(gpu, 8 * sizeof *sums);
    int64_t wide[1] = {3};
    tpw_segment segment = {.rows = 8, .rows_certain = 1, .slot = 1, .pages_wide = wide};
    tpw_batch batch = {.rows = 8, .segment_count = 1, .segments = &segment};
    const tpw_digest_rows_args args = {&batch, x.d, 1, sums};
    tpw_error why = {0};
    GPU_OK(gpu->device->stage_reserve(gpu, 2, 8, 1, 1, 0, err));
    GPU_OK(gpu->device->stage(gpu, &batch, 16, err));
    GPU_OK(gpu->ops->digest_rows(gpu, &args, err));
    const size_t used = tpw_cuda_of(gpu)->ring.used;
    wide[0] = INT64_C(1) << 40;
    cr_assert_eq(gpu->device->stage(gpu, &batch, 16, &why), TPW_ERR_ARGUMENT);
    cr_assert(strstr(why.text, "page 1099511627776 of the segment at row 0") != NULL, "%s", why.text);
    cr_assert_eq(tpw_cuda_of(gpu)->ring.used, used);
    cr_assert_eq(gpu->ops->digest_rows(gpu, &args, &why), TPW_ERR_ARGUMENT);
    cr_assert(strstr(why.text, "was not staged") != NULL, "%s", why.text);
    wide[0] = 3;
    GPU_OK(gpu->device->stage(gpu, &batch, 16, err));
    GPU_OK(gpu->ops->digest_rows(gpu, &args, err));
    GPU_OK(tpw_cuda_sync(gpu, err));
    gpu_free(gpu, sums);
    twin_end(&x.block, "x");
    close_both(0);
}

/* As long as a list fits in its pinned memory it costs one wait, and one more for each further part. */
Test(gpu_step, a_digest_list_waits_once)
{
    enum {
        COLS = 64,
        JOBS = 30000,
        MOST = TPW_CUDA_LIST_BYTES / 80
    }; /* of one part: a sum of 8 bytes and a job of 72 each */
    static const int32_t counts[] = {1, 2, 1000, MOST, MOST + 1, JOBS};
    open_both();
    twin_mat x = twin_mat_make(TPW_BF16, 1, COLS, 0, 0);
    ops_random r = {98};
    twin_mat_bits(&x, &r);
    twin_mat_send(&x);
    uint64_t sum = 0;
    tpw_digest_args *jobs = gpu_host_alloc(JOBS * sizeof *jobs);
    for (int i = 0; i < JOBS; i++)
        jobs[i] = (tpw_digest_args){.x = x.d, .key = 5, .index_stride = COLS, .sum = &sum};
    const uint64_t one = tpw_digest_block(5, x.h.data, TPW_BF16, 1, COLS, COLS, 0, COLS);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const tpw_digest_list_args args = {jobs, counts[i]};
        const int64_t waits = tpw_cuda_waits(gpu);
        sum = 0;
        GPU_OK(gpu->ops->digest_list(gpu, &args, err));
        cr_assert_eq(sum, one * (uint64_t)counts[i]);
        cr_assert_eq(tpw_cuda_waits(gpu) - waits, (counts[i] + MOST - 1) / MOST, "%d jobs: %lld waits", counts[i],
                     (long long)(tpw_cuda_waits(gpu) - waits));
    }
    free(jobs);
    twin_end(&x.block, "x");
    close_both(0);
}

/* Blocks of all sizes, types and strides, some empty, several on one sum, in more jobs than one launch takes. */
Test(gpu_step, digest_list)
{
    enum { JOBS = 40000, SUMS = 5000, ROWS = 64, COLS = 640 };
    static const tpw_dtype types[] = {TPW_BOOL, TPW_E4M3, TPW_BF16, TPW_F16, TPW_F32, TPW_I32, TPW_I64};
    open_both();
    ops_random r = {96};
    twin_mat x = twin_mat_make(TPW_I64, ROWS, COLS, 0, 0);
    tpw_digest_args *jobs = gpu_host_alloc(JOBS * sizeof *jobs);
    uint64_t *want = gpu_host_alloc(SUMS * sizeof *want), *got = gpu_host_alloc(SUMS * sizeof *got);
    twin_mat_bits(&x, &r);
    twin_mat_send(&x);
    for (int i = 0; i < SUMS; i++)
        want[i] = got[i] = ops_next(&r);
    for (int i = 0; i < JOBS; i++) {
        const tpw_dtype type = types[ops_next(&r) % 7];
        const int64_t size = (int64_t)tpw_dtype_size(type), stride = COLS * 8 / size;
        const int32_t big = i % 1000 == 0, rows = big ? ROWS : (int32_t)(ops_next(&r) % 4),
                      cols = big ? (int32_t)stride : (int32_t)(ops_next(&r) % 70),
                      skip = big ? 0 : (int32_t)(ops_next(&r) % 500);
        jobs[i] = (tpw_digest_args){.x = {(char *)x.d.data + skip * size, type, rows, cols, stride},
                                    .key = ops_next(&r),
                                    .index0 = ops_next(&r) % 100000,
                                    .index_stride = i % 3 == 0 ? 3 : (uint64_t)(i % 3 == 1 ? cols : stride),
                                    .sum = &got[i % SUMS]};
        if (rows > 0 && cols > 0)
            want[i % SUMS] += tpw_digest_block(jobs[i].key, (char *)x.h.data + skip * size, type, rows, cols, stride,
                                               jobs[i].index0, jobs[i].index_stride);
    }
    const tpw_digest_list_args args = {jobs, JOBS};
    GPU_OK(gpu->ops->digest_list(gpu, &args, err));
    for (int i = 0; i < SUMS; i++)
        cr_assert_eq(got[i], want[i], "sum %d: %016llx instead of %016llx", i, (unsigned long long)got[i],
                     (unsigned long long)want[i]);
    twin_end(&x.block, "x");
    free(jobs), free(want), free(got);
    close_both(ROWS * COLS * 8);
}

static void CUDART_CB hold_up(void *data)
{
    const struct timespec rest = {0, *(int *)data * 1000000};
    nanosleep(&rest, NULL);
}

static tpw_status fail_second(void *data, tpw_error *err)
{
    return ++*(int *)data < 2 ? TPW_OK : tpw_fail(err, TPW_ERR_PEER, "rank 1 (hostB) failed: out of paper");
}

/* The wait at a step's end ends by what is heard, by its limit, and by the stream. */
Test(gpu_step, the_wait_is_watched)
{
    open_both();
    int ms = 400, looks = 0;
    uint64_t *word = gpu_alloc(gpu, 8), *to;
    tpw_error why = {0};
    const tpw_watch heard = {5000, fail_second, &looks}, limited = {100, NULL, NULL}, patient = {5000, NULL, NULL};
    cudaStream_t stream = tpw_cuda_of(gpu)->stream;
    GPU_OK(gpu->device->alloc_host(gpu, 8, (void **)&to, err));
    int64_t begin = tpw_clock_ns();
    cr_assert_eq(cudaLaunchHostFunc(stream, hold_up, &ms), cudaSuccess);
    cr_assert_eq(gpu->device->fetch(gpu, to, word, 8, &heard, &why), TPW_ERR_PEER);
    cr_assert_str_eq(why.text, "rank 1 (hostB) failed: out of paper");
    cr_assert_lt(tpw_clock_ns() - begin, 300000000);
    GPU_OK(tpw_cuda_sync(gpu, err));
    begin = tpw_clock_ns();
    cr_assert_eq(cudaLaunchHostFunc(stream, hold_up, &ms), cudaSuccess);
    cr_assert_eq(gpu->device->fetch(gpu, to, word, 8, &limited, &why), TPW_ERR_PEER);
    cr_assert(strstr(why.text, "did not end within 100 ms") != NULL, "%s", why.text);
    cr_assert(strncmp(why.text, "GPU ", 4) == 0, "%s", why.text);
    cr_assert_lt(tpw_clock_ns() - begin, 300000000);
    GPU_OK(tpw_cuda_sync(gpu, err));
    cr_assert_eq(cudaLaunchHostFunc(stream, hold_up, &ms), cudaSuccess);
    GPU_OK(gpu->device->fetch(gpu, to, word, 8, &patient, err));
    gpu->device->free_host(gpu, to);
    gpu_free(gpu, word);
    close_both(0);
}
