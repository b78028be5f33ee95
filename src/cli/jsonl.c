/* Builds the JSON lines and queues them. SPDX-License-Identifier: Apache-2.0 */
#include "cli/jsonl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "cli/exit.h"
#include "cli/version.h"
#include "tpworker/version.h"

json_t *tpw_json_text(const char *text, size_t bytes)
{
    size_t bad_at;
    if (tpw_utf8_valid(text, bytes, &bad_at))
        return json_stringn(text, bytes);
    size_t room;
    if (!tpw_add_size(bytes, 4, &room) || !tpw_mul_size(room, 3, &room) || !tpw_add_size(room, 12, &room))
        return NULL;
    char *clean = malloc(room);
    if (!clean)
        return NULL;
    tpw_utf8_stream stream = {0};
    size_t length = tpw_utf8_push(&stream, text, bytes, clean);
    length += tpw_utf8_finish(&stream, clean + length);
    json_t *out = json_stringn(clean, length);
    free(clean);
    return out;
}

static json_t *text_of(const char *text)
{
    return tpw_json_text(text, strlen(text));
}

json_t *tpw_json_hex(uint64_t digest)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, digest);
    return json_string(text);
}

void tpw_jsonl_push(tpw_sink *sink, json_t *line)
{
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (!text) {
        tpw_sink_fail(sink, ENOMEM);
        return;
    }
    tpw_sink_push(sink, text, strlen(text));
    tpw_sink_push(sink, "\n", 1);
    free(text);
}

static json_t *list_json(const tpw_ints *list)
{
    json_t *out = json_array();
    for (int i = 0; out && i < list->count; i++) {
        if (json_array_append_new(out, json_integer((json_int_t)list->data[i])) != 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

/* One number, as `run` has it, stays one. */
static json_t *ints_json(const tpw_ints *list)
{
    return list->count == 1 ? json_integer((json_int_t)list->data[0]) : list_json(list);
}

/* All settings with their JSON types. Prompts given as flags are only counted: text stays out of records of settings. */
static json_t *settings_json(const tpw_values *values)
{
    json_t *out = json_object();
    for (int id = 0; out && id < TPW_SETTING_COUNT; id++) {
        char key[TPW_SETTING_NAME_MAX];
        char *shown = tpw_values_show(values, (tpw_setting_id)id);
        json_t *value = NULL;
        tpw_setting_key((tpw_setting_id)id, key);
        switch (tpw_setting_get((tpw_setting_id)id)->kind) {
        case TPW_KIND_INT:
            value = shown ? json_integer(strtoll(shown, NULL, 10)) : NULL;
            break;
        case TPW_KIND_INTS:
            value = ints_json(id == TPW_SETTING_K ? &values->k : &values->batch);
            break;
        case TPW_KIND_SECONDS:
            value = shown ? json_real(strtod(shown, NULL)) : NULL;
            break;
        case TPW_KIND_BOOL:
            value = shown ? json_boolean(strcmp(shown, "yes") == 0) : NULL;
            break;
        case TPW_KIND_TEXTS:
            value = json_integer((json_int_t)values->prompt.count);
            break;
        default:
            value = !shown ? NULL : shown[0] == '\0' ? json_null() : text_of(shown);
            break;
        }
        free(shown);
        if (json_object_set_new(out, key, value) != 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

static json_t *versions_json(void)
{
    tpw_version_entry entries[TPW_VERSION_ENTRIES];
    json_t *out = json_object();
    tpw_version_collect(entries);
    for (int i = 0; out && i < TPW_VERSION_ENTRIES; i++) {
        json_t *value = entries[i].loaded[0] == '\0'
                            ? json_null()
                            : json_pack("{s:s, s:s}", "compiled", entries[i].compiled, "loaded", entries[i].loaded);
        if (json_object_set_new(out, entries[i].name, value) != 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

static json_t *model_json(const tpw_model_info *m)
{
    return json_pack("{s:o, s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b}", "name", text_of(m->name), "model_type",
                     text_of(m->model_type), "layers", m->layers, "layers_linear", m->layers_linear, "layers_attention",
                     m->layers_attention, "hidden", m->hidden, "vocab", m->vocab, "context_max", m->context_max, "fp8",
                     m->fp8, "mtp", m->has_mtp);
}

static json_t *rank_json(const tpw_rank_info *r)
{
    return json_pack("{s:i, s:o, s:I, s:o, s:o, s:o, s:i, s:I, s:I, s:I, s:I, s:I}", "rank", r->rank, "host",
                     text_of(r->host), "pid", (json_int_t)r->pid, "device", text_of(r->device), "cpus_requested",
                     text_of(r->cpus_requested), "cpus_obtained", text_of(r->cpus_obtained), "numa_node", r->numa_node,
                     "weight_bytes", (json_int_t)r->weight_bytes, "kv_bytes", (json_int_t)r->kv_bytes, "state_bytes",
                     (json_int_t)r->state_bytes, "workspace_bytes", (json_int_t)r->workspace_bytes, "file_bytes",
                     (json_int_t)r->file_bytes);
}

void tpw_jsonl_run(tpw_sink *sink, const tpw_values *values, const tpw_model_info *model, const tpw_rank_info *ranks,
                   int size)
{
    if (sink->fd < 0)
        return;
    json_t *list = json_array();
    for (int r = 0; list && r < size; r++) {
        if (json_array_append_new(list, rank_json(&ranks[r])) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    tpw_jsonl_push(sink, json_pack("{s:s, s:i, s:s, s:o, s:o, s:o, s:o}", "type", "run", "schema", TPW_JSONL_SCHEMA,
                                   "version", TPW_VERSION, "libraries", versions_json(), "options",
                                   settings_json(values), "model", model_json(model), "ranks", list));
}

static json_t *ids_json(const tpw_result *r)
{
    json_t *list = json_array();
    for (int32_t i = 0; list && i < r->count; i++) {
        if (json_array_append_new(list, json_integer(r->ids[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *digests_json(const tpw_result *r)
{
    json_t *list = json_array();
    for (int32_t i = 0; list && i < r->digest_count; i++) {
        const tpw_scope_digest *d = &r->digests[i];
        json_t *layer = d->layer < 0 ? json_null() : json_integer(d->layer);
        if (json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "scope", d->scope, "layer", layer, "global",
                                                  tpw_json_hex(d->global))) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

void tpw_jsonl_result(tpw_sink *sink, const tpw_prompts *prompts, const tpw_results *results, size_t index,
                      bool digests)
{
    if (sink->fd < 0)
        return;
    const tpw_prompt *p = &prompts->data[index];
    const tpw_result *r = &results->data[index];
    json_t *text = results->tokenizer ? tpw_json_text(r->text ? r->text : "", r->text_bytes) : json_null();
    json_t *digest = r->digest_count > 0 ? tpw_json_hex(tpw_result_digest(r)) : json_null();
    json_t *line =
        json_pack("{s:s, s:i, s:I, s:O, s:o, s:o, s:s, s:i, s:i, s:o}", "type", "result", "schema", TPW_JSONL_SCHEMA,
                  "index", (json_int_t)index, "id", p->id, "ids", ids_json(r), "text", text, "finish",
                  tpw_result_finish_name(r), "prompt_tokens", p->count, "output_tokens", r->count, "digest", digest);
    if (line && digests && json_object_set_new(line, "digests", digests_json(r)) != 0) {
        json_decref(line);
        line = NULL;
    }
    tpw_jsonl_push(sink, line);
}

static json_t *positions_json(const int64_t *counts, int32_t k)
{
    tpw_ints list = {.count = 0};
    for (int32_t i = 0; i < k && i < TPW_K_MAX; i++)
        list.data[list.count++] = counts[i];
    return list_json(&list);
}

void tpw_jsonl_summary(tpw_sink *sink, const tpw_summary *s, tpw_status status)
{
    if (sink->fd < 0)
        return;
    json_t *peaks = json_array();
    for (int r = 0; peaks && r < s->size; r++) {
        if (json_array_append_new(peaks, json_integer((json_int_t)s->ranks[r].peak_bytes)) != 0) {
            json_decref(peaks);
            peaks = NULL;
        }
    }
    const tpw_stats *t = &s->stats;
    tpw_jsonl_push(
        sink, json_pack("{s:s, s:i, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:i, s:o, s:I, s:o, s:i, "
                        "s:I, s:I, s:I, s:o, s:o}",
                        "type", "summary", "schema", TPW_JSONL_SCHEMA, "status", tpw_status_name(status), "exit",
                        tpw_exit_code(status), "prompts", (json_int_t)s->prompts, "finished", (json_int_t)s->finished,
                        "prompt_tokens", (json_int_t)t->prompt_tokens, "output_tokens", (json_int_t)t->output_tokens,
                        "steps", (json_int_t)t->steps, "seconds", s->seconds, "prefill_tokens_per_second",
                        tpw_rate(t->prompt_tokens, tpw_prefill_seconds(t)), "decode_tokens_per_second",
                        tpw_rate(s->decode_tokens, tpw_decode_seconds(t)), "ranks", s->size, "digest",
                        s->digested > 0 ? tpw_json_hex(s->digest) : json_null(), "checks", (json_int_t)t->checks,
                        "peak_bytes", peaks, "k", s->k, "drafts", (json_int_t)t->drafts, "draft_tokens",
                        (json_int_t)t->draft_tokens, "accepted_tokens", (json_int_t)t->accepted_tokens, "drafted_at",
                        positions_json(t->drafted_at, s->k), "accepted_at", positions_json(t->accepted_at, s->k)));
}

void tpw_jsonl_error(tpw_sink *sink, tpw_status status, const char *text)
{
    if (sink->fd < 0)
        return;
    tpw_jsonl_push(sink, json_pack("{s:s, s:i, s:s, s:i, s:o}", "type", "error", "schema", TPW_JSONL_SCHEMA, "status",
                                   tpw_status_name(status), "exit", tpw_exit_code(status), "text", text_of(text)));
}
