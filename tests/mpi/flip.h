/* Single bit flips in the memory of a worker, chosen by a seed, the same choice on every rank.
 *
 * A choice looks at the rank's own tables, which are the same on all ranks; the flip itself is then made on one of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_FLIP_H
#define TPW_TESTS_FLIP_H

#include "small_run.h"
#include "worker/worker.h"

/* One element of live state at rest. */
typedef struct flip {
    const char *scope; /* "conv", "recurrent" or "kv" */
    int32_t layer;
    const tpw_sequence *sequence;
    void *data; /* of the array that the element is in */
    tpw_dtype dtype;
    int64_t index;
    int bit;
} flip;

/* A live element of a running sequence that has begun: S of its slot, rows since the last multiple of the grid, the inputs that the
 * convolution still reads, K and V of committed positions. False when no sequence has begun. */
bool flip_choose(const tpw_worker *worker, small_random *random, flip *out);
void flip_apply(const flip *f);

void flip_bit(void *data, tpw_dtype dtype, int64_t index, int bit);
int flip_bits(tpw_dtype dtype); /* bits of an element */

#endif
