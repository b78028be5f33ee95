/* A sequence's state on this rank, out to host memory and back: what a probe runs on and puts back untouched.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_STATE_COPY_H
#define TPW_MODEL_STATE_COPY_H

#include "model/state.h"

/* Bytes of one slot and `page_count` pages in every layer. False when they do not fit into a size_t. Pure. */
bool tpw_state_copy_bytes(const tpw_state *state, int32_t page_count, size_t *out);

/* Copies slot and pages to `host` / back. Local. */
tpw_status tpw_state_save(const tpw_state *state, int32_t slot, const int32_t *pages, int32_t page_count, void *host,
                          tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_state_restore(tpw_state *state, int32_t slot, const int32_t *pages, int32_t page_count, const void *host,
                             tpw_error *err) TPW_MUST_CHECK;

#endif
