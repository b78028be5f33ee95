/* The causal depthwise convolution with SiLU, whose past inputs lie in a ring by absolute position.
 *
 * Channels are done in blocks that fit the scratch. A tap before position 0 is skipped: such taps come first, when the
 * sum is still +0, which a product with zero would leave as it is; and a ring that nobody wrote may hold anything.
 * y may be x: a row is widened before its place is written. SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"

#define CONV_WIDTH_MAX 8

/* Some channels of one call: taps [width][n] and the last `width` inputs [width][n] by position mod width, widened. */
typedef struct block {
    const tpw_vec *vec;
    int32_t c0;
    int32_t n;
    int32_t width;
    float *taps;
    float *window;
    float *acc;
} block;

static void block_open(block *b, const tpw_conv_args *a, float *memory)
{
    b->taps = memory;
    b->window = b->taps + (int64_t)b->width * b->n;
    b->acc = b->window + (int64_t)b->width * b->n;
    for (int32_t i = 0; i < b->width; i++)
        for (int32_t c = 0; c < b->n; c++)
            b->taps[(int64_t)i * b->n + c] = a->weight[(int64_t)(b->c0 + c) * b->width + i];
}

static float *block_input(const block *b, int64_t pos)
{
    return b->window + pos % b->width * b->n;
}

static int64_t ring_offset(const tpw_conv_state *state, int32_t slot, int64_t pos)
{
    return ((int64_t)slot * TPW_CONV_RING + pos % TPW_CONV_RING) * state->channels;
}

/* Leaves the segment's newest inputs in the ring; what the first rows need of it has been read before. */
static void ring_store(const block *b, const tpw_conv_args *a, const tpw_segment *s)
{
    size_t size = tpw_dtype_size(a->x.dtype);
    for (int32_t t = s->rows > TPW_CONV_RING ? s->rows - TPW_CONV_RING : 0; t < s->rows; t++) {
        int64_t from = (s->row0 + t) * a->x.stride + b->c0, to = ring_offset(&a->state, s->slot, s->pos + t) + b->c0;
        memcpy((char *)a->state.x + (size_t)to * size, (const char *)a->x.data + (size_t)from * size,
               size * (size_t)b->n);
    }
}

static void block_row(const block *b, int64_t pos)
{
    memset(b->acc, 0, sizeof(float) * (size_t)b->n);
    for (int32_t i = 0; i < b->width; i++) {
        int64_t at = pos - (b->width - 1) + i;
        if (at < 0)
            continue;
        const float *tap = b->taps + (int64_t)i * b->n, *input = block_input(b, at);
        for (int32_t c = 0; c < b->n; c++)
            b->acc[c] = fmaf(tap[c], input[c], b->acc[c]);
    }
    b->vec->silu(b->acc, b->acc, NULL, b->n);
}

static void block_segment(const block *b, const tpw_conv_args *a, const tpw_segment *s)
{
    int64_t oldest = s->pos - (b->width - 1);
    for (int64_t pos = oldest > 0 ? oldest : 0; pos < s->pos; pos++)
        b->vec->load(block_input(b, pos), a->state.x, a->state.dtype, ring_offset(&a->state, s->slot, pos) + b->c0,
                     b->n);
    ring_store(b, a, s);
    for (int32_t t = 0; t < s->rows; t++) {
        int64_t row = s->row0 + t;
        b->vec->load(block_input(b, s->pos + t), a->x.data, a->x.dtype, row * a->x.stride + b->c0, b->n);
        block_row(b, s->pos + t);
        b->vec->store(a->y.data, a->y.dtype, row * a->y.stride + b->c0, b->acc, b->n);
    }
}

static tpw_status conv_check(const tpw_conv_args *a, tpw_error *err)
{
    if (a->width < 2 || a->width > CONV_WIDTH_MAX)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "conv: a width of %d is outside 2..%d", a->width, CONV_WIDTH_MAX);
    if ((a->x.dtype != TPW_F32 && a->x.dtype != TPW_BF16) || a->state.dtype != a->x.dtype || a->y.dtype != a->x.dtype)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "conv: x is %s, the ring %s and y %s, but all must be F32 or all BF16",
                        tpw_dtype_name(a->x.dtype), tpw_dtype_name(a->state.dtype), tpw_dtype_name(a->y.dtype));
    if (a->x.cols != a->state.channels || a->y.cols != a->state.channels)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "conv: x has %d and y %d columns for %d channels", a->x.cols, a->y.cols,
                        a->state.channels);
    for (int32_t i = 0; i < a->batch->segment_count; i++) {
        const tpw_segment *s = &a->batch->segments[i];
        if (s->slot < 1 || s->slot >= a->state.slots)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "conv: slot %d is outside 1..%d", s->slot, a->state.slots - 1);
        if (s->rows_certain < 0 || s->rows_certain > s->rows ||
            s->rows - s->rows_certain > TPW_CONV_RING - (a->width - 1))
            return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                            "conv: segment %d has %d rows of which %d are certain, but a ring of %d rows and %d taps "
                            "hold at most %d others",
                            i, s->rows, s->rows_certain, TPW_CONV_RING, a->width, TPW_CONV_RING - (a->width - 1));
    }
    return TPW_OK;
}

tpw_status tpw_host_conv(const tpw_exec *exec, const tpw_conv_args *args, tpw_error *err)
{
    TPW_TRY(conv_check(args, err));
    tpw_scratch scratch = tpw_scratch_begin(exec);
    size_t floats = (size_t)(2 * args->width + 1), room = scratch.left / sizeof(float) / floats;
    int32_t channels = args->state.channels;
    int32_t channels_max = room < (size_t)channels ? (int32_t)room : channels;
    float *memory;
    TPW_TRY(tpw_scratch_floats(&scratch, floats * (size_t)channels_max, "conv", &memory, err));
    block b = {.vec = tpw_host_vec(exec), .width = args->width};
    for (b.c0 = 0; b.c0 < channels; b.c0 += b.n) {
        b.n = channels - b.c0 < channels_max ? channels - b.c0 : channels_max;
        block_open(&b, args, memory);
        for (int32_t i = 0; i < args->batch->segment_count; i++)
            block_segment(&b, args, &args->batch->segments[i]);
    }
    return TPW_OK;
}
