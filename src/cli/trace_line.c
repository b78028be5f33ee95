/* Reads one line of a trace. SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace_line.h"

#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "base/json.h"
#include "cli/jsonl.h"

#define HEX_DIGITS 16

/* Where in the line the fast reading stands. */
typedef struct cursor {
    const char *at;
    const char *end;
} cursor;

static bool skip(cursor *c, const char *text)
{
    size_t bytes = strlen(text);
    if ((size_t)(c->end - c->at) < bytes || memcmp(c->at, text, bytes) != 0)
        return false;
    c->at += bytes;
    return true;
}

/* Up to 18 digits, which cannot overflow. */
static bool number(cursor *c, int64_t *out)
{
    const char *begin = c->at;
    int64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        if (c->at - begin == 18)
            return false;
        value = value * 10 + (*c->at - '0');
    }
    *out = value;
    return c->at > begin && (*begin != '0' || c->at == begin + 1);
}

static bool hex_value(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    for (int i = 0; i < HEX_DIGITS; i++) {
        char c = text[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16;
        if (digit == 16)
            return false;
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}

/* With its quotes. */
static bool hex(cursor *c, uint64_t *out)
{
    if (c->end - c->at < HEX_DIGITS + 2 || c->at[0] != '"' || c->at[HEX_DIGITS + 1] != '"' ||
        !hex_value(c->at + 1, out))
        return false;
    c->at += HEX_DIGITS + 2;
    return true;
}

/* A scope without a layer is one of two; the others have one. */
static bool place_ok(tpw_trace_scope scope, int32_t layer)
{
    return (scope == TPW_TRACE_TOKENS || scope == TPW_TRACE_MTP) == (layer < 0);
}

static bool scope_and_layer(cursor *c, tpw_trace_entry *e)
{
    char name[16];
    size_t bytes = 0;
    int64_t layer = -1;
    while (c->at < c->end && *c->at != '"' && bytes < sizeof name - 1)
        name[bytes++] = *c->at++;
    name[bytes] = '\0';
    if (!tpw_trace_scope_find(name, &e->scope) || !skip(c, "\",\"layer\":"))
        return false;
    if (!skip(c, "null") && (!number(c, &layer) || layer > INT32_MAX))
        return false;
    e->layer = (int32_t)layer;
    return place_ok(e->scope, e->layer);
}

bool tpw_trace_line_scan(const char *text, size_t bytes, int32_t rank_count, tpw_trace_entry *entry, uint64_t *ranks)
{
    cursor c = {.at = text, .end = text + bytes};
    int64_t seq;
    if (!skip(&c, "{\"type\":\"digest\",\"schema\":1,\"seq\":") || !number(&c, &seq) || !skip(&c, ",\"pos\":") ||
        !number(&c, &entry->pos) || !skip(&c, ",\"step\":") || !number(&c, &entry->step) ||
        !skip(&c, ",\"scope\":\"") || !scope_and_layer(&c, entry) || !skip(&c, ",\"global\":") ||
        !hex(&c, &entry->global) || !skip(&c, ",\"ranks\":["))
        return false;
    entry->seq = (uint64_t)seq;
    for (int32_t i = 0; i < rank_count; i++)
        if ((i > 0 && !skip(&c, ",")) || !hex(&c, &ranks[i]))
            return false;
    return skip(&c, "]}") && c.at == c.end;
}

static tpw_status bad(const char *where, const char *key, const char *wanted, tpw_error *err)
{
    return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"%s\" must be %s", where, key, wanted);
}

static tpw_status hex_of(const json_t *value, const char *key, const char *where, uint64_t *out, tpw_error *err)
{
    const char *text = json_string_value(value);
    if (!text || strlen(text) != HEX_DIGITS || !hex_value(text, out))
        return bad(where, key, "16 hex digits", err);
    return TPW_OK;
}

static tpw_status copy_text(const json_t *root, const char *key, const char *where, char *out, size_t bytes,
                            tpw_error *err)
{
    const char *text;
    TPW_TRY(tpw_json_string(root, key, true, where, &text, err));
    if (strlen(text) >= bytes)
        return bad(where, key, "a shorter text", err);
    snprintf(out, bytes, "%s", text);
    return TPW_OK;
}

/* Version first: what another one means is not known. */
static tpw_status read_head(const json_t *root, const char *where, tpw_trace_head *h, tpw_error *err)
{
    const char *type;
    const char *model;
    int64_t schema;
    int64_t version;
    int64_t number;
    TPW_TRY(tpw_json_string(root, "type", true, where, &type, err));
    if (strcmp(type, "trace") != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: this is no trace: the first line has the type \"%.30s\"", where,
                        type);
    TPW_TRY(tpw_json_int(root, "schema", true, 0, INT32_MAX, where, &schema, err));
    TPW_TRY(tpw_json_int(root, "digest_version", true, 0, INT32_MAX, where, &version, err));
    if (schema != TPW_JSONL_SCHEMA || version != TPW_DIGEST_VERSION)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "%s: not comparable: schema %lld and digest_version %lld; this program has %d and %d", where,
                        (long long)schema, (long long)version, TPW_JSONL_SCHEMA, TPW_DIGEST_VERSION);
    TPW_TRY(tpw_json_int(root, "ranks", true, 1, TPW_TRACE_RANKS_MAX, where, &number, err));
    h->ranks = (int32_t)number;
    TPW_TRY(tpw_json_int(root, "k", true, 0, TPW_K_MAX, where, &number, err));
    h->k = (int32_t)number;
    TPW_TRY(tpw_json_int(root, "prompts", true, 0, INT64_MAX, where, &h->prompts, err));
    TPW_TRY(copy_text(root, "compute", where, h->compute, sizeof h->compute, err));
    TPW_TRY(copy_text(root, "drafter", where, h->drafter, sizeof h->drafter, err));
    TPW_TRY(tpw_json_string(root, "model", true, where, &model, err));
    size_t shown = strlen(model) < sizeof h->model ? strlen(model) : tpw_text_cut(model, sizeof h->model - 1);
    snprintf(h->model, sizeof h->model, "%.*s", (int)shown, model);
    TPW_TRY(hex_of(json_object_get(root, "model_digest"), "model_digest", where, &h->model_digest, err));
    return hex_of(json_object_get(root, "prompts_digest"), "prompts_digest", where, &h->prompts_digest, err);
}

tpw_status tpw_trace_head_parse(const char *text, size_t bytes, const char *where, tpw_trace_head *out, tpw_error *err)
{
    json_t *root = NULL;
    *out = (tpw_trace_head){0};
    TPW_TRY(tpw_json_parse(text, bytes, where, &root, err));
    tpw_status st = read_head(root, where, out, err);
    json_decref(root);
    return st;
}

static tpw_status read_ranks(const json_t *root, int32_t rank_count, const char *where, uint64_t *ranks, tpw_error *err)
{
    const json_t *list = json_object_get(root, "ranks");
    if (!json_is_array(list) || json_array_size(list) != (size_t)rank_count)
        return bad(where, "ranks", "a list as long as there are ranks in the first line", err);
    for (int32_t i = 0; i < rank_count; i++)
        TPW_TRY(hex_of(json_array_get(list, (size_t)i), "ranks", where, &ranks[i], err));
    return TPW_OK;
}

static tpw_status read_record(const json_t *root, int32_t rank_count, const char *where, tpw_trace_entry *e,
                              uint64_t *ranks, tpw_error *err)
{
    int64_t seq;
    int64_t layer = -1;
    const char *scope;
    TPW_TRY(tpw_json_int(root, "seq", true, 0, INT64_MAX, where, &seq, err));
    TPW_TRY(tpw_json_int(root, "pos", true, 0, INT64_MAX, where, &e->pos, err));
    TPW_TRY(tpw_json_int(root, "step", true, 0, INT64_MAX, where, &e->step, err));
    TPW_TRY(tpw_json_int(root, "layer", false, 0, INT32_MAX, where, &layer, err));
    TPW_TRY(tpw_json_string(root, "scope", true, where, &scope, err));
    e->seq = (uint64_t)seq;
    e->layer = (int32_t)layer;
    if (!tpw_trace_scope_find(scope, &e->scope))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: there is no scope \"%.30s\"", where, scope);
    if (!place_ok(e->scope, e->layer))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: scope \"%s\" %s a layer", where, scope,
                        e->layer < 0 ? "needs" : "does not have");
    TPW_TRY(hex_of(json_object_get(root, "global"), "global", where, &e->global, err));
    return read_ranks(root, rank_count, where, ranks, err);
}

static tpw_status read_line(const json_t *root, int32_t rank_count, const char *where, tpw_trace_kind *kind,
                            tpw_trace_entry *entry, uint64_t *ranks, int64_t *records, tpw_error *err)
{
    const char *type;
    TPW_TRY(tpw_json_string(root, "type", true, where, &type, err));
    *kind = strcmp(type, "end") == 0 ? TPW_TRACE_LINE_END : TPW_TRACE_LINE_RECORD;
    if (*kind == TPW_TRACE_LINE_END)
        return tpw_json_int(root, "records", true, 0, INT64_MAX, where, records, err);
    if (strcmp(type, "digest") != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: a line of type \"%.30s\" does not belong into a trace", where,
                        type);
    return read_record(root, rank_count, where, entry, ranks, err);
}

tpw_status tpw_trace_line_parse(const char *text, size_t bytes, int32_t rank_count, const char *where,
                                tpw_trace_kind *kind, tpw_trace_entry *entry, uint64_t *ranks, int64_t *records,
                                tpw_error *err)
{
    json_t *root = NULL;
    TPW_TRY(tpw_json_parse(text, bytes, where, &root, err));
    tpw_status st = read_line(root, rank_count, where, kind, entry, ranks, records, err);
    json_decref(root);
    return st;
}
