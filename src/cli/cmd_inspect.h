/* The command inspect: what a checkpoint folder holds, and the digests of its tensors. One process, no MPI.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_CMD_INSPECT_H
#define TPW_CLI_CMD_INSPECT_H

#include <stdio.h>

#include "base/error.h"

/* `argv` is what follows the word inspect: CHECKPOINT [--digests FILE] [--json]. Writes the table, or one JSON line, to `out`;
 * progress of long work to standard error. ERR_ARGUMENT for a bad command line; else what opening and reading a checkpoint gives. */
tpw_status tpw_cmd_inspect(int argc, char **argv, FILE *out, tpw_error *err) TPW_MUST_CHECK;

#endif
