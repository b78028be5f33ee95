/* Exit codes of the command: one table from status to code. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_EXIT_H
#define TPW_CLI_EXIT_H

#include "tpworker/status.h"

/* The code of a status; 70 for a value outside the list. */
int tpw_exit_code(tpw_status status);

/* What a code says to a person or a job script, for --help; NULL for a code that the command never gives. Static storage. */
const char *tpw_exit_meaning(int code);

#endif
