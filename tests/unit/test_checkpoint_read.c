/* Tests of reading blocks of tensors, and of files that are damaged or change. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdbool.h>

#include "model/checkpoint.h"
#include "safetensors_files.h"

#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"
#define A      "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}"

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

static size_t size_of(tpw_dtype dtype)
{
    return dtype == TPW_F32 ? 4 : dtype == TPW_E4M3 ? 1 : 2;
}

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

Test(checkpoint_read, bytes_are_those_of_the_file)
{
    /* header length and data_offsets as listed by another reader */
    enum { BEGIN = 8 + 11296 + 3252288, ROWS = 256, COLS = 768 };
    static uint8_t wanted[ROWS * COLS];
    static uint8_t found[ROWS * COLS];
    FILE *file = fopen(TPW_TEST_POCKET "/model-00001-of-00002.safetensors", "rb");
    cr_assert(file && fseek(file, BEGIN, SEEK_SET) == 0 && fread(wanted, 1, sizeof wanted, file) == sizeof wanted);
    fclose(file);
    tpw_checkpoint *c = open_good(TPW_TEST_POCKET);
    tpw_tensor_info t = find(c, "model.language_model.layers.0.mlp.down_proj.weight");
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, ROWS, 0, COLS, found, COLS, NULL), TPW_OK);
    cr_assert_arr_eq(found, wanted, sizeof wanted);
    cr_assert_eq(tpw_checkpoint_bytes_read(c), (int64_t)sizeof wanted);
    cr_assert_eq(tpw_checkpoint_read(c, &t, 255, 1, 767, 1, found, 1, NULL), TPW_OK);
    cr_assert_eq(found[0], wanted[sizeof wanted - 1]);
    cr_assert_eq(tpw_checkpoint_bytes_read(c), (int64_t)sizeof wanted + 1);
    tpw_checkpoint_close(c);
}

/* Cuts [0, total) in n parts that need not be equal. */
static int64_t cut(int64_t total, int part, int parts)
{
    return total * part / parts;
}

static void check_reassembly(tpw_checkpoint *c, const tpw_tensor_info *t)
{
    size_t size = size_of(t->dtype);
    size_t bytes = (size_t)(t->rows * t->cols) * size;
    char *whole = malloc(bytes);
    char *parts = malloc(bytes);
    cr_assert_eq(tpw_checkpoint_read(c, t, 0, t->rows, 0, t->cols, whole, t->cols, NULL), TPW_OK);
    for (int n = 1; n <= 8; n *= 2) {
        for (int by_rows = 0; by_rows < 2; by_rows++) {
            memset(parts, 0xA5, bytes);
            for (int rank = 0; rank < n; rank++) {
                int64_t total = by_rows ? t->rows : t->cols;
                int64_t begin = cut(total, rank, n);
                int64_t count = cut(total, rank + 1, n) - begin;
                char *to = parts + (size_t)(by_rows ? begin * t->cols : begin) * size;
                tpw_status st = by_rows ? tpw_checkpoint_read(c, t, begin, count, 0, t->cols, to, t->cols, NULL)
                                        : tpw_checkpoint_read(c, t, 0, t->rows, begin, count, to, t->cols, NULL);
                cr_assert_eq(st, TPW_OK, "%s", t->name);
            }
            cr_assert_eq(memcmp(parts, whole, bytes), 0, "%s in %d parts by %s", t->name, n,
                         by_rows ? "rows" : "columns");
        }
    }
    free(parts);
    free(whole);
}

Test(checkpoint_read, shards_put_together_are_the_whole)
{
    const char *const folders[] = {TPW_TEST_POCKET, TPW_TEST_DATA "/tiny/qwen35-odd"};
    int tensors = 0;
    for (int f = 0; f < 2; f++) {
        tpw_checkpoint *c = open_good(folders[f]);
        for (int32_t i = 0; i < tpw_checkpoint_count(c); i++) {
            tpw_tensor_info t;
            cr_assert_eq(tpw_checkpoint_get(c, i, &t, NULL), TPW_OK);
            /* one layer of each kind and what is outside: the rest has the same shapes */
            bool inner = strstr(t.name, "layers.1.") || strstr(t.name, "layers.2.") || strstr(t.name, "layers.4.") ||
                         strstr(t.name, "layers.5.") || strstr(t.name, "layers.6.") || strstr(t.name, "layers.7.");
            if (inner)
                continue;
            check_reassembly(c, &t);
            tensors++;
        }
        tpw_checkpoint_close(c);
    }
    cr_assert_gt(tensors, 80, "%d tensors were compared", tensors);
}

static float decode_e4m3(uint8_t code)
{
    int exponent = code >> 3 & 15;
    float m = (float)(code & 7) / 8.0f;
    float x = exponent == 0 ? ldexpf(m, -6) : ldexpf(1.0f + m, exponent - 7);
    return code & 0x80 ? -x : x;
}

static float decode_bf16(uint16_t bits)
{
    int exponent = bits >> 7 & 255;
    float m = (float)(bits & 127) / 128.0f;
    float x = exponent == 0 ? ldexpf(m, -126) : ldexpf(1.0f + m, exponent - 127);
    return bits & 0x8000 ? -x : x;
}

Test(checkpoint_read, reads_as_f32)
{
    tpw_checkpoint *c = open_good(TPW_TEST_POCKET);
    const char *const names[] = {"model.language_model.embed_tokens.weight", "mtp.layers.0.mlp.down_proj.weight",
                                 "model.language_model.layers.0.linear_attn.norm.weight"};
    for (int n = 0; n < 3; n++) {
        tpw_tensor_info t = find(c, names[n]);
        int64_t stride = t.cols + 3;
        void *raw = malloc((size_t)(t.rows * t.cols) * 4);
        float *out = malloc((size_t)(t.rows * stride) * 4);
        for (int64_t i = 0; i < t.rows * stride; i++)
            out[i] = -12345.0f;
        cr_assert_eq(tpw_checkpoint_read(c, &t, 0, t.rows, 0, t.cols, raw, t.cols, NULL), TPW_OK);
        cr_assert_eq(tpw_checkpoint_read_f32(c, &t, 0, t.rows, 0, t.cols, out, stride, NULL), TPW_OK);
        for (int64_t i = 0; i < t.rows * stride; i++) {
            int64_t col = i % stride;
            int64_t at = i / stride * t.cols + col;
            float wanted = col >= t.cols         ? -12345.0f
                           : t.dtype == TPW_F32  ? ((float *)raw)[at]
                           : t.dtype == TPW_E4M3 ? decode_e4m3(((uint8_t *)raw)[at])
                                                 : decode_bf16(((uint16_t *)raw)[at]);
            if (out[i] != wanted)
                cr_assert_fail("%s: element %lld is %a, not %a", names[n], (long long)i, out[i], wanted);
        }
        free(out);
        free(raw);
    }
    tpw_checkpoint_close(c);
}

Test(checkpoint_read, long_rows_and_half_precision)
{
    enum { COLS = 300007 }; /* longer than one conversion piece */
    temp_folder temp;
    temp_make(&temp);
    uint16_t *data = malloc(2 * COLS * sizeof *data);
    for (int i = 0; i < 2 * COLS; i++)
        data[i] = (uint16_t)(0x3C00 + i % 1000); /* 1 + (i mod 1000) / 1024 */
    write_file(&temp, SINGLE, "{\"h\":{\"dtype\":\"F16\",\"shape\":[2,300007],\"data_offsets\":[0,1200028]}}", data,
               1200028);
    free(data);
    tpw_checkpoint *c = open_good(temp.path);
    tpw_tensor_info t = find(c, "h");
    float *out = malloc(2 * COLS * sizeof *out);
    cr_assert_eq(tpw_checkpoint_read_f32(c, &t, 0, 2, 5, COLS - 5, out, COLS, NULL), TPW_OK);
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < COLS - 5; i++) {
            float wanted = 1.0f + (float)((r * COLS + i + 5) % 1000) / 1024.0f;
            if (out[r * COLS + i] != wanted)
                cr_assert_fail("row %d, column %d: %a, not %a", r, i, out[r * COLS + i], wanted);
        }
    }
    free(out);
    tpw_checkpoint_close(c);
    temp_remove(&temp);
}

Test(checkpoint_read, writes_only_the_block)
{
    temp_folder temp;
    uint8_t payload[1 + 5 * 7];
    uint8_t out[60];
    temp_make(&temp);
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)i;
    write_file(&temp, SINGLE,
               "{\"pad\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]},"
               "\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[5,7],\"data_offsets\":[1,36]}}",
               payload, sizeof payload);
    tpw_checkpoint *c = open_good(temp.path);
    tpw_tensor_info t = find(c, "w");
    int blocks = 0;
    for (int r0 = 0; r0 <= 5; r0++) {
        for (int rows = 0; rows <= 5 - r0; rows++) {
            for (int c0 = 0; c0 <= 7; c0++) {
                for (int cols = 0; cols <= 7 - c0; cols++) {
                    int stride = cols + rows % 3;
                    memset(out, 0xEE, sizeof out);
                    cr_assert_eq(tpw_checkpoint_read(c, &t, r0, rows, c0, cols, out, stride, NULL), TPW_OK);
                    for (int i = 0; i < (int)sizeof out; i++) {
                        int r = stride > 0 ? i / stride : rows;
                        int col = stride > 0 ? i % stride : 0;
                        int wanted = r < rows && col < cols ? 1 + (r0 + r) * 7 + c0 + col : 0xEE;
                        if (out[i] != wanted)
                            cr_assert_fail("rows %d+%d, columns %d+%d, byte %d: %d", r0, rows, c0, cols, i, out[i]);
                    }
                    blocks++;
                }
            }
        }
    }
    cr_assert_eq(blocks, 21 * 36);
    tpw_checkpoint_close(c);
    temp_remove(&temp);
}

Test(checkpoint_read, refuses_blocks_outside)
{
    tpw_checkpoint *c = open_good(TPW_TEST_DATA "/tiny/qwen35-odd");
    tpw_tensor_info t = find(c, "model.layers.0.mlp.down_proj.weight"); /* [160, 352] */
    uint16_t out[16];
    static const int64_t bad[][5] = {/* row0, rows, col0, cols, stride */
                                     {-1, 1, 0, 1, 1},
                                     {0, -1, 0, 1, 1},
                                     {160, 1, 0, 1, 1},
                                     {159, 2, 0, 1, 1},
                                     {0, 1, -1, 1, 1},
                                     {0, 1, 0, -1, 1},
                                     {0, 1, 352, 1, 1},
                                     {0, 1, 351, 2, 2},
                                     {0, 2, 0, 4, 3},
                                     {0, 1, 0, 1, 0},
                                     {INT64_MAX, 1, 0, 1, 1},
                                     {1, INT64_MAX, 0, 1, 1},
                                     {0, 1, 1, INT64_MAX, INT64_MAX},
                                     {0, 2, 0, 1, INT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tpw_error err = {0};
        const int64_t *b = bad[i];
        cr_assert_eq(tpw_checkpoint_read(c, &t, b[0], b[1], b[2], b[3], out, b[4], &err), TPW_ERR_ARGUMENT, "case %zu",
                     i);
        cr_assert(strstr(err.text, t.name), "%s", err.text);
        cr_assert_eq(tpw_checkpoint_read_f32(c, &t, b[0], b[1], b[2], b[3], (float *)(void *)out, b[4], NULL),
                     TPW_ERR_ARGUMENT);
    }
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 1, 0, 1, NULL, 1, NULL), TPW_ERR_ARGUMENT);
    tpw_checkpoint *other = open_good(TPW_TEST_POCKET);
    cr_assert_eq(tpw_checkpoint_read(other, &t, 0, 1, 0, 1, out, 1, NULL), TPW_ERR_ARGUMENT, "of another checkpoint");
    t.index = 100000;
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 1, 0, 1, out, 1, NULL), TPW_ERR_ARGUMENT);
    t.index = -1;
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 1, 0, 1, out, 1, NULL), TPW_ERR_ARGUMENT);
    tpw_checkpoint_mark(c, &t); /* does nothing */
    tpw_checkpoint_close(other);
    tpw_checkpoint_close(c);
    tpw_checkpoint_close(NULL);
}

Test(checkpoint_read, a_nan_weight_is_refused_where_it_is)
{
    enum { ROWS = 3, COLS = 19 };
    temp_folder temp;
    temp_make(&temp);
    for (int at = 0; at < ROWS * COLS; at++) {
        uint8_t payload[ROWS * COLS];
        uint8_t out[ROWS * COLS];
        float wide[ROWS * COLS];
        tpw_error err = {0};
        for (int i = 0; i < ROWS * COLS; i++)
            payload[i] = (uint8_t)(i % 2 ? 0xFE : 0x7E); /* the largest finite codes */
        payload[at] = at % 2 ? 0xFF : 0x7F;
        write_file(&temp, SINGLE, "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,19],\"data_offsets\":[0,57]}}", payload,
                   57);
        tpw_checkpoint *c = open_good(temp.path);
        tpw_tensor_info t = find(c, "w");
        cr_assert_eq(tpw_checkpoint_read(c, &t, 0, ROWS, 0, COLS, out, COLS, &err), TPW_ERR_CHECKPOINT, "at %d", at);
        char where[60];
        snprintf(where, sizeof where, "0x%s) at row %d, column %d:", at % 2 ? "FF" : "7F", at / COLS, at % COLS);
        cr_assert(strstr(err.text, where) && strstr(err.text, "tensor w") && strstr(err.text, temp.path), "%s",
                  err.text);
        cr_assert_eq(tpw_checkpoint_read_f32(c, &t, at / COLS, 1, at % COLS, 1, wide, 1, &err), TPW_ERR_CHECKPOINT);
        cr_assert(strstr(err.text, where), "%s", err.text);
        int row = at / COLS ? 0 : 1;
        cr_assert_eq(tpw_checkpoint_read(c, &t, row, 1, 0, COLS, out, COLS, NULL), TPW_OK, "a row without it");
        tpw_checkpoint_close(c);
    }
    temp_remove(&temp);
}

Test(checkpoint_read, only_known_dtypes_can_be_read)
{
    temp_folder temp;
    int64_t out[4];
    tpw_error err = {0};
    temp_make(&temp);
    write_file(&temp, SINGLE,
               "{\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
               "\"i\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[16,32]},"
               "\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[32,33]}}",
               NULL, 33);
    tpw_checkpoint *c = open_good(temp.path);
    tpw_tensor_info t = find(c, "d");
    cr_assert_eq(t.dtype, TPW_DTYPE_COUNT);
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 2, 0, 1, out, 1, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "tensor d") && strstr(err.text, "F64"), "%s", err.text);
    t = find(c, "u");
    cr_assert_eq(tpw_checkpoint_read_f32(c, &t, 0, 1, 0, 1, (float *)(void *)out, 1, NULL), TPW_ERR_CHECKPOINT);
    t = find(c, "i");
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 2, 0, 1, out, 1, NULL), TPW_OK);
    cr_assert_eq(tpw_checkpoint_read_f32(c, &t, 0, 2, 0, 1, (float *)(void *)out, 1, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "I64"), "%s", err.text);
    tpw_checkpoint_close(c);
    temp_remove(&temp);
}

Test(checkpoint_read, keeps_few_files_open)
{
    enum { FILES = 20 };
    temp_folder temp;
    char index[4000] = "{\"weight_map\":{";
    temp_make(&temp);
    for (int i = 0; i < FILES; i++) {
        char name[40];
        char header[120];
        uint16_t data[2] = {(uint16_t)(0x3F80 + i), (uint16_t)i};
        snprintf(name, sizeof name, "layers-%d.safetensors", i);
        snprintf(header, sizeof header, "{\"t%d\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}", i);
        write_file(&temp, name, header, data, 4);
        snprintf(index + strlen(index), 80, "%s\"t%d\":\"%s\"", i ? "," : "", i, name);
    }
    strcat(index, "}}");
    temp_write_text(&temp, INDEX, index);
    int before = open_files();
    tpw_checkpoint *c = open_good(temp.path);
    cr_assert_eq(open_files(), before, "headers are read and closed");
    for (int round = 0; round < 200; round++) {
        char name[8];
        int i = round * 7 % FILES;
        uint16_t out[2];
        snprintf(name, sizeof name, "t%d", i);
        tpw_tensor_info t = find(c, name);
        cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 1, 0, 2, out, 2, NULL), TPW_OK);
        cr_assert(out[0] == 0x3F80 + i && out[1] == i, "tensor %d", i);
        cr_assert_leq(open_files(), before + 8);
    }
    tpw_checkpoint_close(c);
    cr_assert_eq(open_files(), before);
    temp_remove(&temp);
}

Test(checkpoint_read, a_file_that_changes_later)
{
    temp_folder temp;
    uint16_t out[2];
    tpw_error err = {0};
    temp_make(&temp);
    size_t bytes = write_file(&temp, SINGLE, A, NULL, 4);
    tpw_checkpoint *c = open_good(temp.path);
    tpw_tensor_info t = find(c, "a");
    cr_assert_eq(truncate(temp_path(&temp, SINGLE), (off_t)bytes - 1), 0);
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 2, 0, 1, out, 1, &err), TPW_ERR_IO, "cut before it was opened again");
    cr_assert(strstr(err.text, SINGLE), "%s", err.text);
    write_file(&temp, SINGLE, A, NULL, 4);
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 2, 0, 1, out, 1, NULL), TPW_OK);
    cr_assert_eq(truncate(temp_path(&temp, SINGLE), (off_t)bytes - 1), 0);
    cr_assert_eq(tpw_checkpoint_read(c, &t, 0, 2, 0, 1, out, 1, &err), TPW_ERR_IO, "cut while it was open");
    cr_assert(strstr(err.text, SINGLE) && strstr(err.text, " a,"), "%s", err.text);
    tpw_checkpoint_close(c);
    c = NULL;
    cr_assert_eq(tpw_checkpoint_open(temp.path, &c, NULL), TPW_ERR_CHECKPOINT);
    temp_remove(&temp);
}
