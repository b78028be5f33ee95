/* Tests of the prompts file and the built-in prompts. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "cli/prompts.h"
#include "model/tokenizer.h"
#include "temp_folder.h"

static tpw_status read_bytes(const char *text, size_t bytes, tpw_prompts *out, tpw_error *err)
{
    temp_folder temp;
    temp_make(&temp);
    temp_write(&temp, "p.jsonl", text, bytes);
    *err = (tpw_error){0};
    tpw_status st = tpw_prompts_read(temp_path(&temp, "p.jsonl"), 128, out, err);
    temp_remove(&temp);
    return st;
}

static void accept(const char *text, tpw_prompts *out)
{
    tpw_error err;
    cr_assert_eq(read_bytes(text, strlen(text), out, &err), TPW_OK, "%s: %s", text, err.text);
}

/* Refused as a usage error that names the line and every '|'-separated part. */
static void refuse(const char *text, int line, const char *parts)
{
    tpw_prompts prompts;
    tpw_error err;
    char place[32];
    char wanted[256];
    tpw_status st = read_bytes(text, strlen(text), &prompts, &err);
    cr_assert_eq(st, TPW_ERR_ARGUMENT, "%s: %s, \"%s\"", text, tpw_status_name(st), err.text);
    cr_assert_eq(err.status, TPW_ERR_ARGUMENT);
    snprintf(place, sizeof place, "p.jsonl:%d", line);
    cr_assert_not_null(strstr(err.text, line > 0 ? place : "p.jsonl"), "%s: \"%s\" lacks %s", text, err.text, place);
    snprintf(wanted, sizeof wanted, "%s", parts);
    for (char *part = strtok(wanted, "|"); part; part = strtok(NULL, "|"))
        cr_assert_not_null(strstr(err.text, part), "%s: \"%s\" lacks \"%s\"", text, err.text, part);
    tpw_prompts_fini(&prompts);
}

Test(prompts, texts_and_ids_are_read_with_their_limits)
{
    tpw_prompts p;
    accept("{\"id\": \"a\", \"text\": \"caf\\u00e9\", \"max_tokens\": 3}\n"
           "{\"id\": -7, \"ids\": [0, 5, 2147483647]}\n"
           "{\"text\": \"x\"}",
           &p);
    cr_assert_eq(p.count, 3u);
    cr_assert_str_eq(json_string_value(p.data[0].id), "a");
    cr_assert_str_eq(p.data[0].text, "caf\xC3\xA9");
    cr_assert_eq(p.data[0].text_bytes, 5u);
    cr_assert_eq(p.data[0].max_tokens, 3);
    cr_assert_null(p.data[0].ids);
    cr_assert_eq(json_integer_value(p.data[1].id), -7);
    cr_assert_eq(p.data[1].count, 3);
    cr_assert_eq(p.data[1].ids[2], 2147483647);
    cr_assert_eq(p.data[1].max_tokens, 128);
    cr_assert_null(p.data[1].text);
    cr_assert_eq(json_integer_value(p.data[2].id), 2);
    cr_assert_eq(p.data[2].line, 3);
    char where[64];
    tpw_prompt_where(&p, 2, where, sizeof where);
    cr_assert_not_null(strstr(p.origin, "/p.jsonl"));
    tpw_prompts_fini(&p);
}

Test(prompts, marks_blank_lines_and_carriage_returns_are_taken_off)
{
    tpw_prompts p;
    accept("\xEF\xBB\xBF{\"text\": \"a\"}\r\n\r\n  \t\n\n{\"text\": \"b\\r\"}\r\n\n", &p);
    cr_assert_eq(p.count, 2u);
    cr_assert_eq(p.data[0].line, 1);
    cr_assert_str_eq(p.data[0].text, "a");
    cr_assert_eq(p.data[1].line, 5);
    cr_assert_str_eq(p.data[1].text, "b\r");
    tpw_prompts_fini(&p);
}

Test(prompts, lines_that_are_not_a_prompt_are_refused)
{
    refuse("{\"text\": \"a\"}\n{\"text\": \"b\", \"max_token\": 3}", 2, "unknown key|max_token");
    refuse("\n\n{\"text\": \"a\", \"ids\": [1]}", 3, "either|not both");
    refuse("{\"id\": 3}", 1, "either");
    refuse("{}", 1, "either");
    refuse("{\"text\": \"\"}", 1, "empty");
    refuse("{\"text\": 3}", 1, "text|string");
    refuse("{\"text\": null}", 1, "text|string");
    refuse("{\"ids\": []}", 1, "ids");
    refuse("{\"ids\": 3}", 1, "ids");
    refuse("{\"ids\": [1, -1]}", 1, "ids|item 1");
    refuse("{\"ids\": [2147483648]}", 1, "item 0");
    refuse("{\"ids\": [1.0]}", 1, "item 0");
    refuse("{\"text\": \"a\", \"max_tokens\": 0}", 1, "max_tokens");
    refuse("{\"text\": \"a\", \"max_tokens\": \"3\"}", 1, "max_tokens");
    refuse("{\"text\": \"a\", \"id\": 1.5}", 1, "id");
    refuse("{\"text\": \"a\", \"id\": null}", 1, "id");
    refuse("{\"text\": \"a\", \"text\": \"b\"}", 1, "duplicate");
    refuse("{\"text\": \"a\"} {\"text\": \"b\"}", 1, "end of file");
    refuse("{\"text\": \"a\"", 1, "JSON");
    refuse("{\"text\": \"a\"}\n \n[1]", 3, "'{'");
    refuse("{\"text\": \"a\\u0000b\"}", 1, "JSON");
    refuse("{\"text\": \"a\\ud800\"}", 1, "JSON");
    refuse("{\"text\": \"a\"}\n\xEF\xBB\xBF{\"text\": \"b\"}", 2, "'{'");
    refuse("", 0, "no prompt");
    refuse("\n \r\n", 0, "no prompt");
}

Test(prompts, invalid_utf8_is_named_by_its_byte)
{
    refuse("{\"text\": \"a\"}\n{\"text\": \"ab\xFF\"}", 2, "UTF-8|byte 12");
    refuse("{\"text\": \"\xC3\"}", 1, "UTF-8|byte 10");
}

Test(prompts, a_zero_byte_in_the_file_is_refused)
{
    static const char text[] = "{\"text\": \"a\0b\"}";
    tpw_prompts p;
    tpw_error err;
    cr_assert_eq(read_bytes(text, sizeof text - 1, &p, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "p.jsonl:1"), "%s", err.text);
    tpw_prompts_fini(&p);
}

Test(prompts, equal_ids_are_refused_wherever_they_stand)
{
    refuse("{\"id\": 5, \"text\": \"a\"}\n\n{\"id\": 4, \"text\": \"b\"}\n{\"id\": 5, \"text\": \"c\"}", 4, "line 1");
    refuse("{\"id\": \"z\", \"text\": \"a\"}\n{\"id\": \"z\", \"text\": \"c\"}", 2, "line 1");
    /* the second prompt's default is 1 */
    refuse("{\"id\": 1, \"text\": \"a\"}\n{\"text\": \"c\"}", 2, "line 1");
    tpw_prompts p;
    accept("{\"id\": 1, \"text\": \"a\"}\n{\"id\": \"1\", \"text\": \"c\"}", &p); /* a number is not a string */
    tpw_prompts_fini(&p);
}

Test(prompts, long_lines_have_a_limit)
{
    tpw_prompts p;
    tpw_error err;
    size_t bytes = TPW_PROMPT_LINE_BYTES_MAX + 1;
    char *text = malloc(bytes);
    memset(text, 'a', bytes);
    memcpy(text, "{\"text\": \"", 10);
    memcpy(text + bytes - 2, "\"}", 2);
    cr_assert_eq(read_bytes(text, bytes, &p, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "p.jsonl:1"), "%s", err.text);
    tpw_prompts_fini(&p);
    /* one byte less is a long, but legal line */
    memcpy(text + bytes - 3, "\"}", 2);
    cr_assert_eq(read_bytes(text, bytes - 1, &p, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(p.data[0].text_bytes, bytes - 1 - 12);
    tpw_prompts_fini(&p);
    free(text);
}

Test(prompts, a_missing_file_and_a_folder_are_told_apart)
{
    tpw_prompts p;
    tpw_error err = {0};
    cr_assert_eq(tpw_prompts_read("/nonexistent/p.jsonl", 1, &p, &err), TPW_ERR_MISSING);
    cr_assert_not_null(strstr(err.text, "/nonexistent/p.jsonl"));
    tpw_prompts_fini(&p);
    cr_assert_eq(tpw_prompts_read("/tmp", 1, &p, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(err.status, TPW_ERR_ARGUMENT);
    tpw_prompts_fini(&p);
}

Test(prompts, many_lines_keep_their_order)
{
    enum { COUNT = 1000 };
    char *text = malloc(COUNT * 32);
    size_t at = 0;
    for (int i = 0; i < COUNT; i++)
        at += (size_t)sprintf(text + at, "{\"ids\": [%d]}\n", i);
    tpw_prompts p;
    tpw_error err;
    cr_assert_eq(read_bytes(text, at, &p, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(p.count, (size_t)COUNT);
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(p.data[i].ids[0], i);
        cr_assert_eq(p.data[i].line, i + 1);
        cr_assert_eq(json_integer_value(p.data[i].id), i);
    }
    tpw_prompts_fini(&p);
    free(text);
}

Test(prompts, flags_become_numbered_prompts)
{
    char *words[] = {(char *)"one", (char *)"two"};
    char *bad[] = {(char *)"one", (char *)"t\xFFo"};
    tpw_prompts p;
    tpw_error err = {0};
    char where[64];
    cr_assert_eq(tpw_prompts_from_texts(&(tpw_texts){words, 2}, 9, &p, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(p.count, 2u);
    cr_assert_str_eq(p.data[1].text, "two");
    cr_assert_eq(p.data[1].max_tokens, 9);
    cr_assert_eq(json_integer_value(p.data[1].id), 1);
    tpw_prompt_where(&p, 1, where, sizeof where);
    cr_assert_str_eq(where, "--prompt 2");
    tpw_prompts_fini(&p);
    cr_assert_eq(tpw_prompts_from_texts(&(tpw_texts){bad, 2}, 9, &p, &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "--prompt 2: not valid UTF-8 at byte 1"), "%s", err.text);
    tpw_prompts_fini(&p);
}

Test(prompts, built_in_ones_are_valid_for_any_vocabulary)
{
    tpw_prompts p;
    tpw_error err = {0};
    size_t bad_at;
    cr_assert_eq(tpw_prompts_demo(64, &p, &err), TPW_OK);
    cr_assert_geq(p.count, 3u);
    for (size_t i = 0; i < p.count; i++) {
        cr_assert(tpw_utf8_valid(p.data[i].text, p.data[i].text_bytes, &bad_at));
        cr_assert_eq(p.data[i].max_tokens, 64);
    }
    tpw_prompts_fini(&p);
    static const int32_t sizes[] = {1, 2, 1000, 2147483647};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        cr_assert_eq(tpw_prompts_demo_ids(sizes[s], 64, &p, &err), TPW_OK);
        cr_assert_geq(p.count, 3u);
        for (size_t i = 0; i < p.count; i++)
            for (int32_t j = 0; j < p.data[i].count; j++)
                cr_assert(p.data[i].ids[j] >= 0 && p.data[i].ids[j] < sizes[s]);
        tpw_prompts_fini(&p);
    }
}
