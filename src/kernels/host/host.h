/* The host backend: the reference that fills every op, and the embedded default without a GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_HOST_HOST_H
#define TPW_KERNELS_HOST_HOST_H

#include "kernels/ops.h"

/* Creates the host exec. `isa` is "baseline", "avx2", "avx512" or "auto"/NULL (the best that this CPU has); all give the
 * same bits. scratch_bytes are set aside at creation, so that ops allocate nothing. ERR_RESOURCE names an ISA that
 * this CPU lacks; ERR_ARGUMENT an unknown one. */
tpw_status tpw_host_create(const char *isa, tpw_exec **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_host_destroy(tpw_exec *exec); /* NULL allowed */
const char *tpw_host_isa(const tpw_exec *exec); /* the one in use */

#endif
