// The causal depthwise convolution with SiLU, whose past inputs lie in a ring by absolute position.
//
// A thread takes one channel of some neighbouring rows of the step and slides a window of inputs over them. Who does a
// segment's first row writes the ring. When that would overwrite what further rows read, the same thread does those
// too, and reads before it writes. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/elementary.h"
}

namespace
{

enum { THREADS = 128, WIDTH_MAX = 8, ROWS_MANY = 16 };

struct conv_params {
    const tpw_segment *segments;
    const int32_t *segment_of;
    const void *x;
    int64_t x_stride;
    void *y;
    int64_t y_stride;
    void *ring; // [slot][TPW_CONV_RING][channels]
    const float *weight;
    int32_t rows;
    int32_t channels;
    int32_t each; // rows of a thread
};

// Input number `at` of the segment, at < 0: before this step. Inputs before position 0 are not there.
template <bool BF16>
__device__ __forceinline__ float input_of(const conv_params &p, const tpw_segment &s, int64_t at, int32_t c)
{
    if (at >= 0)
        return tpw_row_get(p.x, BF16, (s.row0 + at) * p.x_stride + c);
    const int64_t pos = s.pos + at;
    if (pos < 0)
        return 0.0f;
    return tpw_row_get(p.ring, BF16, ((int64_t)s.slot * TPW_CONV_RING + pos % TPW_CONV_RING) * p.channels + c);
}

// Leaves the segment's newest inputs in the ring.
template <bool BF16> __device__ __forceinline__ void store_ring(const conv_params &p, const tpw_segment &s, int32_t c)
{
    for (int32_t t = s.rows > TPW_CONV_RING ? s.rows - TPW_CONV_RING : 0; t < s.rows; t++) {
        const int64_t from = (s.row0 + t) * p.x_stride + c,
                      to = ((int64_t)s.slot * TPW_CONV_RING + (s.pos + t) % TPW_CONV_RING) * p.channels + c;
        if (BF16)
            ((uint16_t *)p.ring)[to] = ((const uint16_t *)p.x)[from];
        else
            ((uint32_t *)p.ring)[to] = ((const uint32_t *)p.x)[from];
    }
}

// Rows [row, end) of one segment.
template <bool BF16, int W>
__device__ __forceinline__ void run(const conv_params &p, const tpw_segment &s, int64_t row, int64_t end, int32_t c,
                                    const float tap[W])
{
    const int64_t first = row - s.row0;
    float window[W];
#pragma unroll
    for (int i = 1; i < W; i++)
        window[i] = input_of<BF16>(p, s, first - W + i, c);
    if (first == 0)
        store_ring<BF16>(p, s, c);
    for (; row < end; row++) {
        const int64_t past = s.pos + (row - s.row0);
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i + 1 < W; i++)
            window[i] = window[i + 1];
        window[W - 1] = tpw_row_get(p.x, BF16, row * p.x_stride + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            if (past >= W - 1 - i)
                sum = fmaf(tap[i], window[i], sum);
        tpw_row_set(p.y, BF16, row * p.y_stride + c, tpw_silu(sum));
    }
}

// Leading rows of a segment that one thread must do: those whose inputs in the ring are overwritten in this step.
template <int W> __device__ __forceinline__ int32_t joint_rows(const tpw_segment &s)
{
    return s.rows > TPW_CONV_RING - (W - 1) ? W - 1 : 1;
}

template <bool BF16, int W> __global__ void __launch_bounds__(THREADS) conv(conv_params p)
{
    const int32_t c = (int32_t)(blockIdx.y * THREADS + threadIdx.x);
    tpw_pdl_trigger();
    tpw_pdl_wait();
    if (c >= p.channels)
        return;
    float tap[W];
#pragma unroll
    for (int i = 0; i < W; i++)
        tap[i] = p.weight[(int64_t)c * W + i];
    const int64_t begin = blockIdx.x * (int64_t)p.each, last = begin + p.each < p.rows ? begin + p.each : p.rows;
    for (int64_t row = begin; row < last;) {
        const tpw_segment s = p.segments[p.segment_of[row]];
        const int64_t joint = (int64_t)s.row0 + joint_rows<W>(s), stop = (int64_t)s.row0 + s.rows;
        int64_t end = stop < last ? stop : last;
        if (row == s.row0 && end < joint)
            end = joint; // past what is this thread's own
        else if (row > s.row0 && row < joint)
            row = joint < end ? joint : end; // done by another
        if (row < end)
            run<BF16, W>(p, s, row, end, c, tap);
        row = end;
    }
}

typedef void (*conv_kernel)(conv_params);

template <bool BF16> conv_kernel kernel_of(int32_t width)
{
    static const conv_kernel kernels[] = {conv<BF16, 2>, conv<BF16, 3>, conv<BF16, 4>, conv<BF16, 5>,
                                          conv<BF16, 6>, conv<BF16, 7>, conv<BF16, 8>};
    return kernels[width - 2];
}

tpw_status check_types(const tpw_conv_args *a, tpw_error *err)
{
    const tpw_dtype act = a->x.dtype;
    if (a->width < 2 || a->width > WIDTH_MAX)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda conv: a width of %d is outside 2..%d", (int)a->width,
                        WIDTH_MAX);
    if (!tpw_is_act(act) || a->state.dtype != act || a->y.dtype != act)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "cuda conv: x is %s, the ring %s and y %s, but all must be F32 or all BF16",
                        tpw_dtype_name(act), tpw_dtype_name(a->state.dtype), tpw_dtype_name(a->y.dtype));
    TPW_TRY(tpw_mat_check("cuda conv", "x", &a->x, err));
    TPW_TRY(tpw_mat_check("cuda conv", "y", &a->y, err));
    if (a->x.cols != a->state.channels || a->y.cols != a->state.channels || a->x.rows < a->batch->rows ||
        a->y.rows < a->batch->rows)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda conv: x is [%d, %d] and y [%d, %d] for %d rows of %d channels",
                        (int)a->x.rows, (int)a->x.cols, (int)a->y.rows, (int)a->y.cols, (int)a->batch->rows,
                        (int)a->state.channels);
    if (a->weight == NULL || a->state.x == NULL || (uintptr_t)a->state.x % tpw_dtype_size(act) != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda conv: weights at %p and a ring at %p; both need device memory",
                        (const void *)a->weight, a->state.x);
    return TPW_OK;
}

tpw_status check_segments(const tpw_conv_args *a, tpw_error *err)
{
    const int64_t ring[] = {a->state.slots, TPW_CONV_RING, a->state.channels, 4};
    const int32_t others = TPW_CONV_RING - (a->width - 1);
    size_t bytes;
    if (!tpw_product_size(ring, 4, &bytes))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda conv: a ring of %d slots of %d channels cannot be",
                        (int)a->state.slots, (int)a->state.channels);
    for (int32_t i = 0; i < a->batch->segment_count; i++) {
        const tpw_segment *s = &a->batch->segments[i];
        if (s->slot < 1 || s->slot >= a->state.slots)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda conv: slot %d is outside 1..%d", (int)s->slot,
                            (int)a->state.slots - 1);
        if (s->rows_certain < 0 || s->rows_certain > s->rows || s->rows - s->rows_certain > others)
            return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                            "cuda conv: segment %d has %d rows of which %d are certain, but a ring of %d rows and %d "
                            "taps hold at most %d others",
                            (int)i, (int)s->rows, (int)s->rows_certain, TPW_CONV_RING, (int)a->width, (int)others);
    }
    return TPW_OK;
}

// Rows of a thread. Where y is x, rows are overwritten that other threads would read: one does all.
int32_t rows_of_thread(const tpw_exec *exec, const tpw_conv_args *a)
{
    const int64_t full = (int64_t)tpw_cuda_of(exec)->gpu.processors * 8 * THREADS * ROWS_MANY;
    if (a->x.data == a->y.data)
        return a->batch->rows;
    return (int64_t)a->batch->rows * a->state.channels >= full ? ROWS_MANY : 1;
}

} // namespace

extern "C" tpw_status tpw_cuda_conv(const tpw_exec *exec, const tpw_conv_args *args, tpw_error *err)
{
    tpw_cuda_batch b;
    TPW_TRY(tpw_cuda_batch_of(exec, args->batch, "conv", &b, err));
    TPW_TRY(check_types(args, err));
    TPW_TRY(check_segments(args, err));
    if (args->batch->rows == 0 || args->state.channels == 0)
        return TPW_OK;
    conv_params p = {};
    p.segments = b.segments, p.segment_of = b.segment_of;
    p.x = args->x.data, p.x_stride = args->x.stride, p.y = args->y.data, p.y_stride = args->y.stride;
    p.ring = args->state.x, p.weight = args->weight;
    p.rows = args->batch->rows, p.channels = args->state.channels, p.each = rows_of_thread(exec, args);
    const int64_t parts = ((int64_t)p.channels + THREADS - 1) / THREADS,
                  blocks = ((int64_t)p.rows + p.each - 1) / p.each;
    if (parts > 65535)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda conv: %d channels; at most %d are supported", (int)p.channels,
                        65535 * THREADS);
    return tpw_cuda_launch(exec, "conv", err,
                           args->x.dtype == TPW_BF16 ? kernel_of<true>(args->width) : kernel_of<false>(args->width),
                           dim3((unsigned)blocks, (unsigned)parts), dim3(THREADS), 0, 1, p);
}
