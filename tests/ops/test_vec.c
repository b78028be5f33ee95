/* The inner loops of every instruction set against their written definition, by bits; and the host exec itself.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/vec.h"

#include "ops_test.h"

/* Numbers over many octaves, so that the order of a sum shows. */
static float wide(ops_random *r)
{
    return ops_uniform(r) * ldexpf(1.0f, (int)(ops_next(r) % 24) - 12);
}

static float expected_dot(const float *a, const float *b, int n)
{
    float lane[16] = {0};
    for (int k = 0; k < (n + 15) / 16 * 16; k++)
        lane[k % 16] = fmaf(k < n ? a[k] : 0.0f, k < n ? b[k] : 0.0f, lane[k % 16]);
    for (int half = 8; half >= 1; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = lane[l] + lane[l + half];
    return lane[0];
}

static float expected_squares(const float *x, int n)
{
    float sum = 0.0f;
    for (int begin = 0; begin < n; begin += 256) {
        float lane[32], other[32];
        for (int l = 0; l < 32; l++) {
            lane[l] = 0.0f;
            for (int i = 0; i < 8; i++) {
                int k = begin + 8 * l + i;
                lane[l] = fmaf(k < n ? x[k] : 0.0f, k < n ? x[k] : 0.0f, lane[l]);
            }
        }
        for (int mask = 16; mask >= 1; mask /= 2) {
            for (int l = 0; l < 32; l++)
                other[l] = lane[l] + lane[l ^ mask];
            memcpy(lane, other, sizeof lane);
        }
        sum = sum + lane[0];
    }
    return sum;
}

#define EACH_ISA(exec, vec)                                                              \
    for (int isa_ = 0; isa_ < OPS_ISAS; isa_++)                                          \
        for (tpw_exec *exec = ops_exec(isa_); exec; tpw_host_destroy(exec), exec = NULL) \
            for (const tpw_vec *vec = tpw_host_vec(exec); vec; vec = NULL)

Test(vec, dot_and_sum_squares_at_all_lengths)
{
    enum { N = 700 };
    static float a[N + 3], b[N + 3];
    ops_random r = {1};
    for (int i = 0; i < N + 3; i++) {
        a[i] = wide(&r);
        b[i] = wide(&r);
    }
    EACH_ISA(exec, vec)
    for (int n = 0; n <= N; n++) {
        int o = n % 4; /* unaligned starts */
        cr_assert_eq(tpw_f32_bits(vec->dot(a + o, b + 3 - o, n)), tpw_f32_bits(expected_dot(a + o, b + 3 - o, n)),
                     "%s dot %d", vec->isa, n);
        cr_assert_eq(tpw_f32_bits(vec->sum_squares(a + o, n)), tpw_f32_bits(expected_squares(a + o, n)),
                     "%s squares %d", vec->isa, n);
    }
}

/* A lane that has become -0 must turn into +0 when the tail pads it. */
Test(vec, zero_padding_of_a_tail_is_a_multiply_add)
{
    float a[17] = {0}, b[17] = {0};
    for (int i = 0; i < 16; i++) {
        a[i] = -1e-30f;
        b[i] = 1e-30f;
    }
    EACH_ISA(exec, vec)
    {
        cr_assert_eq(tpw_f32_bits(vec->dot(a, b, 16)), 0x80000000u);
        cr_assert_eq(tpw_f32_bits(vec->dot(a, b, 17)), 0u);
    }
}

Test(vec, axpy_scale_and_fold)
{
    enum { N = 67 };
    float x[N], y[N], t[N];
    ops_random r = {2};
    for (int i = 0; i < N; i++) {
        x[i] = wide(&r);
        y[i] = wide(&r);
    }
    EACH_ISA(exec, vec)
    for (int n = 0; n <= N; n++) {
        memcpy(t, y, sizeof t);
        vec->axpy(t, x, 0.3f, n);
        for (int i = 0; i < N; i++)
            cr_assert_eq(tpw_f32_bits(t[i]), tpw_f32_bits(i < n ? fmaf(0.3f, x[i], y[i]) : y[i]));
        vec->scale(t, x, 0.7f, n);
        for (int i = 0; i < n; i++)
            cr_assert_eq(tpw_f32_bits(t[i]), tpw_f32_bits(0.7f * x[i]));
        memcpy(t, y, sizeof t);
        vec->fold(t, 0.9f, x, 0.2f, n);
        for (int i = 0; i < N; i++)
            cr_assert_eq(tpw_f32_bits(t[i]), tpw_f32_bits(i < n ? fmaf(y[i], 0.9f, x[i] * 0.2f) : y[i]));
    }
}

Test(vec, widening_is_exact_for_every_code)
{
    static uint16_t half[65536];
    static float out[65536];
    uint8_t byte[256];
    for (int i = 0; i < 65536; i++)
        half[i] = (uint16_t)i;
    for (int i = 0; i < 256; i++)
        byte[i] = (uint8_t)i;
    EACH_ISA(exec, vec)
    {
        vec->load(out, half, TPW_BF16, 3, 65536 - 3);
        for (int i = 3; i < 65536; i++)
            cr_assert_eq(tpw_f32_bits(out[i - 3]), (uint32_t)i << 16);
        vec->load(out, half, TPW_F16, 5, 65536 - 5);
        for (int i = 5; i < 65536; i++) {
            const int e = i >> 10 & 31, m = i & 1023;
            const float v = e == 0 ? ldexpf((float)m, -24) : ldexpf((float)(1024 + m), e - 25);
            if (e < 31)
                cr_assert_eq(tpw_f32_bits(out[i - 5]), tpw_f32_bits(i & 0x8000 ? -v : v), "%s F16 %x", vec->isa, i);
            else
                cr_assert(m ? isnan(out[i - 5]) : out[i - 5] == (i & 0x8000 ? -INFINITY : INFINITY));
        }
        for (int offset = 0; offset < 20; offset++) {
            vec->load(out, byte, TPW_E4M3, offset, 256 - offset);
            for (int i = offset; i < 256; i++) {
                int e = i >> 3 & 15, m = i & 7;
                float v = e == 0 ? ldexpf((float)m, -9) : ldexpf((float)(8 + m), e - 10);
                if ((i & 0x7F) != 0x7F)
                    cr_assert_eq(tpw_f32_bits(out[i - offset]), tpw_f32_bits(i & 0x80 ? -v : v), "%s code %d", vec->isa,
                                 i);
            }
        }
    }
}

Test(vec, rounding_to_bf16_is_to_nearest_even)
{
    enum { N = 4099 };
    static float x[N];
    static uint16_t out[N + 1];
    ops_random r = {3};
    for (int i = 0; i < N; i++)
        x[i] = tpw_f32_from_bits(i % 4 ? (uint32_t)ops_next(&r) : ((uint32_t)ops_next(&r) & 0xFFFF0000u) | 0x8000u);
    x[0] = INFINITY;
    x[1] = tpw_f32_from_bits(0x7F7FFFFFu);
    x[2] = tpw_f32_from_bits(0x7F800001u);
    x[3] = -0.0f;
    EACH_ISA(exec, vec)
    {
        out[N] = 0xBEEF;
        vec->store(out, TPW_BF16, 0, x, N);
        for (int i = 0; i < N; i++) {
            if (isnan(x[i])) {
                cr_assert((out[i] & 0x7F80) == 0x7F80 && (out[i] & 0x7F) != 0);
                continue;
            }
            /* the two neighbours on the BF16 grid, compared in double; the upper one may be infinity */
            uint32_t u = tpw_f32_bits(x[i]), low = u & 0xFFFF0000u;
            double span = ldexp(1.0, 16), part = (double)(u - low);
            uint32_t want = part < span / 2 || (part == span / 2 && !(low >> 16 & 1)) ? low : low + 0x10000u;
            cr_assert_eq(out[i], want >> 16, "%s %a", vec->isa, (double)x[i]);
        }
        cr_assert_eq(out[N], 0xBEEF);
    }
}

/* Every F16 number, and what lies halfway to the next and beside that: ties go to the even one. */
Test(vec, rounding_to_f16_is_to_nearest_even)
{
    enum { N = 0x7C00 };
    static float x[3 * N];
    static uint16_t out[3 * N + 1];
    for (int i = 0; i < N; i++) {
        const float low = tpw_f16_to_f32((uint16_t)i), next = i + 1 < N ? tpw_f16_to_f32((uint16_t)(i + 1)) : 65536.0f;
        x[3 * i] = i % 2 ? -low : low;
        x[3 * i + 1] = (low + next) / 2;
        x[3 * i + 2] = nextafterf((low + next) / 2, 0.0f);
    }
    EACH_ISA(exec, vec)
    {
        out[3 * N] = 0xBEEF;
        vec->store(out, TPW_F16, 0, x, 3 * N);
        for (int i = 0; i < N; i++) {
            cr_assert_eq(out[3 * i], i % 2 ? 0x8000 | i : i, "%s code %x", vec->isa, i);
            cr_assert_eq(out[3 * i + 1], i % 2 ? i + 1 : i, "%s half past %x", vec->isa, i);
            cr_assert_eq(out[3 * i + 2], i, "%s below half past %x", vec->isa, i);
        }
        cr_assert_eq(out[3 * N], 0xBEEF);
    }
}

Test(vec, piece_is_dot_and_one_multiply_add_for_every_tile)
{
    enum { M = 9, N = 8, XS = 131, WS = 133 };
    static float x[M * XS], wf[N * WS], acc[M * 10], want[M * 10];
    static uint16_t wb[N * WS];
    static uint8_t we[N * WS];
    float scale[N];
    ops_random r = {4};
    for (int i = 0; i < M * XS; i++)
        x[i] = wide(&r);
    for (int i = 0; i < N * WS; i++) {
        we[i] = (uint8_t)ops_next(&r);
        if ((we[i] & 0x7F) == 0x7F)
            we[i] = 1;
        wb[i] = tpw_bf16_from_f32(wide(&r));
    }
    for (int i = 0; i < N; i++)
        scale[i] = wide(&r);
    const tpw_dtype types[] = {TPW_E4M3, TPW_BF16, TPW_F32};
    EACH_ISA(exec, vec)
    for (int t = 0; t < 3; t++) {
        vec->load(wf, types[t] == TPW_E4M3 ? (void *)we : (void *)wb, types[t] == TPW_E4M3 ? TPW_E4M3 : TPW_BF16, 0,
                  N * WS);
        const void *w = types[t] == TPW_E4M3 ? (void *)we : types[t] == TPW_BF16 ? (void *)wb : (void *)wf;
        for (int m = 0; m <= M; m++)
            for (int n = 1; n <= N; n++)
                for (int k = 128; k > 0; k -= 29) {
                    for (int i = 0; i < M * 10; i++)
                        acc[i] = want[i] = (float)(i % 13) - 6.0f;
                    for (int i = 0; i < m; i++)
                        for (int j = 0; j < n; j++)
                            want[i * 10 + j] =
                                fmaf(expected_dot(x + i * XS, wf + j * WS, k), scale[j], want[i * 10 + j]);
                    if (t == 2)
                        vec->piece(acc, 10, x, XS, m, wf, WS, scale, n, k);
                    else
                        vec->piece_stored(acc, 10, x, XS, m, w, types[t], WS, scale, n, k);
                    cr_assert_eq(memcmp(acc, want, sizeof acc), 0, "%s M %d N %d k %d type %d", vec->isa, m, n, k, t);
                }
    }
}

Test(host, memory_is_zeroed_aligned_and_counted)
{
    tpw_exec *exec = ops_exec(0);
    unsigned char *a, *b, copy[300];
    tpw_error err = {0};
    cr_assert_eq(exec->device->alloc(exec, 300, (void **)&a, &err), TPW_OK);
    cr_assert_eq(exec->device->alloc(exec, 1000, (void **)&b, &err), TPW_OK);
    cr_assert_eq((uintptr_t)a % 256 + (uintptr_t)b % 256, 0);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(b[i], 0);
    cr_assert_eq(exec->device->bytes_now(exec), 1300);
    exec->device->free(exec, b);
    cr_assert_eq(exec->device->bytes_now(exec), 300);
    cr_assert_eq(exec->device->bytes_peak(exec), 1300);
    cr_assert_eq(exec->device->fill(exec, a, 7, 300, &err), TPW_OK);
    cr_assert_eq(exec->device->download(exec, copy, a, 300, &err), TPW_OK);
    cr_assert_eq(copy[299], 7);
    copy[0] = 9;
    cr_assert_eq(exec->device->upload(exec, a, copy, 1, &err), TPW_OK);
    cr_assert(a[0] == 9 && a[1] == 7);
    exec->device->free(exec, a);
    exec->device->free(exec, NULL);
    cr_assert_eq(exec->device->bytes_now(exec), 0);
    cr_assert_eq(exec->device->alloc(exec, SIZE_MAX - 100, (void **)&a, &err), TPW_ERR_MEMORY);
    cr_assert_eq(err.status, TPW_ERR_MEMORY);
    tpw_host_destroy(exec);
    tpw_host_destroy(NULL);
}

Test(host, instruction_set_is_chosen_by_name)
{
    tpw_exec *exec = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_host_create("sse9", &exec, &err), TPW_ERR_ARGUMENT);
    cr_assert(strstr(err.text, "sse9") != NULL, "%s", err.text);
    cr_assert_eq(tpw_host_create("baseline", &exec, NULL), TPW_OK);
    cr_assert_str_eq(tpw_host_isa(exec), "baseline");
    cr_assert_str_eq(exec->ops->name, "host");
    tpw_host_destroy(exec);
    const tpw_vec *best = tpw_vec_avx512() ? tpw_vec_avx512() : tpw_vec_avx2() ? tpw_vec_avx2() : tpw_vec_baseline();
    cr_assert_eq(tpw_host_create("auto", &exec, &err), TPW_OK);
    cr_assert_str_eq(tpw_host_isa(exec), best->isa);
    tpw_host_destroy(exec);
}

Test(host, every_op_is_filled_and_scratch_is_cut_in_order)
{
    tpw_exec *exec = ops_exec(0);
#define FILLED(op) cr_assert_not_null((void *)exec->ops->op, #op);
    TPW_OP_MAP(FILLED)
#undef FILLED
    tpw_scratch s = tpw_scratch_begin(exec);
    cr_assert_geq(s.left, TPW_HOST_SCRATCH_BYTES);
    size_t whole = s.left;
    unsigned char *a = tpw_scratch_take(&s, 3, 1), *b = tpw_scratch_take(&s, 1, 1);
    cr_assert_eq(b - a, 64);
    cr_assert_null(tpw_scratch_take(&s, whole, 1));
    cr_assert_null(tpw_scratch_take(&s, SIZE_MAX / 2, 4));
    cr_assert_eq(s.left, whole - 128);
    float *f;
    tpw_error err = {0};
    cr_assert_eq(tpw_scratch_floats(&s, whole, "op", &f, &err), TPW_ERR_LIMIT);
    cr_assert_eq(tpw_host_reserve(exec, whole + 1, &err), TPW_OK);
    s = tpw_scratch_begin(exec);
    cr_assert_gt(s.left, whole);
    memset(s.next, 1, s.left);
    cr_assert_eq(tpw_host_reserve(exec, SIZE_MAX - 1, &err), TPW_ERR_MEMORY);
    cr_assert_eq(tpw_host_scratch_bytes(1, 100), TPW_HOST_SCRATCH_BYTES);
    cr_assert_eq(tpw_host_scratch_bytes(256, 17408), (size_t)256 * (17408 + 1024) * 4 + (1u << 20));
    cr_assert_eq(tpw_host_scratch_bytes(-1, 100), SIZE_MAX);
    tpw_host_destroy(exec);
}
