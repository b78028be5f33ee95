/* The command run: prompts in, text out, on all ranks. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_CMD_RUN_H
#define TPW_CLI_CMD_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/launcher.h"
#include "cli/settings.h"
#include "cli/sink.h"

/* How the command ended, for the one who leaves: the same status on all ranks unless `broken`. */
typedef struct tpw_outcome {
    tpw_status status;
    tpw_error error;
    bool broken; /* the ranks no longer move together: leave without MPI_Finalize */
    int rank;
    int size;
    int64_t step; /* steps done, -1 before the first */
    char host[64];
    char job[TPW_JOB_NAME_MAX];
    tpw_sink people; /* rank 0: may hold text that its reader has not taken yet; the caller drains and finishes them */
    tpw_sink json;
} tpw_outcome;

/* Collective over MPI_COMM_WORLD, which is initialised. *out is set in every case. */
void tpw_cmd_run(const tpw_values *values, tpw_outcome *out);

#endif
