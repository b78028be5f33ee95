/* The command run: prompts in, text out, on all ranks. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_CMD_RUN_H
#define TPW_CLI_CMD_RUN_H

#include "cli/session.h"

/* Collective over MPI_COMM_WORLD, which is initialised. *out is set in every case. */
void tpw_cmd_run(const tpw_values *values, tpw_outcome *out);

#endif
