/* Tests src/model/utf8_stream.c: every split of a stream gives what Python's decode(errors="replace") gives for the whole.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer.h"

#define R "\xEF\xBF\xBD"

typedef struct sample {
    const char *in;
    size_t bytes;
    const char *out;
    size_t out_bytes;
    int bad_at; /* first invalid byte, -1: valid */
} sample;

#define SAMPLE(in, out, bad_at)                        \
    {                                                  \
        in, sizeof in - 1, out, sizeof out - 1, bad_at \
    }

/* outputs were made with Python's bytes.decode("utf-8", errors="replace") */
static const sample samples[] = {
    SAMPLE("", "", -1),
    SAMPLE("plain", "plain", -1),
    SAMPLE("a\0b", "a\0b", -1),
    SAMPLE("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", -1),
    SAMPLE("\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF", "\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF", -1),
    SAMPLE("\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", -1),
    SAMPLE("\xED\x9F\xBF\xEE\x80\x80", "\xED\x9F\xBF\xEE\x80\x80", -1),
    SAMPLE("\x80", R, 0),
    SAMPLE("a\xBF\xBFz", "a" R R "z", 1),
    SAMPLE("\xC0\x80", R R, 0),                     /* overlong */
    SAMPLE("\xC1\xBF", R R, 0),                     /* overlong */
    SAMPLE("\xE0\x80\x80", R R R, 0),               /* overlong */
    SAMPLE("\xE0\x9F\xBF", R R R, 0),               /* overlong */
    SAMPLE("\xF0\x8F\xBF\xBF", R R R R, 0),         /* overlong */
    SAMPLE("\xED\xA0\x80", R R R, 0),               /* surrogate */
    SAMPLE("ok\xED\xBF\xBFok", "ok" R R R "ok", 2), /* surrogate */
    SAMPLE("\xF4\x90\x80\x80", R R R R, 0),         /* past U+10FFFF */
    SAMPLE("\xF5\x80\x80\x80", R R R R, 0),
    SAMPLE("\xFE\xFF", R R, 0),
    SAMPLE("\xE2\x82", R, 0), /* cut at the end: one replacement */
    SAMPLE("\xF0\x9F\x98", R, 0),
    SAMPLE("\xF0\x9F", R, 0),
    SAMPLE("\xF0", R, 0),
    SAMPLE("x\xC3", "x" R, 1),
    SAMPLE("\xE2\x82z", R "z", 0), /* the longest valid beginning is one replacement */
    SAMPLE("\xF0\x9F\x98z", R "z", 0),
    SAMPLE("\xF0\x9F\xF0\x9F\x98\x80", R "\xF0\x9F\x98\x80", 0),
    SAMPLE("\xE2\xC3\xA9", R "\xC3\xA9", 0),
    SAMPLE("\xE2\xE2\x82\xAC\xE2", R "\xE2\x82\xAC" R, 0),
    SAMPLE("\xF1\x80\x80\xE1\x80\xC2\x41", R R R "A", 0),
    SAMPLE("\xC3\xA9\xC3\x28\xA9", "\xC3\xA9" R "(" R, 2),
};

#define SAMPLES (sizeof samples / sizeof *samples)

static void check_split(const sample *s, const size_t *cuts, size_t cut_count)
{
    tpw_utf8_stream stream = {0};
    char *out = malloc(3 * (s->bytes + 4) + 12);
    size_t written = 0, at = 0;
    for (size_t i = 0; i <= cut_count; i++) {
        size_t end = i < cut_count ? cuts[i] : s->bytes;
        size_t before = written;
        /* a block of exactly the promised capacity, so that the sanitizer sees a byte too many */
        char *part = malloc(3 * (end - at + 4));
        size_t got = tpw_utf8_push(&stream, s->in + at, end - at, part);
        cr_assert_leq(got, 3 * (end - at + 4));
        memcpy(out + before, part, got);
        free(part);
        written += got;
        size_t bad_at;
        cr_assert(tpw_utf8_valid(out, written, &bad_at), "sample %td shows half a character", s - samples);
        at = end;
    }
    written += tpw_utf8_finish(&stream, out + written);
    cr_assert_eq(written, s->out_bytes, "sample %td: %zu bytes instead of %zu", s - samples, written, s->out_bytes);
    cr_assert_eq(memcmp(out, s->out, written), 0, "sample %td", s - samples);
    cr_assert_eq(stream.held_count, 0);
    free(out);
}

Test(utf8_stream, every_split_in_two_and_three)
{
    size_t checked = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        for (size_t a = 0; a <= samples[i].bytes; a++) {
            for (size_t b = a; b <= samples[i].bytes; b++) {
                check_split(&samples[i], (const size_t[]){a, b}, 2);
                checked++;
            }
        }
    }
    cr_assert_gt(checked, 400u);
}

Test(utf8_stream, byte_by_byte)
{
    size_t cuts[32];
    for (size_t i = 0; i < 32; i++)
        cuts[i] = i + 1;
    for (size_t i = 0; i < SAMPLES; i++)
        check_split(&samples[i], cuts, samples[i].bytes > 0 ? samples[i].bytes - 1 : 0);
}

Test(utf8_stream, holds_back_until_the_character_is_whole)
{
    tpw_utf8_stream stream = {0};
    char out[24];
    cr_assert_eq(tpw_utf8_push(&stream, "\xF0\x9F", 2, out), 0u);
    cr_assert_eq(tpw_utf8_push(&stream, "\x98", 1, out), 0u);
    cr_assert_eq(tpw_utf8_push(&stream, "\x80", 1, out), 4u);
    cr_assert_eq(memcmp(out, "\xF0\x9F\x98\x80", 4), 0);
    cr_assert_eq(tpw_utf8_finish(&stream, out), 0u);
}

Test(utf8_stream, usable_again_after_finish)
{
    tpw_utf8_stream stream = {0};
    char out[24];
    cr_assert_eq(tpw_utf8_push(&stream, "\xE2\x82", 2, out), 0u);
    cr_assert_eq(tpw_utf8_finish(&stream, out), 3u);
    cr_assert_eq(tpw_utf8_push(&stream, "\xAC", 1, out), 3u, "the byte belongs to no character any more");
    cr_assert_eq(memcmp(out, R, 3), 0);
    cr_assert_eq(tpw_utf8_push(&stream, "a", 1, out), 1u);
}

Test(utf8_stream, worst_case_fits_the_capacity)
{
    char in[64], out[3 * (64 + 4)];
    memset(in, 0xFF, sizeof in);
    tpw_utf8_stream stream = {0};
    char first[3 * (3 + 4)];
    cr_assert_eq(tpw_utf8_push(&stream, "\xF1\x80\x80", 3, first), 0u);
    cr_assert_eq(tpw_utf8_push(&stream, in, sizeof in, out), 3 * (64 + 1));
}

Test(utf8_valid, names_the_first_bad_byte)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t bad_at = 12345;
        bool valid = tpw_utf8_valid(samples[i].in, samples[i].bytes, &bad_at);
        cr_assert_eq(valid, samples[i].bad_at < 0, "sample %zu", i);
        cr_assert_eq(bad_at, valid ? 12345u : (size_t)samples[i].bad_at, "sample %zu", i);
    }
}

/* Every code point, encoded here by the definition, is valid; every surrogate is not. */
Test(utf8_valid, all_code_points)
{
    for (unsigned c = 0x80; c <= 0x10FFFF; c++) {
        char text[4];
        size_t bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4, bad_at;
        for (size_t i = bytes - 1; i > 0; i--)
            text[i] = (char)(0x80 | ((c >> (6 * (bytes - 1 - i))) & 0x3F));
        text[0] = (char)((bytes == 2 ? 0xC0u : bytes == 3 ? 0xE0u : 0xF0u) | c >> (6 * (bytes - 1)));
        bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        cr_assert_eq(tpw_utf8_valid(text, bytes, &bad_at), !surrogate, "U+%04X", c);
    }
}
