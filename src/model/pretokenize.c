/* Cuts text at added tokens, composes it (the only door to utf8proc) and hands it to the split rule.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/pretokenize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/checked.h"
#include "model/split_rule.h"

/* Some versions of utf8proc drop U+11A7, the vowel just below the final consonants, after a syllable. A surrogate, which
 * valid text never holds and nothing composes with, stands for it meanwhile. */
#define BELOW_FINALS 0x11A7
#define STAND_IN     0xDFFF

#define MARKS_SMALL 16 /* runs of combining marks up to here are sorted by insertion */

/* A tree of bytes. Node 0 is the root. */
typedef struct trie_node {
    int32_t child;   /* first of the list of children, -1: none */
    int32_t sibling; /* next in the list that this node is in */
    int32_t id;      /* of the token that ends here, -1: none */
    unsigned char byte;
} trie_node;

typedef struct trie {
    trie_node *nodes;
    int32_t first[256]; /* children of the root, by byte */
    int32_t count;
    int32_t capacity;
} trie;

struct tpw_pretokenizer {
    tpw_split_rule *rule;
    bool nfc;
    trie raw;
    trie composed;
};

static int32_t trie_child(const trie *t, int32_t node, unsigned char byte)
{
    if (node == 0)
        return t->first[byte];
    int32_t child = t->nodes[node].child;
    while (child >= 0 && t->nodes[child].byte != byte)
        child = t->nodes[child].sibling;
    return child;
}

static tpw_status trie_init(trie *t, size_t bytes, tpw_error *err)
{
    size_t size;
    if (bytes >= INT32_MAX || !tpw_mul_size(bytes + 1, sizeof *t->nodes, &size))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "added_tokens: %zu bytes of content are too many", bytes);
    t->nodes = malloc(size);
    if (t->nodes == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "added_tokens: out of memory");
    for (int i = 0; i < 256; i++)
        t->first[i] = -1;
    t->nodes[0] = (trie_node){.child = -1, .sibling = -1, .id = -1};
    t->capacity = (int32_t)bytes + 1;
    t->count = 1;
    return TPW_OK;
}

/* Room for every byte of every token was made by trie_init. */
static tpw_status trie_add(trie *t, const char *content, size_t bytes, int32_t id, tpw_error *err)
{
    int32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)content[i];
        int32_t child = trie_child(t, node, byte);
        if (child < 0) {
            if (t->count == t->capacity)
                return tpw_fail(err, TPW_ERR_INTERNAL, "added_tokens: more bytes than were counted");
            child = t->count++;
            t->nodes[child] = (trie_node){.child = -1, .sibling = -1, .id = -1, .byte = byte};
            if (node == 0) {
                t->first[byte] = child;
            } else {
                t->nodes[child].sibling = t->nodes[node].child;
                t->nodes[node].child = child;
            }
        }
        node = child;
    }
    if (t->nodes[node].id >= 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "added_tokens: ids %d and %d have the same content \"%.60s\"",
                        t->nodes[node].id, id, content);
    t->nodes[node].id = id;
    return TPW_OK;
}

/* The leftmost token at or after `from`, the longest of those that start there. */
static bool trie_find(const trie *t, const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
                      int32_t *id)
{
    if (t->count <= 1)
        return false;
    for (size_t i = from; i < bytes; i++) {
        int32_t node = t->first[(unsigned char)text[i]];
        int32_t found = -1;
        for (size_t at = i + 1; node > 0; at++) {
            if (t->nodes[node].id >= 0) {
                found = t->nodes[node].id;
                *end = at;
            }
            node = at < bytes ? trie_child(t, node, (unsigned char)text[at]) : -1;
        }
        if (found >= 0) {
            *start = i;
            *id = found;
            return true;
        }
    }
    return false;
}

/* Decodes valid UTF-8 to canonically decomposed code points. *out is malloc'ed. */
static tpw_status decompose(const char *text, size_t bytes, utf8proc_int32_t **out, size_t *count, tpw_error *err)
{
    const utf8proc_option_t options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE;
    utf8proc_int32_t *points = NULL;
    size_t total = 0;
    for (int pass = 0; pass < 2; pass++) { /* counts, then writes */
        size_t written = 0;
        for (size_t at = 0; at < bytes;) {
            utf8proc_int32_t point;
            utf8proc_ssize_t length =
                utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(bytes - at), &point);
            utf8proc_ssize_t parts = -1;
            int boundary = 0;
            if (length > 0)
                parts =
                    utf8proc_decompose_char(point, pass == 0 ? NULL : points + written,
                                            pass == 0 ? 0 : (utf8proc_ssize_t)(total - written), options, &boundary);
            if (length <= 0 || parts < 0 || (pass == 1 && (size_t)parts > total - written)) {
                free(points);
                return tpw_fail(err, TPW_ERR_INTERNAL, "NFC: byte %zu of the text cannot be decomposed", at);
            }
            written += (size_t)parts;
            at += (size_t)length;
        }
        if (pass == 1)
            break;
        total = written;
        size_t size;
        if (!tpw_mul_size(total, sizeof *points, &size))
            return tpw_fail(err, TPW_ERR_LIMIT, "NFC: a text of %zu bytes is too long", bytes);
        points = malloc(size);
        if (points == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "NFC: out of memory for %zu bytes", size);
    }
    *out = points;
    *count = total;
    return TPW_OK;
}

static int combining_class(utf8proc_int32_t point)
{
    return point < 0x300 ? 0 : utf8proc_get_property(point)->combining_class;
}

/* Sorts a run of combining marks by class, equal ones in their order. `spare` holds `count` more, used for long runs. */
static void sort_marks(utf8proc_int32_t *marks, size_t count, utf8proc_int32_t *spare)
{
    if (count <= MARKS_SMALL) {
        for (size_t i = 1; i < count; i++) {
            utf8proc_int32_t mark = marks[i];
            size_t j = i;
            for (; j > 0 && combining_class(marks[j - 1]) > combining_class(mark); j--)
                marks[j] = marks[j - 1];
            marks[j] = mark;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < count; i++)
        start[(combining_class(marks[i]) & 255) + 1]++;
    for (int i = 0; i < 256; i++)
        start[i + 1] += start[i];
    for (size_t i = 0; i < count; i++)
        spare[start[combining_class(marks[i]) & 255]++] = marks[i];
    memcpy(marks, spare, count * sizeof *marks);
}

/* Canonical order. utf8proc has a sort of its own, but its time is quadratic in the length of a run. */
static tpw_status order_marks(utf8proc_int32_t *points, size_t count, tpw_error *err)
{
    utf8proc_int32_t *spare = NULL;
    for (size_t i = 0; i < count;) {
        if (combining_class(points[i]) == 0) {
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < count && combining_class(points[end]) != 0)
            end++;
        if (end - i > MARKS_SMALL && spare == NULL) {
            spare = malloc(count * sizeof *spare); /* as many bytes as `points` has */
            if (spare == NULL)
                return tpw_fail(err, TPW_ERR_MEMORY, "NFC: out of memory for %zu code points", count);
        }
        sort_marks(points + i, end - i, spare);
        i = end;
    }
    free(spare);
    return TPW_OK;
}

/* Nothing below U+0300 composes or is reordered. */
static bool surely_composed(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] >= 0xCC)
            return false;
    }
    return true;
}

tpw_status tpw_text_compose(const char *text, size_t bytes, char **out, size_t *out_bytes, tpw_error *err)
{
    *out = NULL;
    *out_bytes = bytes;
    if (surely_composed(text, bytes))
        return TPW_OK;
    utf8proc_int32_t *points = NULL;
    size_t count = 0, size, written = 0;
    TPW_TRY(decompose(text, bytes, &points, &count, err));
    char *composed = NULL;
    tpw_status st;
    TPW_TRY_GOTO(st, order_marks(points, count, err), free_points);
    for (size_t i = 0; i < count; i++)
        points[i] = points[i] == BELOW_FINALS ? STAND_IN : points[i];
    utf8proc_ssize_t left =
        utf8proc_normalize_utf32(points, (utf8proc_ssize_t)count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (left < 0) {
        st = tpw_fail(err, TPW_ERR_INTERNAL, "NFC: %s", utf8proc_errmsg(left));
        goto free_points;
    }
    if (!tpw_mul_size((size_t)left, 4, &size) || (composed = malloc(size + 1)) == NULL) {
        st = tpw_fail(err, TPW_ERR_MEMORY, "NFC: out of memory for %zd code points", left);
        goto free_points;
    }
    for (utf8proc_ssize_t i = 0; i < left; i++) {
        utf8proc_int32_t point = points[i] == STAND_IN ? BELOW_FINALS : points[i];
        written += (size_t)utf8proc_encode_char(point, (utf8proc_uint8_t *)composed + written);
    }
    *out = composed;
    *out_bytes = written;

free_points:
    free(points);
    return st;
}

static size_t content_bytes(const tpw_added_token *added, size_t count, bool normalized)
{
    size_t total = 0; /* cannot wrap: all of it lies in memory, and composing at most triples it */
    for (size_t i = 0; i < count; i++)
        total += added[i].normalized == normalized ? added[i].bytes * (normalized ? 3 : 1) : 0;
    return total;
}

static tpw_status add_token(tpw_pretokenizer *p, const tpw_added_token *token, tpw_error *err)
{
    if (token->bytes == 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "added_tokens: the content of id %d is empty", token->id);
    if (!token->normalized)
        return trie_add(&p->raw, token->content, token->bytes, token->id, err);
    char *composed = NULL;
    size_t bytes = token->bytes;
    if (p->nfc)
        TPW_TRY(tpw_text_compose(token->content, token->bytes, &composed, &bytes, err));
    tpw_status st = trie_add(&p->composed, composed ? composed : token->content, bytes, token->id, err);
    free(composed);
    return st;
}

tpw_status tpw_pretokenizer_create(const char *pattern, size_t pattern_bytes, bool nfc, const tpw_added_token *added,
                                   size_t added_count, tpw_pretokenizer **out, tpw_error *err)
{
    tpw_pretokenizer *p = calloc(1, sizeof *p);
    if (p == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "tokenizer: out of memory");
    p->nfc = nfc;
    tpw_status st;
    TPW_TRY_GOTO(st, tpw_split_rule_create(pattern, pattern_bytes, &p->rule, err), destroy);
    TPW_TRY_GOTO(st, trie_init(&p->raw, content_bytes(added, added_count, false), err), destroy);
    TPW_TRY_GOTO(st, trie_init(&p->composed, content_bytes(added, added_count, true), err), destroy);
    for (size_t i = 0; i < added_count; i++)
        TPW_TRY_GOTO(st, add_token(p, &added[i], err), destroy);
    *out = p;
    return TPW_OK;

destroy:
    tpw_pretokenizer_destroy(p);
    return st;
}

void tpw_pretokenizer_destroy(tpw_pretokenizer *pretokenizer)
{
    if (pretokenizer == NULL)
        return;
    tpw_split_rule_destroy(pretokenizer->rule);
    free(pretokenizer->raw.nodes);
    free(pretokenizer->composed.nodes);
    free(pretokenizer);
}

/* One call of tpw_pretokenizer_run. */
typedef struct run {
    const tpw_pretokenizer *p;
    tpw_split_work *work;
    const tpw_piece_sink *sink;
} run;

typedef tpw_status span_fn(const run *r, const char *text, size_t bytes, tpw_error *err);

/* Gives the tokens of `t` in `text` to the sink and what lies between them to `between`. */
static tpw_status cut(const run *r, const trie *t, const char *text, size_t bytes, span_fn *between, tpw_error *err)
{
    size_t done = 0, start = 0, end = 0;
    int32_t id = -1;
    while (trie_find(t, text, bytes, done, &start, &end, &id)) {
        if (start > done)
            TPW_TRY(between(r, text + done, start - done, err));
        TPW_TRY(r->sink->added(r->sink->data, id, err));
        done = end;
    }
    return done < bytes ? between(r, text + done, bytes - done, err) : TPW_OK;
}

static tpw_status split(const run *r, const char *text, size_t bytes, tpw_error *err)
{
    return tpw_split_rule_apply(r->p->rule, r->work, text, bytes, r->sink->piece, r->sink->data, err);
}

static tpw_status compose_and_split(const run *r, const char *text, size_t bytes, tpw_error *err)
{
    char *composed = NULL;
    if (r->p->nfc)
        TPW_TRY(tpw_text_compose(text, bytes, &composed, &bytes, err));
    tpw_status st = cut(r, &r->p->composed, composed ? composed : text, bytes, split, err);
    free(composed);
    return st;
}

tpw_status tpw_pretokenizer_run(const tpw_pretokenizer *pretokenizer, const char *text, size_t bytes,
                                const tpw_piece_sink *sink, tpw_error *err)
{
    tpw_split_work work;
    size_t bytes_max;
    if (!tpw_mul_size(bytes, 3, &bytes_max)) /* what composing makes of it at most */
        return tpw_fail(err, TPW_ERR_LIMIT, "a text of %zu bytes is too long", bytes);
    TPW_TRY(tpw_split_work_init(&work, pretokenizer->rule, bytes_max, err));
    run r = {.p = pretokenizer, .work = &work, .sink = sink};
    tpw_status st = cut(&r, &pretokenizer->raw, text, bytes, compose_and_split, err);
    tpw_split_work_fini(&work);
    return st;
}
