/* The command probe: a verified run against the same tokens one by one, from the same state, tensor by tensor.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_CMD_PROBE_H
#define TPW_CLI_CMD_PROBE_H

#include "cli/session.h"

/* How many tensors and hidden vectors one probe compares on all ranks. Pure. */
int64_t tpw_probe_count(const tpw_model_info *info, int ranks, int32_t k);

/* Collective over MPI_COMM_WORLD, which is initialised. *out is set in every case; ERR_DIVERGED when something differs, ERR_INTERNAL
 * when not as much was compared as there is. */
void tpw_cmd_probe(const tpw_values *values, tpw_outcome *out);

#endif
