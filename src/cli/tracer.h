/* The traced run: writes the records of --trace, compares them with those of --expect. Rank 0's, but for the callback, which all
 * ranks set. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_TRACER_H
#define TPW_CLI_TRACER_H

#include "cli/settings.h"
#include "cli/sink.h"
#include "cli/trace_file.h"

/* Zero-initialise with both sinks at fd -1: tpw_tracer_init. */
typedef struct tpw_tracer {
    const char *expect_path; /* NULL: nothing is expected */
    tpw_sink sink;           /* fd -1: nothing is written */
    tpw_trace_file expect;
    bool drafts; /* "mtp" has a twin there */
    int64_t records;
    int64_t compared;
    bool objected;
    tpw_trace_entry found;         /* what was not expected */
    const tpw_trace_entry *wanted; /* and what was */
    char ranks[64];                /* the ranks that differ, when their number is the same */
} tpw_tracer;

void tpw_tracer_init(tpw_tracer *out);
void tpw_tracer_fini(tpw_tracer *tracer);

/* Is a worker to be traced with these settings? The same on all ranks. */
bool tpw_tracer_wanted(const tpw_values *values);
/* Rank 0, before loading: reads the expected trace and opens the file. */
tpw_status tpw_tracer_open(tpw_tracer *tracer, const tpw_values *values, tpw_error *err) TPW_MUST_CHECK;
/* Rank 0, after loading. ERR_ARGUMENT when what is expected cannot be compared with a run of this head. Writes the head. */
tpw_status tpw_tracer_begin(tpw_tracer *tracer, const tpw_trace_head *head, tpw_error *err) TPW_MUST_CHECK;

/* A tpw_trace_function; data is the tpw_tracer. */
bool tpw_tracer_take(void *data, const tpw_trace_record *record);

/* Rank 0, at the end of a run that came to its end. ERR_ARGUMENT when nothing could be compared, ERR_IO when the file is not whole. */
tpw_status tpw_tracer_end(tpw_tracer *tracer, tpw_error *err) TPW_MUST_CHECK;
/* A line for people: how many were compared, and what differs. Nothing when nothing is expected. */
void tpw_tracer_say(const tpw_tracer *tracer, tpw_sink *people);

#endif
