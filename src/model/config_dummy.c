/* The published geometries of the family, for runs with weights from a hash instead of a file.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/config.h"

#define VOCAB_PUBLISHED     248320
#define POSITIONS_PUBLISHED 262144
#define ATTENTION_INTERVAL  4 /* every fourth layer is attention */

typedef struct geometry {
    const char *name;
    int32_t hidden;
    int32_t intermediate;
    int32_t layers;
    int32_t linear_v_heads;
    int32_t heads;
    int32_t kv_heads;
    bool tied;
} geometry;

static const geometry geometries[] = {
    {"qwen3.5-0.8b", 1024, 3584, 24, 16, 8, 2, true},
    {"qwen3.5-4b", 2560, 9216, 32, 32, 16, 4, true},
    {"qwen3.5-9b", 4096, 12288, 32, 32, 16, 4, false},
    {"qwen3.5-27b", 5120, 17408, 64, 48, 24, 4, false},
};

static const geometry *find(const char *name)
{
    for (size_t i = 0; i < sizeof geometries / sizeof geometries[0]; i++) {
        if (strcmp(geometries[i].name, name) == 0)
            return &geometries[i];
    }
    return NULL;
}

tpw_status tpw_config_dummy(const char *name, int32_t layers, int32_t vocab, tpw_config *out, tpw_error *err)
{
    const geometry *g = name ? find(name) : NULL;
    if (!g || !out)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "dummy model \"%.60s\" is not known; known are qwen3.5-0.8b, qwen3.5-4b, qwen3.5-9b, "
                        "qwen3.5-27b",
                        name ? name : "(null)");
    if (layers > TPW_LAYERS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "dummy model %s: %d layers, at most %d are possible", name, layers,
                        TPW_LAYERS_MAX);

    tpw_config config;
    memset(&config, 0, sizeof config);
    memcpy(config.model_type, "qwen3_5", sizeof "qwen3_5");
    config.hidden = g->hidden;
    config.intermediate = g->intermediate;
    config.layers = layers > 0 ? layers : g->layers;
    for (int32_t i = 0; i < config.layers; i++)
        config.kind[i] = (i + 1) % ATTENTION_INTERVAL == 0 ? TPW_LAYER_ATTENTION : TPW_LAYER_DELTANET;
    config.heads = g->heads;
    config.kv_heads = g->kv_heads;
    config.head_dim = 256;
    config.rope_dim = 64;
    config.rope_theta = 1e7;
    config.linear_k_heads = 16;
    config.linear_v_heads = g->linear_v_heads;
    config.linear_k_dim = 128;
    config.linear_v_dim = 128;
    config.conv_width = 4;
    config.rms_eps = 1e-6f;
    config.positions_max = POSITIONS_PUBLISHED;
    config.vocab = vocab > 0 ? vocab : VOCAB_PUBLISHED;
    config.tied = g->tied;
    config.mtp_layers = 1;
    config.quantized = true;

    tpw_error local = {0};
    if (tpw_config_check(&config, name, &local) != TPW_OK)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "dummy model %s", local.text);
    *out = config;
    return TPW_OK;
}
