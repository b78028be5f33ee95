/* An exec that runs every op on another one and notes a digest of each output row: how a probe finds the first operation whose
 * output differs. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_GRAPH_OP_TRACE_H
#define TPW_GRAPH_OP_TRACE_H

#include "kernels/ops.h"

/* One call. Its digests are row[first .. first + rows). */
typedef struct tpw_op_call {
    const char *op;
    int32_t layer; /* what the caller set before it */
    int32_t rows;
    size_t first;
} tpw_op_call;

typedef struct tpw_op_trace {
    tpw_exec exec;         /* hand this one out */
    tpw_device device;     /* of exec: memory and weight layout are the inner one's */
    const tpw_exec *inner; /* borrowed */
    int32_t layer;         /* set by the caller between calls */
    tpw_op_call *call;
    size_t calls;
    size_t calls_max;
    uint64_t *row;
    size_t rows;
    size_t rows_max;
} tpw_op_trace;

/* `out` must not move afterwards: its exec points to it. Local. */
void tpw_op_trace_init(tpw_op_trace *out, const tpw_exec *inner);
void tpw_op_trace_fini(tpw_op_trace *trace);
void tpw_op_trace_clear(tpw_op_trace *trace); /* keeps the memory */

#endif
