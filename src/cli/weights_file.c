/* Writes, reads and compares the digests of all tensors. SPDX-License-Identifier: Apache-2.0 */
#include "cli/weights_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "cli/jsonl.h"
#include "cli/replace_file.h"

#define FILE_BYTES_MAX ((size_t)1 << 30)
#define HEX_DIGITS     16

static char *make_text(const tpw_weight_digest *list, int32_t count)
{
    json_t *tensors = json_object();
    for (int32_t i = 0; tensors && i < count; i++) {
        if (json_object_set_new(tensors, list[i].name, tpw_json_hex(list[i].global)) != 0) {
            json_decref(tensors);
            tensors = NULL;
        }
    }
    json_t *root = json_pack("{s:s, s:i, s:i, s:o}", "type", "weights", "schema", TPW_WEIGHTS_SCHEMA, "digest_version",
                             TPW_DIGEST_VERSION, "tensors", tensors);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    char *ended = text ? realloc(text, strlen(text) + 2) : NULL;
    if (!ended) {
        free(text);
        return NULL;
    }
    memcpy(ended + strlen(ended), "\n", 2);
    return ended;
}

tpw_status tpw_weights_file_write(const char *path, const tpw_weight_digest *list, int32_t count, tpw_error *err)
{
    char *text = make_text(list, count);
    if (!text)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for the digests of %d tensors", path, count);
    tpw_status st = tpw_file_replace(path, "the file of digests", text, err);
    free(text);
    return st;
}

static tpw_status check_head(const json_t *root, const char *path, tpw_error *err)
{
    const char *type = NULL;
    int64_t number;
    TPW_TRY(tpw_json_string(root, "type", true, path, &type, err));
    if (strcmp(type, "weights") != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: type \"%.40s\" is not \"weights\": make it with tpworker inspect MODEL --digests FILE",
                        path, type);
    TPW_TRY(tpw_json_int(root, "schema", true, TPW_WEIGHTS_SCHEMA, TPW_WEIGHTS_SCHEMA, path, &number, err));
    return tpw_json_int(root, "digest_version", true, TPW_DIGEST_VERSION, TPW_DIGEST_VERSION, path, &number, err);
}

static tpw_status check_tensors(json_t *tensors, const char *path, tpw_error *err)
{
    const char *name;
    json_t *value;
    if (!json_is_object(tensors) || json_object_size(tensors) == 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"tensors\" must be an object of names and digests", path);
    json_object_foreach(tensors, name, value)
    {
        const char *text = json_string_value(value);
        if (!text || strlen(text) != HEX_DIGITS || strspn(text, "0123456789abcdef") != HEX_DIGITS)
            return tpw_fail(err, TPW_ERR_CHECKPOINT,
                            "%s: tensor %.200s: a digest must be 16 hexadecimal digits, found \"%.40s\"", path, name,
                            text ? text : "(not a string)");
    }
    return TPW_OK;
}

tpw_status tpw_weights_file_read(const char *path, json_t **out, tpw_error *err)
{
    json_t *root = NULL;
    TPW_TRY(tpw_json_load(path, FILE_BYTES_MAX, &root, err));
    json_t *tensors = json_object_get(root, "tensors");
    tpw_status st = check_head(root, path, err);
    if (st == TPW_OK)
        st = check_tensors(tensors, path, err);
    if (st == TPW_OK)
        *out = json_incref(tensors);
    json_decref(root);
    return st;
}

static int compare_name(const void *a, const void *b)
{
    return strcmp(((const tpw_weight_digest *)a)->name, ((const tpw_weight_digest *)b)->name);
}

tpw_status tpw_weights_compare(const char *path, const json_t *expected, const tpw_weight_digest *list, int32_t count,
                               tpw_error *err)
{
    const char *first = NULL;
    const char *wanted = NULL;
    const char *name;
    char found[HEX_DIGITS + 1] = "";
    size_t different = 0;
    size_t total = json_object_size(expected);
    for (int32_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_object_get(expected, list[i].name));
        char own[HEX_DIGITS + 1];
        snprintf(own, sizeof own, "%016" PRIx64, list[i].global);
        total += !text;
        if (text && strcmp(text, own) == 0)
            continue;
        if (different++ > 0)
            continue;
        first = list[i].name;
        wanted = text;
        memcpy(found, own, sizeof found);
    }
    json_t *value;
    json_object_foreach((json_t *)expected, name, value)
    {
        const tpw_weight_digest key = {.name = name};
        if (count > 0 && bsearch(&key, list, (size_t)count, sizeof key, compare_name))
            continue;
        different++;
        if (first && strcmp(first, name) < 0)
            continue;
        first = name;
        wanted = json_string_value(value);
        found[0] = '\0';
    }
    if (different == 0)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_DIVERGED, "tensor %.160s: the model's digest is %s, %.120s has %s; %zu of %zu differ",
                    first, found[0] ? found : "(no such tensor)", path, wanted ? wanted : "(no such tensor)", different,
                    total);
}
