/* Tests of the digest: published check values, additivity over shards, and what changes it must find.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/digest_rows.h"
#include "float_reference.h"

#define KEY_RECURRENT_0 0x752905CBE04F6E55ull
#define KEY_KV_63       0xDEA9E5A8E18F763Cull

static const size_t sizes[TPW_DTYPE_COUNT] = {
    [TPW_F32] = 4, [TPW_F16] = 2, [TPW_BF16] = 2, [TPW_E4M3] = 1, [TPW_BOOL] = 1, [TPW_I32] = 4, [TPW_I64] = 8};

Test(digest, keys)
{
    const struct {
        const char *name;
        uint64_t key;
    } rows[] = {
        {"recurrent.0", KEY_RECURRENT_0},    {"kv.63", KEY_KV_63},
        {"", 0x87491F0A7789DF30ull},         {"tokens", 0xFC3A137A1D5926A3ull},
        {"hidden.0", 0x3D6B13E396CD623Cull}, {"weights.model.embed_tokens.weight", 0xC94D0E4F760929B1ull},
        {"\xC3\xA9", 0x63C376AAEC128CECull}, /* bytes above 127 count as unsigned */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cr_expect_eq(tpw_digest_key(rows[i].name), rows[i].key, "\"%s\": %016jx", rows[i].name,
                     (uintmax_t)tpw_digest_key(rows[i].name));
}

Test(digest, terms)
{
    cr_assert_eq(TPW_DIGEST_VERSION, 1);
    cr_assert_eq(tpw_digest_term(KEY_RECURRENT_0, 0, 0), 0x37BF0E5F747236A1ull);
    cr_assert_eq(tpw_digest_term(KEY_RECURRENT_0, 0, 0x3F800000), 0x66AC324C0A8B7BD6ull);
    cr_assert_eq(tpw_digest_term(KEY_RECURRENT_0, 1, 0x3F800000), 0x50E33FA973E31543ull);
    cr_assert_eq(tpw_digest_term(KEY_RECURRENT_0, (uint64_t)1 << 32, 0xBF80), 0xC2468D0B04058640ull);
}

Test(digest, block_of_a_thousand_words)
{
    uint32_t data[1000];
    for (uint64_t i = 0; i < 1000; i++)
        data[i] = (uint32_t)(i * 2654435761u);
    for (int64_t cols = 1; cols <= 1000; cols++) {
        if (1000 % cols != 0)
            continue; /* the same thousand elements as any matrix */
        uint64_t sum = tpw_digest_block(KEY_RECURRENT_0, data, TPW_F32, 1000 / cols, cols, cols, 0, (uint64_t)cols);
        cr_assert_eq(sum, 0xF6AB218F526FAE78ull, "%jd columns: %016jx", (intmax_t)cols, (uintmax_t)sum);
    }
}

/* A [3, 5] block in rows of 6, unaligned; values computed apart from this program with arbitrary-precision integers. */
Test(digest, strided_blocks_of_every_element_size)
{
    const uint64_t expected[TPW_DTYPE_COUNT] = {
        [TPW_E4M3] = 0xD2291C8579C7452Cull, [TPW_BOOL] = 0xD2291C8579C7452Cull, [TPW_F16] = 0xE9B187E91A7B405Cull,
        [TPW_BF16] = 0xE9B187E91A7B405Cull, [TPW_F32] = 0x33E474A615E7259Full,  [TPW_I32] = 0x33E474A615E7259Full,
        [TPW_I64] = 0x35D0F2304078BF95ull};
    for (int d = 0; d < TPW_DTYPE_COUNT; d++) {
        for (int poison = 0; poison < 256; poison += 51) {
            size_t size = sizes[d];
            unsigned char *block = malloc(1 + 17 * size); /* the last row ends without padding */
            cr_assert_not_null(block);
            memset(block, poison, 1 + 17 * size);
            for (size_t i = 0; i < 15; i++) {
                uint64_t bits = (i + 1) * 0x9E3779B97F4A7C15ull;
                for (size_t byte = 0; byte < size; byte++)
                    block[1 + (i / 5 * 6 + i % 5) * size + byte] = (unsigned char)(bits >> (8 * byte));
            }
            uint64_t sum = tpw_digest_block(KEY_KV_63, block + 1, (tpw_dtype)d, 3, 5, 6, ((uint64_t)1 << 40) + 7, 1000);
            cr_expect_eq(sum, expected[d], "%s: %016jx", tpw_dtype_name((tpw_dtype)d), (uintmax_t)sum);
            free(block);
        }
    }
}

Test(digest, indices_wrap_at_64_bits)
{
    const float ones[4] = {1, 1, 1, 1};
    cr_assert_eq(tpw_digest_block(KEY_KV_63, ones, TPW_F32, 1, 4, 4, UINT64_MAX - 1, 0), 0x0CC21013E16FD5D5ull);
}

Test(digest, empty_blocks_are_zero)
{
    const float x = 1;
    for (int64_t n = -1; n <= 1; n++) {
        if (n == 1)
            continue;
        cr_assert_eq(tpw_digest_block(1, NULL, TPW_F32, n, 5, 5, 0, 0), 0);
        cr_assert_eq(tpw_digest_block(1, NULL, TPW_F32, 5, n, 5, 0, 0), 0);
    }
    cr_assert_neq(tpw_digest_block(1, &x, TPW_F32, 1, 1, 1, 0, 0), 0);
    cr_assert_eq(tpw_digest_block(1, &x, TPW_DTYPE_COUNT, 1, 1, 1, 0, 0), 0);
}

/* Every instruction set that this CPU has, against terms one by one: all lengths around the lanes, unaligned, to the last byte. */
Test(digest, rows_are_the_same_in_every_instruction_set)
{
    tpw_digest_row_fn *const sets[] = {tpw_digest_row_baseline(), tpw_digest_row_avx2(), tpw_digest_row_avx512()};
    uint64_t state = 4;
    int64_t compared = 0, there = 0;
    cr_assert_not_null(sets[0]);
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++)
        there += sets[s] != NULL;
    for (int64_t n = 0; n <= 70; n++) {
        for (size_t size = 1; size <= 8; size *= 2) {
            size_t shift = ref_random(&state) % 9;
            uint64_t key = ref_random(&state), step = n % 2 == 0 ? TPW_DIGEST_STEP : ref_random(&state), expected = 0;
            unsigned char *block = malloc(shift + (size_t)n * size + (n == 0)); /* nothing behind it to read */
            cr_assert_not_null(block);
            for (size_t i = 0; i < shift + (size_t)n * size; i++)
                block[i] = (unsigned char)(ref_random(&state) >> 56);
            for (int64_t i = 0; i < n; i++) {
                uint64_t bits = 0;
                for (size_t byte = 0; byte < size; byte++)
                    bits |= (uint64_t)block[shift + (size_t)i * size + byte] << (8 * byte);
                expected += tpw_digest_fin((key + (uint64_t)i * step) ^ bits);
            }
            for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
                if (sets[s] == NULL)
                    continue;
                cr_assert_eq(sets[s](key, step, block + shift, size, n), expected, "set %zu, %jd elements of %zu", s,
                             (intmax_t)n, size);
                cr_assert_eq(sets[s](key, step, block + shift, 3, n), 0u, "no such size");
                compared++;
            }
            free(block);
        }
    }
    cr_assert_eq(compared, there * 71 * 4);
}

/* Blocks without gaps are taken as one row, columns too: index and place of every element stay. */
Test(digest, shapes_are_terms_one_by_one)
{
    uint64_t state = 5;
    int64_t compared = 0;
    for (int64_t rows = 1; rows <= 40; rows += 3) {
        for (int64_t cols = 1; cols <= 5; cols += 2) {
            for (int64_t gap = 0; gap < 2; gap++) {
                const uint64_t strides[] = {(uint64_t)cols, 0, 1, 7, ref_random(&state)};
                uint16_t data[40 * 6];
                for (size_t i = 0; i < sizeof data / sizeof data[0]; i++)
                    data[i] = (uint16_t)(ref_random(&state) >> 48);
                for (size_t s = 0; s < sizeof strides / sizeof strides[0]; s++) {
                    uint64_t index0 = ref_random(&state), expected = 0;
                    for (int64_t r = 0; r < rows; r++)
                        for (int64_t c = 0; c < cols; c++)
                            expected += tpw_digest_term(9, index0 + (uint64_t)r * strides[s] + (uint64_t)c,
                                                        data[r * (cols + gap) + c]);
                    cr_assert_eq(tpw_digest_block(9, data, TPW_BF16, rows, cols, cols + gap, index0, strides[s]),
                                 expected, "[%jd, %jd], gap %jd, stride %zu", (intmax_t)rows, (intmax_t)cols,
                                 (intmax_t)gap, s);
                    compared++;
                }
            }
        }
    }
    cr_assert_eq(compared, 14 * 3 * 2 * 5);
}

/* A matrix of random bytes with rows of `stride` elements. */
static unsigned char *random_matrix(size_t bytes, uint64_t *state)
{
    unsigned char *data = malloc(bytes);
    cr_assert_not_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(ref_random(state) >> 56);
    return data;
}

/* Cuts [row, row+rows) x [col, col+cols) into random parts until they are small, and adds their digests. */
static uint64_t sum_of_shards(uint64_t key, const unsigned char *data, tpw_dtype dtype, int64_t row, int64_t rows,
                              int64_t col, int64_t cols, int64_t stride, uint64_t *state)
{
    bool split_rows = rows > 1 && (cols <= 1 || ref_random(state) >> 63 == 0);
    if ((rows <= 1 && cols <= 1) || ref_random(state) >> 61 == 0) {
        const unsigned char *at = data + (row * stride + col) * (int64_t)sizes[dtype];
        return tpw_digest_block(key, at, dtype, rows, cols, stride, (uint64_t)(row * stride + col), (uint64_t)stride);
    }
    int64_t whole = split_rows ? rows : cols;
    int64_t part = 1 + (int64_t)(ref_random(state) >> 33) % (whole - 1);
    if (split_rows)
        return sum_of_shards(key, data, dtype, row + part, rows - part, col, cols, stride, state) +
               sum_of_shards(key, data, dtype, row, part, col, cols, stride, state);
    return sum_of_shards(key, data, dtype, row, rows, col, part, stride, state) +
           sum_of_shards(key, data, dtype, row, rows, col + part, cols - part, stride, state);
}

Test(digest, adds_up_over_random_shards)
{
    const int64_t shapes[][2] = {{1, 1}, {1, 33}, {33, 1}, {7, 13}, {31, 8}, {16, 64}};
    uint64_t state = 99;
    for (int d = 0; d < TPW_DTYPE_COUNT; d++) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            int64_t rows = shapes[s][0], cols = shapes[s][1];
            unsigned char *data = random_matrix((size_t)(rows * cols) * sizes[d], &state);
            uint64_t key = ref_random(&state);
            uint64_t whole = tpw_digest_block(key, data, (tpw_dtype)d, rows, cols, cols, 0, (uint64_t)cols);
            for (int round = 0; round < 50; round++) {
                uint64_t sum = sum_of_shards(key, data, (tpw_dtype)d, 0, rows, 0, cols, cols, &state);
                cr_assert_eq(sum, whole, "%s [%jd, %jd]", tpw_dtype_name((tpw_dtype)d), (intmax_t)rows, (intmax_t)cols);
            }
            free(data);
        }
    }
}

Test(digest, any_single_changed_element_is_found)
{
    enum { ROWS = 3, COLS = 7, CASES = 150000 };
    uint64_t state = 2026;
    int found = 0;
    for (int d = 0; d < TPW_DTYPE_COUNT; d++) {
        size_t size = sizes[d];
        unsigned char *data = random_matrix(ROWS * COLS * size, &state);
        for (int i = 0; i < CASES; i++) {
            uint64_t key = ref_random(&state);
            uint64_t index0 = ref_random(&state) >> (i % 64);
            uint64_t before = tpw_digest_block(key, data, (tpw_dtype)d, ROWS, COLS, COLS, index0, COLS);
            size_t at = (size_t)(ref_random(&state) >> 33) % (ROWS * COLS) * size;
            uint64_t bit = ref_random(&state) >> 58;
            uint64_t change = i % 2 == 0 ? (uint64_t)1 << bit % (8 * size) : ref_random(&state);
            bool changed = false;
            for (size_t b = 0; b < size; b++) {
                changed |= (unsigned char)(change >> (8 * b)) != 0;
                data[at + b] ^= (unsigned char)(change >> (8 * b));
            }
            uint64_t after = tpw_digest_block(key, data, (tpw_dtype)d, ROWS, COLS, COLS, index0, COLS);
            cr_assert_eq(before != after, changed, "%s, change %016jx", tpw_dtype_name((tpw_dtype)d),
                         (uintmax_t)change);
            found += changed;
        }
        free(data);
    }
    cr_assert_gt(found, 1000000);
}

static void swap_elements(unsigned char *data, size_t size, size_t a, size_t b)
{
    unsigned char keep[8];
    memcpy(keep, data + a * size, size);
    memcpy(data + a * size, data + b * size, size);
    memcpy(data + b * size, keep, size);
}

/* A matrix of distinct elements: index + 1 in the low bytes, so that every swap changes something. */
static unsigned char *distinct_matrix(size_t count, size_t size)
{
    unsigned char *data = calloc(count, size);
    cr_assert_not_null(data);
    for (size_t i = 0; i < count; i++) {
        for (size_t b = 0; b < size && b < 2; b++)
            data[i * size + b] = (unsigned char)((i + 1) >> (8 * b));
    }
    return data;
}

Test(digest, swapped_neighbours_rows_and_blocks_are_found)
{
    enum { ROWS = 15, COLS = 17, COUNT = ROWS * COLS };
    for (int d = 0; d < TPW_DTYPE_COUNT; d++) {
        size_t size = sizes[d];
        unsigned char *data = distinct_matrix(COUNT, size); /* 255 elements: distinct even in one byte */
        uint64_t whole = tpw_digest_block(KEY_KV_63, data, (tpw_dtype)d, ROWS, COLS, COLS, 0, COLS);
        for (size_t i = 0; i + 1 < COUNT; i++) {
            swap_elements(data, size, i, i + 1);
            uint64_t swapped = tpw_digest_block(KEY_KV_63, data, (tpw_dtype)d, ROWS, COLS, COLS, 0, COLS);
            cr_assert_neq(swapped, whole, "%s: neighbours at %zu", tpw_dtype_name((tpw_dtype)d), i);
            swap_elements(data, size, i, i + 1);
        }
        for (size_t pair = 0; pair < ROWS * ROWS; pair++) {
            size_t a = pair / ROWS, b = pair % ROWS;
            for (size_t c = 0; a < b && c < COLS; c++)
                swap_elements(data, size, a * COLS + c, b * COLS + c);
            uint64_t swapped = tpw_digest_block(KEY_KV_63, data, (tpw_dtype)d, ROWS, COLS, COLS, 0, COLS);
            cr_assert_eq(swapped != whole, a < b, "%s: rows %zu and %zu", tpw_dtype_name((tpw_dtype)d), a, b);
            for (size_t c = 0; a < b && c < COLS; c++)
                swap_elements(data, size, a * COLS + c, b * COLS + c);
        }
        /* both diagonals of every 2 x 2 block: row and column sums stay, a plain checksum would not see it */
        for (size_t i = 0; i + COLS + 1 < COUNT; i++) {
            swap_elements(data, size, i, i + COLS + 1);
            swap_elements(data, size, i + 1, i + COLS);
            uint64_t swapped = tpw_digest_block(KEY_KV_63, data, (tpw_dtype)d, ROWS, COLS, COLS, 0, COLS);
            cr_assert_neq(swapped, whole, "%s: block at %zu", tpw_dtype_name((tpw_dtype)d), i);
            swap_elements(data, size, i + 1, i + COLS);
            swap_elements(data, size, i, i + COLS + 1);
        }
        free(data);
    }
}

/* Sign flips and equal bit flips in equal data are the double errors that weak mixers lose. */
Test(digest, double_flips_in_equal_data_are_found)
{
    enum { N = 96 };
    uint32_t data[N];
    for (int i = 0; i < N; i++)
        data[i] = 0x3F800000;
    uint64_t whole = tpw_digest_block(KEY_RECURRENT_0, data, TPW_F32, 1, N, N, 0, 0);
    for (int bit = 0; bit < 32; bit += 31) {
        for (int a = 0; a < N; a++) {
            for (int b = a + 1; b < N; b++) {
                data[a] ^= (uint32_t)1 << bit;
                data[b] ^= (uint32_t)1 << bit;
                cr_assert_neq(tpw_digest_block(KEY_RECURRENT_0, data, TPW_F32, 1, N, N, 0, 0), whole);
                data[a] ^= (uint32_t)1 << bit;
                data[b] ^= (uint32_t)1 << bit;
            }
        }
    }
}

Test(digest, key_and_index_matter)
{
    const uint16_t data[3] = {0x3F80, 0x3F80, 0x3F80};
    uint64_t base = tpw_digest_block(KEY_KV_63, data, TPW_BF16, 1, 3, 3, 0, 0);
    cr_assert_neq(base, tpw_digest_block(KEY_RECURRENT_0, data, TPW_BF16, 1, 3, 3, 0, 0));
    cr_assert_neq(base, tpw_digest_block(KEY_KV_63, data, TPW_BF16, 1, 3, 3, 1, 0));
    cr_assert_neq(base, tpw_digest_block(KEY_KV_63, data, TPW_BF16, 3, 1, 1, 0, 2));
    cr_assert_eq(base, tpw_digest_block(KEY_KV_63, data, TPW_F16, 3, 1, 1, 0, 1), "same bits, same indices");
}

/* Rows that lie backwards in memory (negative stride) are the same elements. */
Test(digest, negative_stride)
{
    const uint16_t up[6] = {1, 2, 3, 4, 5, 6}, down[6] = {4, 5, 6, 1, 2, 3};
    cr_assert_eq(tpw_digest_block(7, up, TPW_F16, 2, 3, 3, 11, 3),
                 tpw_digest_block(7, down + 3, TPW_F16, 2, 3, -3, 11, 3));
}
