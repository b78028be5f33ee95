/* Tests src/model/split_rule.c: pieces as the tokenizers' own engine cuts them, and refusals by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "model/split_rule.h"

#define QWEN                                                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct pieces {
    char text[512]; /* every piece followed by '|' */
    size_t bytes;
    size_t count;
    size_t fail_at; /* emit fails at this piece; 0: never */
} pieces;

static tpw_status collect(void *data, const char *piece, size_t bytes, tpw_error *err)
{
    pieces *p = data;
    cr_assert_gt(bytes, 0u);
    p->count++;
    if (p->count == p->fail_at)
        return tpw_fail(err, TPW_ERR_MEMORY, "as asked");
    if (p->bytes + bytes + 2 < sizeof p->text) {
        memcpy(p->text + p->bytes, piece, bytes);
        p->bytes += bytes;
        p->text[p->bytes++] = '|';
    }
    return TPW_OK;
}

static tpw_status split(const char *pattern, const char *text, size_t bytes, pieces *out, tpw_error *err)
{
    tpw_split_rule *rule = NULL;
    tpw_split_work work;
    tpw_status st = tpw_split_rule_create(pattern, strlen(pattern), &rule, err);
    cr_assert_eq(st, TPW_OK, "%s", err->text);
    cr_assert_eq(tpw_split_work_init(&work, rule, bytes, err), TPW_OK);
    st = tpw_split_rule_apply(rule, &work, text, bytes, collect, out, err);
    tpw_split_work_fini(&work);
    tpw_split_rule_destroy(rule);
    return st;
}

static const struct {
    const char *pattern, *text, *pieces;
} cases[] = {
    {"x*", "axxb", "a|xx|b|"}, /* empty matches cut */
    {"x*", "\u00e9xx\u20ac", "\u00e9|xx|\u20ac|"},
    {"(?=b)", "abab", "a|ba|b|"},
    {"q", "abc", "abc|"}, /* no match: one gap */
    {"[^\\S\\n]+", "a \u180e\t\n \nb", "a| |\u180e|\t|\n| |\nb|"},
    {"[\\S]+",
     " ab\x1c\u180e \u3000"
     "cd",
     " |ab\x1c\u180e| \u3000|cd|"},
    {"\\S+|\\s", " \x1f\xc2\x85\u1680x", " |\x1f|\xc2\x85|\u1680|x|"},
    {"\\p{N}{1,3}", "1234567a12", "123|456|7|a|12|"},
    {"\\d+|\\D", "1\u0661\u0967\u00b2a", "1\u0661\u0967|\u00b2|a|"},
    {"(?i:'s|'ll)", "a'S'LL'l\u017f'\u017f", "a|'S|'LL|'l\u017f|'\u017f|"},
    {".", "a\nb\r", "a|\n|b|\r|"},
    {"(?<=a)b|\\x{e9}", "abbab\u00e9", "a|b|ba|b|\u00e9|"},
    {"a+?|b++", "aabbb", "a|a|bbb|"},
    {"[\\p{L}-]+|[-\\d]", "a-b1-", "a-b|1|-|"},
    {"\\s+(?!\\S)|\\s+", "a   b  ", "a|  | |b|  |"},
    {"a\\.b|\\[|\\\\", "xa.b[\\y", "x|a.b|[|\\|y|"},
    {"(ab|c)+", "xababcab d", "x|ababcab| d|"},
    {QWEN, "It's  12 o'CLOCK'S\r\n\n x.\n", "It|'s| | |1|2| o|'CLOCK|'S|\r\n\n| x|.\n|"},
    {QWEN, "\u0939\u093f\u0928\u094d e\u0301, \u200bq", "\u0939\u093f\u0928\u094d| e\u0301|,| \u200b|q|"},
    {QWEN,
     "a\x1c\x1d"
     "b \x1f",
     "a|\x1c\x1d|b| \x1f|"},
};

Test(split_rule, pieces)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tpw_error err = {0};
        pieces p = {0};
        tpw_status st = split(cases[i].pattern, cases[i].text, strlen(cases[i].text), &p, &err);
        cr_assert_eq(st, TPW_OK, "%s", err.text);
        p.text[p.bytes] = '\0';
        cr_assert_str_eq(p.text, cases[i].pieces, "case %zu", i);
    }
}

/* U+0000..U+FFFF one by one: \s must be White_Space, listed here from the Unicode property file, and \S all the rest. */
Test(split_rule, space_is_the_unicode_property)
{
    static const unsigned space[] = {0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,   0xA0,   0x1680,
                                     0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                     0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
    static const char *const patterns[] = {"\\s", "[\\s]", "[^\\S]", "(?!\\S)[\\s\\S]"};
    for (size_t k = 0; k < 4; k++) {
        tpw_split_rule *rule = NULL;
        tpw_split_work work;
        cr_assert_eq(tpw_split_rule_create(patterns[k], strlen(patterns[k]), &rule, NULL), TPW_OK);
        cr_assert_eq(tpw_split_work_init(&work, rule, 16, NULL), TPW_OK);
        size_t next = 0;
        for (unsigned c = 0; c <= 0xFFFF; c++) {
            if (c >= 0xD800 && c <= 0xDFFF)
                continue;
            char text[8] = "#";
            size_t bytes = 1;
            if (c < 0x80) {
                text[bytes++] = (char)c;
            } else if (c < 0x800) {
                text[bytes++] = (char)(0xC0 | c >> 6);
                text[bytes++] = (char)(0x80 | (c & 0x3F));
            } else {
                text[bytes++] = (char)(0xE0 | c >> 12);
                text[bytes++] = (char)(0x80 | (c >> 6 & 0x3F));
                text[bytes++] = (char)(0x80 | (c & 0x3F));
            }
            bool is_space = next < sizeof space / sizeof *space && space[next] == c;
            next += is_space;
            pieces p = {0};
            cr_assert_eq(tpw_split_rule_apply(rule, &work, text, bytes, collect, &p, NULL), TPW_OK);
            cr_assert_eq(p.count, is_space ? 2u : 1u, "%s at U+%04X", patterns[k], c);
        }
        cr_assert_eq(next, sizeof space / sizeof *space);
        tpw_split_work_fini(&work);
        tpw_split_rule_destroy(rule);
    }
}

static const struct {
    const char *pattern, *named;
} refused[] = {
    {"^a", "\"^\" at byte 0"},
    {"a|b$", "\"$\" at byte 3"},
    {"\\w+", "\\w"},
    {"\\bx", "\\b"},
    {"[\\h]", "\\h"},
    {"(a)\\1", "\\1"},
    {"\\R", "\\R"},
    {"\\Aa", "\\A"},
    {"a\\K", "\\K"},
    {"\\Qa\\E", "\\Q"},
    {"\\C", "\\C"},
    {"\\u00e9", "\\u"},
    {"\\x41", "\\x41"},
    {"\\x{}", "\\x{}"},
    {"\\x{1234567}", "\\x{1"},
    {"\\x{d800}", "not a regular expression"},
    {"\\p{Han}", "\\p{Han}"},
    {"\\p{^L}", "\\p{^L}"},
    {"\\pL", "\\pL"},
    {"\\p{L", "\\p{"},
    {"[[:alpha:]]", "classes inside"},
    {"[a[bc]]", "classes inside"},
    {"[a-z&&b]", "intersections"},
    {"[]a]", "starts with a bracket"},
    {"[^]a]", "starts with a bracket"},
    {"[abc", "does not end"},
    {"[abc\\]", "does not end"},
    {"[\\s-x]", "end a range"},
    {"[!-\\s]", "end a range"},
    {"[!-\\p{L}]", "end a range"},
    {"(?R)", "(?R"},
    {"(?P<n>a)", "(?P<"},
    {"(?<n>a)", "(?<n"},
    {"(?m:a)", "(?m:"},
    {"(?i)a", "(?i)"},
    {"(*ACCEPT)", "(*AC"},
    {"(*UTF)a", "(*UT"},
    {"(?C1)", "(?C1"},
    {"(?{x})", "(?{x"},
    {"a{,3}", "{,3"},
    {"a{1,2}+", "without suffix"},
    {"a{2}?", "without suffix"},
    {"a{x}", "{x"},
    {"a\\", "escape"},
    {"\\'", "escape"},
    {"(a", "not a regular expression"},
    {"a)", "not a regular expression"},
    {"*a", "not a regular expression"},
    {"[b-a]", "not a regular expression"},
    {"(?<=a+)b", "not a regular expression"},
};

Test(split_rule, refuses_by_name)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tpw_error err = {0};
        tpw_split_rule *rule = NULL;
        tpw_status st = tpw_split_rule_create(refused[i].pattern, strlen(refused[i].pattern), &rule, &err);
        cr_assert_eq(st, TPW_ERR_CHECKPOINT, "\"%s\" gives %d", refused[i].pattern, st);
        cr_assert(strstr(err.text, refused[i].named), "\"%s\": %s", refused[i].pattern, err.text);
        cr_assert_eq(tpw_split_rule_create(refused[i].pattern, strlen(refused[i].pattern), &rule, NULL), st);
    }
}

Test(split_rule, refuses_by_size)
{
    tpw_split_rule *rule = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_split_rule_create("", 0, &rule, &err), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_split_rule_create("a\0b", 3, &rule, &err), TPW_ERR_CHECKPOINT);
    char *large = malloc(8193);
    memset(large, 'a', 8193);
    cr_assert_eq(tpw_split_rule_create(large, 8193, &rule, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "8193"), "%s", err.text);
    /* the longest rule, every two bytes of which grow to the longest translation; PCRE2 may find it too large */
    for (size_t i = 0; i < 8192; i += 2)
        memcpy(large + i, "\\S", 2);
    tpw_status st = tpw_split_rule_create(large, 8192, &rule, &err);
    cr_assert(st == TPW_OK || st == TPW_ERR_CHECKPOINT);
    tpw_split_rule_destroy(st == TPW_OK ? rule : NULL);
    memset(large, '(', 8192);
    cr_assert_eq(tpw_split_rule_create(large, 8192, &rule, &err), TPW_ERR_CHECKPOINT);
    free(large);
}

Test(split_rule, limits_end_a_catastrophe)
{
    char text[64];
    memset(text, 'a', sizeof text);
    pieces p = {0};
    tpw_error err = {0};
    cr_assert_eq(split("(?:a|aa)+[bc]", text, sizeof text, &p, &err), TPW_ERR_LIMIT);
    cr_assert(strstr(err.text, "at byte 0"), "%s", err.text);
}

Test(split_rule, depth_is_limited)
{
    size_t bytes = 200000;
    char *text = malloc(bytes);
    memset(text, 'a', bytes);
    pieces p = {0};
    tpw_error err = {0};
    cr_assert_eq(split("(?:a|b)+?[cd]", text, bytes, &p, &err), TPW_ERR_LIMIT, "%s", err.text);
    free(text);
}

/* Long runs that the real rule must take in one piece, or at least in linear time. */
Test(split_rule, long_runs_stay_under_the_limits)
{
    size_t bytes = 1 << 20;
    char *text = malloc(bytes + 1);
    static const struct {
        char fill, last;
        size_t pieces;
    } runs[] = {{'a', 'a', 1}, {' ', 'x', 2}, {' ', ' ', 1}, {'\n', 'x', 2}, {'.', 'x', 2}, {'\r', '\n', 1}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        memset(text, runs[i].fill, bytes);
        text[bytes - 1] = runs[i].last;
        pieces p = {0};
        tpw_error err = {0};
        cr_assert_eq(split(QWEN, text, bytes, &p, &err), TPW_OK, "%s", err.text);
        cr_assert_eq(p.count, runs[i].pieces, "run %zu: %zu pieces", i, p.count);
    }
    free(text);
}

Test(split_rule, passes_on_the_error_of_emit)
{
    for (size_t at = 1; at <= 3; at++) { /* in a gap, in a match, in the last gap */
        pieces p = {.fail_at = at};
        tpw_error err = {0};
        cr_assert_eq(split("x+", "axxb", 4, &p, &err), TPW_ERR_MEMORY);
        cr_assert_str_eq(err.text, "as asked");
        cr_assert_eq(p.count, at);
    }
}

Test(split_rule, empty_text_has_no_pieces)
{
    pieces p = {0};
    cr_assert_eq(split("x*", "", 0, &p, &(tpw_error){0}), TPW_OK);
    cr_assert_eq(p.count, 0u);
}
