/* Reads config.json and generation_config.json of the hybrid family into one checked struct.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/json.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
#define WHAT_MAX         320 /* "<path>: text_config", cut if longer: it only labels errors */

#define HIDDEN_MAX       65536
#define INTERMEDIATE_MAX (1 << 20)
#define HEADS_MAX        4096
#define HEAD_DIM_MAX     1024
#define CONV_WIDTH_MAX   8
#define POSITIONS_MAX    (1 << 24)
#define VOCAB_MAX        (1 << 24)
#define ROPE_THETA_MAX   1e12

/* The objects that keys are read from. `text` is `root` itself in a flat file. */
typedef struct sources {
    const json_t *root;
    const json_t *text;
    const char *root_what;
    const char *text_what;
} sources;

static tpw_status read_dimension(const sources *src, const char *key, int32_t high, int32_t *out, tpw_error *err)
{
    int64_t value = 0;
    TPW_TRY(tpw_json_int(src->text, key, true, 1, high, src->text_what, &value, err));
    *out = (int32_t)value;
    return TPW_OK;
}

static tpw_status read_dimensions(const sources *src, tpw_config *config, tpw_error *err)
{
    const struct {
        const char *key;
        int32_t high;
        int32_t *out;
    } wanted[] = {
        {"hidden_size", HIDDEN_MAX, &config->hidden},
        {"intermediate_size", INTERMEDIATE_MAX, &config->intermediate},
        {"num_hidden_layers", TPW_LAYERS_MAX, &config->layers},
        {"num_attention_heads", HEADS_MAX, &config->heads},
        {"num_key_value_heads", HEADS_MAX, &config->kv_heads},
        {"head_dim", HEAD_DIM_MAX, &config->head_dim},
        {"linear_num_key_heads", HEADS_MAX, &config->linear_k_heads},
        {"linear_num_value_heads", HEADS_MAX, &config->linear_v_heads},
        {"linear_key_head_dim", HEAD_DIM_MAX, &config->linear_k_dim},
        {"linear_value_head_dim", HEAD_DIM_MAX, &config->linear_v_dim},
        {"linear_conv_kernel_dim", CONV_WIDTH_MAX, &config->conv_width},
        {"max_position_embeddings", POSITIONS_MAX, &config->positions_max},
        {"vocab_size", VOCAB_MAX, &config->vocab},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        TPW_TRY(read_dimension(src, wanted[i].key, wanted[i].high, wanted[i].out, err));

    double eps = 0.0;
    int64_t mtp = 0;
    TPW_TRY(tpw_json_real(src->text, "rms_norm_eps", true, src->text_what, &eps, err));
    TPW_TRY(tpw_json_int(src->text, "mtp_num_hidden_layers", false, 0, 1, src->text_what, &mtp, err));
    if (!(eps > 0.0 && eps < 1.0))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"rms_norm_eps\" must be in (0, 1), found %.17g",
                        src->text_what, eps);
    config->rms_eps = (float)eps;
    config->mtp_layers = (int32_t)mtp;
    return TPW_OK;
}

/* layer_types rules; full_attention_interval is only for files without it. */
static tpw_status read_layer_kinds(const sources *src, tpw_config *config, tpw_error *err)
{
    const json_t *types = json_object_get(src->text, "layer_types");
    if (!types || json_is_null(types)) {
        int64_t interval = 4;
        TPW_TRY(tpw_json_int(src->text, "full_attention_interval", false, 1, TPW_LAYERS_MAX, src->text_what, &interval,
                             err));
        for (int32_t i = 0; i < config->layers; i++)
            config->kind[i] = (i + 1) % interval == 0 ? TPW_LAYER_ATTENTION : TPW_LAYER_DELTANET;
        return TPW_OK;
    }
    if (!json_is_array(types) || json_array_size(types) != (size_t)config->layers)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: key \"layer_types\" must be a list of num_hidden_layers = %d entries, found %zu",
                        src->text_what, config->layers, json_array_size(types));
    for (int32_t i = 0; i < config->layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (type && strcmp(type, "linear_attention") == 0)
            config->kind[i] = TPW_LAYER_DELTANET;
        else if (type && strcmp(type, "full_attention") == 0)
            config->kind[i] = TPW_LAYER_ATTENTION;
        else
            return tpw_fail(err, TPW_ERR_CHECKPOINT,
                            "%s: layer_types[%d] must be \"linear_attention\" or \"full_attention\", found \"%.40s\"",
                            src->text_what, i, type ? type : "(not a string)");
    }
    return TPW_OK;
}

/* Two places may hold the same number; both must then hold the same value. */
static tpw_status read_real_twice(const json_t *inner, const char *inner_what, const json_t *outer,
                                  const char *outer_what, const char *key, double *out, bool *found, tpw_error *err)
{
    double a = NAN;
    double b = NAN;
    TPW_TRY(tpw_json_real(inner, key, false, inner_what, &a, err));
    TPW_TRY(tpw_json_real(outer, key, false, outer_what, &b, err));
    if (!isnan(a) && !isnan(b) && a != b)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"%s\" is %.17g, but %.17g in %s: they must agree",
                        outer_what, key, b, a, inner_what);
    *found = !isnan(a) || !isnan(b);
    if (*found)
        *out = isnan(a) ? b : a;
    return TPW_OK;
}

/* Only plain rotary embedding is implemented; a scaled one computes other angles for the same weights. */
static tpw_status check_rope_type(const json_t *rope, const char *what, tpw_error *err)
{
    const char *keys[] = {"rope_type", "type"};
    for (int i = 0; i < 2; i++) {
        const char *type = "default";
        TPW_TRY(tpw_json_string(rope, keys[i], false, what, &type, err));
        if (strcmp(type, "default") != 0)
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: %s \"%.40s\" is not supported; the one that is: \"default\"",
                            what, keys[i], type);
    }
    return TPW_OK;
}

static tpw_status read_rope(const sources *src, tpw_config *config, tpw_error *err)
{
    const char *objects[] = {"rope_scaling", "rope_parameters"};
    const json_t *rope = NULL;
    char what[WHAT_MAX + 32];
    snprintf(what, sizeof what, "%s", src->text_what);
    for (int i = 0; i < 2; i++) {
        const json_t *object = json_object_get(src->text, objects[i]);
        if (!object || json_is_null(object))
            continue;
        snprintf(what, sizeof what, "%s: %s", src->text_what, objects[i]);
        if (!json_is_object(object))
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: must be an object", what);
        TPW_TRY(check_rope_type(object, what, err));
        rope = object;
    }

    bool found = false;
    double factor = 0.25;
    TPW_TRY(read_real_twice(rope, what, src->text, src->text_what, "rope_theta", &config->rope_theta, &found, err));
    if (!found)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: key \"rope_theta\" is missing; it must be a number, here or in rope_parameters",
                        src->text_what);
    TPW_TRY(read_real_twice(rope, what, src->text, src->text_what, "partial_rotary_factor", &factor, &found, err));
    if (!(factor > 0.0 && factor <= 1.0))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"partial_rotary_factor\" must be in (0, 1], found %.17g",
                        src->text_what, factor);
    double rotated = factor * config->head_dim;
    double whole = nearbyint(rotated);
    if (fabs(rotated - whole) > 1e-6)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: partial_rotary_factor %.17g of head_dim %d is not a whole number of dimensions",
                        src->text_what, factor, config->head_dim);
    config->rope_dim = (int32_t)whole;
    return TPW_OK;
}

static tpw_status require_bool(const sources *src, const char *key, bool wanted, tpw_error *err)
{
    bool value = wanted;
    TPW_TRY(tpw_json_bool(src->text, key, false, src->text_what, &value, err));
    if (value != wanted)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"%s\" must be %s: the other form is not supported",
                        src->text_what, key, wanted ? "true" : "false");
    return TPW_OK;
}

/* Keys that choose a variant of the arithmetic: the one form that is implemented, or an error. */
static tpw_status read_variants(const sources *src, tpw_config *config, tpw_error *err)
{
    TPW_TRY(require_bool(src, "attn_output_gate", true, err));
    TPW_TRY(require_bool(src, "attention_bias", false, err));
    TPW_TRY(require_bool(src, "mtp_use_dedicated_embeddings", false, err));

    const char *act = "silu";
    TPW_TRY(tpw_json_string(src->text, "hidden_act", false, src->text_what, &act, err));
    if (strcmp(act, "silu") != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: hidden_act \"%.40s\" is not supported; the one that is: \"silu\"",
                        src->text_what, act);

    const char *gate = "silu";
    TPW_TRY(tpw_json_string(src->text, "output_gate_type", false, src->text_what, &gate, err));
    config->sigmoid_gate = strcmp(gate, "sigmoid") == 0;
    if (!config->sigmoid_gate && strcmp(gate, "silu") != 0 && strcmp(gate, "swish") != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: output_gate_type \"%.40s\" is not supported; those that are: \"silu\", \"swish\", "
                        "\"sigmoid\"",
                        src->text_what, gate);
    return TPW_OK;
}

static tpw_status read_tied(const sources *src, tpw_config *config, tpw_error *err)
{
    bool inner = false;
    TPW_TRY(tpw_json_bool(src->text, "tie_word_embeddings", false, src->text_what, &inner, err));
    bool outer = inner;
    TPW_TRY(tpw_json_bool(src->root, "tie_word_embeddings", false, src->root_what, &outer, err));
    const json_t *found = json_object_get(src->text, "tie_word_embeddings");
    if (found && !json_is_null(found) && inner != outer)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: key \"tie_word_embeddings\" is %s, but %s in text_config: they must agree", src->root_what,
                        outer ? "true" : "false", inner ? "true" : "false");
    config->tied = outer;
    return TPW_OK;
}

static tpw_status check_quantization(const json_t *quant, const char *what, tpw_error *err)
{
    const char *method = NULL;
    const char *format = "e4m3";
    if (!json_is_object(quant))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"quantization_config\" must be an object", what);
    TPW_TRY(tpw_json_string(quant, "quant_method", true, what, &method, err));
    if (strcmp(method, "fp8") != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: quant_method \"%.40s\" is not supported; the one that is: \"fp8\"", what, method);
    TPW_TRY(tpw_json_string(quant, "fmt", false, what, &format, err));
    if (strcmp(format, "e4m3") != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: fp8 fmt \"%.40s\" is not supported; the one that is: \"e4m3\"",
                        what, format);
    const json_t *block = json_object_get(quant, "weight_block_size");
    bool good = json_is_array(block) && json_array_size(block) == 2;
    for (size_t i = 0; good && i < 2; i++) {
        const json_t *side = json_array_get(block, i);
        good = json_is_integer(side) && json_integer_value(side) == 128;
    }
    if (!good)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: weight_block_size must be [128, 128]; other fp8 scalings are not supported", what);
    return TPW_OK;
}

static tpw_status read_quantization(const sources *src, tpw_config *config, tpw_error *err)
{
    const json_t *places[] = {src->root, src->text};
    const char *names[] = {src->root_what, src->text_what};
    for (int i = 0; i < 2; i++) {
        const json_t *quant = json_object_get(places[i], "quantization_config");
        if (!quant || json_is_null(quant))
            continue;
        TPW_TRY(check_quantization(quant, names[i], err));
        config->quantized = true;
    }
    return TPW_OK;
}

static tpw_status add_end_id(const json_t *value, const char *what, tpw_config *config, tpw_error *err)
{
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= config->vocab)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: key \"eos_token_id\" must be a token id, a list of them or null: ids are 0..%d", what,
                        config->vocab - 1);
    for (int32_t i = 0; i < config->end_count; i++) {
        if (config->end_ids[i] == id)
            return TPW_OK;
    }
    if (config->end_count == TPW_END_IDS_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"eos_token_id\" holds more than %d different ids", what,
                        TPW_END_IDS_MAX);
    config->end_ids[config->end_count++] = (int32_t)id;
    return TPW_OK;
}

/* *found says whether the key was there and not null: an empty list is a statement, null is none. */
static tpw_status read_end_ids(const json_t *object, const char *what, tpw_config *config, bool *found, tpw_error *err)
{
    const json_t *value = json_object_get(object, "eos_token_id");
    *found = value && !json_is_null(value);
    if (!*found)
        return TPW_OK;
    config->end_count = 0;
    if (!json_is_array(value))
        return add_end_id(value, what, config, err);
    for (size_t i = 0; i < json_array_size(value); i++)
        TPW_TRY(add_end_id(json_array_get(value, i), what, config, err));
    return TPW_OK;
}

static tpw_status read_generation(const char *folder, const sources *src, tpw_config *config, tpw_error *err)
{
    bool found = false;
    char path[4096 + 32];
    json_t *root = NULL;
    tpw_error local = {0};
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    tpw_status st = tpw_json_load(path, CONFIG_BYTES_MAX, &root, &local);
    if (st != TPW_OK && st != TPW_ERR_MISSING)
        return tpw_fail(err, st, "%s", local.text);
    if (root) {
        st = read_end_ids(root, path, config, &found, err);
        json_decref(root);
        if (st != TPW_OK)
            return st;
    }
    if (!found)
        TPW_TRY(read_end_ids(src->root, src->root_what, config, &found, err));
    if (!found)
        TPW_TRY(read_end_ids(src->text, src->text_what, config, &found, err));
    return TPW_OK;
}

/* Which of the two layouts this is. text_config's own model_type, if present, must be the dense one. */
static tpw_status find_text(sources *src, tpw_config *config, tpw_error *err)
{
    static const char supported[] = "supported are \"qwen3_5\" and \"qwen3_5_text\"";
    const char *type = NULL;
    TPW_TRY(tpw_json_string(src->root, "model_type", true, src->root_what, &type, err));
    bool nested = strcmp(type, "qwen3_5") == 0;
    if (!nested && strcmp(type, "qwen3_5_text") != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: model_type \"%.60s\" is not supported; %s", src->root_what, type,
                        supported);
    snprintf(config->model_type, sizeof config->model_type, "%s", type);
    src->text = src->root;
    if (!nested) {
        src->text_what = src->root_what;
        return TPW_OK;
    }
    src->text = json_object_get(src->root, "text_config");
    if (!json_is_object(src->text))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: model_type \"qwen3_5\" needs the key \"text_config\", an object",
                        src->root_what);
    const char *inner = "qwen3_5_text";
    TPW_TRY(tpw_json_string(src->text, "model_type", false, src->text_what, &inner, err));
    if (strcmp(inner, "qwen3_5_text") != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: model_type \"%.60s\" is not supported; the one that is: \"qwen3_5_text\"", src->text_what,
                        inner);
    return TPW_OK;
}

static tpw_status read_root(const char *folder, sources *src, tpw_config *config, tpw_error *err)
{
    TPW_TRY(find_text(src, config, err));
    TPW_TRY(read_dimensions(src, config, err));
    TPW_TRY(read_layer_kinds(src, config, err));
    TPW_TRY(read_rope(src, config, err));
    TPW_TRY(read_variants(src, config, err));
    TPW_TRY(read_tied(src, config, err));
    TPW_TRY(read_quantization(src, config, err));
    TPW_TRY(read_generation(folder, src, config, err));
    return tpw_config_check(config, src->root_what, err);
}

tpw_status tpw_config_load(const char *folder, tpw_config *out, tpw_error *err)
{
    char path[4096 + 32];
    char root_what[WHAT_MAX];
    char text_what[WHAT_MAX];
    json_t *root = NULL;
    if (!folder || !out || strlen(folder) > 4096)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "config: the folder is NULL or its name is longer than 4096 bytes");
    snprintf(path, sizeof path, "%s/config.json", folder);
    TPW_TRY(tpw_json_load(path, CONFIG_BYTES_MAX, &root, err));
    /* a path too long for a label keeps its end, which tells more */
    size_t length = strlen(path);
    const char *tail = length > WHAT_MAX - 64 ? path + length - (WHAT_MAX - 64) : path;
    snprintf(root_what, sizeof root_what, "%.*s", WHAT_MAX - 20, tail);
    snprintf(text_what, sizeof text_what, "%.*s: text_config", WHAT_MAX - 20, tail);

    tpw_config config;
    memset(&config, 0, sizeof config);
    sources src = {root, NULL, root_what, text_what};
    tpw_status st = read_root(folder, &src, &config, err);
    json_decref(root);
    if (st == TPW_OK)
        *out = config;
    return st;
}

static tpw_status check_range(const char *name, int64_t value, int64_t low, int64_t high, const char *what,
                              tpw_error *err)
{
    if (value >= low && value <= high)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: %s is %lld, outside %lld..%lld", what, name, (long long)value,
                    (long long)low, (long long)high);
}

static tpw_status check_ranges(const tpw_config *c, const char *what, tpw_error *err)
{
    const struct {
        const char *name;
        int64_t value;
        int64_t low;
        int64_t high;
    } wanted[] = {
        {"hidden_size", c->hidden, 1, HIDDEN_MAX},
        {"intermediate_size", c->intermediate, 1, INTERMEDIATE_MAX},
        {"num_hidden_layers", c->layers, 1, TPW_LAYERS_MAX},
        {"num_attention_heads", c->heads, 1, HEADS_MAX},
        {"num_key_value_heads", c->kv_heads, 1, HEADS_MAX},
        {"head_dim", c->head_dim, 2, HEAD_DIM_MAX},
        {"rotary dimensions", c->rope_dim, 2, c->head_dim},
        {"linear_num_key_heads", c->linear_k_heads, 1, HEADS_MAX},
        {"linear_num_value_heads", c->linear_v_heads, 1, HEADS_MAX},
        {"linear_key_head_dim", c->linear_k_dim, 1, HEAD_DIM_MAX},
        {"linear_value_head_dim", c->linear_v_dim, 1, HEAD_DIM_MAX},
        {"linear_conv_kernel_dim", c->conv_width, 2, CONV_WIDTH_MAX},
        {"max_position_embeddings", c->positions_max, 1, POSITIONS_MAX},
        {"vocab_size", c->vocab, 2, VOCAB_MAX},
        {"mtp_num_hidden_layers", c->mtp_layers, 0, 1},
        {"number of end ids", c->end_count, 0, TPW_END_IDS_MAX},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        TPW_TRY(check_range(wanted[i].name, wanted[i].value, wanted[i].low, wanted[i].high, what, err));
    for (int32_t i = 0; i < c->layers; i++)
        TPW_TRY(check_range("layer kind", c->kind[i], TPW_LAYER_DELTANET, TPW_LAYER_ATTENTION, what, err));
    for (int32_t i = 0; i < c->end_count; i++)
        TPW_TRY(check_range("eos_token_id", c->end_ids[i], 0, c->vocab - 1, what, err));
    return TPW_OK;
}

tpw_status tpw_config_check(const tpw_config *config, const char *what, tpw_error *err)
{
    if (!config || !what)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "config: NULL argument");
    if (!memchr(config->model_type, '\0', sizeof config->model_type) ||
        (strcmp(config->model_type, "qwen3_5") != 0 && strcmp(config->model_type, "qwen3_5_text") != 0))
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: model_type \"%.63s\" is not supported; supported are \"qwen3_5\" and \"qwen3_5_text\"",
                        what, config->model_type);
    TPW_TRY(check_ranges(config, what, err));
    if (config->heads % config->kv_heads != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: num_attention_heads %d is not a multiple of num_key_value_heads %d", what, config->heads,
                        config->kv_heads);
    if (config->linear_v_heads % config->linear_k_heads != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: linear_num_value_heads %d is not a multiple of linear_num_key_heads %d", what,
                        config->linear_v_heads, config->linear_k_heads);
    if (config->rope_dim % 2 != 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: %d rotary dimensions; their number must be even", what,
                        config->rope_dim);
    if (!(config->rope_theta >= 1.0 && config->rope_theta <= ROPE_THETA_MAX))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: rope_theta %.17g is outside 1..%g", what, config->rope_theta,
                        ROPE_THETA_MAX);
    if (!(config->rms_eps > 0.0f && config->rms_eps < 1.0f))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: rms_norm_eps %.9g is outside (0, 1)", what,
                        (double)config->rms_eps);
    return TPW_OK;
}

uint64_t tpw_config_digest(const tpw_config *config)
{
    uint64_t theta;
    memcpy(&theta, &config->rope_theta, sizeof theta);
    const uint64_t fields[] = {
        tpw_digest_key(config->model_type),
        (uint64_t)config->hidden,
        (uint64_t)config->intermediate,
        (uint64_t)config->layers,
        (uint64_t)config->heads,
        (uint64_t)config->kv_heads,
        (uint64_t)config->head_dim,
        (uint64_t)config->rope_dim,
        theta,
        (uint64_t)config->linear_k_heads,
        (uint64_t)config->linear_v_heads,
        (uint64_t)config->linear_k_dim,
        (uint64_t)config->linear_v_dim,
        (uint64_t)config->conv_width,
        (uint64_t)config->sigmoid_gate,
        tpw_f32_bits(config->rms_eps),
        (uint64_t)config->positions_max,
        (uint64_t)config->vocab,
        (uint64_t)config->tied,
        (uint64_t)config->mtp_layers,
        (uint64_t)config->quantized,
        (uint64_t)config->end_count,
    };
    /* fields, layer kinds and end ids have index ranges of their own, so that no two of them can trade places */
    uint64_t key = tpw_digest_key("config");
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        sum += tpw_digest_term(key, i, fields[i]);
    for (int32_t i = 0; i < config->layers && i < TPW_LAYERS_MAX; i++)
        sum += tpw_digest_term(key, 1000u + (uint64_t)i, config->kind[i]);
    for (int32_t i = 0; i < config->end_count && i < TPW_END_IDS_MAX; i++)
        sum += tpw_digest_term(key, 4000u + (uint64_t)i, (uint64_t)config->end_ids[i]);
    return sum;
}
