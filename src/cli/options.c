/* Reads the command line with argp, then the configuration file and the environment, and checks what must fit together.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include <argp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/exit.h"

#define CONFIG_BYTES_MAX ((size_t)1 << 20)
#define CONFIG_ENV       "TPWORKER_CONFIG"

enum {
    KEY_SETTING = 0x1000, /* + tpw_setting_id */
    KEY_CONFIG = 0x2000,
    KEY_PRINT_CONFIG,
    KEY_VERSION = 'V',
    KEY_HELP = 'h'
};

/* A command as the first word. Its bit says which settings it uses. */
typedef struct command_word {
    const char *name;
    tpw_action action;
    const char *words; /* what it takes beside flags, for messages; NULL: nothing */
    int word_count;    /* at most */
    int words_needed;
} command_word;

static const command_word verbs[] = {
    {"run", TPW_ACTION_RUN, NULL, 0, 0},
    {"bench", TPW_ACTION_BENCH, NULL, 0, 0},
    {"probe", TPW_ACTION_PROBE, NULL, 0, 0},
    {"verify", TPW_ACTION_VERIFY, NULL, 0, 0},
    {"doctor", TPW_ACTION_DOCTOR, NULL, 0, 0},
    {"diff", TPW_ACTION_DIFF, "A B", 2, 2},
    {"plan", TPW_ACTION_PLAN, "one CHECKPOINT", 1, 0},
};
#define VERB_COUNT  (sizeof verbs / sizeof verbs[0])
#define VERBS_SHOWN "doctor, inspect, plan, run, bench, probe, verify and diff"

#define USES(action) (1u << (action))
#define LOADS        (USES(TPW_ACTION_RUN) | USES(TPW_ACTION_BENCH) | USES(TPW_ACTION_PROBE) | USES(TPW_ACTION_VERIFY))
#define PLANS        USES(TPW_ACTION_PLAN)
#define DOCTORS      USES(TPW_ACTION_DOCTOR)

/* One flag as it was given; its text is argv's. */
typedef struct given {
    tpw_setting_id id;
    const char *text;
} given;

/* What argp's callback collects. Values are read later, lowest source first. */
typedef struct collected {
    tpw_action action;
    const command_word *verb;
    const char *words[TPW_WORDS_MAX];
    int word_count;
    const char *config;
    given *flags; /* [count], room for argc */
    size_t count;
    tpw_status status;
    tpw_error *err;
} collected;

/* argp's own table: the settings, then the acts. `docs` holds the texts with their defaults. */
typedef struct flag_table {
    struct argp_option options[TPW_SETTING_COUNT + 16];
    char docs[TPW_SETTING_COUNT][400];
} flag_table;

static const char *const group_titles[] = {
    [TPW_GROUP_MODEL] = "Model:",
    [TPW_GROUP_TEXT] = "Text:",
    [TPW_GROUP_WORKER] = "Worker (the same on all ranks):",
    [TPW_GROUP_BENCH] = "Measuring (bench, probe):",
    [TPW_GROUP_PLAN] = "Planning (plan):",
    [TPW_GROUP_EXACT] = "Exactness (run, probe, verify):",
    [TPW_GROUP_OUTPUT] = "Output:",
    [TPW_GROUP_TESTING] = "Testing:",
};

static void make_flag_table(flag_table *t)
{
    struct argp_option *o = t->options;
    memset(t, 0, sizeof *t);
    for (int group = TPW_GROUP_MODEL; group <= TPW_GROUP_TESTING; group++) {
        *o++ = (struct argp_option){.doc = group_titles[group], .group = group};
        for (int id = 0; id < TPW_SETTING_COUNT; id++) {
            const tpw_setting *s = tpw_setting_get((tpw_setting_id)id);
            if ((int)s->group != group)
                continue;
            if (s->fallback)
                snprintf(t->docs[id], sizeof t->docs[id], "%s (default %s)", s->doc, s->fallback);
            else
                snprintf(t->docs[id], sizeof t->docs[id], "%s", s->doc);
            *o++ = (struct argp_option){.name = s->flag,
                                        .key = KEY_SETTING + id,
                                        .arg = s->argument,
                                        .flags = s->kind == TPW_KIND_BOOL ? OPTION_ARG_OPTIONAL : 0,
                                        .doc = t->docs[id],
                                        .group = group};
        }
    }
    int last = TPW_GROUP_TESTING + 1;
    *o++ = (struct argp_option){.doc = "Settings and facts:", .group = last};
    *o++ = (struct argp_option){"config", KEY_CONFIG, "FILE", 0, "Read settings from a JSON object", last};
    *o++ = (struct argp_option){"print-config",
                                KEY_PRINT_CONFIG,
                                NULL,
                                0,
                                "Print every setting and where its value came from, then leave",
                                last};
    *o++ =
        (struct argp_option){"version", KEY_VERSION, NULL, 0, "Print the versions of tpworker and its libraries", last};
    *o++ = (struct argp_option){"help", KEY_HELP, NULL, 0, "Print this text", last};
}

static void raise_action(collected *c, tpw_action action)
{
    if (action > c->action)
        c->action = action;
}

/* argp tells an unknown flag and a missing value alike, by a position: says which of them it was. */
static void explain(collected *c, const struct argp_state *state)
{
    const char *word = state->next > 1 ? state->argv[state->next - 1] : state->argv[1];
    size_t length = strcspn(word, "=");
    flag_table table;
    make_flag_table(&table);
    int matches = 0;
    for (const struct argp_option *o = table.options; o->name || o->doc; o++) {
        if (!o->name || strncmp(word, "--", 2) != 0 || strncmp(o->name, word + 2, length - 2) != 0)
            continue;
        matches++;
        if (o->name[length - 2] == '\0') {
            matches = 1;
            break;
        }
    }
    const char *what = matches == 0          ? "is not a flag of tpworker"
                       : matches > 1         ? "could be several flags; write it out"
                       : word[length] == '=' ? "takes no value"
                                             : "needs a value";
    c->status = tpw_fail(c->err, TPW_ERR_ARGUMENT, "%.80s %s (see tpworker --help)", word, what);
}

static tpw_status refuse_word(const collected *c, const char *word)
{
    if (c->verb->word_count > 0)
        return tpw_fail(c->err, TPW_ERR_ARGUMENT, "%s takes %s, and \"%.80s\" is one too many (see tpworker --help)",
                        c->verb->name, c->verb->words, word);
    return tpw_fail(c->err, TPW_ERR_ARGUMENT,
                    "\"%.80s\" is neither a flag nor a command; the commands are " VERBS_SHOWN
                    ", as the first word (see tpworker --help)",
                    word);
}

static error_t take(int key, char *arg, struct argp_state *state)
{
    collected *c = state->input;
    if (key >= KEY_SETTING && key < KEY_SETTING + TPW_SETTING_COUNT) {
        c->flags[c->count++] = (given){(tpw_setting_id)(key - KEY_SETTING), arg ? arg : "yes"};
        return 0;
    }
    switch (key) {
    case KEY_CONFIG:
        c->config = arg;
        return 0;
    case KEY_PRINT_CONFIG:
        raise_action(c, TPW_ACTION_PRINT_CONFIG);
        return 0;
    case KEY_VERSION:
        raise_action(c, TPW_ACTION_VERSION);
        return 0;
    case KEY_HELP:
        raise_action(c, TPW_ACTION_HELP);
        return 0;
    case ARGP_KEY_ARG:
        if (c->word_count < c->verb->word_count) {
            c->words[c->word_count++] = arg;
            return 0;
        }
        c->status = refuse_word(c, arg);
        return EINVAL;
    case ARGP_KEY_ERROR:
        if (c->status == TPW_OK)
            explain(c, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static tpw_status collect(int argc, char **argv, collected *c)
{
    flag_table table;
    make_flag_table(&table);
    struct argp parser = {.options = table.options, .parser = take};
    /* the command is a command only as the very first word; behind it flags begin */
    int skip = 0;
    c->verb = &verbs[0];
    for (size_t i = 0; argc > 1 && i < VERB_COUNT; i++) {
        if (strcmp(argv[1], verbs[i].name) == 0) {
            c->verb = &verbs[i];
            skip = 1;
        }
    }
    c->action = c->verb->action;
    if (argp_parse(&parser, argc - skip, argv + skip, ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP, NULL, c) != 0 &&
        c->status == TPW_OK)
        c->status = tpw_fail(c->err, TPW_ERR_ARGUMENT, "the command line cannot be read (see tpworker --help)");
    return c->status;
}

/* A configuration file is no checkpoint: what is wrong with it is a usage error. */
static tpw_status as_usage(tpw_status st, tpw_error *err)
{
    if (st != TPW_ERR_CHECKPOINT)
        return st;
    if (err)
        err->status = TPW_ERR_ARGUMENT;
    return TPW_ERR_ARGUMENT;
}

static bool find_key(const char *key, tpw_setting_id *out)
{
    for (int id = 0; id < TPW_SETTING_COUNT; id++) {
        char name[TPW_SETTING_NAME_MAX];
        tpw_setting_key((tpw_setting_id)id, name);
        if (strcmp(name, key) == 0) {
            *out = (tpw_setting_id)id;
            return true;
        }
    }
    return false;
}

static tpw_status read_config(tpw_values *values, const char *path, tpw_error *err)
{
    json_t *root = NULL;
    TPW_TRY(as_usage(tpw_json_load(path, CONFIG_BYTES_MAX, &root, err), err));
    tpw_status st = TPW_OK;
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        tpw_setting_id id;
        char where[TPW_ERROR_TEXT_MAX / 2];
        if (!find_key(key, &id)) {
            st = tpw_fail(err, TPW_ERR_ARGUMENT, "%s: unknown key \"%.60s\"; the keys are the names of --print-config",
                          path, key);
            break;
        }
        snprintf(where, sizeof where, "%.180s: key \"%.60s\"", path, key);
        st = tpw_values_set_json(values, id, where, value, err);
        if (st != TPW_OK)
            break;
    }
    json_decref(root);
    if (st != TPW_OK)
        return st;
    values->config = strdup(path);
    return values->config ? TPW_OK : tpw_fail(err, TPW_ERR_MEMORY, "no memory for the settings");
}

static tpw_status read_environment(tpw_values *values, tpw_getenv_fn *getenv_fn, tpw_error *err)
{
    for (int id = 0; id < TPW_SETTING_COUNT; id++) {
        char name[TPW_SETTING_NAME_MAX];
        tpw_setting_env_name((tpw_setting_id)id, name);
        const char *text = getenv_fn(name);
        if (text) /* also an empty one, which no setting takes: better said than guessed */
            TPW_TRY(tpw_values_set_text(values, (tpw_setting_id)id, TPW_SOURCE_ENVIRONMENT, name, text, err));
    }
    return TPW_OK;
}

/* Who uses a setting. What another command's flag says would be ignored in silence. Environment and file serve all commands. */
static unsigned users(tpw_setting_id id)
{
    switch (id) {
    case TPW_SETTING_PROMPTS:
    case TPW_SETTING_PROMPT:
    case TPW_SETTING_IGNORE_EOS:
    case TPW_SETTING_DIGESTS:
    case TPW_SETTING_METRICS_FILE:
    case TPW_SETTING_TRACE:
    case TPW_SETTING_TRACE_EVERY:
    case TPW_SETTING_EXPECT:
    case TPW_SETTING_EXPECT_WEIGHTS:
        return USES(TPW_ACTION_RUN);
    case TPW_SETTING_PROMPT_TOKENS:
        return USES(TPW_ACTION_BENCH);
    case TPW_SETTING_MAX_TOKENS:
        return USES(TPW_ACTION_RUN) | USES(TPW_ACTION_BENCH);
    case TPW_SETTING_BATCH:
    case TPW_SETTING_PAGES:
    case TPW_SETTING_CONTEXT:
        return USES(TPW_ACTION_RUN) | USES(TPW_ACTION_BENCH) | PLANS;
    case TPW_SETTING_TP:
    case TPW_SETTING_MEMORY:
        return PLANS;
    case TPW_SETTING_REPEAT:
        return USES(TPW_ACTION_BENCH) | USES(TPW_ACTION_PROBE);
    case TPW_SETTING_SEQUENCES:
        return USES(TPW_ACTION_PROBE);
    case TPW_SETTING_FAULT:
        return USES(TPW_ACTION_RUN) | USES(TPW_ACTION_PROBE);
    case TPW_SETTING_CHUNK:
    case TPW_SETTING_CHECK:
        return LOADS & ~USES(TPW_ACTION_VERIFY);
    case TPW_SETTING_K:
    case TPW_SETTING_PAGE:
        return (LOADS & ~USES(TPW_ACTION_VERIFY)) | PLANS;
    case TPW_SETTING_QUICK:
    case TPW_SETTING_CELLS:
    case TPW_SETTING_SEED:
    case TPW_SETTING_JUNIT:
        return USES(TPW_ACTION_VERIFY);
    case TPW_SETTING_JSON:
    case TPW_SETTING_QUIET:
        return LOADS | USES(TPW_ACTION_DIFF) | PLANS | DOCTORS;
    case TPW_SETTING_BACKEND:
    case TPW_SETTING_RANKS_PER_GPU:
        return LOADS | DOCTORS | PLANS;
    case TPW_SETTING_ISA:
    case TPW_SETTING_BIND:
    case TPW_SETTING_TIMEOUT:
    case TPW_SETTING_LOG_LEVEL:
    case TPW_SETTING_LOG_PREFIX:
    case TPW_SETTING_REPORT_DIR:
        return LOADS | DOCTORS;
    case TPW_SETTING_MODEL:
    case TPW_SETTING_DUMMY:
    case TPW_SETTING_LAYERS:
    case TPW_SETTING_VOCAB:
    case TPW_SETTING_ROWS:
    case TPW_SETTING_COMPUTE:
        return LOADS | PLANS;
    default:
        return LOADS;
    }
}

static tpw_status read_flags(tpw_values *values, const collected *c, tpw_error *err)
{
    for (size_t i = 0; i < c->count; i++) {
        char where[TPW_SETTING_NAME_MAX];
        snprintf(where, sizeof where, "--%s", tpw_setting_get(c->flags[i].id)->flag);
        if ((users(c->flags[i].id) & USES(c->verb->action)) == 0)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "%s is not a flag of tpworker %s (see tpworker --help)", where,
                            c->verb->name);
        TPW_TRY(tpw_values_set_text(values, c->flags[i].id, TPW_SOURCE_FLAG, where, c->flags[i].text, err));
    }
    return TPW_OK;
}

/* The folder that plan is given as a word is its --model. */
static tpw_status read_folder(tpw_values *values, const collected *c, tpw_error *err)
{
    if (c->verb->action != TPW_ACTION_PLAN || c->word_count == 0)
        return TPW_OK;
    if (values->source[TPW_SETTING_MODEL] == TPW_SOURCE_FLAG)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "plan: \"%.80s\" and --model exclude each other: give one of them",
                        c->words[0]);
    return tpw_values_set_text(values, TPW_SETTING_MODEL, TPW_SOURCE_FLAG, "plan", c->words[0], err);
}

/* Of two settings that exclude each other the one from the higher source stands; from the same source it is an error. */
static tpw_status exclude(tpw_values *v, tpw_setting_id a, bool a_set, tpw_setting_id b, bool b_set, bool *drop_a,
                          bool *drop_b, tpw_error *err)
{
    *drop_a = a_set && b_set && v->source[a] < v->source[b];
    *drop_b = a_set && b_set && v->source[a] > v->source[b];
    if (a_set && b_set && v->source[a] == v->source[b])
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--%s and --%s exclude each other: give one of them",
                        tpw_setting_get(a)->flag, tpw_setting_get(b)->flag);
    return TPW_OK;
}

static void drop_text(tpw_values *v, char **text, tpw_setting_id id)
{
    free(*text);
    *text = NULL;
    v->source[id] = TPW_SOURCE_DEFAULT;
}

static tpw_status resolve(tpw_values *v, tpw_error *err)
{
    bool drop_a;
    bool drop_b;
    TPW_TRY(exclude(v, TPW_SETTING_MODEL, v->model, TPW_SETTING_DUMMY, v->dummy, &drop_a, &drop_b, err));
    if (drop_a)
        drop_text(v, &v->model, TPW_SETTING_MODEL);
    if (drop_b)
        drop_text(v, &v->dummy, TPW_SETTING_DUMMY);
    TPW_TRY(
        exclude(v, TPW_SETTING_PROMPTS, v->prompts, TPW_SETTING_PROMPT, v->prompt.count > 0, &drop_a, &drop_b, err));
    if (drop_a)
        drop_text(v, &v->prompts, TPW_SETTING_PROMPTS);
    if (drop_b) {
        for (size_t i = 0; i < v->prompt.count; i++)
            free(v->prompt.data[i]);
        free(v->prompt.data);
        v->prompt = (tpw_texts){0};
        v->source[TPW_SETTING_PROMPT] = TPW_SOURCE_DEFAULT;
    }
    return TPW_OK;
}

/* What has another default in this command. */
static tpw_status own_defaults(tpw_values *v, const command_word *verb, tpw_error *err)
{
    static const struct {
        tpw_action action;
        tpw_setting_id id;
        const char *text;
    } own[] = {{TPW_ACTION_BENCH, TPW_SETTING_K, "0,1,2,3,4"},
               {TPW_ACTION_BENCH, TPW_SETTING_BATCH, "1,4,16"},
               {TPW_ACTION_BENCH, TPW_SETTING_MAX_TOKENS, "64"},
               {TPW_ACTION_PROBE, TPW_SETTING_K, "4"},
               {TPW_ACTION_DOCTOR, TPW_SETTING_BACKEND, "auto"}};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (own[i].action == verb->action && v->source[own[i].id] == TPW_SOURCE_DEFAULT)
            TPW_TRY(tpw_values_set_text(v, own[i].id, TPW_SOURCE_DEFAULT, verb->name, own[i].text, err));
    return TPW_OK;
}

static tpw_status check_single(const tpw_ints *list, const char *flag, const char *verb, tpw_error *err)
{
    if (list->count == 1)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_ARGUMENT, "--%s holds %d numbers; %s takes one, lists are for bench", flag,
                    list->count, verb);
}

/* Every sequence needs a row for its certain token and each draft. */
static tpw_status fit_rows(tpw_values *v, tpw_error *err)
{
    int64_t batch = tpw_ints_max(&v->batch);
    int64_t k = tpw_ints_max(&v->k);
    int64_t needed = batch * (k + 1);
    if (v->rows >= needed)
        return TPW_OK;
    if (v->source[TPW_SETTING_ROWS] != TPW_SOURCE_DEFAULT)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "--rows %lld is less than --batch %lld times (--k %lld + 1) = %lld: every sequence needs a row "
                        "for its token and for each draft",
                        (long long)v->rows, (long long)batch, (long long)k, (long long)needed);
    v->rows = needed;
    return TPW_OK;
}

/* --check, and what needs digests. A list in environment or file is for bench, and passed over where nothing is checked. */
static tpw_status check_digests(const tpw_values *v, const command_word *verb, tpw_error *err)
{
    tpw_check_modes modes;
    TPW_TRY(tpw_values_checks(v, &modes, err));
    if (modes.count > 1 && verb->action != TPW_ACTION_BENCH && (LOADS & USES(verb->action)) != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--check holds %d modes; %s takes one, lists are for bench", modes.count,
                        verb->name);
    if (verb->action == TPW_ACTION_RUN && modes.data[0].check == TPW_CHECK_OFF && (v->trace || v->expect))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--%s needs digests, and --check=off makes none",
                        v->trace ? "trace" : "expect");
    return TPW_OK;
}

static tpw_status check(tpw_values *v, const command_word *verb, tpw_error *err)
{
    bool run = verb->action == TPW_ACTION_RUN;
    bool probe = verb->action == TPW_ACTION_PROBE;
    bool plan = verb->action == TPW_ACTION_PLAN;
    if (run || probe || plan)
        TPW_TRY(check_single(&v->k, "k", verb->name, err));
    if (run || plan)
        TPW_TRY(check_single(&v->batch, "batch", verb->name, err));
    if (probe && v->k.data[0] < 1)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--k 0: probe needs drafts to verify, 1..%d", TPW_K_MAX);
    TPW_TRY(check_digests(v, verb, err));
    if (!v->dummy && (v->layers > 0 || v->vocab > 0))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--%s is a size of --dummy NAME; a model folder has its own",
                        v->layers > 0 ? "layers" : "vocab");
    if ((v->page & (v->page - 1)) != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--page %lld: must be a power of two in 1..256", (long long)v->page);
    return fit_rows(v, err);
}

tpw_status tpw_command_parse(int argc, char **argv, tpw_getenv_fn *getenv_fn, tpw_command *out, tpw_error *err)
{
    *out = (tpw_command){0};
    collected c = {.err = err};
    c.flags = calloc((size_t)argc + 1, sizeof *c.flags);
    if (!c.flags)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the command line");
    tpw_status st;
    TPW_TRY_GOTO(st, collect(argc, argv, &c), free_flags);
    TPW_TRY_GOTO(st, tpw_values_init(&out->values, err), free_flags);
    out->action = c.action;
    if (c.action >= TPW_ACTION_VERSION)
        goto free_flags;
    const char *config = c.config ? c.config : getenv_fn(CONFIG_ENV);
    if (config)
        TPW_TRY_GOTO(st, read_config(&out->values, config, err), free_flags);
    TPW_TRY_GOTO(st, read_environment(&out->values, getenv_fn, err), free_flags);
    TPW_TRY_GOTO(st, read_flags(&out->values, &c, err), free_flags);
    TPW_TRY_GOTO(st, read_folder(&out->values, &c, err), free_flags);
    TPW_TRY_GOTO(st, resolve(&out->values, err), free_flags);
    TPW_TRY_GOTO(st, own_defaults(&out->values, c.verb, err), free_flags);
    memcpy(out->words, c.words, sizeof out->words);
    out->word_count = c.word_count;
    if (c.action < TPW_ACTION_PRINT_CONFIG && c.word_count < c.verb->words_needed)
        TPW_TRY_GOTO(st,
                     tpw_fail(err, TPW_ERR_ARGUMENT, "%s takes %s, found %d of them (see tpworker --help)",
                              c.verb->name, c.verb->words, c.word_count),
                     free_flags);
    st = check(&out->values, c.verb, err);
free_flags:
    free(c.flags);
    return st;
}

void tpw_command_fini(tpw_command *command)
{
    tpw_values_fini(&command->values);
}

void tpw_command_help(FILE *out)
{
    flag_table table;
    char name[] = "tpworker"; /* argp wants it writable */
    make_flag_table(&table);
    struct argp parser = {.options = table.options,
                          .doc = "Generates text with a hybrid Qwen model on the ranks that mpirun or srun started, "
                                 "and says whether all ranks agree. The command run may be left out; bench measures "
                                 "speed for every K and batch and checks that all of them give the same state; probe "
                                 "compares drafted runs with one-token steps, tensor by tensor; verify runs the same "
                                 "work cut in every way; diff names the first difference between two traces; plan says "
                                 "what each rank will hold, and doctor whether ranks, GPUs and communicators are "
                                 "there and agree, before anything is loaded."};
    fputs("Usage: tpworker [run] [FLAG...]\n       tpworker bench|probe|verify|doctor [FLAG...]\n"
          "       tpworker diff A B [FLAG...]\n       tpworker inspect CHECKPOINT [--digests FILE] [--json]\n"
          "       tpworker plan [CHECKPOINT] [--tp N] [FLAG...]\n       "
          "mpirun -np 2 tpworker ...\n\n",
          out);
    argp_help(&parser, out, ARGP_HELP_PRE_DOC | ARGP_HELP_LONG, name);
    fputs("\nEvery setting can also be given as TPWORKER_<NAME> in the environment (TPWORKER_MAX_TOKENS=64) or as a "
          "key of\n"
          "the --config file ({\"max_tokens\": 64}). Flags win over the environment, the environment over the file.\n"
          "\nExit codes:\n",
          out);
    for (int code = 0; code < 126; code++)
        if (tpw_exit_meaning(code))
            fprintf(out, "  %3d  %s\n", code, tpw_exit_meaning(code));
}
