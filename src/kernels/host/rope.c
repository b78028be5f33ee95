/* The table of rotary cosines and sines. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/rope.h"

#include <math.h>

#include "base/checked.h"
#include "kernels/elementary.h"

#define POSITIONS_MAX 10000000 /* as far as the reduction of tpw_sin_d is good; FP32 still tells positions apart */

bool tpw_rope_count(int64_t positions, int32_t rope_dim, size_t *out)
{
    size_t count, bytes;
    if (positions < 0 || rope_dim < 2 || rope_dim % 2 != 0)
        return false;
    if (!tpw_mul_size((size_t)positions, (size_t)rope_dim, &count) || !tpw_mul_size(count, sizeof(float), &bytes))
        return false;
    *out = count;
    return true;
}

tpw_status tpw_rope_fill(float *table, int64_t positions, int32_t rope_dim, double theta, tpw_error *err)
{
    size_t count;
    if (!tpw_rope_count(positions, rope_dim, &count) || positions > POSITIONS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "rope: a table of %lld positions by %d rotary dims cannot be made",
                        (long long)positions, rope_dim);
    if (!isfinite(theta) || theta < 1.0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "rope: theta %g must be a finite number of at least 1", theta);
    int32_t half = rope_dim / 2;
    for (int32_t j = 0; j < half; j++) {
        float frequency = (float)tpw_pow_d(theta, -2.0 * j / rope_dim);
        for (int64_t pos = 0; pos < positions; pos++) {
            double angle = (double)((float)pos * frequency);
            table[(pos * half + j) * 2] = (float)tpw_cos_d(angle);
            table[(pos * half + j) * 2 + 1] = (float)tpw_sin_d(angle);
        }
    }
    return TPW_OK;
}
