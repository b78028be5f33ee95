/* Makes weights and inputs for gemm tests. SPDX-License-Identifier: Apache-2.0 */
#include "gemm_case.h"

/* Fills n bytes or 16-bit words fast: eight bytes a draw. */
static void fill_weight(gemm_weight *w, size_t n, ops_random *r)
{
    for (size_t i = 0; i < n; i += 4) {
        uint64_t bits = ops_next(r);
        for (size_t j = 0; j < 4 && i + j < n; j++, bits >>= 16) {
            if (w->dtype == TPW_E4M3) {
                uint8_t code = (uint8_t)bits;
                ((uint8_t *)w->data)[i + j] = (code & 0x7F) == 0x7F ? code ^ 0x11 : code;
            } else { /* sign, exponents of 2^-8..2^-1, any fraction */
                uint16_t b = (uint16_t)bits;
                ((uint16_t *)w->data)[i + j] = (uint16_t)((b & 0x807F) | (119 + (b >> 7 & 7)) << 7);
            }
        }
    }
}

gemm_weight gemm_weight_make(tpw_dtype dtype, tpw_gemm_kind kind, int32_t rows, int32_t cols, ops_random *r)
{
    gemm_weight w = {dtype, kind, rows, cols, NULL, NULL, NULL, (cols + 127) / 128};
    size_t n = (size_t)rows * (size_t)cols, block_rows = ((size_t)rows + 127) / 128;
    w.data = gpu_host_alloc(n * tpw_dtype_size(dtype));
    fill_weight(&w, n, r);
    w.scale = gpu_host_alloc(block_rows * (size_t)w.blocks * sizeof(float));
    w.scale_row = gpu_host_alloc((size_t)rows * sizeof(int32_t));
    for (size_t i = 0; i < block_rows * (size_t)w.blocks; i++)
        w.scale[i] = 0.0005f + 0.00025f * ops_uniform(r);
    for (int32_t i = 0; i < rows; i++)
        w.scale_row[i] = i / 128;
    return w;
}

void gemm_weight_free(gemm_weight *w)
{
    free(w->data);
    free(w->scale);
    free(w->scale_row);
}

gemm_part gemm_part_make(const tpw_exec *exec, const gemm_weight *w, int rank, int size)
{
    const int32_t cols = w->cols / size, col0 = rank * cols, first = col0 / 128;
    const size_t bytes = tpw_dtype_size(w->dtype), row_bytes = (size_t)cols * bytes;
    const int32_t scale_cols = (col0 + cols + 127) / 128 - first, block_rows = (w->rows + 127) / 128;
    gemm_part part = {{.dtype = w->dtype,
                       .rows = w->rows,
                       .cols = cols,
                       .col0 = col0,
                       .cols_global = w->cols,
                       .scale_cols = scale_cols},
                      {0},
                      NULL};
    char *data = gpu_host_alloc((size_t)w->rows * row_bytes);
    float *scale = gpu_host_alloc((size_t)block_rows * (size_t)scale_cols * sizeof(float));
    for (int32_t i = 0; i < w->rows; i++)
        memcpy(data + (size_t)i * row_bytes, (char *)w->data + ((size_t)i * (size_t)w->cols + (size_t)col0) * bytes,
               row_bytes);
    for (int32_t b = 0; b < block_rows; b++)
        memcpy(scale + (size_t)b * (size_t)scale_cols, w->scale + (size_t)b * (size_t)w->blocks + first,
               (size_t)scale_cols * sizeof(float));
    part.host.data = data;
    if (w->dtype == TPW_E4M3) {
        part.host.scale = scale;
        part.host.scale_row = w->scale_row;
    } else {
        free(scale);
    }
    part.device = part.host;
    void *plain = gpu_upload(exec, data, (size_t)w->rows * row_bytes);
    part.device.data = plain;
    part.packed = gpu_alloc(exec, exec->device->packed_bytes(&part.host, w->kind));
    GPU_OK(exec->device->pack(exec, &part.device, w->kind, part.packed, err));
    gpu_free(exec, plain);
    part.device.data = NULL;
    part.device.packed = part.packed;
    if (w->dtype == TPW_E4M3) {
        part.device.scale = gpu_upload(exec, scale, (size_t)block_rows * (size_t)scale_cols * sizeof(float));
        part.device.scale_row = gpu_upload(exec, w->scale_row, (size_t)w->rows * sizeof(int32_t));
    }
    return part;
}

void gemm_part_free(const tpw_exec *exec, gemm_part *part)
{
    free((void *)part->host.data);
    free((void *)part->host.scale);
    gpu_free(exec, part->packed);
    gpu_free(exec, (void *)part->device.scale);
    gpu_free(exec, (void *)part->device.scale_row);
}

uint16_t *gemm_x_make(int32_t rows, int32_t cols, ops_random *r)
{
    size_t n = (size_t)rows * (size_t)cols;
    uint16_t *x = gpu_host_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = tpw_bf16_from_f32(2.0f * ops_uniform(r));
    return x;
}
