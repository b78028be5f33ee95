/* Tests src/model/tokenizer_sections.c, and through it the loader: every refusal by name, and what means the same.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "tokenizer_files.h"

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

Test(tokenizer_sections, refuses_by_name)
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
Test(tokenizer_sections, accepts_what_means_the_same)
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
