// Dummy weights on the GPU, element by element from name and index. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/dummy.h"
}

namespace
{

enum { THREADS = 256, WAVES = 8 };

struct dummy_params {
    tpw_windows out;
    tpw_dummy_recipe recipe;
    int64_t row0;
    int64_t col0;
    float unit;
};

template <int SIZE> __device__ __forceinline__ uint32_t element(const dummy_params &p, uint64_t place)
{
    const uint64_t h = tpw_digest_fin(place);
    if (SIZE == 1)
        return tpw_dummy_e4m3(h);
    const float x = tpw_dummy_value(&p.recipe, h, p.unit);
    return SIZE == 2 ? tpw_bf16_from_f32(x) : tpw_f32_bits(x);
}

template <int SIZE> __device__ void fill_window(const dummy_params &p, const tpw_window &w)
{
    uint64_t place = tpw_dummy_place(&p.recipe, p.row0 + w.row, p.col0 + w.first / SIZE);
    if (w.bytes == 16) {
        uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 16 / SIZE; i++, place += TPW_DIGEST_STEP)
            words[i * SIZE / 4] |= element<SIZE>(p, place) << 8 * (i * SIZE % 4);
        *(uint4 *)w.at = make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
    for (int32_t b = 0; b < w.bytes; b += SIZE, place += TPW_DIGEST_STEP) {
        const uint32_t bits = element<SIZE>(p, place);
        if (SIZE == 1)
            *(uint8_t *)(w.at + b) = (uint8_t)bits;
        else if (SIZE == 2)
            *(uint16_t *)(w.at + b) = (uint16_t)bits;
        else
            *(uint32_t *)(w.at + b) = bits;
    }
}

template <int SIZE> __global__ void __launch_bounds__(THREADS) dummy_fill(dummy_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t items = p.out.rows * p.out.per_row;
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < items; i += (int64_t)gridDim.x * THREADS)
        fill_window<SIZE>(p, tpw_window_at(p.out, i));
}

tpw_status check(const tpw_dummy_recipe *r, int64_t rows, int64_t cols, const void *out, int64_t stride, tpw_error *err)
{
    const int64_t size = (int64_t)tpw_dtype_size(r->dtype);
    int64_t span;
    if (r->dtype != TPW_E4M3 && !tpw_is_act(r->dtype))
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda dummy: weights of type %s", tpw_dtype_name(r->dtype));
    if (rows < 0 || cols < 0 || !tpw_mul_i64(rows, stride, &span) || !tpw_add_i64(span, cols, &span) ||
        !tpw_mul_i64(span, size, &span))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda dummy: a block [%lld, %lld] with stride %lld cannot be",
                        (long long)rows, (long long)cols, (long long)stride);
    if (rows > 0 && cols > 0 && (out == NULL || (uintptr_t)out % (uintptr_t)size != 0))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda dummy: out is at %p; %s needs device memory at a multiple of %d",
                        out, tpw_dtype_name(r->dtype), (int)size);
    return TPW_OK;
}

} // namespace

extern "C" tpw_status tpw_cuda_dummy_fill(const tpw_exec *exec, const tpw_dummy_recipe *recipe, int64_t row0,
                                          int64_t rows, int64_t col0, int64_t cols, void *out, int64_t out_stride,
                                          tpw_error *err)
{
    TPW_TRY(check(recipe, rows, cols, out, out_stride, err));
    if (rows == 0 || cols == 0)
        return TPW_OK;
    const int64_t size = (int64_t)tpw_dtype_size(recipe->dtype);
    if (out_stride == cols && cols == recipe->cols && col0 == 0)
        cols *= rows, rows = 1; // whole rows lie one after the other, in memory and by index
    dummy_params p = {};
    p.out = tpw_windows_of(out, rows, cols, out_stride, size);
    p.recipe = *recipe;
    p.row0 = row0, p.col0 = col0;
    p.unit = tpw_dummy_unit(recipe);
    const dim3 grid(tpw_blocks(exec, rows * p.out.per_row, THREADS, WAVES));
    return tpw_cuda_launch(exec, "dummy weights", err,
                           size == 4   ? dummy_fill<4>
                           : size == 2 ? dummy_fill<2>
                                       : dummy_fill<1>,
                           grid, dim3(THREADS), 0, 1, p);
}
