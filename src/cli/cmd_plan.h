/* The command plan: what each rank will hold, before anything is loaded. One process, no MPI. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_CMD_PLAN_H
#define TPW_CLI_CMD_PLAN_H

#include <stdint.h>

#include "cli/settings.h"

/* Prints to standard output, or to what --json says. Reads the config and the headers of the checkpoint, no weights. ERR_MEMORY with
 * the numbers when a rank does not fit into --memory or the smallest visible GPU (after the table); ERR_ARGUMENT, ERR_LIMIT,
 * ERR_UNSUPPORTED for what cannot be run or cut so; else what opening a checkpoint gives. Local. */
tpw_status tpw_cmd_plan(const tpw_values *values, tpw_error *err) TPW_MUST_CHECK;

/* "80GiB", "1.5TiB", "1000000": bytes. At most six places behind the point, and none without a unit. ERR_ARGUMENT. Pure. */
tpw_status tpw_memory_parse(const char *text, uint64_t *out, tpw_error *err) TPW_MUST_CHECK;

/* What one of `tp` ranks has of a GPU of `bytes` when `gpus` of them are there: the GPU's memory, divided by the ranks on it where they
 * must and may share (at most `ranks_per_gpu`). *sharers are those ranks, 1 where nothing is divided. Pure. */
uint64_t tpw_memory_share(uint64_t bytes, int64_t tp, int32_t gpus, int64_t ranks_per_gpu, int64_t *sharers);

#endif
