/* Where the models of these tests run: on the host, or with TPW_TEST_BACKEND=cuda on one GPU a rank. With
 * TPW_TEST_RANKS_PER_GPU=N up to N ranks share a GPU; each must then have its own NCCL_HOSTID.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_BACKEND_H
#define TPW_TESTS_BACKEND_H

#include <stdlib.h>
#include <string.h>

#include "tpworker/worker.h"

static inline bool test_on_gpu(void)
{
    const char *name = getenv("TPW_TEST_BACKEND");

    return name != NULL && strcmp(name, "cuda") == 0;
}

static inline tpw_backend test_backend(void)
{
    return test_on_gpu() ? TPW_BACKEND_CUDA : TPW_BACKEND_HOST;
}

static inline int32_t test_ranks_per_gpu(void)
{
    const char *text = getenv("TPW_TEST_RANKS_PER_GPU");
    const long count = text != NULL ? strtol(text, NULL, 10) : 1;

    return count >= 1 && count <= 8 ? (int32_t)count : 1;
}

/* Sets where a worker runs. */
static inline void test_set_backend(tpw_options *o)
{
    o->backend = test_backend();
    o->ranks_per_gpu = test_ranks_per_gpu();
}

/* Collective, first in a test: GPUs compute in BF16 only. */
#define MT_SKIP_F32_ON_GPU(compute) \
    mt_skip_if(test_on_gpu() && (compute) == TPW_COMPUTE_F32, "the CUDA backend computes in BF16")

/* The ranks of a cell when this machine has fewer GPUs than the matrix wants. */
static inline int test_tp(int tp, int ranks)
{
    return test_on_gpu() && tp > ranks ? ranks : tp;
}

#endif
