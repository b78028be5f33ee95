/* UTF-8 byte by byte: which bytes may follow which, a stream that never shows half a character, and a validity check.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer.h"

#include <string.h>

/* Bytes of the character that `lead` starts; 0 when no character starts so (80..C1 and F5..FF). */
static int character_bytes(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2)
        return 0;
    if (lead < 0xE0)
        return 2;
    if (lead < 0xF0)
        return 3;
    return lead < 0xF5 ? 4 : 0;
}

/* May `byte` be the byte number `at` (1, 2 or 3) of the character that `lead` starts? The first one after the lead is
 * where overlong forms, surrogates and values past U+10FFFF are excluded. */
static bool may_follow(unsigned char lead, int at, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xBF;
    if (at == 1) {
        if (lead == 0xE0)
            low = 0xA0;
        else if (lead == 0xED)
            high = 0x9F;
        else if (lead == 0xF0)
            low = 0x90;
        else if (lead == 0xF4)
            high = 0x8F;
    }
    return byte >= low && byte <= high;
}

static size_t put_replacement(char *out)
{
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

size_t tpw_utf8_push(tpw_utf8_stream *stream, const char *data, size_t bytes, char *out)
{
    unsigned char *held = stream->held;
    unsigned count = (unsigned)stream->held_count & 3; /* an unfinished character has at most three bytes */
    size_t written = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)data[i];
        if (count > 0 && !may_follow(held[0], (int)count, byte)) {
            /* what was held is one broken character, and this byte starts afresh */
            written += put_replacement(out + written);
            count = 0;
        }
        if (count == 0 && character_bytes(byte) == 0) {
            written += put_replacement(out + written);
            continue;
        }
        held[count++] = byte;
        if (count == (unsigned)character_bytes(held[0])) {
            memcpy(out + written, held, count);
            written += count;
            count = 0;
        }
    }
    stream->held_count = (int)count;
    return written;
}

size_t tpw_utf8_finish(tpw_utf8_stream *stream, char *out)
{
    if (stream->held_count == 0)
        return 0;
    stream->held_count = 0;
    return put_replacement(out);
}

bool tpw_utf8_valid(const char *data, size_t bytes, size_t *bad_at)
{
    for (size_t i = 0; i < bytes;) {
        unsigned char lead = (unsigned char)data[i];
        int length = character_bytes(lead);
        bool good = length > 0 && (size_t)length <= bytes - i;
        for (int at = 1; good && at < length; at++)
            good = may_follow(lead, at, (unsigned char)data[i + (size_t)at]);
        if (!good) {
            *bad_at = i;
            return false;
        }
        i += (size_t)length;
    }
    return true;
}
