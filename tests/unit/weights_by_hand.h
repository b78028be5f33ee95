/* Safetensors files and weight digests done by hand, to hold the program's against: an own reader, an own formula.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_WEIGHTS_BY_HAND_H
#define TPW_TESTS_WEIGHTS_BY_HAND_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hand_tensor {
    const char *name; /* of the header */
    size_t begin;     /* in the file */
    size_t bytes;
    int size; /* of an element */
    int64_t rows;
} hand_tensor;

typedef struct hand_file {
    unsigned char *data;
    size_t bytes;
    json_t *header;
    hand_tensor tensors[256]; /* in the order of the payload */
    int count;
} hand_file;

static unsigned char *hand_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        abort();
    }
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes);
    if (!data || fread(data, 1, *bytes, file) != *bytes) {
        perror(path);
        abort();
    }
    fclose(file);
    return data;
}

static inline void hand_copy(const char *from, const char *to)
{
    size_t bytes;
    unsigned char *data = hand_read(from, &bytes);
    FILE *file = fopen(to, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(to);
        abort();
    }
    free(data);
}

static int hand_order(const void *a, const void *b)
{
    size_t x = ((const hand_tensor *)a)->begin, y = ((const hand_tensor *)b)->begin;
    return (x > y) - (x < y);
}

static inline void hand_open(hand_file *out, const char *path)
{
    const char *name;
    json_t *value;
    uint64_t header = 0;
    *out = (hand_file){.count = 0};
    out->data = hand_read(path, &out->bytes);
    for (int i = 7; i >= 0; i--)
        header = header << 8 | out->data[i];
    out->header = json_loadb((const char *)out->data + 8, (size_t)header, 0, NULL);
    json_object_foreach(out->header, name, value)
    {
        const json_t *offsets = json_object_get(value, "data_offsets");
        const char *type = json_string_value(json_object_get(value, "dtype"));
        hand_tensor *t = &out->tensors[out->count];
        if (!offsets)
            continue; /* __metadata__ */
        t->name = name;
        t->begin = 8 + (size_t)header + (size_t)json_integer_value(json_array_get(offsets, 0));
        t->bytes = 8 + (size_t)header + (size_t)json_integer_value(json_array_get(offsets, 1)) - t->begin;
        t->size = strcmp(type, "F8_E4M3") == 0 ? 1 : strcmp(type, "F32") == 0 ? 4 : 2;
        t->rows = json_integer_value(json_array_get(json_object_get(value, "shape"), 0));
        out->count++;
    }
    qsort(out->tensors, (size_t)out->count, sizeof out->tensors[0], hand_order);
}

static inline void hand_close(hand_file *file)
{
    json_decref(file->header);
    free(file->data);
}

static inline const hand_tensor *hand_find(const hand_file *file, const char *name)
{
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

static uint64_t hand_fin(uint64_t t)
{
    t *= 0xD1B54A32D192ED03ull;
    t ^= t >> 32;
    t *= 0xBF58476D1CE4E5B9ull;
    t ^= t >> 32;
    t *= 0x94D049BB133111EBull;
    return t ^ (t >> 32);
}

/* In a row-major file the index in [rows, columns] is the place of the element. */
static inline uint64_t hand_digest(const hand_file *file, int index)
{
    const hand_tensor *t = &file->tensors[index];
    const char *const parts[] = {"weights.", t->name};
    uint64_t key = 0xCBF29CE484222325ull, sum = 0;
    for (int p = 0; p < 2; p++)
        for (const char *at = parts[p]; *at; at++)
            key = (key ^ (unsigned char)*at) * 0x100000001B3ull;
    key = hand_fin(key);
    for (size_t i = 0; i < t->bytes / (size_t)t->size; i++) {
        uint64_t bits = 0;
        for (int b = t->size - 1; b >= 0; b--)
            bits = bits << 8 | file->data[t->begin + i * (size_t)t->size + (size_t)b];
        sum += hand_fin((key + (uint64_t)i * 0x9E3779B97F4A7C15ull) ^ bits);
    }
    return sum;
}

#endif
