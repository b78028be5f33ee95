/* Shared helpers of the op tests: matrices with padded strides and poisoned padding, comparison by bits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_OPS_TEST_H
#define TPW_TESTS_OPS_TEST_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/host.h"
#include "kernels/host/scratch.h"
#include "ops_random.h"

#define OPS_POISON 0xFF /* every byte of padding: a NaN in all float types */

static inline void *ops_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        abort();
    return p;
}

/* rows x cols with `pad` poisoned elements after each row. Free data. */
static inline tpw_mat ops_mat(tpw_dtype dtype, int32_t rows, int32_t cols, int32_t pad)
{
    tpw_mat m = {NULL, dtype, rows, cols, (int64_t)cols + pad};
    size_t bytes = (size_t)rows * (size_t)m.stride * tpw_dtype_size(dtype);
    m.data = ops_alloc(bytes);
    memset(m.data, OPS_POISON, bytes);
    return m;
}

static inline float ops_get(const tpw_mat *m, int32_t r, int32_t c)
{
    int64_t i = r * m->stride + c;
    if (m->dtype == TPW_BF16) {
        uint32_t u = (uint32_t)((const uint16_t *)m->data)[i] << 16;
        float x;
        memcpy(&x, &u, sizeof x);
        return x;
    }
    return ((const float *)m->data)[i];
}

static inline void ops_set(tpw_mat *m, int32_t r, int32_t c, float x)
{
    int64_t i = r * m->stride + c;
    if (m->dtype == TPW_BF16)
        ((uint16_t *)m->data)[i] = tpw_bf16_from_f32(x);
    else
        ((float *)m->data)[i] = x;
}

static inline void ops_fill(tpw_mat *m, ops_random *r, float scale)
{
    for (int32_t i = 0; i < m->rows; i++)
        for (int32_t c = 0; c < m->cols; c++)
            ops_set(m, i, c, scale * ops_uniform(r));
}

static inline void ops_poison(tpw_mat *m)
{
    memset(m->data, OPS_POISON, (size_t)m->rows * (size_t)m->stride * tpw_dtype_size(m->dtype));
}

/* Number of elements whose bits differ; prints the first. */
static inline size_t ops_diff(const char *what, const tpw_mat *a, int32_t a_row, const tpw_mat *b, int32_t b_row,
                              int32_t rows)
{
    size_t size = tpw_dtype_size(a->dtype), bad = 0;
    for (int32_t r = 0; r < rows; r++)
        for (int32_t c = 0; c < a->cols; c++) {
            const unsigned char *pa = (const unsigned char *)a->data + (size_t)((a_row + r) * a->stride + c) * size;
            const unsigned char *pb = (const unsigned char *)b->data + (size_t)((b_row + r) * b->stride + c) * size;
            if (memcmp(pa, pb, size) != 0 && bad++ == 0)
                fprintf(stderr, "%s: first difference at row %d, column %d: %a, expected %a\n", what, (int)r, (int)c,
                        (double)ops_get(a, a_row + r, c), (double)ops_get(b, b_row + r, c));
        }
    return bad;
}

/* Bytes of padding that were written. */
static inline size_t ops_padding_touched(const tpw_mat *m)
{
    size_t size = tpw_dtype_size(m->dtype), bad = 0;
    for (int32_t r = 0; r < m->rows; r++) {
        const unsigned char *p = (const unsigned char *)m->data + (size_t)(r * m->stride + m->cols) * size;
        for (size_t i = 0; i < (size_t)(m->stride - m->cols) * size; i++)
            bad += p[i] != OPS_POISON;
    }
    return bad;
}

#define OPS_ISAS 3
static const char *const ops_isa_names[OPS_ISAS] = {"baseline", "avx2", "avx512"};

/* The exec of one instruction set, or NULL after a line on what is not tested here. */
static inline tpw_exec *ops_exec(int isa)
{
    tpw_exec *exec = NULL;
    tpw_error err = {0};
    if (tpw_host_create(ops_isa_names[isa], &exec, &err) != TPW_OK) {
        cr_assert_eq(err.status, TPW_ERR_RESOURCE, "%s", err.text);
        fprintf(stderr, "not on this CPU, left out: %s\n", ops_isa_names[isa]);
        return NULL;
    }
    return exec;
}

/* Distance in units in the last place of F32 between y and the exact value; infinity when only one is finite. */
static inline double ops_ulps(float y, double exact)
{
    if (isnan(y) || isnan(exact))
        return isnan(y) && isnan(exact) ? 0 : INFINITY;
    float rounded = (float)exact;
    if (isinf(y) || isinf(rounded))
        return y == rounded ? 0 : INFINITY;
    int e;
    frexp(exact, &e);
    return fabs((double)y - exact) / ldexp(1.0, e - 24 < -149 ? -149 : e - 24);
}

#endif
