/* The only door to Jansson: strict parsing of untrusted JSON and typed reads with errors that name the key.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BASE_JSON_H
#define TPW_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Parses a whole buffer as one JSON object. Refused with ERR_CHECKPOINT and `what` (a file name, say) in the message:
 * duplicate keys, trailing bytes, a first byte other than '{', nesting beyond Jansson's limit, bad UTF-8.
 * *out is a new reference that the caller gives back with json_decref. */
tpw_status tpw_json_parse(const char *text, size_t bytes, const char *what, json_t **out,
                          tpw_error *err) TPW_MUST_CHECK;

/* Reads a whole regular file of at most bytes_max bytes. *out is malloc'ed, NUL-terminated, the caller's to free.
 * ERR_MISSING when it does not exist, ERR_IO on read errors, ERR_CHECKPOINT when too large or not a regular file. */
tpw_status tpw_file_read(const char *path, size_t bytes_max, char **out, size_t *bytes, tpw_error *err) TPW_MUST_CHECK;

/* Both of the above: `path` to a JSON object. */
tpw_status tpw_json_load(const char *path, size_t bytes_max, json_t **out, tpw_error *err) TPW_MUST_CHECK;

/* Typed reads of object[key]. A missing key or JSON null leaves *out unchanged when `required` is false; a value of another
 * type, or an integer outside [low, high], is ERR_CHECKPOINT: "<what>: key \"hidden_size\" must be an integer in 1..65536,
 * found \"abc\"". Reals may be given as integers; integers never as reals. */
tpw_status tpw_json_int(const json_t *object, const char *key, bool required, int64_t low, int64_t high,
                        const char *what, int64_t *out, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_json_real(const json_t *object, const char *key, bool required, const char *what, double *out,
                         tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_json_bool(const json_t *object, const char *key, bool required, const char *what, bool *out,
                         tpw_error *err) TPW_MUST_CHECK;
/* *out is borrowed from the object. */
tpw_status tpw_json_string(const json_t *object, const char *key, bool required, const char *what, const char **out,
                           tpw_error *err) TPW_MUST_CHECK;

#endif
