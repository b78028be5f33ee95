/* Looks for the pocket model. SPDX-License-Identifier: Apache-2.0 */
#include "cli/model_path.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool holds_config(const char *folder)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/config.json", folder);
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    return access(path, R_OK) == 0;
}

tpw_status tpw_model_path_first(const char *const *folders, size_t count, const char **out, tpw_error *err)
{
    char looked[TPW_ERROR_TEXT_MAX / 2] = "";
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (holds_config(folders[i])) {
            *out = folders[i];
            return TPW_OK;
        }
        if (at < sizeof looked)
            at += (size_t)snprintf(looked + at, sizeof looked - at, "%s%s", i > 0 ? ", " : "", folders[i]);
    }
    return tpw_fail(err, TPW_ERR_MISSING,
                    "no model: give --model DIR or --dummy NAME (looked for the pocket model in %s)", looked);
}

tpw_status tpw_model_path_pocket(const char **out, tpw_error *err)
{
    static const char *const folders[] = {TPW_INSTALLED_POCKET, TPW_SOURCE_POCKET};
    return tpw_model_path_first(folders, sizeof folders / sizeof folders[0], out, err);
}

tpw_status tpw_model_path_check(const char *folder, tpw_error *err)
{
    if (holds_config(folder))
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_MISSING,
                    "%.300s/config.json: cannot be read (%s); --model must name a Hugging Face folder", folder,
                    strerror(errno));
}
