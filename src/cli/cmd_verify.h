/* The command verify: the same work cut in every way, here and now, and whether all of it is the same. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_CMD_VERIFY_H
#define TPW_CLI_CMD_VERIFY_H

#include "cli/session.h"

/* Collective over MPI_COMM_WORLD, which is initialised. *out is set in every case; ERR_DIVERGED when cells differ, ERR_INTERNAL when
 * nothing was compared. */
void tpw_cmd_verify(const tpw_values *values, tpw_outcome *out);

#endif
