/* The recurrent state at any committed position, put together for tests and dumps.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_HOST_DELTA_H
#define TPW_KERNELS_HOST_DELTA_H

#include <stdint.h>

#include "kernels/ops.h"

/* out[hv][dk][dv] = the state of `slot` after `pos` positions: P*S + fma-sum in order j of (E_j*k_j) u_j^T over
 * the rows since the last multiple of TPW_GRID, S itself when pos is one, zeros at pos 0. `pos` is the committed mark.
 * Local; reads only. ERR_ARGUMENT for a slot or position that cannot be. */
tpw_status tpw_gdn_materialize(const tpw_exec *exec, const tpw_gdn_state *state, int32_t slot, int64_t pos, float *out,
                               tpw_error *err) TPW_MUST_CHECK;

#endif
