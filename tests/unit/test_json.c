/* Tests of strict JSON parsing and typed reads. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/json.h"
#include "temp_folder.h"

static json_t *parse(const char *text)
{
    json_t *root = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_json_parse(text, strlen(text), "t", &root, &err), TPW_OK, "%s: %s", text, err.text);
    return root;
}

Test(json, accepts_an_object_with_trailing_blanks)
{
    json_t *root = parse("{\"a\": [1, -2, 3.5, true, null, \"\\u00e9\"]}  \n\t ");
    cr_assert_eq(json_array_size(json_object_get(root, "a")), 6u);
    cr_assert_str_eq(json_string_value(json_array_get(json_object_get(root, "a"), 5)), "\xC3\xA9");
    json_decref(root);
}

Test(json, refuses_what_is_not_one_strict_object)
{
    static const char *const bad[] = {
        " {}",
        "\xEF\xBB\xBF{}",
        "[]",
        "1",
        "\"a\"",
        "null",
        "{",
        "{}{}",
        "{} x",
        "{\"a\":1,}",
        "{\"a\":1 \"b\":2}",
        "{'a':1}",
        "{a:1}",
        "{\"a\":01}",
        "{\"a\":1e400}",
        "{\"a\":-1e400}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{\"a\":9223372036854775808}",
        "{\"a\":-9223372036854775809}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\u0000\"}",
        "{\"a\\u0000b\":1}",
        "{\"a\":\"\xFF\"}",
        "{\"a\":\"\xC0\x80\"}",
        "{\"a\":\"\xED\xA0\x80\"}",
        "{\"a\":\"x\ny\"}",
        "{\"a\":1,\"b\":{\"c\":1,\"c\":1}}",
        "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"\\u0061\":2}",
        "{/* no */}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *root = NULL;
        tpw_error err = {0};
        tpw_status st = tpw_json_parse(bad[i], strlen(bad[i]), "some/file.json", &root, &err);
        cr_assert_eq(st, TPW_ERR_CHECKPOINT, "case %zu accepted: %s", i, bad[i]);
        cr_assert_eq(err.status, TPW_ERR_CHECKPOINT);
        cr_assert_null(root);
        cr_assert(strstr(err.text, "some/file.json"), "case %zu: %s", i, err.text);
        cr_assert_eq(tpw_json_parse(bad[i], strlen(bad[i]), "f", &root, NULL), TPW_ERR_CHECKPOINT);
    }
    json_t *root = NULL;
    cr_assert_eq(tpw_json_parse("{}", 0, "f", &root, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_json_parse(NULL, 0, "f", &root, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_json_parse("{\"a\":1}\0junk", 12, "f", &root, NULL), TPW_ERR_CHECKPOINT, "bytes after a NUL");
}

Test(json, names_a_duplicate_key_and_its_line)
{
    json_t *root = NULL;
    tpw_error err = {0};
    const char *text = "{\n\"hidden_size\": 1,\n\"hidden_size\": 2}";
    cr_assert_eq(tpw_json_parse(text, strlen(text), "f", &root, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "hidden_size") && strstr(err.text, "line 3"), "%s", err.text);
}

Test(json, limits_nesting)
{
    enum { DEEP = 100000 };
    char *text = malloc(5 + DEEP);
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', DEEP);
    json_t *root = NULL;
    cr_assert_eq(tpw_json_parse(text, 5 + DEEP, "f", &root, NULL), TPW_ERR_CHECKPOINT);
    free(text);
}

Test(json, every_truncation_is_an_error)
{
    static const char text[] = "{\"a\":{\"b\":[1,2.5,\"\\u00e9\xC3\xA9\",true,null]},\"c\":-7}";
    for (size_t n = 0; n + 1 < sizeof text; n++) {
        char *copy = malloc(n + 1); /* of the exact size, so that a read past the end is seen */
        memcpy(copy, text, n);
        json_t *root = NULL;
        cr_assert_eq(tpw_json_parse(copy, n, "f", &root, NULL), n + 1 == sizeof text ? TPW_OK : TPW_ERR_CHECKPOINT);
        free(copy);
    }
}

Test(json, integers_are_strict)
{
    json_t *o = parse("{\"i\":7,\"low\":-5,\"high\":9,\"max\":9223372036854775807,\"min\":-9223372036854775808,"
                      "\"r\":7.0,\"e\":1e3,\"s\":\"7\",\"b\":true,\"n\":null,\"l\":[7],\"o\":{}}");
    int64_t v = -1;
    cr_assert_eq(tpw_json_int(o, "i", true, 7, 7, "w", &v, NULL), TPW_OK);
    cr_assert_eq(v, 7);
    cr_assert_eq(tpw_json_int(o, "low", true, -5, 9, "w", &v, NULL), TPW_OK);
    cr_assert_eq(v, -5);
    cr_assert_eq(tpw_json_int(o, "high", true, -5, 9, "w", &v, NULL), TPW_OK);
    cr_assert_eq(v, 9);
    cr_assert_eq(tpw_json_int(o, "low", true, -4, 9, "w", &v, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_json_int(o, "high", true, -5, 8, "w", &v, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_json_int(o, "max", true, 0, INT64_MAX, "w", &v, NULL), TPW_OK);
    cr_assert_eq(v, INT64_MAX);
    cr_assert_eq(tpw_json_int(o, "min", true, INT64_MIN, 0, "w", &v, NULL), TPW_OK);
    cr_assert_eq(v, INT64_MIN);
    const char *wrong[] = {"r", "e", "s", "b", "l", "o"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        v = 42;
        cr_assert_eq(tpw_json_int(o, wrong[i], false, 0, 100000, "w", &v, NULL), TPW_ERR_CHECKPOINT, "%s", wrong[i]);
        cr_assert_eq(v, 42, "a refused value must not be stored");
    }
    json_decref(o);
}

Test(json, other_types_are_strict)
{
    json_t *o = parse("{\"i\":7,\"r\":7.5,\"s\":\"x\",\"t\":true,\"f\":false}");
    double r = 0;
    bool b = false;
    const char *s = NULL;
    cr_assert_eq(tpw_json_real(o, "i", true, "w", &r, NULL), TPW_OK);
    cr_assert_eq(r, 7.0);
    cr_assert_eq(tpw_json_real(o, "r", true, "w", &r, NULL), TPW_OK);
    cr_assert_eq(r, 7.5);
    cr_assert_eq(tpw_json_real(o, "s", true, "w", &r, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_json_real(o, "t", true, "w", &r, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_json_bool(o, "t", true, "w", &b, NULL), TPW_OK);
    cr_assert_eq(b, true);
    cr_assert_eq(tpw_json_bool(o, "f", true, "w", &b, NULL), TPW_OK);
    cr_assert_eq(b, false);
    cr_assert_eq(tpw_json_bool(o, "i", true, "w", &b, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_json_bool(o, "s", true, "w", &b, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_json_string(o, "s", true, "w", &s, NULL), TPW_OK);
    cr_assert_str_eq(s, "x");
    cr_assert_eq(tpw_json_string(o, "i", true, "w", &s, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_json_string(o, "t", true, "w", &s, NULL), TPW_ERR_CHECKPOINT);
    json_decref(o);
}

Test(json, missing_and_null_are_the_same)
{
    json_t *o = parse("{\"n\":null}");
    const char *keys[] = {"n", "absent"};
    for (int k = 0; k < 2; k++) {
        int64_t i = 11;
        double r = 1.25;
        bool b = true;
        const char *s = "kept";
        cr_assert_eq(tpw_json_int(o, keys[k], false, 0, 1, "w", &i, NULL), TPW_OK);
        cr_assert_eq(tpw_json_real(o, keys[k], false, "w", &r, NULL), TPW_OK);
        cr_assert_eq(tpw_json_bool(o, keys[k], false, "w", &b, NULL), TPW_OK);
        cr_assert_eq(tpw_json_string(o, keys[k], false, "w", &s, NULL), TPW_OK);
        cr_assert(i == 11 && r == 1.25 && b && strcmp(s, "kept") == 0);
        cr_assert_eq(tpw_json_int(o, keys[k], true, 0, 1, "w", &i, NULL), TPW_ERR_CHECKPOINT);
        cr_assert_eq(tpw_json_real(o, keys[k], true, "w", &r, NULL), TPW_ERR_CHECKPOINT);
        cr_assert_eq(tpw_json_bool(o, keys[k], true, "w", &b, NULL), TPW_ERR_CHECKPOINT);
        cr_assert_eq(tpw_json_string(o, keys[k], true, "w", &s, NULL), TPW_ERR_CHECKPOINT);
    }
    int64_t i = 0;
    tpw_error err = {0};
    cr_assert_eq(tpw_json_int(NULL, "k", true, 0, 1, "w", &i, &err), TPW_ERR_CHECKPOINT, "no object at all");
    cr_assert_str_eq(err.text, "w: key \"k\" is missing; it must be an integer in 0..1");
    json_decref(o);
}

Test(json, errors_name_the_key_the_rule_and_the_value)
{
    int64_t i = 0;
    tpw_error err = {0};
    json_t *o = parse("{\"hidden_size\":\"abc\",\"layers\":70000,\"real\":1.5,\"list\":[1],\"tied\":1}");
    cr_assert_eq(tpw_json_int(o, "hidden_size", true, 1, 65536, "a/config.json", &i, &err), TPW_ERR_CHECKPOINT);
    cr_assert_str_eq(err.text, "a/config.json: key \"hidden_size\" must be an integer in 1..65536, found \"abc\"");
    cr_assert_eq(tpw_json_int(o, "layers", true, 1, 1024, "c", &i, &err), TPW_ERR_CHECKPOINT);
    cr_assert_str_eq(err.text, "c: key \"layers\" must be an integer in 1..1024, found 70000");
    cr_assert_eq(tpw_json_int(o, "real", true, 1, 1024, "c", &i, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "found the real number 1.5"), "%s", err.text);
    cr_assert_eq(tpw_json_int(o, "list", true, 1, 1024, "c", &i, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "found a list"), "%s", err.text);
    bool b = false;
    cr_assert_eq(tpw_json_bool(o, "tied", true, "c", &b, &err), TPW_ERR_CHECKPOINT);
    cr_assert_str_eq(err.text, "c: key \"tied\" must be true or false, found 1");
    json_decref(o);
}

Test(json, long_values_are_cut_between_characters)
{
    /* 59 bytes, then characters of two bytes: byte 60 is inside the first of them */
    char text[200] = "{\"k\":\"";
    memset(text + 6, 'x', 59);
    strcpy(text + 65, "\xC3\xA9\xC3\xA9\xC3\xA9\"}");
    json_t *o = parse(text);
    int64_t i = 0;
    tpw_error err = {0};
    cr_assert_eq(tpw_json_int(o, "k", true, 0, 1, "w", &i, &err), TPW_ERR_CHECKPOINT);
    const char *dots = strstr(err.text, "...\"");
    cr_assert(dots, "%s", err.text);
    cr_assert_eq(dots[-1], 'x', "%s", err.text);
    json_decref(o);
}

Test(json, reads_files_whole)
{
    temp_folder temp;
    char *text = NULL;
    size_t bytes = 0;
    temp_make(&temp);
    temp_write(&temp, "f", "ab\0cd", 5);
    cr_assert_eq(tpw_file_read(temp_path(&temp, "f"), 5, &text, &bytes, NULL), TPW_OK, "the limit itself is allowed");
    cr_assert_eq(bytes, 5u);
    cr_assert_eq(memcmp(text, "ab\0cd", 6), 0, "content and the NUL behind it");
    free(text);
    text = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_file_read(temp_path(&temp, "f"), 4, &text, &bytes, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, temp.file) && strstr(err.text, "5 bytes"), "%s", err.text);
    temp_write(&temp, "empty", "", 0);
    cr_assert_eq(tpw_file_read(temp_path(&temp, "empty"), 0, &text, &bytes, NULL), TPW_OK);
    cr_assert(bytes == 0 && text[0] == '\0');
    free(text);
    temp_remove(&temp);
}

Test(json, refuses_what_is_not_a_file)
{
    temp_folder temp;
    char *text = NULL;
    size_t bytes = 0;
    tpw_error err = {0};
    temp_make(&temp);
    cr_assert_eq(tpw_file_read(temp_path(&temp, "absent"), 9, &text, &bytes, &err), TPW_ERR_MISSING);
    cr_assert(strstr(err.text, temp.file), "%s", err.text);
    temp_write_text(&temp, "f", "{}");
    cr_assert_eq(tpw_file_read(temp_path(&temp, "f/inside"), 9, &text, &bytes, NULL), TPW_ERR_MISSING);
    cr_assert_eq(tpw_file_read(temp.path, 9, &text, &bytes, NULL), TPW_ERR_CHECKPOINT, "a folder");
    cr_assert_eq(mkfifo(temp_path(&temp, "fifo"), 0600), 0);
    cr_assert_eq(tpw_file_read(temp.file, 9, &text, &bytes, NULL), TPW_ERR_CHECKPOINT, "must not wait for a writer");
    cr_assert_eq(symlink("loop", temp_path(&temp, "loop")), 0);
    cr_assert_eq(tpw_file_read(temp.file, 9, &text, &bytes, NULL), TPW_ERR_IO);
    cr_assert_null(text);
    temp_remove(&temp);
}

Test(json, loads_an_object_and_names_the_file)
{
    temp_folder temp;
    json_t *root = NULL;
    tpw_error err = {0};
    temp_make(&temp);
    temp_write_text(&temp, "good.json", "{\"a\":1}\n");
    cr_assert_eq(tpw_json_load(temp_path(&temp, "good.json"), 100, &root, NULL), TPW_OK);
    cr_assert_eq(json_integer_value(json_object_get(root, "a")), 1);
    json_decref(root);
    temp_write_text(&temp, "bad.json", "{\"a\":}");
    cr_assert_eq(tpw_json_load(temp_path(&temp, "bad.json"), 100, &root, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "bad.json"), "%s", err.text);
    cr_assert_eq(tpw_json_load(temp_path(&temp, "absent.json"), 100, &root, &err), TPW_ERR_MISSING);
    cr_assert_eq(tpw_json_load(temp_path(&temp, "good.json"), 3, &root, &err), TPW_ERR_CHECKPOINT);
    temp_remove(&temp);
}
