/* Tests of the reports of failed jobs and of the JSON lines. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/jsonl.h"
#include "cli/report.h"
#include "temp_folder.h"

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(root, "%s: %s", text, error.text);
    return root;
}

static const char *string_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    cr_assert_not_null(text, "%s", key);
    return text;
}

static json_int_t int_at(const json_t *object, const char *key)
{
    cr_assert(json_is_integer(json_object_get(object, key)), "%s", key);
    return json_integer_value(json_object_get(object, key));
}

Test(report, a_line_says_who_where_and_why_and_lines_add_up)
{
    temp_folder temp;
    tpw_error err = {0};
    tpw_report report = {.job = "77",
                         .rank = 3,
                         .size = 4,
                         .host = "n\xFF",
                         .step = 12,
                         .status = TPW_ERR_PEER,
                         .text = "rank 1 said \"no\"\n"};
    char lines[2][2048];
    temp_make(&temp);
    cr_assert_eq(tpw_report_write(temp.path, &report, &err), TPW_OK, "%s", err.text);
    report.status = TPW_ERR_DIVERGED;
    cr_assert_eq(tpw_report_write(temp.path, &report, &err), TPW_OK);
    FILE *file = fopen(temp_path(&temp, "tpworker.77.3.jsonl"), "r");
    cr_assert_not_null(file);
    cr_assert(fgets(lines[0], sizeof lines[0], file) && fgets(lines[1], sizeof lines[1], file));
    cr_assert_eq(fgetc(file), EOF);
    fclose(file);
    json_t *first = parse(lines[0]);
    json_t *second = parse(lines[1]);
    cr_assert_str_eq(string_at(first, "type"), "report");
    cr_assert_eq(int_at(first, "schema"), 1);
    cr_assert_str_eq(string_at(first, "status"), "ERR_PEER");
    cr_assert_eq(int_at(first, "exit"), 72);
    cr_assert_eq(int_at(first, "rank"), 3);
    cr_assert_eq(int_at(first, "size"), 4);
    cr_assert_eq(int_at(first, "step"), 12);
    cr_assert_eq(int_at(first, "pid"), getpid());
    cr_assert_str_eq(string_at(first, "host"), "n\xEF\xBF\xBD");
    cr_assert_str_eq(string_at(first, "text"), "rank 1 said \"no\"\n");
    cr_assert_eq(int_at(second, "exit"), 71);
    json_decref(first);
    json_decref(second);
    temp_remove(&temp);
}

Test(report, a_folder_that_is_not_there_is_named)
{
    tpw_error err = {0};
    tpw_report report = {.job = "1", .host = "h", .status = TPW_ERR_PEER, .text = "t"};
    cr_assert_eq(tpw_report_write("/nonexistent", &report, &err), TPW_ERR_IO);
    cr_assert_not_null(strstr(err.text, "/nonexistent/tpworker.1.0.jsonl"), "%s", err.text);
    char deep[5000];
    memset(deep, 'd', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    cr_assert_eq(tpw_report_write(deep, &report, &err), TPW_ERR_IO);
}

Test(report, only_failures_of_the_job_leave_one)
{
    int wanted = 0;
#define COUNT(name, value, text) wanted += tpw_report_wanted(TPW_##name);
    TPW_STATUS_MAP(COUNT)
#undef COUNT
    cr_assert_eq(wanted, 4);
    cr_assert(tpw_report_wanted(TPW_ERR_PEER) && tpw_report_wanted(TPW_ERR_DIVERGED) &&
              tpw_report_wanted(TPW_ERR_DEVICE) && tpw_report_wanted(TPW_ERR_INTERNAL));
}

Test(report, one_rank_speaks)
{
    static const char waited[] = "rank 2 (a) waited 2.0 s in allreduce of step 3 (step) for rank 0 (b): no answer";
    cr_assert(tpw_report_speaks(0, TPW_ERR_CHECKPOINT, "x"));
    cr_assert_not(tpw_report_speaks(2, TPW_ERR_CHECKPOINT, waited));
    cr_assert(tpw_report_speaks(2, TPW_ERR_PEER, waited));
    cr_assert_not(tpw_report_speaks(1, TPW_ERR_PEER, waited), "rank 1 only heard of it");
    cr_assert_not(tpw_report_speaks(2, TPW_ERR_PEER, "rank 2 (a) waited 2.0 s in x for rank 1 (b): no answer"));
    cr_assert_not(tpw_report_speaks(2, TPW_ERR_PEER, "rank 0 (b) failed in step 3: bad"));
}

/* What is queued in a sink, as text. */
static const char *queued(tpw_sink *sink)
{
    tpw_sink_push(sink, "", 1);
    return sink->data + sink->start;
}

Test(jsonl, a_result_has_ids_text_and_digests)
{
    tpw_scope_digest scopes[] = {{"tokens", -1, 0xABC}, {"kv", 3, 1}};
    int32_t ids[] = {5, 6};
    tpw_prompt prompt = {.id = json_string("q"), .count = 4};
    tpw_prompts prompts = {.data = &prompt, .count = 1};
    tpw_result result = {
        .ids = ids, .count = 2, .finished = true, .finish = TPW_FINISH_STOP, .digests = scopes, .digest_count = 2};
    tpw_results results = {.data = &result, .count = 1};
    tpw_sink sink;
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_jsonl_result(&sink, &prompts, &results, 0, true);
    json_t *line = parse(queued(&sink));
    cr_assert_str_eq(string_at(line, "type"), "result");
    cr_assert_str_eq(string_at(line, "id"), "q");
    cr_assert_str_eq(string_at(line, "finish"), "stop");
    cr_assert_eq(int_at(line, "prompt_tokens"), 4);
    cr_assert_eq(int_at(line, "output_tokens"), 2);
    cr_assert(json_is_null(json_object_get(line, "text")), "without a tokenizer there is no text");
    cr_assert_eq(json_integer_value(json_array_get(json_object_get(line, "ids"), 1)), 6);
    cr_assert_eq(strlen(string_at(line, "digest")), 16u);
    const json_t *list = json_object_get(line, "digests");
    cr_assert_eq(json_array_size(list), 2u);
    cr_assert_str_eq(string_at(json_array_get(list, 0), "global"), "0000000000000abc");
    cr_assert(json_is_null(json_object_get(json_array_get(list, 0), "layer")));
    cr_assert_eq(int_at(json_array_get(list, 1), "layer"), 3);
    json_decref(line);
    json_decref(prompt.id);
    tpw_sink_fini(&sink);
}

Test(jsonl, errors_with_any_bytes_become_valid_lines)
{
    tpw_sink sink;
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_jsonl_error(&sink, TPW_ERR_MISSING, "/a\xC3/\"b\"\x01: not there");
    json_t *line = parse(queued(&sink));
    cr_assert_str_eq(string_at(line, "text"), "/a\xEF\xBF\xBD/\"b\"\x01: not there");
    cr_assert_eq(int_at(line, "exit"), 66);
    json_decref(line);
    tpw_sink_fini(&sink);
}

/* The newest exchanges stay, oldest first, and a report has an end. */
Test(report, the_ring_follows_its_line_and_is_cut_at_the_old_end)
{
    enum { COUNT = 400 };
    static tpw_ring_entry ring[COUNT];
    temp_folder temp;
    tpw_error err = {0};
    char line[1024];
    tpw_report report = {.job = "8", .size = 2, .host = "h", .status = TPW_ERR_DIVERGED, .text = "t", .ring = ring};
    for (int i = 0; i < COUNT; i++)
        ring[i] = (tpw_ring_entry){.seq = (uint64_t)(INT64_MAX - COUNT + i),
                                   .step = INT64_MIN,
                                   .op = "fifteen-letters",
                                   .bytes = INT64_MAX,
                                   .digest = 0xab,
                                   .begin_ns = INT64_MIN,
                                   .end_ns = 0};
    temp_make(&temp);
    report.ring_count = COUNT;
    cr_assert_eq(tpw_report_write(temp.path, &report, &err), TPW_OK, "%s", err.text);
    FILE *file = fopen(temp_path(&temp, "tpworker.8.0.jsonl"), "r");
    json_int_t before = 0;
    int lines = 0;
    while (fgets(line, sizeof line, file)) {
        json_t *root = parse(line);
        cr_assert_str_eq(string_at(root, "type"), lines == 0 ? "report" : "ring");
        if (lines++ > 0) {
            cr_assert_str_eq(string_at(root, "digest"), "00000000000000ab");
            cr_assert_str_eq(string_at(root, "op"), "fifteen-letters");
            cr_assert_eq(int_at(root, "end_ns"), 0);
            cr_assert(before == 0 || int_at(root, "seq") == before + 1);
            before = int_at(root, "seq");
        }
        json_decref(root);
    }
    cr_assert_eq(before, INT64_MAX - 1, "the last is the newest");
    cr_assert_gt(lines, 250);
    cr_assert_lt(lines, COUNT);
    cr_assert_leq(ftell(file), (long)TPW_REPORT_BYTES_MAX);
    cr_assert_gt(ftell(file), (long)TPW_REPORT_BYTES_MAX - 400);
    fclose(file);
    temp_remove(&temp);
}
