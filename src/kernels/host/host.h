/* The host backend: the reference that fills every op, and the embedded default without a GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_HOST_HOST_H
#define TPW_KERNELS_HOST_HOST_H

#include "kernels/ops.h"

#define TPW_HOST_SCRATCH_BYTES (8u << 20) /* scratch of a new exec: enough for every op at every legal shape */

/* Creates the host exec. `isa` is "baseline", "avx2", "avx512" or "auto"/NULL (the best that this CPU has); all give
 * the same bits. Scratch is set aside at creation, so that ops allocate nothing. One thread at a time may use an
 * exec. ERR_RESOURCE names an ISA that this CPU or build lacks; ERR_ARGUMENT an unknown one. */
tpw_status tpw_host_create(const char *isa, tpw_exec **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_host_destroy(tpw_exec *exec);          /* NULL allowed; blocks still allocated are the owner's to have freed */
const char *tpw_host_isa(const tpw_exec *exec); /* the one in use */

/* Grows the scratch to at least `bytes`; never shrinks it. For planning time: pointers into the old scratch die. Ops
 * cut their work to the scratch that there is, so this changes speed, never bits. ERR_MEMORY leaves the old scratch
 * in place. */
tpw_status tpw_host_reserve(tpw_exec *exec, size_t bytes, tpw_error *err) TPW_MUST_CHECK;

/* Bytes with which no op cuts a step of rows_max rows over vectors of cols_max elements into smaller blocks for want
 * of scratch: the larger of the default and rows_max x (cols_max + 8 x 128) F32 plus 1 MiB. SIZE_MAX when that
 * overflows. */
size_t tpw_host_scratch_bytes(int32_t rows_max, int32_t cols_max);

#endif
