/* Tests of trace files: lines as written and as others may write them, what is malformed, order. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

#include "cli/trace_file.h"
#include "cli/trace_line.h"
#include "temp_folder.h"

#define HEAD                                                                                                      \
    "{\"type\":\"trace\",\"schema\":1,\"digest_version\":1,\"ranks\":2,\"k\":3,\"compute\":\"bf16\",\"drafter\":" \
    "\"mtp\",\"model\":\"m\",\"model_digest\":\"00000000000000aa\",\"prompts\":2,\"prompts_digest\":"             \
    "\"00000000000000bb\"}\n"
#define RECORD(seq, pos, scope, layer, value)                                                         \
    "{\"type\":\"digest\",\"schema\":1,\"seq\":" seq ",\"pos\":" pos ",\"step\":4,\"scope\":\"" scope \
    "\",\"layer\":" layer ",\"global\":\"" value "\",\"ranks\":[\"" value "\",\"0000000000000002\"]}\n"
#define VALUE  "00000000000000ff"
#define END(n) "{\"type\":\"end\",\"schema\":1,\"records\":" n "}\n"
#define ONE    RECORD("0", "5", "hidden", "1", VALUE)

static tpw_status read_text(const char *text, tpw_trace_file *out, tpw_error *err)
{
    temp_folder temp;
    *err = (tpw_error){0};
    temp_make(&temp);
    temp_write_text(&temp, "t.jsonl", text);
    tpw_status st = tpw_trace_read(temp_path(&temp, "t.jsonl"), out, err);
    temp_remove(&temp);
    return st;
}

Test(trace_file, what_is_written_is_read_and_is_json)
{
    const uint64_t ranks[8] = {1, UINT64_MAX, 3, 4, 5, 6, 7, 0x0123456789ABCDEF};
    const tpw_trace_record record = {.id = 99999,
                                     .position = 262144,
                                     .step = 1234567,
                                     .scope = "recurrent",
                                     .layer = 63,
                                     .global = 0xFEDCBA9876543210,
                                     .ranks = ranks,
                                     .rank_count = 8};
    char line[TPW_TRACE_LINE_MAX];
    size_t bytes = tpw_trace_record_line(&record, line);
    cr_assert_eq(bytes, strlen(line));
    cr_assert_eq(line[bytes - 1], '\n');
    json_error_t error;
    json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(root, "%s: %s", line, error.text);
    cr_assert_str_eq(json_string_value(json_object_get(root, "global")), "fedcba9876543210");
    cr_assert_str_eq(json_string_value(json_array_get(json_object_get(root, "ranks"), 1)), "ffffffffffffffff");
    json_decref(root);
    tpw_trace_entry fast = {0};
    tpw_trace_entry strict = {0};
    uint64_t a[8] = {0};
    uint64_t b[8] = {0};
    tpw_trace_kind kind;
    int64_t records;
    cr_assert(tpw_trace_line_scan(line, bytes - 1, 8, &fast, a));
    cr_assert_eq(tpw_trace_line_parse(line, bytes - 1, 8, "x", &kind, &strict, b, &records, NULL), TPW_OK);
    cr_assert_eq(kind, TPW_TRACE_LINE_RECORD);
    cr_assert_eq(memcmp(a, ranks, sizeof a), 0);
    cr_assert_eq(memcmp(b, ranks, sizeof b), 0);
    const tpw_trace_entry *both[] = {&fast, &strict};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(both[i]->seq, 99999u);
        cr_assert_eq(both[i]->pos, 262144);
        cr_assert_eq(both[i]->step, 1234567);
        cr_assert_eq(both[i]->layer, 63);
        cr_assert_eq(both[i]->scope, TPW_TRACE_RECURRENT);
        cr_assert_eq(both[i]->global, 0xFEDCBA9876543210u);
    }
    /* another number of ranks is not this line */
    cr_assert_not(tpw_trace_line_scan(line, bytes - 1, 7, &fast, a));
}

/* What the fast reading leaves to the strict one must come out the same. */
Test(trace_file, order_of_keys_and_new_keys_do_not_matter)
{
    tpw_trace_file f;
    tpw_error err;
    const char *text =
        HEAD "{\"new\":[1],\"ranks\":[\"" VALUE "\",\"0000000000000002\"],\"global\":\"" VALUE
             "\", \"scope\":\"tokens\",\"pos\":7,\"seq\":1,\"step\":4,\"schema\":1,\"type\":\"digest\"}\n" RECORD(
                 "1", "7", "mtp", "null", VALUE) ONE;
    cr_assert_eq(read_text(text, &f, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(f.count, 3u);
    cr_assert_not(f.finished);
    cr_assert_eq(f.head.k, 3);
    cr_assert_eq(f.head.model_digest, 0xaau);
    cr_assert_eq(f.entry[0].scope, TPW_TRACE_HIDDEN, "sorted: sequence 0 first");
    cr_assert_eq(f.entry[1].scope, TPW_TRACE_TOKENS);
    cr_assert_eq(f.entry[1].layer, -1);
    cr_assert_eq(f.entry[2].scope, TPW_TRACE_MTP);
    cr_assert_eq(f.ranks[f.entry[0].ranks], 0xffu);
    cr_assert_eq(f.ranks[f.entry[0].ranks + 1], 2u);
    tpw_trace_entry key = {.seq = 1, .pos = 7, .layer = -1, .scope = TPW_TRACE_MTP};
    cr_assert_eq(tpw_trace_find(&f, &key), &f.entry[2]);
    key.pos = 8;
    cr_assert_null(tpw_trace_find(&f, &key));
    tpw_trace_file_fini(&f);
}

Test(trace_file, malformed_lines_are_named)
{
    static const struct {
        const char *text;
        tpw_status status;
        const char *parts;
    } bad[] = {
        {"", TPW_ERR_CHECKPOINT, "t.jsonl|empty"},
        {"\n", TPW_ERR_CHECKPOINT, "t.jsonl:1"},
        {"[]\n", TPW_ERR_CHECKPOINT, "t.jsonl:1"},
        {ONE, TPW_ERR_CHECKPOINT, "t.jsonl:1|no trace|digest"},
        {"{\"type\":\"trace\",\"schema\":1,\"digest_version\":2}\n", TPW_ERR_ARGUMENT,
         "not comparable|digest_version 2"},
        {"{\"type\":\"trace\",\"schema\":2,\"digest_version\":1}\n", TPW_ERR_ARGUMENT, "not comparable|schema 2"},
        {HEAD "{\"type\":\"digest\"\n", TPW_ERR_CHECKPOINT, "t.jsonl:2"},
        {HEAD ONE "{}\n", TPW_ERR_CHECKPOINT, "t.jsonl:3|type"},
        {HEAD ONE "{\"type\":\"result\"}\n", TPW_ERR_CHECKPOINT, "t.jsonl:3|result"},
        {HEAD RECORD("0", "5", "hiden", "1", VALUE), TPW_ERR_CHECKPOINT, "t.jsonl:2|hiden"},
        {HEAD RECORD("0", "5", "hidden", "null", VALUE), TPW_ERR_CHECKPOINT, "t.jsonl:2|needs a layer"},
        {HEAD RECORD("0", "5", "tokens", "0", VALUE), TPW_ERR_CHECKPOINT, "t.jsonl:2|does not have a layer"},
        {HEAD RECORD("-1", "5", "hidden", "1", VALUE), TPW_ERR_CHECKPOINT, "t.jsonl:2|seq"},
        {HEAD RECORD("0", "5.0", "hidden", "1", VALUE), TPW_ERR_CHECKPOINT, "t.jsonl:2|pos"},
        {HEAD RECORD("0", "99999999999999999999", "hidden", "1", VALUE), TPW_ERR_CHECKPOINT, "t.jsonl:2"},
        {HEAD RECORD("0", "5", "hidden", "2147483648", VALUE), TPW_ERR_CHECKPOINT, "t.jsonl:2|layer"},
        {HEAD RECORD("0", "5", "hidden", "1", "0ff"), TPW_ERR_CHECKPOINT, "t.jsonl:2|global|16 hex"},
        {HEAD RECORD("0", "5", "hidden", "1", "00000000000000FF"), TPW_ERR_CHECKPOINT, "t.jsonl:2|16 hex"},
        {HEAD ONE ONE, TPW_ERR_CHECKPOINT, "hidden of layer 1|sequence 0|position 5|twice"},
        {HEAD ONE END("2"), TPW_ERR_CHECKPOINT, "t.jsonl:3|2 records|there are 1"},
        {HEAD ONE END("1") ONE, TPW_ERR_CHECKPOINT, "t.jsonl:4|behind the last"},
        {HEAD "{\"type\":\"end\",\"schema\":1,\"records\":0}", TPW_ERR_CHECKPOINT, "t.jsonl:2|cut off"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tpw_trace_file f;
        tpw_error err;
        char parts[200];
        cr_assert_eq(read_text(bad[i].text, &f, &err), bad[i].status, "%zu: %s", i, err.text);
        snprintf(parts, sizeof parts, "%s", bad[i].parts);
        for (char *part = strtok(parts, "|"); part; part = strtok(NULL, "|"))
            cr_assert_not_null(strstr(err.text, part), "%zu: \"%s\" lacks \"%s\"", i, err.text, part);
        tpw_trace_file_fini(&f);
    }
    tpw_trace_file f;
    tpw_error err;
    cr_assert_eq(tpw_trace_read("/nonexistent/t.jsonl", &f, &err), TPW_ERR_MISSING);
    tpw_trace_file_fini(&f);
    cr_assert_eq(read_text(HEAD ONE END("1"), &f, &err), TPW_OK, "%s", err.text);
    cr_assert(f.finished);
    tpw_trace_file_fini(&f);
}

/* conv, recurrent, kv, hidden of layer 0, of layer 1, ..., tokens, mtp; then the next position. */
Test(trace_file, order_is_that_of_execution)
{
    const tpw_trace_entry in_order[] = {
        {.pos = 4, .layer = 0, .scope = TPW_TRACE_CONV},   {.pos = 4, .layer = 0, .scope = TPW_TRACE_RECURRENT},
        {.pos = 4, .layer = 0, .scope = TPW_TRACE_HIDDEN}, {.pos = 4, .layer = 1, .scope = TPW_TRACE_KV},
        {.pos = 4, .layer = 1, .scope = TPW_TRACE_HIDDEN}, {.pos = 4, .layer = -1, .scope = TPW_TRACE_TOKENS},
        {.pos = 4, .layer = -1, .scope = TPW_TRACE_MTP},   {.pos = 5, .layer = 0, .scope = TPW_TRACE_CONV},
    };
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            cr_assert_eq(tpw_trace_order(&in_order[i], &in_order[j]), i < j ? -1 : i > j, "%d %d", i, j);
            cr_assert_eq(tpw_trace_before(&in_order[i], &in_order[j]), i < j ? -1 : i > j, "%d %d", i, j);
        }
    /* the position counts more than the sequence for what comes first, the other way round for sorting */
    const tpw_trace_entry a = {.seq = 0, .pos = 9, .scope = TPW_TRACE_CONV};
    const tpw_trace_entry b = {.seq = 1, .pos = 3, .scope = TPW_TRACE_CONV};
    cr_assert_lt(tpw_trace_order(&a, &b), 0);
    cr_assert_gt(tpw_trace_before(&a, &b), 0);
}

Test(trace_file, what_cannot_be_compared_is_refused_with_the_reason)
{
    const tpw_trace_head a = {.ranks = 2,
                              .k = 0,
                              .compute = "bf16",
                              .drafter = "none",
                              .model = "m",
                              .model_digest = 1,
                              .prompts = 2,
                              .prompts_digest = 3};
    tpw_trace_head b = a;
    tpw_error err;
    b.ranks = 1;
    b.k = 4;
    snprintf(b.drafter, sizeof b.drafter, "mtp");
    snprintf(b.model, sizeof b.model, "another folder");
    cr_assert_eq(tpw_trace_comparable(&a, "A", &b, "B", &err), TPW_OK);
    cr_assert_not(tpw_trace_same_drafts(&a, &b));
    b.k = 0;
    cr_assert_not(tpw_trace_same_drafts(&a, &b));
    snprintf(b.compute, sizeof b.compute, "f32");
    cr_assert_eq(tpw_trace_comparable(&a, "A", &b, "B", &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "compute"));
    b = a;
    b.model_digest++;
    cr_assert_eq(tpw_trace_comparable(&a, "A", &b, "B", &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "configuration"));
    b = a;
    b.prompts_digest++;
    cr_assert_eq(tpw_trace_comparable(&a, "A", &b, "B", &err), TPW_ERR_ARGUMENT);
    cr_assert_not_null(strstr(err.text, "prompts"));
    b = a;
    cr_assert(tpw_trace_same_drafts(&a, &b));
}

/* The name of a model is any bytes. */
Test(trace_file, the_head_survives_its_own_writing)
{
    tpw_trace_head head = {.ranks = 8,
                           .k = 8,
                           .compute = "f32",
                           .drafter = "mtp",
                           .model_digest = 7,
                           .prompts = 100000,
                           .prompts_digest = 9};
    tpw_trace_head back;
    tpw_error err = {0};
    memset(head.model, 0xFF, sizeof head.model - 1);
    char *line = tpw_trace_head_line(&head);
    cr_assert_not_null(line);
    cr_assert_eq(tpw_trace_head_parse(line, strlen(line) - 1, "x", &back, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(back.ranks, 8);
    cr_assert_eq(back.prompts, 100000);
    cr_assert_eq(back.prompts_digest, 9u);
    cr_assert_str_eq(back.compute, "f32");
    free(line);
}
