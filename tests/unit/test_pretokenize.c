/* Tests src/model/pretokenize.c: cutting at added tokens, composition, and the order of the three stages.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/pretokenize.h"

#define WORDS "\\S+|\\s+"

static const struct {
    const char *text, *composed; /* NULL: unchanged */
} compositions[] = {
    {"", NULL},
    {"plain ASCII\x7f", NULL},
    {"caf\u00e9 \u02ff", NULL}, /* nothing below U+0300 needs a look */
    {"e\u0301", "\u00e9"},
    {"e\u0301\u0323", "\u1eb9\u0301"}, /* the dot below goes first and composes */
    {"a\u0302\u0323", "\u1ead"},
    {"a\u0323\u0302", "\u1ead"},
    {"\u1ea5\u0323", "\u1ead\u0301"}, /* a composed letter is taken apart again */
    {"q\u0307\u0323", "q\u0323\u0307"},
    {"a\u0301\u0300", "\u00e1\u0300"}, /* equal classes keep their order */
    {"a\u0315\u0300\u05ae\u0301b", "\u00e0\u05ae\u0301\u0315"
                                   "b"},
    {"\u0301e", "\u0301e"},                       /* no starter before it */
    {"e\u034f\u0301", "e\u034f\u0301"},           /* a starter between them blocks */
    {"\u212b\u2126\u212a", "\u00c5\u03a9K"},      /* singletons */
    {"\u0958\u0344", "\u0915\u093c\u0308\u0301"}, /* exclusions from composition */
    {"\u2adc", "\u2add\u0338"},
    {"\ufb1d", "\u05d9\u05b4"},
    {"\u1100\u1161", "\uac00"},
    {"\u1112\u1161\u11ab\u1100\u116e\u11a8", "\ud55c\uad6d"},
    {"\uac00\u11a8", "\uac01"},
    {"\uac01\u11a8", "\uac01\u11a8"}, /* a syllable with a final takes no other */
    {"\u1100\uac00", "\u1100\uac00"},
    {"\u1161\u11a8", "\u1161\u11a8"},
    {"\uac00\u11a7", "\uac00\u11a7"}, /* one below the finals */
    {"\u1100\u1161\u11a7\u11a8", "\uac00\u11a7\u11a8"},
    {"\u11a7\u0301", "\u11a7\u0301"},
    {"\uf900\U0002f800", "\u8c48\u4e3d"},
    {"\U0001d15e", "\U0001d157\U0001d165"},
    {"\U000110a5\U000110ba", "\U000110ab"},
    {"\u09c7\u09be\u0bc6\u0bbe", "\u09cb\u0bca"},
    {"\ufffd\uffff\U0010ffff", "\ufffd\uffff\U0010ffff"},
    {"\u1e9b\u0323", "\u1e9b\u0323"},
    {"\ufb01", "\ufb01"}, /* compatibility forms stay */
};

static void check_composition(const char *text, size_t bytes, const char *wanted, size_t wanted_bytes)
{
    char *out = NULL;
    size_t out_bytes = 0;
    tpw_error err = {0};
    cr_assert_eq(tpw_text_compose(text, bytes, &out, &out_bytes, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(out_bytes, wanted_bytes, "%.40s: %zu bytes instead of %zu", text, out_bytes, wanted_bytes);
    cr_assert_eq(memcmp(out != NULL ? out : text, wanted, wanted_bytes), 0, "%.40s", text);
    free(out);
}

Test(compose, pairs_made_by_hand)
{
    for (size_t i = 0; i < sizeof compositions / sizeof *compositions; i++) {
        const char *wanted = compositions[i].composed ? compositions[i].composed : compositions[i].text;
        check_composition(compositions[i].text, strlen(compositions[i].text), wanted, strlen(wanted));
        check_composition(wanted, strlen(wanted), wanted, strlen(wanted));
        if (compositions[i].composed == NULL) {
            char *out = (char *)1;
            size_t bytes;
            cr_assert_eq(tpw_text_compose(wanted, strlen(wanted), &out, &bytes, NULL), TPW_OK);
            cr_assert_null(out, "case %zu was copied for nothing", i);
        }
    }
    check_composition("e\u0301\0e\u0301", 7, "\u00e9\0\u00e9", 5);
}

/* Runs of 1 to 40 pairs of marks in the wrong order: both ways of sorting, and the border between them. */
Test(compose, runs_of_marks)
{
    for (size_t pairs = 1; pairs <= 40; pairs++) {
        char text[4 * 41 + 2] = "x", wanted[4 * 41 + 2] = "x";
        for (size_t i = 0; i < pairs; i++) {
            strcat(text, i % 2 ? "\u0307\u0317" : "\u0301\u0323");
            memcpy(wanted + 1 + 2 * i, i % 2 ? "\u0317" : "\u0323", 2);
            memcpy(wanted + 1 + 2 * (pairs + i), i % 2 ? "\u0307" : "\u0301", 2);
        }
        check_composition(text, 1 + 4 * pairs, wanted, 1 + 4 * pairs);
    }
}

/* A run that takes hours when neighbours are swapped one by one. */
Test(compose, a_long_run_of_marks_in_the_wrong_order)
{
    size_t pairs = 250000, bytes = 1 + 4 * pairs;
    char *text = malloc(bytes), *wanted = malloc(bytes);
    text[0] = wanted[0] = 'x';
    for (size_t i = 0; i < pairs; i++) {
        memcpy(text + 1 + 4 * i, "\u0301\u0323", 4);
        memcpy(wanted + 1 + 2 * i, "\u0323", 2);
        memcpy(wanted + 1 + 2 * (pairs + i), "\u0301", 2);
    }
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    check_composition(text, bytes, wanted, bytes);
    clock_gettime(CLOCK_MONOTONIC, &end);
    cr_assert_lt(end.tv_sec - start.tv_sec, 20);
    free(text);
    free(wanted);
}

typedef struct record {
    char text[512]; /* pieces as "piece|", added tokens as "<id>" */
    int calls;
    int fail_at;
} record;

static tpw_status note(record *r, const char *text, tpw_error *err)
{
    if (++r->calls == r->fail_at)
        return tpw_fail(err, TPW_ERR_LIMIT, "as asked");
    strcat(r->text, text);
    return TPW_OK;
}

static tpw_status on_piece(void *data, const char *piece, size_t bytes, tpw_error *err)
{
    char text[128];
    snprintf(text, sizeof text, "%.*s|", (int)bytes, piece);
    return note(data, text, err);
}

static tpw_status on_added(void *data, int32_t id, tpw_error *err)
{
    char text[32];
    snprintf(text, sizeof text, "<%d>", id);
    return note(data, text, err);
}

#define RAW(text, id)                    \
    {                                    \
        text, sizeof text - 1, id, false \
    }
#define NORMALIZED(text, id)            \
    {                                   \
        text, sizeof text - 1, id, true \
    }

static const tpw_added_token added[] = {
    RAW("<|x|>", 1),   RAW("<|x|>y", 2),         RAW("ab", 3),        RAW("abcd", 4),   RAW("bcdef", 5),
    RAW("e\u0301", 6), NORMALIZED("o\u0308", 7), NORMALIZED("zz", 8), RAW("\u20ac", 9), RAW("aa", 10),
};

static tpw_pretokenizer *make(bool nfc)
{
    tpw_pretokenizer *p = NULL;
    tpw_error err = {0};
    tpw_status st = tpw_pretokenizer_create(WORDS, strlen(WORDS), nfc, added, sizeof added / sizeof *added, &p, &err);
    cr_assert_eq(st, TPW_OK, "%s", err.text);
    return p;
}

static void check(const tpw_pretokenizer *p, const char *text, const char *wanted)
{
    record r = {.text = ""};
    const tpw_piece_sink sink = {&r, on_piece, on_added};
    tpw_error err = {0};
    cr_assert_eq(tpw_pretokenizer_run(p, text, strlen(text), &sink, &err), TPW_OK, "%s", err.text);
    cr_assert_str_eq(r.text, wanted);
}

Test(pretokenize, leftmost_then_longest)
{
    tpw_pretokenizer *p = make(true);
    check(p, "", "");
    check(p, "q r", "q| |r|");
    check(p, "<|x|>", "<1>");
    check(p, "<|x|>y", "<2>");
    check(p, "<|x|><|x|>yy", "<1><2>y|");
    check(p, "<<|x|>>", "<|<1>>|");
    check(p, "<|x|", "<|x||");
    check(p, "<|x<|x|>", "<|x|<1>");
    check(p, "abcdef", "<4>ef|"); /* the longest that starts first, though "bcdef" is longer */
    check(p, "abcde", "<4>e|");
    check(p, "abce", "<3>ce|"); /* "abcd" begins but does not end */
    check(p, "xbcdefab", "x|<5><3>");
    check(p, "aaaaa", "<10><10>a|");
    check(p, "aaab", "<10><3>");
    check(p, "q ab r", "q| |<3> |r|");
    check(p, "1\u20ac2", "1|<9>2|");
    check(p, "\u20ad\u20ac\u20ab", "\u20ad|<9>\u20ab|");
    tpw_pretokenizer_destroy(p);
}

Test(pretokenize, raw_tokens_see_raw_text_and_normalized_ones_composed_text)
{
    tpw_pretokenizer *p = make(true);
    check(p, "e\u0301", "<6>");
    check(p, "\u00e9", "\u00e9|");           /* composed text does not hold the raw token */
    check(p, "e\u0301\u0323", "<6>\u0323|"); /* raw: found before the marks are ordered */
    check(p, "no\u0308n", "n|<7>n|");
    check(p, "n\u00f6n", "n|<7>n|");
    check(p, "zzz", "<8>z|");
    check(p, "zabz", "z|<3>z|"); /* raw tokens go first */
    check(p, "zz<|x|>zz", "<8><1><8>");
    check(p, "u\u0308x", "\u00fcx|");
    check(p, "u<|x|>\u0308", "u|<1>\u0308|"); /* nothing composes across a token */
    tpw_pretokenizer_destroy(p);
    p = make(false);
    check(p, "no\u0308n", "n|<7>n|"); /* as written */
    check(p, "n\u00f6n", "n\u00f6n|");
    check(p, "u\u0308", "u\u0308|");
    tpw_pretokenizer_destroy(p);
}

Test(pretokenize, without_added_tokens)
{
    tpw_pretokenizer *p = NULL;
    cr_assert_eq(tpw_pretokenizer_create(WORDS, strlen(WORDS), true, NULL, 0, &p, NULL), TPW_OK);
    check(p, "a <|x|>", "a| |<|x|>|");
    tpw_pretokenizer_destroy(p);
    tpw_pretokenizer_destroy(NULL);
}

Test(pretokenize, passes_on_the_errors_of_the_sink)
{
    tpw_pretokenizer *p = make(true);
    const char *text = "q ab zz o\u0308 r"; /* q, ' ', <3>, ' ', <8>, ' ', <7>, ' ', r */
    for (int at = 1; at <= 9; at++) {
        record r = {.fail_at = at};
        const tpw_piece_sink sink = {&r, on_piece, on_added};
        tpw_error err = {0};
        cr_assert_eq(tpw_pretokenizer_run(p, text, strlen(text), &sink, &err), TPW_ERR_LIMIT, "call %d", at);
        cr_assert_eq(r.calls, at);
    }
    tpw_pretokenizer_destroy(p);
}

Test(pretokenize, refusals)
{
    static const tpw_added_token empty[] = {RAW("a", 1), RAW("", 2)};
    static const tpw_added_token twice[] = {RAW("abc", 1), RAW("ab", 2), RAW("abc", 3)};
    static const tpw_added_token same_composed[] = {NORMALIZED("e\u0301", 1), NORMALIZED("\u00e9", 2)};
    tpw_pretokenizer *p = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_pretokenizer_create(WORDS, strlen(WORDS), true, empty, 2, &p, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "id 2"), "%s", err.text);
    cr_assert_eq(tpw_pretokenizer_create(WORDS, strlen(WORDS), true, twice, 3, &p, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "1 and 3"), "%s", err.text);
    cr_assert_eq(tpw_pretokenizer_create(WORDS, strlen(WORDS), true, same_composed, 2, &p, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "1 and 2"), "%s", err.text);
    cr_assert_eq(tpw_pretokenizer_create("\\w", 2, true, NULL, 0, &p, &err), TPW_ERR_CHECKPOINT);
    cr_assert_null(p);
    /* without composition the two are different tokens */
    cr_assert_eq(tpw_pretokenizer_create(WORDS, strlen(WORDS), false, same_composed, 2, &p, &err), TPW_OK);
    check(p, "\u00e9e\u0301", "<2><1>");
    tpw_pretokenizer_destroy(p);
}
