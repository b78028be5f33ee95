/* Reads prompts strictly, line by line, and holds the built-in ones. SPDX-License-Identifier: Apache-2.0 */
#include "cli/prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "model/tokenizer.h"

#define WHERE_MAX 300

static const char *const demo_texts[] = {
    "It was a cold evening in the early spring, and the old house stood silent at the end of the lane",
    "\"I cannot tell you,\" said the captain, looking out to the sea, \"how long we shall be obliged to",
    "My father was a man of few words, who had spent the greater part of his life in the service of",
    "There was once, in a small village between the hills and the river, a young woman who",
};
#define DEMO_COUNT (sizeof demo_texts / sizeof demo_texts[0])

const char *tpw_prompts_passage(void)
{
    return "The road to the mill ran for two miles beside the water, and in the summer months it was a pleasant walk. "
           "On the evening of which I write, however, the rain had fallen since noon, and the young man who came along "
           "it was wet to the skin. He had left the town at four o'clock, with a letter in his pocket and very little "
           "money, and he had spoken to no one on the way. When he saw the light in the window he stopped, and stood "
           "for some time under the trees, as if he did not know what he should say. At last he went up to the door "
           "and knocked. It was opened by an old woman with a candle in her hand, who looked at him without surprise. "
           "\"You are late,\" said she; \"my master has been waiting for you these three hours, and he is not a "
           "patient man. Come in, and sit down by the fire, and I will tell him that you are here.\" ";
}

void tpw_prompts_fini(tpw_prompts *prompts)
{
    for (size_t i = 0; i < prompts->count; i++) {
        json_decref(prompts->data[i].id);
        free(prompts->data[i].text);
        free(prompts->data[i].ids);
    }
    free(prompts->data);
    free(prompts->origin);
    *prompts = (tpw_prompts){0};
}

void tpw_prompt_where(const tpw_prompts *prompts, size_t index, char *out, size_t bytes)
{
    const tpw_prompt *p = &prompts->data[index];
    if (p->line > 0)
        snprintf(out, bytes, "%.250s:%d", prompts->origin, p->line);
    else
        snprintf(out, bytes, "%.250s %zu", prompts->origin, index + 1);
}

static tpw_status no_memory(tpw_error *err)
{
    return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the prompts");
}

static tpw_status begin(const char *origin, tpw_prompts *out, tpw_error *err)
{
    *out = (tpw_prompts){.origin = strdup(origin)};
    return out->origin ? TPW_OK : no_memory(err);
}

/* Room doubles at powers of two, so that it needs no field of its own. */
static tpw_status append(tpw_prompts *prompts, const char *where, tpw_prompt **out, tpw_error *err)
{
    size_t count = prompts->count;
    if (count >= TPW_PROMPTS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: more than %d prompts", where, TPW_PROMPTS_MAX);
    if ((count & (count - 1)) == 0) {
        size_t room = count == 0 ? 1 : 2 * count;
        tpw_prompt *grown = realloc(prompts->data, room * sizeof *grown);
        if (!grown)
            return no_memory(err);
        prompts->data = grown;
    }
    *out = &prompts->data[prompts->count++];
    **out = (tpw_prompt){0};
    return TPW_OK;
}

static tpw_status set_text(tpw_prompt *p, const char *text, size_t bytes, const char *where, tpw_error *err)
{
    size_t bad_at = 0;
    if (bytes == 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: the text is empty; a prompt needs at least one token", where);
    if (!tpw_utf8_valid(text, bytes, &bad_at))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: not valid UTF-8 at byte %zu of the text", where, bad_at);
    p->text = malloc(bytes + 1);
    if (!p->text)
        return no_memory(err);
    memcpy(p->text, text, bytes);
    p->text[bytes] = '\0';
    p->text_bytes = bytes;
    return TPW_OK;
}

static tpw_status set_ids(tpw_prompt *p, const json_t *list, const char *where, tpw_error *err)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0 || count > TPW_PROMPT_IDS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: key \"ids\" must be a list of 1..%d token ids", where,
                        TPW_PROMPT_IDS_MAX);
    p->ids = malloc(count * sizeof *p->ids);
    if (!p->ids)
        return no_memory(err);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id > INT32_MAX)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: item %zu of \"ids\" must be an integer in 0..%d", where, i,
                            INT32_MAX);
        p->ids[i] = (int32_t)id;
    }
    p->count = (int32_t)count;
    return TPW_OK;
}

static tpw_status check_keys(const json_t *object, const char *where, tpw_error *err)
{
    static const char *const known[] = {"id", "text", "ids", "max_tokens"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) /* only reads, but jansson 2.12 has no const form */
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found = found || strcmp(key, known[i]) == 0;
        if (!found)
            return tpw_fail(err, TPW_ERR_ARGUMENT,
                            "%s: unknown key \"%.60s\"; a prompt has \"id\", \"text\" or \"ids\", and \"max_tokens\"",
                            where, key);
    }
    return TPW_OK;
}

/* The errors of typed reads speak of a checkpoint; here they are the caller's input. */
static tpw_status as_usage(tpw_status st, tpw_error *err)
{
    if (st != TPW_ERR_CHECKPOINT)
        return st;
    if (err)
        err->status = TPW_ERR_ARGUMENT;
    return TPW_ERR_ARGUMENT;
}

static tpw_status set_id(tpw_prompt *p, json_t *id, size_t index, const char *where, tpw_error *err)
{
    if (id && !json_is_string(id) && !json_is_integer(id))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: key \"id\" must be a string or an integer", where);
    p->id = id ? json_incref(id) : json_integer((json_int_t)index);
    return p->id ? TPW_OK : no_memory(err);
}

static tpw_status parse_object(tpw_prompts *prompts, const json_t *object, int line, int32_t max_tokens,
                               const char *where, tpw_error *err)
{
    tpw_prompt *p = NULL;
    int64_t tokens = max_tokens;
    TPW_TRY(check_keys(object, where, err));
    TPW_TRY(append(prompts, where, &p, err));
    p->line = line;
    TPW_TRY(set_id(p, json_object_get(object, "id"), prompts->count - 1, where, err));
    TPW_TRY(as_usage(tpw_json_int(object, "max_tokens", false, 1, 1 << 24, where, &tokens, err), err));
    p->max_tokens = (int32_t)tokens;
    const json_t *text = json_object_get(object, "text");
    const json_t *ids = json_object_get(object, "ids");
    if ((text != NULL) == (ids != NULL))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: a prompt needs either \"text\" or \"ids\"%s", where,
                        text ? ", not both" : "");
    if (ids)
        return set_ids(p, ids, where, err);
    if (!json_is_string(text))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: key \"text\" must be a string", where);
    return set_text(p, json_string_value(text), json_string_length(text), where, err);
}

static bool blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != ' ' && text[i] != '\t')
            return false;
    return true;
}

static tpw_status parse_line(tpw_prompts *prompts, const char *text, size_t bytes, int line, int32_t max_tokens,
                             tpw_error *err)
{
    char where[WHERE_MAX];
    size_t bad_at = 0;
    snprintf(where, sizeof where, "%.250s:%d", prompts->origin, line);
    if (bytes > 0 && text[bytes - 1] == '\r')
        bytes--;
    if (blank(text, bytes))
        return TPW_OK;
    if (bytes > TPW_PROMPT_LINE_BYTES_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: the line has %zu bytes, more than %zu", where, bytes,
                        TPW_PROMPT_LINE_BYTES_MAX);
    if (!tpw_utf8_valid(text, bytes, &bad_at))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: not valid UTF-8 at byte %zu of the line", where, bad_at);
    json_t *object = NULL;
    TPW_TRY(as_usage(tpw_json_parse(text, bytes, where, &object, err), err));
    tpw_status st = parse_object(prompts, object, line, max_tokens, where, err);
    json_decref(object);
    return st;
}

/* An id with its place, for sorting. */
typedef struct keyed {
    const json_t *id;
    size_t index;
} keyed;

static int compare(const void *left, const void *right)
{
    const keyed *a = left;
    const keyed *b = right;
    if (json_is_integer(a->id) != json_is_integer(b->id))
        return json_is_integer(a->id) ? -1 : 1;
    int order;
    if (json_is_integer(a->id)) {
        json_int_t x = json_integer_value(a->id);
        json_int_t y = json_integer_value(b->id);
        order = (x > y) - (x < y);
    } else {
        order = strcmp(json_string_value(a->id), json_string_value(b->id));
    }
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

/* Two results with one id could not be told apart. */
static tpw_status check_unique(const tpw_prompts *prompts, tpw_error *err)
{
    keyed *ids = malloc(prompts->count * sizeof *ids);
    if (!ids)
        return no_memory(err);
    for (size_t i = 0; i < prompts->count; i++)
        ids[i] = (keyed){prompts->data[i].id, i};
    qsort(ids, prompts->count, sizeof *ids, compare);
    tpw_status st = TPW_OK;
    for (size_t i = 1; i < prompts->count; i++) {
        if (!json_equal(ids[i - 1].id, ids[i].id))
            continue;
        char where[WHERE_MAX];
        tpw_prompt_where(prompts, ids[i].index, where, sizeof where);
        st = tpw_fail(err, TPW_ERR_ARGUMENT,
                      "%s: its id is already that of line %d (the default is the prompt's number)", where,
                      prompts->data[ids[i - 1].index].line);
        break;
    }
    free(ids);
    return st;
}

static tpw_status parse_file(tpw_prompts *prompts, const char *text, size_t bytes, int32_t max_tokens, tpw_error *err)
{
    size_t at = bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    for (int line = 1; at < bytes; line++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at;
        TPW_TRY(parse_line(prompts, text + at, length, line, max_tokens, err));
        at += length + 1;
    }
    if (prompts->count == 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: holds no prompt", prompts->origin);
    return check_unique(prompts, err);
}

tpw_status tpw_prompts_read(const char *path, int32_t max_tokens, tpw_prompts *out, tpw_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    TPW_TRY(begin(path, out, err));
    TPW_TRY(as_usage(tpw_file_read(path, TPW_PROMPTS_FILE_BYTES_MAX, &text, &bytes, err), err));
    tpw_status st = parse_file(out, text, bytes, max_tokens, err);
    free(text);
    return st;
}

static tpw_status add_text(tpw_prompts *prompts, const char *text, int32_t max_tokens, tpw_error *err)
{
    tpw_prompt *p = NULL;
    char where[WHERE_MAX];
    snprintf(where, sizeof where, "%.250s %zu", prompts->origin, prompts->count + 1);
    TPW_TRY(append(prompts, where, &p, err));
    p->max_tokens = max_tokens;
    TPW_TRY(set_id(p, NULL, prompts->count - 1, where, err));
    return set_text(p, text, strlen(text), where, err);
}

tpw_status tpw_prompts_from_texts(const tpw_texts *texts, int32_t max_tokens, tpw_prompts *out, tpw_error *err)
{
    TPW_TRY(begin("--prompt", out, err));
    for (size_t i = 0; i < texts->count; i++)
        TPW_TRY(add_text(out, texts->data[i], max_tokens, err));
    return TPW_OK;
}

tpw_status tpw_prompts_demo(int32_t max_tokens, tpw_prompts *out, tpw_error *err)
{
    TPW_TRY(begin("built-in prompt", out, err));
    for (size_t i = 0; i < DEMO_COUNT; i++)
        TPW_TRY(add_text(out, demo_texts[i], max_tokens, err));
    return TPW_OK;
}

tpw_status tpw_prompts_demo_ids(int32_t vocab, int32_t max_tokens, tpw_prompts *out, tpw_error *err)
{
    TPW_TRY(begin("built-in prompt", out, err));
    for (size_t i = 0; i < DEMO_COUNT; i++) {
        tpw_prompt *p = NULL;
        TPW_TRY(append(out, out->origin, &p, err));
        p->max_tokens = max_tokens;
        TPW_TRY(set_id(p, NULL, i, out->origin, err));
        int32_t count = (int32_t)(5 + 3 * i); /* different lengths, all short */
        p->ids = malloc((size_t)count * sizeof *p->ids);
        if (!p->ids)
            return no_memory(err);
        p->count = count;
        for (int32_t j = 0; j < count; j++)
            p->ids[j] = (int32_t)(((int64_t)(i + 1) * 7919 + (int64_t)j * 104729) % vocab);
    }
    return TPW_OK;
}
