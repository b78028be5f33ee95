/* What is behind a host exec, and how an op takes planned scratch from it without allocating.
 *
 * Each op call starts from the whole scratch and takes aligned blocks from the front; nothing is given back and
 * nothing survives the call. An op must get by with TPW_HOST_SCRATCH_BYTES at every legal shape, cutting its work
 * into blocks of rows, and may use more when it is there. Contents are undefined at first.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_HOST_SCRATCH_H
#define TPW_KERNELS_HOST_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/checked.h"
#include "kernels/host/host.h"
#include "kernels/host/vec.h"

#define TPW_SCRATCH_ALIGN 64

typedef struct tpw_host {
    tpw_exec exec; /* exec.impl points back to this struct */
    const tpw_vec *vec;
    unsigned char *scratch; /* 256-byte aligned */
    size_t scratch_bytes;
    size_t bytes_now; /* of the device table; scratch is not counted */
    size_t bytes_peak;
} tpw_host;

typedef struct tpw_scratch {
    unsigned char *next;
    size_t left;
} tpw_scratch;

static inline const tpw_vec *tpw_host_vec(const tpw_exec *exec)
{
    return ((const tpw_host *)exec->impl)->vec;
}

static inline tpw_scratch tpw_scratch_begin(const tpw_exec *exec)
{
    const tpw_host *host = exec->impl;
    return (tpw_scratch){host->scratch, host->scratch_bytes};
}

/* `count` elements of `size` bytes, 64-byte aligned, or NULL when they do not fit (the scratch is then unchanged). */
static inline void *tpw_scratch_take(tpw_scratch *scratch, size_t count, size_t size)
{
    size_t bytes;
    if (!tpw_mul_size(count, size, &bytes) || !tpw_align_size(bytes, TPW_SCRATCH_ALIGN, &bytes) ||
        bytes > scratch->left)
        return NULL;
    void *block = scratch->next;
    scratch->next += bytes;
    scratch->left -= bytes;
    return block;
}

/* The same for F32, with the error of the op that asks. */
static inline tpw_status tpw_scratch_floats(tpw_scratch *scratch, size_t count, const char *op, float **out,
                                            tpw_error *err)
{
    *out = tpw_scratch_take(scratch, count, sizeof(float));
    if (*out)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_LIMIT, "%s: needs scratch for %zu floats, %zu bytes are left: reserve more", op, count,
                    scratch->left);
}

#endif
