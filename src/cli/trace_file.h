/* Trace files: recorded digests as JSON Lines, their head, and whether two of them can be compared.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_TRACE_FILE_H
#define TPW_CLI_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tpworker/worker.h"

#define TPW_TRACE_RANKS_MAX 8

/* Within a layer in the order of execution: what a scope shows can only come from those before it. */
typedef enum tpw_trace_scope {
    TPW_TRACE_CONV,
    TPW_TRACE_RECURRENT,
    TPW_TRACE_KV,
    TPW_TRACE_HIDDEN,
    TPW_TRACE_TOKENS, /* of no layer: behind all of them, since a new token is what comes out */
    TPW_TRACE_MTP,
    TPW_TRACE_SCOPES
} tpw_trace_scope;

const char *tpw_trace_scope_name(tpw_trace_scope scope);
bool tpw_trace_scope_find(const char *name, tpw_trace_scope *out);

/* The first line. */
typedef struct tpw_trace_head {
    int32_t ranks;
    int32_t k;
    char compute[8];       /* "bf16" or "f32" */
    char drafter[16];      /* "mtp", "none" */
    char model[256];       /* for people */
    uint64_t model_digest; /* of the configuration */
    int64_t prompts;
    uint64_t prompts_digest; /* of all prompt tokens */
} tpw_trace_head;

typedef struct tpw_trace_entry {
    uint64_t seq; /* index of the prompt */
    int64_t pos;
    int64_t step;
    uint64_t global;
    int32_t layer; /* -1: none */
    tpw_trace_scope scope;
    size_t ranks; /* first of head.ranks values in tpw_trace_file.ranks */
} tpw_trace_entry;

typedef struct tpw_trace_file {
    tpw_trace_head head;
    tpw_trace_entry *entry; /* [count], sorted by tpw_trace_order */
    size_t count;
    size_t capacity;
    uint64_t *ranks; /* [ranks_count] each rank's own value */
    size_t ranks_count;
    size_t ranks_capacity;
    bool finished; /* the last line is there: the run came to its end */
} tpw_trace_file;

/* Reads a whole trace and sorts it. ERR_MISSING, ERR_IO; ERR_CHECKPOINT with file and line for what is malformed or twice there;
 * ERR_ARGUMENT for a trace of another schema or digest version. Give back with fini, also after an error. */
tpw_status tpw_trace_read(const char *path, tpw_trace_file *out, tpw_error *err) TPW_MUST_CHECK;
void tpw_trace_file_fini(tpw_trace_file *file);

/* Sequence, position, layer, scope; scopes without a layer come last. */
int tpw_trace_order(const tpw_trace_entry *a, const tpw_trace_entry *b);
/* Where in the run an entry stands: position, layer, scope, then sequence. Of two differences the one that is less comes first. */
int tpw_trace_before(const tpw_trace_entry *a, const tpw_trace_entry *b);
/* The entry with the place of `key`, or NULL. */
const tpw_trace_entry *tpw_trace_find(const tpw_trace_file *file, const tpw_trace_entry *key);

/* ERR_ARGUMENT says why two traces have nothing to say to each other: compute type, model, prompts. Pure. */
tpw_status tpw_trace_comparable(const tpw_trace_head *a, const char *a_name, const tpw_trace_head *b,
                                const char *b_name, tpw_error *err) TPW_MUST_CHECK;
/* Is "mtp" the same thing in both? Pure. */
bool tpw_trace_same_drafts(const tpw_trace_head *a, const tpw_trace_head *b);

/* The lines of a trace, with their line breaks. The first gives malloc'ed text, NULL without memory; the second writes at most
 * TPW_TRACE_LINE_MAX bytes to `out` and returns their number. */
#define TPW_TRACE_LINE_MAX 1024
char *tpw_trace_head_line(const tpw_trace_head *head);
size_t tpw_trace_record_line(const tpw_trace_record *record, char out[TPW_TRACE_LINE_MAX]);

#endif
