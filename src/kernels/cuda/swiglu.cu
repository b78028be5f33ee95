// The product of the feed-forward gate: y = act(silu(gate) * up). SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/elementary.h"
}

namespace
{

enum { THREADS = 128, WIDE = 4 };

struct swiglu_params {
    const float *gate;
    int64_t gate_stride;
    const float *up;
    int64_t up_stride;
    void *y;
    int64_t y_stride;
    int32_t cols;
    bool y_bf16;
};

__device__ __forceinline__ float product(float gate, float up)
{
    return tpw_silu(gate) * up;
}

// One element a thread, for few rows; V = 4 with aligned rows for many.
template <int V> __global__ void __launch_bounds__(THREADS) swiglu(swiglu_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t m = blockIdx.x, step = (int64_t)gridDim.y * THREADS * V;
    const float *gate = p.gate + m * p.gate_stride, *up = p.up + m * p.up_stride;
    for (int64_t c = (blockIdx.y * (int64_t)THREADS + threadIdx.x) * V; c < p.cols; c += step) {
        if (V == 1) {
            tpw_row_set(p.y, p.y_bf16, m * p.y_stride + c, product(gate[c], up[c]));
            continue;
        }
        const float4 g = *(const float4 *)(gate + c), u = *(const float4 *)(up + c);
        const float4 y = make_float4(product(g.x, u.x), product(g.y, u.y), product(g.z, u.z), product(g.w, u.w));
        if (p.y_bf16)
            *(uint2 *)((uint16_t *)p.y + m * p.y_stride + c) =
                make_uint2((uint32_t)tpw_bf16_from_f32(y.x) | (uint32_t)tpw_bf16_from_f32(y.y) << 16,
                           (uint32_t)tpw_bf16_from_f32(y.z) | (uint32_t)tpw_bf16_from_f32(y.w) << 16);
        else
            *(float4 *)((float *)p.y + m * p.y_stride + c) = y;
    }
}

bool aligned(const tpw_mat *m)
{
    const int64_t bytes = WIDE * (int64_t)tpw_dtype_size(m->dtype);
    return (int64_t)((uintptr_t)m->data % (uintptr_t)bytes) == 0 && m->stride % WIDE == 0;
}

} // namespace

extern "C" tpw_status tpw_cuda_swiglu(const tpw_exec *exec, const tpw_swiglu_args *args, tpw_error *err)
{
    const tpw_mat *gate = &args->gate, *up = &args->up, *y = &args->y;
    if (gate->dtype != TPW_F32 || up->dtype != TPW_F32)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda swiglu: gate of type %s, up of type %s",
                        tpw_dtype_name(gate->dtype), tpw_dtype_name(up->dtype));
    if (!tpw_is_act(y->dtype))
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda swiglu: y of type %s", tpw_dtype_name(y->dtype));
    TPW_TRY(tpw_mat_check("cuda swiglu", "gate", gate, err));
    TPW_TRY(tpw_mat_check("cuda swiglu", "up", up, err));
    TPW_TRY(tpw_mat_check("cuda swiglu", "y", y, err));
    if (gate->rows < y->rows || up->rows < y->rows || gate->cols < y->cols || up->cols < y->cols)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda swiglu: gate [%d, %d] and up [%d, %d] into y [%d, %d]",
                        (int)gate->rows, (int)gate->cols, (int)up->rows, (int)up->cols, (int)y->rows, (int)y->cols);
    swiglu_params p = {};
    p.gate = (const float *)gate->data, p.gate_stride = gate->stride;
    p.up = (const float *)up->data, p.up_stride = up->stride;
    p.y = y->data, p.y_stride = y->stride, p.cols = y->cols, p.y_bf16 = y->dtype == TPW_BF16;
    // four a thread where that still fills the GPU
    const int64_t full = (int64_t)tpw_cuda_of(exec)->gpu.processors * THREADS * WIDE;
    const bool wide =
        y->cols % WIDE == 0 && (int64_t)y->rows * y->cols >= full && aligned(gate) && aligned(up) && aligned(y);
    const int64_t each = wide ? THREADS * WIDE : THREADS, parts = ((int64_t)y->cols + each - 1) / each;
    return tpw_cuda_launch(exec, "swiglu", err, wide ? swiglu<WIDE> : swiglu<1>,
                           dim3((unsigned)y->rows, (unsigned)(parts < 65535 ? parts : 65535)), dim3(THREADS), 0, 1, p);
}
