/* Stands in for the CUDA backend in builds without it: no GPU is ever found, and the reason is said.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/dummy.h"
#include "kernels/cuda/selftest.h"

#define WHY "built without CUDA"

int32_t tpw_cuda_count(char *reason, int bytes)
{
    if (reason != NULL && bytes > 0)
        snprintf(reason, (size_t)bytes, "%s", WHY);
    return 0;
}

tpw_status tpw_cuda_gpu(int32_t index, tpw_gpu *out, tpw_error *err)
{
    (void)out;
    return tpw_fail(err, TPW_ERR_RESOURCE, "GPU %d is not there: %s", (int)index, WHY);
}

tpw_status tpw_cuda_create(const tpw_cuda_options *options, tpw_exec **out, tpw_error *err)
{
    (void)out;
    return tpw_fail(err, TPW_ERR_RESOURCE, "GPU %d cannot be used: %s", (int)options->device, WHY);
}

void tpw_cuda_destroy(tpw_exec *exec)
{
    (void)exec;
}

tpw_status tpw_cuda_sync(const tpw_exec *exec, tpw_error *err)
{
    (void)exec;
    return tpw_fail(err, TPW_ERR_RESOURCE, WHY);
}

tpw_status tpw_cuda_reserve(tpw_exec *exec, size_t bytes, tpw_error *err)
{
    (void)exec;
    (void)bytes;
    return tpw_fail(err, TPW_ERR_RESOURCE, WHY);
}

const tpw_device *tpw_cuda_layout(void)
{
    return NULL;
}

size_t tpw_cuda_own_bytes(void)
{
    return 0;
}

int64_t tpw_cuda_waits(const tpw_exec *exec)
{
    (void)exec;
    return 0;
}

const tpw_gpu *tpw_cuda_gpu_of(const tpw_exec *exec)
{
    (void)exec;
    return NULL;
}

const char *tpw_cuda_version(void)
{
    return WHY;
}

tpw_status tpw_cuda_selftest(const tpw_exec *exec, tpw_cuda_selftest_report *out, tpw_error *err)
{
    (void)exec;
    (void)out;
    return tpw_fail(err, TPW_ERR_RESOURCE, WHY);
}

bool tpw_cuda_uses_wgmma(const tpw_exec *exec)
{
    (void)exec;
    return false;
}

tpw_status tpw_cuda_dummy_fill(const tpw_exec *exec, const tpw_dummy_recipe *recipe, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *out, int64_t out_stride, tpw_error *err)
{
    (void)exec;
    (void)recipe;
    (void)row0;
    (void)rows;
    (void)col0;
    (void)cols;
    (void)out;
    (void)out_stride;
    return tpw_fail(err, TPW_ERR_RESOURCE, WHY);
}
