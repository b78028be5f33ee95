/* A fault put into a run on purpose (--fault), so that one can see which check finds it. Reaches into the worker.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_FAULT_H
#define TPW_CLI_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "kernels/ops.h"
#include "tpworker/worker.h"

typedef enum tpw_fault_kind {
    TPW_FAULT_CONV,      /* state at rest, before the step */
    TPW_FAULT_RECURRENT, /* the same */
    TPW_FAULT_KV,        /* the same, in the sequence's first page */
    TPW_FAULT_HIDDEN,    /* the residual stream of one rank on its way into the layer */
    TPW_FAULT_PARTIAL    /* a partial sum of one rank at the end of the layer, before the all-reduce */
} tpw_fault_kind;

#define TPW_FAULT_BIT_TOP (-1) /* the highest bit of the mantissa, which no rounding hides */

/* One bit of one element (the first) flips once. Must not move while attached, and must outlive the worker. */
typedef struct tpw_fault {
    tpw_ops ops; /* first, so that an op finds its fault */
    const tpw_ops *inner;
    tpw_worker *worker;
    tpw_fault_kind kind;
    int64_t step;
    int32_t rank;
    int32_t layer;
    int32_t slot; /* 0: that of the sequence that runs longest */
    int32_t bit;
} tpw_fault;

/* "KIND@step=S,rank=R,layer=L[,slot=N][,bit=B]". ERR_ARGUMENT says what is wrong with it. Pure. */
tpw_status tpw_fault_parse(const char *spec, tpw_fault *out, tpw_error *err) TPW_MUST_CHECK;
/* After loading, on every rank; the same status on all. ERR_ARGUMENT when there is no such rank or layer. */
tpw_status tpw_fault_attach(tpw_fault *fault, tpw_worker *worker, tpw_error *err) TPW_MUST_CHECK;
/* Before every step, on every rank; the same status on all. ERR_ARGUMENT when the slot is empty. Nothing when not attached. */
tpw_status tpw_fault_before_step(tpw_fault *fault, tpw_error *err) TPW_MUST_CHECK;

#endif
