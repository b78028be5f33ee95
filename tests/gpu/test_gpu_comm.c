/* The NCCL communicator on real GPUs, a rank each: three transports and the fused forms against the host's sums by bits, graphs,
 * soak, epochs, a peer that never sends, teardown. SPDX-License-Identifier: Apache-2.0 */
#include "mpi/mpi_test.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <time.h>

#include "gpu_test.h"
#include "kernels/cuda/exec.h"
#include "tp/boot_mpi.h"
#include "tp/comm_nccl.h"

#define COLS 5120

TestSuite(gpu_comm, .init = mt_init, .fini = mt_fini, .timeout = 150);

/* One rank's half of a test. */
typedef struct side {
    tpw_boot *boot;
    tpw_exec *exec;
    tpw_comm *comm;
} side;

static void skip_without_gpus(void)
{
    char reason[160], text[256];
    int count = tpw_cuda_count(reason, sizeof reason);
    snprintf(text, sizeof text, "%d GPUs for %d ranks%s%s", count, mt_size, reason[0] != '\0' ? ": " : "", reason);
    mt_skip_if(count < mt_size, text);
}

static side side_open_on(tpw_nccl_options options, tpw_cuda_options o)
{
    side s = {0};
    o.device = mt_rank;
    GPU_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 60000, &s.boot, err));
    GPU_OK(tpw_cuda_create(&o, &s.exec, err));
    GPU_OK(tpw_comm_nccl_create(s.boot, s.exec, &options, &s.comm, err));
    return s;
}

static side side_open_with(tpw_nccl_options options, int64_t spin_ms)
{
    return side_open_on(options, (tpw_cuda_options){.spin_ms = spin_ms});
}

static side side_open(tpw_nccl_transport transport)
{
    return side_open_with((tpw_nccl_options){.rows_max = 1024, .cols_max = COLS, .transport = transport}, 5000);
}

static void side_close(side *s)
{
    GPU_OK(tpw_comm_nccl_close(s->comm, err));
    tpw_cuda_destroy(s->exec);
    tpw_boot_destroy(s->boot);
}

/* Element i of rank r in data set `seed`: many magnitudes, so that sums round. */
static float value(uint64_t seed, int r, size_t i)
{
    ops_random g = {seed * 1000003 + (uint64_t)r * 7919 + i * 31};
    float v = ops_uniform(&g);
    return ldexpf(v, (int)(ops_next(&g) % 12) - 6);
}

/* The tree over all ranks, on the host. */
static float tree(uint64_t seed, int size, size_t i)
{
    float v[8];
    for (int r = 0; r < size; r++)
        v[r] = value(seed, r, i);
    for (int step = 1; step < size; step *= 2)
        for (int r = 0; r + step < size; r += 2 * step)
            v[r] += v[r + step];
    return v[0];
}

static void check_sums(side *s, size_t count, uint64_t seed, const char *what)
{
    float *x = gpu_host_alloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = value(seed, mt_rank, i);
    float *d = gpu_upload(s->exec, x, count * sizeof *x);
    GPU_OK(s->comm->ops->allreduce(s->comm, d, count, err));
    GPU_OK(tpw_cuda_sync(s->exec, err));
    gpu_download(s->exec, x, d, count * sizeof *x);
    for (size_t i = 0; i < count; i++) {
        float expected = tree(seed, mt_size, i);
        cr_assert_eq(memcmp(&x[i], &expected, 4), 0, "%s: %zu values, element %zu: %a, expected %a", what, count, i,
                     (double)x[i], (double)expected);
    }
    gpu_free(s->exec, d);
    free(x);
}

static const char *const way_names[] = {"auto", "packets", "copies", "gather", "portable"};

MPI_TEST(gpu_comm, sums_of_all_transports)
{
    static const size_t rows[] = {1, 2, 32, 33, 130, 1024};
    skip_without_gpus();
    for (int way = TPW_NCCL_AUTO; way <= TPW_NCCL_GATHER; way++) {
        side s = side_open((tpw_nccl_transport)way);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            check_sums(&s, rows[i] * COLS, 10 + i, way_names[way]);
        check_sums(&s, 2, 90, way_names[way]);
        check_sums(&s, 2050, 91, way_names[way]);
        check_sums(&s, 300002, 92, way_names[way]);
        side_close(&s);
    }
}

/* Bits of every owner survive, -0 among them. */
MPI_TEST(gpu_comm, merge_and_allgather)
{
    skip_without_gpus();
    side s = side_open(TPW_NCCL_AUTO);
    uint32_t word[4096], all[8 * 64];
    for (int i = 0; i < 4096; i++)
        word[i] = i % mt_size == mt_rank ? 0x80000000u + (uint32_t)i % 3 : 0;
    uint32_t *d = gpu_upload(s.exec, word, sizeof word), *mine, *theirs;
    GPU_OK(s.comm->ops->merge(s.comm, d, sizeof word, err));
    gpu_download(s.exec, word, d, sizeof word);
    for (int i = 0; i < 4096; i++)
        cr_assert_eq(word[i], 0x80000000u + (uint32_t)i % 3);
    for (int i = 0; i < 64; i++)
        word[i] = (uint32_t)(mt_rank * 1000 + i);
    mine = gpu_upload(s.exec, word, 256);
    theirs = gpu_alloc(s.exec, 256 * (size_t)mt_size);
    GPU_OK(s.comm->ops->allgather(s.comm, mine, theirs, 256, err));
    gpu_download(s.exec, all, theirs, 256 * (size_t)mt_size);
    for (int i = 0; i < 64 * mt_size; i++)
        cr_assert_eq(all[i], (uint32_t)(i / 64 * 1000 + i % 64));
    gpu_free(s.exec, d);
    gpu_free(s.exec, mine);
    gpu_free(s.exec, theirs);
    side_close(&s);
}

/* The fused form of m rows of `cols` with `parts` slices a rank, by `comm`: h and y into host memory. */
static void fused(side *s, int32_t m, int32_t cols, int32_t parts, uint64_t seed, uint16_t *h, uint16_t *y)
{
    const size_t n = (size_t)m * (size_t)cols;
    float *sum = gpu_host_alloc(n * (size_t)parts * sizeof *sum),
          *weight = gpu_host_alloc((size_t)cols * sizeof *weight);
    ops_random r = {seed};
    for (size_t i = 0; i < n; i++)
        h[i] = tpw_bf16_from_f32(4.0f * ops_uniform(&r));
    for (int32_t i = 0; i < cols; i++)
        weight[i] = ops_uniform(&r);
    for (size_t i = 0; i < n * (size_t)parts; i++)
        sum[i] = value(seed, mt_rank, i);
    void *dh = gpu_upload(s->exec, h, n * 2), *dy = gpu_alloc(s->exec, n * 2),
         *dw = gpu_upload(s->exec, weight, (size_t)cols * 4);
    float *ds = gpu_upload(s->exec, sum, n * (size_t)parts * 4);
    tpw_add_norm_args args = {.h = {dh, TPW_BF16, m, cols, cols},
                              .sum = ds,
                              .parts = parts,
                              .weight = dw,
                              .eps = 1e-6f,
                              .y = {dy, TPW_BF16, m, cols, cols}};
    GPU_OK(tpw_comm_nccl_add_norm(s->comm, &args, err));
    GPU_OK(tpw_cuda_sync(s->exec, err));
    gpu_download(s->exec, h, dh, n * 2);
    gpu_download(s->exec, y, dy, n * 2);
    gpu_free(s->exec, dh);
    gpu_free(s->exec, dy);
    gpu_free(s->exec, dw);
    gpu_free(s->exec, ds);
    free(sum);
    free(weight);
}

/* What the host makes of all ranks' slices. */
static void fused_expected(int32_t m, int32_t cols, int32_t parts, uint64_t seed, uint16_t *h, uint16_t *y)
{
    const size_t n = (size_t)m * (size_t)cols;
    tpw_exec *host = gpu_host_exec();
    float *sum = gpu_host_alloc(n * (size_t)parts * (size_t)mt_size * sizeof *sum),
          *weight = gpu_host_alloc((size_t)cols * sizeof *weight);
    ops_random r = {seed};
    for (size_t i = 0; i < n; i++)
        h[i] = tpw_bf16_from_f32(4.0f * ops_uniform(&r));
    for (int32_t i = 0; i < cols; i++)
        weight[i] = ops_uniform(&r);
    for (int rank = 0; rank < mt_size; rank++)
        for (size_t i = 0; i < n * (size_t)parts; i++)
            sum[(size_t)rank * n * (size_t)parts + i] = value(seed, rank, i);
    tpw_add_norm_args args = {.h = {h, TPW_BF16, m, cols, cols},
                              .sum = sum,
                              .parts = parts * mt_size,
                              .weight = weight,
                              .eps = 1e-6f,
                              .y = {y, TPW_BF16, m, cols, cols}};
    GPU_OK(host->ops->add_norm(host, &args, err));
    tpw_host_destroy(host);
    free(sum);
    free(weight);
}

MPI_TEST(gpu_comm, fused_norm_of_all_transports)
{
    static const struct {
        int32_t m, cols, parts;
    } cases[] = {{1, 5120, 4}, {8, 5120, 4},  {9, 5120, 1}, {32, 5120, 4}, {33, 5120, 4}, {200, 5120, 2}, {1, 1024, 4},
                 {5, 4096, 4}, {31, 2560, 2}, {3, 1000, 4}, {40, 1000, 1}, {2, 33, 2},    {1024, 5120, 1}};
    size_t compared = 0;
    skip_without_gpus();
    for (int way = TPW_NCCL_AUTO; way <= TPW_NCCL_GATHER + 1; way++) { /* the last: the portable path's kernels */
        side s = side_open_on(
            (tpw_nccl_options){.rows_max = 1024,
                               .cols_max = COLS,
                               .transport = way > TPW_NCCL_GATHER ? TPW_NCCL_AUTO : (tpw_nccl_transport)way},
            (tpw_cuda_options){.spin_ms = 5000, .portable = way > TPW_NCCL_GATHER});
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const int32_t m = cases[i].m, cols = cases[i].cols,
                          parts = cases[i].parts * mt_size > 8 ? 1 : cases[i].parts;
            const size_t n = (size_t)m * (size_t)cols;
            uint16_t *h = gpu_host_alloc(n * 2), *y = gpu_host_alloc(n * 2), *h0 = gpu_host_alloc(n * 2),
                     *y0 = gpu_host_alloc(n * 2);
            fused(&s, m, cols, parts, 200 + i, h, y);
            fused_expected(m, cols, parts, 200 + i, h0, y0);
            for (size_t k = 0; k < n; k++)
                cr_assert(h[k] == h0[k] && y[k] == y0[k],
                          "%s [%d, %d] %d parts, element %zu: h %04x y %04x, expected %04x %04x", way_names[way],
                          (int)m, (int)cols, (int)parts, k, h[k], y[k], h0[k], y0[k]);
            compared += n;
            free(h);
            free(y);
            free(h0);
            free(y0);
        }
        side_close(&s);
    }
    cr_assert_gt(compared, (size_t)20000000);
}

/* 100,000 exchanges in replays of a graph of 125, packets and copies by turns: the result of each replay follows from the one before;
 * at the end both ranks and the host's own chain agree. */
MPI_TEST(gpu_comm, soak_in_graphs)
{
    enum { PER_GRAPH = 125, REPLAYS = 800, ROWS = 4 };
    const size_t n = (size_t)ROWS * COLS;
    skip_without_gpus();
    side s = side_open(TPW_NCCL_AUTO);
    tpw_cuda *cuda = tpw_cuda_of(s.exec);
    float *x = gpu_host_alloc(n * 4), *weight = gpu_host_alloc(COLS * 4);
    uint16_t *h = gpu_host_alloc(n * 2);
    uint64_t *digests = gpu_host_alloc((size_t)mt_size * 8), mine;
    for (size_t i = 0; i < n; i++) {
        x[i] = value(77, mt_rank, i);
        h[i] = tpw_bf16_from_f32(value(78, 0, i));
    }
    for (int i = 0; i < COLS; i++)
        weight[i] = 0.0f;
    void *dx = gpu_upload(s.exec, x, n * 4), *dh = gpu_upload(s.exec, h, n * 2),
         *dw = gpu_upload(s.exec, weight, COLS * 4);
    void *dy = gpu_alloc(s.exec, n * 2);
    uint64_t *sum = gpu_alloc(s.exec, 8);
    cudaGraph_t graph;
    cudaGraphExec_t run;
    const int before = tpw_cuda_enter(cuda->gpu.index);
    tpw_add_norm_args args = {.h = {dh, TPW_BF16, ROWS, COLS, COLS},
                              .sum = dx,
                              .weight = dw,
                              .eps = 1e-6f,
                              .y = {dy, TPW_BF16, ROWS, COLS, COLS}};
    cr_assert_eq(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    for (int i = 0; i < PER_GRAPH; i++)
        GPU_OK(tpw_comm_nccl_add_norm(s.comm, &args, err));
    cr_assert_eq(cudaStreamEndCapture(cuda->stream, &graph), cudaSuccess);
    cr_assert_eq(cudaGraphInstantiate(&run, graph, 0), cudaSuccess);
    tpw_comm_nccl_hold(s.comm);
    for (int i = 0; i < REPLAYS; i++) {
        cr_assert_eq(cudaGraphLaunch(run, cuda->stream), cudaSuccess);
        if (i % 100 == 99) {
            GPU_OK(tpw_cuda_sync(s.exec, err));
            GPU_OK(tpw_comm_nccl_check(s.comm, err));
            mine = gpu_digest(s.exec, args.h, sum) + 3 * gpu_digest(s.exec, args.y, sum);
            MPI_Allgather(&mine, 8, MPI_BYTE, digests, 8, MPI_BYTE, MPI_COMM_WORLD);
            for (int r = 0; r < mt_size; r++)
                cr_assert_eq(digests[r], mine, "after %d exchanges rank %d has another h", (i + 1) * PER_GRAPH, r);
        }
    }
    /* the host's chain: h only grows by rounding, so its end tells every step */
    gpu_download(s.exec, h, dh, n * 2);
    for (size_t i = 0; i < n; i += 97) {
        float t = tree(77, mt_size, i);
        uint16_t v = tpw_bf16_from_f32(value(78, 0, i));
        for (int k = 0; k < PER_GRAPH * REPLAYS; k++) {
            uint16_t next = tpw_bf16_from_f32(tpw_bf16_to_f32(v) + t);
            if (next == v)
                break; /* and so for ever */
            v = next;
        }
        cr_assert_eq(h[i], v, "element %zu after %d exchanges", i, PER_GRAPH * REPLAYS);
    }
    tpw_error busy = {0};
    cr_assert_eq(tpw_comm_nccl_close(s.comm, &busy), TPW_ERR_BUSY, "a graph holds the communicator");
    cudaGraphExecDestroy(run);
    cudaGraphDestroy(graph);
    tpw_comm_nccl_release(s.comm);
    tpw_cuda_leave(before);
    gpu_free(s.exec, dx);
    gpu_free(s.exec, dh);
    gpu_free(s.exec, dw);
    gpu_free(s.exec, dy);
    gpu_free(s.exec, sum);
    free(x);
    free(h);
    free(weight);
    free(digests);
    side_close(&s);
}

/* Over the end of the 32-bit epoch. */
MPI_TEST(gpu_comm, epochs_wrap)
{
    skip_without_gpus();
    side s = side_open(TPW_NCCL_PACKETS);
    for (uint32_t start = 0xFFFFFFF6u; start != 2; start = start == 0xFFFFFFFFu ? 2 : start + 3) {
        GPU_OK(tpw_comm_nccl_set_epoch(s.comm, start, err));
        for (uint64_t i = 0; i < 14; i++)
            check_sums(&s, (1 + i % 3) * COLS, 300 + i, "near the end of epochs");
    }
    side_close(&s);
}

/* Rank 1 never sends: rank 0's kernel ends, later ones too, and the error says so; closing does not hang. */
MPI_TEST(gpu_comm, silent_peer)
{
    skip_without_gpus();
    for (int way = TPW_NCCL_PACKETS; way <= TPW_NCCL_COPIES; way++) {
        side s = side_open_with(
            (tpw_nccl_options){.rows_max = 64, .cols_max = COLS, .transport = (tpw_nccl_transport)way}, 700);
        if (mt_rank != 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            tpw_error failure = {0};
            tpw_status st = tpw_comm_nccl_close(s.comm, &failure);
            cr_assert(st == TPW_OK || st == TPW_ERR_PEER, "%s", failure.text);
            tpw_cuda_destroy(s.exec);
            tpw_boot_destroy(s.boot);
            continue;
        }
        struct timespec a, b;
        tpw_error failure = {0};
        float *d = gpu_alloc(s.exec, COLS * 4);
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < 20; i++)
            GPU_OK(s.comm->ops->allreduce(s.comm, d, COLS, err));
        cr_assert_eq(tpw_cuda_sync(s.exec, &failure), TPW_ERR_PEER, "%s", way_names[way]);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
        cr_assert_lt(ms, 2500.0, "20 exchanges without a peer took %.0f ms", ms);
        printf("%s: %s (%.0f ms)\n", way_names[way], failure.text, ms);
        MPI_Barrier(MPI_COMM_WORLD);
        clock_gettime(CLOCK_MONOTONIC, &a);
        cr_assert_eq(tpw_comm_nccl_close(s.comm, &failure), TPW_ERR_PEER);
        clock_gettime(CLOCK_MONOTONIC, &b);
        cr_assert_lt((double)(b.tv_sec - a.tv_sec), 5.0);
        gpu_free(s.exec, d);
        tpw_cuda_destroy(s.exec);
        tpw_boot_destroy(s.boot);
    }
}

static int current_device(void)
{
    int d = -1;
    (void)cudaGetDevice(&d);
    return d;
}

/* Creating and destroying, well and badly, leaves the caller's device: both devices as the current one, both orders of teardown. */
MPI_TEST(gpu_comm, current_device_stays)
{
    skip_without_gpus();
    for (int start = 0; start < 2; start++)
        for (int order = 0; order < 2; order++) {
            cr_assert_eq(cudaSetDevice(start), cudaSuccess);
            side s = side_open(TPW_NCCL_AUTO);
            cr_assert_eq(current_device(), start, "after creation");
            check_sums(&s, COLS, 400, "with another current device");
            cr_assert_eq(current_device(), start, "after an exchange");
            if (order == 0) {
                GPU_OK(tpw_comm_nccl_close(s.comm, err));
                cr_assert_eq(current_device(), start, "after the communicator");
                tpw_cuda_destroy(s.exec);
            } else { /* the exec first: the communicator holds it */
                tpw_cuda_destroy(s.exec);
                cr_assert_eq(current_device(), start, "after the exec");
                GPU_OK(tpw_comm_nccl_close(s.comm, err));
            }
            cr_assert_eq(current_device(), start, "after both");
            tpw_boot_destroy(s.boot);
            /* a failing creation: rank 1's options are refused, so all ranks fail */
            tpw_error failure = {0};
            tpw_comm *comm = NULL;
            tpw_cuda_options o = {.device = mt_rank};
            GPU_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &s.boot, err));
            GPU_OK(tpw_cuda_create(&o, &s.exec, err));
            tpw_nccl_options bad = {.rows_max = mt_rank == 1 ? 0 : 8, .cols_max = 64};
            cr_assert_eq(tpw_comm_nccl_create(s.boot, s.exec, &bad, &comm, &failure), TPW_ERR_ARGUMENT);
            cr_assert_eq(current_device(), start, "after a failed creation");
            tpw_cuda_destroy(s.exec);
            tpw_boot_destroy(s.boot);
        }
}

/* 200 lives of a communicator: neither descriptors nor GPU memory grow. */
MPI_TEST(gpu_comm, lives)
{
    enum { LIVES = 200, WARM = 20 };
    size_t free_warm = 0, free_end = 0, total;
    skip_without_gpus();
    for (int i = 0; i < LIVES; i++) {
        side s = side_open_with((tpw_nccl_options){.rows_max = 8, .cols_max = 1024}, 5000);
        if (i % 50 == 0)
            check_sums(&s, 2048, (uint64_t)i, "a life");
        side_close(&s);
        if (i == WARM || i == LIVES - 1) {
            const int before = tpw_cuda_enter(mt_rank);
            cr_assert_eq(cudaMemGetInfo(i == WARM ? &free_warm : &free_end, &total), cudaSuccess);
            tpw_cuda_leave(before);
        }
    }
    printf("rank %d: free GPU memory %zu after %d lives, %zu after %d\n", mt_rank, free_warm, WARM, free_end, LIVES);
    cr_assert_lt(free_warm > free_end ? free_warm - free_end : 0, (size_t)8 << 20, "GPU memory grew");
}
