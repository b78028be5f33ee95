/* Tests src/model/tokenizer.c: ids as an independent implementation gives them, bytes back, and every refusal by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/pretokenize.h"
#include "model/tokenizer.h"
#include "temp_folder.h"

static tpw_tokenizer *load_pocket(void)
{
    tpw_tokenizer *t = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_tokenizer_load(TPW_TEST_POCKET, &t, &err), TPW_OK, "%s", err.text);
    return t;
}

static json_t *load_json(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    cr_assert_not_null(root, "%s: %s", path, error.text);
    return root;
}

/* Encodes and compares with a JSON list of ids. */
static void check_ids(const tpw_tokenizer *t, const char *text, size_t bytes, const json_t *wanted, const char *name)
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

Test(tokenizer, ids_of_the_independent_implementation)
{
    tpw_tokenizer *t = load_pocket();
    json_t *root = load_json(TPW_TEST_DATA "/tokenizer/pocket.json");
    const json_t *cases = json_object_get(root, "cases");
    size_t i;
    json_t *entry;
    json_array_foreach(cases, i, entry)
    {
        const json_t *text = json_object_get(entry, "text");
        char name[32];
        snprintf(name, sizeof name, "case %zu", i);
        check_ids(t, json_string_value(text), json_string_length(text), json_object_get(entry, "ids"), name);
    }
    cr_assert_geq(i, 600u);
    json_decref(root);
    tpw_tokenizer_destroy(t);
}

/* The bytes of the tokens of a text without added tokens are its composed form. */
Test(tokenizer, bytes_round_trip)
{
    tpw_tokenizer *t = load_pocket();
    json_t *root = load_json(TPW_TEST_DATA "/tokenizer/pocket.json");
    size_t i, compared = 0;
    json_t *entry;
    json_array_foreach(json_object_get(root, "cases"), i, entry)
    {
        const char *text = json_string_value(json_object_get(entry, "text"));
        size_t bytes = json_string_length(json_object_get(entry, "text")), composed_bytes, count, at = 0;
        char *composed;
        int32_t *ids;
        cr_assert_eq(tpw_text_compose(text, bytes, &composed, &composed_bytes, NULL), TPW_OK);
        cr_assert_eq(tpw_tokenizer_encode(t, text, bytes, &ids, &count, NULL), TPW_OK);
        const char *wanted = composed != NULL ? composed : text;
        bool special = false;
        for (size_t k = 0; k < count; k++)
            special = special || tpw_tokenizer_special(t, ids[k]);
        for (size_t k = 0; k < count && !special; k++) {
            const char *data;
            size_t length;
            cr_assert(tpw_tokenizer_bytes(t, ids[k], &data, &length));
            cr_assert(length <= composed_bytes - at && memcmp(data, wanted + at, length) == 0, "case %zu, id %zu", i,
                      k);
            at += length;
        }
        cr_assert(special || at == composed_bytes, "case %zu", i);
        compared += !special;
        free(composed);
        free(ids);
    }
    cr_assert_gt(compared, 450u);
    json_decref(root);
    tpw_tokenizer_destroy(t);
}

static char *decode(const tpw_tokenizer *t, const json_t *ids)
{
    tpw_utf8_stream stream = {0};
    char *out = malloc(json_array_size(ids) * 3 * (4096 + 4) + 16);
    size_t written = 0, i;
    json_t *id;
    json_array_foreach(ids, i, id)
    {
        const char *data;
        size_t bytes;
        cr_assert(tpw_tokenizer_bytes(t, (int32_t)json_integer_value(id), &data, &bytes));
        written += tpw_utf8_push(&stream, data, bytes, out + written);
    }
    written += tpw_utf8_finish(&stream, out + written);
    out[written] = '\0';
    return out;
}

Test(tokenizer, reference_prompts_and_outputs)
{
    tpw_tokenizer *t = load_pocket();
    json_t *root = load_json(TPW_TEST_POCKET "/reference/greedy.json"), *entry;
    size_t i, texts = 0, outputs = 0;
    json_array_foreach(root, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const json_t *text = json_object_get(entry, "text");
        const json_t *out_text = json_object_get(entry, "out_text");
        if (text != NULL) {
            check_ids(t, json_string_value(text), json_string_length(text), json_object_get(entry, "ids"), name);
            texts++;
        }
        if (out_text != NULL) {
            char *out = decode(t, json_object_get(entry, "out"));
            cr_assert_str_eq(out, json_string_value(out_text), "%s", name);
            free(out);
            outputs++;
        }
    }
    cr_assert_eq(texts, 4u);
    cr_assert_eq(outputs, 12u);
    json_decref(root);
    tpw_tokenizer_destroy(t);
}

static void check_token(const tpw_tokenizer *t, int32_t id, const char *bytes, size_t length, bool special)
{
    const char *data;
    size_t got;
    cr_assert(tpw_tokenizer_bytes(t, id, &data, &got), "id %d", id);
    cr_assert(got == length && memcmp(data, bytes, length) == 0, "id %d is \"%.*s\"", id, (int)got, data);
    cr_assert_eq(tpw_tokenizer_special(t, id), special, "id %d", id);
}

Test(tokenizer, single_tokens)
{
    tpw_tokenizer *t = load_pocket();
    cr_assert_eq(tpw_tokenizer_vocab(t), 2048);
    check_token(t, 0, "<|endoftext|>", 13, true);
    check_token(t, 2, "<|im_end|>", 10, true);
    check_token(t, 3, "!", 1, false); /* the byte tokens follow in the order of the alphabet */
    check_token(t, 96, "~", 1, false);
    check_token(t, 97, "\xA1", 1, false);
    check_token(t, 190, "\xFF", 1, false);
    check_token(t, 191, "\0", 1, false);
    check_token(t, 223, " ", 1, false);
    check_token(t, 258, "\xAD", 1, false);
    check_token(t, 259, " t", 2, false); /* the first merge */
    const char *data = "x";
    size_t bytes = 7;
    static const int32_t unknown[] = {-1, 2048, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        cr_assert_not(tpw_tokenizer_bytes(t, unknown[i], &data, &bytes));
        cr_assert_eq(bytes, 0u);
        cr_assert_not(tpw_tokenizer_special(t, unknown[i]));
    }
    tpw_tokenizer_destroy(t);
    tpw_tokenizer_destroy(NULL);
}

Test(tokenizer, refuses_text_that_is_not_utf8)
{
    static const struct {
        const char *text;
        size_t bytes;
        const char *at;
    } bad[] = {{"abc\xFF", 4, "byte 3"},
               {"\xC3", 1, "byte 0"},
               {"a\0\xED\xA0\x80", 5, "byte 2"},
               {"\xE2\x82\xAC\xE2\x82", 5, "byte 3"},
               {"<|im_end|>\x80", 11, "byte 10"}};
    tpw_tokenizer *t = load_pocket();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tpw_error err = {0};
        int32_t *ids = NULL;
        size_t count = 99;
        cr_assert_eq(tpw_tokenizer_encode(t, bad[i].text, bad[i].bytes, &ids, &count, &err), TPW_ERR_ARGUMENT);
        cr_assert(strstr(err.text, bad[i].at), "%s", err.text);
        cr_assert(ids == NULL && count == 99, "outputs are set on success only");
    }
    tpw_tokenizer_destroy(t);
}

/* ---- files made here ---- */

static tpw_status load_text(const char *text, size_t bytes, tpw_tokenizer **t, tpw_error *err)
{
    temp_folder temp;
    temp_make(&temp);
    temp_write(&temp, "tokenizer.json", text, bytes);
    tpw_status st = tpw_tokenizer_load(temp.path, t, err);
    temp_remove(&temp);
    return st;
}

static tpw_status load_root(const json_t *root, tpw_tokenizer **t, tpw_error *err)
{
    char *text = json_dumps(root, 0);
    cr_assert_not_null(text);
    tpw_status st = load_text(text, strlen(text), t, err);
    free(text);
    return st;
}

static json_t *parse(const char *value)
{
    json_error_t error;
    json_t *parsed = json_loads(value, JSON_DECODE_ANY, &error);
    cr_assert_not_null(parsed, "%s: %s", value, error.text);
    return parsed;
}

/* Sets the value at "model/vocab/x" or "added_tokens/0/id"; "-" as last part appends; value NULL deletes. */
static void set(json_t *root, const char *path, const char *value)
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

/* The pocket file with its first 20 merges only, so that many variants of it load quickly. */
static json_t *load_small(void)
{
    json_t *root = load_json(TPW_TEST_POCKET "/tokenizer.json"), *id;
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    const char *text;
    void *next;
    while (json_array_size(merges) > 20)
        json_array_remove(merges, json_array_size(merges) - 1);
    json_object_foreach_safe(vocab, next, text, id)
    {
        if (json_integer_value(id) >= 3 + 256 + 20)
            json_object_del(vocab, text);
    }
    cr_assert_eq(json_object_size(vocab), 279u);
    return root;
}

#define ADDED(content, id, more) "{\"content\":\"" content "\",\"id\":" id "," more "}"
#define PLAIN                    "\"normalized\":false,\"special\":false"

static const struct {
    const char *path, *value, *named;
} refused[] = {
    {"model", NULL, "model must be an object, found nothing"},
    {"model", "[]", "model must be an object, found a list of 0"},
    {"model/type", "\"WordPiece\"", "model.type must be \"BPE\", found \"WordPiece\""},
    {"model/type", NULL, "model.type"},
    {"model/dropout", "0.1", "model.dropout must be null, found 0.1"},
    {"model/unk_token", "\"<unk>\"", "model.unk_token must be null, found \"<unk>\""},
    {"model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix"},
    {"model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix"},
    {"model/byte_fallback", "true", "model.byte_fallback must be false, found true"},
    {"model/ignore_merges", "1", "ignore_merges"},
    {"model/cache", "5", "model.cache must be absent"},
    {"model/vocab", "[]", "model.vocab must be an object"},
    {"model/vocab", "{}", "no token for the byte 0x00"},
    {"model/vocab/!", NULL, "no token for the byte 0x21"},
    {"model/vocab/!", "4", "two tokens have the id 4"},
    {"model/vocab/!", "-1", "has the id -1"},
    {"model/vocab/!", "2000000", "has the id 2000000"},
    {"model/vocab/!", "9223372036854775807", "has the id 9223372036854775807"},
    {"model/vocab/!", "3.0", "must be an integer"},
    {"model/vocab/!", "\"3\"", "must be an integer"},
    {"model/vocab/!", "0", "two tokens have the id 0"},
    {"model/vocab/", "3000", "3000 has 0 bytes"},
    {"model/vocab/a b", "3000", "outside the byte alphabet"},
    {"model/vocab/\u0143x", "3000", NULL},
    {"model/vocab/\u0144x", "3000", "outside the byte alphabet"},
    {"model/vocab/\u20ac", "3000", "outside the byte alphabet"},
    {"model/vocab/\u00ad", "3000", "outside the byte alphabet"},
    {"model/vocab/<|im_end|>", "3000", "added_tokens[2] (\"<|im_end|>\") has the id 2"},
    {"model/vocab/<|im_end|>", "\"2\"", "added_tokens[2]"},
    {"model/vocab/\u0120t", NULL, "merges[0]: its result \"\u0120t\" is not in model.vocab"},
    {"model/merges", "{}", "model.merges must be a list"},
    {"model/merges/7", "\"ab\"", "merges[7] must be"},
    {"model/merges/7", "\"a b c\"", "merges[7] must be"},
    {"model/merges/7", "\"a \"", "merges[7]: its part \"\""},
    {"model/merges/7", "\" a\"", "merges[7]: its part \"\""},
    {"model/merges/7", "[\"a\"]", "merges[7] must be"},
    {"model/merges/7", "[\"a\",\"b\",\"c\"]", "merges[7] must be"},
    {"model/merges/7", "[\"a\",1]", "merges[7] must be"},
    {"model/merges/7", "null", "merges[7] must be"},
    {"model/merges/7", "[\"a\",\"\u20ac\"]", "merges[7]: its part \"\u20ac\""},
    {"model/merges/7", "[\"a\",\"qqq\"]", "merges[7]: its part \"qqq\""},
    {"model/merges/7", "[\"q\",\"q\"]", "merges[7]: its result \"qq\""},
    {"model/merges/7", "[\"\u0120\",\"t\"]", "merges[7] joins the same two tokens"},
    {"normalizer", "{\"type\":\"NFKC\"}", "normalizer.type must be \"NFC\", found \"NFKC\""},
    {"normalizer", "{}", "normalizer.type"},
    {"normalizer", "\"NFC\"", "normalizer must be an object"},
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}",
     "found \"Lowercase\""},
    {"normalizer", "{\"type\":\"Sequence\"}", "normalizer.normalizers must be a list"},
    {"normalizer", "{\"type\":\"NFC\",\"form\":1}", "normalizer.form"},
    {"pre_tokenizer", "null", "pre_tokenizer must be a Sequence"},
    {"pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}",
     "pre_tokenizer.type must be \"Sequence\", found \"ByteLevel\""},
    {"pre_tokenizer/pretokenizers/0", NULL, "pre_tokenizer.pretokenizers must be a list of a Split and a ByteLevel"},
    {"pre_tokenizer/pretokenizers/-", "{\"type\":\"Digits\"}", "found a list of 3"},
    {"pre_tokenizer/pretokenizers/0/type", "\"Digits\"", "pretokenizers[0].type"},
    {"pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", "behavior must be \"Isolated\", found \"Removed\""},
    {"pre_tokenizer/pretokenizers/0/invert", "true", "invert must be false"},
    {"pre_tokenizer/pretokenizers/0/pattern", "{\"String\":\" \"}", "pattern.String"},
    {"pre_tokenizer/pretokenizers/0/pattern", "\" \"", "pattern must be an object"},
    {"pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\"", "pattern.Regex must be a regular expression"},
    {"pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(\"", "split rule: not a regular expression"},
    {"pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\\\\w+\"", "split rule: \"\\w\""},
    {"pre_tokenizer/pretokenizers/1/type", "\"Metaspace\"", "pretokenizers[1].type must be \"ByteLevel\""},
    {"pre_tokenizer/pretokenizers/1/add_prefix_space", "true", "add_prefix_space must be false"},
    {"pre_tokenizer/pretokenizers/1/add_prefix_space", NULL, "add_prefix_space must be false, found nothing"},
    {"pre_tokenizer/pretokenizers/1/use_regex", "true", "use_regex must be false"},
    {"pre_tokenizer/pretokenizers/1/use_regex", NULL, "use_regex must be false, found nothing"},
    {"post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[]}", "post_processor.type must be \"ByteLevel\""},
    {"post_processor", "5", "post_processor must be a ByteLevel, found 5"},
    {"decoder", "null", "decoder must be a ByteLevel, found null"},
    {"decoder/type", "\"WordPiece\"", "decoder.type must be \"ByteLevel\", found \"WordPiece\""},
    {"truncation", "{\"max_length\":512}", "tokenizer.truncation must be null"},
    {"padding", "{\"strategy\":\"BatchLongest\"}", "tokenizer.padding must be null"},
    {"version", "\"2.0\"", "tokenizer.version must be \"1.0\""},
    {"extra", "{\"a\":1}", "tokenizer.extra must be absent"},
    {"added_tokens", "{}", "tokenizer.added_tokens must be a list"},
    {"added_tokens/1", "7", "added_tokens[1] must be an object"},
    {"added_tokens/1/content", NULL, "content"},
    {"added_tokens/1/content", "\"\"", "the token of id 1 has 0 bytes"},
    {"added_tokens/1/content", "\"<|im_end|>\"", "added_tokens[1] (\"<|im_end|>\") has the id 1"},
    {"added_tokens/1/id", "2", "added_tokens[1] (\"<|im_start|>\") has the id 2"},
    {"added_tokens/1/id", "-1", "added_tokens[1]"},
    {"added_tokens/1/id", "2000000", "added_tokens[1]"},
    {"added_tokens/1/single_word", "true", "added_tokens[1] (\"<|im_start|>\"): single_word true is not supported"},
    {"added_tokens/1/lstrip", "true", "lstrip true is not supported"},
    {"added_tokens/1/rstrip", "true", "rstrip true is not supported"},
    {"added_tokens/1/normalized", NULL, "normalized"},
    {"added_tokens/1/special", "0", "special"},
    {"added_tokens/1/regex", "true", "added_tokens[1].regex must be absent"},
    {"added_tokens/-", ADDED("<new>", "262", PLAIN), "two tokens have the id 262"},
    {"added_tokens/-", ADDED("!", "5000", PLAIN), "added_tokens[3] (\"!\") has the id 5000, but model.vocab"},
};

Test(tokenizer, refuses_by_name)
{
    json_t *good = load_small();
    size_t count = sizeof refused / sizeof *refused, checked = 0;
    for (size_t i = 0; i < count; i++) {
        json_t *root = json_deep_copy(good);
        set(root, refused[i].path, refused[i].value);
        tpw_error err = {0};
        tpw_tokenizer *t = NULL;
        tpw_status st = load_root(root, &t, &err);
        json_decref(root);
        if (refused[i].named == NULL) {
            cr_assert_eq(st, TPW_OK, "case %zu (%s): %s", i, refused[i].path, err.text);
            tpw_tokenizer_destroy(t);
            continue;
        }
        cr_assert_eq(st, TPW_ERR_CHECKPOINT, "case %zu (%s = %s) gives %d", i, refused[i].path, refused[i].value, st);
        cr_assert(strstr(err.text, refused[i].named), "case %zu: \"%s\" lacks \"%s\"", i, err.text, refused[i].named);
        cr_assert(strstr(err.text, "tokenizer.json: "), "case %zu: \"%s\" does not name the file", i, err.text);
        cr_assert_null(t);
        checked++;
    }
    cr_assert_eq(checked, count - 1);
    json_decref(good);
}

static const struct {
    const char *path, *value;
} accepted[] = {
    {"version", NULL},
    {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}"},
    {"post_processor",
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}"},
    {"post_processor", NULL},
    {"model/continuing_subword_prefix", "\"\""},
    {"model/end_of_word_suffix", "\"\""},
    {"model/ignore_merges", NULL},
    {"model/byte_fallback", NULL},
    {"model/future", "null"},
    {"pre_tokenizer/pretokenizers/0/invert", NULL},
};

/* Other spellings of the same file give the same ids. */
Test(tokenizer, accepts_what_means_the_same)
{
    json_t *good = load_json(TPW_TEST_POCKET "/tokenizer.json");
    json_t *data = load_json(TPW_TEST_DATA "/tokenizer/pocket.json");
    for (size_t i = 0; i <= sizeof accepted / sizeof *accepted; i++) {
        json_t *root = json_deep_copy(good);
        if (i < sizeof accepted / sizeof *accepted) {
            set(root, accepted[i].path, accepted[i].value);
        } else { /* merges as strings */
            json_t *merges = json_object_get(json_object_get(root, "model"), "merges"), *pair;
            size_t k;
            json_array_foreach(merges, k, pair)
                json_array_set_new(merges, k,
                                   json_sprintf("%s %s", json_string_value(json_array_get(pair, 0)),
                                                json_string_value(json_array_get(pair, 1))));
        }
        tpw_tokenizer *t = NULL;
        tpw_error err = {0};
        cr_assert_eq(load_root(root, &t, &err), TPW_OK, "case %zu: %s", i, err.text);
        for (size_t k = 0; k < 60; k++) {
            const json_t *entry = json_array_get(json_object_get(data, "cases"), k);
            const json_t *text = json_object_get(entry, "text");
            check_ids(t, json_string_value(text), json_string_length(text), json_object_get(entry, "ids"), "same");
        }
        tpw_tokenizer_destroy(t);
        json_decref(root);
    }
    json_decref(data);
    json_decref(good);
}

static void check_encoding(const tpw_tokenizer *t, const char *text, const char *wanted)
{
    json_t *ids = parse(wanted);
    check_ids(t, text, strlen(text), ids, "made here");
    json_decref(ids);
}

Test(tokenizer, ignore_merges_takes_whole_pieces)
{
    json_t *root = load_json(TPW_TEST_POCKET "/tokenizer.json");
    tpw_tokenizer *t = NULL;
    /* no merge leads to it; q z x space are 83, 92, 90, 223 */
    set(root, "model/vocab/\u0120qzx", "2048");
    cr_assert_eq(load_root(root, &t, NULL), TPW_OK);
    check_encoding(t, "qzx qzx", "[83,92,90,223,83,92,90]");
    tpw_tokenizer_destroy(t);
    set(root, "model/ignore_merges", "true");
    cr_assert_eq(load_root(root, &t, NULL), TPW_OK);
    check_encoding(t, "qzx qzx", "[83,92,90,2048]");
    cr_assert_eq(tpw_tokenizer_vocab(t), 2049);
    tpw_tokenizer_destroy(t);
    json_decref(root);
}

Test(tokenizer, added_tokens_outside_the_vocabulary)
{
    json_t *root = load_json(TPW_TEST_POCKET "/tokenizer.json");
    tpw_tokenizer *t = NULL;
    tpw_error err = {0};
    set(root, "added_tokens/-", ADDED("<|im_end|>!", "3000", PLAIN));
    set(root, "added_tokens/-", ADDED("\uff5c\u2581 end", "2500", "\"normalized\":false,\"special\":true"));
    set(root, "added_tokens/-", ADDED("e\u0301q", "2600", "\"normalized\":true,\"special\":false"));
    cr_assert_eq(load_root(root, &t, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_tokenizer_vocab(t), 3001);
    check_encoding(t, "<|im_end|><|im_end|>!!", "[2,3000,3]");
    check_encoding(t, "\uff5c\u2581 end", "[2500]");
    check_encoding(t, "\u00e9q", "[2600]");
    check_encoding(t, "e\u0301q", "[2600]");
    check_token(t, 2500, "\uff5c\u2581 end", strlen("\uff5c\u2581 end"), true);
    check_token(t, 3000, "<|im_end|>!", 11, false);
    const char *data;
    size_t bytes;
    cr_assert_not(tpw_tokenizer_bytes(t, 2999, &data, &bytes), "a hole among the ids");
    cr_assert_not(tpw_tokenizer_special(t, 2048));
    tpw_tokenizer_destroy(t);
    json_decref(root);
}

Test(tokenizer, without_normalizer_nothing_composes)
{
    json_t *root = load_json(TPW_TEST_POCKET "/tokenizer.json");
    tpw_tokenizer *t = NULL;
    set(root, "normalizer", "null");
    cr_assert_eq(load_root(root, &t, NULL), TPW_OK);
    int32_t *ids;
    size_t count;
    cr_assert_eq(tpw_tokenizer_encode(t, "q\u0301", 3, &ids, &count, NULL), TPW_OK);
    cr_assert_eq(count, 3u);
    free(ids);
    cr_assert_eq(tpw_tokenizer_encode(t, "\u212b", 3, &ids, &count, NULL), TPW_OK);
    cr_assert_eq(count, 3u, "the Angstrom sign stays three bytes");
    free(ids);
    tpw_tokenizer_destroy(t);
    json_decref(root);
}

Test(tokenizer, files_that_are_no_json)
{
    static const struct {
        const char *text;
        size_t bytes;
    } bad[] = {{"", 0},
               {"{", 1},
               {"[]", 2},
               {" {}", 3},
               {"{}", 2},
               {"{\"model\":{},\"model\":{}}", 23},
               {"{} x", 4},
               {"{\"a\":\"\xFF\"}", 9},
               {"{\"a\":\"\\ud800\"}", 14},
               {"{\"a\":\"\\u0000\"}", 14}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tpw_tokenizer *t = NULL;
        tpw_error err = {0};
        cr_assert_eq(load_text(bad[i].text, bad[i].bytes, &t, &err), TPW_ERR_CHECKPOINT, "case %zu", i);
        cr_assert(strstr(err.text, "tokenizer.json"), "%s", err.text);
    }
}

/* The real file cut anywhere is refused, and never read past its end. */
Test(tokenizer, truncated_files)
{
    FILE *file = fopen(TPW_TEST_POCKET "/tokenizer.json", "rb");
    cr_assert_not_null(file);
    static char text[1 << 18];
    size_t bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    cr_assert_gt(bytes, 100000u);
    for (size_t i = 1; i < 40; i++) {
        tpw_tokenizer *t = NULL;
        cr_assert_eq(load_text(text, i * (bytes - 2) / 39, &t, NULL), TPW_ERR_CHECKPOINT, "part %zu", i);
    }
}

Test(tokenizer, missing_and_odd_paths)
{
    tpw_tokenizer *t = NULL;
    tpw_error err = {0};
    temp_folder temp;
    temp_make(&temp);
    cr_assert_eq(tpw_tokenizer_load(temp.path, &t, &err), TPW_ERR_MISSING);
    cr_assert(strstr(err.text, temp.path) && strstr(err.text, "tokenizer.json"), "%s", err.text);
    cr_assert_eq(mkdir(temp_path(&temp, "tokenizer.json"), 0700), 0);
    cr_assert_eq(tpw_tokenizer_load(temp.path, &t, &err), TPW_ERR_CHECKPOINT);
    temp_remove(&temp);
    char *name = malloc(5001);
    memset(name, 'a', 5000);
    name[5000] = '\0';
    cr_assert_eq(tpw_tokenizer_load(name, &t, &err), TPW_ERR_ARGUMENT);
    free(name);
    cr_assert_null(t);
}

Test(tokenizer, digest_sees_every_byte)
{
    tpw_tokenizer *a = load_pocket(), *b = load_pocket(), *c = NULL;
    cr_assert_eq(tpw_tokenizer_digest(a), tpw_tokenizer_digest(b));
    json_t *root = load_json(TPW_TEST_POCKET "/tokenizer.json");
    cr_assert_eq(load_root(root, &c, NULL), TPW_OK);
    cr_assert_neq(tpw_tokenizer_digest(a), tpw_tokenizer_digest(c), "other blanks are another file");
    json_decref(root);
    tpw_tokenizer_destroy(a);
    tpw_tokenizer_destroy(b);
    tpw_tokenizer_destroy(c);
}

/* Long texts that make careless implementations quadratic, through all stages. */
Test(tokenizer, long_texts)
{
    static const char *const units[] = {"a", " ", "1", "<", "<|im_en", "\u0323\u0301", "\u00e9", "' ", "ab "};
    tpw_tokenizer *t = load_pocket();
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t unit = strlen(units[i]), times = (1 << 18) / unit, count = 0;
        char *text = malloc(unit * times);
        for (size_t k = 0; k < times; k++)
            memcpy(text + k * unit, units[i], unit);
        int32_t *ids = NULL;
        tpw_error err = {0};
        cr_assert_eq(tpw_tokenizer_encode(t, text, unit * times, &ids, &count, &err), TPW_OK, "%s", err.text);
        size_t bytes = 0;
        for (size_t k = 0; k < count; k++) {
            const char *data;
            size_t length;
            cr_assert(tpw_tokenizer_bytes(t, ids[k], &data, &length));
            bytes += length;
        }
        cr_assert_eq(bytes, unit * times);
        free(ids);
        free(text);
    }
    tpw_tokenizer_destroy(t);
}
