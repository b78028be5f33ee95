/* Translates a split rule to PCRE2, refusing what the two dialects read differently, and cuts text by it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/split_rule.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define PATTERN_BYTES_MAX 8192
#define NEST_MAX          64
#define DEPTH_MAX         10000
#define HEAP_KIB_MAX      (64u * 1024u)
#define MATCH_STEPS_MIN   10000000u
#define MATCH_STEPS_BYTE  16u /* backtracking over a long run of blanks costs some steps a byte, once */

/* Unicode White_Space. PCRE2's own \s would add U+180E, which left that property with Unicode 6.3. */
#define SPACE_SET \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
/* and its complement, spelled out because a class cannot hold a negated set */
#define NOT_SPACE_SET                                                                                                  \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}" \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

/* what an escape makes literal in both dialects; the quotes and angle brackets are anchors in some */
#define PLAIN_PUNCTUATION "!\"#$%&()*+,-./:;=?@[\\]^_{|}~"

#define GROWTH_MAX 128 /* bytes written for one byte of the pattern */
_Static_assert(sizeof NOT_SPACE_SET + 2 < 2 * GROWTH_MAX, "an escape of two bytes must fit its translation");

struct tpw_split_rule {
    pcre2_code *code;
};

typedef struct translation {
    const char *in; /* NUL-terminated, also holds no NUL */
    size_t bytes;
    size_t at;
    char *out;
    size_t written;
} translation;

static void put(translation *t, const char *text, size_t bytes)
{
    memcpy(t->out + t->written, text, bytes);
    t->written += bytes;
}

static void put_text(translation *t, const char *text)
{
    put(t, text, strlen(text));
}

/* Copies the next `bytes` bytes of the pattern as they are. */
static void copy(translation *t, size_t bytes)
{
    put(t, t->in + t->at, bytes);
    t->at += bytes;
}

static bool starts(const translation *t, const char *text)
{
    return strncmp(t->in + t->at, text, strlen(text)) == 0;
}

static tpw_status refuse(const translation *t, size_t bytes, const char *why, tpw_error *err)
{
    size_t left = t->bytes - t->at;
    return tpw_fail(err, TPW_ERR_CHECKPOINT, "split rule: \"%.*s\" at byte %zu is not supported: %s",
                    (int)(bytes < left ? bytes : left), t->in + t->at, t->at, why);
}

/* "\p{L}" with a general category; names of scripts and properties differ between engines. */
static tpw_status property(translation *t, tpw_error *err)
{
    static const char *const categories[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",
                                             "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                             "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
    const char *name = t->in + t->at + 3;
    const char *end = t->in[t->at + 2] == '{' ? strchr(name, '}') : NULL;
    if (end == NULL)
        return refuse(t, 3, "a property is written \\p{NAME}", err);
    size_t length = (size_t)(end - name);
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        if (strlen(categories[i]) == length && memcmp(categories[i], name, length) == 0) {
            copy(t, length + 4);
            return TPW_OK;
        }
    }
    return refuse(t, length + 4, "only general categories such as L, M, N, Nd, P, S, Z can be named", err);
}

/* One escape, inside or outside a class. *is_set: it stands for more than one character. */
static tpw_status escape(translation *t, bool in_class, bool *is_set, tpw_error *err)
{
    char c = t->in[t->at + 1];
    *is_set = strchr("sSdDpP", c) != NULL && c != '\0';
    if (c == 's' || c == 'S') {
        const char *set = c == 's' ? SPACE_SET : NOT_SPACE_SET;
        put_text(t, in_class ? "" : "[");
        put_text(t, set);
        put_text(t, in_class ? "" : "]");
        t->at += 2;
        return TPW_OK;
    }
    if (c == 'p' || c == 'P')
        return property(t, err);
    if (c == 'x') {
        const char *digits = t->in + t->at + 3;
        size_t length = t->in[t->at + 2] == '{' ? strspn(digits, "0123456789abcdefABCDEF") : 0;
        if (length < 1 || length > 6 || digits[length] != '}')
            return refuse(t, 4, "a code point is written \\x{HEX}", err);
        copy(t, length + 4);
        return TPW_OK;
    }
    if (c != '\0' && strchr("dDrntf" PLAIN_PUNCTUATION, c) != NULL) {
        copy(t, 2);
        return TPW_OK;
    }
    return refuse(t, 2, "this escape does not mean the same in every engine", err);
}

static tpw_status class_member(translation *t, bool *after_dash, tpw_error *err)
{
    char c = t->in[t->at];
    bool is_set = false;
    if (c == '[')
        return refuse(t, 2, "classes inside a class", err);
    if (c == '&' && t->in[t->at + 1] == '&')
        return refuse(t, 2, "intersections of classes", err);
    if (c == '\\') {
        bool was_after_dash = *after_dash;
        size_t start = t->at;
        TPW_TRY(escape(t, true, &is_set, err));
        *after_dash = false;
        bool before_dash = t->in[t->at] == '-' && t->in[t->at + 1] != ']';
        if (is_set && (was_after_dash || before_dash)) {
            t->at = start;
            return refuse(t, 4, "a set of characters cannot end a range", err);
        }
        return TPW_OK;
    }
    *after_dash = c == '-';
    copy(t, 1);
    return TPW_OK;
}

static tpw_status character_class(translation *t, tpw_error *err)
{
    size_t start = t->at;
    copy(t, 1);
    if (t->in[t->at] == '^')
        copy(t, 1);
    if (t->in[t->at] == ']')
        return refuse(t, 1, "an empty class, or one that starts with a bracket", err);
    bool after_dash = false;
    if (t->in[t->at] == '-') /* a dash in the first place is no range */
        copy(t, 1);
    while (t->in[t->at] != ']') {
        if (t->at >= t->bytes) {
            t->at = start;
            return refuse(t, 8, "the class does not end", err);
        }
        TPW_TRY(class_member(t, &after_dash, err));
    }
    copy(t, 1);
    return TPW_OK;
}

static tpw_status group(translation *t, tpw_error *err)
{
    static const char *const known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (t->in[t->at + 1] != '?' && t->in[t->at + 1] != '*') {
        copy(t, 1);
        return TPW_OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (starts(t, known[i])) {
            copy(t, strlen(known[i]));
            return TPW_OK;
        }
    }
    return refuse(t, 4, "this kind of group", err);
}

/* {n}, {n,} or {n,m}, as such: engines disagree on a suffix after it and on {,m}. */
static tpw_status interval(translation *t, tpw_error *err)
{
    const char *text = t->in + t->at;
    size_t length = 1 + strspn(text + 1, "0123456789");
    bool good = length > 1;
    if (text[length] == ',')
        length += 1 + strspn(text + length + 1, "0123456789");
    good = good && text[length] == '}' && text[length + 1] != '+' && text[length + 1] != '?';
    if (!good)
        return refuse(t, length + 2, "an interval is written {n}, {n,} or {n,m}, without suffix", err);
    copy(t, length + 1);
    return TPW_OK;
}

static tpw_status translate(translation *t, tpw_error *err)
{
    while (t->at < t->bytes) {
        bool is_set;
        switch (t->in[t->at]) {
        case '\\':
            TPW_TRY(escape(t, false, &is_set, err));
            break;
        case '[':
            TPW_TRY(character_class(t, err));
            break;
        case '(':
            TPW_TRY(group(t, err));
            break;
        case '{':
            TPW_TRY(interval(t, err));
            break;
        case '^':
        case '$':
            return refuse(t, 1, "an anchor matches at lines in one engine and at the ends in another", err);
        default:
            copy(t, 1);
        }
    }
    return TPW_OK;
}

static tpw_status compile(const translation *t, pcre2_code **code, tpw_error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "split rule: out of memory");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, NEST_MAX);
    int number;
    PCRE2_SIZE offset;
    *code = pcre2_compile((PCRE2_SPTR)t->out, t->written, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &number,
                          &offset, context);
    pcre2_compile_context_free(context);
    if (*code != NULL)
        return TPW_OK;
    PCRE2_UCHAR text[128] = "";
    pcre2_get_error_message(number, text, sizeof text);
    return tpw_fail(err, TPW_ERR_CHECKPOINT, "split rule: not a regular expression: %s (rule \"%.80s\")",
                    (const char *)text, t->in);
}

tpw_status tpw_split_rule_create(const char *pattern, size_t bytes, tpw_split_rule **out, tpw_error *err)
{
    if (bytes == 0 || bytes > PATTERN_BYTES_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "split rule: %zu bytes long, must be 1 to %d", bytes,
                        PATTERN_BYTES_MAX);
    if (memchr(pattern, '\0', bytes) != NULL)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "split rule: holds a NUL byte");
    /* a copy with a NUL at its end lets the translation look ahead without asking for the end each time */
    char *copied = strndup(pattern, bytes);
    translation t = {.in = copied, .bytes = bytes, .out = malloc(bytes * GROWTH_MAX)};
    tpw_split_rule *rule = calloc(1, sizeof *rule);
    tpw_status st = TPW_OK;
    if (copied == NULL || t.out == NULL || rule == NULL) {
        st = tpw_fail(err, TPW_ERR_MEMORY, "split rule: out of memory");
        goto free_parts;
    }
    TPW_TRY_GOTO(st, translate(&t, err), free_parts);
    TPW_TRY_GOTO(st, compile(&t, &rule->code, err), free_parts);
    *out = rule;
    rule = NULL;

free_parts:
    free(rule);
    free(t.out);
    free(copied);
    return st;
}

void tpw_split_rule_destroy(tpw_split_rule *rule)
{
    if (rule == NULL)
        return;
    pcre2_code_free(rule->code);
    free(rule);
}

tpw_status tpw_split_work_init(tpw_split_work *work, const tpw_split_rule *rule, size_t bytes_max, tpw_error *err)
{
    work->match = pcre2_match_data_create_from_pattern(rule->code, NULL);
    work->limits = pcre2_match_context_create(NULL);
    if (work->match == NULL || work->limits == NULL) {
        tpw_split_work_fini(work);
        return tpw_fail(err, TPW_ERR_MEMORY, "split rule: out of memory");
    }
    size_t steps;
    if (!tpw_mul_size(bytes_max, MATCH_STEPS_BYTE, &steps) || steps > UINT32_MAX)
        steps = UINT32_MAX;
    pcre2_set_match_limit(work->limits, steps < MATCH_STEPS_MIN ? MATCH_STEPS_MIN : (uint32_t)steps);
    pcre2_set_depth_limit(work->limits, DEPTH_MAX);
    pcre2_set_heap_limit(work->limits, HEAP_KIB_MAX);
    return TPW_OK;
}

void tpw_split_work_fini(tpw_split_work *work)
{
    pcre2_match_data_free(work->match);
    pcre2_match_context_free(work->limits);
    memset(work, 0, sizeof *work);
}

/* The one place where PCRE2's matching errors become ours. */
static tpw_status match_failed(int code, size_t at, tpw_error *err)
{
    switch (code) {
    case PCRE2_ERROR_MATCHLIMIT:
        return tpw_fail(err, TPW_ERR_LIMIT, "split rule: too many steps to match the text at byte %zu", at);
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
        return tpw_fail(err, TPW_ERR_LIMIT, "split rule: too much backtracking to match the text at byte %zu", at);
    case PCRE2_ERROR_NOMEMORY:
        return tpw_fail(err, TPW_ERR_MEMORY, "split rule: out of memory");
    default:
        return tpw_fail(err, TPW_ERR_INTERNAL, "split rule: PCRE2 error %d at byte %zu", code, at);
    }
}

tpw_status tpw_split_rule_apply(const tpw_split_rule *rule, tpw_split_work *work, const char *text, size_t bytes,
                                tpw_piece_fn *emit, void *data, tpw_error *err)
{
    size_t cut = 0;  /* everything before it was emitted */
    size_t from = 0; /* where the next search starts */
    while (from < bytes) {
        /* validity was checked once for the whole text; checking again at every match would be quadratic */
        int rc = pcre2_match(rule->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, work->match, work->limits);
        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0)
            return match_failed(rc, from, err);
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(work->match);
        size_t start = span[0], end = span[1];
        if (start > cut)
            TPW_TRY(emit(data, text + cut, start - cut, err));
        cut = start;
        if (end > start) {
            TPW_TRY(emit(data, text + start, end - start, err));
            cut = end;
            from = end;
            continue;
        }
        from = start + 1; /* an empty match: go on after the next whole character */
        while (from < bytes && ((unsigned char)text[from] & 0xC0) == 0x80)
            from++;
    }
    if (cut < bytes)
        return emit(data, text + cut, bytes - cut, err);
    return TPW_OK;
}
