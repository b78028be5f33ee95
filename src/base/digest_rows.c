/* The inner loop of the digest, compiled once per instruction set (TPW_DIGEST_ISA 0, 1, 2). SPDX-License-Identifier: Apache-2.0 */
#include "base/digest_rows.h"

#include <string.h>

#include "base/digest.h"

#if TPW_DIGEST_ISA > 0
#include <immintrin.h>
#endif

#define TPW_INLINE static inline __attribute__((always_inline))

/* `size` is a constant in every call, so that each loop is a plain one. */
TPW_INLINE uint64_t bits_at(const unsigned char *at, const size_t size)
{
    uint8_t b1;
    uint16_t b2;
    uint32_t b4;
    uint64_t b8;

    switch (size) {
    case 1:
        memcpy(&b1, at, sizeof b1);
        return b1;
    case 2:
        memcpy(&b2, at, sizeof b2);
        return b2;
    case 4:
        memcpy(&b4, at, sizeof b4);
        return b4;
    default:
        memcpy(&b8, at, sizeof b8);
        return b8;
    }
}

TPW_INLINE uint64_t one_by_one(uint64_t place, uint64_t step, const unsigned char *at, const size_t size, int64_t n)
{
    uint64_t sum = 0;

    for (int64_t i = 0; i < n; i++, place += step)
        sum += tpw_digest_fin(place ^ bits_at(at + i * (int64_t)size, size));
    return sum;
}

#if TPW_DIGEST_ISA == 0
TPW_INLINE uint64_t row(uint64_t place, uint64_t step, const unsigned char *at, const size_t size, int64_t n)
{
    return one_by_one(place, step, at, size, n);
}

#elif TPW_DIGEST_ISA == 1
#define LANES 4
typedef __m256i words;

TPW_INLINE words load(const unsigned char *at, const size_t size)
{
    switch (size) {
    case 1:
        return _mm256_cvtepu8_epi64(_mm_cvtsi32_si128((int)bits_at(at, 4)));
    case 2:
        return _mm256_cvtepu16_epi64(_mm_loadl_epi64((const __m128i *)at));
    case 4:
        return _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)at));
    default:
        return _mm256_loadu_si256((const __m256i *)at);
    }
}

TPW_INLINE words set1(uint64_t x)
{
    return _mm256_set1_epi64x((long long)x);
}

TPW_INLINE words add(words a, words b)
{
    return _mm256_add_epi64(a, b);
}

TPW_INLINE words mix(words a, words b)
{
    return _mm256_xor_si256(a, b);
}

/* t ^ t >> 32 */
TPW_INLINE words fold(words t)
{
    return mix(t, _mm256_srli_epi64(t, 32));
}

/* There is no such instruction. Of 64-bit halves (h, l) and a constant (c, d): l * d whole, and the low halves of h * d and l * c, which
 * one multiplication of 32-bit lanes by the exchanged constant gives, added above. */
TPW_INLINE words multiply(words t, const uint64_t by)
{
    words cross = _mm256_mullo_epi32(t, set1(by << 32 | by >> 32));

    cross = add(_mm256_slli_epi64(cross, 32), _mm256_and_si256(cross, set1(~(uint64_t)0 << 32)));
    return add(_mm256_mul_epu32(t, set1(by)), cross);
}

TPW_INLINE void store(uint64_t *out, words t)
{
    _mm256_storeu_si256((__m256i *)out, t);
}

#else
#define LANES 8
typedef __m512i words;

TPW_INLINE words load(const unsigned char *at, const size_t size)
{
    switch (size) {
    case 1:
        return _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)at));
    case 2:
        return _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)at));
    case 4:
        return _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)at));
    default:
        return _mm512_loadu_si512(at);
    }
}

TPW_INLINE words set1(uint64_t x)
{
    return _mm512_set1_epi64((long long)x);
}

TPW_INLINE words add(words a, words b)
{
    return _mm512_add_epi64(a, b);
}

TPW_INLINE words mix(words a, words b)
{
    return _mm512_xor_si512(a, b);
}

TPW_INLINE words fold(words t)
{
    return mix(t, _mm512_srli_epi64(t, 32));
}

TPW_INLINE words multiply(words t, const uint64_t by)
{
    return _mm512_mullo_epi64(t, set1(by));
}

TPW_INLINE void store(uint64_t *out, words t)
{
    _mm512_storeu_si512(out, t);
}
#endif

#if TPW_DIGEST_ISA > 0
#define PAIR (2 * LANES) /* two chains, since each waits for its multiplications */

/* tpw_digest_fin of every lane. */
TPW_INLINE words fin(words t)
{
    t = fold(multiply(t, 0xD1B54A32D192ED03ull));
    t = fold(multiply(t, 0xBF58476D1CE4E5B9ull));
    return fold(multiply(t, 0x94D049BB133111EBull));
}

TPW_INLINE uint64_t row(uint64_t place, uint64_t step, const unsigned char *at, const size_t size, int64_t n)
{
    uint64_t lanes[LANES], sum = 0;
    int64_t i = 0;

    for (int l = 0; l < LANES; l++)
        lanes[l] = place + (uint64_t)l * step;
    const words next = set1(PAIR * step);
    words a = load((const unsigned char *)lanes, 8), b = add(a, set1(LANES * step));
    words sum_a = set1(0), sum_b = set1(0);
    for (; i + PAIR <= n; i += PAIR, a = add(a, next), b = add(b, next)) {
        sum_a = add(sum_a, fin(mix(a, load(at + i * (int64_t)size, size))));
        sum_b = add(sum_b, fin(mix(b, load(at + (i + LANES) * (int64_t)size, size))));
    }
    store(lanes, add(sum_a, sum_b));
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum + one_by_one(place + (uint64_t)i * step, step, at + i * (int64_t)size, size, n - i);
}
#endif

static uint64_t any_row(uint64_t place, uint64_t step, const void *data, size_t size, int64_t n)
{
    switch (size) {
    case 1:
        return row(place, step, data, 1, n);
    case 2:
        return row(place, step, data, 2, n);
    case 4:
        return row(place, step, data, 4, n);
    case 8:
        return row(place, step, data, 8, n);
    default:
        return 0;
    }
}

#if TPW_DIGEST_ISA == 0
tpw_digest_row_fn *tpw_digest_row_baseline(void)
{
    return any_row;
}
#elif TPW_DIGEST_ISA == 1
tpw_digest_row_fn *tpw_digest_row_avx2(void)
{
    return __builtin_cpu_supports("avx2") ? any_row : NULL;
}
#else
tpw_digest_row_fn *tpw_digest_row_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
               ? any_row
               : NULL;
}
#endif
