/* Strict JSON: whole files and buffers to one object, and typed reads whose errors name the file and the key.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"

#define SHOWN_MAX 60 /* bytes of a refused value that an error repeats */

tpw_status tpw_json_parse(const char *text, size_t bytes, const char *what, json_t **out, tpw_error *err)
{
    /* Jansson skips leading blanks; a header or config that begins with them was not written by any known tool. */
    if (!text || bytes == 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: empty where a JSON object was expected", what);
    if (text[0] != '{')
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: a JSON object must begin with '{', found byte 0x%02x", what,
                        (unsigned char)text[0]);
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        if (json_error_code(&error) == json_error_out_of_memory)
            return tpw_fail(err, TPW_ERR_MEMORY, "%s: out of memory while parsing %zu bytes of JSON", what, bytes);
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: not valid JSON at line %d, column %d: %s", what, error.line,
                        error.column, error.text);
    }
    *out = root;
    return TPW_OK;
}

/* Opens without waiting (a FIFO must be refused, not waited for) and learns the size of a regular file. */
static tpw_status open_regular(const char *path, int *fd_out, size_t *bytes, tpw_error *err)
{
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        bool missing = errno == ENOENT || errno == ENOTDIR;
        return tpw_fail(err, missing ? TPW_ERR_MISSING : TPW_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    struct stat info;
    if (fstat(fd, &info) != 0) {
        int code = errno;
        close(fd);
        return tpw_fail(err, TPW_ERR_IO, "%s: cannot be examined: %s", path, strerror(code));
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: not a regular file", path);
    }
    *fd_out = fd;
    *bytes = (size_t)info.st_size;
    return TPW_OK;
}

static tpw_status read_all(int fd, const char *path, char *buffer, size_t bytes, tpw_error *err)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, buffer + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tpw_fail(err, TPW_ERR_IO, "%s: read failed at byte %zu: %s", path, done, strerror(errno));
        if (got == 0)
            return tpw_fail(err, TPW_ERR_IO, "%s: ended at byte %zu of %zu: the file was cut while it was read", path,
                            done, bytes);
        done += (size_t)got;
    }
    return TPW_OK;
}

tpw_status tpw_file_read(const char *path, size_t bytes_max, char **out, size_t *bytes, tpw_error *err)
{
    tpw_status st;
    int fd = -1;
    char *buffer = NULL;
    size_t size = 0;
    size_t room = 0;
    TPW_TRY(open_regular(path, &fd, &size, err));
    if (size > bytes_max) {
        st = tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: %zu bytes, more than the %zu allowed for this file", path, size,
                      bytes_max);
        goto close_file;
    }
    if (!tpw_add_size(size, 1, &room) || !(buffer = malloc(room))) {
        st = tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for its %zu bytes", path, size);
        goto close_file;
    }
    st = read_all(fd, path, buffer, size, err);
    if (st != TPW_OK) {
        free(buffer);
        goto close_file;
    }
    buffer[size] = '\0';
    *out = buffer;
    *bytes = size;
close_file:
    close(fd);
    return st;
}

tpw_status tpw_json_load(const char *path, size_t bytes_max, json_t **out, tpw_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    TPW_TRY(tpw_file_read(path, bytes_max, &text, &bytes, err));
    tpw_status st = tpw_json_parse(text, bytes, path, out, err);
    free(text);
    return st;
}

/* A short picture of a refused value, cut between characters. */
static void show(const json_t *value, char *text, size_t room)
{
    switch (json_typeof(value)) {
    case JSON_STRING: {
        const char *s = json_string_value(value);
        size_t length = json_string_length(value);
        size_t shown = length < SHOWN_MAX ? length : SHOWN_MAX;
        while (shown < length && shown > 0 && ((unsigned char)s[shown] & 0xC0u) == 0x80u)
            shown--;
        snprintf(text, room, "\"%.*s%s\"", (int)shown, s, shown < length ? "..." : "");
        break;
    }
    case JSON_INTEGER:
        snprintf(text, room, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(text, room, "the real number %.17g", json_real_value(value));
        break;
    case JSON_OBJECT:
        snprintf(text, room, "an object");
        break;
    case JSON_ARRAY:
        snprintf(text, room, "a list");
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(text, room, "%s", json_is_true(value) ? "true" : "false");
        break;
    default:
        snprintf(text, room, "null");
        break;
    }
}

/* What every typed read begins with. *value is NULL when the key may be and is absent. */
static tpw_status find(const json_t *object, const char *key, bool required, const char *what, const char *wanted,
                       const json_t **value, tpw_error *err)
{
    *value = json_object_get(object, key);
    if (*value && json_is_null(*value))
        *value = NULL;
    if (!*value && required)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"%s\" is missing; it must be %s", what, key, wanted);
    return TPW_OK;
}

static tpw_status refuse(const json_t *value, const char *key, const char *what, const char *wanted, tpw_error *err)
{
    char shown[SHOWN_MAX + 40];
    show(value, shown, sizeof shown);
    return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"%s\" must be %s, found %s", what, key, wanted, shown);
}

tpw_status tpw_json_int(const json_t *object, const char *key, bool required, int64_t low, int64_t high,
                        const char *what, int64_t *out, tpw_error *err)
{
    char wanted[80];
    const json_t *value;
    snprintf(wanted, sizeof wanted, "an integer in %lld..%lld", (long long)low, (long long)high);
    TPW_TRY(find(object, key, required, what, wanted, &value, err));
    if (!value)
        return TPW_OK;
    int64_t number = json_is_integer(value) ? (int64_t)json_integer_value(value) : 0;
    if (!json_is_integer(value) || number < low || number > high)
        return refuse(value, key, what, wanted, err);
    *out = number;
    return TPW_OK;
}

tpw_status tpw_json_real(const json_t *object, const char *key, bool required, const char *what, double *out,
                         tpw_error *err)
{
    const json_t *value;
    TPW_TRY(find(object, key, required, what, "a number", &value, err));
    if (!value)
        return TPW_OK;
    if (!json_is_number(value))
        return refuse(value, key, what, "a number", err);
    *out = json_number_value(value);
    return TPW_OK;
}

tpw_status tpw_json_bool(const json_t *object, const char *key, bool required, const char *what, bool *out,
                         tpw_error *err)
{
    const json_t *value;
    TPW_TRY(find(object, key, required, what, "true or false", &value, err));
    if (!value)
        return TPW_OK;
    if (!json_is_boolean(value))
        return refuse(value, key, what, "true or false", err);
    *out = json_is_true(value);
    return TPW_OK;
}

tpw_status tpw_json_string(const json_t *object, const char *key, bool required, const char *what, const char **out,
                           tpw_error *err)
{
    const json_t *value;
    TPW_TRY(find(object, key, required, what, "a string", &value, err));
    if (!value)
        return TPW_OK;
    if (!json_is_string(value))
        return refuse(value, key, what, "a string", err);
    *out = json_string_value(value);
    return TPW_OK;
}
