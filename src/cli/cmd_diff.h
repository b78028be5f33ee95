/* The command diff: the first difference between two traces. Needs no launcher and no MPI. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_CMD_DIFF_H
#define TPW_CLI_CMD_DIFF_H

#include "cli/settings.h"

/* Prints to standard output, or to what --json says. ERR_DIVERGED when they differ, ERR_ARGUMENT when they cannot be compared or
 * have nothing in common, ERR_CHECKPOINT, ERR_MISSING, ERR_IO. Local. */
tpw_status tpw_cmd_diff(const tpw_values *values, const char *a, const char *b, tpw_error *err) TPW_MUST_CHECK;

#endif
