/* What a checkpoint is made of: shared by the file that opens it and the file that reads it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_CHECKPOINT_STATE_H
#define TPW_MODEL_CHECKPOINT_STATE_H

#include "model/safetensors.h"

#define TPW_OPEN_FILES_MAX 8 /* a folder may have hundreds of files; few are read at a time */

typedef struct tpw_checkpoint_file {
    char *path;
    char *names; /* owned: entries point into it */
    size_t payload;
    size_t file_bytes;
} tpw_checkpoint_file;

typedef struct tpw_open_file {
    int fd; /* valid when last_use > 0 */
    int32_t file;
    uint64_t last_use;
} tpw_open_file;

struct tpw_checkpoint {
    char *path;         /* the folder, or "dummy" */
    tpw_entry *entries; /* in name order; source = index in files, or a dummy's role */
    int32_t count;
    bool dummy;
    tpw_checkpoint_file *files;
    int32_t files_count;
    char *dummy_names;
    tpw_open_file open[TPW_OPEN_FILES_MAX];
    uint64_t uses;
    int64_t bytes_read;
};

/* Closes the files that reads left open. */
void tpw_checkpoint_close_files(tpw_checkpoint *checkpoint);

#endif
