/* Arrays of every layout for tests: contiguous, padded, strided, backwards, transposed, with poison between the elements.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_ARRAY_TEST_H
#define TPW_TESTS_ARRAY_TEST_H

#include "kernels/array.h"
#include "ops_test.h"

typedef enum box_layout { BOX_PLAIN, BOX_PADDED, BOX_STRIDED, BOX_BACKWARDS, BOX_TRANSPOSED, BOX_LAYOUTS } box_layout;

/* An array and the block that holds it. */
typedef struct box {
    tpw_array a;
    unsigned char *block;
    size_t bytes;
} box;

/* The array is unwritten; every byte is poison. Free the block. */
static inline box box_make(tpw_dtype dtype, int32_t dims, const int64_t *extent, box_layout layout)
{
    box b = {.a = {.dtype = dtype, .dims = dims}};
    int64_t step = layout == BOX_STRIDED ? 2 : 1;
    for (int32_t i = 0; i < dims; i++) {
        int32_t d = layout == BOX_TRANSPOSED ? i : dims - 1 - i;
        b.a.extent[d] = extent[d];
        b.a.stride[d] = step;
        step *= extent[d];
        step += layout == BOX_PADDED && i == 0 ? 3 : layout == BOX_PLAIN ? 0 : 1;
    }
    const size_t size = tpw_dtype_size(dtype);
    int64_t first = 0;
    if (layout == BOX_BACKWARDS)
        for (int32_t d = 0; d < dims; d++) {
            first += extent[d] > 0 ? (extent[d] - 1) * b.a.stride[d] : 0;
            b.a.stride[d] = -b.a.stride[d];
        }
    b.bytes = (size_t)(step + 1) * size;
    b.block = ops_alloc(b.bytes);
    memset(b.block, OPS_POISON, b.bytes);
    b.a.data = b.block + (size_t)first * size;
    return b;
}

/* Where the element with row-major number i lies, found axis by axis. */
static inline unsigned char *box_at(const box *b, int64_t i)
{
    int64_t offset = 0;
    for (int32_t d = b->a.dims - 1; d >= 0; d--) {
        offset += i % b->a.extent[d] * b->a.stride[d];
        i /= b->a.extent[d];
    }
    return (unsigned char *)b->a.data + offset * (int64_t)tpw_dtype_size(b->a.dtype);
}

static inline int64_t box_count(const box *b)
{
    int64_t count = 1;
    for (int32_t d = 0; d < b->a.dims; d++)
        count *= b->a.extent[d];
    return count;
}

/* Any bits. */
static inline void box_fill_bits(box *b, ops_random *r)
{
    const size_t size = tpw_dtype_size(b->a.dtype);
    for (int64_t i = 0; i < box_count(b); i++) {
        uint64_t bits = ops_next(r);
        if (b->a.dtype == TPW_I64 && (bits & 1))
            bits >>= bits >> 58; /* all magnitudes */
        if (b->a.dtype == TPW_BOOL)
            bits &= 0x103;
        memcpy(box_at(b, i), &bits, size);
    }
}

static inline float box_get(const box *b, int64_t i)
{
    const unsigned char *at = box_at(b, i);
    uint16_t half;
    float x;
    if (b->a.dtype == TPW_F32) {
        memcpy(&x, at, sizeof x);
        return x;
    }
    memcpy(&half, at, sizeof half);
    return b->a.dtype == TPW_BF16 ? tpw_bf16_to_f32(half) : tpw_f16_to_f32(half);
}

static inline void box_set(box *b, int64_t i, float x)
{
    uint16_t half = b->a.dtype == TPW_BF16 ? tpw_bf16_from_f32(x) : tpw_f16_from_f32(x);
    if (b->a.dtype == TPW_F32)
        memcpy(box_at(b, i), &x, sizeof x);
    else
        memcpy(box_at(b, i), &half, sizeof half);
}

static inline float box_rounded(tpw_dtype dtype, float x)
{
    return dtype == TPW_F32    ? x
           : dtype == TPW_BF16 ? tpw_bf16_to_f32(tpw_bf16_from_f32(x))
                               : tpw_f16_to_f32(tpw_f16_from_f32(x));
}

/* Numbers of mixed sizes, such as the dtype can hold. */
static inline void box_fill_numbers(box *b, ops_random *r)
{
    for (int64_t i = 0; i < box_count(b); i++)
        box_set(b, i, ops_uniform(r) * ldexpf(1.0f, (int)(ops_next(r) % 9) - 5));
}

/* Bytes between the elements that are no longer poison. */
static inline size_t box_touched(const box *b)
{
    const size_t size = tpw_dtype_size(b->a.dtype);
    unsigned char *mark = ops_alloc(b->bytes);
    size_t bad = 0;
    memset(mark, 0, b->bytes);
    for (int64_t i = 0; i < box_count(b); i++)
        memset(mark + (box_at(b, i) - b->block), 1, size);
    for (size_t i = 0; i < b->bytes; i++)
        bad += !mark[i] && b->block[i] != OPS_POISON;
    free(mark);
    return bad;
}

/* The sum of n terms by the written tree: every lane takes part in every exchange. */
static inline float box_tree(const float *term, int64_t n)
{
    float total = 0.0f;
    for (int64_t begin = 0; begin < n; begin += 256) {
        float lane[32] = {0}, next[32];
        for (int64_t k = begin; k < begin + 256; k++)
            lane[(k - begin) / 8] += k < n ? term[k] : 0.0f;
        for (int mask = 16; mask; mask >>= 1) {
            for (int l = 0; l < 32; l++)
                next[l] = lane[l] + lane[l ^ mask];
            memcpy(lane, next, sizeof lane);
        }
        total = total + lane[5];
    }
    return total;
}

#endif
