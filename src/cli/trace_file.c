/* Reads, sorts and writes traces. SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/digest.h"
#include "base/json.h"
#include "cli/jsonl.h"
#include "cli/trace_line.h"

static const char *const scope_names[TPW_TRACE_SCOPES] = {"conv", "recurrent", "kv", "hidden", "tokens", "mtp"};

const char *tpw_trace_scope_name(tpw_trace_scope scope)
{
    return scope_names[scope];
}

bool tpw_trace_scope_find(const char *name, tpw_trace_scope *out)
{
    for (int i = 0; i < TPW_TRACE_SCOPES; i++) {
        if (strcmp(scope_names[i], name) == 0) {
            *out = (tpw_trace_scope)i;
            return true;
        }
    }
    return false;
}

static int three_way(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* What has no layer stands behind all layers. */
static int64_t layer_place(const tpw_trace_entry *e)
{
    return e->layer < 0 ? INT64_MAX : e->layer;
}

static int order_in_step(const tpw_trace_entry *a, const tpw_trace_entry *b)
{
    int order = three_way(layer_place(a), layer_place(b));
    return order != 0 ? order : three_way(a->scope, b->scope);
}

static int order_of_sequences(const tpw_trace_entry *a, const tpw_trace_entry *b)
{
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

int tpw_trace_order(const tpw_trace_entry *a, const tpw_trace_entry *b)
{
    int order = order_of_sequences(a, b);
    if (order == 0)
        order = three_way(a->pos, b->pos);
    return order != 0 ? order : order_in_step(a, b);
}

int tpw_trace_before(const tpw_trace_entry *a, const tpw_trace_entry *b)
{
    int order = three_way(a->pos, b->pos);
    if (order == 0)
        order = order_in_step(a, b);
    return order != 0 ? order : order_of_sequences(a, b);
}

static int compare_entries(const void *a, const void *b)
{
    return tpw_trace_order(a, b);
}

const tpw_trace_entry *tpw_trace_find(const tpw_trace_file *file, const tpw_trace_entry *key)
{
    if (file->count == 0)
        return NULL;
    return bsearch(key, file->entry, file->count, sizeof *file->entry, compare_entries);
}

void tpw_trace_file_fini(tpw_trace_file *file)
{
    free(file->entry);
    free(file->ranks);
    *file = (tpw_trace_file){0};
}

static bool grow(void **array, size_t *capacity, size_t needed, size_t size)
{
    size_t room = *capacity == 0 ? 1024 : *capacity;
    size_t bytes;
    if (needed <= *capacity)
        return true;
    while (room < needed)
        if (!tpw_mul_size(room, 2, &room))
            return false;
    void *grown = tpw_mul_size(room, size, &bytes) ? realloc(*array, bytes) : NULL;
    if (!grown)
        return false;
    *array = grown;
    *capacity = room;
    return true;
}

/* Room for one more entry and its ranks. */
static bool reserve(tpw_trace_file *f)
{
    return grow((void **)&f->entry, &f->capacity, f->count + 1, sizeof *f->entry) &&
           grow((void **)&f->ranks, &f->ranks_capacity, f->ranks_count + (size_t)f->head.ranks, sizeof *f->ranks);
}

static tpw_status take_line(tpw_trace_file *f, const char *text, size_t bytes, const char *where, tpw_error *err)
{
    tpw_trace_kind kind;
    int64_t records = 0;
    if (f->finished)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: behind the last line", where);
    if (!reserve(f))
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for %zu records", where, f->count + 1);
    tpw_trace_entry *entry = &f->entry[f->count];
    entry->ranks = f->ranks_count;
    if (tpw_trace_line_scan(text, bytes, f->head.ranks, entry, &f->ranks[f->ranks_count]))
        kind = TPW_TRACE_LINE_RECORD;
    else
        TPW_TRY(tpw_trace_line_parse(text, bytes, f->head.ranks, where, &kind, entry, &f->ranks[f->ranks_count],
                                     &records, err));
    if (kind == TPW_TRACE_LINE_RECORD) {
        f->count++;
        f->ranks_count += (size_t)f->head.ranks;
        return TPW_OK;
    }
    f->finished = true;
    if ((uint64_t)records != f->count)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: says %lld records, there are %zu", where, (long long)records,
                        f->count);
    return TPW_OK;
}

static tpw_status read_lines(FILE *file, const char *path, tpw_trace_file *out, tpw_error *err)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t bytes;
    size_t line = 0;
    tpw_status st = TPW_OK;
    while (st == TPW_OK && (bytes = getline(&text, &room, file)) > 0) {
        char where[300];
        snprintf(where, sizeof where, "%.250s:%zu", path, ++line);
        if (text[bytes - 1] == '\n')
            bytes--;
        else
            st = tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: the line is cut off", where);
        if (st == TPW_OK)
            st = line == 1 ? tpw_trace_head_parse(text, (size_t)bytes, where, &out->head, err)
                           : take_line(out, text, (size_t)bytes, where, err);
    }
    free(text);
    TPW_TRY(st);
    if (ferror(file))
        return tpw_fail(err, TPW_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    return line > 0 ? TPW_OK : tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: is empty", path);
}

static tpw_status sort(tpw_trace_file *f, const char *path, tpw_error *err)
{
    if (f->count > 1)
        qsort(f->entry, f->count, sizeof *f->entry, compare_entries);
    for (size_t i = 1; i < f->count; i++) {
        const tpw_trace_entry *e = &f->entry[i];
        if (tpw_trace_order(e - 1, e) == 0)
            return tpw_fail(err, TPW_ERR_CHECKPOINT,
                            "%s: %s of layer %d of sequence %llu at position %lld stands there "
                            "twice",
                            path, tpw_trace_scope_name(e->scope), e->layer, (unsigned long long)e->seq,
                            (long long)e->pos);
    }
    return TPW_OK;
}

tpw_status tpw_trace_read(const char *path, tpw_trace_file *out, tpw_error *err)
{
    *out = (tpw_trace_file){0};
    FILE *file = fopen(path, "re");
    if (!file)
        return tpw_fail(err, errno == ENOENT || errno == ENOTDIR ? TPW_ERR_MISSING : TPW_ERR_IO,
                        "%s: cannot be read: %s", path, strerror(errno));
    tpw_status st = read_lines(file, path, out, err);
    fclose(file);
    return st == TPW_OK ? sort(out, path, err) : st;
}

tpw_status tpw_trace_comparable(const tpw_trace_head *a, const char *a_name, const tpw_trace_head *b,
                                const char *b_name, tpw_error *err)
{
    if (strcmp(a->compute, b->compute) != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "not comparable: compute is %s in %.120s and %s in %.120s", a->compute,
                        a_name, b->compute, b_name);
    if (a->model_digest != b->model_digest)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "not comparable: the model's configuration differs (%.80s in %.120s, %.80s in %.120s)",
                        a->model, a_name, b->model, b_name);
    if (a->prompts != b->prompts || a->prompts_digest != b->prompts_digest)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "not comparable: the prompts differ (%lld in %.120s, %lld in %.120s, digests %016" PRIx64
                        " and %016" PRIx64 ")",
                        (long long)a->prompts, a_name, (long long)b->prompts, b_name, a->prompts_digest,
                        b->prompts_digest);
    return TPW_OK;
}

bool tpw_trace_same_drafts(const tpw_trace_head *a, const tpw_trace_head *b)
{
    return a->k == b->k && strcmp(a->drafter, b->drafter) == 0;
}

char *tpw_trace_head_line(const tpw_trace_head *h)
{
    json_t *line = json_pack("{s:s, s:i, s:i, s:i, s:i, s:s, s:s, s:o, s:o, s:I, s:o}", "type", "trace", "schema",
                             TPW_JSONL_SCHEMA, "digest_version", TPW_DIGEST_VERSION, "ranks", h->ranks, "k", h->k,
                             "compute", h->compute, "drafter", h->drafter, "model",
                             tpw_json_text(h->model, strlen(h->model)), "model_digest", tpw_json_hex(h->model_digest),
                             "prompts", (json_int_t)h->prompts, "prompts_digest", tpw_json_hex(h->prompts_digest));
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    size_t bytes = text ? strlen(text) : 0;
    char *out = text ? realloc(text, bytes + 2) : NULL;
    if (!out) {
        free(text);
        return NULL;
    }
    memcpy(out + bytes, "\n", 2);
    return out;
}

size_t tpw_trace_record_line(const tpw_trace_record *r, char out[TPW_TRACE_LINE_MAX])
{
    char layer[16] = "null";
    size_t at;
    if (r->layer >= 0)
        snprintf(layer, sizeof layer, "%d", r->layer);
    at = (size_t)snprintf(out, TPW_TRACE_LINE_MAX,
                          "{\"type\":\"digest\",\"schema\":%d,\"seq\":%" PRIu64 ",\"pos\":%" PRId64 ",\"step\":%" PRId64
                          ",\"scope\":\"%.15s\",\"layer\":%s,\"global\":\"%016" PRIx64 "\",\"ranks\":[",
                          TPW_JSONL_SCHEMA, r->id, r->position, r->step, r->scope, layer, r->global);
    for (int32_t i = 0; i < r->rank_count && i < TPW_TRACE_RANKS_MAX; i++)
        at +=
            (size_t)snprintf(out + at, TPW_TRACE_LINE_MAX - at, "%s\"%016" PRIx64 "\"", i > 0 ? "," : "", r->ranks[i]);
    at += (size_t)snprintf(out + at, TPW_TRACE_LINE_MAX - at, "]}\n");
    return at;
}
