/* The weights file: digests of all tensors of a checkpoint as one JSON object, written by inspect, held against by run.
 *
 *   {"type":"weights","schema":1,"digest_version":1,"tensors":{"model.norm.weight":"16 hex digits", ...}}
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_WEIGHTS_FILE_H
#define TPW_CLI_WEIGHTS_FILE_H

#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "tpworker/worker.h"

#define TPW_WEIGHTS_SCHEMA 1

/* Puts the digests into the place of `path` in one move: a temporary file beside it, fsync, rename. ERR_IO names the file; then the
 * temporary file is gone and an old file stands. ERR_IO also when `path` is something other than a regular file. */
tpw_status tpw_weights_file_write(const char *path, const tpw_weight_digest *list, int32_t count,
                                  tpw_error *err) TPW_MUST_CHECK;

/* *out is an object of names and checked digest texts, the caller's to json_decref. ERR_MISSING, ERR_IO; ERR_CHECKPOINT for what is not
 * such a file, or one of another schema or digest version. */
tpw_status tpw_weights_file_read(const char *path, json_t **out, tpw_error *err) TPW_MUST_CHECK;

/* `list` in name order. ERR_DIVERGED names the first tensor, by name, that differs or is only on one side, and how many do. Pure. */
tpw_status tpw_weights_compare(const char *path, const json_t *expected, const tpw_weight_digest *list, int32_t count,
                               tpw_error *err) TPW_MUST_CHECK;

#endif
