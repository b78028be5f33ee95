/* The metrics file: counters in Prometheus text, with vLLM's stems behind the prefix tpworker_. Rank 0's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_METRICS_H
#define TPW_CLI_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "tpworker/worker.h"

typedef struct tpw_metrics {
    tpw_stats stats;
    int32_t slots_total;
    int64_t finished[TPW_FINISH_ERROR + 1]; /* sequences, by tpw_finish */
    int size;
    const char *model; /* any bytes */
    const char *version;
} tpw_metrics;

/* The whole text in the exposition format 0.0.4: HELP and TYPE before each family, label rank="0". malloc'ed; NULL when there is
 * no memory. Pure. */
char *tpw_metrics_text(const tpw_metrics *metrics);

/* Puts text into the place of `path` in one move: a temporary file beside it, fsync, rename. A reader sees the old text or the new
 * one. ERR_IO names the file; then the temporary file is gone and the old text stands. ERR_IO also when `path` is something other
 * than a regular file, which a rename would replace. */
tpw_status tpw_metrics_replace(const char *path, const char *text, tpw_error *err) TPW_MUST_CHECK;

/* Zero-initialise, then set path; NULL: none is wanted. */
typedef struct tpw_metrics_file {
    const char *path;
    int64_t tried_ns;
    tpw_status status; /* of the last write */
    tpw_error error;
    bool warned; /* the caller's */
} tpw_metrics_file;

void tpw_metrics_file_write(tpw_metrics_file *file, const tpw_metrics *metrics);
/* Wanted, and the last try is 10 s ago? */
bool tpw_metrics_file_due(const tpw_metrics_file *file);

#endif
