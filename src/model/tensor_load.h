/* Reads one tensor's local part into the weight arena: matrices by rows or columns, block scales with them, small vectors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_TENSOR_LOAD_H
#define TPW_MODEL_TENSOR_LOAD_H

#include "graph/pool.h"
#include "model/checkpoint.h"
#include "model/partition.h"
#include "model/weight_digest.h"
#include "model/weights.h"

/* State of one load. While the arena measures (base NULL) nothing is read and nothing is marked. */
typedef struct tpw_loader {
    const tpw_config *config;
    const tpw_partition *part;
    tpw_checkpoint *checkpoint;
    const tpw_exec *exec;
    tpw_pool *pool;           /* NULL while the arena measures */
    const tpw_device *layout; /* whose layout matrices get (tpw_device.pack); NULL: plain rows */
    tpw_arena *arena;
    void *staging; /* host */
    size_t staging_bytes;
    tpw_arena plain;       /* one matrix in plain rows, on its way to its layout; grown to the largest */
    tpw_weight_sums *sums; /* of this checkpoint; NULL: none are wanted */
    tpw_load_progress *progress;
    void *progress_data;
    tpw_error *err;
} tpw_loader;

tpw_status tpw_loader_init(tpw_loader *out, const tpw_config *config, const tpw_partition *part,
                           tpw_checkpoint *checkpoint, const tpw_exec *exec, tpw_pool *pool, tpw_arena *arena,
                           tpw_error *err) TPW_MUST_CHECK;
void tpw_loader_fini(tpw_loader *loader);

/* Names are prefix + name; the tensor must have exactly [rows, cols]. Row spans are concatenated in the given order; one is a part of
 * the whole axis, several are this rank's equal parts of as many neighbouring sections. */
tpw_status tpw_load_rows(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                         const tpw_span *spans, int span_count, tpw_weight_share share, tpw_weight *out) TPW_MUST_CHECK;
tpw_status tpw_load_cols(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols, tpw_span span,
                         tpw_weight *out) TPW_MUST_CHECK;
/* As tpw_load_rows, kept in plain rows whatever the layout: a table that rows are copied from. */
tpw_status tpw_load_rows_plain(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                               tpw_span span, tpw_weight *out) TPW_MUST_CHECK;
/* Gives a matrix in plain rows its layout too, where there is one (a head that shares the embedding). */
tpw_status tpw_load_layout(tpw_loader *l, tpw_gemm_kind kind, tpw_weight *weight) TPW_MUST_CHECK;
/* The same as F32, without scales. */
tpw_status tpw_load_table(tpw_loader *l, const char *prefix, const char *name, int64_t rows, int64_t cols,
                          const tpw_span *spans, int span_count, float **out) TPW_MUST_CHECK;
/* A vector of `count` elements, of which `span` is kept, as F32. The whole is kept by all ranks. */
tpw_status tpw_load_vector(tpw_loader *l, const char *prefix, const char *name, int64_t count, tpw_span span,
                           float **out) TPW_MUST_CHECK;

#endif
