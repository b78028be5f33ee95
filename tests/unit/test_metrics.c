/* Tests of the metrics: every line by the rules of the exposition format, values, and that the file is replaced whole.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/metrics.h"
#include "temp_folder.h"

#define SAMPLES_MAX 64

/* One sample line, labels as they stand with their escapes. */
typedef struct sample {
    char name[128];
    char labels[1024];
    bool counter;
    double value;
} sample;

typedef struct parsed {
    sample samples[SAMPLES_MAX];
    int count;
} parsed;

static size_t name_length(const char *text, bool colon)
{
    size_t n = 0;
    while (isalpha((unsigned char)text[n]) || text[n] == '_' || (colon && text[n] == ':') ||
           (n > 0 && isdigit((unsigned char)text[n])))
        n++;
    return n;
}

/* {name="value",...}: returns its length. A value escapes backslash, quote and line break, and nothing else. */
static size_t labels_length(const char *text)
{
    size_t at = 1;
    for (;;) {
        size_t name = name_length(text + at, false);
        cr_assert_gt(name, 0u, "%s", text);
        at += name;
        cr_assert_eq(strncmp(text + at, "=\"", 2), 0, "%s", text);
        for (at += 2; text[at] != '"'; at++) {
            cr_assert(text[at] != '\0' && text[at] != '\n', "%s", text);
            if (text[at] == '\\') {
                at++;
                cr_assert(text[at] == '\\' || text[at] == '"' || text[at] == 'n', "%s", text);
            }
        }
        at++;
        if (text[at] == '}')
            return at + 1;
        cr_assert_eq(text[at++], ',', "%s", text);
    }
}

static void parse_sample(const char *line, const char *family, bool counter, sample *out)
{
    size_t length = name_length(line, true);
    cr_assert_eq(strlen(family), length, "%s stands outside of its family %s", line, family);
    cr_assert_eq(strncmp(line, family, length), 0, "%s stands outside of its family %s", line, family);
    snprintf(out->name, sizeof out->name, "%.*s", (int)length, line);
    cr_assert_eq(line[length], '{', "%s", line);
    size_t labels = labels_length(line + length);
    snprintf(out->labels, sizeof out->labels, "%.*s", (int)labels, line + length);
    cr_assert_not_null(strstr(out->labels, "rank=\"0\""), "%s", line);
    char *end;
    cr_assert_eq(line[length + labels], ' ', "%s", line);
    out->value = strtod(line + length + labels + 1, &end);
    cr_assert(*end == '\0' && isfinite(out->value), "%s", line);
    out->counter = counter;
    if (counter) {
        cr_assert(out->value >= 0, "%s", line);
        cr_assert(length > 6 && strcmp(family + length - 6, "_total") == 0, "a counter's name ends in _total: %s",
                  line);
    }
}

/* HELP, TYPE, then the samples of one family; no family twice, no series twice. */
static void parse(const char *text, parsed *out)
{
    char copy[16384];
    char family[128] = "";
    char seen[4096] = " ";
    bool counter = false;
    bool typed = true;
    char *rest = copy;
    *out = (parsed){.count = 0};
    cr_assert_lt(strlen(text), sizeof copy);
    cr_assert_eq(text[strlen(text) - 1], '\n');
    snprintf(copy, sizeof copy, "%.*s", (int)strlen(text) - 1, text);
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            cr_assert(typed, "a HELP without TYPE before %s", line);
            size_t length = name_length(line + 7, true);
            cr_assert(length > 9 && strncmp(line + 7, "tpworker_", 9) == 0 && line[7 + length] == ' ', "%s", line);
            snprintf(family, sizeof family, "%.*s", (int)length, line + 7);
            char wanted[140];
            snprintf(wanted, sizeof wanted, " %s ", family);
            cr_assert_null(strstr(seen, wanted), "%s twice", family);
            snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s ", family);
            typed = false;
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            size_t length = strlen(family);
            cr_assert(!typed && strncmp(line + 7, family, length) == 0, "%s", line);
            counter = strcmp(line + 7 + length, " counter") == 0;
            cr_assert(counter || strcmp(line + 7 + length, " gauge") == 0, "%s", line);
            typed = true;
        } else {
            sample *s = &out->samples[out->count++];
            cr_assert(typed && out->count < SAMPLES_MAX, "%s", line);
            parse_sample(line, family, counter, s);
            for (int i = 0; i < out->count - 1; i++)
                cr_assert(strcmp(out->samples[i].name, s->name) != 0 || strcmp(out->samples[i].labels, s->labels) != 0,
                          "%s twice", line);
        }
    }
}

static double value_of(const parsed *p, const char *name, const char *label)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->samples[i].name, name) == 0 && strstr(p->samples[i].labels, label))
            return p->samples[i].value;
    cr_assert_fail("no %s with %s", name, label);
    return 0;
}

static void take(const tpw_metrics *m, parsed *out)
{
    char *text = tpw_metrics_text(m);
    cr_assert_not_null(text);
    parse(text, out);
    free(text);
}

static tpw_metrics busy_worker(void)
{
    return (tpw_metrics){.slots_total = 8,
                         .finished = {3, 2, 1, 4},
                         .size = 2,
                         .model = "/models/pocket",
                         .version = "1.2.3",
                         .stats = {.steps = 41,
                                   .prompt_tokens = 9007199254740993 - 1, /* 2^53: still exact */
                                   .output_tokens = 77,
                                   .step_ns = 2500000000,
                                   .prefill_ns = 500000000,
                                   .sequences_running = 5,
                                   .sequences_waiting = 6,
                                   .pages_free = 30,
                                   .pages_total = 40,
                                   .slots_free = 3,
                                   .drafts = 20,
                                   .draft_tokens = 40,
                                   .accepted_tokens = 25,
                                   .accepted_at = {15, 10},
                                   .checks = 99}};
}

Test(metrics, values_stand_where_vllm_has_them)
{
    tpw_metrics m = busy_worker();
    parsed p;
    take(&m, &p);
    static const struct {
        const char *name;
        const char *label;
        double value;
    } expected[] = {
        {"tpworker_build_info", "version=\"1.2.3\"", 1},
        {"tpworker_build_info", "model_name=\"/models/pocket\"", 1},
        {"tpworker_num_requests_running", "", 5},
        {"tpworker_num_requests_waiting", "", 6},
        {"tpworker_request_success_total", "finished_reason=\"length\"", 3},
        {"tpworker_request_success_total", "finished_reason=\"stop\"", 2},
        {"tpworker_request_success_total", "finished_reason=\"abort\"", 1},
        {"tpworker_request_success_total", "finished_reason=\"error\"", 4},
        {"tpworker_prompt_tokens_total", "", 9007199254740992.0},
        {"tpworker_generation_tokens_total", "", 77},
        {"tpworker_spec_decode_num_drafts_total", "", 20},
        {"tpworker_spec_decode_num_draft_tokens_total", "", 40},
        {"tpworker_spec_decode_num_accepted_tokens_total", "", 25},
        {"tpworker_spec_decode_num_accepted_tokens_per_pos_total", "position=\"0\"", 15},
        {"tpworker_spec_decode_num_accepted_tokens_per_pos_total", "position=\"1\"", 10},
        {"tpworker_spec_decode_num_accepted_tokens_per_pos_total", "position=\"7\"", 0},
        {"tpworker_kv_cache_usage_perc", "", 0.25},
        {"tpworker_state_slots_used", "", 5},
        {"tpworker_state_slots_total", "", 8},
        {"tpworker_steps_total", "", 41},
        {"tpworker_step_seconds_total", "", 2.5},
        {"tpworker_prefill_seconds_total", "", 0.5},
        {"tpworker_rank_checks_total", "", 99},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        cr_assert_float_eq(value_of(&p, expected[i].name, expected[i].label), expected[i].value, 1e-12, "%s %s",
                           expected[i].name, expected[i].label);
}

Test(metrics, an_idle_worker_has_numbers_too)
{
    tpw_metrics m = {.model = "", .version = ""};
    parsed p;
    take(&m, &p);
    cr_assert_eq(value_of(&p, "tpworker_kv_cache_usage_perc", ""), 0.0);
}

/* The parser checks the escapes; here, that the value comes back. */
Test(metrics, label_values_are_escaped)
{
    tpw_metrics m = busy_worker();
    parsed p;
    m.model = "a\\b\"c\nd{e}=,f \xC3\xA9\\";
    take(&m, &p);
    cr_assert_eq(value_of(&p, "tpworker_build_info", "model_name=\"a\\\\b\\\"c\\nd{e}=,f \xC3\xA9\\\\\"}"), 1.0);
}

Test(metrics, counters_never_fall)
{
    tpw_metrics m = busy_worker();
    parsed before;
    parsed after;
    take(&m, &before);
    m.stats.steps++;
    m.stats.step_ns += 7;
    m.stats.output_tokens += 3;
    m.stats.accepted_at[1]++;
    m.stats.pages_free = 0;
    m.stats.sequences_running = 0;
    m.finished[0]++;
    take(&m, &after);
    cr_assert_eq(before.count, after.count);
    int counters = 0;
    int risen = 0;
    for (int i = 0; i < after.count; i++) {
        cr_assert_str_eq(before.samples[i].name, after.samples[i].name);
        cr_assert_str_eq(before.samples[i].labels, after.samples[i].labels);
        if (!after.samples[i].counter)
            continue;
        counters++;
        cr_assert_geq(after.samples[i].value, before.samples[i].value, "%s", after.samples[i].name);
        risen += after.samples[i].value > before.samples[i].value;
    }
    cr_assert_geq(counters, 20);
    cr_assert_eq(risen, 5);
}

static char *file_text(const char *path)
{
    static char text[4096];
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = '\0';
    fclose(file);
    return text;
}

static int entries(const temp_folder *temp)
{
    int count = 0;
    DIR *folder = opendir(temp->path);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 2;
}

Test(metrics, the_file_is_replaced_and_nothing_is_left_beside_it)
{
    temp_folder temp;
    tpw_error err = {0};
    char path[512];
    temp_make(&temp);
    snprintf(path, sizeof path, "%s", temp_path(&temp, "m.prom"));
    cr_assert_eq(tpw_metrics_replace(path, "a 1\n", &err), TPW_OK, "%s", err.text);
    FILE *reader = fopen(path, "r"); /* one who has the old file open keeps it whole */
    cr_assert_eq(tpw_metrics_replace(path, "b 2\n", &err), TPW_OK, "%s", err.text);
    char line[16] = "";
    cr_assert_not_null(fgets(line, sizeof line, reader));
    fclose(reader);
    cr_assert_str_eq(line, "a 1\n");
    cr_assert_str_eq(file_text(path), "b 2\n");
    cr_assert_eq(entries(&temp), 1);
    temp_remove(&temp);
}

Test(metrics, failures_name_the_file_and_leave_the_old_text)
{
    temp_folder temp;
    tpw_error err = {0};
    char path[512];
    temp_make(&temp);
    snprintf(path, sizeof path, "%s", temp_path(&temp, "nowhere/m.prom"));
    cr_assert_eq(tpw_metrics_replace(path, "a 1\n", &err), TPW_ERR_IO);
    cr_assert_not_null(strstr(err.text, "nowhere/m.prom"), "%s", err.text);
    cr_assert_eq(tpw_metrics_replace("/dev/null", "a 1\n", &err), TPW_ERR_IO, "a rename would replace the device");
    cr_assert_not_null(strstr(err.text, "/dev/null"), "%s", err.text);
    cr_assert_eq(tpw_metrics_replace(temp.path, "a 1\n", &err), TPW_ERR_IO, "a folder");
    struct stat found;
    cr_assert_eq(stat("/dev/null", &found), 0);
    cr_assert(S_ISCHR(found.st_mode));
    /* a folder stands where the temporary file would: the old text stays */
    snprintf(path, sizeof path, "%s", temp_path(&temp, "m.prom"));
    cr_assert_eq(tpw_metrics_replace(path, "a 1\n", &err), TPW_OK);
    char blocked[600];
    snprintf(blocked, sizeof blocked, "%s.tmp.%lld", path, (long long)getpid());
    cr_assert_eq(mkdir(blocked, 0700), 0);
    cr_assert_eq(tpw_metrics_replace(path, "b 2\n", &err), TPW_ERR_IO);
    cr_assert_str_eq(file_text(path), "a 1\n");
    char *long_path = malloc(5000);
    memset(long_path, 'x', 4999);
    long_path[4999] = '\0';
    cr_assert_eq(tpw_metrics_replace(long_path, "a 1\n", &err), TPW_ERR_IO);
    free(long_path);
    temp_remove(&temp);
}

Test(metrics, a_file_that_nobody_wants_is_not_due)
{
    tpw_metrics m = busy_worker();
    tpw_metrics_file none = {0};
    tpw_metrics_file_write(&none, &m);
    cr_assert_eq(none.status, TPW_OK);
    cr_assert_not(tpw_metrics_file_due(&none));
    tpw_metrics_file bad = {.path = "/nowhere/m.prom"};
    cr_assert(tpw_metrics_file_due(&bad));
    tpw_metrics_file_write(&bad, &m);
    cr_assert_eq(bad.status, TPW_ERR_IO);
    cr_assert_not_null(strstr(bad.error.text, "/nowhere/m.prom"));
    cr_assert_not(tpw_metrics_file_due(&bad), "not again before 10 s have passed");
}
