/* Replaces a file as a whole: readers see the old text or the new one, never a part. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_REPLACE_FILE_H
#define TPW_CLI_REPLACE_FILE_H

#include "base/error.h"

/* Writes `text` to a temporary file in the same folder, syncs it, and renames it to `path`. `what` is what messages call it: "the
 * metrics file". ERR_IO, also when `path` is there and no regular file (a rename would replace a device); then nothing is left
 * behind. Local. */
tpw_status tpw_file_replace(const char *path, const char *what, const char *text, tpw_error *err) TPW_MUST_CHECK;

#endif
