/* Kernels that do nothing but read memory, or nothing at all: what the others are held against.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BENCH_READ_RATE_H
#define TPW_BENCH_READ_RATE_H

#include "kernels/ops.h"

#define BENCH_READ_UNIT 16384 /* reads are of whole units */

/* The designs of a reading kernel, best first. Short text for a table; NULL past the last. Static storage. */
const char *bench_read_design(int design);

/* Can the GPU of `exec` run the design? */
bool bench_read_possible(const tpw_exec *exec, int design);

/* Enqueues one read of `bytes` (a multiple of BENCH_READ_UNIT) at `data`, 16-byte aligned device memory that no kernel
 * ahead in the stream writes: reading starts before those have ended. Adds the sum of all 32-bit words to *sum, a
 * device word. ERR_ARGUMENT, ERR_UNSUPPORTED for a design that is not possible here, ERR_DEVICE. */
tpw_status bench_read(const tpw_exec *exec, int design, const void *data, size_t bytes, uint32_t *sum,
                      tpw_error *err) TPW_MUST_CHECK;

/* The same sum in the plainest way, after all kernels ahead. */
tpw_status bench_read_plainly(const tpw_exec *exec, const void *data, size_t bytes, uint32_t *sum,
                              tpw_error *err) TPW_MUST_CHECK;

/* Enqueues a kernel of `ctas` x `threads` that only adds 1 to counts[cta], device words. */
tpw_status bench_empty(const tpw_exec *exec, int32_t ctas, int32_t threads, uint32_t *counts,
                       tpw_error *err) TPW_MUST_CHECK;

#endif
