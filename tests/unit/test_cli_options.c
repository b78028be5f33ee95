/* Tests of the settings: every flag, variable and key, what wins, and what is refused. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "temp_folder.h"

#define WORDS_MAX 64

/* The environment of a test: "NAME=value" texts. */
static const char *const *environment;

static const char *fake_getenv(const char *name)
{
    size_t length = strlen(name);
    for (const char *const *e = environment; e && *e; e++)
        if (strncmp(*e, name, length) == 0 && (*e)[length] == '=')
            return *e + length + 1;
    return NULL;
}

/* Splits at '|', so that values may hold blanks. */
static tpw_status parse(const char *line, tpw_command *out, tpw_error *err)
{
    char text[2048];
    char *argv[WORDS_MAX + 1] = {(char *)"tpworker"};
    int argc = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = text; *line != '\0' && word; argc++) {
        char *end = strchr(word, '|');
        if (end)
            *end++ = '\0';
        argv[argc] = word;
        word = end;
    }
    *err = (tpw_error){0};
    return tpw_command_parse(argc, argv, fake_getenv, out, err);
}

static void accept(const char *line, tpw_command *out)
{
    tpw_error err;
    cr_assert_eq(parse(line, out, &err), TPW_OK, "%s: %s", line, err.text);
}

/* Refused with `status`, in a message that holds each of the '|'-separated `parts`. */
static void refuse(const char *line, tpw_status status, const char *parts)
{
    tpw_command command;
    tpw_error err;
    char wanted[512];
    tpw_status st = parse(line, &command, &err);
    cr_assert_eq(st, status, "%s: %s, \"%s\"", line, tpw_status_name(st), err.text);
    cr_assert_eq(err.status, status, "%s", line);
    snprintf(wanted, sizeof wanted, "%s", parts);
    for (char *part = strtok(wanted, "|"); part; part = strtok(NULL, "|"))
        cr_assert_not_null(strstr(err.text, part), "%s: \"%s\" lacks \"%s\"", line, err.text, part);
    tpw_command_fini(&command);
}

Test(options, defaults_are_the_documented_ones)
{
    tpw_command c;
    accept("", &c);
    cr_assert_eq(c.action, TPW_ACTION_RUN);
    cr_assert_null(c.values.model);
    cr_assert_null(c.values.dummy);
    cr_assert_null(c.values.prompts);
    cr_assert_null(c.values.json);
    cr_assert_eq(c.values.prompt.count, 0u);
    cr_assert_eq(c.values.max_tokens, 128);
    cr_assert_eq(c.values.batch.count, 1);
    cr_assert_eq(c.values.batch.data[0], 8);
    cr_assert_eq(c.values.k.count, 1);
    cr_assert_eq(c.values.k.data[0], 0);
    cr_assert_null(c.values.metrics_file);
    cr_assert_eq(c.values.rows, 256);
    cr_assert_eq(c.values.chunk, 256);
    cr_assert_eq(c.values.page, 64);
    cr_assert_eq(c.values.pages, 0);
    cr_assert_eq(c.values.context, 0);
    cr_assert_eq(c.values.compute, TPW_COMPUTE_BF16);
    cr_assert_eq(c.values.bind, TPW_BINDING_AUTO);
    cr_assert_eq(c.values.timeout, 30.0);
    cr_assert_eq(c.values.log_level, TPW_LOG_WARN);
    cr_assert_eq(c.values.log_prefix, TPW_LOG_PREFIX_AUTO);
    cr_assert_str_eq(c.values.report_dir, ".");
    cr_assert_not(c.values.ignore_eos);
    cr_assert_not(c.values.digests);
    cr_assert_not(c.values.quiet);
    for (int id = 0; id < TPW_SETTING_COUNT; id++)
        cr_assert_eq(c.values.source[id], TPW_SOURCE_DEFAULT);
    tpw_command_fini(&c);
}

Test(options, every_flag_is_taken)
{
    tpw_command c;
    accept(
        "run|--dummy|qwen3.5-4b|--layers=4|--vocab|512|--prompt|a b|--prompt=c|--max-tokens|7|--ignore-eos|--batch=2|"
        "--rows|9|--chunk|5|--page|16|--pages|40|--context|99|--compute=f32|--k=0|--isa=baseline|--bind|strict|"
        "--timeout=2.5|--json|-|--metrics-file|m.prom|--digests|--quiet|--log-level=debug|--log-prefix=none|--report-"
        "dir|/r",
        &c);
    const tpw_values *v = &c.values;
    cr_assert_str_eq(v->dummy, "qwen3.5-4b");
    cr_assert_eq(v->layers, 4);
    cr_assert_eq(v->vocab, 512);
    cr_assert_eq(v->prompt.count, 2u);
    cr_assert_str_eq(v->prompt.data[0], "a b");
    cr_assert_str_eq(v->prompt.data[1], "c");
    cr_assert_eq(v->max_tokens, 7);
    cr_assert(v->ignore_eos);
    cr_assert_eq(v->batch.data[0], 2);
    cr_assert_str_eq(v->metrics_file, "m.prom");
    cr_assert_eq(v->rows, 9);
    cr_assert_eq(v->chunk, 5);
    cr_assert_eq(v->page, 16);
    cr_assert_eq(v->pages, 40);
    cr_assert_eq(v->context, 99);
    cr_assert_eq(v->compute, TPW_COMPUTE_F32);
    cr_assert_eq(v->bind, TPW_BINDING_STRICT);
    cr_assert_eq(v->timeout, 2.5);
    cr_assert_str_eq(v->json, "-");
    cr_assert(v->digests);
    cr_assert(v->quiet);
    cr_assert_eq(v->log_level, TPW_LOG_DEBUG);
    cr_assert_eq(v->log_prefix, TPW_LOG_PREFIX_NONE);
    cr_assert_str_eq(v->report_dir, "/r");
    char isa[16];
    tpw_values_choice(v, TPW_SETTING_ISA, isa, sizeof isa);
    cr_assert_str_eq(isa, "baseline");
    tpw_command_fini(&c);
    accept("--model|/m|--prompts|p.jsonl|--ignore-eos=no", &c);
    cr_assert_str_eq(c.values.model, "/m");
    cr_assert_str_eq(c.values.prompts, "p.jsonl");
    cr_assert_not(c.values.ignore_eos);
    tpw_command_fini(&c);
}

Test(options, acts_work_with_a_broken_environment)
{
    static const char *const broken[] = {"TPWORKER_BATCH=many", "TPWORKER_CONFIG=/nowhere.json", NULL};
    tpw_command c;
    environment = broken;
    accept("--help", &c);
    cr_assert_eq(c.action, TPW_ACTION_HELP);
    tpw_command_fini(&c);
    accept("--version|--print-config", &c);
    cr_assert_eq(c.action, TPW_ACTION_VERSION);
    tpw_command_fini(&c);
    refuse("", TPW_ERR_MISSING, "/nowhere.json");
}

Test(options, flags_win_over_environment_over_file_over_defaults)
{
    temp_folder temp;
    temp_make(&temp);
    temp_write_text(&temp, "c.json",
                    "{\"batch\": 2, \"rows\": 20, \"chunk\": 30, \"timeout\": 5, \"ignore_eos\": true, "
                    "\"compute\": \"f32\", \"prompt\": [\"x\", \"y\"]}");
    char config[600];
    snprintf(config, sizeof config, "TPWORKER_CONFIG=%s", temp_path(&temp, "c.json"));
    const char *const set[] = {config, "TPWORKER_ROWS=21", "TPWORKER_CHUNK=31", "TPWORKER_PROMPT=only", NULL};
    tpw_command c;
    environment = set;
    accept("--chunk=32|--ignore-eos=off", &c);
    cr_assert_eq(c.values.batch.data[0], 2);
    cr_assert_eq(c.values.source[TPW_SETTING_BATCH], TPW_SOURCE_FILE);
    cr_assert_eq(c.values.rows, 21);
    cr_assert_eq(c.values.source[TPW_SETTING_ROWS], TPW_SOURCE_ENVIRONMENT);
    cr_assert_eq(c.values.chunk, 32);
    cr_assert_eq(c.values.source[TPW_SETTING_CHUNK], TPW_SOURCE_FLAG);
    cr_assert_eq(c.values.page, 64);
    cr_assert_eq(c.values.timeout, 5.0);
    cr_assert_eq(c.values.compute, TPW_COMPUTE_F32);
    cr_assert_not(c.values.ignore_eos);
    cr_assert_eq(c.values.prompt.count, 1u, "a higher source replaces the list");
    cr_assert_str_eq(c.values.prompt.data[0], "only");
    tpw_command_fini(&c);
    temp_remove(&temp);
}

/* Names are made by rule: every setting answers to its variable and its key. */
Test(options, every_setting_has_a_variable_and_a_key)
{
    static const char *const sample[] = {
        [TPW_KIND_TEXT] = "t",    [TPW_KIND_TEXTS] = "t",  [TPW_KIND_INT] = "1",      [TPW_KIND_INTS] = "1",
        [TPW_KIND_SECONDS] = "1", [TPW_KIND_BOOL] = "yes", [TPW_KIND_CHOICE] = "none"};
    for (int id = 0; id < TPW_SETTING_COUNT; id++) {
        const tpw_setting *s = tpw_setting_get((tpw_setting_id)id);
        char name[TPW_SETTING_NAME_MAX];
        char expected[TPW_SETTING_NAME_MAX];
        tpw_setting_env_name((tpw_setting_id)id, name);
        snprintf(expected, sizeof expected, "TPWORKER_%s", s->flag);
        for (char *at = expected; *at != '\0'; at++)
            *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
        cr_assert_str_eq(name, expected);
        if (id == TPW_SETTING_LAYERS || id == TPW_SETTING_VOCAB || id == TPW_SETTING_ROWS ||
            id == TPW_SETTING_LOG_LEVEL || id == TPW_SETTING_COMPUTE || id == TPW_SETTING_ISA ||
            id == TPW_SETTING_CHECK || id == TPW_SETTING_BACKEND)
            continue; /* not free to take the sample */
        char entry[128];
        snprintf(entry, sizeof entry, "%s=%s", name, sample[s->kind]);
        const char *const set[] = {entry, NULL};
        tpw_command c;
        environment = set;
        accept("", &c);
        cr_assert_eq(c.values.source[id], TPW_SOURCE_ENVIRONMENT, "%s", name);
        tpw_command_fini(&c);
    }
}

Test(options, bad_values_name_flag_range_and_find)
{
    refuse("--batch=0", TPW_ERR_ARGUMENT, "--batch|1..4096|\"0\"");
    refuse("--batch=4097", TPW_ERR_ARGUMENT, "--batch|4097");
    refuse("--batch=", TPW_ERR_ARGUMENT, "--batch|\"\"");
    refuse("--batch= 8", TPW_ERR_ARGUMENT, "\" 8\"");
    refuse("--batch=+8", TPW_ERR_ARGUMENT, "--batch");
    refuse("--batch=8x", TPW_ERR_ARGUMENT, "8x");
    refuse("--batch=0x8", TPW_ERR_ARGUMENT, "0x8");
    refuse("--batch=99999999999999999999", TPW_ERR_ARGUMENT, "--batch");
    refuse("--max-tokens=-1", TPW_ERR_ARGUMENT, "--max-tokens|-1");
    refuse("--pages=2147483647", TPW_ERR_ARGUMENT, "--pages|2147483646");
    refuse("--timeout=0", TPW_ERR_ARGUMENT, "--timeout|seconds");
    refuse("--timeout=inf", TPW_ERR_ARGUMENT, "--timeout");
    refuse("--timeout=nan", TPW_ERR_ARGUMENT, "--timeout");
    refuse("--timeout=1e9", TPW_ERR_ARGUMENT, "86400");
    refuse("--timeout=0x10", TPW_ERR_ARGUMENT, "0x10");
    refuse("--compute=fp16", TPW_ERR_ARGUMENT, "bf16|f32|fp16");
    refuse("--compute=bf16-f32", TPW_ERR_ARGUMENT, "--compute");
    refuse("--compute=bf", TPW_ERR_ARGUMENT, "--compute");
    refuse("--bind=hard", TPW_ERR_ARGUMENT, "none|strict");
    refuse("--quiet=maybe", TPW_ERR_ARGUMENT, "yes or no");
    refuse("--prompt=", TPW_ERR_ARGUMENT, "--prompt");
    refuse("--model=", TPW_ERR_ARGUMENT, "--model");
}

Test(options, words_and_unknown_flags_are_usage_errors)
{
    refuse("plans", TPW_ERR_ARGUMENT, "plans|plan, run, bench, probe, verify and diff");
    refuse("--batch=2|bench", TPW_ERR_ARGUMENT, "\"bench\"");
    refuse("bench|run", TPW_ERR_ARGUMENT, "\"run\"");
    refuse("--batch=2|run", TPW_ERR_ARGUMENT, "\"run\"");
    refuse("run|again", TPW_ERR_ARGUMENT, "\"again\"");
    refuse("--|run", TPW_ERR_ARGUMENT, "\"run\"");
    refuse("run|run", TPW_ERR_ARGUMENT, "\"run\"");
    refuse("--wat", TPW_ERR_ARGUMENT, "--wat|not a flag");
    refuse("--wat=1|--help", TPW_ERR_ARGUMENT, "--wat|not a flag");
    refuse("--model", TPW_ERR_ARGUMENT, "--model|needs a value");
    refuse("--pag=3", TPW_ERR_ARGUMENT, "--pag|several");
    refuse("--print-config=3", TPW_ERR_ARGUMENT, "--print-config|no value");
    refuse("-x", TPW_ERR_ARGUMENT, "-x|not a flag");
    tpw_command c;
    accept("run|--", &c);
    tpw_command_fini(&c);
}

Test(options, what_must_fit_together_does)
{
    refuse("--k=9", TPW_ERR_ARGUMENT, "--k|0..8");
    refuse("--page=48", TPW_ERR_ARGUMENT, "--page 48|power of two");
    refuse("--rows=7", TPW_ERR_ARGUMENT, "--rows 7|--batch 8");
    refuse("--rows=23|--k=2", TPW_ERR_ARGUMENT, "--rows 23|--batch 8|--k 2|24");
    refuse("--k=0,2", TPW_ERR_ARGUMENT, "--k|2 numbers|bench");
    refuse("--batch=1,2,3", TPW_ERR_ARGUMENT, "--batch|3 numbers|bench");
    refuse("--layers=2", TPW_ERR_ARGUMENT, "--layers|--dummy");
    refuse("--vocab=2|--model=/m", TPW_ERR_ARGUMENT, "--vocab|--dummy");
    refuse("--model=/m|--dummy=qwen3.5-4b", TPW_ERR_ARGUMENT, "--model|--dummy|exclude");
    refuse("--prompts=p|--prompt=x", TPW_ERR_ARGUMENT, "--prompts|--prompt|exclude");
}

Test(options, rows_grow_with_k_unless_they_are_set)
{
    tpw_command c;
    accept("--k=8|--batch=100", &c);
    cr_assert_eq(c.values.rows, 900);
    cr_assert_eq(c.values.source[TPW_SETTING_ROWS], TPW_SOURCE_DEFAULT);
    tpw_command_fini(&c);
    accept("--k=2|--batch=8|--rows=24", &c);
    cr_assert_eq(c.values.rows, 24);
    tpw_command_fini(&c);
    accept("--k=2", &c);
    cr_assert_eq(c.values.rows, 256, "enough already");
    tpw_command_fini(&c);
}

static void assert_ints(const tpw_ints *list, const char *expected)
{
    char text[128] = "";
    for (int i = 0; i < list->count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i > 0 ? "," : "", (long long)list->data[i]);
    cr_assert_str_eq(text, expected);
}

Test(options, bench_takes_lists_and_has_its_own_defaults)
{
    tpw_command c;
    accept("bench", &c);
    cr_assert_eq(c.action, TPW_ACTION_BENCH);
    assert_ints(&c.values.k, "0,1,2,3,4");
    assert_ints(&c.values.batch, "1,4,16");
    cr_assert_eq(c.values.max_tokens, 64);
    cr_assert_eq(c.values.prompt_tokens, 32);
    cr_assert_eq(c.values.repeat, 3);
    tpw_command_fini(&c);
    static const char *const set[] = {"TPWORKER_BATCH=3,1", "TPWORKER_PROMPT=x", "TPWORKER_REPEAT=9", NULL};
    environment = set;
    accept("bench|--k=0,8|--max-tokens=5|--prompt-tokens=6|--print-config", &c);
    cr_assert_eq(c.action, TPW_ACTION_PRINT_CONFIG);
    assert_ints(&c.values.k, "0,8");
    assert_ints(&c.values.batch, "3,1");
    cr_assert_eq(c.values.max_tokens, 5);
    cr_assert_eq(c.values.repeat, 9);
    char *shown = tpw_values_show(&c.values, TPW_SETTING_K);
    cr_assert_str_eq(shown, "0,8");
    free(shown);
    tpw_command_fini(&c);
    environment = NULL;
    accept("bench|--batch=500,1000", &c);
    cr_assert_eq(c.values.rows, 5000, "the largest batch times the largest K + 1");
    tpw_command_fini(&c);
    accept("bench|--k=0,1,2,3,4,5,6,7,8,0,1,2,3,4,5,6", &c);
    cr_assert_eq(c.values.k.count, TPW_INTS_MAX);
    tpw_command_fini(&c);
    refuse("bench|--k=0,1,2,3,4,5,6,7,8,0,1,2,3,4,5,6,7", TPW_ERR_ARGUMENT, "--k|16");
    refuse("bench|--k=0,", TPW_ERR_ARGUMENT, "--k");
    refuse("bench|--k=,1", TPW_ERR_ARGUMENT, "--k");
    refuse("bench|--k=1,,2", TPW_ERR_ARGUMENT, "--k");
    refuse("bench|--k=1, 2", TPW_ERR_ARGUMENT, "--k");
    refuse("bench|--k=1;2", TPW_ERR_ARGUMENT, "--k");
    refuse("bench|--k=0,9", TPW_ERR_ARGUMENT, "--k|0..8");
    refuse("bench|--batch=1,0", TPW_ERR_ARGUMENT, "--batch|1..4096");
    refuse("bench|--repeat=0", TPW_ERR_ARGUMENT, "--repeat");
}

/* What would be ignored in silence is refused. */
Test(options, flags_of_the_other_command_are_refused)
{
    static const char *const run_only[] = {"--prompt=x", "--prompts=f", "--ignore-eos", "--digests",
                                           "--metrics-file=m"};
    for (size_t i = 0; i < sizeof run_only / sizeof run_only[0]; i++) {
        char line[64];
        char name[32];
        snprintf(line, sizeof line, "bench|%s", run_only[i]);
        snprintf(name, sizeof name, "%.*s|bench", (int)strcspn(run_only[i], "="), run_only[i]);
        refuse(line, TPW_ERR_ARGUMENT, name);
    }
    refuse("--repeat=2", TPW_ERR_ARGUMENT, "--repeat|run");
    refuse("run|--prompt-tokens=2", TPW_ERR_ARGUMENT, "--prompt-tokens|run");
}

/* A flag also displaces the variable of the setting that it excludes. */
Test(options, of_two_that_exclude_each_other_the_higher_source_stands)
{
    static const char *const set[] = {"TPWORKER_MODEL=/m", "TPWORKER_PROMPTS=p.jsonl", NULL};
    tpw_command c;
    environment = set;
    accept("--dummy=qwen3.5-4b|--prompt=x", &c);
    cr_assert_null(c.values.model);
    cr_assert_str_eq(c.values.dummy, "qwen3.5-4b");
    cr_assert_null(c.values.prompts);
    cr_assert_eq(c.values.prompt.count, 1u);
    tpw_command_fini(&c);
    static const char *const other[] = {"TPWORKER_DUMMY=qwen3.5-4b", "TPWORKER_PROMPT=p", NULL};
    environment = other;
    accept("--model=/m|--prompts=x", &c);
    cr_assert_null(c.values.dummy);
    cr_assert_str_eq(c.values.model, "/m");
    cr_assert_eq(c.values.prompt.count, 0u);
    cr_assert_str_eq(c.values.prompts, "x");
    tpw_command_fini(&c);
}

Test(options, config_files_are_strict)
{
    static const struct {
        const char *text;
        const char *parts;
    } bad[] = {
        {"{\"bach\": 2}", "c.json|unknown key|bach"},
        {"{\"max-tokens\": 2}", "unknown key|max-tokens"},
        {"{\"batch\": \"2\"}", "c.json|batch|integer|\"2\""},
        {"{\"batch\": 2.0}", "batch|integer"},
        {"{\"batch\": 4097}", "batch|1..4096|4097"},
        {"{\"batch\": null}", "batch"},
        {"{\"batch\": true}", "batch"},
        {"{\"quiet\": 1}", "quiet|yes or no"},
        {"{\"quiet\": \"yes\"}", "quiet"},
        {"{\"timeout\": \"3\"}", "timeout"},
        {"{\"model\": 3}", "model"},
        {"{\"model\": [\"a\"]}", "model"},
        {"{\"prompt\": []}", "prompt"},
        {"{\"prompt\": [\"a\", 3]}", "prompt|item 1"},
        {"{\"compute\": \"f64\"}", "compute|bf16|f64"},
        {"{\"batch\": 2, \"batch\": 3}", "c.json|duplicate"},
        {"{\"batch\": 2", "c.json|line 1"},
        {"[]", "c.json"},
        {"", "c.json|empty"},
        {"{\"model\": \"/m\", \"dummy\": \"qwen3.5-4b\"}", "exclude"},
        {"{\"k\": 9}", "c.json|\"k\"|0..8"},
        {"{\"k\": []}", "\"k\"|0..8|list"},
        {"{\"k\": [1, \"2\"]}", "\"k\"|0..8|list"},
        {"{\"k\": [1, 9]}", "\"k\"|0..8"},
        {"{\"k\": [0, 1]}", "--k|bench"},
    };
    temp_folder temp;
    temp_make(&temp);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char line[600];
        temp_write_text(&temp, "c.json", bad[i].text);
        snprintf(line, sizeof line, "--config=%s", temp_path(&temp, "c.json"));
        refuse(line, TPW_ERR_ARGUMENT, bad[i].parts);
    }
    char line[600];
    snprintf(line, sizeof line, "--config=%s", temp_path(&temp, "absent.json"));
    refuse(line, TPW_ERR_MISSING, "absent.json");
    snprintf(line, sizeof line, "--config=%s", temp.path);
    refuse(line, TPW_ERR_ARGUMENT, "regular");
    temp_remove(&temp);
}

Test(options, a_bad_variable_is_named)
{
    static const char *const set[] = {"TPWORKER_MAX_TOKENS=lots", NULL};
    environment = set;
    refuse("", TPW_ERR_ARGUMENT, "TPWORKER_MAX_TOKENS|lots");
    static const char *const empty[] = {"TPWORKER_MODEL=", NULL};
    environment = empty;
    refuse("", TPW_ERR_ARGUMENT, "TPWORKER_MODEL");
}

static void print_to(void (*print)(FILE *, const tpw_values *), const tpw_values *values, char **text)
{
    size_t bytes = 0;
    FILE *out = open_memstream(text, &bytes);
    print(out, values);
    fclose(out);
}

static void print_config(FILE *out, const tpw_values *values)
{
    tpw_values_print(values, out);
}

static void print_help(FILE *out, const tpw_values *values)
{
    (void)values;
    tpw_command_help(out);
}

Test(options, print_config_says_where_each_value_came_from)
{
    static const char *const set[] = {"TPWORKER_ROWS=21", NULL};
    tpw_command c;
    char *text = NULL;
    environment = set;
    accept("--print-config|--max-tokens=3", &c);
    cr_assert_eq(c.action, TPW_ACTION_PRINT_CONFIG);
    print_to(print_config, &c.values, &text);
    int lines = 0;
    for (const char *at = text; *at != '\0'; at++)
        lines += *at == '\n';
    cr_assert_eq(lines, TPW_SETTING_COUNT);
    const char *rows = strstr(text, "\nrows ");
    const char *tokens = strstr(text, "\nmax_tokens ");
    cr_assert(rows && strncmp(strchr(rows, '('), "(environment TPWORKER_ROWS)", 27) == 0, "%s", text);
    cr_assert(tokens && strncmp(strchr(tokens, '('), "(flag --max-tokens)", 19) == 0, "%s", text);
    free(text);
    tpw_command_fini(&c);
}

Test(options, help_names_every_flag_and_exit_code)
{
    char *text = NULL;
    print_to(print_help, NULL, &text);
    for (int id = 0; id < TPW_SETTING_COUNT; id++) {
        char flag[64];
        snprintf(flag, sizeof flag, "--%s", tpw_setting_get((tpw_setting_id)id)->flag);
        cr_assert_not_null(strstr(text, flag), "%s", flag);
    }
    static const char *const parts[] = {"--config",      "--print-config", "--version", "--help",
                                        "(default 128)", "  75  ",         "  65  "};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        cr_assert_not_null(strstr(text, parts[i]), "%s", parts[i]);
    cr_assert_not_null(strstr(text, "tpworker bench"));
    free(text);
}

Test(options, check_is_a_word_or_a_number_of_steps)
{
    static const struct {
        const char *line;
        tpw_check check;
        int32_t every;
    } good[] = {
        {"", TPW_CHECK_STEP, 64},           {"--check=step", TPW_CHECK_STEP, 64},
        {"--check=7", TPW_CHECK_STEP, 7},   {"--check=2147483647", TPW_CHECK_STEP, INT32_MAX},
        {"--check=end", TPW_CHECK_END, 64}, {"--check=off", TPW_CHECK_OFF, 64},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        tpw_command c;
        tpw_check check;
        int32_t every;
        accept(good[i].line, &c);
        cr_assert_eq(tpw_values_check(&c.values, &check, &every, NULL), TPW_OK);
        cr_assert_eq(check, good[i].check, "%s", good[i].line);
        cr_assert_eq(every, good[i].every, "%s", good[i].line);
        tpw_command_fini(&c);
    }
    static const char *const bad[] = {"--check=0",     "--check=-1",         "--check=Step",
                                      "--check=steps", "--check=2147483648", "--check=1.5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse(bad[i], TPW_ERR_ARGUMENT, "--check|step, end, off");
    refuse("--check=off|--trace=t", TPW_ERR_ARGUMENT, "--trace|--check=off");
    refuse("--check=off|--expect=t", TPW_ERR_ARGUMENT, "--expect|--check=off");
    refuse("--trace-every=0", TPW_ERR_ARGUMENT, "--trace-every");
}

Test(options, commands_take_their_words_and_flags)
{
    tpw_command c;
    accept("diff|a.jsonl|b.jsonl|--json=-", &c);
    cr_assert_eq(c.action, TPW_ACTION_DIFF);
    cr_assert_str_eq(c.words[0], "a.jsonl");
    cr_assert_str_eq(c.words[1], "b.jsonl");
    tpw_command_fini(&c);
    refuse("diff|a", TPW_ERR_ARGUMENT, "diff takes A B|1 of them");
    refuse("diff|a|b|c", TPW_ERR_ARGUMENT, "diff takes A B|\"c\"|too many");
    refuse("diff|a|b|--k=2", TPW_ERR_ARGUMENT, "--k|diff");
    accept("probe", &c);
    cr_assert_eq(c.action, TPW_ACTION_PROBE);
    cr_assert_eq(c.values.k.data[0], 4);
    cr_assert_eq(c.values.sequences, 3);
    cr_assert_eq(c.values.repeat, 3);
    tpw_command_fini(&c);
    refuse("probe|--k=0", TPW_ERR_ARGUMENT, "--k 0|1..8");
    refuse("probe|--k=1,2", TPW_ERR_ARGUMENT, "--k|probe");
    refuse("probe|--prompt=x", TPW_ERR_ARGUMENT, "--prompt|probe");
    accept("verify|--quick|--junit=v.xml", &c);
    cr_assert_eq(c.action, TPW_ACTION_VERIFY);
    cr_assert(c.values.quick);
    tpw_command_fini(&c);
    refuse("verify|--k=1", TPW_ERR_ARGUMENT, "--k|verify");
    refuse("verify|--fault=x", TPW_ERR_ARGUMENT, "--fault|verify");
    refuse("--quick", TPW_ERR_ARGUMENT, "--quick|run");
    refuse("bench|--trace=t", TPW_ERR_ARGUMENT, "--trace|bench");
    /* what other commands use may stand in the environment */
    static const char *const set[] = {"TPWORKER_K=0,1", "TPWORKER_TRACE=t", NULL};
    environment = set;
    accept("verify", &c);
    tpw_command_fini(&c);
    environment = NULL;
}
