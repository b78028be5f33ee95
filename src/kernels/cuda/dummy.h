/* Dummy weights made where they are used: the bytes of tpw_dummy_fill (model/dummy.h), written by the GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_CUDA_DUMMY_H
#define TPW_KERNELS_CUDA_DUMMY_H

#include "kernels/dummy_recipe.h"
#include "kernels/ops.h"

/* Writes rows row0 .. row0 + rows, columns col0 .. col0 + cols of the tensor of `recipe` (E4M3, BF16 or F32) to `out`,
 * device memory of a CUDA exec; row r goes to out + r * out_stride elements, and nothing between rows is touched. Enqueued on
 * the exec's stream, allocates nothing. rows or cols of 0 write nothing. ERR_ARGUMENT for negative sizes, an `out` that is
 * NULL or not aligned to its elements, or a block past the address space; ERR_UNSUPPORTED for another dtype; ERR_DEVICE. */
tpw_status tpw_cuda_dummy_fill(const tpw_exec *exec, const tpw_dummy_recipe *recipe, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *out, int64_t out_stride,
                               tpw_error *err) TPW_MUST_CHECK;

#endif
