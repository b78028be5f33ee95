/* Opens a folder of safetensors files, or a dummy, as one sorted table of named tensors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/digest.h"
#include "base/json.h"
#include "model/checkpoint_state.h"
#include "model/dummy.h"

#define INDEX_BYTES_MAX ((size_t)256 << 20)
#define FILES_MAX       10000
#define FILE_NAME_MAX   255
#define INDEX_NAME      "model.safetensors.index.json"
#define SINGLE_NAME     "model.safetensors"

static int compare_name(const void *a, const void *b)
{
    return strcmp(((const tpw_entry *)a)->name, ((const tpw_entry *)b)->name);
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tpw_entry *find_entry(const tpw_checkpoint *checkpoint, const char *name)
{
    tpw_entry key = {.name = name};
    if (checkpoint->count == 0)
        return NULL;
    return bsearch(&key, checkpoint->entries, (size_t)checkpoint->count, sizeof key, compare_name);
}

static char *join_path(const char *folder, const char *name)
{
    size_t room;
    if (!tpw_add_size(strlen(folder), strlen(name), &room) || !tpw_add_size(room, 2, &room))
        return NULL;
    char *path = malloc(room);
    if (path)
        snprintf(path, room, "%s/%s", folder, name);
    return path;
}

/* Adds the tensors of one file to the table; the file keeps the names. checkpoint->files has room. */
static tpw_status add_file(tpw_checkpoint *checkpoint, const char *name, tpw_error *err)
{
    tpw_safetensors header;
    tpw_checkpoint_file *file = &checkpoint->files[checkpoint->files_count];
    file->path = join_path(checkpoint->path, name);
    if (!file->path)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory to open %s", checkpoint->path, name);
    tpw_status st = tpw_safetensors_init(&header, file->path, err);
    if (st != TPW_OK) {
        free(file->path);
        file->path = NULL;
        return st;
    }
    int32_t number = checkpoint->files_count++;
    file->names = header.names;
    file->payload = header.payload;
    file->file_bytes = header.file_bytes;

    int64_t total = (int64_t)checkpoint->count + header.count;
    size_t bytes = 0;
    tpw_entry *grown = NULL;
    if (total > TPW_TENSORS_MAX)
        st = tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: more than %d tensors", checkpoint->path, TPW_TENSORS_MAX);
    else if (tpw_mul_size((size_t)total + 1, sizeof *grown, &bytes))
        grown = realloc(checkpoint->entries, bytes);
    if (st == TPW_OK && !grown)
        st = tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for a table of %lld tensors", checkpoint->path,
                      (long long)total);
    if (st == TPW_OK) {
        checkpoint->entries = grown;
        for (int32_t i = 0; i < header.count; i++) {
            header.entries[i].source = number;
            grown[checkpoint->count++] = header.entries[i];
        }
    }
    free(header.entries);
    return st;
}

/* Sorts by name and refuses a name that two files have. */
static tpw_status sort_entries(tpw_checkpoint *checkpoint, tpw_error *err)
{
    tpw_entry *entries = checkpoint->entries;
    if (checkpoint->count > 0)
        qsort(entries, (size_t)checkpoint->count, sizeof entries[0], compare_name);
    for (int32_t i = 1; i < checkpoint->count; i++) {
        if (strcmp(entries[i - 1].name, entries[i].name) == 0)
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor %.200s is both in %s and in %s", checkpoint->path,
                            entries[i].name, strrchr(checkpoint->files[entries[i - 1].source].path, '/') + 1,
                            strrchr(checkpoint->files[entries[i].source].path, '/') + 1);
    }
    return TPW_OK;
}

/* The index is untrusted: a file name in it must not lead out of the folder. */
static tpw_status check_file_name(const json_t *value, const char *tensor, const char *index, tpw_error *err)
{
    static const char suffix[] = ".safetensors";
    const char *name = json_string_value(value);
    size_t length = name ? strlen(name) : 0;
    bool good = length > sizeof suffix - 1 && length <= FILE_NAME_MAX && !strchr(name, '/') && !strstr(name, "..") &&
                strcmp(name + length - (sizeof suffix - 1), suffix) == 0;
    if (good)
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_CHECKPOINT,
                    "%s: tensor %.200s: its file must be a plain name that ends in .safetensors, found \"%.80s\"",
                    index, tensor, name ? name : "(not a string)");
}

/* The different file names of weight_map, sorted. *names is malloc'ed, its strings belong to the map. */
static tpw_status list_files(json_t *map, const char *index, const char ***names, size_t *count, tpw_error *err)
{
    const char *tensor;
    json_t *value;
    size_t total = json_object_size(map);
    size_t unique = 0;
    if (total == 0 || total > TPW_TENSORS_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: names %zu tensors, 1..%d are allowed", index, total,
                        TPW_TENSORS_MAX);
    json_object_foreach(map, tensor, value) TPW_TRY(check_file_name(value, tensor, index, err));
    const char **list = malloc(total * sizeof *list);
    if (!list)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for %zu file names", index, total);
    total = 0;
    json_object_foreach(map, tensor, value) list[total++] = json_string_value(value);
    qsort(list, total, sizeof *list, compare_text);
    for (size_t i = 0; i < total; i++) {
        if (unique == 0 || strcmp(list[unique - 1], list[i]) != 0)
            list[unique++] = list[i];
    }
    if (unique > FILES_MAX) {
        free(list);
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: names %zu files, at most %d are supported", index, unique,
                        FILES_MAX);
    }
    *names = list;
    *count = unique;
    return TPW_OK;
}

/* Index and headers must name the same tensors in the same files. */
static tpw_status match_index(const tpw_checkpoint *checkpoint, json_t *map, const char *index, tpw_error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const tpw_entry *entry = find_entry(checkpoint, tensor);
        const char *wanted = json_string_value(value);
        if (!entry)
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor %.200s is not in the header of %s", index, tensor,
                            wanted);
        const char *found = strrchr(checkpoint->files[entry->source].path, '/') + 1;
        if (strcmp(found, wanted) != 0)
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor %.200s should be in %s but is in %s", index, tensor,
                            wanted, found);
    }
    for (int32_t i = 0; i < checkpoint->count; i++) {
        const tpw_entry *entry = &checkpoint->entries[i];
        if (!json_object_get(map, entry->name))
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor %.200s of %s is not in the index", index, entry->name,
                            strrchr(checkpoint->files[entry->source].path, '/') + 1);
    }
    return TPW_OK;
}

static tpw_status open_indexed(tpw_checkpoint *checkpoint, json_t *root, const char *index, tpw_error *err)
{
    size_t count = 0;
    const char **names = NULL;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: key \"weight_map\" must be an object", index);
    TPW_TRY(list_files(map, index, &names, &count, err));
    tpw_status st = TPW_OK;
    checkpoint->files = calloc(count, sizeof checkpoint->files[0]);
    if (!checkpoint->files)
        st = tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for a table of %zu files", index, count);
    for (size_t i = 0; st == TPW_OK && i < count; i++)
        st = add_file(checkpoint, names[i], err);
    free(names);
    TPW_TRY(st);
    TPW_TRY(sort_entries(checkpoint, err));
    return match_index(checkpoint, map, index, err);
}

static tpw_status open_single(tpw_checkpoint *checkpoint, tpw_error *err)
{
    tpw_error local = {0};
    checkpoint->files = calloc(1, sizeof checkpoint->files[0]);
    if (!checkpoint->files)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for a table of files", checkpoint->path);
    tpw_status st = add_file(checkpoint, SINGLE_NAME, &local);
    if (st == TPW_ERR_MISSING)
        return tpw_fail(err, st, "%s: no checkpoint here: neither " INDEX_NAME " nor " SINGLE_NAME, checkpoint->path);
    if (st != TPW_OK)
        return tpw_fail(err, st, "%s", local.text);
    return sort_entries(checkpoint, err);
}

static tpw_status open_folder(tpw_checkpoint *checkpoint, tpw_error *err)
{
    tpw_error local = {0};
    json_t *root = NULL;
    char *index = join_path(checkpoint->path, INDEX_NAME);
    if (!index)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory to open its index", checkpoint->path);
    tpw_status st = tpw_json_load(index, INDEX_BYTES_MAX, &root, &local);
    if (st == TPW_OK)
        st = open_indexed(checkpoint, root, index, err);
    else if (st == TPW_ERR_MISSING)
        st = open_single(checkpoint, err);
    else
        st = tpw_fail(err, st, "%s", local.text);
    json_decref(root);
    free(index);
    return st;
}

/* An empty checkpoint with a path. NULL when out of memory. */
static tpw_checkpoint *create(const char *path)
{
    tpw_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint)
        checkpoint->path = strdup(path);
    if (checkpoint && checkpoint->path)
        return checkpoint;
    free(checkpoint);
    return NULL;
}

tpw_status tpw_checkpoint_open(const char *folder, tpw_checkpoint **out, tpw_error *err)
{
    struct stat info;
    if (!folder || !out)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "checkpoint: NULL argument");
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
        return tpw_fail(err, TPW_ERR_MISSING, "%s: no such folder", folder);
    tpw_checkpoint *checkpoint = create(folder);
    if (!checkpoint)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory to open the checkpoint", folder);
    tpw_status st = open_folder(checkpoint, err);
    if (st != TPW_OK) {
        tpw_checkpoint_close(checkpoint);
        return st;
    }
    *out = checkpoint;
    return TPW_OK;
}

tpw_status tpw_checkpoint_open_dummy(const tpw_config *config, tpw_checkpoint **out, tpw_error *err)
{
    if (!config || !out)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "checkpoint: NULL argument");
    tpw_checkpoint *checkpoint = create("dummy");
    if (!checkpoint)
        return tpw_fail(err, TPW_ERR_MEMORY, "dummy checkpoint: no memory");
    checkpoint->dummy = true;
    tpw_status st = tpw_dummy_entries(config, &checkpoint->entries, &checkpoint->dummy_names, &checkpoint->count, err);
    if (st != TPW_OK) {
        tpw_checkpoint_close(checkpoint);
        return st;
    }
    qsort(checkpoint->entries, (size_t)checkpoint->count, sizeof checkpoint->entries[0], compare_name);
    *out = checkpoint;
    return TPW_OK;
}

void tpw_checkpoint_close(tpw_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    tpw_checkpoint_close_files(checkpoint);
    for (int32_t i = 0; i < checkpoint->files_count; i++) {
        free(checkpoint->files[i].path);
        free(checkpoint->files[i].names);
    }
    free(checkpoint->files);
    free(checkpoint->entries);
    free(checkpoint->dummy_names);
    free(checkpoint->path);
    free(checkpoint);
}

int32_t tpw_checkpoint_count(const tpw_checkpoint *checkpoint)
{
    return checkpoint->count;
}

static void describe(const tpw_checkpoint *checkpoint, int32_t i, tpw_tensor_info *out)
{
    const tpw_entry *entry = &checkpoint->entries[i];
    memset(out, 0, sizeof *out);
    out->name = entry->name;
    out->dtype = tpw_stored_dtype(entry->stored);
    out->dims = entry->dims;
    memcpy(out->shape, entry->shape, sizeof out->shape);
    out->rows = entry->rows;
    out->cols = entry->cols;
    out->index = i;
}

tpw_status tpw_checkpoint_get(const tpw_checkpoint *checkpoint, int32_t i, tpw_tensor_info *out, tpw_error *err)
{
    if (i < 0 || i >= checkpoint->count)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: tensor number %d, there are %d", checkpoint->path, i,
                        checkpoint->count);
    describe(checkpoint, i, out);
    return TPW_OK;
}

bool tpw_checkpoint_find(const tpw_checkpoint *checkpoint, const char *name, tpw_tensor_info *out)
{
    const tpw_entry *entry = find_entry(checkpoint, name);
    if (!entry)
        return false;
    describe(checkpoint, (int32_t)(entry - checkpoint->entries), out);
    return true;
}

void tpw_checkpoint_mark(tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor)
{
    if (tensor->index >= 0 && tensor->index < checkpoint->count)
        checkpoint->entries[tensor->index].used = true;
}

static bool skipped_by_rule(const char *name)
{
    return strncmp(name, "model.visual.", 13) == 0 || strncmp(name, "visual.", 7) == 0;
}

tpw_status tpw_checkpoint_check_used(const tpw_checkpoint *checkpoint, tpw_error *err)
{
    int32_t unused = 0;
    const char *first = NULL;
    for (int32_t i = 0; i < checkpoint->count; i++) {
        const tpw_entry *entry = &checkpoint->entries[i];
        if (entry->used || skipped_by_rule(entry->name))
            continue;
        if (!first)
            first = entry->name;
        unused++;
    }
    if (unused == 0)
        return TPW_OK;
    return tpw_fail(
        err, TPW_ERR_CHECKPOINT,
        "%s: tensor %.200s%s not used by this model (%d of %d): config.json does not describe these weights",
        checkpoint->path, first, unused == 1 ? " is" : " and others are", unused, checkpoint->count);
}

int64_t tpw_checkpoint_bytes_read(const tpw_checkpoint *checkpoint)
{
    return checkpoint->bytes_read;
}

const char *tpw_checkpoint_path(const tpw_checkpoint *checkpoint)
{
    return checkpoint->path;
}

uint64_t tpw_checkpoint_digest(const tpw_checkpoint *checkpoint)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < checkpoint->count; i++) {
        const tpw_entry *entry = &checkpoint->entries[i];
        uint64_t key = tpw_digest_key(entry->name);
        sum += tpw_digest_term(key, 0, tpw_digest_key(tpw_stored_name(entry->stored)));
        sum += tpw_digest_term(key, 1, (uint64_t)entry->dims);
        for (int32_t d = 0; d < entry->dims; d++)
            sum += tpw_digest_term(key, 2 + (uint64_t)d, (uint64_t)entry->shape[d]);
    }
    return sum;
}
