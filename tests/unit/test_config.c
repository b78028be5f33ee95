/* Tests of config.json and generation_config.json. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <jansson.h>

#include "model/config.h"
#include "temp_folder.h"

/* Small, odd and valid; every key that is read is here. */
static const char base_text[] =
    "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":96,\"intermediate_size\":200,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"head_dim\":40,\"linear_num_key_heads\":2,"
    "\"linear_num_value_heads\":6,\"linear_key_head_dim\":24,\"linear_value_head_dim\":56,"
    "\"linear_conv_kernel_dim\":4,\"max_position_embeddings\":1000,\"vocab_size\":777,\"rms_norm_eps\":1e-5,"
    "\"layer_types\":[\"full_attention\",\"linear_attention\",\"full_attention\"],"
    "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000.5,\"partial_rotary_factor\":0.35},"
    "\"hidden_act\":\"silu\",\"attention_bias\":false,\"attn_output_gate\":true,\"tie_word_embeddings\":true,"
    "\"mtp_num_hidden_layers\":1,\"eos_token_id\":5}";

static json_t *parsed(const char *text)
{
    json_error_t error;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &error);
    cr_assert(value, "the test's own JSON: %s in %s", error.text, text);
    return value;
}

/* Sets root[path] = value, `path` with dots; value NULL removes the key. */
static void change(json_t *root, const char *path, const char *value)
{
    char key[100];
    const char *dot;
    while ((dot = strchr(path, '.'))) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        root = json_object_get(root, key);
        path = dot + 1;
    }
    if (value)
        json_object_set_new(root, path, parsed(value));
    else
        json_object_del(root, path);
}

/* Loads `root` as a folder's config.json, flat as it is or as the text_config of a nested one. */
static tpw_status load_root(json_t *root, bool nested, const char *generation, tpw_config *out, tpw_error *err)
{
    temp_folder temp;
    temp_make(&temp);
    json_t *file = nested ? json_pack("{s:s, s:O}", "model_type", "qwen3_5", "text_config", root) : json_incref(root);
    cr_assert_eq(json_dump_file(file, temp_path(&temp, "config.json"), 0), 0);
    json_decref(file);
    if (generation)
        temp_write_text(&temp, "generation_config.json", generation);
    memset(out, 0, sizeof *out);
    tpw_status st = tpw_config_load(temp.path, out, err);
    temp_remove(&temp);
    return st;
}

typedef struct edit {
    const char *path;
    const char *value; /* NULL removes */
    const char *says;  /* what the error must contain; NULL: must load */
} edit;

static void try_edits(const edit *edits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (int nested = 0; nested < 2; nested++) {
            tpw_config config;
            tpw_error err = {0};
            json_t *root = parsed(base_text);
            change(root, edits[i].path, edits[i].value);
            tpw_status st = load_root(root, nested, NULL, &config, &err);
            json_decref(root);
            const char *value = edits[i].value ? edits[i].value : "(removed)";
            if (!edits[i].says) {
                cr_assert_eq(st, TPW_OK, "%s = %s, nested %d: %s", edits[i].path, value, nested, err.text);
                continue;
            }
            cr_assert_eq(st, TPW_ERR_CHECKPOINT, "%s = %s, nested %d: status %d", edits[i].path, value, nested, st);
            cr_assert(strstr(err.text, edits[i].says), "%s = %s: \"%s\"", edits[i].path, value, err.text);
            cr_assert(strstr(err.text, "config.json"), "%s", err.text);
        }
    }
}

#define TRY_EDITS(table) try_edits(table, sizeof(table) / sizeof(table)[0])

Test(config, reads_the_pocket_model)
{
    tpw_config c;
    tpw_error err = {0};
    cr_assert_eq(tpw_config_load(TPW_TEST_POCKET, &c, &err), TPW_OK, "%s", err.text);
    cr_assert_str_eq(c.model_type, "qwen3_5");
    cr_assert(c.hidden == 256 && c.intermediate == 768 && c.layers == 8 && c.vocab == 2048);
    cr_assert(c.heads == 4 && c.kv_heads == 2 && c.head_dim == 256 && c.rope_dim == 64 && c.rope_theta == 1e7);
    cr_assert(c.linear_k_heads == 4 && c.linear_v_heads == 8 && c.linear_k_dim == 128 && c.linear_v_dim == 128);
    cr_assert(c.conv_width == 4 && !c.sigmoid_gate && c.rms_eps == 1e-6f && c.positions_max == 8192);
    cr_assert(!c.tied && c.mtp_layers == 1 && c.quantized);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(c.kind[i], i == 3 || i == 7 ? TPW_LAYER_ATTENTION : TPW_LAYER_DELTANET, "layer %d", i);
    cr_assert(c.end_count == 2 && c.end_ids[0] == 0 && c.end_ids[1] == 2, "the list of generation_config.json wins");
}

Test(config, reads_the_odd_relative)
{
    tpw_config c;
    tpw_error err = {0};
    cr_assert_eq(tpw_config_load(TPW_TEST_DATA "/tiny/qwen35-odd", &c, &err), TPW_OK, "%s", err.text);
    cr_assert_str_eq(c.model_type, "qwen3_5_text");
    cr_assert(c.hidden == 160 && c.intermediate == 352 && c.layers == 4 && c.vocab == 1003);
    cr_assert(c.heads == 4 && c.kv_heads == 1 && c.head_dim == 64 && c.rope_dim == 16);
    cr_assert(c.linear_k_heads == 4 && c.linear_v_heads == 12 && c.linear_k_dim == 32 && c.linear_v_dim == 64);
    cr_assert(c.tied && c.mtp_layers == 0 && !c.quantized && c.end_count == 0);
}

Test(config, reads_every_key_flat_and_nested)
{
    for (int nested = 0; nested < 2; nested++) {
        tpw_config c;
        tpw_error err = {0};
        json_t *root = parsed(base_text);
        cr_assert_eq(load_root(root, nested, NULL, &c, &err), TPW_OK, "%s", err.text);
        json_decref(root);
        cr_assert_str_eq(c.model_type, nested ? "qwen3_5" : "qwen3_5_text");
        cr_assert(c.hidden == 96 && c.intermediate == 200 && c.layers == 3 && c.heads == 6 && c.kv_heads == 3);
        cr_assert(c.head_dim == 40 && c.linear_k_heads == 2 && c.linear_v_heads == 6 && c.linear_k_dim == 24);
        cr_assert(c.linear_v_dim == 56 && c.conv_width == 4 && c.positions_max == 1000 && c.vocab == 777);
        cr_assert(c.rms_eps == 1e-5f && c.rope_theta == 10000.5 && c.rope_dim == 14 && c.tied && c.mtp_layers == 1);
        cr_assert(c.kind[0] == 1 && c.kind[1] == 0 && c.kind[2] == 1 && !c.quantized && !c.sigmoid_gate);
        cr_assert(c.end_count == 1 && c.end_ids[0] == 5);
    }
}

Test(config, every_dimension_is_required_and_ranged)
{
    static const struct {
        const char *key;
        const char *over;
    } keys[] = {
        {"hidden_size", "65537"},
        {"intermediate_size", "1048577"},
        {"num_hidden_layers", "1025"},
        {"num_attention_heads", "4097"},
        {"num_key_value_heads", "4097"},
        {"head_dim", "1025"},
        {"linear_num_key_heads", "4097"},
        {"linear_num_value_heads", "4097"},
        {"linear_key_head_dim", "1025"},
        {"linear_value_head_dim", "1025"},
        {"linear_conv_kernel_dim", "9"},
        {"vocab_size", "16777217"},
        {"max_position_embeddings", "16777217"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *k = keys[i].key;
        const edit edits[] = {{k, NULL, k},         {k, "null", k},      {k, "0", k},    {k, "-3", k},
                              {k, "12.0", k},       {k, "\"96\"", k},    {k, "true", k}, {k, "[96]", k},
                              {k, "4294967297", k}, {k, keys[i].over, k}};
        TRY_EDITS(edits);
    }
}

Test(config, dimensions_must_fit_together)
{
    static const edit edits[] = {
        {"num_key_value_heads", "4", "num_attention_heads 6 is not a multiple of num_key_value_heads 4"},
        {"num_key_value_heads", "1", NULL},
        {"num_attention_heads", "2", "not a multiple"},
        {"linear_num_value_heads", "5", "linear_num_value_heads 5 is not a multiple of linear_num_key_heads 2"},
        {"linear_num_value_heads", "16", NULL},
        {"linear_conv_kernel_dim", "1", "linear_conv_kernel_dim"},
        {"linear_conv_kernel_dim", "2", NULL},
        {"num_hidden_layers", "4", "layer_types"},
        {"num_hidden_layers", "2", "layer_types"},
        {"rms_norm_eps", "0", "rms_norm_eps"},
        {"rms_norm_eps", "-1e-6", "rms_norm_eps"},
        {"rms_norm_eps", "1", "rms_norm_eps"},
        {"rms_norm_eps", "1e-60", "rms_norm_eps"},
        {"rms_norm_eps", "1e300", "rms_norm_eps"},
        {"rms_norm_eps", "\"1e-6\"", "rms_norm_eps"},
        {"rms_norm_eps", NULL, "rms_norm_eps"},
        {"mtp_num_hidden_layers", "2", "mtp_num_hidden_layers"},
        {"mtp_num_hidden_layers", NULL, NULL},
        {"mtp_use_dedicated_embeddings", "false", NULL},
        {"mtp_use_dedicated_embeddings", "true", "mtp_use_dedicated_embeddings"},
    };
    TRY_EDITS(edits);
}

Test(config, layer_kinds)
{
    static const edit edits[] = {
        {"layer_types", "[\"full_attention\",\"linear_attention\",\"sliding_attention\"]", "sliding_attention"},
        {"layer_types", "[\"full_attention\",\"linear_attention\",1]", "layer_types[2]"},
        {"layer_types", "[]", "layer_types"},
        {"layer_types", "\"full_attention\"", "layer_types"},
        {"layer_types", "{}", "layer_types"},
        {"layer_types", NULL, NULL},
        {"full_attention_interval", "\"x\"", NULL}, /* not read when layer_types is there */
    };
    TRY_EDITS(edits);

    tpw_config c;
    json_t *root = parsed(base_text);
    change(root, "layer_types", "null");
    change(root, "num_hidden_layers", "10");
    cr_assert_eq(load_root(root, false, NULL, &c, NULL), TPW_OK);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(c.kind[i], i == 3 || i == 7, "the default interval is 4: layer %d", i);
    change(root, "full_attention_interval", "3");
    cr_assert_eq(load_root(root, false, NULL, &c, NULL), TPW_OK);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(c.kind[i], i == 2 || i == 5 || i == 8, "interval 3: layer %d", i);
    change(root, "full_attention_interval", "0");
    cr_assert_eq(load_root(root, false, NULL, &c, NULL), TPW_ERR_CHECKPOINT, "no division by zero");
    json_decref(root);
}

Test(config, rope)
{
    static const edit edits[] = {
        {"rope_parameters.rope_type", "\"yarn\"", "yarn"},
        {"rope_parameters.rope_type", "\"linear\"", "linear"},
        {"rope_parameters.type", "\"dynamic\"", "dynamic"},
        {"rope_parameters.rope_type", "3", "rope_type"},
        {"rope_parameters.rope_type", NULL, NULL},
        {"rope_parameters.rope_theta", NULL, "rope_theta"},
        {"rope_parameters.rope_theta", "\"1e7\"", "rope_theta"},
        {"rope_parameters.rope_theta", "0", "rope_theta"},
        {"rope_parameters.rope_theta", "1e13", "rope_theta"},
        {"rope_parameters.rope_theta", "10000", NULL},
        {"rope_parameters", NULL, "rope_theta"},
        {"rope_parameters", "[1]", "rope_parameters"},
        {"rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4.0}", "yarn"},
        {"rope_scaling", "null", NULL},
        {"rope_theta", "10000.5", NULL},
        {"rope_theta", "10000", "rope_theta"},
        {"partial_rotary_factor", "0.35", NULL},
        {"partial_rotary_factor", "0.3", "partial_rotary_factor"},
        {"rope_parameters.partial_rotary_factor", "0", "partial_rotary_factor"},
        {"rope_parameters.partial_rotary_factor", "-0.25", "partial_rotary_factor"},
        {"rope_parameters.partial_rotary_factor", "1.05", "partial_rotary_factor"},
        {"rope_parameters.partial_rotary_factor", "1", NULL},
        {"rope_parameters.partial_rotary_factor", "0.375", "must be even"},      /* 15 of 40 */
        {"rope_parameters.partial_rotary_factor", "0.36", "not a whole number"}, /* 14.4 */
        {"rope_parameters.partial_rotary_factor", "true", "partial_rotary_factor"},
    };
    TRY_EDITS(edits);

    tpw_config c;
    json_t *root = parsed(base_text);
    change(root, "rope_parameters", NULL);
    change(root, "rope_theta", "5000");
    cr_assert_eq(load_root(root, false, NULL, &c, NULL), TPW_OK, "flat theta; 0.25 is the family's share");
    cr_assert(c.rope_theta == 5000.0 && c.rope_dim == 10);
    change(root, "partial_rotary_factor", "0.5");
    cr_assert_eq(load_root(root, true, NULL, &c, NULL), TPW_OK);
    cr_assert_eq(c.rope_dim, 20);
    json_decref(root);
}

Test(config, variants_of_the_arithmetic)
{
    static const edit edits[] = {
        {"attn_output_gate", "false", "attn_output_gate"},
        {"attn_output_gate", "1", "attn_output_gate"},
        {"attn_output_gate", NULL, NULL},
        {"attention_bias", "true", "attention_bias"},
        {"attention_bias", NULL, NULL},
        {"hidden_act", "\"gelu\"", "gelu"},
        {"hidden_act", NULL, NULL},
        {"output_gate_type", "\"swish\"", NULL},
        {"output_gate_type", "\"silu\"", NULL},
        {"output_gate_type", "\"tanh\"", "tanh"},
        {"output_gate_type", "7", "output_gate_type"},
        {"tie_word_embeddings", "\"yes\"", "tie_word_embeddings"},
        {"some_new_key", "{\"a\":1}", NULL},
    };
    TRY_EDITS(edits);
    tpw_config c;
    json_t *root = parsed(base_text);
    change(root, "output_gate_type", "\"sigmoid\"");
    cr_assert_eq(load_root(root, false, NULL, &c, NULL), TPW_OK);
    cr_assert(c.sigmoid_gate);
    json_decref(root);
}

Test(config, quantization)
{
    static const edit edits[] = {
        {"quantization_config", "null", NULL},
        {"quantization_config", "{}", "quant_method"},
        {"quantization_config", "[]", "quantization_config"},
        {"quantization_config", "{\"quant_method\":\"gptq\",\"bits\":4}", "gptq"},
        {"quantization_config", "{\"quant_method\":\"fp8\"}", "weight_block_size"},
        {"quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}", NULL},
        {"quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,64]}", "weight_block_size"},
        {"quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}", "weight_block_size"},
        {"quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128,1]}", "weight_block_size"},
        {"quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128.0,128]}", "weight_block_size"},
        {"quantization_config", "{\"quant_method\":\"fp8\",\"weight_block_size\":null}", "weight_block_size"},
        {"quantization_config", "{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\",\"weight_block_size\":[128,128]}", "e5m2"},
    };
    TRY_EDITS(edits);
    tpw_config c;
    json_t *root = parsed(base_text);
    change(root, "quantization_config",
           "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,"
           "128]}");
    cr_assert_eq(load_root(root, false, NULL, &c, NULL), TPW_OK);
    cr_assert(c.quantized);
    json_decref(root);
}

/* Files that are nested in a way that load_root does not make: at the top level of a qwen3_5 file. */
Test(config, top_level_of_a_nested_file)
{
    static const edit edits[] = {
        {"tie_word_embeddings", "true", NULL},
        {"tie_word_embeddings", "false", "tie_word_embeddings"},
        {"tie_word_embeddings", "null", NULL},
        {"quantization_config", "{\"quant_method\":\"awq\"}", "awq"},
        {"text_config", NULL, "text_config"},
        {"text_config", "[]", "text_config"},
        {"text_config.model_type", "\"qwen3_5_moe_text\"", "qwen3_5_moe_text"},
        {"text_config.model_type", NULL, NULL},
        {"model_type", NULL, "model_type"},
        {"model_type", "3", "model_type"},
        {"vision_config", "{\"depth\":27}", NULL},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        tpw_config c;
        tpw_error err = {0};
        json_t *root = json_pack("{s:s, s:o}", "model_type", "qwen3_5", "text_config", parsed(base_text));
        change(root, edits[i].path, edits[i].value);
        tpw_status st = load_root(root, false, NULL, &c, &err);
        json_decref(root);
        cr_assert_eq(st, edits[i].says ? TPW_ERR_CHECKPOINT : TPW_OK, "edit %zu: %s", i, err.text);
        cr_assert(!edits[i].says || strstr(err.text, edits[i].says), "edit %zu: %s", i, err.text);
    }
    tpw_config c;
    json_t *root = json_pack("{s:s, s:o}", "model_type", "qwen3_5", "text_config", parsed(base_text));
    change(root, "text_config.tie_word_embeddings", NULL);
    cr_assert_eq(load_root(root, false, NULL, &c, NULL), TPW_OK);
    cr_assert(!c.tied, "absent at both levels");
    change(root, "tie_word_embeddings", "true");
    cr_assert_eq(load_root(root, false, NULL, &c, NULL), TPW_OK);
    cr_assert(c.tied, "at the top level alone");
    json_decref(root);
}

Test(config, relatives_are_refused_by_name)
{
    static const char *const types[] = {
        "qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text", "mamba2", "bamba", "granitemoehybrid",
        "qwen4_exp",  "llama",       "qwen3_5_",         ""};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        tpw_config c;
        tpw_error err = {0};
        char quoted[64];
        json_t *root = parsed(base_text);
        snprintf(quoted, sizeof quoted, "\"%s\"", types[i]);
        change(root, "model_type", quoted);
        cr_assert_eq(load_root(root, false, NULL, &c, &err), TPW_ERR_CHECKPOINT);
        cr_assert(strstr(err.text, quoted) && strstr(err.text, "\"qwen3_5\"") && strstr(err.text, "\"qwen3_5_text\""),
                  "%s", err.text);
        json_decref(root);
    }
}

Test(config, end_ids)
{
    static const struct {
        const char *config;     /* eos_token_id of config.json */
        const char *generation; /* generation_config.json, NULL for none */
        int count;              /* -1: refused */
        int first;
        int last;
    } cases[] = {
        {"5", NULL, 1, 5, 5},
        {"[5,6,776]", NULL, 3, 5, 776},
        {"[]", NULL, 0, 0, 0},
        {"null", NULL, 0, 0, 0},
        {"[5,6,5]", NULL, 2, 5, 6},
        {"5", "{}", 1, 5, 5},
        {"5", "{\"eos_token_id\":null}", 1, 5, 5},
        {"5", "{\"eos_token_id\":9}", 1, 9, 9},
        {"5", "{\"eos_token_id\":[9,0]}", 2, 9, 0},
        {"5", "{\"eos_token_id\":[]}", 0, 0, 0},
        {"\"bad\"", "{\"eos_token_id\":9}", 1, 9, 9},
        {"777", NULL, -1, 0, 0},
        {"-1", NULL, -1, 0, 0},
        {"5.0", NULL, -1, 0, 0},
        {"\"5\"", NULL, -1, 0, 0},
        {"[5,[6]]", NULL, -1, 0, 0},
        {"[5,null]", NULL, -1, 0, 0},
        {"[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]", NULL, 16, 0, 15},
        {"[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", NULL, -1, 0, 0},
        {"5", "{\"eos_token_id\":777}", -1, 0, 0},
        {"5", "{\"eos_token_id\":9", -1, 0, 0},
        {"5", "", -1, 0, 0},
        {"5", "[]", -1, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tpw_config c;
        tpw_error err = {0};
        json_t *root = parsed(base_text);
        change(root, "eos_token_id", cases[i].config);
        tpw_status st = load_root(root, i % 2, cases[i].generation, &c, &err);
        json_decref(root);
        cr_assert_eq(st, cases[i].count < 0 ? TPW_ERR_CHECKPOINT : TPW_OK, "case %zu: %s", i, err.text);
        if (cases[i].count < 0)
            continue;
        cr_assert_eq(c.end_count, cases[i].count, "case %zu: %d", i, c.end_count);
        cr_assert(c.end_count == 0 || (c.end_ids[0] == cases[i].first && c.end_ids[c.end_count - 1] == cases[i].last),
                  "case %zu", i);
    }
}

Test(config, missing_files_and_truncations)
{
    tpw_config c;
    tpw_error err = {0};
    temp_folder temp;
    temp_make(&temp);
    cr_assert_eq(tpw_config_load(temp.path, &c, &err), TPW_ERR_MISSING);
    cr_assert(strstr(err.text, "config.json"), "%s", err.text);
    cr_assert_eq(tpw_config_load(NULL, &c, NULL), TPW_ERR_ARGUMENT);
    char *longer = calloc(1, 5001);
    memset(longer, 'a', 5000);
    cr_assert_eq(tpw_config_load(longer, &c, NULL), TPW_ERR_ARGUMENT);
    free(longer);
    for (size_t n = 0; n < sizeof base_text - 1; n++) {
        temp_write(&temp, "config.json", base_text, n);
        cr_assert_eq(tpw_config_load(temp.path, &c, NULL), TPW_ERR_CHECKPOINT, "cut after %zu bytes", n);
    }
    temp_remove(&temp);
}

Test(config, published_geometries)
{
    static const struct {
        const char *name;
        int hidden, inter, layers, v_heads, heads, kv, tied;
    } known[] = {{"qwen3.5-0.8b", 1024, 3584, 24, 16, 8, 2, 1},
                 {"qwen3.5-4b", 2560, 9216, 32, 32, 16, 4, 1},
                 {"qwen3.5-9b", 4096, 12288, 32, 32, 16, 4, 0},
                 {"qwen3.5-27b", 5120, 17408, 64, 48, 24, 4, 0}};
    for (int i = 0; i < 4; i++) {
        tpw_config c;
        cr_assert_eq(tpw_config_dummy(known[i].name, 0, 0, &c, NULL), TPW_OK);
        cr_assert(c.hidden == known[i].hidden && c.intermediate == known[i].inter && c.layers == known[i].layers);
        cr_assert(c.linear_v_heads == known[i].v_heads && c.heads == known[i].heads && c.kv_heads == known[i].kv);
        cr_assert(c.tied == known[i].tied && c.vocab == 248320 && c.positions_max == 262144 && c.end_count == 0);
        cr_assert(c.linear_k_heads == 16 && c.linear_k_dim == 128 && c.linear_v_dim == 128 && c.conv_width == 4);
        cr_assert(c.head_dim == 256 && c.rope_dim == 64 && c.rope_theta == 1e7 && c.rms_eps == 1e-6f);
        cr_assert(c.mtp_layers == 1 && c.quantized && !c.sigmoid_gate);
        int attention = 0;
        for (int l = 0; l < c.layers; l++)
            attention += c.kind[l] == TPW_LAYER_ATTENTION;
        cr_assert_eq(attention, known[i].layers / 4);
        cr_assert(c.kind[0] == 0 && c.kind[2] == 0 && c.kind[3] == 1);
    }
    tpw_config c;
    tpw_error err = {0};
    cr_assert_eq(tpw_config_dummy("qwen3.5-27b", 5, 4096, &c, NULL), TPW_OK);
    cr_assert(c.layers == 5 && c.vocab == 4096 && c.kind[4] == 0);
    cr_assert_eq(tpw_config_dummy("qwen3.5-3b", 0, 0, &c, &err), TPW_ERR_ARGUMENT);
    cr_assert(strstr(err.text, "qwen3.5-0.8b") && strstr(err.text, "qwen3.5-27b"), "%s", err.text);
    cr_assert_eq(tpw_config_dummy(NULL, 0, 0, &c, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_config_dummy("qwen3.5-9b", 1025, 0, &c, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_config_dummy("qwen3.5-9b", 0, 1 << 25, &c, NULL), TPW_ERR_ARGUMENT);
}

Test(config, check_looks_at_every_origin)
{
    tpw_config c;
    tpw_config good;
    cr_assert_eq(tpw_config_dummy("qwen3.5-0.8b", 0, 0, &good, NULL), TPW_OK);
    cr_assert_eq(tpw_config_check(&good, "w", NULL), TPW_OK);
#define BROKEN(change)                                                                    \
    do {                                                                                  \
        c = good;                                                                         \
        change;                                                                           \
        cr_assert_eq(tpw_config_check(&c, "w", NULL), TPW_ERR_CHECKPOINT, "%s", #change); \
    } while (0)
    BROKEN(c.hidden = 0);
    BROKEN(c.layers = TPW_LAYERS_MAX + 1);
    BROKEN(c.kind[23] = 2);
    BROKEN(c.rope_dim = 63);
    BROKEN(c.rope_dim = 258);
    BROKEN(c.rope_dim = 0);
    BROKEN(c.rope_theta = 0.0 / 0.0);
    BROKEN(c.rms_eps = 0.0f / 0.0f);
    BROKEN(c.kv_heads = 3);
    BROKEN(c.linear_k_heads = 5);
    BROKEN(c.mtp_layers = -1);
    BROKEN(c.end_count = 17);
    BROKEN((c.end_count = 1, c.end_ids[0] = c.vocab));
    BROKEN(memset(c.model_type, 'x', sizeof c.model_type));
    BROKEN(strcpy(c.model_type, "qwen3_next"));
#undef BROKEN
    c = good;
    c.kind[24] = 9; /* past the last layer: not looked at */
    cr_assert_eq(tpw_config_check(&c, "w", NULL), TPW_OK);
}

Test(config, digest_sees_every_field)
{
    tpw_config a;
    cr_assert_eq(tpw_config_dummy("qwen3.5-27b", 8, 4096, &a, NULL), TPW_OK);
    a.end_count = 2;
    a.end_ids[0] = 3;
    a.end_ids[1] = 4;
    uint64_t base = tpw_config_digest(&a);
    int seen = 0;
#define DIFFERS(change)                                                     \
    do {                                                                    \
        tpw_config b = a;                                                   \
        change;                                                             \
        cr_assert_neq(tpw_config_digest(&b), base, "%s not seen", #change); \
        seen++;                                                             \
    } while (0)
    DIFFERS(strcpy(b.model_type, "qwen3_5_text"));
    DIFFERS(b.hidden++);
    DIFFERS(b.intermediate++);
    DIFFERS(b.layers++);
    DIFFERS(b.kind[7] = 0);
    DIFFERS((b.kind[0] = 1, b.kind[3] = 0));
    DIFFERS(b.heads++);
    DIFFERS(b.kv_heads++);
    DIFFERS((b.heads--, b.kv_heads++));
    DIFFERS(b.head_dim++);
    DIFFERS(b.rope_dim++);
    DIFFERS(b.rope_theta *= 2);
    DIFFERS(b.linear_k_heads++);
    DIFFERS(b.linear_v_heads++);
    DIFFERS(b.linear_k_dim++);
    DIFFERS(b.linear_v_dim++);
    DIFFERS(b.conv_width++);
    DIFFERS(b.sigmoid_gate = true);
    DIFFERS(b.rms_eps = 1e-5f);
    DIFFERS(b.positions_max++);
    DIFFERS(b.vocab++);
    DIFFERS(b.tied = true);
    DIFFERS(b.mtp_layers = 0);
    DIFFERS(b.quantized = false);
    DIFFERS(b.end_count = 1);
    DIFFERS((b.end_ids[0] = 4, b.end_ids[1] = 3));
#undef DIFFERS
    cr_assert_eq(seen, 26);
    tpw_config same = a;
    same.kind[TPW_LAYERS_MAX - 1] = 1; /* not part of the model */
    same.end_ids[5] = 77;
    cr_assert_eq(tpw_config_digest(&same), base);
}
