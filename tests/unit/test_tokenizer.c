/* Tests src/model/tokenizer.c: ids as an independent implementation gives them, bytes back, and broken files.
 *
 * tests/data/tokenizer/pocket.json holds what version 0.23.3 of the Python package "tokenizers" gives for the pocket file.
 * Its texts leave out the characters that are new since Unicode 14 and the marks whose combining class that package does not
 * know: there the versions of the Unicode data differ, not the rules. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <sys/stat.h>

#include "model/pretokenize.h"
#include "tokenizer_files.h"

static tpw_tokenizer *load_pocket(void)
{
    tpw_tokenizer *t = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_tokenizer_load(TPW_TEST_POCKET, &t, &err), TPW_OK, "%s", err.text);
    return t;
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
