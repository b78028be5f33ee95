/* Tests of dummy checkpoints: shapes, known bytes, blocks, value ranges. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"
#include "model/dummy.h"

#define LAYERS "model.language_model.layers."

static tpw_checkpoint *open_dummy(const char *name, int layers, int vocab)
{
    tpw_config config;
    tpw_checkpoint *checkpoint = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_config_dummy(name, layers, vocab, &config, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_checkpoint_open_dummy(&config, &checkpoint, &err), TPW_OK, "%s", err.text);
    return checkpoint;
}

static tpw_tensor_info find(const tpw_checkpoint *checkpoint, const char *name)
{
    tpw_tensor_info info;
    cr_assert(tpw_checkpoint_find(checkpoint, name, &info), "%s not found", name);
    return info;
}

static int64_t bytes_under(const tpw_checkpoint *c, const char *prefix, int *count)
{
    int64_t sum = 0;
    *count = 0;
    for (int32_t i = 0; i < tpw_checkpoint_count(c); i++) {
        tpw_tensor_info t;
        cr_assert_eq(tpw_checkpoint_get(c, i, &t, NULL), TPW_OK);
        if (strncmp(t.name, prefix, strlen(prefix)) != 0)
            continue;
        sum += t.rows * t.cols * (int64_t)tpw_dtype_size(t.dtype);
        (*count)++;
    }
    return sum;
}

/* The sums of an audit of the published 27B files; A_log and norm are F32 here, BF16 there: 352 bytes a linear layer more. */
Test(dummy, has_the_bytes_of_the_published_27b)
{
    int count;
    tpw_checkpoint *c = open_dummy("qwen3.5-27b", 0, 0);
    cr_assert_eq(bytes_under(c, "", &count), 29945203072 + 48 * 352);
    cr_assert_eq(bytes_under(c, "mtp.", &count), 477199744);
    cr_assert_eq(count, 22, "4 outside the layer, 4 norms, 7 weights, 7 scales");
    cr_assert_eq(bytes_under(c, LAYERS "0.", &count), 383862848 + 352);
    cr_assert_eq(count, 20);
    cr_assert_eq(bytes_under(c, LAYERS "63.", &count), 372311424);
    cr_assert_eq(count, 18);
    cr_assert_eq(bytes_under(c, "lm_head.weight", &count), 2542796800);
    cr_assert_eq(tpw_checkpoint_count(c), 48 * 20 + 16 * 18 + 3 + 22);
    cr_assert_str_eq(tpw_checkpoint_path(c), "dummy");
    tpw_checkpoint_close(c);
}

Test(dummy, shapes_and_dtypes)
{
    static const struct {
        const char *name;
        tpw_dtype dtype;
        int dims;
        int64_t shape[3];
    } known[] = {
        {"model.language_model.embed_tokens.weight", TPW_BF16, 2, {4096, 5120, 0}},
        {"lm_head.weight", TPW_BF16, 2, {4096, 5120, 0}},
        {"model.language_model.norm.weight", TPW_BF16, 1, {5120, 0, 0}},
        {LAYERS "0.input_layernorm.weight", TPW_BF16, 1, {5120, 0, 0}},
        {LAYERS "3.post_attention_layernorm.weight", TPW_BF16, 1, {5120, 0, 0}},
        {LAYERS "0.linear_attn.in_proj_qkv.weight", TPW_E4M3, 2, {10240, 5120, 0}},
        {LAYERS "0.linear_attn.in_proj_qkv.weight_scale_inv", TPW_BF16, 2, {80, 40, 0}},
        {LAYERS "0.linear_attn.in_proj_z.weight", TPW_E4M3, 2, {6144, 5120, 0}},
        {LAYERS "0.linear_attn.in_proj_z.weight_scale_inv", TPW_BF16, 2, {48, 40, 0}},
        {LAYERS "0.linear_attn.in_proj_a.weight", TPW_BF16, 2, {48, 5120, 0}},
        {LAYERS "0.linear_attn.in_proj_b.weight", TPW_BF16, 2, {48, 5120, 0}},
        {LAYERS "0.linear_attn.conv1d.weight", TPW_BF16, 3, {10240, 1, 4}},
        {LAYERS "0.linear_attn.A_log", TPW_F32, 1, {48, 0, 0}},
        {LAYERS "0.linear_attn.dt_bias", TPW_BF16, 1, {48, 0, 0}},
        {LAYERS "0.linear_attn.norm.weight", TPW_F32, 1, {128, 0, 0}},
        {LAYERS "0.linear_attn.out_proj.weight", TPW_E4M3, 2, {5120, 6144, 0}},
        {LAYERS "3.self_attn.q_proj.weight", TPW_E4M3, 2, {12288, 5120, 0}},
        {LAYERS "3.self_attn.q_proj.weight_scale_inv", TPW_BF16, 2, {96, 40, 0}},
        {LAYERS "3.self_attn.k_proj.weight", TPW_E4M3, 2, {1024, 5120, 0}},
        {LAYERS "3.self_attn.v_proj.weight_scale_inv", TPW_BF16, 2, {8, 40, 0}},
        {LAYERS "3.self_attn.o_proj.weight", TPW_E4M3, 2, {5120, 6144, 0}},
        {LAYERS "3.self_attn.q_norm.weight", TPW_BF16, 1, {256, 0, 0}},
        {LAYERS "3.self_attn.k_norm.weight", TPW_BF16, 1, {256, 0, 0}},
        {LAYERS "3.mlp.gate_proj.weight", TPW_E4M3, 2, {17408, 5120, 0}},
        {LAYERS "3.mlp.up_proj.weight_scale_inv", TPW_BF16, 2, {136, 40, 0}},
        {LAYERS "3.mlp.down_proj.weight", TPW_E4M3, 2, {5120, 17408, 0}},
        {LAYERS "3.mlp.down_proj.weight_scale_inv", TPW_BF16, 2, {40, 136, 0}},
        {"mtp.fc.weight", TPW_BF16, 2, {5120, 10240, 0}},
        {"mtp.pre_fc_norm_embedding.weight", TPW_BF16, 1, {5120, 0, 0}},
        {"mtp.pre_fc_norm_hidden.weight", TPW_BF16, 1, {5120, 0, 0}},
        {"mtp.norm.weight", TPW_BF16, 1, {5120, 0, 0}},
        {"mtp.layers.0.self_attn.q_proj.weight", TPW_E4M3, 2, {12288, 5120, 0}},
        {"mtp.layers.0.mlp.down_proj.weight_scale_inv", TPW_BF16, 2, {40, 136, 0}},
    };
    tpw_checkpoint *c = open_dummy("qwen3.5-27b", 4, 4096);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        tpw_tensor_info t = find(c, known[i].name);
        cr_assert(t.dtype == known[i].dtype && t.dims == known[i].dims, "%s", t.name);
        for (int d = 0; d < t.dims; d++)
            cr_assert_eq(t.shape[d], known[i].shape[d], "%s", t.name);
    }
    tpw_tensor_info t;
    cr_assert(!tpw_checkpoint_find(c, LAYERS "3.linear_attn.A_log", &t));
    cr_assert(!tpw_checkpoint_find(c, LAYERS "0.self_attn.q_proj.weight", &t));
    cr_assert(!tpw_checkpoint_find(c, LAYERS "4.input_layernorm.weight", &t));
    tpw_checkpoint_close(c);
}

Test(dummy, follows_the_config)
{
    tpw_tensor_info t;
    tpw_config config;
    tpw_checkpoint *c = open_dummy("qwen3.5-0.8b", 1, 1000);
    cr_assert(!tpw_checkpoint_find(c, "lm_head.weight", &t), "tied");
    tpw_checkpoint_close(c);

    cr_assert_eq(tpw_config_dummy("qwen3.5-0.8b", 4, 1000, &config, NULL), TPW_OK);
    config.hidden = 1000; /* not a multiple of a block */
    config.mtp_layers = 0;
    cr_assert_eq(tpw_checkpoint_open_dummy(&config, &c, NULL), TPW_OK);
    t = find(c, LAYERS "0.mlp.down_proj.weight_scale_inv");
    cr_assert(t.rows == 8 && t.cols == 28);
    t = find(c, LAYERS "0.mlp.up_proj.weight_scale_inv");
    cr_assert(t.rows == 28 && t.cols == 8);
    cr_assert(!tpw_checkpoint_find(c, "mtp.fc.weight", &t));
    tpw_checkpoint_close(c);

    config.quantized = false;
    cr_assert_eq(tpw_checkpoint_open_dummy(&config, &c, NULL), TPW_OK);
    cr_assert_eq(find(c, LAYERS "0.mlp.up_proj.weight").dtype, TPW_BF16);
    cr_assert(!tpw_checkpoint_find(c, LAYERS "0.mlp.up_proj.weight_scale_inv", &t));
    tpw_checkpoint_close(c);

    config.kv_heads = 3;
    cr_assert_eq(tpw_checkpoint_open_dummy(&config, &c, NULL), TPW_ERR_CHECKPOINT);
    cr_assert_eq(tpw_checkpoint_open_dummy(NULL, &c, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_config_dummy("qwen3.5-0.8b", TPW_LAYERS_MAX, 1000, &config, NULL), TPW_OK);
    cr_assert_eq(tpw_checkpoint_open_dummy(&config, &c, NULL), TPW_OK, "the largest number of layers fits");
    cr_assert_eq(tpw_checkpoint_count(c), 768 * 20 + 256 * 18 + 2 + 22);
    tpw_checkpoint_close(c);
}

static uint32_t element(tpw_checkpoint *c, const char *name, int64_t row, int64_t col)
{
    unsigned char raw[4] = {0, 0, 0, 0};
    tpw_tensor_info t = find(c, name);
    cr_assert_eq(tpw_checkpoint_read(c, &t, row, 1, col, 1, raw, 1, NULL), TPW_OK, "%s", name);
    return raw[0] | (uint32_t)raw[1] << 8 | (uint32_t)raw[2] << 16 | (uint32_t)raw[3] << 24;
}

/* Values from a separate program written from the recipe in dummy.h, in arbitrary-precision integers. */
Test(dummy, known_bytes)
{
    static const struct {
        const char *name;
        int64_t row;
        int64_t col;
        uint32_t bits;
    } known[] = {
        {LAYERS "0.mlp.down_proj.weight", 0, 0, 0xAE},
        {LAYERS "0.mlp.down_proj.weight", 0, 1, 0x3A},
        {LAYERS "0.mlp.down_proj.weight", 0, 2, 0xB8},
        {LAYERS "0.mlp.down_proj.weight", 0, 17407, 0xB2},
        {LAYERS "0.mlp.down_proj.weight", 1, 0, 0xA3},
        {LAYERS "0.mlp.down_proj.weight", 5119, 17407, 0xAB},
        {LAYERS "0.mlp.down_proj.weight_scale_inv", 0, 0, 0x3C0C},
        {LAYERS "0.mlp.down_proj.weight_scale_inv", 0, 1, 0x3C14},
        {LAYERS "0.mlp.down_proj.weight_scale_inv", 0, 2, 0x3BC7},
        {LAYERS "0.mlp.down_proj.weight_scale_inv", 39, 135, 0x3C06},
        {LAYERS "0.linear_attn.in_proj_a.weight", 0, 0, 0xBC44},
        {LAYERS "0.linear_attn.in_proj_a.weight", 0, 2, 0xBB80},
        {LAYERS "0.linear_attn.in_proj_a.weight", 47, 5119, 0xBC12},
        {"mtp.fc.weight", 0, 0, 0xBC4E},
        {"mtp.fc.weight", 5119, 10239, 0xBC40},
        {"model.language_model.embed_tokens.weight", 0, 0, 0xBCD0},
        {"model.language_model.embed_tokens.weight", 100, 7, 0x3A00},
        {"lm_head.weight", 0, 1, 0x3BB0},
        {"lm_head.weight", 100, 7, 0x3CF0},
        {"model.language_model.norm.weight", 1, 0, 0xBE18},
        {"model.language_model.norm.weight", 5119, 0, 0xBC00},
        {LAYERS "3.self_attn.q_norm.weight", 255, 0, 0xBC40},
        {LAYERS "0.linear_attn.conv1d.weight", 0, 0, 0xBDD8},
        {LAYERS "0.linear_attn.conv1d.weight", 10239, 3, 0xBDF8},
        {LAYERS "0.linear_attn.dt_bias", 0, 0, 0xC048},
        {LAYERS "0.linear_attn.dt_bias", 47, 0, 0xBFFC},
        {LAYERS "0.linear_attn.A_log", 0, 0, 0x402432A0},
        {LAYERS "0.linear_attn.A_log", 47, 0, 0x3FA21768},
        {LAYERS "0.linear_attn.norm.weight", 0, 0, 0x3F426A70},
        {LAYERS "0.linear_attn.norm.weight", 127, 0, 0x3F868218},
    };
    tpw_checkpoint *c = open_dummy("qwen3.5-27b", 4, 4096);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t bits = element(c, known[i].name, known[i].row, known[i].col);
        cr_assert_eq(bits, known[i].bits, "%s[%lld, %lld]: 0x%X, not 0x%X", known[i].name, (long long)known[i].row,
                     (long long)known[i].col, bits, known[i].bits);
    }
    tpw_checkpoint_close(c);
}

Test(dummy, any_cut_gives_the_same_bytes)
{
    tpw_checkpoint *c = open_dummy("qwen3.5-0.8b", 4, 500);
    int tensors = 0;
    for (int32_t i = 0; i < tpw_checkpoint_count(c); i++) {
        tpw_tensor_info t;
        cr_assert_eq(tpw_checkpoint_get(c, i, &t, NULL), TPW_OK);
        if (strstr(t.name, LAYERS "1.") || strstr(t.name, LAYERS "2.") || strstr(t.name, "mtp.layers"))
            continue;                             /* shapes seen elsewhere */
        int64_t rows = t.rows < 40 ? t.rows : 40; /* a band of rows that starts in the middle */
        int64_t row0 = (t.rows - rows) / 2;
        size_t size = tpw_dtype_size(t.dtype);
        size_t bytes = (size_t)(rows * t.cols) * size;
        char *whole = malloc(bytes);
        char *parts = malloc(bytes);
        cr_assert_eq(tpw_checkpoint_read(c, &t, row0, rows, 0, t.cols, whole, t.cols, NULL), TPW_OK);
        for (int n = 1; n <= 8; n *= 2) {
            for (int by_rows = 0; by_rows < 2; by_rows++) {
                memset(parts, 0xEE, bytes);
                for (int rank = 0; rank < n; rank++) {
                    int64_t total = by_rows ? rows : t.cols;
                    int64_t begin = total * rank / n;
                    int64_t count = total * (rank + 1) / n - begin;
                    char *to = parts + (size_t)(by_rows ? begin * t.cols : begin) * size;
                    tpw_status st = by_rows
                                        ? tpw_checkpoint_read(c, &t, row0 + begin, count, 0, t.cols, to, t.cols, NULL)
                                        : tpw_checkpoint_read(c, &t, row0, rows, begin, count, to, t.cols, NULL);
                    cr_assert_eq(st, TPW_OK);
                }
                cr_assert_eq(memcmp(parts, whole, bytes), 0, "%s in %d parts by %s", t.name, n,
                             by_rows ? "rows" : "columns");
            }
        }
        free(parts);
        free(whole);
        tensors++;
    }
    cr_assert_gt(tensors, 40);
    tpw_checkpoint_close(c);
}

typedef struct moments {
    double low;
    double high;
    double mean;
    double square;
} moments;

static moments measure(tpw_checkpoint *c, const char *name, int64_t rows)
{
    tpw_tensor_info t = find(c, name);
    rows = rows < t.rows ? rows : t.rows;
    float *x = malloc((size_t)(rows * t.cols) * sizeof *x);
    cr_assert_eq(tpw_checkpoint_read_f32(c, &t, 0, rows, 0, t.cols, x, t.cols, NULL), TPW_OK);
    moments m = {x[0], x[0], 0, 0};
    for (int64_t i = 0; i < rows * t.cols; i++) {
        m.low = x[i] < m.low ? x[i] : m.low;
        m.high = x[i] > m.high ? x[i] : m.high;
        m.mean += x[i];
        m.square += (double)x[i] * x[i];
    }
    m.mean /= (double)(rows * t.cols);
    m.square /= (double)(rows * t.cols);
    free(x);
    return m;
}

/* A projection of a vector of mean square 1 must have mean square near 1: mean square of the weight times K. */
Test(dummy, projections_keep_the_size_of_a_vector)
{
    static const struct {
        const char *model;
        int64_t hidden;
        int64_t inter;
    } models[] = {{"qwen3.5-0.8b", 1024, 3584},
                  {"qwen3.5-4b", 2560, 9216},
                  {"qwen3.5-9b", 4096, 12288},
                  {"qwen3.5-27b", 5120, 17408}};
    for (int i = 0; i < 4; i++) {
        tpw_checkpoint *c = open_dummy(models[i].model, 4, 512);
        const char *const names[] = {LAYERS "0.linear_attn.in_proj_qkv.weight", LAYERS "3.mlp.down_proj.weight"};
        for (int n = 0; n < 2; n++) {
            char scale[100];
            double k = (double)(n ? models[i].inter : models[i].hidden);
            snprintf(scale, sizeof scale, "%s_scale_inv", names[n]);
            moments w = measure(c, names[n], 20);
            moments s = measure(c, scale, 1000);
            double gain = w.square * s.square * k;
            cr_assert(gain > 0.85 && gain < 1.15, "%s %s: %f", models[i].model, names[n], gain);
            cr_assert(fabs(w.mean) < 0.02 && w.low == -1.875 && w.high == 1.875, "%f", w.mean);
            cr_assert(s.low > 0 && s.high < 2.1 * s.low && s.high > 1.8 * s.low, "%g..%g", s.low, s.high);
        }
        moments a = measure(c, LAYERS "0.linear_attn.in_proj_a.weight", 20);
        moments fc = measure(c, "mtp.fc.weight", 20);
        cr_assert(fabs(a.square * (double)models[i].hidden - 1) < 0.1, "%f", a.square * (double)models[i].hidden);
        cr_assert(fabs(fc.square * 2 * (double)models[i].hidden - 1) < 0.1);
        cr_assert(fabs(a.mean) < 0.05 * a.high && fabs(fc.mean) < 0.05 * fc.high);
        tpw_checkpoint_close(c);
    }
}

Test(dummy, value_ranges)
{
    static const struct {
        const char *name;
        double low, high, mean;
    } known[] = {
        {"model.language_model.embed_tokens.weight", -0.0625, 0.0625, 0},
        {"lm_head.weight", -0.0625, 0.0625, 0},
        {"model.language_model.norm.weight", -0.25, 0.25, 0},
        {LAYERS "0.input_layernorm.weight", -0.25, 0.25, 0},
        {LAYERS "0.linear_attn.conv1d.weight", -0.5, 0.5, 0},
    };
    tpw_checkpoint *c = open_dummy("qwen3.5-27b", 4, 512);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        moments m = measure(c, known[i].name, 6000);
        cr_assert(m.low == known[i].low && m.high == known[i].high, "%s: %g..%g", known[i].name, m.low, m.high);
        cr_assert(fabs(m.mean) < 0.02 * known[i].high, "%s: mean %g", known[i].name, m.mean);
    }
    moments a = measure(c, LAYERS "0.linear_attn.A_log", 48);
    cr_assert(a.low >= 0 && a.low < 0.3 && a.high > 2.4 && a.high < 2.75, "%g..%g", a.low, a.high);
    moments d = measure(c, LAYERS "0.linear_attn.dt_bias", 48);
    cr_assert(d.low >= -4 && d.low < -3.5 && d.high > 0.5 && d.high <= 1, "%g..%g", d.low, d.high);
    moments n = measure(c, LAYERS "0.linear_attn.norm.weight", 128);
    cr_assert(n.low >= 0.75 && n.high < 1.25 && fabs(n.mean - 1) < 0.05, "%g..%g", n.low, n.high);
    tpw_checkpoint_close(c);
}

/* Every finite kind of code: normal, subnormal and both zeros; no NaN; both signs and all mantissas alike. */
Test(dummy, e4m3_codes)
{
    enum { ROWS = 512, COLS = 3584 };
    tpw_checkpoint *c = open_dummy("qwen3.5-0.8b", 1, 512);
    tpw_tensor_info t = find(c, LAYERS "0.mlp.down_proj.weight");
    uint8_t *codes = malloc(ROWS * COLS);
    int64_t seen[256] = {0};
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, ROWS, 0, COLS, codes, COLS, NULL), TPW_OK);
    for (int i = 0; i < ROWS * COLS; i++)
        seen[codes[i]]++;
    for (int code = 0; code < 256; code++) {
        double expected = (code & 0x7F) >= 64 ? 0 : (code & 0x7F) >= 32 ? 63.0 / 64 / 64 : 1.0 / 64 / 64;
        expected *= ROWS * COLS;
        cr_assert(fabs((double)seen[code] - expected) <= 6 * sqrt(expected), "code 0x%02X: %lld, expected %.0f", code,
                  (long long)seen[code], expected);
    }
    free(codes);
    tpw_checkpoint_close(c);
}

Test(dummy, tensors_differ_from_each_other)
{
    tpw_checkpoint *c = open_dummy("qwen3.5-0.8b", 2, 512);
    uint8_t a[1000];
    uint8_t b[1000];
    tpw_tensor_info ta = find(c, LAYERS "0.mlp.gate_proj.weight");
    tpw_tensor_info tb = find(c, LAYERS "1.mlp.gate_proj.weight");
    cr_assert_eq(tpw_checkpoint_read(c, &ta, 0, 1, 0, 1000, a, 1000, NULL), TPW_OK);
    cr_assert_eq(tpw_checkpoint_read(c, &tb, 0, 1, 0, 1000, b, 1000, NULL), TPW_OK);
    int same = 0;
    for (int i = 0; i < 1000; i++)
        same += a[i] == b[i];
    cr_assert_lt(same, 40, "about 1000/64 by chance: %d", same);
    cr_assert_eq(tpw_checkpoint_read(c, &ta, 1, 1, 0, 1000, b, 1000, NULL), TPW_OK);
    same = 0;
    for (int i = 0; i < 1000; i++)
        same += a[i] == b[i];
    cr_assert_lt(same, 40, "rows: %d", same);
    tpw_checkpoint_close(c);
}

Test(dummy, marks_and_digests_like_files)
{
    tpw_error err = {0};
    tpw_checkpoint *a = open_dummy("qwen3.5-0.8b", 2, 512);
    tpw_checkpoint *b = open_dummy("qwen3.5-0.8b", 2, 512);
    tpw_checkpoint *d = open_dummy("qwen3.5-0.8b", 2, 513);
    cr_assert_eq(tpw_checkpoint_digest(a), tpw_checkpoint_digest(b));
    cr_assert_neq(tpw_checkpoint_digest(a), tpw_checkpoint_digest(d));
    cr_assert_eq(tpw_checkpoint_check_used(a, &err), TPW_ERR_CHECKPOINT);
    for (int32_t i = 0; i < tpw_checkpoint_count(a); i++) {
        tpw_tensor_info t;
        cr_assert_eq(tpw_checkpoint_get(a, i, &t, NULL), TPW_OK);
        tpw_checkpoint_mark(a, &t);
    }
    cr_assert_eq(tpw_checkpoint_check_used(a, NULL), TPW_OK);
    uint8_t out[4];
    tpw_tensor_info t = find(a, LAYERS "0.mlp.gate_proj.weight");
    cr_assert_eq(tpw_checkpoint_read(a, &t, 0, 1, 1020, 5, out, 5, &err), TPW_ERR_ARGUMENT);
    tpw_checkpoint_close(a);
    tpw_checkpoint_close(b);
    tpw_checkpoint_close(d);
}
