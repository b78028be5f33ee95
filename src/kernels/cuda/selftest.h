/* What a GPU must be able to do for the exact gemm, asked once when an exec is created. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_CUDA_SELFTEST_H
#define TPW_KERNELS_CUDA_SELFTEST_H

#include "kernels/cuda/cuda.h"

typedef struct tpw_cuda_selftest_report {
    uint32_t subnormal_wrong; /* of subnormal_asked products of BF16 subnormals that mma.sync does not give exactly */
    uint32_t subnormal_asked;
    uint32_t wgmma_unequal; /* of wgmma_asked sums that wgmma and mma.sync give with other bits */
    uint32_t wgmma_asked;   /* 0: no wgmma on this GPU */
    char text[160];         /* one line of the above */
} tpw_cuda_selftest_report;

/* Runs the test (under a millisecond). ERR_DEVICE for CUDA faults only: what was found wrong is in the report. Local. */
tpw_status tpw_cuda_selftest(const tpw_exec *exec, tpw_cuda_selftest_report *out, tpw_error *err) TPW_MUST_CHECK;

/* Whether this exec uses wgmma: the GPU has it, the self-test at creation found equal bits, and nobody forbade it. */
bool tpw_cuda_uses_wgmma(const tpw_exec *exec);

#endif
