/* The two fixed trees of sums that every backend shares: over the 32 lanes of a vector's piece, and over GEMM slices.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_TREE_H
#define TPW_KERNELS_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "base/device_code.h"

#define TPW_TREE_LANES 32
#define TPW_TREE_RUN   8 /* neighbouring terms that a lane takes, in order */
#define TPW_TREE_PIECE (TPW_TREE_LANES * TPW_TREE_RUN)
#define TPW_PARTS_MAX  8

/* The butterfly 16, 8, 4, 2, 1 over the sums of 32 lanes; addition commutes, so lane 0 has what every lane of an exchange
 * by xor would have. Destroys `lane`. */
static inline float tpw_tree_lanes(float *lane)
{
    for (int half = TPW_TREE_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* Whether `parts` slices make a whole tree: 1, 2, 4 or 8. */
static inline int tpw_parts_good(int32_t parts)
{
    return parts >= 1 && parts <= TPW_PARTS_MAX && (parts & (parts - 1)) == 0;
}

/* Element part[0] of each of `parts` slices, `step` elements apart, joined by the binary tree of slices.h. */
TPW_HD float tpw_tree_parts(const float *part, size_t step, int32_t parts)
{
    if (parts == 1)
        return part[0];
    if (parts == 2)
        return part[0] + part[step];
    float low = (part[0] + part[step]) + (part[2 * step] + part[3 * step]);
    if (parts == 4)
        return low;
    return low + ((part[4 * step] + part[5 * step]) + (part[6 * step] + part[7 * step]));
}

#endif
