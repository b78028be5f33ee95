/* The settings of the command: one table names each one's flag, environment variable, configuration key, range, unit and
 * default, and the values remember where they came from. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_SETTINGS_H
#define TPW_CLI_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "tpworker/worker.h"

/* In the order of what wins: a later source replaces an earlier one. */
typedef enum tpw_source { TPW_SOURCE_DEFAULT, TPW_SOURCE_FILE, TPW_SOURCE_ENVIRONMENT, TPW_SOURCE_FLAG } tpw_source;

typedef enum tpw_setting_id {
    TPW_SETTING_MODEL,
    TPW_SETTING_DUMMY,
    TPW_SETTING_LAYERS,
    TPW_SETTING_VOCAB,
    TPW_SETTING_PROMPTS,
    TPW_SETTING_PROMPT,
    TPW_SETTING_MAX_TOKENS,
    TPW_SETTING_PROMPT_TOKENS,
    TPW_SETTING_REPEAT,
    TPW_SETTING_IGNORE_EOS,
    TPW_SETTING_BATCH,
    TPW_SETTING_ROWS,
    TPW_SETTING_CHUNK,
    TPW_SETTING_PAGE,
    TPW_SETTING_PAGES,
    TPW_SETTING_CONTEXT,
    TPW_SETTING_COMPUTE,
    TPW_SETTING_K,
    TPW_SETTING_TP,
    TPW_SETTING_MEMORY,
    TPW_SETTING_CHECK,
    TPW_SETTING_TRACE,
    TPW_SETTING_TRACE_EVERY,
    TPW_SETTING_EXPECT,
    TPW_SETTING_EXPECT_WEIGHTS,
    TPW_SETTING_SEQUENCES,
    TPW_SETTING_QUICK,
    TPW_SETTING_CELLS,
    TPW_SETTING_SEED,
    TPW_SETTING_JUNIT,
    TPW_SETTING_FAULT,
    TPW_SETTING_ISA,
    TPW_SETTING_BACKEND,
    TPW_SETTING_RANKS_PER_GPU,
    TPW_SETTING_BIND,
    TPW_SETTING_TIMEOUT,
    TPW_SETTING_JSON,
    TPW_SETTING_METRICS_FILE,
    TPW_SETTING_DIGESTS,
    TPW_SETTING_QUIET,
    TPW_SETTING_LOG_LEVEL,
    TPW_SETTING_LOG_PREFIX,
    TPW_SETTING_REPORT_DIR,
    TPW_SETTING_COUNT
} tpw_setting_id;

typedef enum tpw_setting_kind {
    TPW_KIND_TEXT,    /* char * */
    TPW_KIND_TEXTS,   /* tpw_texts: may be given several times */
    TPW_KIND_INT,     /* int64_t */
    TPW_KIND_INTS,    /* tpw_ints: separated by commas */
    TPW_KIND_SECONDS, /* double */
    TPW_KIND_BOOL,    /* bool */
    TPW_KIND_CHOICE   /* int, an index into choices */
} tpw_setting_kind;

typedef enum tpw_setting_group {
    TPW_GROUP_MODEL = 1,
    TPW_GROUP_TEXT,
    TPW_GROUP_WORKER,
    TPW_GROUP_BENCH,
    TPW_GROUP_PLAN,
    TPW_GROUP_EXACT,
    TPW_GROUP_OUTPUT,
    TPW_GROUP_TESTING
} tpw_setting_group;

typedef struct tpw_setting {
    const char *flag; /* "max-tokens"; the environment is TPWORKER_MAX_TOKENS, the key "max_tokens" */
    tpw_setting_kind kind;
    tpw_setting_group group;
    size_t offset; /* into tpw_values */
    int64_t low;   /* INT, INTS, SECONDS */
    int64_t high;
    const char *choices;  /* CHOICE: "f32|bf16" */
    const char *fallback; /* the default, as text; NULL: none */
    const char *argument; /* what help calls the value */
    const char *doc;      /* one sentence for help, with the unit */
} tpw_setting;

typedef struct tpw_texts {
    char **data;
    size_t count;
} tpw_texts;

/* Never empty once the defaults stand. */
#define TPW_INTS_MAX 16
typedef struct tpw_ints {
    int64_t data[TPW_INTS_MAX];
    int count;
} tpw_ints;

/* One item of --check. */
typedef struct tpw_check_mode {
    char name[12]; /* "step", "end", "off" or the number of steps, as it was given */
    tpw_check check;
    int32_t every;
} tpw_check_mode;

#define TPW_CHECKS_MAX 4
typedef struct tpw_check_modes {
    tpw_check_mode data[TPW_CHECKS_MAX];
    int count;
} tpw_check_modes;

typedef enum tpw_log_prefix { TPW_LOG_PREFIX_AUTO, TPW_LOG_PREFIX_NONE } tpw_log_prefix;

/* All values; strings are owned. */
typedef struct tpw_values {
    tpw_source source[TPW_SETTING_COUNT];
    char *config; /* the file that was read, or NULL */
    char *model;
    char *dummy;
    int64_t layers;
    int64_t vocab;
    char *prompts;
    tpw_texts prompt;
    int64_t max_tokens;
    int64_t prompt_tokens;
    int64_t repeat;
    bool ignore_eos;
    tpw_ints batch; /* `run` has one */
    int64_t rows;
    int64_t chunk;
    int64_t page;
    int64_t pages;
    int64_t context;
    int compute; /* tpw_compute */
    tpw_ints k;  /* `run` has one */
    int64_t tp;
    char *memory;
    char *check; /* "step", "end", "off" or a number of steps: tpw_values_check; bench has a list: tpw_values_checks */
    char *trace;
    int64_t trace_every;
    char *expect_weights;
    char *expect;
    int64_t sequences;
    bool quick;
    int64_t cells;
    int64_t seed;
    char *junit;
    char *fault;
    int isa;     /* index into its choices; 0 is "auto" */
    int backend; /* tpw_backend */
    int64_t ranks_per_gpu;
    int bind; /* tpw_binding_mode */
    double timeout;
    char *json;
    char *metrics_file;
    bool digests;
    bool quiet;
    int log_level;  /* tpw_log_level */
    int log_prefix; /* tpw_log_prefix */
    char *report_dir;
} tpw_values;

const tpw_setting *tpw_setting_get(tpw_setting_id id);

#define TPW_SETTING_NAME_MAX 64
/* "TPWORKER_MAX_TOKENS" and "max_tokens". */
void tpw_setting_env_name(tpw_setting_id id, char out[TPW_SETTING_NAME_MAX]);
void tpw_setting_key(tpw_setting_id id, char out[TPW_SETTING_NAME_MAX]);

/* Sets all defaults. Give back with tpw_values_fini, also after an error. */
tpw_status tpw_values_init(tpw_values *out, tpw_error *err) TPW_MUST_CHECK;
void tpw_values_fini(tpw_values *values);

/* Takes one value from text (flag, environment) or JSON (file). `where` is what messages call it. A source below the one that
 * is there is an internal error: callers go upwards. ERR_ARGUMENT names `where`, the range and what was found. */
tpw_status tpw_values_set_text(tpw_values *values, tpw_setting_id id, tpw_source source, const char *where,
                               const char *text, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_values_set_json(tpw_values *values, tpw_setting_id id, const char *where, const json_t *value,
                               tpw_error *err) TPW_MUST_CHECK;

/* What --check says, of a list its first. ERR_ARGUMENT names the setting and what it may be. */
tpw_status tpw_values_check(const tpw_values *values, tpw_check *check, int32_t *every, tpw_error *err) TPW_MUST_CHECK;
/* The whole list, in the order given; what stands there twice is there twice. */
tpw_status tpw_values_checks(const tpw_values *values, tpw_check_modes *out, tpw_error *err) TPW_MUST_CHECK;

/* The largest of a list. */
int64_t tpw_ints_max(const tpw_ints *list);

/* The text of a value as a flag would take it; "" for an unset one. *out is malloc'ed, the caller's to free; NULL when there is
 * no memory. */
char *tpw_values_show(const tpw_values *values, tpw_setting_id id);
/* The name of an ISA or another choice, as given by its index. */
void tpw_values_choice(const tpw_values *values, tpw_setting_id id, char *out, size_t bytes);

/* "name = value  (source)" lines for --print-config. */
void tpw_values_print(const tpw_values *values, FILE *out);

#endif
