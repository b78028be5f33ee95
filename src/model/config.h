/* Hyper-parameters of the hybrid family, read from a Hugging Face config.json. Knows key names and refusals, no tensors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_CONFIG_H
#define TPW_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define TPW_LAYERS_MAX  1024
#define TPW_END_IDS_MAX 16

typedef enum tpw_layer_kind { TPW_LAYER_DELTANET, TPW_LAYER_ATTENTION } tpw_layer_kind;

typedef struct tpw_config {
    char model_type[64]; /* as found: "qwen3_5" or "qwen3_5_text" */
    int32_t hidden;      /* H */
    int32_t intermediate;
    int32_t layers;
    uint8_t kind[TPW_LAYERS_MAX]; /* tpw_layer_kind */
    int32_t heads;                /* query heads of attention layers */
    int32_t kv_heads;
    int32_t head_dim;
    int32_t rope_dim; /* partial_rotary_factor * head_dim, even */
    double rope_theta;
    int32_t linear_k_heads;
    int32_t linear_v_heads;
    int32_t linear_k_dim;
    int32_t linear_v_dim;
    int32_t conv_width;
    bool sigmoid_gate; /* output_gate_type "sigmoid"; absent, "silu" and "swish" are silu */
    float rms_eps;
    int32_t positions_max;
    int32_t vocab;
    bool tied;
    int32_t mtp_layers; /* mtp_num_hidden_layers; whether MTP exists is decided by the tensors */
    bool quantized;     /* quantization_config present: fp8, e4m3, 128x128 blocks */
    int32_t end_ids[TPW_END_IDS_MAX];
    int32_t end_count;
} tpw_config;

/* Reads `folder`/config.json (nested text_config or flat) and generation_config.json if it is there (its end tokens, a number
 * or a list, win over config.json's). Local. ERR_MISSING names the file; ERR_CHECKPOINT names the key, or the model_type that is
 * not supported and those that are. Every dimension is range-checked and the cross-checks of the family are made
 * (head counts divide, even rope_dim, layer_types length, hidden_act silu, no attention bias, 128x128 blocks ...). */
tpw_status tpw_config_load(const char *folder, tpw_config *out, tpw_error *err) TPW_MUST_CHECK;

/* The published geometry "qwen3.5-0.8b" | "-4b" | "-9b" | "-27b" with its layer count and vocabulary replaced when > 0. FP8 blocks, one
 * MTP layer. ERR_ARGUMENT lists the names. */
tpw_status tpw_config_dummy(const char *name, int32_t layers, int32_t vocab, tpw_config *out,
                            tpw_error *err) TPW_MUST_CHECK;

/* Checks one config whatever its origin (called by both of the above). Local, pure. */
tpw_status tpw_config_check(const tpw_config *config, const char *what, tpw_error *err) TPW_MUST_CHECK;

/* 64-bit digest over every field, to compare ranks. Pure. */
uint64_t tpw_config_digest(const tpw_config *config);

#endif
