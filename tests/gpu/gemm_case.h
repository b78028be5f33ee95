/* One weight of a gemm test: made on the host, cut for a rank, packed on the device.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_GPU_GEMM_CASE_H
#define TPW_TESTS_GPU_GEMM_CASE_H

#include "gpu_test.h"

/* The whole weight as a checkpoint has it. E4M3: any finite code, 128 x 128 blocks of scales. */
typedef struct gemm_weight {
    tpw_dtype dtype;
    tpw_gemm_kind kind;
    int32_t rows;
    int32_t cols;
    void *data;
    float *scale;
    int32_t *scale_row;
    int32_t blocks; /* of columns */
} gemm_weight;

/* A rank's part on the device, and the same on the host. */
typedef struct gemm_part {
    tpw_weight host;
    tpw_weight device;
    void *packed;
} gemm_part;

gemm_weight gemm_weight_make(tpw_dtype dtype, tpw_gemm_kind kind, int32_t rows, int32_t cols, ops_random *r);
void gemm_weight_free(gemm_weight *w);

/* The columns of rank `rank` of `size`; all rows. */
gemm_part gemm_part_make(const tpw_exec *exec, const gemm_weight *w, int rank, int size);
void gemm_part_free(const tpw_exec *exec, gemm_part *part);

/* [rows, cols] BF16 of moderate size, host memory. */
uint16_t *gemm_x_make(int32_t rows, int32_t cols, ops_random *r);

#endif
