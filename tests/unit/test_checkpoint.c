/* Tests of checkpoint folders: index, lookup, marks, digest. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdbool.h>

#include "model/checkpoint.h"
#include "safetensors_files.h"

#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"

static tpw_checkpoint *open_good(const char *folder)
{
    tpw_checkpoint *checkpoint = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_checkpoint_open(folder, &checkpoint, &err), TPW_OK, "%s", err.text);
    return checkpoint;
}

static tpw_tensor_info find(const tpw_checkpoint *checkpoint, const char *name)
{
    tpw_tensor_info info;
    cr_assert(tpw_checkpoint_find(checkpoint, name, &info), "%s not found", name);
    return info;
}

Test(checkpoint, finds_the_pocket_tensors)
{
    tpw_checkpoint *c = open_good(TPW_TEST_POCKET);
    json_t *root = json_load_file(TPW_TEST_POCKET "/" INDEX, 0, NULL);
    json_t *map = json_object_get(root, "weight_map");
    cr_assert_eq((size_t)tpw_checkpoint_count(c), json_object_size(map));
    cr_assert_str_eq(tpw_checkpoint_path(c), TPW_TEST_POCKET);
    char last[TPW_TENSOR_NAME_MAX + 1] = "";
    for (int32_t i = 0; i < tpw_checkpoint_count(c); i++) {
        tpw_tensor_info info;
        cr_assert_eq(tpw_checkpoint_get(c, i, &info, NULL), TPW_OK);
        cr_assert(strcmp(last, info.name) < 0, "name order at %s", info.name);
        cr_assert(json_object_get(map, info.name), "%s", info.name);
        strcpy(last, info.name);
        tpw_tensor_info again = find(c, info.name);
        cr_assert(again.index == i && again.name == info.name);
    }
    tpw_tensor_info t = find(c, "model.language_model.layers.0.linear_attn.conv1d.weight");
    cr_assert(t.dtype == TPW_BF16 && t.dims == 3 && t.shape[0] == 2048 && t.shape[1] == 1 && t.shape[2] == 4);
    cr_assert(t.rows == 2048 && t.cols == 4);
    t = find(c, "mtp.layers.0.mlp.down_proj.weight");
    cr_assert(t.dtype == TPW_E4M3 && t.dims == 2 && t.rows == 256 && t.cols == 768);
    t = find(c, "model.language_model.layers.0.linear_attn.A_log");
    cr_assert(t.dtype == TPW_F32 && t.dims == 1 && t.rows == 8 && t.cols == 1);
    cr_assert(!tpw_checkpoint_find(c, "mtp.layers.0.mlp.down_proj", &t));
    cr_assert(!tpw_checkpoint_find(c, "", &t) && !tpw_checkpoint_find(c, "zzz", &t));
    tpw_error err = {0};
    cr_assert_eq(tpw_checkpoint_get(c, tpw_checkpoint_count(c), &t, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_checkpoint_get(c, -1, &t, NULL), TPW_ERR_ARGUMENT);
    json_decref(root);
    tpw_checkpoint_close(c);
}

#define A "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}"
#define B "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}"

/* A folder with the files 1.safetensors (tensor a) and 2.safetensors (tensor b) and this index. */
static void make_folder(temp_folder *temp, const char *index)
{
    temp_make(temp);
    write_file(temp, "1.safetensors", A, NULL, 4);
    write_file(temp, "2.safetensors", B, NULL, 4);
    temp_write_text(temp, INDEX, index);
}

Test(checkpoint, the_index_must_match_the_files)
{
    static const struct {
        const char *index;
        tpw_status status;
        const char *says;
    } cases[] = {
        {"{\"metadata\":{\"total_size\":-5},\"weight_map\":{\"b\":\"2.safetensors\",\"a\":\"1.safetensors\"}}", TPW_OK,
         ""},
        {"{\"weight_map\":{\"a\":\"1.safetensors\"}}", TPW_OK,
         ""}, /* files that the index does not name are not opened */
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\"}}", TPW_ERR_CHECKPOINT,
         "tensor b is not in"},
        {"{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}}", TPW_ERR_CHECKPOINT, "should be in"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", TPW_ERR_CHECKPOINT,
         "tensor c is not in"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"3.safetensors\"}}", TPW_ERR_MISSING, "3.safetensors"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":7}}", TPW_ERR_CHECKPOINT, "tensor b"},
        {"{\"weight_map\":{\"a\":\"./1.safetensors\"}}", TPW_ERR_CHECKPOINT, "plain name"},
        {"{\"weight_map\":{\"a\":\"/etc/1.safetensors\"}}", TPW_ERR_CHECKPOINT, "plain name"},
        {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", TPW_ERR_CHECKPOINT, "plain name"},
        {"{\"weight_map\":{\"a\":\"..safetensors\"}}", TPW_ERR_CHECKPOINT, "plain name"},
        {"{\"weight_map\":{\"a\":\"sub/1.safetensors\"}}", TPW_ERR_CHECKPOINT, "plain name"},
        {"{\"weight_map\":{\"a\":\"\"}}", TPW_ERR_CHECKPOINT, "plain name"},
        {"{\"weight_map\":{\"a\":\".safetensors\"}}", TPW_ERR_CHECKPOINT, "plain name"},
        {"{\"weight_map\":{\"a\":\"1.bin\"}}", TPW_ERR_CHECKPOINT, "plain name"},
        {"{\"weight_map\":{}}", TPW_ERR_CHECKPOINT, "0 tensors"},
        {"{\"weight_map\":[]}", TPW_ERR_CHECKPOINT, "weight_map"},
        {"{}", TPW_ERR_CHECKPOINT, "weight_map"},
        {"", TPW_ERR_CHECKPOINT, INDEX},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}}", TPW_ERR_CHECKPOINT, "duplicate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        temp_folder temp;
        tpw_checkpoint *c = NULL;
        tpw_error err = {0};
        make_folder(&temp, cases[i].index);
        tpw_status st = tpw_checkpoint_open(temp.path, &c, &err);
        cr_assert_eq(st, cases[i].status, "%s: %d, %s", cases[i].index, st, err.text);
        cr_assert(strstr(err.text, cases[i].says), "%s\n  says \"%s\"", cases[i].index, err.text);
        cr_assert((st == TPW_OK) == (c != NULL));
        tpw_checkpoint_close(c);
        cr_assert_eq(tpw_checkpoint_open(temp.path, &c, NULL), cases[i].status);
        if (st == TPW_OK)
            tpw_checkpoint_close(c);
        temp_remove(&temp);
    }
}

Test(checkpoint, a_tensor_of_two_files_or_of_none)
{
    temp_folder temp;
    tpw_checkpoint *c = NULL;
    tpw_error err = {0};
    make_folder(&temp, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    write_file(&temp, "2.safetensors",
               "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
               "\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[4,6]}}",
               NULL, 6);
    cr_assert_eq(tpw_checkpoint_open(temp.path, &c, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "tensor a is both in") && strstr(err.text, "1.safetensors") &&
                  strstr(err.text, "2.safetensors"),
              "%s", err.text);
    write_file(&temp, "2.safetensors",
               "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
               "\"extra\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[4,6]}}",
               NULL, 6);
    cr_assert_eq(tpw_checkpoint_open(temp.path, &c, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "tensor extra of 2.safetensors is not in the index"), "%s", err.text);
    write_file(&temp, "2.safetensors", "{\"b\":1}", NULL, 0);
    cr_assert_eq(tpw_checkpoint_open(temp.path, &c, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "2.safetensors"), "%s", err.text);
    cr_assert_null(c);
    temp_remove(&temp);
}

Test(checkpoint, folders_without_a_checkpoint)
{
    temp_folder temp;
    tpw_checkpoint *c = NULL;
    tpw_error err = {0};
    temp_make(&temp);
    cr_assert_eq(tpw_checkpoint_open(temp.path, &c, &err), TPW_ERR_MISSING);
    cr_assert(strstr(err.text, temp.path) && strstr(err.text, SINGLE), "%s", err.text);
    cr_assert_eq(tpw_checkpoint_open("/tpw/no/such/folder", &c, &err), TPW_ERR_MISSING);
    cr_assert(strstr(err.text, "no such folder"), "%s", err.text);
    write_file(&temp, SINGLE, A, NULL, 3);
    cr_assert_eq(tpw_checkpoint_open(temp.path, &c, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, SINGLE), "%s", err.text);
    char path[600];
    snprintf(path, sizeof path, "%s", temp_path(&temp, SINGLE));
    cr_assert_eq(tpw_checkpoint_open(path, &c, NULL), TPW_ERR_MISSING, "a file is not a folder");
    cr_assert_eq(tpw_checkpoint_open(NULL, &c, NULL), TPW_ERR_ARGUMENT);
    cr_assert_null(c);
    temp_remove(&temp);
}

Test(checkpoint, unused_tensors_are_named)
{
    temp_folder temp;
    float out[2];
    tpw_error err = {0};
    temp_make(&temp);
    write_file(&temp, SINGLE,
               "{\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]},"
               "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[2,4]},"
               "\"c\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[4,6]},"
               "\"model.visual.x\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[6,8]},"
               "\"visual.y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]},"
               "\"visually\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9,10]}}",
               NULL, 10);
    tpw_checkpoint *c = open_good(temp.path);
    cr_assert_eq(tpw_checkpoint_check_used(c, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "tensor a and others") && strstr(err.text, "(4 of 6)"), "%s", err.text);
    tpw_tensor_info t = find(c, "a");
    cr_assert_eq(tpw_checkpoint_read_f32(c, &t, 0, 1, 0, 1, out, 1, NULL), TPW_OK);
    t = find(c, "c");
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 1, 0, 1, out, 1, NULL), TPW_OK);
    t = find(c, "visually");
    tpw_checkpoint_mark(c, &t);
    cr_assert_eq(tpw_checkpoint_check_used(c, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "tensor b is not used") && strstr(err.text, "(1 of 6)"), "%s", err.text);
    t = find(c, "b");
    tpw_checkpoint_mark(c, &t);
    cr_assert_eq(tpw_checkpoint_check_used(c, NULL), TPW_OK);
    tpw_checkpoint_close(c);
    temp_remove(&temp);
}

static uint64_t digest_of(const char *header, size_t payload)
{
    temp_folder temp;
    temp_make(&temp);
    write_file(&temp, SINGLE, header, NULL, payload);
    tpw_checkpoint *c = open_good(temp.path);
    uint64_t digest = tpw_checkpoint_digest(c);
    tpw_checkpoint_close(c);
    temp_remove(&temp);
    return digest;
}

Test(checkpoint, digest_is_of_names_dtypes_and_shapes)
{
    uint64_t both = digest_of("{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                              "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,8]}}",
                              8);
    cr_assert_eq(digest_of("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                           "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,8]},\"__metadata__\":{}}",
                           8),
                 both, "the order in the file does not count");
    temp_folder temp;
    make_folder(&temp, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    tpw_checkpoint *c = open_good(temp.path);
    cr_assert_eq(tpw_checkpoint_digest(c), both, "nor does the cut in files");
    tpw_checkpoint_close(c);
    temp_remove(&temp);
    uint64_t a = digest_of(A, 4);
    cr_assert_neq(a, both);
    cr_assert_neq(a, digest_of(B, 4), "the name");
    cr_assert_neq(a, digest_of("{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4), "the dtype");
    cr_assert_neq(a, digest_of("{\"a\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}", 4), "the rank");
    cr_assert_neq(digest_of("{\"a\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}", 4),
                  digest_of("{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[0,4]}}", 4),
                  "the order of sides");
}

Test(checkpoint, many_tensors)
{
    enum { COUNT = 20000 };
    temp_folder temp;
    char *header = malloc(COUNT * 120 + 10);
    uint8_t *payload = malloc(COUNT);
    size_t at = 0;
    header[at++] = '{';
    for (int i = 0; i < COUNT; i++) {
        payload[i] = (uint8_t)(i * 31 % 120);
        at += (size_t)sprintf(
            header + at,
            "%s\"layers.%d.experts.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1],\"data_offsets\":[%d,%d]}",
            i ? "," : "", i, i, i + 1);
    }
    strcpy(header + at, "}");
    temp_make(&temp);
    write_file(&temp, SINGLE, header, payload, COUNT);
    tpw_checkpoint *c = open_good(temp.path);
    cr_assert_eq(tpw_checkpoint_count(c), COUNT);
    for (int i = 0; i < COUNT; i += 13) {
        char name[64];
        uint8_t out;
        snprintf(name, sizeof name, "layers.%d.experts.weight", i);
        tpw_tensor_info t = find(c, name);
        cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 1, 0, 1, &out, 1, NULL), TPW_OK);
        cr_assert_eq(out, i * 31 % 120, "%s", name);
    }
    tpw_checkpoint_close(c);
    free(header);
    free(payload);
    temp_remove(&temp);
}
