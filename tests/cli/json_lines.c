/* Checks a file of JSON Lines: every line a strict object with "type" and "schema" 1, and what the arguments say.
 *
 *   json_lines FILE [TYPE#COUNT | TYPE.KEY=VALUE | TYPE.KEY? | @TYPE.KEY]...
 *
 * TYPE#COUNT: so many lines of this type. TYPE.KEY=VALUE: in all of them (at least one). TYPE.KEY?: not null in all of them.
 * @TYPE.KEY: prints the values. Strings stand as they are, everything else as compact JSON. SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *read_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    json_t *lines = json_array();
    char *text = NULL;
    size_t room = 0;
    ssize_t bytes;
    if (!file) {
        perror(path);
        exit(1);
    }
    while ((bytes = getline(&text, &room, file)) > 0) {
        json_error_t error;
        json_t *line = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
        if (text[bytes - 1] != '\n' || !line || !json_is_string(json_object_get(line, "type")) ||
            json_integer_value(json_object_get(line, "schema")) != 1) {
            fprintf(stderr, "%s: line %zu is not one of ours: %s", path, json_array_size(lines) + 1, text);
            exit(1);
        }
        json_array_append_new(lines, line);
    }
    free(text);
    fclose(file);
    return lines;
}

static char *value_text(const json_t *value)
{
    if (!value)
        return strdup("(no such key)");
    return json_is_string(value) ? strdup(json_string_value(value)) : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* One condition over all lines; false after it has said what is wrong. */
static bool check(const json_t *lines, const char *condition)
{
    bool print = condition[0] == '@';
    const char *type = condition + print;
    size_t type_bytes = strcspn(type, ".#");
    char kind = type[type_bytes];
    const char *key = kind == '\0' ? "" : type + type_bytes + 1;
    size_t key_bytes = strcspn(key, "=?");
    char name[64];
    long count = 0;
    snprintf(name, sizeof name, "%.*s", (int)key_bytes, key);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *line = json_array_get(lines, i);
        const char *found = json_string_value(json_object_get(line, "type"));
        if (strlen(found) != type_bytes || strncmp(found, type, type_bytes) != 0)
            continue;
        count++;
        if (kind == '#')
            continue;
        const json_t *value = json_object_get(line, name);
        char *text = value_text(value);
        bool good =
            print || (key[key_bytes] == '?' ? value && !json_is_null(value) : strcmp(text, key + key_bytes + 1) == 0);
        if (print)
            puts(text);
        if (!good)
            fprintf(stderr, "%s: line %zu has %s\n", condition, i + 1, text);
        free(text);
        if (!good)
            return false;
    }
    bool enough = kind == '#' ? count == strtol(key, NULL, 10) : count > 0;
    if (!enough)
        fprintf(stderr, "%s: %ld lines\n", condition, count);
    return enough;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: json_lines FILE [CONDITION]...\n");
        return 2;
    }
    json_t *lines = read_lines(argv[1]);
    bool good = true;
    for (int i = 2; i < argc; i++)
        good = check(lines, argv[i]) && good;
    json_decref(lines);
    return good ? 0 : 1;
}
