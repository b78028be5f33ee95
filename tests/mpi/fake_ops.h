/* A backend without arithmetic: the next token is a hash of the current one and of its position. For tests of the scheduler.
 *
 * Element 0 of a row carries the token, element 1 the position that the batch gives it. Only for F32 compute, one rank, and
 * models whose first layer is a DeltaNet layer and that have no other. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_FAKE_OPS_H
#define TPW_TESTS_FAKE_OPS_H

#include "kernels/ops.h"

/* Every op of the table. Static storage. */
const tpw_ops *fake_ops(void);

/* The token behind `token` at absolute position `pos`, in [0, vocab), or -1: the logits held no number. Pure. */
int32_t fake_next(int32_t token, int64_t pos, int32_t vocab);

#endif
