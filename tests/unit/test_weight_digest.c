/* Tests of weight digests: against files read by hand, over every cut, over every tensor, and the weights file.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cmd_inspect.h"
#include "cli/weights_file.h"
#include "kernels/host/host.h"
#include "model/weights.h"
#include "temp_folder.h"
#include "weights_by_hand.h"

#define ODD TPW_TEST_DATA "/tiny/qwen35-odd"

#define MUST(call)                                                                       \
    do {                                                                                 \
        tpw_error err_ = {0};                                                            \
        tpw_error *err = &err_;                                                          \
        tpw_status st_ = (call);                                                         \
        cr_assert_eq(st_, TPW_OK, "%s: %s: %s", #call, tpw_status_name(st_), err_.text); \
    } while (0)

static void expect(tpw_status st, tpw_status wanted, const tpw_error *err, const char *parts)
{
    char text[512];

    cr_assert_eq(st, wanted, "%s: \"%s\"", tpw_status_name(st), err->text);
    snprintf(text, sizeof text, "%s", parts);
    for (char *part = strtok(text, "|"); part; part = strtok(NULL, "|"))
        cr_assert_not_null(strstr(err->text, part), "\"%s\" lacks \"%s\"", err->text, part);
}

static void inspect(const char *model, const char *file)
{
    char *argv[] = {(char *)model, (char *)"--digests", (char *)file};
    FILE *out = fopen("/dev/null", "w");

    MUST(tpw_cmd_inspect(3, argv, out, err));
    fclose(out);
}

/* Every tensor of the folder, from its bytes and the formula, against inspect. */
static void check_folder(const char *folder, const char *const *files, int file_count, size_t wanted)
{
    temp_folder temp;
    json_t *digests = NULL;
    size_t compared = 0;

    temp_make(&temp);
    inspect(folder, temp_path(&temp, "digests.json"));
    MUST(tpw_weights_file_read(temp.file, &digests, err));
    for (int f = 0; f < file_count; f++) {
        char path[600];
        hand_file file;

        snprintf(path, sizeof path, "%s/%s", folder, files[f]);
        hand_open(&file, path);
        for (int i = 0; i < file.count; i++) {
            char text[17];

            snprintf(text, sizeof text, "%016llx", (unsigned long long)hand_digest(&file, i));
            cr_assert_str_eq(json_string_value(json_object_get(digests, file.tensors[i].name)), text, "%s",
                             file.tensors[i].name);
            compared++;
        }
        hand_close(&file);
    }
    cr_assert_eq(compared, wanted, "%zu tensors", compared);
    cr_assert_eq(json_object_size(digests), wanted);
    json_decref(digests);
    temp_remove(&temp);
}

Test(weight_digest, inspect_gives_what_the_bytes_say)
{
    const char *const pocket[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    const char *const odd[] = {"model.safetensors"};

    check_folder(TPW_TEST_POCKET, pocket, 2, 181);
    check_folder(ODD, odd, 1, 55);
}

/* FP8 with blocks that no border meets: rows of 32-wide heads, columns of 56, KV heads on several ranks. */
static tpw_config awkward(void)
{
    tpw_config c;

    MUST(tpw_config_dummy("qwen3.5-0.8b", 4, 509, &c, err));
    c.hidden = 160;
    c.intermediate = 8 * 56;
    c.heads = 8;
    c.kv_heads = 2;
    c.head_dim = 32;
    c.rope_dim = 8;
    c.linear_k_heads = 8;
    c.linear_v_heads = 16;
    c.linear_k_dim = 24;
    c.linear_v_dim = 40;
    c.tied = false;
    MUST(tpw_config_check(&c, "awkward", err));
    return c;
}

typedef struct share_of {
    tpw_weight_sums sums[8];
    int size;
} share_of;

static void load_all(const tpw_config *config, tpw_checkpoint *checkpoint, int size, bool all, share_of *out)
{
    tpw_exec *exec = NULL;
    tpw_pool *pool = NULL;
    tpw_backing backing;
    float *rope = calloc(16 * (size_t)config->rope_dim, sizeof *rope);

    out->size = size;
    MUST(tpw_host_create("auto", &exec, err));
    backing = tpw_backing_of(exec);
    MUST(tpw_pool_create(&backing, false, &pool, err));
    for (int r = 0; r < size; r++) {
        tpw_partition part;
        tpw_model *model = NULL;

        MUST(tpw_partition_make(config, r, size, &part, err));
        MUST(tpw_weight_sums_init(&out->sums[r], checkpoint, all, err));
        MUST(tpw_model_load_summed(config, &part, checkpoint, exec, pool, rope, 16, NULL, NULL, &out->sums[r], &model,
                                   err));
        tpw_model_destroy(model);
    }
    MUST(tpw_pool_destroy(pool, err));
    tpw_host_destroy(exec);
    free(rope);
}

static void free_all(share_of *s)
{
    for (int r = 0; r < s->size; r++)
        tpw_weight_sums_fini(&s->sums[r]);
}

/* The shares of all ranks are the whole tensor. Returns how many tensors several ranks hold. */
static int check_cut(const tpw_config *config, int size)
{
    tpw_checkpoint *checkpoint = NULL;
    share_of shares;
    int copied = 0, compared = 0;

    MUST(tpw_checkpoint_open_dummy(config, &checkpoint, err));
    load_all(config, checkpoint, size, true, &shares);
    for (int32_t i = 0; i < tpw_checkpoint_count(checkpoint); i++) {
        tpw_tensor_info info;
        uint64_t whole = 0, sum = 0;

        MUST(tpw_checkpoint_get(checkpoint, i, &info, err));
        MUST(tpw_weight_digest_whole(checkpoint, &info, &whole, err));
        for (int r = 0; r < size; r++) {
            const tpw_weight_sum *s = &shares.sums[r].data[i], *first = &shares.sums[r / s->copies * s->copies].data[i];

            cr_assert(s->loaded, "%s", info.name);
            cr_assert_str_eq(s->name, info.name);
            sum += s->owned;
            if (s->copies > 1)
                cr_assert_eq(s->held, first->held, "%s: rank %d of %d", info.name, r, size);
            if (first != s)
                cr_assert_eq(s->owned, 0u, "%s: rank %d of %d owns a copy", info.name, r, size);
        }
        cr_assert_eq(sum, whole, "%s on %d ranks: %016llx, whole %016llx", info.name, size, (unsigned long long)sum,
                     (unsigned long long)whole);
        copied += shares.sums[0].data[i].copies > 1;
        compared++;
    }
    cr_assert_gt(compared, 100);
    free_all(&shares);
    tpw_checkpoint_close(checkpoint);
    return copied;
}

Test(weight_digest, shares_add_up_for_every_cut)
{
    const tpw_config config = awkward();
    int copied[4];

    for (int i = 0; i < 4; i++)
        copied[i] = check_cut(&config, 1 << i);
    cr_assert_eq(copied[0], 0);
    /* norms: 2 a layer, 2 more of attention and 1 of linear, the last one; of MTP 4 + 3 + fc */
    cr_assert_eq(copied[1], 4 * 2 + 2 + 3 + 1 + 4 + 3 + 1, "%d", copied[1]);
    /* and k, v of two layers with their scales */
    cr_assert_eq(copied[2], copied[1] + 2 * 4, "%d", copied[2]);
    cr_assert_eq(copied[3], copied[2]);
}

/* Not asked for: only what can be compared is summed. */
Test(weight_digest, cut_tensors_cost_nothing_unasked)
{
    const tpw_config config = awkward();
    tpw_checkpoint *checkpoint = NULL;
    share_of shares;
    int summed = 0;

    MUST(tpw_checkpoint_open_dummy(&config, &checkpoint, err));
    load_all(&config, checkpoint, 2, false, &shares);
    for (int32_t i = 0; i < shares.sums[1].count; i++) {
        const tpw_weight_sum *s = &shares.sums[1].data[i];

        cr_assert_eq(s->held != 0, s->copies > 1, "%s", s->name);
        summed += s->held != 0;
    }
    cr_assert_eq(summed, 22);
    free_all(&shares);
    tpw_checkpoint_close(checkpoint);
}

Test(weight_digest, skipped_by_rule)
{
    tpw_config tied = {.tied = true}, untied = {.tied = false};

    cr_assert(tpw_weight_skipped(&untied, "model.visual.blocks.0.norm1.weight"));
    cr_assert(tpw_weight_skipped(&untied, "visual.patch_embed.proj.weight"));
    cr_assert(tpw_weight_skipped(&tied, "lm_head.weight"));
    cr_assert_not(tpw_weight_skipped(&untied, "lm_head.weight"));
    cr_assert_not(tpw_weight_skipped(&tied, "lm_head.weight_scale_inv"));
    cr_assert_not(tpw_weight_skipped(&tied, "model.language_model.norm.weight"));
    cr_assert_not(tpw_weight_skipped(&tied, "model.visually.weight"));
}

/* One bit of every tensor in turn: its digest changes, those of its neighbours in the file do not. */
Test(weight_digest, a_flipped_bit_of_any_tensor)
{
    temp_folder temp;
    hand_file file;
    tpw_checkpoint *checkpoint = NULL;
    uint64_t before[256];

    temp_make(&temp);
    hand_copy(ODD "/model.safetensors", temp_path(&temp, "model.safetensors"));
    hand_open(&file, temp.file);
    MUST(tpw_checkpoint_open(temp.path, &checkpoint, err));
    int fd = open(temp_path(&temp, "model.safetensors"), O_RDWR);
    cr_assert_geq(fd, 0);
    for (int i = 0; i < file.count; i++)
        before[i] = hand_digest(&file, i);
    for (int i = 0; i < file.count; i++) {
        size_t at = file.tensors[i].begin + (size_t)i * 7919 % file.tensors[i].bytes;
        unsigned char changed = (unsigned char)(file.data[at] ^ (1u << (i % 8)));

        cr_assert_eq(pwrite(fd, &changed, 1, (off_t)at), 1);
        for (int j = i - 1; j <= i + 1; j++) {
            tpw_tensor_info info;
            uint64_t now = 0;

            if (j < 0 || j >= file.count)
                continue;
            cr_assert(tpw_checkpoint_find(checkpoint, file.tensors[j].name, &info));
            MUST(tpw_weight_digest_whole(checkpoint, &info, &now, err));
            cr_assert_eq(now == before[j], j != i, "%s, when a bit of %s is flipped", file.tensors[j].name,
                         file.tensors[i].name);
        }
        cr_assert_eq(pwrite(fd, &file.data[at], 1, (off_t)at), 1);
    }
    cr_assert_eq(file.count, 55);
    close(fd);
    tpw_checkpoint_close(checkpoint);
    hand_close(&file);
    temp_remove(&temp);
}

#define HEAD "{\"type\":\"weights\",\"schema\":1,\"digest_version\":1,\"tensors\":"

Test(weights_file, what_is_written_is_read)
{
    const tpw_weight_digest list[] = {{"a.weight", 0x0123456789abcdefull}, {"b", 0}, {"c \"\\ \xc3\xa4", ~0ull}};
    temp_folder temp;
    json_t *tensors = NULL;
    struct stat found;

    temp_make(&temp);
    temp_write_text(&temp, "f", "what was there");
    MUST(tpw_weights_file_write(temp_path(&temp, "f"), list, 3, err));
    MUST(tpw_weights_file_read(temp.file, &tensors, err));
    cr_assert_eq(json_object_size(tensors), 3u);
    cr_assert_str_eq(json_string_value(json_object_get(tensors, "a.weight")), "0123456789abcdef");
    cr_assert_str_eq(json_string_value(json_object_get(tensors, "b")), "0000000000000000");
    MUST(tpw_weights_compare("f", tensors, list, 3, err));
    json_decref(tensors);

    tpw_error err;
    expect(tpw_weights_file_write("/dev/null", list, 3, &err), TPW_ERR_IO, &err, "/dev/null|not a regular file");
    expect(tpw_weights_file_write(temp_path(&temp, "no/f"), list, 3, &err), TPW_ERR_IO, &err, "no/f|cannot be written");
    cr_assert_neq(stat(temp_path(&temp, "no"), &found), 0);
    temp_remove(&temp);
    cr_assert_neq(stat(temp.path, &found), 0, "something else was left in the folder");
}

Test(weights_file, malformed_ones_are_refused)
{
    static const char *const bad[][2] = {
        {"", "f"},
        {"[]", "f"},
        {"{}", "type"},
        {"{\"type\":\"run\"}", "\"run\"|inspect"},
        {"{\"type\":\"weights\"}", "schema"},
        {"{\"type\":\"weights\",\"schema\":2,\"digest_version\":1,\"tensors\":{}}", "schema"},
        {"{\"type\":\"weights\",\"schema\":1,\"digest_version\":2,\"tensors\":{}}", "digest_version"},
        {"{\"type\":\"weights\",\"schema\":1,\"digest_version\":1}", "tensors"},
        {HEAD "[]}", "tensors"},
        {HEAD "{}}", "tensors"},
        {HEAD "{\"a\":1}}", "a|16"},
        {HEAD "{\"a\":\"0123456789abcde\"}}", "a|16"},
        {HEAD "{\"a\":\"0123456789abcdef0\"}}", "a|16"},
        {HEAD "{\"a\":\"0123456789ABCDEF\"}}", "a|16"},
        {HEAD "{\"a\":\"0123456789abcdef\",\"a\":\"0123456789abcdef\"}}", "f"},
        {HEAD "{\"a\":\"0123456789abcdef\"}", "f"},
        {HEAD "{\"a\":\"0123456789abcdef\"}} x", "f"},
    };
    temp_folder temp;
    json_t *tensors = NULL;
    tpw_error err;

    temp_make(&temp);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        temp_write_text(&temp, "f", bad[i][0]);
        expect(tpw_weights_file_read(temp_path(&temp, "f"), &tensors, &err), TPW_ERR_CHECKPOINT, &err, bad[i][1]);
        cr_assert_null(tensors);
    }
    expect(tpw_weights_file_read(temp_path(&temp, "g"), &tensors, &err), TPW_ERR_MISSING, &err, "/g");
    temp_remove(&temp);
}

Test(weights_file, the_first_difference_is_named)
{
    const tpw_weight_digest list[] = {{"b", 1}, {"d", 2}, {"f", 3}};
    static const struct {
        const char *file;
        const char *parts; /* NULL: equal */
    } cases[] = {
        {"{\"f\":\"0000000000000003\",\"b\":\"0000000000000001\",\"d\":\"0000000000000002\"}", NULL},
        {"{\"b\":\"0000000000000001\",\"d\":\"0000000000000004\",\"f\":\"0000000000000003\"}",
         "tensor d:|0000000000000002|FILE has 0000000000000004|1 of 3 differ"},
        {"{\"b\":\"0000000000000001\",\"d\":\"0000000000000004\",\"f\":\"0000000000000005\"}", "tensor d:|2 of 3"},
        {"{\"b\":\"0000000000000001\",\"d\":\"0000000000000002\"}", "tensor f:|0000000000000003|no such|1 of 3"},
        {"{\"b\":\"0000000000000001\",\"d\":\"0000000000000002\",\"f\":\"0000000000000003\",\"a\":"
         "\"0000000000000009\"}",
         "tensor a:|no such tensor|0000000000000009|1 of 4"},
        {"{\"b\":\"0000000000000001\",\"d\":\"0000000000000004\",\"f\":\"0000000000000003\",\"e\":"
         "\"0000000000000009\"}",
         "tensor d:|2 of 4"},
        {"{\"x\":\"0000000000000001\"}", "tensor b:|4 of 4"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *expected = json_loads(cases[i].file, 0, NULL);
        tpw_error err = {0};
        tpw_status st = tpw_weights_compare("FILE", expected, list, 3, &err);

        if (cases[i].parts)
            expect(st, TPW_ERR_DIVERGED, &err, cases[i].parts);
        else
            cr_assert_eq(st, TPW_OK, "%s", err.text);
        json_decref(expected);
    }
}

/* Runs inspect; its text is the caller's to free. `line` is split at blanks. */
static tpw_status run_inspect(const char *line, char **text, tpw_error *err)
{
    char words[512], *argv[8];
    size_t bytes;
    int argc = 0;
    FILE *out = open_memstream(text, &bytes);

    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    tpw_status st = tpw_cmd_inspect(argc, argv, out, err);
    fclose(out);
    return st;
}

Test(inspect, table_and_json)
{
    static const char *const parts[] = {"8 layers (6 linear, 2 attention)",
                                        "files        2",
                                        "181 tensors",
                                        "F8_E4M3",
                                        "BF16",
                                        "of 128 x 128",
                                        "vision       none",
                                        "MTP          "};
    char *text = NULL;

    MUST(run_inspect(TPW_TEST_POCKET, &text, err));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        cr_assert_not_null(strstr(text, parts[i]), "\"%s\" is not in\n%s", parts[i], text);
    free(text);

    MUST(run_inspect("--json " TPW_TEST_POCKET, &text, err));
    json_t *line = json_loads(text, 0, NULL);
    json_t *types = json_object_get(line, "dtypes");
    const char *name;
    json_t *value;
    json_int_t tensors = 0, bytes = 0;
    json_object_foreach(types, name, value)
    {
        tensors += json_integer_value(json_object_get(value, "tensors"));
        bytes += json_integer_value(json_object_get(value, "bytes"));
    }
    cr_assert_eq(tensors, 181);
    cr_assert_eq(bytes, json_integer_value(json_object_get(json_object_get(line, "all"), "bytes")));
    cr_assert_eq(json_integer_value(json_object_get(line, "files")), 2);
    cr_assert(json_is_true(json_object_get(json_object_get(line, "config"), "fp8")));
    json_decref(line);
    free(text);
}

Test(inspect, bad_command_lines_and_folders)
{
    static const struct {
        const char *line;
        tpw_status status;
        const char *parts;
    } cases[] = {
        {"", TPW_ERR_ARGUMENT, "needs a checkpoint folder"},
        {"--digests", TPW_ERR_ARGUMENT, "--digests needs a value"},
        {"--digests= " ODD, TPW_ERR_ARGUMENT, "--digests|not empty"},
        {"--wat " ODD, TPW_ERR_ARGUMENT, "--wat|not a flag"},
        {ODD " b", TPW_ERR_ARGUMENT, "one folder|\"b\""},
        {"/nonexistent", TPW_ERR_MISSING, "/nonexistent"},
        {"-- --json", TPW_ERR_MISSING, "--json"},
        {"--digests /nonexistent/f " ODD, TPW_ERR_IO, "/nonexistent/f"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = NULL;
        tpw_error err = {0};

        expect(run_inspect(cases[i].line, &text, &err), cases[i].status, &err, cases[i].parts);
        free(text);
    }
}
