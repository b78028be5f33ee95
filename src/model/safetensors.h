/* One safetensors file: its header checked in full before anything is believed, its payload read with pread.
 *
 * File: 8 bytes little-endian header length, a JSON object, the payload. Every tensor has a dtype, a shape and
 * [begin, end) in the payload; together they must cover it exactly once. Offsets need not be aligned.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_SAFETENSORS_H
#define TPW_MODEL_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "model/checkpoint.h"

#define TPW_HEADER_BYTES_MAX 100000000u
#define TPW_TENSORS_MAX      1000000

/* X(name in the file, bytes an element, tpw_dtype or TPW_DTYPE_COUNT when this program cannot read it) */
#define TPW_STORED_MAP(X)          \
    X(BOOL, 1, TPW_BOOL)           \
    X(U8, 1, TPW_DTYPE_COUNT)      \
    X(I8, 1, TPW_DTYPE_COUNT)      \
    X(F8_E5M2, 1, TPW_DTYPE_COUNT) \
    X(F8_E4M3, 1, TPW_E4M3)        \
    X(F8_E8M0, 1, TPW_DTYPE_COUNT) \
    X(I16, 2, TPW_DTYPE_COUNT)     \
    X(U16, 2, TPW_DTYPE_COUNT)     \
    X(F16, 2, TPW_F16)             \
    X(BF16, 2, TPW_BF16)           \
    X(I32, 4, TPW_I32)             \
    X(U32, 4, TPW_DTYPE_COUNT)     \
    X(F32, 4, TPW_F32)             \
    X(I64, 8, TPW_I64)             \
    X(U64, 8, TPW_DTYPE_COUNT)     \
    X(F64, 8, TPW_DTYPE_COUNT)     \
    X(C64, 8, TPW_DTYPE_COUNT)

typedef enum tpw_stored {
#define TPW_STORED_ENUM(name, bytes, dtype) TPW_STORED_##name,
    TPW_STORED_MAP(TPW_STORED_ENUM)
#undef TPW_STORED_ENUM
        TPW_STORED_COUNT
} tpw_stored;

const char *tpw_stored_name(tpw_stored stored);
size_t tpw_stored_size(tpw_stored stored);
tpw_dtype tpw_stored_dtype(tpw_stored stored);

/* One tensor of a checkpoint, whatever its source. */
typedef struct tpw_entry {
    const char *name; /* borrowed from the header, or the dummy, that made it */
    tpw_stored stored;
    int32_t dims;
    int64_t shape[TPW_TENSOR_DIMS_MAX];
    int64_t rows;
    int64_t cols;
    int32_t source; /* number of the file, or role of a dummy tensor */
    bool used;
    size_t begin; /* in the payload */
    size_t bytes;
} tpw_entry;

/* Sets rows, cols and bytes of *entry from stored, dims and shape. False when a product overflows. */
bool tpw_entry_measure(tpw_entry *entry);

/* The header of one file. */
typedef struct tpw_safetensors {
    int32_t count;
    tpw_entry *entries; /* in payload order, source = 0 */
    char *names;        /* what entries[].name points into */
    size_t payload;     /* where the payload begins in the file */
    size_t file_bytes;
} tpw_safetensors;

/* Opens, reads and checks the header of `path`; the file is closed again. *out is given back with tpw_safetensors_fini.
 * ERR_MISSING, ERR_IO, ERR_CHECKPOINT name the file and the tensor. Local. */
tpw_status tpw_safetensors_init(tpw_safetensors *out, const char *path, tpw_error *err) TPW_MUST_CHECK;
void tpw_safetensors_fini(tpw_safetensors *header);

/* Opens `path` for reading and checks that it still has `file_bytes` bytes. The caller closes *fd. */
tpw_status tpw_safetensors_reopen(const char *path, size_t file_bytes, int *fd, tpw_error *err) TPW_MUST_CHECK;

/* Reads exactly `bytes` bytes at `offset` of an open file. ERR_IO, naming path and tensor, when it ends early. */
tpw_status tpw_safetensors_pread(int fd, const char *path, const char *tensor, size_t offset, void *out, size_t bytes,
                                 tpw_error *err) TPW_MUST_CHECK;

#endif
