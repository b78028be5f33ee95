/* Sixteen F32 lanes per instruction set: the only place with intrinsics. Included by vec_loops.c alone.
 *
 * TPW_VEC_ISA picks one: 0 plain C, 1 AVX2 with FMA and F16C, 2 AVX-512 (F, BW, VL, DQ). The lanes, the fused
 * multiply-adds and the join (l+8, l+4, l+2, l+1) are the same in all, hence the same bits. Everything is static
 * inline: an object of one instruction set offers no code that another could pick up at link time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_HOST_SIMD_H
#define TPW_KERNELS_HOST_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/host/vec.h"

#if TPW_VEC_ISA > 0
#include <cpuid.h>
#include <immintrin.h>
#endif

#define TPW_INLINE static inline __attribute__((always_inline))

/* A v16 is made of parts of one register each; loops go part by part, so that few registers are live at a time. */
#if TPW_VEC_ISA == 0
#define PART_LANES 1
typedef float vpart;

TPW_INLINE vpart part_set1(float x)
{
    return x;
}

TPW_INLINE vpart part_load(const float *p)
{
    return *p;
}

TPW_INLINE void part_store(float *p, vpart v)
{
    *p = v;
}

TPW_INLINE vpart part_fma(vpart a, vpart b, vpart c)
{
    return fmaf(a, b, c);
}

TPW_INLINE vpart part_mul(vpart a, vpart b)
{
    return a * b;
}

TPW_INLINE vpart part_from_bf16(const uint16_t *p)
{
    return tpw_bf16_to_f32(*p);
}

TPW_INLINE vpart part_from_e4m3(const uint8_t *p)
{
    return tpw_f32_from_bits((uint32_t)(*p & 0x80) << 24 | (uint32_t)(*p & 0x7F) << 20) * 0x1p120f;
}

#elif TPW_VEC_ISA == 1
#define PART_LANES 8
typedef __m256 vpart;

TPW_INLINE vpart part_set1(float x)
{
    return _mm256_set1_ps(x);
}

TPW_INLINE vpart part_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

TPW_INLINE void part_store(float *p, vpart v)
{
    _mm256_storeu_ps(p, v);
}

TPW_INLINE vpart part_fma(vpart a, vpart b, vpart c)
{
    return _mm256_fmadd_ps(a, b, c);
}

TPW_INLINE vpart part_mul(vpart a, vpart b)
{
    return _mm256_mul_ps(a, b);
}

TPW_INLINE vpart part_from_bf16(const uint16_t *p)
{
    __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}

/* By way of F16, which widens subnormals at full speed: a sign-extended byte << 7 has the sign at bit 15, exponent and
 * mantissa at bits 7..13, and the difference of the exponent biases is 8. */
TPW_INLINE vpart part_from_e4m3(const uint8_t *p)
{
    __m128i u = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p));
    u = _mm_and_si128(_mm_slli_epi16(u, 7), _mm_set1_epi16((short)0xBF80));
    return _mm256_mul_ps(_mm256_cvtph_ps(u), _mm256_set1_ps(256.0f));
}

#else
#define PART_LANES 16
typedef __m512 vpart;

TPW_INLINE vpart part_set1(float x)
{
    return _mm512_set1_ps(x);
}

TPW_INLINE vpart part_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

TPW_INLINE void part_store(float *p, vpart v)
{
    _mm512_storeu_ps(p, v);
}

TPW_INLINE vpart part_fma(vpart a, vpart b, vpart c)
{
    return _mm512_fmadd_ps(a, b, c);
}

TPW_INLINE vpart part_mul(vpart a, vpart b)
{
    return _mm512_mul_ps(a, b);
}

TPW_INLINE vpart part_from_bf16(const uint16_t *p)
{
    __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}

TPW_INLINE vpart part_from_e4m3(const uint8_t *p)
{
    __m256i u = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    u = _mm256_and_si256(_mm256_slli_epi16(u, 7), _mm256_set1_epi16((short)0xBF80));
    return _mm512_mul_ps(_mm512_cvtph_ps(u), _mm512_set1_ps(256.0f));
}
#endif

#define PARTS (TPW_LANES / PART_LANES)

typedef struct v16 {
    vpart part[PARTS];
} v16;

TPW_INLINE v16 v16_set1(float x)
{
    v16 v;
#pragma GCC unroll 2
    for (int h = 0; h < PARTS; h++)
        v.part[h] = part_set1(x);
    return v;
}

TPW_INLINE v16 v16_load(const float *p)
{
    v16 v;
#pragma GCC unroll 2
    for (int h = 0; h < PARTS; h++)
        v.part[h] = part_load(p + h * PART_LANES);
    return v;
}

TPW_INLINE void v16_store(float *p, v16 v)
{
#pragma GCC unroll 2
    for (int h = 0; h < PARTS; h++)
        part_store(p + h * PART_LANES, v.part[h]);
}

TPW_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
#pragma GCC unroll 2
    for (int h = 0; h < PARTS; h++)
        c.part[h] = part_fma(a.part[h], b.part[h], c.part[h]);
    return c;
}

TPW_INLINE v16 v16_mul(v16 a, v16 b)
{
#pragma GCC unroll 2
    for (int h = 0; h < PARTS; h++)
        a.part[h] = part_mul(a.part[h], b.part[h]);
    return a;
}

#if TPW_VEC_ISA == 0
/* out[i] = the join of v[i] for the first `count` of up to 8 vectors. */
TPW_INLINE void v16_join8(const v16 v[8], float out[8], int count)
{
    for (int i = 0; i < count; i++) {
        float s[8];
        for (int l = 0; l < 8; l++)
            s[l] = v[i].part[l] + v[i].part[l + 8];
        for (int l = 0; l < 4; l++)
            s[l] += s[l + 4];
        out[i] = (s[0] + s[2]) + (s[1] + s[3]);
    }
}

#else
/* Lanes l + (l+8). */
TPW_INLINE __m256 v16_half(v16 v)
{
#if TPW_VEC_ISA == 1
    return _mm256_add_ps(v.part[0], v.part[1]);
#else
    return _mm256_add_ps(_mm512_castps512_ps256(v.part[0]), _mm512_extractf32x8_ps(v.part[0], 1));
#endif
}

/* out[i] = the join of v[i], always all eight: transposing as the tree narrows takes 2 additions and 2 shuffles an
 * output. */
TPW_INLINE void v16_join8(const v16 v[8], float out[8], int count)
{
    (void)count;
    __m256 r[8], s[4], t[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = v16_half(v[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) /* lanes l + (l+4): outputs 2i | 2i+1 */
        s[i] = _mm256_add_ps(_mm256_permute2f128_ps(r[2 * i], r[2 * i + 1], 0x20),
                             _mm256_permute2f128_ps(r[2 * i], r[2 * i + 1], 0x31));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) /* lanes l + (l+2): outputs 4i, 4i+2 | 4i+1, 4i+3 */
        t[i] = _mm256_add_ps(_mm256_shuffle_ps(s[2 * i], s[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(s[2 * i], s[2 * i + 1], 0xEE));
    __m256 u = _mm256_add_ps(_mm256_shuffle_ps(t[0], t[1], 0x88), _mm256_shuffle_ps(t[0], t[1], 0xDD));
    __m128 even = _mm256_castps256_ps128(u), odd = _mm256_extractf128_ps(u, 1);
    _mm_storeu_ps(out, _mm_unpacklo_ps(even, odd));
    _mm_storeu_ps(out + 4, _mm_unpackhi_ps(even, odd));
}
#endif

/* First n < 16 elements, the rest zero: the zero-padded tail of a chain. */
TPW_INLINE v16 v16_load_head(const float *p, int32_t n)
{
    float pad[TPW_LANES] = {0};
    memcpy(pad, p, (size_t)n * sizeof *p);
    return v16_load(pad);
}

TPW_INLINE float v16_join(v16 v)
{
    float l[TPW_LANES];
    v16_store(l, v);
    for (int i = 0; i < 8; i++)
        l[i] += l[i + 8];
    for (int i = 0; i < 4; i++)
        l[i] += l[i + 4];
    return (l[0] + l[2]) + (l[1] + l[3]);
}

#endif
