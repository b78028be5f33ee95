/* Error text: formatting, prefixing, and keeping it one clean line. SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PREFIX_MAX (TPW_ERROR_TEXT_MAX / 2)

void tpw_text_clean(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        if (*at < 0x20 || *at == 0x7F) {
            *at = ' ';
        } else if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] <= 0x9F) {
            /* U+0080..U+009F: some terminals obey these as they obey escape sequences */
            at[0] = ' ';
            at[1] = ' ';
        }
    }
}

size_t tpw_text_cut(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        unsigned char byte = at[bytes - back];
        if (byte < 0x80)
            return bytes;
        if (byte < 0xC0)
            continue; /* inside a character: its first byte is further to the front */
        size_t whole = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
        return back < whole ? bytes - back : bytes;
    }
    return bytes;
}

/* What vsnprintf left in a buffer of `room` bytes when it returned `wanted` >= 0: the length to keep. */
static size_t kept_length(const char *text, int wanted, size_t room)
{
    if ((size_t)wanted < room)
        return (size_t)wanted;
    return tpw_text_cut(text, room - 1);
}

tpw_status tpw_fail(tpw_error *err, tpw_status status, const char *format, ...)
{
    if (err == NULL)
        return status;

    char line[TPW_ERROR_TEXT_MAX]; /* not err->text: the arguments may point into it */
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (wanted < 0)
        wanted = snprintf(line, sizeof line, "%s", tpw_status_text(status));
    line[kept_length(line, wanted, sizeof line)] = '\0';
    tpw_text_clean(line);

    err->status = status;
    memcpy(err->text, line, strlen(line) + 1);
    return status;
}

void tpw_error_prefix(tpw_error *err, const char *format, ...)
{
    if (err == NULL)
        return;

    char line[TPW_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(line, PREFIX_MAX, format, args);
    va_end(args);
    if (wanted < 0)
        return; /* an unprintable prefix must not cost the message itself */
    size_t length = kept_length(line, wanted, PREFIX_MAX);
    line[length++] = ':';
    line[length++] = ' ';

    size_t room = sizeof line - 1 - length;
    size_t text_bytes = strnlen(err->text, sizeof err->text);
    if (text_bytes > room)
        text_bytes = tpw_text_cut(err->text, room);
    memcpy(line + length, err->text, text_bytes);
    line[length + text_bytes] = '\0';
    tpw_text_clean(line);
    memcpy(err->text, line, length + text_bytes + 1);
}
