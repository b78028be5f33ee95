/* The same block on the host and on the GPU: filled once, sent, worked on by both backends, compared byte for byte, so that
 * padding counts too. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_GPU_TWIN_H
#define TPW_TESTS_GPU_TWIN_H

#include "../ops/array_test.h"
#include "gpu_test.h"

static tpw_exec *gpu, *host;
static size_t twin_bytes_compared;

static inline void open_both_with(tpw_cuda_options options)
{
    gpu = gpu_exec_with(options);
    host = gpu_host_exec();
    twin_bytes_compared = 0;
}

static inline void open_both(void)
{
    open_both_with((tpw_cuda_options){0});
}

/* Ends a test, which must have compared at least `bytes`. */
static inline void close_both(size_t bytes)
{
    fprintf(stderr, "%zu bytes equal\n", twin_bytes_compared);
    cr_assert_geq(twin_bytes_compared, bytes);
    cr_assert_eq(gpu->device->bytes_now(gpu), 0, "a block was left");
    tpw_cuda_destroy(gpu);
    tpw_host_destroy(host);
}

typedef struct twin {
    unsigned char *host;
    unsigned char *device;
    size_t bytes;
} twin;

/* Poisoned on the host, not yet sent. */
static inline twin twin_make(size_t bytes)
{
    twin t = {gpu_host_alloc(bytes), NULL, bytes};
    memset(t.host, OPS_POISON, bytes);
    return t;
}

static inline void twin_send(twin *t)
{
    t->device = gpu_upload(gpu, t->host, t->bytes);
}

/* Compares; both stay. */
static inline void twin_check(const twin *t, const char *what)
{
    unsigned char *got = gpu_host_alloc(t->bytes);
    size_t i = 0;
    gpu_download(gpu, got, t->device, t->bytes);
    if (memcmp(got, t->host, t->bytes) != 0) {
        while (got[i] == t->host[i])
            i++;
        cr_assert_fail("%s: byte %zu of %zu is %02x on the GPU, %02x on the host", what, i, t->bytes, got[i],
                       t->host[i]);
    }
    twin_bytes_compared += t->bytes;
    free(got);
}

/* Compares and frees both. */
static inline void twin_end(twin *t, const char *what)
{
    twin_check(t, what);
    gpu_free(gpu, t->device);
    free(t->host);
}

/* A matrix in both places: `pad` elements after each row, `skip` before the first. */
typedef struct twin_mat {
    twin block;
    tpw_mat h;
    tpw_mat d;
    size_t skip; /* bytes */
} twin_mat;

static inline twin_mat twin_mat_make(tpw_dtype dtype, int32_t rows, int32_t cols, int32_t pad, int32_t skip)
{
    const size_t size = tpw_dtype_size(dtype);
    twin_mat m = {.h = {NULL, dtype, rows, cols, (int64_t)cols + pad}, .skip = (size_t)skip * size};
    m.block = twin_make(m.skip + (size_t)rows * (size_t)m.h.stride * size);
    m.h.data = m.block.host + m.skip;
    m.d = m.h;
    return m;
}

static inline void twin_mat_send(twin_mat *m)
{
    twin_send(&m->block);
    m->d.data = m->block.device + m->skip;
}

static inline void twin_mat_bits(twin_mat *m, ops_random *r)
{
    for (int32_t i = 0; i < m->h.rows; i++)
        for (int32_t c = 0; c < m->h.cols; c++) {
            const size_t size = tpw_dtype_size(m->h.dtype);
            uint64_t bits = ops_next(r);
            memcpy((char *)m->h.data + (size_t)(i * m->h.stride + c) * size, &bits, size);
        }
}

/* An array in both places. */
static inline twin twin_of_box(const box *b, tpw_array *device)
{
    twin t = {b->block, NULL, b->bytes};
    twin_send(&t);
    *device = b->a;
    device->data = t.device + ((unsigned char *)b->a.data - b->block);
    return t;
}

/* Small integers, sent as they are. */
static inline twin twin_words(const void *words, size_t bytes)
{
    twin t = twin_make(bytes);
    memcpy(t.host, words, bytes);
    twin_send(&t);
    return t;
}

#define BOTH(op, host_args, gpu_args)                   \
    do {                                                \
        GPU_OK(host->ops->op(host, &(host_args), err)); \
        GPU_OK(gpu->ops->op(gpu, &(gpu_args), err));    \
        GPU_OK(tpw_cuda_sync(gpu, err));                \
    } while (0)

#endif
