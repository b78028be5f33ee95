/* One line of a trace: a fast reading of what we write, and a strict one of everything else. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_TRACE_LINE_H
#define TPW_CLI_TRACE_LINE_H

#include "cli/trace_file.h"

typedef enum tpw_trace_kind { TPW_TRACE_LINE_RECORD, TPW_TRACE_LINE_END } tpw_trace_kind;

/* The head. ERR_CHECKPOINT naming `where`; ERR_ARGUMENT for another schema or digest version. */
tpw_status tpw_trace_head_parse(const char *text, size_t bytes, const char *where, tpw_trace_head *out,
                                tpw_error *err) TPW_MUST_CHECK;

/* True when the line is a record in exactly the form that tpw_trace_record_line gives; sets entry (but for entry->ranks) and
 * ranks[rank_count]. Nothing else is an error: the strict reading decides. Pure. */
bool tpw_trace_line_scan(const char *text, size_t bytes, int32_t rank_count, tpw_trace_entry *entry, uint64_t *ranks);

/* The same and the last line from any JSON object: key order is free, unknown keys are passed over. */
tpw_status tpw_trace_line_parse(const char *text, size_t bytes, int32_t rank_count, const char *where,
                                tpw_trace_kind *kind, tpw_trace_entry *entry, uint64_t *ranks, int64_t *records,
                                tpw_error *err) TPW_MUST_CHECK;

#endif
