/* Named tensors of a checkpoint: a Hugging Face folder of safetensors files, or a dummy of a published shape whose bytes
 * come from an integer hash. Both give any block of any tensor; nothing else of a file is read.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_CHECKPOINT_H
#define TPW_MODEL_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "kernels/dummy_recipe.h"
#include "model/config.h"

#define TPW_TENSOR_NAME_MAX 512
#define TPW_TENSOR_DIMS_MAX 8

typedef struct tpw_checkpoint tpw_checkpoint;

typedef struct tpw_tensor_info {
    const char *name; /* borrowed from the checkpoint */
    tpw_dtype dtype;  /* as stored; safetensors dtypes outside tpw_dtype are refused when the tensor is read */
    int32_t dims;
    int64_t shape[TPW_TENSOR_DIMS_MAX];
    int64_t rows;  /* shape[0], 1 for a scalar */
    int64_t cols;  /* product of the rest, 1 for a vector: every tensor is read as [rows, cols] */
    int32_t index; /* private */
} tpw_tensor_info;

/* Opens `folder`: model.safetensors.index.json with its files, or a single model.safetensors. Reads and checks all headers
 * (limits: header 100 MB, 1,000,000 tensors, names 512 bytes; offsets inside the file, no overlap, no holes, sizes = shape x
 * dtype; index and headers name the same tensors; file names are plain names inside the folder). Local.
 * ERR_MISSING / ERR_CHECKPOINT / ERR_IO name the file and the tensor. */
tpw_status tpw_checkpoint_open(const char *folder, tpw_checkpoint **out, tpw_error *err) TPW_MUST_CHECK;

/* The tensors that a published FP8 checkpoint of `config` would hold (Qwen3.5 names, `mtp.*` included, BF16 scales, A_log and
 * norm F32), with values from a hash of (tensor name, global element index): the same bytes for every cut. Value
 * ranges keep activations finite and varied through many layers. */
tpw_status tpw_checkpoint_open_dummy(const tpw_config *config, tpw_checkpoint **out, tpw_error *err) TPW_MUST_CHECK;

void tpw_checkpoint_close(tpw_checkpoint *checkpoint); /* NULL allowed */

int32_t tpw_checkpoint_count(const tpw_checkpoint *checkpoint);
/* i-th tensor in name order. */
tpw_status tpw_checkpoint_get(const tpw_checkpoint *checkpoint, int32_t i, tpw_tensor_info *out,
                              tpw_error *err) TPW_MUST_CHECK;
bool tpw_checkpoint_find(const tpw_checkpoint *checkpoint, const char *name, tpw_tensor_info *out);

/* Reads rows [row0, row0 + rows) x columns [col0, col0 + cols) of a tensor in its stored dtype into `out`, row r at
 * out + r * out_stride * size (out_stride in elements, >= cols). Marks the tensor as used. Local; not thread-safe. */
tpw_status tpw_checkpoint_read(tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *out, int64_t out_stride,
                               tpw_error *err) TPW_MUST_CHECK;

/* Same, converted to F32 (from F32, F16, BF16, E4M3). */
tpw_status tpw_checkpoint_read_f32(tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor, int64_t row0,
                                   int64_t rows, int64_t col0, int64_t cols, float *out, int64_t out_stride,
                                   tpw_error *err) TPW_MUST_CHECK;

/* True for a dummy's tensor: *recipe then gives any of its elements by itself, for a caller that makes them where they are used. */
bool tpw_checkpoint_recipe(const tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor, tpw_dummy_recipe *recipe);

/* Marks as used without reading (a tensor that another rank reads, or one skipped by rule). */
void tpw_checkpoint_mark(tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor);

/* ERR_CHECKPOINT naming the first tensor (and how many) that nobody used; tensors under "model.visual." and "visual." are
 * skipped by rule. */
tpw_status tpw_checkpoint_check_used(const tpw_checkpoint *checkpoint, tpw_error *err) TPW_MUST_CHECK;

int64_t tpw_checkpoint_bytes_read(const tpw_checkpoint *checkpoint);
const char *tpw_checkpoint_path(const tpw_checkpoint *checkpoint);

/* One 64-bit hash over names, dtypes, shapes (not data), to compare ranks. */
uint64_t tpw_checkpoint_digest(const tpw_checkpoint *checkpoint);

#endif
