/* What two traces have to say to each other: counts by scope, and the first difference. No files, no ranks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_DIFF_H
#define TPW_CLI_DIFF_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/trace_file.h"

typedef struct tpw_diff_count {
    size_t compared;
    size_t unequal;
} tpw_diff_count;

/* Ranks of one trace that do not agree in a replicated scope. */
typedef struct tpw_diff_split {
    size_t records; /* that hold such a disagreement */
    const tpw_trace_entry *first;
} tpw_diff_split;

typedef struct tpw_diff {
    tpw_diff_count scope[TPW_TRACE_SCOPES];
    size_t compared;
    size_t unequal;
    size_t only_a; /* no twin: that position, sequence or scope was not recorded there */
    size_t only_b;
    size_t passed_over;             /* "mtp" of traces with other drafts */
    const tpw_trace_entry *first_a; /* the first difference, or NULL */
    const tpw_trace_entry *first_b;
    tpw_diff_split split_a;
    tpw_diff_split split_b;
} tpw_diff;

/* Both files are comparable and sorted, and outlive *out. Pure. */
void tpw_diff_make(const tpw_trace_file *a, const tpw_trace_file *b, tpw_diff *out);
/* Equal, as far as both go, and no rank apart from the others. */
bool tpw_diff_equal(const tpw_diff *diff);

/* Which ranks differ: those of a replicated scope in one trace from what most have; those of two traces with equally many
 * ranks from each other. "1, 3" into text; how many there are. Pure. */
int tpw_diff_ranks_apart(const tpw_trace_file *file, const tpw_trace_entry *entry, char *text, size_t bytes);
int tpw_diff_ranks_between(const tpw_trace_file *a, const tpw_trace_entry *entry_a, const tpw_trace_file *b,
                           const tpw_trace_entry *entry_b, char *text, size_t bytes);

/* "recurrent of layer 3", "tokens": what messages call an entry. */
void tpw_trace_entry_name(const tpw_trace_entry *entry, char *text, size_t bytes);

#endif
