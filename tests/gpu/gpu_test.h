/* Helpers of the GPU tests: the exec or an agreed skip, blocks on the device.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_GPU_TEST_H
#define TPW_TESTS_GPU_TEST_H

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ops/ops_random.h"
#include "kernels/cuda/cuda.h"
#include "kernels/host/host.h"

#define GPU_OK(expr)                                                                                  \
    do {                                                                                              \
        tpw_error gpu_ok_err_ = {0};                                                                  \
        tpw_error *err = &gpu_ok_err_;                                                                \
        tpw_status gpu_ok_st_ = (expr);                                                               \
        cr_assert_eq(gpu_ok_st_, TPW_OK, "%s: %s %s", #expr, tpw_status_name(gpu_ok_st_), err->text); \
    } while (0)

/* The exec of GPU 0; without one the test is skipped with the reason. Destroy with tpw_cuda_destroy. */
static inline tpw_exec *gpu_exec_with(tpw_cuda_options options)
{
    tpw_exec *exec = NULL;
    char reason[160];
    if (tpw_cuda_count(reason, sizeof reason) < 1) {
        printf("TPW-SKIP: no GPU (%s)\n", reason[0] != '\0' ? reason : "none visible");
        fflush(stdout);
        cr_skip_test("no GPU");
    }
    GPU_OK(tpw_cuda_create(&options, &exec, err));
    return exec;
}

static inline tpw_exec *gpu_exec(void)
{
    return gpu_exec_with((tpw_cuda_options){0});
}

static inline tpw_exec *gpu_host_exec(void)
{
    tpw_exec *exec = NULL;
    GPU_OK(tpw_host_create("auto", &exec, err));
    return exec;
}

static inline void *gpu_alloc(const tpw_exec *exec, size_t bytes)
{
    void *data = NULL;
    GPU_OK(exec->device->alloc(exec, bytes, &data, err));
    return data;
}

static inline void *gpu_upload(const tpw_exec *exec, const void *host, size_t bytes)
{
    void *data = gpu_alloc(exec, bytes);
    if (bytes > 0)
        GPU_OK(exec->device->upload(exec, data, host, bytes, err));
    return data;
}

static inline void gpu_download(const tpw_exec *exec, void *host, const void *device, size_t bytes)
{
    if (bytes > 0)
        GPU_OK(exec->device->download(exec, host, device, bytes, err));
}

static inline void gpu_free(const tpw_exec *exec, void *device)
{
    exec->device->free(exec, device);
}

static inline void *gpu_host_alloc(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL)
        abort();
    return p;
}

/* The digest of a device block of F32 or BF16 rows, by the CUDA op. `sum` is a device word. */
static inline uint64_t gpu_digest(const tpw_exec *exec, tpw_mat x, uint64_t *sum)
{
    tpw_digest_args args = {.x = x, .key = 7, .index0 = 0, .index_stride = (uint64_t)x.cols, .sum = sum};
    uint64_t out = 0;
    GPU_OK(exec->device->fill(exec, sum, 0, sizeof *sum, err));
    GPU_OK(exec->ops->digest(exec, &args, err));
    gpu_download(exec, &out, sum, sizeof out);
    return out;
}

#endif
