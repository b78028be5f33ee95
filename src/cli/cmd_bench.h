/* The command bench: speed of every K and batch side by side, and whether all of them give the same state.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_CMD_BENCH_H
#define TPW_CLI_CMD_BENCH_H

#include "cli/session.h"

/* Collective over MPI_COMM_WORLD, which is initialised. *out is set in every case; ERR_DIVERGED when digests differ. */
void tpw_cmd_bench(const tpw_values *values, tpw_outcome *out);

#endif
