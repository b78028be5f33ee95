/* Parses and checks the header of one safetensors file, and reads its payload.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/json.h"

#define LENGTH_BYTES 8u
#define PREAD_MAX    ((size_t)1 << 30) /* Linux moves at most 2 GiB a call */
#define NAME_SHOWN   "%.200s"          /* leaves room for the file's name in an error */

static const struct {
    const char *name;
    size_t size;
    tpw_dtype dtype;
} stored_table[TPW_STORED_COUNT] = {
#define STORED_ROW(name, bytes, dtype) {#name, bytes, dtype},
    TPW_STORED_MAP(STORED_ROW)
#undef STORED_ROW
};

const char *tpw_stored_name(tpw_stored stored)
{
    return (unsigned)stored < TPW_STORED_COUNT ? stored_table[stored].name : "?";
}

size_t tpw_stored_size(tpw_stored stored)
{
    return (unsigned)stored < TPW_STORED_COUNT ? stored_table[stored].size : 0;
}

tpw_dtype tpw_stored_dtype(tpw_stored stored)
{
    return (unsigned)stored < TPW_STORED_COUNT ? stored_table[stored].dtype : TPW_DTYPE_COUNT;
}

bool tpw_entry_measure(tpw_entry *entry)
{
    int64_t rows = entry->dims > 0 ? entry->shape[0] : 1;
    int64_t cols = 1;
    int64_t elements;
    for (int32_t i = 1; i < entry->dims; i++) {
        if (!tpw_mul_i64(cols, entry->shape[i], &cols))
            return false;
    }
    if (!tpw_mul_i64(rows, cols, &elements))
        return false;
    entry->rows = rows;
    entry->cols = cols;
    return tpw_mul_size((size_t)elements, tpw_stored_size(entry->stored), &entry->bytes) &&
           entry->bytes <= (size_t)INT64_MAX;
}

/* Where an error happened: both texts are for messages only. */
typedef struct place {
    const char *path;
    const char *tensor;
} place;

static tpw_status read_dtype(const json_t *info, const place *at, tpw_entry *entry, tpw_error *err)
{
    const char *name = json_string_value(json_object_get(info, "dtype"));
    for (int i = 0; name && i < TPW_STORED_COUNT; i++) {
        if (strcmp(stored_table[i].name, name) == 0) {
            entry->stored = (tpw_stored)i;
            return TPW_OK;
        }
    }
    return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor " NAME_SHOWN ": dtype %s%.40s%s is not one of safetensors",
                    at->path, at->tensor, name ? "\"" : "", name ? name : "(missing or not a string)",
                    name ? "\"" : "");
}

static tpw_status read_shape(const json_t *info, const place *at, tpw_entry *entry, tpw_error *err)
{
    const json_t *shape = json_object_get(info, "shape");
    if (!json_is_array(shape))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor " NAME_SHOWN ": shape must be a list of integers",
                        at->path, at->tensor);
    size_t dims = json_array_size(shape);
    if (dims > TPW_TENSOR_DIMS_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor " NAME_SHOWN ": %zu dimensions, at most %d are supported",
                        at->path, at->tensor, dims, TPW_TENSOR_DIMS_MAX);
    entry->dims = (int32_t)dims;
    for (size_t i = 0; i < dims; i++) {
        const json_t *side = json_array_get(shape, i);
        if (!json_is_integer(side) || json_integer_value(side) < 0)
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor " NAME_SHOWN ": shape[%zu] must be an integer >= 0",
                            at->path, at->tensor, i);
        entry->shape[i] = (int64_t)json_integer_value(side);
    }
    if (!tpw_entry_measure(entry))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor " NAME_SHOWN ": its shape has too many elements", at->path,
                        at->tensor);
    return TPW_OK;
}

static tpw_status read_offsets(const json_t *info, size_t payload_bytes, const place *at, tpw_entry *entry,
                               tpw_error *err)
{
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(offsets, 0);
    const json_t *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor " NAME_SHOWN ": data_offsets must be two integers",
                        at->path, at->tensor);
    json_int_t begin = json_integer_value(first);
    json_int_t end = json_integer_value(last);
    if (begin < 0 || end < begin || (size_t)end > payload_bytes)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: tensor " NAME_SHOWN ": data_offsets [%lld, %lld] are not within the payload of %zu bytes "
                        "(is the file complete?)",
                        at->path, at->tensor, (long long)begin, (long long)end, payload_bytes);
    if ((size_t)(end - begin) != entry->bytes)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: tensor " NAME_SHOWN ": %lld bytes of data, but its shape and dtype %s need %zu", at->path,
                        at->tensor, (long long)(end - begin), tpw_stored_name(entry->stored), entry->bytes);
    entry->begin = (size_t)begin;
    return TPW_OK;
}

static tpw_status read_metadata(json_t *metadata, const char *path, tpw_error *err)
{
    if (!json_is_object(metadata))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: __metadata__ must be an object of strings", path);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: __metadata__: \"%.60s\" must be a string", path, key);
    }
    return TPW_OK;
}

static tpw_status read_entry(const char *name, const json_t *info, size_t payload_bytes, const char *path,
                             tpw_entry *entry, tpw_error *err)
{
    place at = {path, name};
    if (name[0] == '\0' || strlen(name) > TPW_TENSOR_NAME_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor \"%.60s\": its name has %zu bytes, 1..%d are allowed",
                        path, name, strlen(name), TPW_TENSOR_NAME_MAX);
    if (!json_is_object(info))
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: tensor " NAME_SHOWN ": must be an object", path, name);
    TPW_TRY(read_dtype(info, &at, entry, err));
    TPW_TRY(read_shape(info, &at, entry, err));
    return read_offsets(info, payload_bytes, &at, entry, err);
}

static int compare_begin(const void *a, const void *b)
{
    const tpw_entry *x = a;
    const tpw_entry *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty tensors before the one that begins there */
}

/* In payload order each tensor must begin where the one before it ended: no overlap, no hole, nothing left over. */
static tpw_status check_cover(const tpw_safetensors *header, const char *path, tpw_error *err)
{
    size_t payload_bytes = header->file_bytes - header->payload;
    size_t end = 0;
    for (int32_t i = 0; i < header->count; i++) {
        const tpw_entry *entry = &header->entries[i];
        if (entry->begin != end)
            return tpw_fail(err, TPW_ERR_CHECKPOINT,
                            "%s: tensor " NAME_SHOWN
                            " begins at byte %zu of the payload, but the one before it ends at %zu (%s)",
                            path, entry->name, entry->begin, end, entry->begin < end ? "overlap" : "hole");
        end += entry->bytes;
    }
    if (end != payload_bytes)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: its tensors end at byte %zu, but the payload has %zu bytes", path,
                        end, payload_bytes);
    return TPW_OK;
}

/* One block for the names and one for the entries, both measured first. */
static tpw_status allocate(json_t *root, const char *path, tpw_safetensors *out, tpw_error *err)
{
    size_t tensors = json_object_size(root) - (json_object_get(root, "__metadata__") ? 1 : 0);
    size_t name_bytes = 1;
    size_t entry_bytes;
    const char *key;
    json_t *value;
    if (tensors > TPW_TENSORS_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: %zu tensors, at most %d are supported", path, tensors,
                        TPW_TENSORS_MAX);
    json_object_foreach(root, key, value)
    {
        if (!tpw_add_size(name_bytes, strlen(key) + 1, &name_bytes))
            return tpw_fail(err, TPW_ERR_MEMORY, "%s: tensor names are too long", path);
    }
    if (tpw_mul_size(tensors + 1, sizeof(tpw_entry), &entry_bytes)) {
        out->entries = calloc(1, entry_bytes);
        out->names = malloc(name_bytes);
    }
    if (!out->entries || !out->names)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for the table of its %zu tensors", path, tensors);
    return TPW_OK;
}

static tpw_status read_entries(json_t *root, const char *path, tpw_safetensors *out, tpw_error *err)
{
    const char *key;
    json_t *value;
    TPW_TRY(allocate(root, path, out, err));
    char *name = out->names;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            TPW_TRY(read_metadata(value, path, err));
            continue;
        }
        tpw_entry *entry = &out->entries[out->count];
        TPW_TRY(read_entry(key, value, out->file_bytes - out->payload, path, entry, err));
        size_t length = strlen(key) + 1;
        memcpy(name, key, length);
        entry->name = name;
        name += length;
        out->count++;
    }
    qsort(out->entries, (size_t)out->count, sizeof out->entries[0], compare_begin);
    return check_cover(out, path, err);
}

tpw_status tpw_safetensors_pread(int fd, const char *path, const char *tensor, size_t offset, void *out, size_t bytes,
                                 tpw_error *err)
{
    char *to = out;
    while (bytes > 0) {
        size_t wanted = bytes < PREAD_MAX ? bytes : PREAD_MAX;
        ssize_t got = pread(fd, to, wanted, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tpw_fail(err, TPW_ERR_IO, "%s: reading " NAME_SHOWN " failed at byte %zu: %s", path, tensor, offset,
                            strerror(errno));
        if (got == 0)
            return tpw_fail(err, TPW_ERR_IO,
                            "%s: ended at byte %zu while reading " NAME_SHOWN
                            ", %zu bytes short: the file was cut after "
                            "it was opened",
                            path, offset, tensor, bytes);
        to += got;
        offset += (size_t)got;
        bytes -= (size_t)got;
    }
    return TPW_OK;
}

static tpw_status open_file(const char *path, int *fd_out, size_t *file_bytes, tpw_error *err)
{
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must be refused, not waited for */
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
    *file_bytes = (size_t)info.st_size;
    return TPW_OK;
}

tpw_status tpw_safetensors_reopen(const char *path, size_t file_bytes, int *fd, tpw_error *err)
{
    size_t found;
    TPW_TRY(open_file(path, fd, &found, err));
    if (found == file_bytes)
        return TPW_OK;
    close(*fd);
    return tpw_fail(err, TPW_ERR_IO, "%s: has %zu bytes now, had %zu when it was checked: it was changed while in use",
                    path, found, file_bytes);
}

/* The header's text, NUL-terminated and the caller's to free; fills in out->payload. */
static tpw_status read_text(int fd, const char *path, tpw_safetensors *out, char **text, tpw_error *err)
{
    unsigned char raw[LENGTH_BYTES];
    uint64_t length = 0;
    if (out->file_bytes < LENGTH_BYTES)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: %zu bytes are too few for a safetensors file", path,
                        out->file_bytes);
    TPW_TRY(tpw_safetensors_pread(fd, path, "the header length", 0, raw, sizeof raw, err));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | raw[i];
    if (length > TPW_HEADER_BYTES_MAX)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "%s: its header claims %llu bytes, at most %u are allowed", path,
                        (unsigned long long)length, TPW_HEADER_BYTES_MAX);
    if (length > out->file_bytes - LENGTH_BYTES)
        return tpw_fail(err, TPW_ERR_CHECKPOINT,
                        "%s: its header claims %llu bytes, but the file has only %zu (is it complete?)", path,
                        (unsigned long long)length, out->file_bytes);
    *text = malloc((size_t)length + 1);
    if (!*text)
        return tpw_fail(err, TPW_ERR_MEMORY, "%s: no memory for its header of %llu bytes", path,
                        (unsigned long long)length);
    (*text)[length] = '\0';
    out->payload = LENGTH_BYTES + (size_t)length;
    return tpw_safetensors_pread(fd, path, "the header", LENGTH_BYTES, *text, (size_t)length, err);
}

tpw_status tpw_safetensors_init(tpw_safetensors *out, const char *path, tpw_error *err)
{
    tpw_status st;
    int fd = -1;
    char *text = NULL;
    json_t *root = NULL;
    tpw_safetensors header;
    memset(&header, 0, sizeof header);
    TPW_TRY(open_file(path, &fd, &header.file_bytes, err));
    TPW_TRY_GOTO(st, read_text(fd, path, &header, &text, err), close_file);
    TPW_TRY_GOTO(st, tpw_json_parse(text, header.payload - LENGTH_BYTES, path, &root, err), close_file);
    st = read_entries(root, path, &header, err);
close_file:
    json_decref(root);
    free(text);
    close(fd);
    if (st == TPW_OK)
        *out = header;
    else
        tpw_safetensors_fini(&header);
    return st;
}

void tpw_safetensors_fini(tpw_safetensors *header)
{
    free(header->entries);
    free(header->names);
    memset(header, 0, sizeof *header);
}
