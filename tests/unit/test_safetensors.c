/* Tests of one safetensors file: every check has a malformed file of its own. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "model/safetensors.h"
#include "safetensors_files.h"

static tpw_status init_of(temp_folder *temp, tpw_safetensors *header, tpw_error *err)
{
    memset(header, 0, sizeof *header);
    return tpw_safetensors_init(header, temp_path(temp, "f.safetensors"), err);
}

static const tpw_entry *entry_of(const tpw_safetensors *header, const char *name)
{
    for (int32_t i = 0; i < header->count; i++) {
        if (strcmp(header->entries[i].name, name) == 0)
            return &header->entries[i];
    }
    cr_assert_fail("no tensor %s", name);
    return NULL;
}

Test(safetensors, reads_a_good_header)
{
    /* out of order, odd offsets, a scalar, empty tensors at the start, between and at the end, trailing blanks */
    static const char text[] = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[7,31]},"
                               "\"__metadata__\":{\"format\":\"pt\",\"\":\"\"},"
                               "\"a\":{\"data_offsets\":[0,7],\"dtype\":\"F8_E4M3\",\"shape\":[7],\"extra\":null},"
                               "\"scalar\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[31,33]},"
                               "\"e0\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]},"
                               "\"e1\":{\"dtype\":\"I64\",\"shape\":[4,0,2],\"data_offsets\":[31,31]},"
                               "\"e2\":{\"dtype\":\"BOOL\",\"shape\":[0],\"data_offsets\":[49,49]},"
                               "\"q\":{\"dtype\":\"F64\",\"shape\":[1,2,1],\"data_offsets\":[33,49]}}    ";
    temp_folder temp;
    tpw_safetensors header;
    tpw_error err = {0};
    temp_make(&temp);
    size_t bytes = write_file(&temp, "f.safetensors", text, NULL, 49);
    cr_assert_eq(init_of(&temp, &header, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(header.count, 7);
    cr_assert_eq(header.payload, 8 + sizeof text - 1);
    cr_assert_eq(header.file_bytes, bytes);
    const tpw_entry *e = entry_of(&header, "b");
    cr_assert(e->stored == TPW_STORED_F32 && e->dims == 2 && e->rows == 2 && e->cols == 3);
    cr_assert(e->begin == 7 && e->bytes == 24 && e->shape[0] == 2 && e->shape[1] == 3);
    e = entry_of(&header, "a");
    cr_assert(e->stored == TPW_STORED_F8_E4M3 && e->rows == 7 && e->cols == 1 && e->begin == 0 && e->bytes == 7);
    e = entry_of(&header, "scalar");
    cr_assert(e->dims == 0 && e->rows == 1 && e->cols == 1 && e->bytes == 2);
    e = entry_of(&header, "e1");
    cr_assert(e->dims == 3 && e->rows == 4 && e->cols == 0 && e->bytes == 0);
    e = entry_of(&header, "q");
    cr_assert(e->rows == 1 && e->cols == 2 && tpw_stored_dtype(e->stored) == TPW_DTYPE_COUNT);
    tpw_safetensors_fini(&header);
    temp_remove(&temp);
}

Test(safetensors, dtypes_and_their_sizes)
{
    static const struct {
        const char *name;
        size_t size;
        tpw_dtype dtype;
    } known[] = {{"BOOL", 1, TPW_BOOL},       {"U8", 1, TPW_DTYPE_COUNT},
                 {"I8", 1, TPW_DTYPE_COUNT},  {"F8_E5M2", 1, TPW_DTYPE_COUNT},
                 {"F8_E4M3", 1, TPW_E4M3},    {"I16", 2, TPW_DTYPE_COUNT},
                 {"U16", 2, TPW_DTYPE_COUNT}, {"F16", 2, TPW_F16},
                 {"BF16", 2, TPW_BF16},       {"I32", 4, TPW_I32},
                 {"U32", 4, TPW_DTYPE_COUNT}, {"F32", 4, TPW_F32},
                 {"I64", 8, TPW_I64},         {"U64", 8, TPW_DTYPE_COUNT},
                 {"F64", 8, TPW_DTYPE_COUNT}};
    temp_folder temp;
    temp_make(&temp);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char text[200];
        tpw_safetensors header;
        snprintf(text, sizeof text, "{\"t\":{\"dtype\":\"%s\",\"shape\":[3,5],\"data_offsets\":[0,%zu]}}",
                 known[i].name, 15 * known[i].size);
        write_file(&temp, "f.safetensors", text, NULL, 15 * known[i].size);
        cr_assert_eq(init_of(&temp, &header, NULL), TPW_OK, "%s", known[i].name);
        cr_assert_eq(tpw_stored_dtype(header.entries[0].stored), known[i].dtype, "%s", known[i].name);
        cr_assert_eq(tpw_stored_size(header.entries[0].stored), known[i].size);
        cr_assert_str_eq(tpw_stored_name(header.entries[0].stored), known[i].name);
        tpw_safetensors_fini(&header);
    }
    cr_assert_str_eq(tpw_stored_name((tpw_stored)99), "?");
    cr_assert_eq(tpw_stored_size((tpw_stored)-1), 0u);
    cr_assert_eq(tpw_stored_dtype((tpw_stored)99), TPW_DTYPE_COUNT);
    temp_remove(&temp);
}

Test(safetensors, empty_headers)
{
    temp_folder temp;
    tpw_safetensors header;
    temp_make(&temp);
    write_file(&temp, "f.safetensors", "{}", NULL, 0);
    cr_assert_eq(init_of(&temp, &header, NULL), TPW_OK, "no tensors, no payload");
    cr_assert_eq(header.count, 0);
    tpw_safetensors_fini(&header);
    write_file(&temp, "f.safetensors", "{\"__metadata__\":{}}", NULL, 0);
    cr_assert_eq(init_of(&temp, &header, NULL), TPW_OK);
    tpw_safetensors_fini(&header);
    write_file(&temp, "f.safetensors", "{}", NULL, 1);
    cr_assert_eq(init_of(&temp, &header, NULL), TPW_ERR_CHECKPOINT, "bytes that no tensor owns");
    temp_remove(&temp);
}

#define T(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

Test(safetensors, every_rule_has_a_file_that_breaks_it)
{
    static const struct {
        const char *header;
        size_t payload;
        const char *says;
    } bad[] = {
        /* JSON */
        {"", 0, "empty"},
        {" {}", 0, "'{'"},
        {"[]", 0, "'{'"},
        {"{\"a\":" T("U8", "[1]", 0, 1) ",\"a\":" T("U8", "[1]", 1, 2) "}", 2, "duplicate"},
        {"{} {}", 0, "JSON"},
        {"{\"\xFF\":1}", 0, "JSON"},
        /* entry */
        {"{\"a\":[]}", 0, "must be an object"},
        {"{\"a\":null}", 0, "must be an object"},
        {"{\"\":" T("U8", "[1]", 0, 1) "}", 1, "name"},
        {"{\"a\":{}}", 0, "dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "shape"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype"},
        {"{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype"},
        {"{\"a\":" T("f32", "[1]", 0, 4) "}", 4, "f32"},
        {"{\"a\":" T("F4", "[2]", 0, 1) "}", 1, "F4"},
        {"{\"a\":" T("F8_E4M3FNUZ", "[1]", 0, 1) "}", 1, "F8_E4M3FNUZ"},
        /* shape */
        {"{\"a\":" T("U8", "1", 0, 1) "}", 1, "shape"},
        {"{\"a\":" T("U8", "[1.0]", 0, 1) "}", 1, "shape[0]"},
        {"{\"a\":" T("U8", "[1,\"1\"]", 0, 1) "}", 1, "shape[1]"},
        {"{\"a\":" T("U8", "[-1,-1]", 0, 1) "}", 1, "shape[0]"},
        {"{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, "dimensions"},
        {"{\"a\":" T("U8", "[4294967296,4294967296]", 0, 0) "}", 0, "too many elements"},
        {"{\"a\":" T("F32", "[2,9223372036854775807]", 0, 8) "}", 8, "too many elements"},
        {"{\"a\":" T("F64", "[4611686018427387904]", 0, 0) "}", 0, "too many elements"},
        {"{\"a\":" T("F64", "[2305843009213693952]", 0, 0) "}", 0, "too many elements"}, /* bytes = 2^64 */
        {"{\"a\":" T("F32", "[0,4294967296,4294967296]", 0, 0) "}", 0, "too many elements"},
        {"{\"a\":" T("U8", "[18446744073709551616]", 0, 0) "}", 0, "JSON"},
        /* offsets */
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":1}}", 1, "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1, "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.0]}}", 1, "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[\"0\",1]}}", 1, "data_offsets"},
        {"{\"a\":" T("U8", "[1]", -1, 0) "}", 1, "not within"},
        {"{\"a\":" T("U8", "[1]", 1, 0) "}", 1, "not within"},
        {"{\"a\":" T("U8", "[1]", 1, 2) "}", 1, "not within"},
        {"{\"a\":" T("U8", "[1]", 9223372036854775806, 9223372036854775807) "}", 1, "not within"},
        {"{\"a\":" T("U8", "[2]", 0, 1) "}", 1, "need 2"},
        {"{\"a\":" T("F32", "[2]", 0, 7) "}", 7, "need 8"},
        {"{\"a\":" T("F32", "[2]", 0, 9) "}", 9, "need 8"},
        {"{\"a\":" T("F32", "[0]", 0, 4) "}", 4, "need 0"},
        /* cover */
        {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 3, 7) "}", 7, "overlap"},
        {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 0, 4) "}", 4, "overlap"},
        {"{\"a\":" T("U8", "[9]", 0, 9) ",\"b\":" T("U8", "[0]", 4, 4) "}", 9, "overlap"},
        {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 5, 9) "}", 9, "hole"},
        {"{\"a\":" T("U8", "[4]", 1, 5) "}", 5, "hole"},
        {"{\"a\":" T("U8", "[4]", 0, 4) "}", 5, "payload has 5"},
        /* metadata */
        {"{\"__metadata__\":[]}", 0, "__metadata__"},
        {"{\"__metadata__\":null}", 0, "__metadata__"},
        {"{\"__metadata__\":\"pt\"}", 0, "__metadata__"},
        {"{\"__metadata__\":{\"n\":1}}", 0, "__metadata__"},
        {"{\"__metadata__\":{\"n\":{\"a\":\"b\"}}}", 0, "__metadata__"},
    };
    temp_folder temp;
    temp_make(&temp);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tpw_safetensors header;
        tpw_error err = {0};
        write_file(&temp, "f.safetensors", bad[i].header, NULL, bad[i].payload);
        cr_assert_eq(init_of(&temp, &header, &err), TPW_ERR_CHECKPOINT, "accepted: %s", bad[i].header);
        cr_assert(strstr(err.text, bad[i].says), "%s\n  says \"%s\"", bad[i].header, err.text);
        cr_assert(strstr(err.text, "f.safetensors"), "%s", err.text);
        cr_assert(header.count == 0 && !header.entries && !header.names, "nothing is left on an error");
        cr_assert_eq(init_of(&temp, &header, NULL), TPW_ERR_CHECKPOINT);
    }
    temp_remove(&temp);
}

Test(safetensors, names_up_to_512_bytes)
{
    temp_folder temp;
    temp_make(&temp);
    for (int length = 511; length <= 513; length++) {
        char text[700] = "{\"";
        tpw_safetensors header;
        memset(text + 2, 'n', (size_t)length);
        strcpy(text + 2 + length, "\":" T("U8", "[1]", 0, 1) "}");
        write_file(&temp, "f.safetensors", text, NULL, 1);
        cr_assert_eq(init_of(&temp, &header, NULL), length <= 512 ? TPW_OK : TPW_ERR_CHECKPOINT, "%d", length);
        cr_assert(length > 512 || strlen(header.entries[0].name) == (size_t)length);
        tpw_safetensors_fini(&header);
    }
    temp_remove(&temp);
}

Test(safetensors, header_length)
{
    static const char text[] = "{\"a\":" T("U8", "[3]", 0, 3) "}";
    const size_t n = sizeof text - 1;
    const uint64_t claims[] = {0,         1,         n - 1,      n + 1,      n + 3,      n + 4,
                               100000000, 100000001, 1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
    temp_folder temp;
    tpw_safetensors header;
    temp_make(&temp);
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        tpw_error err = {0};
        write_claimed(&temp, "f.safetensors", text, n, claims[i], NULL, 3, NULL);
        cr_assert_eq(init_of(&temp, &header, &err), TPW_ERR_CHECKPOINT, "%llu", (unsigned long long)claims[i]);
        cr_assert(claims[i] <= 100000000 || strstr(err.text, "at most 100000000"), "%s", err.text);
    }
    write_claimed(&temp, "f.safetensors", text, n, n, NULL, 3, NULL);
    cr_assert_eq(init_of(&temp, &header, NULL), TPW_OK);
    tpw_safetensors_fini(&header);

    /* a sparse file whose header is really longer than allowed: refused before 100 MB are read */
    cr_assert_eq(truncate(temp_path(&temp, "f.safetensors"), 100000100), 0);
    int fd = open(temp.file, O_WRONLY);
    const unsigned char length[8] = {0x01, 0xE1, 0xF5, 0x05}; /* 100,000,001 */
    cr_assert_eq(pwrite(fd, length, 8, 0), 8);
    close(fd);
    tpw_error err = {0};
    cr_assert_eq(init_of(&temp, &header, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "at most 100000000"), "%s", err.text);
    temp_remove(&temp);
}

static const char two_tensors[] = "{\"a\":" T("F8_E4M3", "[2,3]", 0, 6) ",\"b.weight\":" T("F32", "[2]", 6, 14) "}";

Test(safetensors, every_truncation_is_an_error)
{
    temp_folder temp;
    unsigned char *image;
    tpw_safetensors header;
    temp_make(&temp);
    size_t bytes = write_claimed(&temp, "f.safetensors", two_tensors, sizeof two_tensors - 1, sizeof two_tensors - 1,
                                 NULL, 14, &image);
    for (size_t n = 0; n < bytes; n++) {
        tpw_error err = {0};
        temp_write(&temp, "f.safetensors", image, n);
        cr_assert_eq(init_of(&temp, &header, &err), TPW_ERR_CHECKPOINT, "%zu of %zu bytes", n, bytes);
        cr_assert(strstr(err.text, "f.safetensors"), "%s", err.text);
    }
    temp_write(&temp, "f.safetensors", image, bytes);
    cr_assert_eq(init_of(&temp, &header, NULL), TPW_OK);
    tpw_safetensors_fini(&header);
    free(image);
    temp_remove(&temp);
}

/* Whatever a damaged header says, what is accepted must hold together. */
static void check_sane(const tpw_safetensors *header)
{
    size_t end = 0;
    for (int32_t i = 0; i < header->count; i++) {
        const tpw_entry *e = &header->entries[i];
        size_t bytes = tpw_stored_size(e->stored);
        for (int32_t d = 0; d < e->dims; d++)
            bytes *= (size_t)e->shape[d];
        cr_assert(e->begin == end && e->bytes == bytes && e->name[0] != '\0');
        end += bytes;
    }
    cr_assert_eq(header->payload + end, header->file_bytes);
}

Test(safetensors, random_damage_never_harms)
{
    temp_folder temp;
    unsigned char *image;
    temp_make(&temp);
    size_t bytes = write_claimed(&temp, "f.safetensors", two_tensors, sizeof two_tensors - 1, sizeof two_tensors - 1,
                                 NULL, 14, &image);
    unsigned char *copy = malloc(bytes);
    uint64_t seed = 88172645463325252ull;
    int accepted = 0;
    int refused = 0;
    for (int round = 0; round < 2000; round++) {
        memcpy(copy, image, bytes);
        int changes = 1 + round % 3;
        for (int c = 0; c < changes; c++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            size_t at = (size_t)(seed >> 20) % (bytes - 14);
            /* half of the time another byte of the header, which keeps more of the JSON whole */
            copy[at] = seed & 1 ? image[8 + (seed >> 40) % (bytes - 22)] : (unsigned char)(seed >> 8);
        }
        tpw_safetensors header;
        temp_write(&temp, "f.safetensors", copy, bytes);
        tpw_status st = init_of(&temp, &header, NULL);
        cr_assert(st == TPW_OK || st == TPW_ERR_CHECKPOINT, "round %d: %d", round, st);
        if (st == TPW_OK)
            check_sane(&header);
        accepted += st == TPW_OK;
        refused += st != TPW_OK;
        tpw_safetensors_fini(&header);
    }
    cr_assert(accepted > 20 && refused > 1000, "accepted %d, refused %d", accepted, refused);
    free(copy);
    free(image);
    temp_remove(&temp);
}

Test(safetensors, what_is_not_a_file)
{
    temp_folder temp;
    tpw_safetensors header;
    tpw_error err = {0};
    temp_make(&temp);
    cr_assert_eq(init_of(&temp, &header, &err), TPW_ERR_MISSING);
    cr_assert(strstr(err.text, "f.safetensors"), "%s", err.text);
    cr_assert_eq(mkdir(temp_path(&temp, "f.safetensors"), 0700), 0);
    cr_assert_eq(init_of(&temp, &header, NULL), TPW_ERR_CHECKPOINT);
    rmdir(temp.file);
    cr_assert_eq(mkfifo(temp.file, 0600), 0);
    cr_assert_eq(init_of(&temp, &header, NULL), TPW_ERR_CHECKPOINT);
    temp_remove(&temp);
}

Test(safetensors, short_reads_name_file_and_tensor)
{
    temp_folder temp;
    char out[14];
    int fd = -1;
    tpw_safetensors header;
    tpw_error err = {0};
    temp_make(&temp);
    size_t bytes = write_file(&temp, "f.safetensors", two_tensors, NULL, 14);
    cr_assert_eq(init_of(&temp, &header, NULL), TPW_OK);
    const char *path = temp_path(&temp, "f.safetensors");
    cr_assert_eq(tpw_safetensors_reopen(path, bytes + 1, &fd, &err), TPW_ERR_IO);
    cr_assert(strstr(err.text, path), "%s", err.text);
    cr_assert_eq(fcntl(fd, F_GETFD), -1, "closed again");
    cr_assert_eq(tpw_safetensors_reopen(path, bytes, &fd, NULL), TPW_OK);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(tpw_safetensors_pread(fd, path, "b.weight", header.payload, out, 14, NULL), TPW_OK);
    for (int i = 0; i < 14; i++)
        cr_assert_eq(out[i], i * 7 % 120);
    cr_assert_eq(truncate(path, (off_t)bytes - 1), 0);
    cr_assert_eq(tpw_safetensors_pread(fd, path, "b.weight", header.payload, out, 14, &err), TPW_ERR_IO);
    cr_assert(strstr(err.text, path) && strstr(err.text, "b.weight") && strstr(err.text, "1 bytes short"), "%s",
              err.text);
    cr_assert_eq(tpw_safetensors_pread(fd, path, "b.weight", header.payload, out, 13, NULL), TPW_OK);
    cr_assert_eq(tpw_safetensors_pread(fd, path, "b.weight", header.payload, NULL, 0, NULL), TPW_OK);
    close(fd);
    cr_assert_eq(tpw_safetensors_pread(fd, path, "b.weight", 0, out, 1, &err), TPW_ERR_IO, "a bad descriptor");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(tpw_safetensors_reopen(path, bytes, &fd, NULL), TPW_ERR_MISSING);
    tpw_safetensors_fini(&header);
    temp_remove(&temp);
}
