/* For tests of the tokenizer: variants of the pocket model's tokenizer.json, and ids compared with a JSON list.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_TOKENIZER_FILES_H
#define TPW_TESTS_TOKENIZER_FILES_H

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer.h"
#include "temp_folder.h"

static inline json_t *load_json(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    cr_assert_not_null(root, "%s: %s", path, error.text);
    return root;
}

/* Encodes and compares with a JSON list of ids. */
static inline void check_ids(const tpw_tokenizer *t, const char *text, size_t bytes, const json_t *wanted,
                             const char *name)
{
    int32_t *ids = NULL;
    size_t count = 0;
    tpw_error err = {0};
    cr_assert_eq(tpw_tokenizer_encode(t, text, bytes, &ids, &count, &err), TPW_OK, "%s: %s", name, err.text);
    cr_assert_not_null(ids);
    for (size_t i = 0; i < count && i < json_array_size(wanted); i++)
        cr_assert_eq(ids[i], json_integer_value(json_array_get(wanted, i)),
                     "%s: id %zu is %d instead of %lld in \"%s\"", name, i, ids[i],
                     (long long)json_integer_value(json_array_get(wanted, i)), text);
    cr_assert_eq(count, json_array_size(wanted), "%s: %zu ids instead of %zu in \"%s\"", name, count,
                 json_array_size(wanted), text);
    free(ids);
}

static inline tpw_status load_text(const char *text, size_t bytes, tpw_tokenizer **t, tpw_error *err)
{
    temp_folder temp;
    temp_make(&temp);
    temp_write(&temp, "tokenizer.json", text, bytes);
    tpw_status st = tpw_tokenizer_load(temp.path, t, err);
    temp_remove(&temp);
    return st;
}

static inline tpw_status load_root(const json_t *root, tpw_tokenizer **t, tpw_error *err)
{
    char *text = json_dumps(root, 0);
    cr_assert_not_null(text);
    tpw_status st = load_text(text, strlen(text), t, err);
    free(text);
    return st;
}

static inline json_t *parse(const char *value)
{
    json_error_t error;
    json_t *parsed = json_loads(value, JSON_DECODE_ANY, &error);
    cr_assert_not_null(parsed, "%s: %s", value, error.text);
    return parsed;
}

/* Sets the value at "model/vocab/x" or "added_tokens/0/id"; "-" as last part appends; value NULL deletes. */
static inline void set(json_t *root, const char *path, const char *value)
{
    char copy[128], *rest = copy;
    snprintf(copy, sizeof copy, "%s", path);
    json_t *at = root;
    for (char *part; (part = strsep(&rest, "/")) != NULL;) {
        if (rest != NULL) {
            at = json_is_array(at) ? json_array_get(at, strtoul(part, NULL, 10)) : json_object_get(at, part);
            cr_assert_not_null(at, "%s", path);
        } else if (value == NULL) {
            cr_assert_eq(json_is_array(at) ? json_array_remove(at, strtoul(part, NULL, 10)) : json_object_del(at, part),
                         0);
        } else if (json_is_array(at)) {
            cr_assert_eq(strcmp(part, "-") == 0 ? json_array_append_new(at, parse(value))
                                                : json_array_set_new(at, strtoul(part, NULL, 10), parse(value)),
                         0);
        } else {
            cr_assert_eq(json_object_set_new(at, part, parse(value)), 0);
        }
    }
}

#define ADDED(content, id, more) "{\"content\":\"" content "\",\"id\":" id "," more "}"
#define PLAIN                    "\"normalized\":false,\"special\":false"

#endif
