// Embedding rows: copied by their owner, all-zero bits elsewhere. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

namespace
{

enum { THREADS = 256, CHUNK = THREADS * 8 };

struct embed_params {
    const int32_t *ids;
    const char *table;
    int64_t table_stride;
    int32_t table_rows;
    int32_t vocab0;
    char *out;
    int64_t out_stride;
    int32_t cols;
    bool table_bf16;
    bool out_bf16;
    bool wide;
};

// Part blockIdx.y of one row. Equal types are copied by their bits.
__global__ void __launch_bounds__(THREADS) embed(embed_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t m = blockIdx.x, row = (int64_t)p.ids[m] - p.vocab0;
    const bool mine = row >= 0 && row < p.table_rows;
    const int64_t from = mine ? row * p.table_stride : 0, to = m * p.out_stride;
    const int64_t first = blockIdx.y * (int64_t)THREADS + threadIdx.x, step = (int64_t)gridDim.y * THREADS;
    if (mine && p.table_bf16 == p.out_bf16) {
        const int64_t size = p.out_bf16 ? 2 : 4;
        tpw_copy_bytes(p.out + to * size, p.table + from * size, p.cols * size, first, step);
        return;
    }
    for (int64_t c = first * 8; c < p.cols; c += step * 8) {
        float v[8];
        const int32_t n = p.cols - c < 8 ? (int32_t)(p.cols - c) : 8;
        tpw_row_load8(p.table, p.table_bf16, from + c, mine ? n : 0, p.wide, v);
        tpw_row_store8(p.out, p.out_bf16, to + c, n, p.wide, v);
    }
}

} // namespace

extern "C" tpw_status tpw_cuda_embed(const tpw_exec *exec, const tpw_embed_args *args, tpw_error *err)
{
    const tpw_mat *table = &args->table, *out = &args->out;
    if (!tpw_is_act(table->dtype))
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda embed: table of type %s", tpw_dtype_name(table->dtype));
    if (!tpw_is_act(out->dtype))
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda embed: output of type %s", tpw_dtype_name(out->dtype));
    TPW_TRY(tpw_mat_check("cuda embed", "the table", table, err));
    TPW_TRY(tpw_mat_check("cuda embed", "the output", out, err));
    if (table->rows > 0 && table->cols < out->cols)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda embed: rows of %d into rows of %d", (int)table->cols,
                        (int)out->cols);
    embed_params p = {};
    p.ids = args->ids, p.vocab0 = args->vocab0;
    p.table = (const char *)table->data, p.table_stride = table->stride, p.table_rows = table->rows;
    p.out = (char *)out->data, p.out_stride = out->stride, p.cols = out->cols;
    p.table_bf16 = table->dtype == TPW_BF16, p.out_bf16 = out->dtype == TPW_BF16;
    p.wide = tpw_mat_wide(table) && tpw_mat_wide(out);
    const int64_t parts = ((int64_t)out->cols + CHUNK - 1) / CHUNK;
    return tpw_cuda_launch(exec, "embed", err, embed,
                           dim3((unsigned)out->rows, (unsigned)(parts < 65535 ? parts : 65535)), dim3(THREADS), 0, 1,
                           p);
}
