/* The file that every rank of a failed job leaves behind, for when the launcher's exit code says too little.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_REPORT_H
#define TPW_CLI_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/launcher.h"
#include "tpworker/worker.h"

typedef struct tpw_report {
    char job[TPW_JOB_NAME_MAX];
    int rank;
    int size;
    const char *host;
    int64_t step; /* -1 before the first */
    tpw_status status;
    const char *text;
    const tpw_ring_entry *ring; /* [ring_count] the last exchanges of this rank, oldest first */
    int32_t ring_count;
} tpw_report;

/* Of one report, all lines together; exchanges that are too long ago stay out. */
#define TPW_REPORT_BYTES_MAX ((size_t)64 << 10)

/* Is this a failure that leaves reports: peer, divergence, device, internal? Pure. */
bool tpw_report_wanted(tpw_status status);

/* Must this rank say the error, or does rank 0? Another rank speaks when it waited for rank 0 in vain. Pure. */
bool tpw_report_speaks(int rank, tpw_status status, const char *text);

/* Appends a line and a line for each exchange to `folder`/tpworker.<job>.<rank>.jsonl with a single write. ERR_IO names the file. Local. */
tpw_status tpw_report_write(const char *folder, const tpw_report *report, tpw_error *err) TPW_MUST_CHECK;

#endif
