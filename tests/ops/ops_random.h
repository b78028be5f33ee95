/* Fixed random numbers (SplitMix64) of the op tests and the GPU tests. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_OPS_RANDOM_H
#define TPW_TESTS_OPS_RANDOM_H

#include <stdint.h>

typedef struct ops_random {
    uint64_t state;
} ops_random;

static inline uint64_t ops_next(ops_random *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

/* Uniform in [-1, 1). */
static inline float ops_uniform(ops_random *r)
{
    return (float)((int32_t)(ops_next(r) >> 40) - (1 << 23)) * 0x1p-23f;
}

#endif
