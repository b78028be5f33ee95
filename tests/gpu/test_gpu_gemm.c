/* The CUDA gemm: against double precision and the host, and by bits over row counts, kernels, ranks and the portable path.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "gemm_case.h"
#include "kernels/cuda/exec.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/selftest.h"
#include "model/config.h"

/* |gpu - exact| <= BOUND * sum |w x scale|: 13 joins of 2^-24 each over the longest chain, and the tensor core's own
 * sums of 16 products. Measured worst: 1.9e-7. */
#define BOUND    4e-7
#define ROWS_MAX 1024

TestSuite(gpu_gemm, .timeout = 400);

typedef struct shape {
    const char *name;
    tpw_dtype dtype;
    tpw_gemm_kind kind;
    int32_t rows;
    int32_t cols;
} shape;

/* The weights of a model, each in the shape that rank 0 of `size` holds (rows cut for COLUMN; ROW is cut in columns later). */
static int model_shapes(const tpw_config *c, int32_t size, shape out[16])
{
    const int32_t h = c->hidden, qk = c->linear_k_heads * c->linear_k_dim, v = c->linear_v_heads * c->linear_v_dim;
    const int32_t kv = c->kv_heads * c->head_dim, kv_local = kv / size > c->head_dim ? kv / size : c->head_dim;
    int n = 0;
    out[n++] = (shape){"qkv", TPW_E4M3, TPW_GEMM_COLUMN, (2 * qk + v) / size, h};
    out[n++] = (shape){"z", TPW_E4M3, TPW_GEMM_COLUMN, v / size, h};
    out[n++] = (shape){"a, b", TPW_BF16, TPW_GEMM_COLUMN, c->linear_v_heads / size, h};
    out[n++] = (shape){"out", TPW_E4M3, TPW_GEMM_ROW, h, v};
    out[n++] = (shape){"q", TPW_E4M3, TPW_GEMM_COLUMN, 2 * c->heads * c->head_dim / size, h};
    out[n++] = (shape){"k, v", TPW_E4M3, TPW_GEMM_COLUMN, kv_local, h};
    out[n++] = (shape){"o", TPW_E4M3, TPW_GEMM_ROW, h, c->heads * c->head_dim};
    out[n++] = (shape){"gate, up", TPW_E4M3, TPW_GEMM_COLUMN, c->intermediate / size, h};
    out[n++] = (shape){"down", TPW_E4M3, TPW_GEMM_ROW, h, c->intermediate};
    out[n++] = (shape){"head", TPW_BF16, TPW_GEMM_COLUMN, c->vocab / size, h};
    out[n++] = (shape){"mtp.fc", TPW_BF16, TPW_GEMM_COLUMN, h, 2 * h};
    out[n++] = (shape){"mtp.down", TPW_BF16, TPW_GEMM_ROW, h, c->intermediate};
    return n;
}

/* Shapes of no model: pieces that a slice cuts, short chunks, rows and columns that divide nothing. */
static const shape odd_rows[] = {
    {"odd row 96", TPW_E4M3, TPW_GEMM_ROW, 80, 96},      {"odd row 192", TPW_E4M3, TPW_GEMM_ROW, 136, 192},
    {"odd row 768", TPW_E4M3, TPW_GEMM_ROW, 96, 768},    {"odd row 1544", TPW_E4M3, TPW_GEMM_ROW, 33, 1544},
    {"odd row 1000", TPW_BF16, TPW_GEMM_ROW, 100, 1000}, {"odd row 100", TPW_E4M3, TPW_GEMM_ROW, 50, 100},
    {"odd row 1027", TPW_E4M3, TPW_GEMM_ROW, 50, 1027},
};
static const shape odd_columns[] = {
    {"odd column 1", TPW_E4M3, TPW_GEMM_COLUMN, 1, 1},       {"odd column 33", TPW_E4M3, TPW_GEMM_COLUMN, 7, 33},
    {"odd column 129", TPW_E4M3, TPW_GEMM_COLUMN, 129, 129}, {"odd column 96", TPW_E4M3, TPW_GEMM_COLUMN, 250, 96},
    {"odd column 80", TPW_BF16, TPW_GEMM_COLUMN, 130, 80},   {"odd column 160", TPW_BF16, TPW_GEMM_COLUMN, 17, 160},
};
static const shape odd_large[] = {{"odd column 5000", TPW_E4M3, TPW_GEMM_COLUMN, 2111, 5000}};

static tpw_mat mat(void *data, tpw_dtype dtype, int32_t rows, int32_t cols)
{
    return (tpw_mat){data, dtype, rows, cols, cols};
}

/* y = x w^T over the first m rows by `path`, into device memory. */
static void run(const tpw_exec *exec, const gemm_part *part, tpw_gemm_kind kind, void *x, void *y, tpw_dtype y_type,
                int32_t m, int32_t parts, tpw_gemm_path path)
{
    tpw_gemm_args args = {.x = mat(x, TPW_BF16, m, part->host.cols),
                          .w = part->device,
                          .kind = kind,
                          .y = mat(y, y_type, m * (parts > 0 ? parts : 1), part->host.rows),
                          .parts = parts};
    GPU_OK(tpw_cuda_gemm_path(exec, &args, path, err));
}

static double weight_value(const tpw_weight *w, int32_t r, int32_t c)
{
    size_t at = (size_t)r * (size_t)w->cols + (size_t)c;
    if (w->dtype == TPW_BF16)
        return tpw_bf16_to_f32(((const uint16_t *)w->data)[at]);
    return (double)tpw_e4m3_to_f32(((const uint8_t *)w->data)[at]) *
           w->scale[w->scale_row[r] * w->scale_cols + (w->col0 + c) / 128 - w->col0 / 128];
}

/* Worst |y - exact| / sum |w x| over some weight rows spread over all and m rows of x. */
static double worst_error(const tpw_weight *w, const uint16_t *x, const float *y, int32_t m)
{
    double worst = 0;
    int32_t step = w->rows > 64 ? w->rows / 64 : 1;
    for (int32_t r = 0; r < w->rows; r += step)
        for (int32_t i = 0; i < m; i++) {
            double sum = 0, size = 0;
            for (int32_t c = 0; c < w->cols; c++) {
                double v = weight_value(w, r, c) * tpw_bf16_to_f32(x[(size_t)i * (size_t)w->cols + (size_t)c]);
                sum += v;
                size += fabs(v);
            }
            double error = fabs(y[(size_t)i * (size_t)w->rows + (size_t)r] - sum);
            worst = fmax(worst, size > 0 ? error / size : error > 0 ? INFINITY : 0);
        }
    return worst;
}

/* Row r of every row count equals the run of one row, by every kernel and exec; the digests of blocks tell. */
static void check_rows(const tpw_exec *exec, const tpw_exec *portable, const gemm_part *part, tpw_gemm_kind kind,
                       void *x, int32_t rows_max, bool all_counts, const char *name)
{
    const size_t row = (size_t)part->host.rows * sizeof(float);
    char *alone = gpu_alloc(exec, (size_t)rows_max * row);
    void *y = gpu_alloc(exec, (size_t)rows_max * row);
    uint64_t *sum = gpu_alloc(exec, sizeof *sum);
    const bool wgmma = tpw_cuda_uses_wgmma(exec) && part->host.cols_global % 1024 == 0;
    int counts = 0;
    for (int32_t r = 0; r < rows_max; r++)
        run(exec, part, kind, (char *)x + (size_t)r * (size_t)part->host.cols * 2, alone + (size_t)r * row, TPW_F32, 1,
            0, TPW_GEMM_AUTO);
    for (int32_t m = 1; m <= rows_max; m = m < 256 && (all_counts || m < 18) ? m + 1
                                           : m < 31                          ? 31
                                           : m < 34                          ? m + 1
                                           : m < 64                          ? 64
                                           : m < 65                          ? 65
                                           : m < 128                         ? 128
                                           : m < 129                         ? 129
                                           : m < 256                         ? 256
                                           : rows_max > m                    ? rows_max
                                                                             : m + 1) {
        const uint64_t expected = gpu_digest(exec, mat(alone, TPW_F32, m, part->host.rows), sum);
        for (int how = 0; how < 5; how++) { /* the choice, the tile kernel, both on the portable path, wgmma */
            const tpw_exec *e = how < 2 || how == 4 ? exec : portable;
            const tpw_gemm_path path = how == 4 ? TPW_GEMM_WGMMA : how % 2 == 0 ? TPW_GEMM_AUTO : TPW_GEMM_TILE;
            if (how == 4 && (!wgmma || (m > 65 && m % 7 != 1)))
                continue; /* the choice takes it, too */
            if ((how == 1 && m > TPW_GEMM_SKINNY_ROWS && (!wgmma || m % 7 != 1)) ||
                (how >= 2 && how < 4 && all_counts && m % 7 != 1))
                continue;
            GPU_OK(exec->device->fill(exec, y, 0xFF, (size_t)m * row, err));
            run(e, part, kind, x, y, TPW_F32, m, 0, path);
            GPU_OK(tpw_cuda_sync(e, err));
            cr_assert_eq(gpu_digest(exec, mat(y, TPW_F32, m, part->host.rows), sum), expected,
                         "%s [%d, %d]: %d rows differ from one at a time (way %d)", name, (int)part->host.rows,
                         (int)part->host.cols, (int)m, how);
            counts++;
        }
    }
    cr_assert_gt(counts, 20);
    gpu_free(exec, alone);
    gpu_free(exec, y);
    gpu_free(exec, sum);
}

/* One shape: against double precision, and by bits. */
static void check_shape(const tpw_exec *exec, const tpw_exec *portable, const shape *s, int32_t rows_max,
                        bool all_counts, ops_random *r)
{
    gemm_weight w = gemm_weight_make(s->dtype, s->kind, s->rows, s->cols, r);
    gemm_part part = gemm_part_make(exec, &w, 0, 1);
    uint16_t *x = gemm_x_make(rows_max, s->cols, r);
    void *x_device = gpu_upload(exec, x, (size_t)rows_max * (size_t)s->cols * sizeof *x);
    const int32_t m = 3;
    float *y = gpu_host_alloc((size_t)m * (size_t)s->rows * sizeof *y);
    void *y_device = gpu_alloc(exec, (size_t)m * (size_t)s->rows * sizeof *y);
    run(exec, &part, s->kind, x_device, y_device, TPW_F32, m, 0, TPW_GEMM_AUTO);
    gpu_download(exec, y, y_device, (size_t)m * (size_t)s->rows * sizeof *y);
    double error = worst_error(&part.host, x, y, m);
    cr_assert_lt(error, BOUND, "%s [%d, %d]: error %g of sum |w x|", s->name, (int)s->rows, (int)s->cols, error);
    check_rows(exec, portable, &part, s->kind, x_device, rows_max, all_counts, s->name);
    printf("%-16s %s [%6d, %5d]  error %.2e\n", s->name, tpw_dtype_name(s->dtype), (int)s->rows, (int)s->cols, error);
    free(x);
    free(y);
    gpu_free(exec, x_device);
    gpu_free(exec, y_device);
    gemm_part_free(exec, &part);
    gemm_weight_free(&w);
}

static void check_model(const char *name, int32_t size, int32_t rows_max, bool all_counts)
{
    tpw_exec *exec = gpu_exec(), *portable = gpu_exec_with((tpw_cuda_options){.portable = true});
    ops_random r = {11};
    tpw_config config;
    shape shapes[16];
    GPU_OK(tpw_config_dummy(name, 0, 0, &config, err));
    int n = model_shapes(&config, size, shapes);
    cr_assert_geq(n, 12);
    for (int i = 0; i < n; i++)
        check_shape(exec, portable, &shapes[i], shapes[i].rows > 100000 ? 48 : rows_max,
                    all_counts && shapes[i].rows <= 20000, &r);
    tpw_cuda_destroy(portable);
    tpw_cuda_destroy(exec);
}

Test(gpu_gemm, shapes_27b)
{
    check_model("qwen3.5-27b", 1, ROWS_MAX, true);
}

Test(gpu_gemm, shapes_27b_of_two_ranks)
{
    check_model("qwen3.5-27b", 2, 130, false);
}

Test(gpu_gemm, shapes_9b)
{
    check_model("qwen3.5-9b", 1, 130, false);
}

Test(gpu_gemm, shapes_08b)
{
    check_model("qwen3.5-0.8b", 1, 257, true);
}

static void check_odd(const shape *shapes, size_t count)
{
    tpw_exec *exec = gpu_exec(), *portable = gpu_exec_with((tpw_cuda_options){.portable = true});
    ops_random r = {12};
    for (size_t i = 0; i < count; i++)
        check_shape(exec, portable, &shapes[i], 257, true, &r);
    tpw_cuda_destroy(portable);
    tpw_cuda_destroy(exec);
}

Test(gpu_gemm, odd_rows)
{
    check_odd(odd_rows, sizeof odd_rows / sizeof *odd_rows);
}

Test(gpu_gemm, odd_columns)
{
    check_odd(odd_columns, sizeof odd_columns / sizeof *odd_columns);
}

Test(gpu_gemm, odd_large)
{
    check_odd(odd_large, sizeof odd_large / sizeof *odd_large);
}

/* Sums that a tree over four ranks gives otherwise when ranks 1 and 2 are exchanged in it. */
static size_t moved_by_exchange(const float *sum, size_t n)
{
    size_t moved = 0;
    for (size_t k = 0; k < n; k++) {
        const float right = (sum[k] + sum[n + k]) + (sum[2 * n + k] + sum[3 * n + k]);
        const float wrong = (sum[k] + sum[2 * n + k]) + (sum[n + k] + sum[3 * n + k]);
        moved += memcmp(&right, &wrong, sizeof right) != 0;
    }
    return moved;
}

/* The partial sums of n ranks, joined by the tree over ranks, are the sum of one rank; so are slices left apart. A tree with two
 * ranks exchanged would be found here. */
Test(gpu_gemm, ranks_fold_to_one)
{
    static const shape shapes[] = {
        {"out", TPW_E4M3, TPW_GEMM_ROW, 5120, 6144},      {"down", TPW_E4M3, TPW_GEMM_ROW, 5120, 17408},
        {"down 9b", TPW_E4M3, TPW_GEMM_ROW, 4096, 12288}, {"mtp.down", TPW_BF16, TPW_GEMM_ROW, 1024, 3584},
        {"pocket", TPW_E4M3, TPW_GEMM_ROW, 256, 768},     {"short", TPW_E4M3, TPW_GEMM_ROW, 80, 96}};
    tpw_exec *exec = gpu_exec();
    ops_random r = {13};
    size_t compared = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        const int32_t m = 19;
        const size_t n = (size_t)m * (size_t)s->rows, bytes = n * sizeof(float);
        gemm_weight w = gemm_weight_make(s->dtype, s->kind, s->rows, s->cols, &r);
        uint16_t *x = gemm_x_make(m, s->cols, &r);
        float *whole = gpu_host_alloc(bytes), *sum = gpu_host_alloc(8 * bytes);
        void *y = gpu_alloc(exec, 8 * bytes);
        for (int size = 1; size <= 8; size *= 2) {
            for (int rank = 0; rank < size; rank++) {
                gemm_part part = gemm_part_make(exec, &w, rank, size);
                const int32_t cols = s->cols / size;
                uint16_t *own = gpu_host_alloc((size_t)m * (size_t)cols * 2);
                for (int32_t k = 0; k < m; k++)
                    memcpy(own + (size_t)k * (size_t)cols, x + (size_t)k * (size_t)s->cols + rank * cols,
                           (size_t)cols * 2);
                void *x_device = gpu_upload(exec, own, (size_t)m * (size_t)cols * 2);
                run(exec, &part, s->kind, x_device, y, TPW_F32, m, 0, TPW_GEMM_AUTO);
                gpu_download(exec, sum + (size_t)rank * n, y, bytes);
                if (size == 2) { /* the rank's slices apart, joined here */
                    float *apart = gpu_host_alloc(4 * bytes);
                    run(exec, &part, s->kind, x_device, y, TPW_F32, m, 4, TPW_GEMM_AUTO);
                    gpu_download(exec, apart, y, 4 * bytes);
                    for (size_t k = 0; k < n; k++) {
                        float joined = (apart[k] + apart[n + k]) + (apart[2 * n + k] + apart[3 * n + k]);
                        cr_assert_eq(memcmp(&joined, &sum[(size_t)rank * n + k], 4), 0, "%s: slices apart, element %zu",
                                     s->name, k);
                    }
                    free(apart);
                }
                free(own);
                gpu_free(exec, x_device);
                gemm_part_free(exec, &part);
            }
            if (size == 4)
                cr_assert_gt(moved_by_exchange(sum, n), n / 100, "%s: two ranks exchanged change next to nothing",
                             s->name);
            for (int step = 1; step < size; step *= 2)
                for (int rank = 0; rank < size; rank += 2 * step)
                    for (size_t k = 0; k < n; k++)
                        sum[(size_t)rank * n + k] += sum[(size_t)(rank + step) * n + k];
            if (size == 1)
                memcpy(whole, sum, bytes);
            cr_assert_eq(memcmp(whole, sum, bytes), 0, "%s: %d ranks fold to another sum", s->name, size);
            compared += n;
        }
        free(whole);
        free(sum);
        free(x);
        gpu_free(exec, y);
        gemm_weight_free(&w);
    }
    cr_assert_gt(compared, (size_t)1000000);
    tpw_cuda_destroy(exec);
}

/* BF16 results are the F32 results rounded once; scratch that holds few rows moves no bit. */
Test(gpu_gemm, rounding_and_blocks)
{
    tpw_exec *exec = gpu_exec();
    ops_random r = {14};
    gemm_weight w = gemm_weight_make(TPW_E4M3, TPW_GEMM_ROW, 5120, 6144, &r);
    gemm_part part = gemm_part_make(exec, &w, 0, 1);
    const int32_t m = 700; /* slices of 700 rows need 115 MB: more than the scratch of a new exec */
    const size_t n = (size_t)m * 5120;
    uint16_t *x = gemm_x_make(m, 6144, &r), *half = gpu_host_alloc(n * 2);
    float *y = gpu_host_alloc(n * sizeof *y);
    void *x_device = gpu_upload(exec, x, (size_t)m * 6144 * 2), *y_device = gpu_alloc(exec, n * 4);
    run(exec, &part, TPW_GEMM_ROW, x_device, y_device, TPW_BF16, m, 0, TPW_GEMM_AUTO);
    gpu_download(exec, half, y_device, n * 2);
    GPU_OK(tpw_cuda_reserve(exec, (size_t)256 << 20, err));
    run(exec, &part, TPW_GEMM_ROW, x_device, y_device, TPW_F32, m, 0, TPW_GEMM_AUTO);
    gpu_download(exec, y, y_device, n * 4);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(half[i], tpw_bf16_from_f32(y[i]), "element %zu", i);
    free(x);
    free(half);
    free(y);
    gpu_free(exec, x_device);
    gpu_free(exec, y_device);
    gemm_part_free(exec, &part);
    gemm_weight_free(&w);
    tpw_cuda_destroy(exec);
}

/* Blocks of rows as small as the scratch makes them, one row at last: the bits of one block. */
Test(gpu_gemm, blocks_of_few_rows)
{
    enum { M = 150, N = 1024, K = 6144 };
    static const int blocks[] = {127, 100, 64, 17, 16, 3, 1};
    tpw_exec *exec = gpu_exec();
    ops_random r = {15};
    gemm_weight w = gemm_weight_make(TPW_E4M3, TPW_GEMM_ROW, N, K, &r);
    gemm_part part = gemm_part_make(exec, &w, 0, 1);
    const size_t n = (size_t)M * N, x_row = (size_t)K * 2,
                 row = x_row + (size_t)TPW_SLICES_ROW_PARALLEL * N * sizeof(float);
    const size_t whole = tpw_cuda_of(exec)->scratch_bytes;
    uint16_t *x = gemm_x_make(M, K, &r);
    float *y = gpu_host_alloc(n * sizeof *y), *want = gpu_host_alloc(n * sizeof *want);
    void *x_device = gpu_upload(exec, x, (size_t)M * K * 2), *y_device = gpu_alloc(exec, n * 4);
    cr_assert_gt(whole, 256 + 127 * x_row + 256 * row, "all rows are not one block");
    for (int path = 0; path < 3; path++) {
        const tpw_gemm_path paths[] = {TPW_GEMM_TILE, TPW_GEMM_WGMMA, TPW_GEMM_AUTO};
        if (paths[path] == TPW_GEMM_WGMMA && !tpw_cuda_uses_wgmma(exec))
            continue;
        run(exec, &part, TPW_GEMM_ROW, x_device, y_device, TPW_F32, M, 0, paths[path]);
        gpu_download(exec, path == 0 ? want : y, y_device, n * 4);
        cr_assert(path == 0 || memcmp(y, want, n * 4) == 0, "path %d", path);
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
            GPU_OK(exec->device->fill(exec, y_device, 0xFF, n * 4, err));
            tpw_cuda_of(exec)->scratch_bytes = 256 + 127 * x_row + (size_t)blocks[b] * row;
            run(exec, &part, TPW_GEMM_ROW, x_device, y_device, TPW_F32, M, 0, paths[path]);
            tpw_cuda_of(exec)->scratch_bytes = whole;
            gpu_download(exec, y, y_device, n * 4);
            cr_assert_eq(memcmp(y, want, n * 4), 0, "path %d, blocks of %d rows", path, blocks[b]);
        }
    }
    free(x);
    free(y);
    free(want);
    gpu_free(exec, x_device);
    gpu_free(exec, y_device);
    gemm_part_free(exec, &part);
    gemm_weight_free(&w);
    tpw_cuda_destroy(exec);
}

/* The start-up test itself, its verdict, and the fallback: without wgmma the same bits come from mma.sync. */
Test(gpu_gemm, self_test)
{
    tpw_exec *exec = gpu_exec(), *other = gpu_exec_with((tpw_cuda_options){.no_wgmma = true});
    tpw_cuda_selftest_report report;
    GPU_OK(tpw_cuda_selftest(exec, &report, err));
    printf("%s\n", report.text);
    cr_assert_gt(report.subnormal_asked, 1000u);
    cr_assert_eq(report.subnormal_wrong, 0u);
    if (tpw_cuda_gpu_of(exec)->major == 9) {
        cr_assert_gt(report.wgmma_asked, 500000u);
        cr_assert_eq(report.wgmma_unequal, 0u);
        cr_assert(tpw_cuda_uses_wgmma(exec));
    }
    cr_assert(!tpw_cuda_uses_wgmma(other));
    ops_random r = {16};
    gemm_weight w = gemm_weight_make(TPW_E4M3, TPW_GEMM_COLUMN, 1000, 5120, &r);
    gemm_part part = gemm_part_make(exec, &w, 0, 1);
    const int32_t m = 300;
    uint16_t *x = gemm_x_make(m, 5120, &r);
    void *x_device = gpu_upload(exec, x, (size_t)m * 5120 * 2), *a = gpu_alloc(exec, (size_t)m * 4000),
         *b = gpu_alloc(exec, (size_t)m * 4000);
    char *a_host = gpu_host_alloc((size_t)m * 4000), *b_host = gpu_host_alloc((size_t)m * 4000);
    run(exec, &part, TPW_GEMM_COLUMN, x_device, a, TPW_F32, m, 0, TPW_GEMM_AUTO);
    run(other, &part, TPW_GEMM_COLUMN, x_device, b, TPW_F32, m, 0, TPW_GEMM_AUTO);
    GPU_OK(tpw_cuda_sync(other, err));
    gpu_download(exec, a_host, a, (size_t)m * 4000);
    gpu_download(exec, b_host, b, (size_t)m * 4000);
    cr_assert_eq(memcmp(a_host, b_host, (size_t)m * 4000), 0);
    free(x);
    free(a_host);
    free(b_host);
    gpu_free(exec, x_device);
    gpu_free(exec, a);
    gpu_free(exec, b);
    gemm_part_free(exec, &part);
    gemm_weight_free(&w);
    tpw_cuda_destroy(other);
    tpw_cuda_destroy(exec);
}

/* What cannot be done is refused by name. */
Test(gpu_gemm, refusals)
{
    tpw_exec *exec = gpu_exec();
    ops_random r = {15};
    tpw_error err = {0};
    gemm_weight w = gemm_weight_make(TPW_E4M3, TPW_GEMM_ROW, 32, 256, &r);
    gemm_part part = gemm_part_make(exec, &w, 0, 1);
    void *x = gpu_alloc(exec, 4096), *y = gpu_alloc(exec, 4096);
    tpw_gemm_args args = {
        .x = mat(x, TPW_BF16, 1, 256), .w = part.device, .kind = TPW_GEMM_ROW, .y = mat(y, TPW_F32, 1, 32)};
    args.x.dtype = TPW_F32;
    cr_assert_eq(exec->ops->gemm(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    args.x.dtype = TPW_BF16;
    args.w.packed = NULL;
    cr_assert_eq(exec->ops->gemm(exec, &args, &err), TPW_ERR_ARGUMENT);
    args.w.packed = part.packed;
    args.parts = 4;
    cr_assert_eq(exec->ops->gemm(exec, &args, &err), TPW_ERR_ARGUMENT);
    args.parts = 0;
    args.w.col0 = 32;
    cr_assert_eq(exec->ops->gemm(exec, &args, &err), TPW_ERR_ARGUMENT);
    ((uint8_t *)part.host.data)[77] = 0x7F;
    void *plain = gpu_upload(exec, part.host.data, 32 * 256);
    part.device.data = plain;
    cr_assert_eq(exec->device->pack(exec, &part.device, TPW_GEMM_ROW, part.packed, &err), TPW_ERR_CHECKPOINT);
    gpu_free(exec, plain);
    gpu_free(exec, x);
    gpu_free(exec, y);
    gemm_part_free(exec, &part);
    gemm_weight_free(&w);
    tpw_cuda_destroy(exec);
}
