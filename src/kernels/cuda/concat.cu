// Arrays side by side on the last axis, raw bits, in one kernel. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/views.cuh"

namespace
{

enum { THREADS = 256, WAVES = 4 };

struct concat_params {
    tpw_views<2> v[TPW_CONCAT_MAX]; // an input, and its place in y; elements are units
    int32_t unit[TPW_CONCAT_MAX];   // bytes
};

// Input blockIdx.y.
__global__ void __launch_bounds__(THREADS) concat(const __grid_constant__ concat_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const tpw_views<2> &v = p.v[blockIdx.y];
    const int32_t unit = p.unit[blockIdx.y];
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < v.count; i += (int64_t)gridDim.x * THREADS) {
        int64_t at[2];
        tpw_views_at(v, i, at);
        if (unit == 16)
            ((uint4 *)v.data[1])[at[1]] = ((const uint4 *)v.data[0])[at[0]];
        else
            tpw_raw_store(v.data[1], at[1], unit, tpw_raw_load(v.data[0], at[0], unit));
    }
}

// Do both have rows of pairs of units, with each pair at a multiple of its size?
bool pairs(const tpw_views<2> &v, int32_t unit)
{
    const int32_t last = v.dims - 1;
    if (v.dims == 0 || v.extent[last] % 2 != 0)
        return false;
    for (int n = 0; n < 2; n++) {
        if (v.stride[n][last] != 1 || (uintptr_t)v.data[n] % (uintptr_t)(2 * unit) != 0)
            return false;
        for (int32_t d = 0; d < last; d++)
            if (v.stride[n][d] % 2 != 0)
                return false;
    }
    return true;
}

// Makes units as large as they can be, up to 16 bytes.
int32_t widen(tpw_views<2> *v, int32_t unit)
{
    for (; unit < 16 && pairs(*v, unit); unit *= 2) {
        const int32_t last = v->dims - 1;
        v->extent[last] /= 2;
        v->count /= 2;
        for (int n = 0; n < 2; n++)
            for (int32_t d = 0; d < last; d++)
                v->stride[n][d] /= 2;
    }
    v->small = v->count <= INT32_MAX;
    return unit;
}

} // namespace

extern "C" tpw_status tpw_cuda_concat(const tpw_exec *exec, const tpw_concat_args *args, tpw_error *err)
{
    TPW_TRY(tpw_concat_check("cuda concat", args, err));
    TPW_TRY(tpw_array_aligned("cuda concat", "y", &args->y, err));
    const int32_t last = args->y.dims - 1, size = (int32_t)tpw_dtype_size(args->y.dtype);
    concat_params p = {};
    int64_t begin = 0, most = 0;
    for (int32_t i = 0; i < args->count; i++) {
        tpw_array y = args->y;
        TPW_TRY(tpw_array_aligned("cuda concat", "an input", &args->x[i], err));
        y.extent[last] = args->x[i].extent[last];
        if (tpw_array_count(&y) == 0)
            continue; // its views have count 0
        y.data = (char *)y.data + begin * y.stride[last] * size;
        begin += y.extent[last];
        p.v[i] = tpw_views_of<2>({&args->x[i], &y});
        p.unit[i] = widen(&p.v[i], size);
        most = p.v[i].count > most ? p.v[i].count : most;
    }
    return tpw_cuda_launch(exec, "concat", err, concat,
                           dim3(tpw_blocks(exec, most, THREADS, WAVES), (unsigned)args->count), dim3(THREADS), 0, 1, p);
}
