/* Accepts byte-level BPE in the form that the Qwen family ships and refuses everything else by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer_sections.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 72

static bool says_nothing(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* A short description of a value for an error line. */
static const char *shown(const json_t *value, char text[SHOWN_MAX])
{
    switch (value == NULL ? JSON_NULL : json_typeof(value)) {
    case JSON_OBJECT:
        snprintf(text, SHOWN_MAX, "an object");
        break;
    case JSON_ARRAY:
        snprintf(text, SHOWN_MAX, "a list of %zu", json_array_size(value));
        break;
    case JSON_STRING:
        snprintf(text, SHOWN_MAX, "\"%.60s\"", json_string_value(value));
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        snprintf(text, SHOWN_MAX, "%g", json_number_value(value));
        break;
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return value == NULL ? "nothing" : "null";
    }
    return text;
}

static tpw_status refuse(const char *what, const char *key, const char *must_be, const json_t *found, tpw_error *err)
{
    char text[SHOWN_MAX];
    return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s%s%s must be %s, found %s", what, key[0] ? "." : "", key, must_be,
                    shown(found, text));
}

tpw_status tpw_tokenizer_check_keys(const json_t *object, const char *what, const char *const *known, tpw_error *err)
{
    if (!json_is_object(object))
        return refuse(what, "", "an object", object, err);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) /* Jansson's iteration takes no const */
    {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0)
            i++;
        if (known[i] == NULL && !says_nothing(value))
            return refuse(what, key, "absent (it is not known)", value, err);
    }
    return TPW_OK;
}

/* object[key] must be one that says nothing. */
static tpw_status need_nothing(const json_t *object, const char *what, const char *key, tpw_error *err)
{
    const json_t *value = json_object_get(object, key);
    return says_nothing(value) ? TPW_OK : refuse(what, key, "null", value, err);
}

static tpw_status need_string(const json_t *object, const char *what, const char *key, const char *wanted,
                              tpw_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_string(value) && strcmp(json_string_value(value), wanted) == 0)
        return TPW_OK;
    char must_be[SHOWN_MAX];
    snprintf(must_be, sizeof must_be, "\"%s\"", wanted);
    return refuse(what, key, must_be, value, err);
}

/* object[key] must be the given truth value; absent reads as `absent`. */
static tpw_status need_bool(const json_t *object, const char *what, const char *key, bool absent, bool wanted,
                            tpw_error *err)
{
    const json_t *value = json_object_get(object, key);
    if ((value == NULL && absent == wanted) || (json_is_boolean(value) && json_is_true(value) == wanted))
        return TPW_OK;
    return refuse(what, key, wanted ? "true" : "false", value, err);
}

static tpw_status read_normalizer(const json_t *section, bool *nfc, tpw_error *err)
{
    static const char *const known[] = {"type", NULL};
    static const char *const known_sequence[] = {"type", "normalizers", NULL};
    *nfc = false;
    if (section == NULL || json_is_null(section))
        return TPW_OK;
    const json_t *type = json_object_get(section, "type");
    if (json_is_string(type) && strcmp(json_string_value(type), "Sequence") == 0) {
        TPW_TRY(tpw_tokenizer_check_keys(section, "normalizer", known_sequence, err));
        const json_t *list = json_object_get(section, "normalizers");
        if (!json_is_array(list))
            return refuse("normalizer", "normalizers", "a list", list, err);
        for (size_t i = 0; i < json_array_size(list); i++) {
            TPW_TRY(tpw_tokenizer_check_keys(json_array_get(list, i), "normalizer.normalizers[]", known, err));
            TPW_TRY(need_string(json_array_get(list, i), "normalizer.normalizers[]", "type", "NFC", err));
            *nfc = true;
        }
        return TPW_OK;
    }
    TPW_TRY(tpw_tokenizer_check_keys(section, "normalizer", known, err));
    TPW_TRY(need_string(section, "normalizer", "type", "NFC", err));
    *nfc = true;
    return TPW_OK;
}

static tpw_status read_split(const json_t *section, tpw_tokenizer_sections *out, tpw_error *err)
{
    static const char *const what = "pre_tokenizer.pretokenizers[0]";
    static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const known_pattern[] = {"Regex", NULL};
    TPW_TRY(tpw_tokenizer_check_keys(section, what, known, err));
    TPW_TRY(need_string(section, what, "type", "Split", err));
    TPW_TRY(need_string(section, what, "behavior", "Isolated", err));
    TPW_TRY(need_bool(section, what, "invert", false, false, err));
    const json_t *pattern = json_object_get(section, "pattern");
    TPW_TRY(tpw_tokenizer_check_keys(pattern, "pre_tokenizer.pretokenizers[0].pattern", known_pattern, err));
    const json_t *regex = json_object_get(pattern, "Regex");
    if (!json_is_string(regex) || json_string_length(regex) == 0)
        return refuse(what, "pattern.Regex", "a regular expression", regex, err);
    out->pattern = json_string_value(regex);
    out->pattern_bytes = json_string_length(regex);
    return TPW_OK;
}

static tpw_status read_pre_tokenizer(const json_t *section, tpw_tokenizer_sections *out, tpw_error *err)
{
    static const char *const known[] = {"type", "pretokenizers", NULL};
    static const char *const known_bytes[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
    static const char *const what = "pre_tokenizer.pretokenizers[1]";
    if (!json_is_object(section))
        return refuse("pre_tokenizer", "", "a Sequence of Split and ByteLevel", section, err);
    TPW_TRY(need_string(section, "pre_tokenizer", "type", "Sequence", err));
    TPW_TRY(tpw_tokenizer_check_keys(section, "pre_tokenizer", known, err));
    const json_t *list = json_object_get(section, "pretokenizers");
    if (!json_is_array(list) || json_array_size(list) != 2)
        return refuse("pre_tokenizer", "pretokenizers", "a list of a Split and a ByteLevel", list, err);
    TPW_TRY(read_split(json_array_get(list, 0), out, err));
    const json_t *bytes = json_array_get(list, 1);
    TPW_TRY(tpw_tokenizer_check_keys(bytes, what, known_bytes, err));
    TPW_TRY(need_string(bytes, what, "type", "ByteLevel", err));
    TPW_TRY(need_bool(bytes, what, "add_prefix_space", true, false, err));
    return need_bool(bytes, what, "use_regex", true, false, err);
}

/* post_processor (may be absent) and decoder: ByteLevel. Their switches move offsets or act on other stages only. */
static tpw_status check_byte_level(const json_t *root, const char *key, bool required, tpw_error *err)
{
    static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
    const json_t *section = json_object_get(root, key);
    if (!required && (section == NULL || json_is_null(section)))
        return TPW_OK;
    if (!json_is_object(section))
        return refuse(key, "", "a ByteLevel", section, err);
    TPW_TRY(need_string(section, key, "type", "ByteLevel", err));
    return tpw_tokenizer_check_keys(section, key, known, err);
}

static tpw_status read_model(const json_t *model, tpw_tokenizer_sections *out, tpw_error *err)
{
    static const char *const known[] = {"type",
                                        "dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "byte_fallback",
                                        "fuse_unk",
                                        "ignore_merges",
                                        "end_of_word_suffix",
                                        "vocab",
                                        "merges",
                                        NULL};
    static const char *const nothing[] = {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"};
    if (!json_is_object(model))
        return refuse("model", "", "an object", model, err);
    TPW_TRY(need_string(model, "model", "type", "BPE", err));
    TPW_TRY(tpw_tokenizer_check_keys(model, "model", known, err));
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        TPW_TRY(need_nothing(model, "model", nothing[i], err));
    TPW_TRY(need_bool(model, "model", "byte_fallback", false, false, err));
    out->ignore_merges = false;
    TPW_TRY(tpw_json_bool(model, "ignore_merges", false, "model", &out->ignore_merges, err));
    out->vocab = json_object_get(model, "vocab");
    out->merges = json_object_get(model, "merges");
    if (!json_is_object(out->vocab))
        return refuse("model", "vocab", "an object", out->vocab, err);
    if (!json_is_array(out->merges))
        return refuse("model", "merges", "a list", out->merges, err);
    return TPW_OK;
}

tpw_status tpw_tokenizer_sections_read(const json_t *root, tpw_tokenizer_sections *out, tpw_error *err)
{
    static const char *const known[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    TPW_TRY(tpw_tokenizer_check_keys(root, "tokenizer", known, err));
    if (json_object_get(root, "version") != NULL)
        TPW_TRY(need_string(root, "tokenizer", "version", "1.0", err));
    TPW_TRY(need_nothing(root, "tokenizer", "truncation", err));
    TPW_TRY(need_nothing(root, "tokenizer", "padding", err));
    TPW_TRY(read_model(json_object_get(root, "model"), out, err));
    TPW_TRY(read_normalizer(json_object_get(root, "normalizer"), &out->nfc, err));
    TPW_TRY(read_pre_tokenizer(json_object_get(root, "pre_tokenizer"), out, err));
    TPW_TRY(check_byte_level(root, "post_processor", false, err));
    TPW_TRY(check_byte_level(root, "decoder", true, err));
    out->added = json_object_get(root, "added_tokens");
    if (json_is_null(out->added))
        out->added = NULL;
    if (out->added != NULL && !json_is_array(out->added))
        return refuse("tokenizer", "added_tokens", "a list", out->added, err);
    return TPW_OK;
}
