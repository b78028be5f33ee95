/* Tests of error text: formatting, cutting, cleaning, prefixes and the two passing macros.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define LAST (TPW_ERROR_TEXT_MAX - 1) /* longest text */

/* A run of `n` times `c` in static storage. */
static const char *run_of(char c, size_t n)
{
    static char text[4096];
    cr_assert_lt(n, sizeof text);
    memset(text, c, n);
    text[n] = '\0';
    return text;
}

Test(error, fail_formats_and_returns_the_status)
{
    tpw_error err = {0};
    tpw_status st = tpw_fail(&err, TPW_ERR_LIMIT, "rank %d: %s needs %zu bytes", 3, "kv", (size_t)12);
    cr_assert_eq(st, TPW_ERR_LIMIT);
    cr_assert_eq(err.status, TPW_ERR_LIMIT);
    cr_assert_str_eq(err.text, "rank 3: kv needs 12 bytes");
    cr_assert_eq(tpw_fail(NULL, TPW_ERR_IO, "%d", 1), TPW_ERR_IO);
}

Test(error, a_second_fail_replaces_the_first)
{
    tpw_error err = {0};
    (void)tpw_fail(&err, TPW_ERR_IO, "a long first text that must be gone");
    (void)tpw_fail(&err, TPW_ERR_PEER, "short");
    cr_assert_eq(err.status, TPW_ERR_PEER);
    cr_assert_str_eq(err.text, "short");
}

Test(error, text_is_cut_at_the_limit_and_never_beyond)
{
    struct {
        tpw_error err;
        char guard[64];
    } box;
    for (size_t n = TPW_ERROR_TEXT_MAX - 3; n < TPW_ERROR_TEXT_MAX + 3; n++) {
        memset(&box, 0x5A, sizeof box);
        (void)tpw_fail(&box.err, TPW_ERR_IO, "%s", run_of('x', n));
        cr_expect_eq(strlen(box.err.text), n < LAST ? n : LAST, "n = %zu", n);
        for (size_t i = 0; i < sizeof box.guard; i++)
            cr_assert_eq(box.guard[i], 0x5A, "byte %zu after the text was written", i);
    }
}

Test(error, a_cut_does_not_split_a_character)
{
    const char *characters[] = {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}; /* 2, 3 and 4 bytes */
    for (size_t c = 0; c < 3; c++) {
        size_t bytes = strlen(characters[c]);
        for (size_t fill = LAST - 5; fill <= LAST; fill++) {
            tpw_error err;
            (void)tpw_fail(&err, TPW_ERR_IO, "%s%s%s", run_of('x', fill), characters[c], characters[c]);
            size_t whole = (LAST - fill) / bytes;
            size_t expected = fill + (whole < 2 ? whole : 2) * bytes;
            cr_expect_eq(strlen(err.text), expected, "%zu bytes, fill %zu: %zu, not %zu", bytes, fill, strlen(err.text),
                         expected);
        }
    }
}

Test(error, control_characters_become_spaces)
{
    tpw_error err;
    (void)tpw_fail(&err, TPW_ERR_CHECKPOINT, "a\nb\r\tc\x1b[31md\x7f%s",
                   "\xC2\x9B"
                   "31m\xC3\xA9");
    cr_assert_str_eq(err.text, "a b  c [31md   31m\xC3\xA9");

    (void)tpw_fail(&err, TPW_ERR_CHECKPOINT, "\xC2\x80\xC2\x9F\xC2\xA0\xC2\xA9"); /* C1 ends at U+009F */
    cr_assert_str_eq(err.text, "    \xC2\xA0\xC2\xA9");

    char all[256];
    for (int i = 1; i < 256; i++)
        all[i - 1] = (char)i;
    all[255] = '\0';
    tpw_text_clean(all);
    cr_assert_eq(strlen(all), 255);
    for (int i = 1; i < 256; i++) {
        char expected = i < 0x20 || i == 0x7F ? ' ' : (char)i;
        cr_assert_eq(all[i - 1], expected, "byte %d", i);
    }
}

Test(error, clean_stops_at_a_dangling_lead_byte)
{
    char *text = malloc(3); /* exact size: a sanitizer sees a read past the NUL */
    cr_assert_not_null(text);
    memcpy(text, "\xC2\xC2", 3);
    tpw_text_clean(text);
    cr_assert_str_eq(text, "\xC2\xC2");
    free(text);
}

Test(error, cut_lengths)
{
    const struct {
        const char *text;
        size_t bytes, expected;
    } cases[] = {
        {"", 0, 0},
        {"abc", 2, 2},
        {"a\xC3\xA9", 2, 1},
        {"a\xC3\xA9", 3, 3},
        {"\xE2\x82\xAC", 1, 0},
        {"\xE2\x82\xAC", 2, 0},
        {"\xE2\x82\xAC", 3, 3},
        {"\xF0\x9F\x98\x80", 3, 0},
        {"\xF0\x9F\x98\x80", 4, 4},
        {"\x80\x80\x80\x80\x80", 5, 5}, /* not UTF-8: kept as it is */
        {"\x80", 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(tpw_text_cut(cases[i].text, cases[i].bytes), cases[i].expected, "case %zu", i);
}

Test(error, arguments_may_point_into_the_error_itself)
{
    tpw_error err;
    (void)tpw_fail(&err, TPW_ERR_IO, "inner");
    (void)tpw_fail(&err, TPW_ERR_PEER, "outer of <%s>", err.text);
    cr_assert_str_eq(err.text, "outer of <inner>");
    tpw_error_prefix(&err, "[%s]", err.text);
    cr_assert_str_eq(err.text, "[outer of <inner>]: outer of <inner>");
}

Test(error, prefix_keeps_status_and_text)
{
    tpw_error err;
    (void)tpw_fail(&err, TPW_ERR_CHECKPOINT, "key \"a\" is missing");
    tpw_error_prefix(&err, "%s", "config.json");
    tpw_error_prefix(&err, "rank %d", 2);
    cr_assert_eq(err.status, TPW_ERR_CHECKPOINT);
    cr_assert_str_eq(err.text, "rank 2: config.json: key \"a\" is missing");
    tpw_error_prefix(NULL, "nobody %d", 1);
}

Test(error, a_long_prefix_leaves_the_cause)
{
    tpw_error err;
    (void)tpw_fail(&err, TPW_ERR_IO, "the cause");
    tpw_error_prefix(&err, "%s", run_of('p', 4000));
    cr_assert_eq(strlen(err.text), TPW_ERROR_TEXT_MAX / 2 - 1 + strlen(": the cause"));
    cr_assert_str_eq(strchr(err.text, ':'), ": the cause");

    (void)tpw_fail(&err, TPW_ERR_IO, "%s", run_of('t', 4000));
    tpw_error_prefix(&err, "file\n");
    cr_assert_eq(strlen(err.text), LAST);
    cr_assert_eq(strncmp(err.text, "file : ttt", 10), 0);
}

Test(error, a_prefix_of_an_unterminated_text_stays_inside)
{
    struct {
        tpw_error err;
        char guard[16];
    } box;
    memset(&box, 'z', sizeof box);
    tpw_error_prefix(&box.err, "p");
    cr_assert_eq(strlen(box.err.text), LAST);
    cr_assert_eq(box.guard[0], 'z');
}

static int calls;

static tpw_status returns(tpw_status status)
{
    calls++;
    return status;
}

static tpw_status tries(tpw_status first, tpw_status second)
{
    TPW_TRY(returns(first));
    TPW_TRY(returns(second));
    return TPW_OK;
}

static tpw_status tries_with_cleanup(tpw_status first, tpw_status second, int *cleaned)
{
    tpw_status st;
    TPW_TRY_GOTO(st, returns(first), undo);
    TPW_TRY_GOTO(st, returns(second), undo);
undo:
    ++*cleaned;
    return st;
}

Test(error, macros_evaluate_once_and_stop_at_the_first_failure)
{
    calls = 0;
    cr_assert_eq(tries(TPW_OK, TPW_OK), TPW_OK);
    cr_assert_eq(calls, 2);
    cr_assert_eq(tries(TPW_ERR_BUSY, TPW_ERR_IO), TPW_ERR_BUSY);
    cr_assert_eq(calls, 3);
    cr_assert_eq(tries(TPW_OK, TPW_ERR_IO), TPW_ERR_IO);
    cr_assert_eq(calls, 5);

    int cleaned = 0;
    cr_assert_eq(tries_with_cleanup(TPW_ERR_BUSY, TPW_OK, &cleaned), TPW_ERR_BUSY);
    cr_assert_eq(calls, 6);
    cr_assert_eq(tries_with_cleanup(TPW_OK, TPW_OK, &cleaned), TPW_OK);
    cr_assert_eq(cleaned, 2);
}
