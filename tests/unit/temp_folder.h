/* A temporary folder for tests that write files: made, filled and removed again. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_TEMP_FOLDER_H
#define TPW_TESTS_TEMP_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct temp_folder {
    char path[64];
    char file[512]; /* what temp_path gave last */
} temp_folder;

static inline void temp_make(temp_folder *temp)
{
    snprintf(temp->path, sizeof temp->path, "/tmp/tpw-test-XXXXXX");
    if (!mkdtemp(temp->path)) {
        perror("mkdtemp");
        abort();
    }
}

static inline const char *temp_path(temp_folder *temp, const char *name)
{
    snprintf(temp->file, sizeof temp->file, "%s/%s", temp->path, name);
    return temp->file;
}

static inline void temp_write(temp_folder *temp, const char *name, const void *data, size_t bytes)
{
    /* a new file each time: cutting and rewriting one makes some file systems write to disk at once */
    remove(temp_path(temp, name));
    FILE *file = fopen(temp->file, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(temp->file);
        abort();
    }
}

static inline void temp_write_text(temp_folder *temp, const char *name, const char *text)
{
    temp_write(temp, name, text, strlen(text));
}

static inline void temp_remove(temp_folder *temp)
{
    DIR *folder = opendir(temp->path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove(temp_path(temp, entry->d_name));
    }
    if (folder)
        closedir(folder);
    rmdir(temp->path);
}

#endif
