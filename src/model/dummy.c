/* Makes the tensors of a dummy checkpoint from an integer hash of name and index.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/dummy.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/digest.h"

#define NAME_MAX_BYTES 96 /* the longest name made here has 73 */
#define LAYER_TENSORS  24 /* the most that one layer has, scales included: 20 */
#define OTHER_TENSORS  40 /* outside the layers, the MTP layer included */

/* What a tensor is for; kept in tpw_entry.source. */
typedef enum role {
    ROLE_E4M3,
    ROLE_SCALE,
    ROLE_PROJECTION,
    ROLE_EMBED,
    ROLE_NORM,
    ROLE_LINEAR_NORM,
    ROLE_CONV,
    ROLE_A_LOG,
    ROLE_DT_BIAS
} role;

typedef struct builder {
    tpw_entry *entries;
    char *names;
    int32_t count;
    int32_t capacity;
    bool quantized;
    bool good; /* false once a size overflowed or a table was too small */
} builder;

static void TPW_PRINTF(6, 7)
    add(builder *b, role what, tpw_stored stored, int64_t rows, int64_t cols, const char *format, ...)
{
    if (b->count == b->capacity) {
        b->good = false;
        return;
    }
    tpw_entry *entry = &b->entries[b->count];
    char *name = b->names + (size_t)b->count * NAME_MAX_BYTES;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(name, NAME_MAX_BYTES, format, args);
    va_end(args);
    entry->name = name;
    entry->stored = stored;
    entry->source = (int32_t)what;
    entry->dims = cols > 0 ? 2 : 1;
    entry->shape[0] = rows;
    entry->shape[1] = cols;
    if (what == ROLE_CONV) {
        entry->dims = 3;
        entry->shape[1] = 1;
        entry->shape[2] = cols;
    }
    if (length < 0 || length >= NAME_MAX_BYTES || !tpw_entry_measure(entry))
        b->good = false;
    b->count++;
}

/* A weight that an FP8 checkpoint quantizes, with its scales. */
static void add_projection(builder *b, const char *prefix, const char *name, int64_t rows, int64_t cols)
{
    if (!b->quantized) {
        add(b, ROLE_PROJECTION, TPW_STORED_BF16, rows, cols, "%s%s.weight", prefix, name);
        return;
    }
    add(b, ROLE_E4M3, TPW_STORED_F8_E4M3, rows, cols, "%s%s.weight", prefix, name);
    add(b, ROLE_SCALE, TPW_STORED_BF16, (rows + 127) / 128, (cols + 127) / 128, "%s%s.weight_scale_inv", prefix, name);
}

static void add_norm(builder *b, const char *prefix, const char *name, int64_t size)
{
    add(b, ROLE_NORM, TPW_STORED_BF16, size, 0, "%s%s.weight", prefix, name);
}

static void add_attention(builder *b, const tpw_config *c, const char *prefix)
{
    int64_t head = c->head_dim;
    add_projection(b, prefix, "self_attn.q_proj", c->heads * 2 * head, c->hidden);
    add_projection(b, prefix, "self_attn.k_proj", c->kv_heads * head, c->hidden);
    add_projection(b, prefix, "self_attn.v_proj", c->kv_heads * head, c->hidden);
    add_projection(b, prefix, "self_attn.o_proj", c->hidden, c->heads * head);
    add_norm(b, prefix, "self_attn.q_norm", head);
    add_norm(b, prefix, "self_attn.k_norm", head);
}

static void add_deltanet(builder *b, const tpw_config *c, const char *prefix)
{
    int64_t key_width = (int64_t)c->linear_k_heads * c->linear_k_dim;
    int64_t value_width = (int64_t)c->linear_v_heads * c->linear_v_dim;
    int64_t channels = 2 * key_width + value_width;
    int64_t heads = c->linear_v_heads;
    add_projection(b, prefix, "linear_attn.in_proj_qkv", channels, c->hidden);
    add_projection(b, prefix, "linear_attn.in_proj_z", value_width, c->hidden);
    add_projection(b, prefix, "linear_attn.out_proj", c->hidden, value_width);
    add(b, ROLE_PROJECTION, TPW_STORED_BF16, heads, c->hidden, "%slinear_attn.in_proj_a.weight", prefix);
    add(b, ROLE_PROJECTION, TPW_STORED_BF16, heads, c->hidden, "%slinear_attn.in_proj_b.weight", prefix);
    add(b, ROLE_CONV, TPW_STORED_BF16, channels, c->conv_width, "%slinear_attn.conv1d.weight", prefix);
    add(b, ROLE_A_LOG, TPW_STORED_F32, heads, 0, "%slinear_attn.A_log", prefix);
    add(b, ROLE_DT_BIAS, TPW_STORED_BF16, heads, 0, "%slinear_attn.dt_bias", prefix);
    add(b, ROLE_LINEAR_NORM, TPW_STORED_F32, c->linear_v_dim, 0, "%slinear_attn.norm.weight", prefix);
}

static void add_layer(builder *b, const tpw_config *c, const char *prefix, tpw_layer_kind kind)
{
    add_norm(b, prefix, "input_layernorm", c->hidden);
    add_norm(b, prefix, "post_attention_layernorm", c->hidden);
    if (kind == TPW_LAYER_ATTENTION)
        add_attention(b, c, prefix);
    else
        add_deltanet(b, c, prefix);
    add_projection(b, prefix, "mlp.gate_proj", c->intermediate, c->hidden);
    add_projection(b, prefix, "mlp.up_proj", c->intermediate, c->hidden);
    add_projection(b, prefix, "mlp.down_proj", c->hidden, c->intermediate);
}

static void add_all(builder *b, const tpw_config *c)
{
    char prefix[64];
    add(b, ROLE_EMBED, TPW_STORED_BF16, c->vocab, c->hidden, "model.language_model.embed_tokens.weight");
    for (int32_t i = 0; i < c->layers; i++) {
        snprintf(prefix, sizeof prefix, "model.language_model.layers.%d.", i);
        add_layer(b, c, prefix, (tpw_layer_kind)c->kind[i]);
    }
    add_norm(b, "model.language_model.", "norm", c->hidden);
    if (!c->tied)
        add(b, ROLE_EMBED, TPW_STORED_BF16, c->vocab, c->hidden, "lm_head.weight");
    if (c->mtp_layers == 0)
        return;
    add_norm(b, "mtp.", "pre_fc_norm_embedding", c->hidden);
    add_norm(b, "mtp.", "pre_fc_norm_hidden", c->hidden);
    add(b, ROLE_PROJECTION, TPW_STORED_BF16, c->hidden, 2 * (int64_t)c->hidden, "mtp.fc.weight");
    add_layer(b, c, "mtp.layers.0.", TPW_LAYER_ATTENTION);
    add_norm(b, "mtp.", "norm", c->hidden);
}

tpw_status tpw_dummy_entries(const tpw_config *config, tpw_entry **entries, char **names, int32_t *count,
                             tpw_error *err)
{
    TPW_TRY(tpw_config_check(config, "dummy checkpoint", err));
    builder b = {
        .capacity = config->layers * LAYER_TENSORS + OTHER_TENSORS, .quantized = config->quantized, .good = true};
    b.entries = calloc((size_t)b.capacity, sizeof b.entries[0]);
    b.names = calloc((size_t)b.capacity, NAME_MAX_BYTES);
    if (b.entries && b.names)
        add_all(&b, config);
    if (!b.entries || !b.names || !b.good) {
        bool memory = !b.entries || !b.names;
        free(b.entries);
        free(b.names);
        return tpw_fail(err, memory ? TPW_ERR_MEMORY : TPW_ERR_INTERNAL, "dummy checkpoint: %s",
                        memory ? "no memory for its table of tensors" : "its table of tensors is too small");
    }
    *entries = b.entries;
    *names = b.names;
    *count = b.count;
    return TPW_OK;
}

/* Largest r with r * r <= x. */
static uint64_t root_floor(uint64_t x)
{
    uint64_t r = 0;
    for (uint64_t bit = (uint64_t)1 << 31; bit > 0; bit >>= 1) {
        if ((r + bit) * (r + bit) <= x)
            r += bit;
    }
    return r;
}

/* N and m of dummy.h: N * 2^-m approximates sqrt(3 / divisor) with N >= 128. divisor < 2^40. */
static int32_t amplitude(uint64_t divisor, int32_t *exponent)
{
    int32_t m = 0;
    uint64_t n = root_floor(3u / divisor);
    while (n < 128) {
        m++;
        n = root_floor(((uint64_t)3 << (2 * m)) / divisor);
    }
    *exponent = -m;
    return (int32_t)n;
}

tpw_dummy_recipe tpw_dummy_recipe_of(const tpw_entry *entry)
{
    static const struct {
        int32_t low;
        uint32_t span;
        int32_t exponent;
    } fixed[] = {
        [ROLE_EMBED] = {-128, 257, -11}, [ROLE_NORM] = {-64, 129, -8},     [ROLE_LINEAR_NORM] = {786432, 524288, -20},
        [ROLE_CONV] = {-128, 257, -8},   [ROLE_A_LOG] = {0, 2883584, -20}, [ROLE_DT_BIAS] = {-128, 161, -5},
    };
    tpw_dummy_recipe r = {
        .key = tpw_digest_key(entry->name), .cols = entry->cols, .dtype = tpw_stored_dtype(entry->stored)};
    switch ((role)entry->source) {
    case ROLE_E4M3:
        break;
    case ROLE_SCALE:
        r.low = amplitude(5u * 128u * (uint64_t)entry->cols, &r.exponent);
        r.span = (uint32_t)r.low;
        break;
    case ROLE_PROJECTION:
        r.low = -amplitude((uint64_t)entry->cols, &r.exponent);
        r.span = (uint32_t)(1 - 2 * r.low);
        break;
    default:
        r.low = fixed[entry->source].low;
        r.span = fixed[entry->source].span;
        r.exponent = fixed[entry->source].exponent;
        break;
    }
    return r;
}

/* The loops keep key + i * STEP by addition. */
static void fill_e4m3(uint64_t place, int64_t n, uint8_t *to)
{
    for (int64_t i = 0; i < n; i++, place += TPW_DIGEST_STEP)
        to[i] = tpw_dummy_e4m3(tpw_digest_fin(place));
}

static void fill_bf16(uint64_t place, int64_t n, const tpw_dummy_recipe *r, float unit, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++, place += TPW_DIGEST_STEP)
        to[i] = tpw_bf16_from_f32(tpw_dummy_value(r, tpw_digest_fin(place), unit));
}

static void fill_f32(uint64_t place, int64_t n, const tpw_dummy_recipe *r, float unit, float *to)
{
    for (int64_t i = 0; i < n; i++, place += TPW_DIGEST_STEP)
        to[i] = tpw_dummy_value(r, tpw_digest_fin(place), unit);
}

void tpw_dummy_fill(const tpw_dummy_recipe *recipe, int64_t row0, int64_t rows, int64_t col0, int64_t cols, void *out,
                    int64_t out_stride)
{
    const float unit = tpw_dummy_unit(recipe);
    for (int64_t r = 0; r < rows; r++) {
        uint64_t place = tpw_dummy_place(recipe, row0 + r, col0);
        if (recipe->dtype == TPW_E4M3)
            fill_e4m3(place, cols, (uint8_t *)out + r * out_stride);
        else if (recipe->dtype == TPW_BF16)
            fill_bf16(place, cols, recipe, unit, (uint16_t *)out + r * out_stride);
        else
            fill_f32(place, cols, recipe, unit, (float *)out + r * out_stride);
    }
}
