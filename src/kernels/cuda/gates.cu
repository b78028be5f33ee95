// Decay and beta of each value head, one a thread. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/elementary.h"
}

namespace
{

enum { THREADS = 64 };

struct gates_params {
    const float *a;
    int64_t a_stride;
    const float *b;
    int64_t b_stride;
    const float *a_log;
    const float *dt_bias;
    float *decay;
    int64_t decay_stride;
    float *beta;
    int64_t beta_stride;
    int32_t heads;
    int64_t count;
};

__global__ void __launch_bounds__(THREADS) gates(gates_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < p.count; i += (int64_t)gridDim.x * THREADS) {
        const int64_t m = i / p.heads, h = i % p.heads;
        const float a = p.a[m * p.a_stride + h], b = p.b[m * p.b_stride + h];
        p.decay[m * p.decay_stride + h] = tpw_exp(-tpw_exp(p.a_log[h]) * tpw_softplus(a + p.dt_bias[h]));
        p.beta[m * p.beta_stride + h] = tpw_sigmoid(b);
    }
}

} // namespace

extern "C" tpw_status tpw_cuda_gates(const tpw_exec *exec, const tpw_gates_args *args, tpw_error *err)
{
    const tpw_mat *mats[] = {&args->a, &args->b, &args->decay, &args->beta};
    const char *const names[] = {"a", "b", "decay", "beta"};
    for (int i = 0; i < 4; i++) {
        if (mats[i]->dtype != TPW_F32 || mats[i]->rows != args->a.rows || mats[i]->cols != args->a.cols)
            return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda gates: %s is %s [%d, %d], not F32 [%d, %d]", names[i],
                            tpw_dtype_name(mats[i]->dtype), (int)mats[i]->rows, (int)mats[i]->cols, (int)args->a.rows,
                            (int)args->a.cols);
        TPW_TRY(tpw_mat_check("cuda gates", names[i], mats[i], err));
    }
    gates_params p = {};
    p.a = (const float *)args->a.data, p.a_stride = args->a.stride;
    p.b = (const float *)args->b.data, p.b_stride = args->b.stride;
    p.a_log = args->a_log, p.dt_bias = args->dt_bias;
    p.decay = (float *)args->decay.data, p.decay_stride = args->decay.stride;
    p.beta = (float *)args->beta.data, p.beta_stride = args->beta.stride;
    p.heads = args->a.cols, p.count = (int64_t)args->a.rows * args->a.cols;
    return tpw_cuda_launch(exec, "gates", err, gates, dim3(tpw_blocks(exec, p.count, THREADS, 32)), dim3(THREADS), 0, 1,
                           p);
}
