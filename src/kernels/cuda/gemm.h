/* The CUDA gemm beyond its slot in the table: the packed layout, and the choices that tests force. Private to kernels/cuda
 * and its tests. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_CUDA_GEMM_H
#define TPW_KERNELS_CUDA_GEMM_H

#include "kernels/cuda/gemm_cut.h"

#define TPW_GEMM_SKINNY_ROWS 16 /* up to so many rows of x stay in shared memory whole */

/* As tpw_device.packed_bytes and pack. */
size_t tpw_cuda_packed_bytes(const tpw_weight *w, tpw_gemm_kind kind);
tpw_status tpw_cuda_pack(const tpw_exec *exec, const tpw_weight *w, tpw_gemm_kind kind, void *to,
                         tpw_error *err) TPW_MUST_CHECK;

/* Which kernel does the work. All give the same bits; the table's gemm takes AUTO. */
typedef enum tpw_gemm_path {
    TPW_GEMM_AUTO,
    TPW_GEMM_SKINNY, /* up to TPW_GEMM_SKINNY_ROWS rows: weights stream once through a ring of each warp */
    TPW_GEMM_TILE,   /* any number of rows: tiles of 128 weight rows by 64 or 128 rows of x, mma.sync */
    TPW_GEMM_WGMMA /* the same by wgmma, which the choice prefers; ERR_UNSUPPORTED where tpw_cuda_uses_wgmma is false */
} tpw_gemm_path;

tpw_status tpw_cuda_gemm_path(const tpw_exec *exec, const tpw_gemm_args *args, tpw_gemm_path path,
                              tpw_error *err) TPW_MUST_CHECK;

#endif
