/* The CUDA backend's table of ops. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/exec.h"

const tpw_ops tpw_cuda_ops = {.name = "cuda",
#define TPW_CUDA_SLOT(op) .op = tpw_cuda_##op,
                              TPW_OP_MAP(TPW_CUDA_SLOT)
#undef TPW_CUDA_SLOT
};
