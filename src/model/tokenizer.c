/* Loads a tokenizer.json and turns text to ids and ids to bytes with its parts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"
#include "model/bpe.h"
#include "model/pretokenize.h"
#include "model/tokenizer_sections.h"
#include "model/vocabulary.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)
#define TEXT_BYTES_MAX ((size_t)256 << 20)
#define ALPHABET_END   324 /* 256 + the 68 bytes that GPT-2's alphabet moves up */

struct tpw_tokenizer {
    tpw_vocabulary vocabulary;
    tpw_bpe bpe;
    tpw_pretokenizer *pretokenizer;
    bool ignore_merges;
    uint64_t digest;
};

/* What only loading needs. */
typedef struct loading {
    tpw_tokenizer *t;
    tpw_tokenizer_sections sections;
    tpw_added_token *added;
    size_t added_count;
    int16_t byte_of[ALPHABET_END];       /* code point of the alphabet -> byte, -1: not in it */
    char bytes[2 * TPW_TOKEN_BYTES_MAX]; /* of one token, or of the two parts of a merge */
} loading;

/* GPT-2's printable stand-ins: visible Latin-1 bytes are themselves, the others follow from U+0100 on in order. */
static void fill_alphabet(int16_t byte_of[ALPHABET_END])
{
    for (int i = 0; i < ALPHABET_END; i++)
        byte_of[i] = -1;
    int moved = 256;
    for (int byte = 0; byte < 256; byte++) {
        bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        byte_of[visible ? byte : moved++] = (int16_t)byte;
    }
}

/* Spells `text` (valid UTF-8) in bytes at l->bytes + offset. False when it has a character outside the alphabet or is
 * too long. */
static bool spell(loading *l, const char *text, size_t text_bytes, size_t offset, size_t *bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < text_bytes; count++) {
        unsigned point = (unsigned char)text[i++];
        if (point >= 0xE0 || count == TPW_TOKEN_BYTES_MAX)
            return false;
        if (point >= 0x80 && i < text_bytes)
            point = (point & 0x1F) << 6 | ((unsigned char)text[i++] & 0x3F);
        if (point >= ALPHABET_END || l->byte_of[point] < 0)
            return false;
        l->bytes[offset + count] = (char)l->byte_of[point];
    }
    *bytes = count;
    return true;
}

static tpw_status read_added_token(loading *l, size_t i, const json_t *entry, tpw_error *err)
{
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    static const char *const unsupported[] = {"single_word", "lstrip", "rstrip"};
    char what[64];
    snprintf(what, sizeof what, "added_tokens[%zu]", i);
    tpw_added_token *token = &l->added[i];
    int64_t id = 0;
    bool special = false;
    TPW_TRY(tpw_tokenizer_check_keys(entry, what, known, err));
    TPW_TRY(tpw_json_string(entry, "content", true, what, &token->content, err));
    TPW_TRY(tpw_json_int(entry, "id", true, 0, TPW_TOKENS_MAX - 1, what, &id, err));
    TPW_TRY(tpw_json_bool(entry, "special", true, what, &special, err));
    TPW_TRY(tpw_json_bool(entry, "normalized", true, what, &token->normalized, err));
    for (size_t k = 0; k < sizeof unsupported / sizeof *unsupported; k++) {
        bool set = false;
        TPW_TRY(tpw_json_bool(entry, unsupported[k], false, what, &set, err));
        if (set)
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s (\"%.60s\"): %s true is not supported", what, token->content,
                            unsupported[k]);
    }
    token->bytes = json_string_length(json_object_get(entry, "content"));
    token->id = (int32_t)id;
    TPW_TRY(tpw_vocabulary_add(&l->t->vocabulary, id, token->content, token->bytes, err));
    l->t->vocabulary.tokens[id].special = special;
    /* the same text in the vocabulary must be the same token, or text and file would disagree about its id */
    const json_t *same = json_object_get(l->sections.vocab, token->content);
    if (same != NULL && (!json_is_integer(same) || json_integer_value(same) != id))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s (\"%.60s\") has the id %d, but model.vocab gives it another", what,
                        token->content, token->id);
    return TPW_OK;
}

static tpw_status read_added(loading *l, tpw_error *err)
{
    size_t count = l->sections.added != NULL ? json_array_size(l->sections.added) : 0;
    if (count > TPW_TOKENS_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "added_tokens has %zu entries: at most %d are supported", count,
                        TPW_TOKENS_MAX);
    l->added = calloc(count + 1, sizeof *l->added);
    if (l->added == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for %zu added tokens", count);
    l->added_count = count;
    for (size_t i = 0; i < count; i++)
        TPW_TRY(read_added_token(l, i, json_array_get(l->sections.added, i), err));
    return TPW_OK;
}

static tpw_status read_token(loading *l, const char *text, const json_t *value, tpw_error *err)
{
    tpw_vocabulary *vocabulary = &l->t->vocabulary;
    if (!json_is_integer(value))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "model.vocab: the id of \"%.60s\" must be an integer", text);
    int64_t id = json_integer_value(value);
    size_t text_bytes = strlen(text), bytes = 0; /* Jansson refuses keys with NUL */
    bool spelled = spell(l, text, text_bytes, 0, &bytes);
    if (tpw_vocabulary_has(vocabulary, id)) {
        /* the added token of this id, unless two entries share the id */
        const tpw_token *token = &vocabulary->tokens[id];
        const char *content = vocabulary->bytes + token->start;
        if (token->bytes == text_bytes && memcmp(content, text, text_bytes) == 0) {
            /* merges may make it only if its text is its bytes, as for "<|im_end|>" */
            bool plain = spelled && bytes == text_bytes && memcmp(l->bytes, text, bytes) == 0;
            return plain ? tpw_vocabulary_index(vocabulary, (int32_t)id, err) : TPW_OK;
        }
    }
    if (!spelled)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "model.vocab: \"%.60s\" is longer than %d or has a character outside the byte alphabet", text,
                        TPW_TOKEN_BYTES_MAX);
    TPW_TRY(tpw_vocabulary_add(vocabulary, id, l->bytes, bytes, err));
    return tpw_vocabulary_index(vocabulary, (int32_t)id, err);
}

static tpw_status read_vocab(loading *l, tpw_error *err)
{
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)l->sections.vocab, text, value) /* Jansson's iteration takes no const */
        TPW_TRY(read_token(l, text, value, err));
    return TPW_OK;
}

/* The two parts of merges[i]: ["a", "b"] or "a b". */
static tpw_status merge_parts(const json_t *entry, size_t i, const char *part[2], size_t bytes[2], tpw_error *err)
{
    if (json_is_array(entry) && json_array_size(entry) == 2 && json_is_string(json_array_get(entry, 0)) &&
        json_is_string(json_array_get(entry, 1))) {
        for (size_t k = 0; k < 2; k++) {
            part[k] = json_string_value(json_array_get(entry, k));
            bytes[k] = json_string_length(json_array_get(entry, k));
        }
        return TPW_OK;
    }
    const char *text = json_string_value(entry); /* NULL for another type */
    const char *space = text != NULL ? strchr(text, ' ') : NULL;
    if (space == NULL || strchr(space + 1, ' ') != NULL)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "model.merges[%zu] must be [\"a\", \"b\"] or \"a b\"", i);
    part[0] = text;
    bytes[0] = (size_t)(space - text);
    part[1] = space + 1;
    bytes[1] = strlen(space + 1);
    return TPW_OK;
}

static tpw_status read_merge(loading *l, size_t i, tpw_error *err)
{
    const char *part[2];
    size_t text_bytes[2];
    size_t bytes = 0;
    int32_t id[2];
    TPW_TRY(merge_parts(json_array_get(l->sections.merges, i), i, part, text_bytes, err));
    for (size_t k = 0; k < 2; k++) {
        size_t length = 0;
        id[k] = -1;
        if (spell(l, part[k], text_bytes[k], bytes, &length) && length > 0)
            id[k] = tpw_vocabulary_find(&l->t->vocabulary, l->bytes + bytes, length);
        if (id[k] < 0)
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "model.merges[%zu]: its part \"%.*s\" is not in model.vocab", i,
                            (int)(text_bytes[k] < 60 ? text_bytes[k] : 60), part[k]);
        bytes += length;
    }
    int32_t result = tpw_vocabulary_find(&l->t->vocabulary, l->bytes, bytes);
    if (result < 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "model.merges[%zu]: its result \"%.*s%.*s\" is not in model.vocab", i,
                        (int)(text_bytes[0] < 60 ? text_bytes[0] : 60), part[0],
                        (int)(text_bytes[1] < 60 ? text_bytes[1] : 60), part[1]);
    return tpw_bpe_add(&l->t->bpe, id[0], id[1], result, err);
}

static tpw_status read_merges(loading *l, tpw_error *err)
{
    int32_t byte_id[256];
    for (int byte = 0; byte < 256; byte++) {
        char one = (char)byte;
        byte_id[byte] = tpw_vocabulary_find(&l->t->vocabulary, &one, 1);
        if (byte_id[byte] < 0)
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "model.vocab has no token for the byte 0x%02x", (unsigned)byte);
    }
    size_t count = json_array_size(l->sections.merges);
    if (count > TPW_TOKENS_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "model.merges has %zu entries: at most %d are supported", count,
                        TPW_TOKENS_MAX);
    TPW_TRY(tpw_bpe_init(&l->t->bpe, byte_id, count, err));
    for (size_t i = 0; i < count; i++)
        TPW_TRY(read_merge(l, i, err));
    return TPW_OK;
}

static tpw_status read_file(loading *l, const json_t *root, tpw_error *err)
{
    TPW_TRY(tpw_tokenizer_sections_read(root, &l->sections, err));
    l->t->ignore_merges = l->sections.ignore_merges;
    fill_alphabet(l->byte_of);
    TPW_TRY(tpw_vocabulary_init(&l->t->vocabulary, json_object_size(l->sections.vocab), err));
    TPW_TRY(read_added(l, err));
    TPW_TRY(read_vocab(l, err));
    TPW_TRY(read_merges(l, err));
    return tpw_pretokenizer_create(l->sections.pattern, l->sections.pattern_bytes, l->sections.nfc, l->added,
                                   l->added_count, &l->t->pretokenizer, err);
}

tpw_status tpw_tokenizer_load(const char *folder, tpw_tokenizer **out, tpw_error *err)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    if (length < 0 || (size_t)length >= sizeof path)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "the folder name \"%.60s...\" is too long", folder);
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    tpw_status st;
    TPW_TRY(tpw_file_read(path, FILE_BYTES_MAX, &text, &bytes, err));
    loading *l = calloc(1, sizeof *l);
    tpw_tokenizer *t = calloc(1, sizeof *t);
    if (l == NULL || t == NULL) {
        st = tpw_fail(err, TPW_ERR_MEMORY, "%s: out of memory", path);
        goto free_parts;
    }
    l->t = t;
    t->digest = tpw_bytes_hash(text, bytes);
    TPW_TRY_GOTO(st, tpw_json_parse(text, bytes, path, &root, err), free_parts);
    st = read_file(l, root, err);
    if (st != TPW_OK) {
        tpw_error_prefix(err, "%s", path);
        goto free_parts;
    }
    *out = t;
    t = NULL;

free_parts:
    json_decref(root);
    if (l != NULL)
        free(l->added);
    free(l);
    free(text);
    tpw_tokenizer_destroy(t);
    return st;
}

void tpw_tokenizer_destroy(tpw_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    tpw_vocabulary_fini(&tokenizer->vocabulary);
    tpw_bpe_fini(&tokenizer->bpe);
    tpw_pretokenizer_destroy(tokenizer->pretokenizer);
    free(tokenizer);
}

int32_t tpw_tokenizer_vocab(const tpw_tokenizer *tokenizer)
{
    return tokenizer->vocabulary.size;
}

uint64_t tpw_tokenizer_digest(const tpw_tokenizer *tokenizer)
{
    return tokenizer->digest;
}

bool tpw_tokenizer_bytes(const tpw_tokenizer *tokenizer, int32_t id, const char **data, size_t *bytes)
{
    *data = NULL;
    *bytes = 0;
    if (!tpw_vocabulary_has(&tokenizer->vocabulary, id))
        return false;
    const tpw_token *token = &tokenizer->vocabulary.tokens[id];
    *data = tokenizer->vocabulary.bytes + token->start;
    *bytes = token->bytes;
    return true;
}

bool tpw_tokenizer_special(const tpw_tokenizer *tokenizer, int32_t id)
{
    return tpw_vocabulary_has(&tokenizer->vocabulary, id) && tokenizer->vocabulary.tokens[id].special;
}

typedef struct encoding {
    const tpw_tokenizer *t;
    tpw_bpe_work work;
    tpw_ids ids;
} encoding;

static tpw_status encode_piece(void *data, const char *piece, size_t bytes, tpw_error *err)
{
    encoding *e = data;
    if (e->t->ignore_merges) {
        int32_t id = tpw_vocabulary_find(&e->t->vocabulary, piece, bytes);
        if (id >= 0)
            return tpw_ids_push(&e->ids, id, err);
    }
    return tpw_bpe_encode(&e->t->bpe, &e->work, piece, bytes, &e->ids, err);
}

static tpw_status encode_added(void *data, int32_t id, tpw_error *err)
{
    encoding *e = data;
    return tpw_ids_push(&e->ids, id, err);
}

tpw_status tpw_tokenizer_encode(const tpw_tokenizer *tokenizer, const char *text, size_t bytes, int32_t **ids,
                                size_t *count, tpw_error *err)
{
    size_t bad_at = 0;
    if (bytes > TEXT_BYTES_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "a text of %zu bytes: at most %zu are supported", bytes, TEXT_BYTES_MAX);
    if (!tpw_utf8_valid(text, bytes, &bad_at))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "the text is not valid UTF-8 at byte %zu", bad_at);
    encoding e = {.t = tokenizer};
    const tpw_piece_sink sink = {.data = &e, .piece = encode_piece, .added = encode_added};
    tpw_status st;
    /* one id of room, so that no text gives an empty list rather than no list */
    TPW_TRY_GOTO(st, tpw_ids_push(&e.ids, 0, err), free_parts);
    e.ids.count = 0;
    TPW_TRY_GOTO(st, tpw_pretokenizer_run(tokenizer->pretokenizer, text, bytes, &sink, err), free_parts);
    *ids = e.ids.data;
    *count = e.ids.count;
    e.ids.data = NULL;

free_parts:
    tpw_bpe_work_fini(&e.work);
    free(e.ids.data);
    return st;
}
