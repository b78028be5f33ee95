/* Which model folder to use when none is named. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_MODEL_PATH_H
#define TPW_CLI_MODEL_PATH_H

#include <stddef.h>

#include "base/error.h"

/* The first of `folders` that holds a readable config.json, borrowed. ERR_MISSING lists where was looked. Local. */
tpw_status tpw_model_path_first(const char *const *folders, size_t count, const char **out,
                                tpw_error *err) TPW_MUST_CHECK;

/* The pocket model: the installed one, else the one of the source tree that this was built from. Local. */
tpw_status tpw_model_path_pocket(const char **out, tpw_error *err) TPW_MUST_CHECK;

/* ERR_MISSING, naming the file, when `folder` holds no readable config.json: the cheap part of opening a model. Local. */
tpw_status tpw_model_path_check(const char *folder, tpw_error *err) TPW_MUST_CHECK;

#endif
