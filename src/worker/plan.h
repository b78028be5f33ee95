/* What each rank will hold: the limits that follow from options and config, and the bytes that follow from them.
 *
 * All sizes are measured by the code that carves the real arenas, over the checkpoint's headers alone: no byte of a weight is read,
 * no memory of a device is touched, no rank is asked. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_PLAN_H
#define TPW_WORKER_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/partition.h"
#include "model/pass.h"
#include "model/state.h"
#include "tpworker/worker.h"

typedef struct tpw_plan_limits {
    int32_t context_max; /* positions of one sequence */
    const tpw_device *
        layout; /* whose layout the weights have: the CUDA backend's when options ask for it; NULL: plain rows, the host's */
    tpw_state_limits state;
    tpw_pass_limits pass;
} tpw_plan_limits;

/* Bytes of one rank. */
typedef struct tpw_plan {
    size_t weights; /* scales and the rotary table included */
    size_t kv;
    size_t state; /* recurrent, conv, the MTP module's kept outputs, padding */
    size_t workspace;
    size_t total;         /* of the four: device memory after load, and its peak */
    size_t gpu;           /* CUDA: scratch of the ops and buffers of the communicator, beside total; else 0 */
    size_t communication; /* host memory: what a step sends to the device and fetches from it. No part of total */
} tpw_plan;

/* Opens what valid options name: config and headers. *out is the caller's to close. Local; errors as of opening. */
tpw_status tpw_plan_open(const tpw_options *options, tpw_config *config, tpw_checkpoint **out,
                         tpw_error *err) TPW_MUST_CHECK;

/* The same on all ranks. ERR_LIMIT with the numbers: a longer context than the model has, or too many pages. Pure. */
tpw_status tpw_plan_limits_make(const tpw_options *options, const tpw_config *config, tpw_plan_limits *out,
                                tpw_error *err) TPW_MUST_CHECK;

/* Bytes of rank `rank` of `size`. Refusals of the partition (ERR_ARGUMENT, ERR_UNSUPPORTED) and of tensors that do not fit the config
 * (ERR_CHECKPOINT) as at load; ERR_ARGUMENT: drafts without MTP weights; ERR_LIMIT: sizes overflow. Local. */
tpw_status tpw_plan_make(const tpw_config *config, tpw_checkpoint *checkpoint, const tpw_plan_limits *limits, int rank,
                         int size, tpw_plan *out, tpw_error *err) TPW_MUST_CHECK;

#endif
