/* Digests of weights: the table of sums, and the digest of a whole tensor. SPDX-License-Identifier: Apache-2.0 */
#include "model/weight_digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/digest.h"

#define BUFFER_ELEMENTS ((int64_t)1 << 21)

uint64_t tpw_weight_key(const char *name)
{
    char scope[TPW_TENSOR_NAME_MAX + 16];

    snprintf(scope, sizeof scope, "weights.%s", name);
    return tpw_digest_key(scope);
}

bool tpw_weight_skipped(const tpw_config *config, const char *name)
{
    return strncmp(name, "model.visual.", 13) == 0 || strncmp(name, "visual.", 7) == 0 ||
           (config->tied && strcmp(name, "lm_head.weight") == 0);
}

/* Bytes of all names with their ends. */
static tpw_status names_bytes(const tpw_checkpoint *checkpoint, size_t *out, tpw_error *err)
{
    size_t bytes = 1;

    for (int32_t i = 0; i < tpw_checkpoint_count(checkpoint); i++) {
        tpw_tensor_info info;

        TPW_TRY(tpw_checkpoint_get(checkpoint, i, &info, err));
        if (!tpw_add_size(bytes, strlen(info.name) + 1, &bytes))
            return tpw_fail(err, TPW_ERR_LIMIT, "%s: the names of its tensors do not fit into memory",
                            tpw_checkpoint_path(checkpoint));
    }
    *out = bytes;
    return TPW_OK;
}

tpw_status tpw_weight_sums_init(tpw_weight_sums *out, const tpw_checkpoint *checkpoint, bool all, tpw_error *err)
{
    int32_t count = tpw_checkpoint_count(checkpoint);
    size_t bytes = 0;
    char *at;

    *out = (tpw_weight_sums){.all = all};
    TPW_TRY(names_bytes(checkpoint, &bytes, err));
    out->data = calloc((size_t)count + 1, sizeof *out->data);
    out->names = malloc(bytes);
    if (out->data == NULL || out->names == NULL) {
        tpw_weight_sums_fini(out);
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the digests of %d tensors", count);
    }
    at = out->names;
    for (int32_t i = 0; i < count; i++) {
        tpw_tensor_info info;
        tpw_status st = tpw_checkpoint_get(checkpoint, i, &info, err);

        if (st != TPW_OK) {
            tpw_weight_sums_fini(out);
            return st;
        }
        memcpy(at, info.name, strlen(info.name) + 1);
        out->data[i] = (tpw_weight_sum){.name = at, .key = tpw_weight_key(at), .copies = 1};
        at += strlen(at) + 1;
    }
    out->count = count;
    return TPW_OK;
}

void tpw_weight_sums_fini(tpw_weight_sums *sums)
{
    free(sums->data);
    free(sums->names);
    *sums = (tpw_weight_sums){0};
}

tpw_status tpw_weight_digest_whole(tpw_checkpoint *checkpoint, const tpw_tensor_info *tensor, uint64_t *out,
                                   tpw_error *err)
{
    int64_t cols_max = tensor->cols < BUFFER_ELEMENTS ? tensor->cols : BUFFER_ELEMENTS;
    int64_t rows_max = cols_max > 0 ? BUFFER_ELEMENTS / cols_max : 0;
    uint64_t key = tpw_weight_key(tensor->name), sum = 0;
    void *buffer;
    tpw_status st = TPW_OK;

    if (rows_max > tensor->rows)
        rows_max = tensor->rows;
    buffer = malloc((size_t)(rows_max * cols_max) * 8 + 1);
    if (buffer == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory to read tensor %s", tensor->name);
    for (int64_t r = 0; st == TPW_OK && cols_max > 0 && r < tensor->rows; r += rows_max)
        for (int64_t c = 0; st == TPW_OK && c < tensor->cols; c += cols_max) {
            int64_t rows = tensor->rows - r < rows_max ? tensor->rows - r : rows_max;
            int64_t cols = tensor->cols - c < cols_max ? tensor->cols - c : cols_max;

            st = tpw_checkpoint_read(checkpoint, tensor, r, rows, c, cols, buffer, cols, err);
            if (st == TPW_OK)
                sum += tpw_digest_block(key, buffer, tensor->dtype, rows, cols, cols,
                                        (uint64_t)r * (uint64_t)tensor->cols + (uint64_t)c, (uint64_t)tensor->cols);
        }
    free(buffer);
    if (st == TPW_OK)
        *out = sum;
    return st;
}
