/* The table of rotary cosines and sines, made once on the host and sent to every rank.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_ROPE_H
#define TPW_KERNELS_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Floats in the table: positions * rope_dim (a cosine and a sine for each of rope_dim/2 frequencies). False when that
 * or its byte count does not fit, or when positions < 0, rope_dim < 2 or rope_dim is odd. Pure. */
bool tpw_rope_count(int64_t positions, int32_t rope_dim, size_t *out);

/* table[pos][j] = (cos, sin) of the FP32 angle (float)pos * f_j, one rounding, with f_j = (float)theta^(-2j/rope_dim),
 * for pos < positions and j < rope_dim/2. Powers, cosines and sines are formed in double by the host's elementary
 * functions, so that every machine makes the same bytes. `table` holds tpw_rope_count floats. Local, pure.
 * ERR_ARGUMENT for a size that tpw_rope_count refuses, more than 10,000,000 positions or a theta that is not a
 * finite number of at least 1. */
tpw_status tpw_rope_fill(float *table, int64_t positions, int32_t rope_dim, double theta,
                         tpw_error *err) TPW_MUST_CHECK;

#endif
