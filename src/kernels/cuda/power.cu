// Every element to one power, formed in double as on the host. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/views.cuh"

extern "C" {
#include "kernels/elementary.h"
}

namespace
{

enum { THREADS = 256, WAVES = 16 };

struct power_params {
    tpw_views<2> v; // x, y
    tpw_dtype from;
    tpw_dtype to;
    float exponent;
};

__global__ void __launch_bounds__(THREADS) power(power_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int32_t from_size = p.from == TPW_F32 ? 4 : 2, to_size = p.to == TPW_F32 ? 4 : 2;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < p.v.count; i += (int64_t)gridDim.x * THREADS) {
        int64_t at[2];
        tpw_views_at(p.v, i, at);
        const uint32_t raw = (uint32_t)tpw_raw_load(p.v.data[0], at[0], from_size);
        const float y = tpw_power(tpw_f32_from_bits(tpw_bits_of(p.from, raw)), p.exponent);
        tpw_raw_store(p.v.data[1], at[1], to_size, tpw_raw_from_bits(p.to, tpw_f32_bits(y)));
    }
}

} // namespace

extern "C" tpw_status tpw_cuda_power(const tpw_exec *exec, const tpw_power_args *args, tpw_error *err)
{
    TPW_TRY(tpw_power_check("cuda power", args, err));
    TPW_TRY(tpw_array_aligned("cuda power", "x", &args->x, err));
    TPW_TRY(tpw_array_aligned("cuda power", "y", &args->y, err));
    power_params p = {};
    p.v = tpw_views_of<2>({&args->x, &args->y});
    p.from = args->x.dtype, p.to = args->y.dtype, p.exponent = args->exponent;
    return tpw_cuda_launch(exec, "power", err, power, dim3(tpw_blocks(exec, p.v.count, THREADS, WAVES)), dim3(THREADS),
                           0, 1, p);
}
