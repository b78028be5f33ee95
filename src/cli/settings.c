/* The table of settings, and how a value is read from text or JSON, shown, and traced to its source.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/settings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "tp/place.h"

#define SHOWN_MAX     40   /* bytes of a refused value that an error repeats */
#define CHOICE_MAX    32   /* bytes of one word of a choice */
#define PROMPTS_LIMIT 4096 /* prompts given one by one; more belong into a file */
#define AT(field)     offsetof(tpw_values, field)

static const tpw_setting table[TPW_SETTING_COUNT] = {
    [TPW_SETTING_MODEL] = {"model", TPW_KIND_TEXT, TPW_GROUP_MODEL, AT(model), 0, 0, NULL, NULL, "DIR",
                           "Hugging Face folder: config.json, safetensors, tokenizer.json. Default: the pocket model"},
    [TPW_SETTING_DUMMY] = {"dummy", TPW_KIND_TEXT, TPW_GROUP_MODEL, AT(dummy), 0, 0, NULL, NULL, "NAME",
                           "No files: hashed weights of the shape qwen3.5-0.8b, -4b, -9b or -27b"},
    [TPW_SETTING_LAYERS] = {"layers", TPW_KIND_INT, TPW_GROUP_MODEL, AT(layers), 0, 1024, NULL, "0", "N",
                            "Layers of the dummy; 0: as published"},
    [TPW_SETTING_VOCAB] = {"vocab", TPW_KIND_INT, TPW_GROUP_MODEL, AT(vocab), 0, 1 << 24, NULL, "0", "V",
                           "Vocabulary of the dummy, tokens; 0: as published"},
    [TPW_SETTING_PROMPTS] = {"prompts", TPW_KIND_TEXT, TPW_GROUP_TEXT, AT(prompts), 0, 0, NULL, NULL, "FILE",
                             "JSON Lines, one prompt a line: {\"id\", \"text\" or \"ids\", \"max_tokens\"}"},
    [TPW_SETTING_PROMPT] = {"prompt", TPW_KIND_TEXTS, TPW_GROUP_TEXT, AT(prompt), 0, 0, NULL, NULL, "TEXT",
                            "A prompt; may be repeated. Default: a few built-in openings"},
    [TPW_SETTING_MAX_TOKENS] = {"max-tokens", TPW_KIND_INT, TPW_GROUP_TEXT, AT(max_tokens), 1, 1 << 24, NULL, "128",
                                "N",
                                "Output tokens of a prompt that does not say; 64 for the built-in ones and for bench"},
    [TPW_SETTING_PROMPT_TOKENS] = {"prompt-tokens", TPW_KIND_INT, TPW_GROUP_BENCH, AT(prompt_tokens), 1, 1 << 24, NULL,
                                   "32", "N", "Prompt tokens of every sequence"},
    [TPW_SETTING_REPEAT] = {"repeat", TPW_KIND_INT, TPW_GROUP_BENCH, AT(repeat), 1, 1000, NULL, "3", "R",
                            "bench: runs of every cell, of which the median is shown; probe: probes of every sequence"},
    [TPW_SETTING_IGNORE_EOS] = {"ignore-eos", TPW_KIND_BOOL, TPW_GROUP_TEXT, AT(ignore_eos), 0, 0, NULL, "no", "BOOL",
                                "Go on past end tokens"},
    [TPW_SETTING_BATCH] = {"batch", TPW_KIND_INTS, TPW_GROUP_WORKER, AT(batch), 1, 4096, NULL, "8", "N",
                           "Sequences at once; bench takes a list, 1,4,16 by itself"},
    [TPW_SETTING_ROWS] = {"rows", TPW_KIND_INT, TPW_GROUP_WORKER, AT(rows), 1, 65536, NULL, "256", "N",
                          "Rows of one step, tokens; at least --batch times K + 1, and raised to that by itself"},
    [TPW_SETTING_CHUNK] = {"chunk", TPW_KIND_INT, TPW_GROUP_WORKER, AT(chunk), 1, 65536, NULL, "256", "N",
                           "Most prompt rows of one sequence in one step, tokens"},
    [TPW_SETTING_PAGE] = {"page", TPW_KIND_INT, TPW_GROUP_WORKER, AT(page), 1, 256, NULL, "64", "N",
                          "KV positions of a page, a power of two"},
    [TPW_SETTING_PAGES] = {"pages", TPW_KIND_INT, TPW_GROUP_WORKER, AT(pages), 0, INT32_MAX - 1, NULL, "0", "N",
                           "KV pages in all; 0: enough for --batch sequences of --context"},
    [TPW_SETTING_CONTEXT] = {"context", TPW_KIND_INT, TPW_GROUP_WORKER, AT(context), 0, 1 << 24, NULL, "0", "N",
                             "Positions of one sequence, prompt and output; 0: the model's limit, at most 4096"},
    [TPW_SETTING_COMPUTE] = {"compute", TPW_KIND_CHOICE, TPW_GROUP_WORKER, AT(compute), 0, 0, "bf16|f32", "bf16",
                             "TYPE", "Type of activations and KV: bf16 or f32"},
    [TPW_SETTING_K] = {"k", TPW_KIND_INTS, TPW_GROUP_WORKER, AT(k), 0, TPW_K_MAX, NULL, "0", "K",
                       "Tokens drafted and verified in a step beside the certain one: more speed, the same text. Needs "
                       "a checkpoint with MTP weights. 2 when neither model, prompts nor K are given; bench takes a "
                       "list, 0,1,2,3,4 by itself"},
    [TPW_SETTING_TP] = {"tp", TPW_KIND_INT, TPW_GROUP_PLAN, AT(tp), 1, 8, NULL, "1", "N",
                        "plan: ranks that share the model: 1, 2, 4 or 8"},
    [TPW_SETTING_MEMORY] =
        {"memory", TPW_KIND_TEXT, TPW_GROUP_PLAN, AT(memory), 0, 0, NULL, NULL, "SIZE",
         "plan: what a rank may take, bytes or with KiB, MiB, GiB or TiB behind the number. Default: "
         "all of the smallest GPU that is visible, if there is one"},
    [TPW_SETTING_CHECK] = {"check", TPW_KIND_TEXT, TPW_GROUP_EXACT, AT(check), 0, 0, NULL, "step", "WHEN",
                           "step: what all ranks hold alike is compared every step, state at rest every 64; a number "
                           "N: state at rest every N steps; end: at a sequence's end only; off. bench takes a list "
                           "(off,step) and says what each costs; step by itself"},
    [TPW_SETTING_TRACE] = {"trace", TPW_KIND_TEXT, TPW_GROUP_EXACT, AT(trace), 0, 0, NULL, NULL, "FILE",
                           "run: record the digest of every scope as JSON Lines"},
    [TPW_SETTING_TRACE_EVERY] = {"trace-every", TPW_KIND_INT, TPW_GROUP_EXACT, AT(trace_every), 1, INT32_MAX, NULL, "1",
                                 "N", "Steps from one traced step to the next"},
    [TPW_SETTING_EXPECT_WEIGHTS] = {"expect-weights", TPW_KIND_TEXT, TPW_GROUP_EXACT, AT(expect_weights), 0, 0, NULL,
                                    NULL, "FILE",
                                    "Digest every tensor while loading and hold it against what tpworker inspect "
                                    "--digests wrote: exit 71 at a difference"},
    [TPW_SETTING_EXPECT] = {"expect", TPW_KIND_TEXT, TPW_GROUP_EXACT, AT(expect), 0, 0, NULL, NULL, "TRACE",
                            "run: end with 71 at the first digest that is not what this trace recorded"},
    [TPW_SETTING_SEQUENCES] = {"sequences", TPW_KIND_INT, TPW_GROUP_EXACT, AT(sequences), 1, 256, NULL, "3", "N",
                               "probe: sequences with different histories"},
    [TPW_SETTING_QUICK] = {"quick", TPW_KIND_BOOL, TPW_GROUP_EXACT, AT(quick), 0, 0, NULL, "no", "BOOL",
                           "verify: one setting changed at a time and a few pairs, no random cells"},
    [TPW_SETTING_CELLS] = {"cells", TPW_KIND_INT, TPW_GROUP_EXACT, AT(cells), 0, 10000, NULL, "24", "N",
                           "verify: random cells beside those of --quick"},
    [TPW_SETTING_SEED] = {"seed", TPW_KIND_INT, TPW_GROUP_EXACT, AT(seed), 0, INT64_MAX, NULL, "1", "S",
                          "verify: which random cells"},
    [TPW_SETTING_JUNIT] = {"junit", TPW_KIND_TEXT, TPW_GROUP_EXACT, AT(junit), 0, 0, NULL, NULL, "FILE",
                           "verify: write the cells as test cases in JUnit's XML, too"},
    [TPW_SETTING_FAULT] = {"fault", TPW_KIND_TEXT, TPW_GROUP_TESTING, AT(fault), 0, 0, NULL, NULL, "SPEC",
                           "Damage the run to see what finds it: KIND@step=S,rank=R,layer=L[,slot=N][,bit=B] with the "
                           "kinds conv, recurrent, kv (state at rest), hidden (residual stream), partial (a sum before "
                           "its all-reduce)"},
    [TPW_SETTING_ISA] = {"isa", TPW_KIND_CHOICE, TPW_GROUP_WORKER, AT(isa), 0, 0, "auto|baseline|avx2|avx512", "auto",
                         "NAME", "Host instructions: auto, baseline, avx2 or avx512 (the results are the same)"},
    [TPW_SETTING_BACKEND] = {"backend", TPW_KIND_CHOICE, TPW_GROUP_WORKER, AT(backend), 0, 0, "host|cuda|auto", "auto",
                             "WHERE",
                             "Where the model runs: host, cuda (one GPU a rank, see --ranks-per-gpu; bf16 only), or "
                             "auto (GPUs if every rank gets "
                             "one, else host)"},
    [TPW_SETTING_RANKS_PER_GPU] =
        {"ranks-per-gpu", TPW_KIND_INT, TPW_GROUP_WORKER, AT(ranks_per_gpu), 1, TPW_RANKS_PER_GPU_MAX, NULL, "1", "N",
         "Ranks that may share a GPU, to try a size with fewer GPUs: the same bits, slowly (each rank gets its own "
         "NCCL_HOSTID, unless the environment has one, so sums take NCCL's way between hosts). plan: divides a GPU's "
         "memory"},
    [TPW_SETTING_BIND] = {"bind", TPW_KIND_CHOICE, TPW_GROUP_WORKER, AT(bind), 0, 0, "none|auto|strict", "auto", "MODE",
                          "CPU binding of each rank: none, auto or strict"},
    [TPW_SETTING_TIMEOUT] = {"timeout", TPW_KIND_SECONDS, TPW_GROUP_WORKER, AT(timeout), 0, 86400, NULL, "30",
                             "SECONDS", "Deadline of every wait for another rank"},
    [TPW_SETTING_JSON] = {"json", TPW_KIND_TEXT, TPW_GROUP_OUTPUT, AT(json), 0, 0, NULL, NULL, "FILE",
                          "Write JSON Lines; - is standard output, and text for people then goes to standard error"},
    [TPW_SETTING_METRICS_FILE] = {"metrics-file", TPW_KIND_TEXT, TPW_GROUP_OUTPUT, AT(metrics_file), 0, 0, NULL, NULL,
                                  "FILE", "Keep counters there in Prometheus text, renewed every 10 s"},
    [TPW_SETTING_DIGESTS] = {"digests", TPW_KIND_BOOL, TPW_GROUP_OUTPUT, AT(digests), 0, 0, NULL, "no", "BOOL",
                             "Put the digest of every state scope into the JSON result lines"},
    [TPW_SETTING_QUIET] = {"quiet", TPW_KIND_BOOL, TPW_GROUP_OUTPUT, AT(quiet), 0, 0, NULL, "no", "BOOL",
                           "Only the generated text; with --json only errors"},
    [TPW_SETTING_LOG_LEVEL] = {"log-level", TPW_KIND_CHOICE, TPW_GROUP_OUTPUT, AT(log_level), 0, 0,
                               "error|warn|info|debug", "warn", "LEVEL",
                               "Log lines on standard error: error, warn, info or debug"},
    [TPW_SETTING_LOG_PREFIX] = {"log-prefix", TPW_KIND_CHOICE, TPW_GROUP_OUTPUT, AT(log_prefix), 0, 0, "auto|none",
                                "auto", "MODE", "Rank and host before log lines: auto (with several ranks) or none"},
    [TPW_SETTING_REPORT_DIR] = {"report-dir", TPW_KIND_TEXT, TPW_GROUP_OUTPUT, AT(report_dir), 0, 0, NULL, ".", "DIR",
                                "Folder of the reports tpworker.<job>.<rank>.jsonl that failed jobs leave"},
};

/* The order of the words is the order of the enums that they stand for. */
_Static_assert(TPW_BACKEND_HOST == 0 && TPW_BACKEND_CUDA == 1 && TPW_BACKEND_AUTO == 2, "host|cuda|auto");
_Static_assert(TPW_COMPUTE_BF16 == 0 && TPW_COMPUTE_F32 == 1, "bf16|f32");
_Static_assert(TPW_BINDING_NONE == 0 && TPW_BINDING_AUTO == 1 && TPW_BINDING_STRICT == 2, "none|auto|strict");
_Static_assert(TPW_LOG_ERROR == 0 && TPW_LOG_WARN == 1 && TPW_LOG_INFO == 2 && TPW_LOG_DEBUG == 3, "log levels");

const tpw_setting *tpw_setting_get(tpw_setting_id id)
{
    return &table[id];
}

void tpw_setting_key(tpw_setting_id id, char out[TPW_SETTING_NAME_MAX])
{
    snprintf(out, TPW_SETTING_NAME_MAX, "%s", table[id].flag);
    for (char *at = out; *at != '\0'; at++)
        if (*at == '-')
            *at = '_';
}

void tpw_setting_env_name(tpw_setting_id id, char out[TPW_SETTING_NAME_MAX])
{
    char key[TPW_SETTING_NAME_MAX];
    tpw_setting_key(id, key);
    snprintf(out, TPW_SETTING_NAME_MAX, "TPWORKER_%.40s", key);
    for (char *at = out; *at != '\0'; at++)
        *at = (char)toupper((unsigned char)*at);
}

static void *field(tpw_values *values, tpw_setting_id id)
{
    return (char *)values + table[id].offset;
}

static const void *field_const(const tpw_values *values, tpw_setting_id id)
{
    return (const char *)values + table[id].offset;
}

static void texts_clear(tpw_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        free(texts->data[i]);
    free(texts->data);
    *texts = (tpw_texts){0};
}

void tpw_values_fini(tpw_values *values)
{
    for (int id = 0; id < TPW_SETTING_COUNT; id++) {
        if (table[id].kind == TPW_KIND_TEXT)
            free(*(char **)field(values, (tpw_setting_id)id));
        else if (table[id].kind == TPW_KIND_TEXTS)
            texts_clear(field(values, (tpw_setting_id)id));
    }
    free(values->config);
    *values = (tpw_values){0};
}

static tpw_status refuse(tpw_setting_id id, const char *where, const char *text, tpw_error *err)
{
    const tpw_setting *s = &table[id];
    char wanted[96];
    if (s->kind == TPW_KIND_INT)
        snprintf(wanted, sizeof wanted, "an integer in %lld..%lld", (long long)s->low, (long long)s->high);
    else if (s->kind == TPW_KIND_INTS)
        snprintf(wanted, sizeof wanted, "an integer in %lld..%lld or up to %d of them with commas between",
                 (long long)s->low, (long long)s->high, TPW_INTS_MAX);
    else if (s->kind == TPW_KIND_SECONDS)
        snprintf(wanted, sizeof wanted, "a number of seconds in 0.001..%lld", (long long)s->high);
    else if (s->kind == TPW_KIND_BOOL)
        snprintf(wanted, sizeof wanted, "yes or no");
    else if (s->kind == TPW_KIND_CHOICE)
        snprintf(wanted, sizeof wanted, "one of %s", s->choices);
    else
        snprintf(wanted, sizeof wanted, "a text that is not empty");
    size_t length = strlen(text);
    size_t shown = length <= SHOWN_MAX ? length : tpw_text_cut(text, SHOWN_MAX);
    return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: must be %s, found \"%.*s%s\"", where, wanted, (int)shown, text,
                    shown < length ? "..." : "");
}

static bool parse_int(const char *text, int64_t *out)
{
    if (!isdigit((unsigned char)text[0]) && text[0] != '-')
        return false; /* strtoll would take blanks and '+' */
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text)
        return false;
    *out = number;
    return true;
}

/* "0,1,4": no blanks, nothing empty. */
static bool parse_ints(const tpw_setting *s, const char *text, tpw_ints *out)
{
    tpw_ints list = {0};
    for (const char *at = text;; at++) {
        char item[24];
        size_t length = strcspn(at, ",");
        if (list.count == TPW_INTS_MAX || length >= sizeof item)
            return false;
        snprintf(item, sizeof item, "%.*s", (int)length, at);
        if (!parse_int(item, &list.data[list.count]) || list.data[list.count] < s->low ||
            list.data[list.count] > s->high)
            return false;
        list.count++;
        at += length;
        if (*at == '\0')
            break;
    }
    *out = list;
    return true;
}

static bool parse_seconds(const char *text, double *out)
{
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return false;
    if (strspn(text, "0123456789.eE+-") != strlen(text))
        return false; /* neither hexadecimal nor "1inf" */
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (errno != 0 || *end != '\0' || end == text)
        return false;
    *out = number;
    return true;
}

static bool seconds_ok(tpw_setting_id id, double seconds)
{
    return isfinite(seconds) && seconds >= 0.001 && seconds <= (double)table[id].high;
}

static bool parse_bool(const char *text, bool *out)
{
    static const char *const words[] = {"no", "yes", "false", "true", "0", "1", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    }
    return false;
}

/* The index-th word of "a|b|c" into `word`; false past the last. */
static bool choice_word(const char *choices, int index, char *word, size_t bytes)
{
    const char *at = choices;
    for (int i = 0; i < index; i++) {
        at = strchr(at, '|');
        if (!at)
            return false;
        at++;
    }
    size_t length = strcspn(at, "|");
    snprintf(word, bytes, "%.*s", (int)length, at);
    return true;
}

static bool parse_choice(const char *choices, const char *text, int *out)
{
    char word[CHOICE_MAX];
    for (int i = 0; choice_word(choices, i, word, sizeof word); i++) {
        if (strcmp(word, text) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static tpw_status set_string(char **to, const char *text, tpw_error *err)
{
    char *copy = strdup(text);
    if (!copy)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the settings");
    free(*to);
    *to = copy;
    return TPW_OK;
}

static tpw_status texts_add(tpw_texts *texts, const char *where, const char *text, tpw_error *err)
{
    if (texts->count >= PROMPTS_LIMIT)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: more than %d texts; put them into a file", where, PROMPTS_LIMIT);
    char **grown = realloc(texts->data, (texts->count + 1) * sizeof *grown);
    if (!grown)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the settings");
    texts->data = grown;
    grown[texts->count] = strdup(text);
    if (!grown[texts->count])
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the settings");
    texts->count++;
    return TPW_OK;
}

/* A list grows within one source and starts anew with a higher one. */
static tpw_status source_rises(tpw_values *values, tpw_setting_id id, tpw_source source, const char *where,
                               tpw_error *err)
{
    if (source < values->source[id])
        return tpw_fail(err, TPW_ERR_INTERNAL, "%s: settings were read in the wrong order", where);
    if (source > values->source[id] && table[id].kind == TPW_KIND_TEXTS)
        texts_clear(field(values, id));
    return TPW_OK;
}

tpw_status tpw_values_set_text(tpw_values *values, tpw_setting_id id, tpw_source source, const char *where,
                               const char *text, tpw_error *err)
{
    const tpw_setting *s = &table[id];
    void *to = field(values, id);
    int64_t number = 0;
    double seconds = 0;
    bool yes = false;
    TPW_TRY(source_rises(values, id, source, where, err));
    switch (s->kind) {
    case TPW_KIND_TEXT:
        if (text[0] == '\0')
            return refuse(id, where, text, err);
        TPW_TRY(set_string(to, text, err));
        break;
    case TPW_KIND_TEXTS:
        if (text[0] == '\0')
            return refuse(id, where, text, err);
        TPW_TRY(texts_add(to, where, text, err));
        break;
    case TPW_KIND_INT:
        if (!parse_int(text, &number) || number < s->low || number > s->high)
            return refuse(id, where, text, err);
        *(int64_t *)to = number;
        break;
    case TPW_KIND_INTS:
        if (!parse_ints(s, text, to))
            return refuse(id, where, text, err);
        break;
    case TPW_KIND_SECONDS:
        if (!parse_seconds(text, &seconds) || !seconds_ok(id, seconds))
            return refuse(id, where, text, err);
        *(double *)to = seconds;
        break;
    case TPW_KIND_BOOL:
        if (!parse_bool(text, &yes))
            return refuse(id, where, text, err);
        *(bool *)to = yes;
        break;
    case TPW_KIND_CHOICE:
        if (!parse_choice(s->choices, text, to))
            return refuse(id, where, text, err);
        break;
    }
    values->source[id] = source;
    return TPW_OK;
}

/* A list of integers as the flag would take it; false when it is none or too long. */
static bool ints_text(const json_t *value, char *out, size_t bytes)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_integer(item) || at >= bytes)
            return false;
        at += (size_t)snprintf(out + at, bytes - at, "%s%lld", i > 0 ? "," : "", (long long)json_integer_value(item));
    }
    return at > 0 && at < bytes;
}

/* Numbers and truth values keep their JSON type; texts may be a list where a flag may be repeated. */
tpw_status tpw_values_set_json(tpw_values *values, tpw_setting_id id, const char *where, const json_t *value,
                               tpw_error *err)
{
    const tpw_setting *s = &table[id];
    char text[TPW_INTS_MAX * 22] = "";
    bool fits = false;
    if (s->kind == TPW_KIND_TEXTS && json_is_array(value)) {
        if (json_array_size(value) == 0)
            return refuse(id, where, "[]", err);
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *item = json_array_get(value, i);
            if (!json_is_string(item))
                return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: item %zu must be a string", where, i);
            TPW_TRY(tpw_values_set_text(values, id, TPW_SOURCE_FILE, where, json_string_value(item), err));
        }
        return TPW_OK;
    }
    if (s->kind == TPW_KIND_TEXT || s->kind == TPW_KIND_TEXTS || s->kind == TPW_KIND_CHOICE) {
        if (json_is_string(value))
            return tpw_values_set_text(values, id, TPW_SOURCE_FILE, where, json_string_value(value), err);
    } else if (s->kind == TPW_KIND_BOOL && json_is_boolean(value)) {
        return tpw_values_set_text(values, id, TPW_SOURCE_FILE, where, json_is_true(value) ? "yes" : "no", err);
    } else if (json_is_integer(value)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        fits = s->kind == TPW_KIND_INT || s->kind == TPW_KIND_INTS || s->kind == TPW_KIND_SECONDS;
    } else if (s->kind == TPW_KIND_INTS && json_is_array(value)) {
        fits = ints_text(value, text, sizeof text);
        if (!fits)
            return refuse(id, where, "another list", err);
    } else if (json_is_real(value)) {
        snprintf(text, sizeof text, "%.17g", json_real_value(value));
        fits = s->kind == TPW_KIND_SECONDS;
    }
    if (fits)
        return tpw_values_set_text(values, id, TPW_SOURCE_FILE, where, text, err);
    if (text[0] == '\0')
        snprintf(text, sizeof text, "%.30s", json_is_string(value) ? json_string_value(value) : "another JSON type");
    return refuse(id, where, text, err);
}

tpw_status tpw_values_init(tpw_values *out, tpw_error *err)
{
    *out = (tpw_values){0};
    for (int id = 0; id < TPW_SETTING_COUNT; id++)
        if (table[id].fallback)
            TPW_TRY(tpw_values_set_text(out, (tpw_setting_id)id, TPW_SOURCE_DEFAULT, table[id].flag, table[id].fallback,
                                        err));
    return TPW_OK;
}

/* "step", "end", "off", "16". */
static bool parse_check(const char *text, tpw_check_mode *out)
{
    static const char *const words[] = {[TPW_CHECK_STEP] = "step", [TPW_CHECK_END] = "end", [TPW_CHECK_OFF] = "off"};
    tpw_options defaults;
    int64_t number;
    tpw_options_init(&defaults);
    *out = (tpw_check_mode){.check = TPW_CHECK_STEP, .every = defaults.check_every};
    snprintf(out->name, sizeof out->name, "%s", text);
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, words[i]) == 0) {
            out->check = (tpw_check)i;
            return true;
        }
    }
    if (!parse_int(text, &number) || number < 1 || number > INT32_MAX)
        return false;
    out->every = (int32_t)number;
    return true;
}

static tpw_status refuse_check(const tpw_values *values, tpw_error *err)
{
    return tpw_fail(err, TPW_ERR_ARGUMENT,
                    "--check: must be step, end, off or a number of steps (bench: up to %d of them with commas "
                    "between), found \"%.40s\"",
                    TPW_CHECKS_MAX, values->check);
}

tpw_status tpw_values_checks(const tpw_values *values, tpw_check_modes *out, tpw_error *err)
{
    *out = (tpw_check_modes){0};
    for (const char *at = values->check;; at++) {
        char item[sizeof out->data[0].name];
        size_t length = strcspn(at, ",");
        if (out->count == TPW_CHECKS_MAX || length >= sizeof item)
            return refuse_check(values, err);
        snprintf(item, sizeof item, "%.*s", (int)length, at);
        if (!parse_check(item, &out->data[out->count++]))
            return refuse_check(values, err);
        at += length;
        if (*at == '\0')
            return TPW_OK;
    }
}

tpw_status tpw_values_check(const tpw_values *values, tpw_check *check, int32_t *every, tpw_error *err)
{
    tpw_check_modes modes;
    TPW_TRY(tpw_values_checks(values, &modes, err));
    *check = modes.data[0].check;
    *every = modes.data[0].every;
    return TPW_OK;
}

int64_t tpw_ints_max(const tpw_ints *list)
{
    int64_t most = list->data[0];
    for (int i = 1; i < list->count; i++)
        most = list->data[i] > most ? list->data[i] : most;
    return most;
}

void tpw_values_choice(const tpw_values *values, tpw_setting_id id, char *out, size_t bytes)
{
    if (!choice_word(table[id].choices, *(const int *)field_const(values, id), out, bytes))
        snprintf(out, bytes, "?");
}

char *tpw_values_show(const tpw_values *values, tpw_setting_id id)
{
    const void *from = field_const(values, id);
    char text[TPW_INTS_MAX * 22] = "";
    switch (table[id].kind) {
    case TPW_KIND_TEXT: {
        const char *string = *(char *const *)from;
        return strdup(string ? string : "");
    }
    case TPW_KIND_TEXTS: {
        const tpw_texts *texts = from;
        snprintf(text, sizeof text, texts->count == 1 ? "%zu text" : "%zu texts", texts->count);
        return strdup(texts->count == 0 ? "" : text);
    }
    case TPW_KIND_INT:
        snprintf(text, sizeof text, "%lld", (long long)*(const int64_t *)from);
        break;
    case TPW_KIND_INTS: {
        const tpw_ints *list = from;
        size_t at = 0;
        for (int i = 0; i < list->count; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%lld", i > 0 ? "," : "", (long long)list->data[i]);
        break;
    }
    case TPW_KIND_SECONDS:
        snprintf(text, sizeof text, "%g", *(const double *)from);
        break;
    case TPW_KIND_BOOL:
        snprintf(text, sizeof text, "%s", *(const bool *)from ? "yes" : "no");
        break;
    case TPW_KIND_CHOICE:
        tpw_values_choice(values, id, text, sizeof text);
        break;
    }
    return strdup(text);
}

void tpw_values_print(const tpw_values *values, FILE *out)
{
    for (int id = 0; id < TPW_SETTING_COUNT; id++) {
        char name[TPW_SETTING_NAME_MAX];
        char *shown = tpw_values_show(values, (tpw_setting_id)id);
        tpw_setting_key((tpw_setting_id)id, name);
        fprintf(out, "%-13s = %-24s ", name, shown ? shown : "?");
        free(shown);
        switch (values->source[id]) {
        case TPW_SOURCE_FLAG:
            fprintf(out, "(flag --%s)\n", table[id].flag);
            break;
        case TPW_SOURCE_ENVIRONMENT:
            tpw_setting_env_name((tpw_setting_id)id, name);
            fprintf(out, "(environment %s)\n", name);
            break;
        case TPW_SOURCE_FILE:
            fprintf(out, "(file %s)\n", values->config ? values->config : "?");
            break;
        default:
            fprintf(out, "(default)\n");
            break;
        }
    }
}
