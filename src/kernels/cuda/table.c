/* The CUDA backend's table of ops, and those that are not there yet. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/exec.h"

/* Fails by name, so that no caller takes silence for a result. */
#define TPW_CUDA_LATER(op)                                                                                    \
    tpw_status tpw_cuda_##op(const tpw_exec *exec, const tpw_##op##_args *args, tpw_error *err)               \
    {                                                                                                         \
        (void)exec;                                                                                           \
        (void)args;                                                                                           \
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda " #op ": not in this version; use the host backend"); \
    }

TPW_CUDA_LATER(conv)
TPW_CUDA_LATER(gates)
TPW_CUDA_LATER(l2norm)
TPW_CUDA_LATER(delta)
TPW_CUDA_LATER(delta_commit)
TPW_CUDA_LATER(gated_norm)
TPW_CUDA_LATER(attn_prepare)
TPW_CUDA_LATER(attention)

const tpw_ops tpw_cuda_ops = {.name = "cuda",
#define TPW_CUDA_SLOT(op) .op = tpw_cuda_##op,
                              TPW_OP_MAP(TPW_CUDA_SLOT)
#undef TPW_CUDA_SLOT
};
