/* Which heads, channels and rows of a model belong to a rank. Pure. SPDX-License-Identifier: Apache-2.0 */
#include "model/partition.h"

#include "kernels/slices.h"

/* One axis that must be cut into equal parts. */
typedef struct axis {
    const char *name;
    int32_t total;
    tpw_span *span;
} axis;

static tpw_status refuse(const char *name, int32_t total, int size, tpw_error *err)
{
    return tpw_fail(err, TPW_ERR_UNSUPPORTED, "tensor-parallel size %d does not divide %s = %d: use a smaller size",
                    size, name, total);
}

tpw_status tpw_partition_make(const tpw_config *config, int rank, int size, tpw_partition *out, tpw_error *err)
{
    tpw_partition p = {.rank = rank, .size = size};
    const axis axes[] = {{"num_attention_heads", config->heads, &p.heads},
                         {"linear_num_key_heads", config->linear_k_heads, &p.k_heads},
                         {"linear_num_value_heads", config->linear_v_heads, &p.v_heads},
                         {"intermediate_size", config->intermediate, &p.inter}};
    const axis row_parallel[] = {{"linear value width", config->linear_v_heads * config->linear_v_dim, NULL},
                                 {"attention width", config->heads * config->head_dim, NULL},
                                 {"intermediate_size", config->intermediate, NULL}};

    if (!tpw_tp_size_ok(size) || rank < 0 || rank >= size)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tensor-parallel size %d is not supported: use 1, 2, 4 or 8 ranks",
                        size);
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        *axes[i].span = tpw_span_even(axes[i].total, rank, size);
        if (axes[i].span->count == 0)
            return refuse(axes[i].name, axes[i].total, size, err);
    }
    for (size_t i = 0; size > 1 && i < sizeof row_parallel / sizeof row_parallel[0]; i++)
        if (row_parallel[i].total % TPW_SLICES_ROW_PARALLEL != 0)
            return tpw_fail(err, TPW_ERR_UNSUPPORTED, "%s = %d is not a multiple of %d: only one rank can run it",
                            row_parallel[i].name, row_parallel[i].total, TPW_SLICES_ROW_PARALLEL);
    p.kv_heads = tpw_span_heads(config->kv_heads, rank, size, &p.kv_owner);
    if (p.kv_heads.count == 0)
        return refuse("num_key_value_heads", config->kv_heads, size, err);
    p.vocab = tpw_span_ceil(config->vocab, rank, size);
    *out = p;
    return TPW_OK;
}

void tpw_qkv_spans(const tpw_config *config, const tpw_partition *partition, tpw_span out[3])
{
    int32_t key_width = config->linear_k_heads * config->linear_k_dim;
    tpw_span key = {partition->k_heads.begin * config->linear_k_dim, tpw_key_width(config, partition)};

    out[0] = key;
    out[1] = (tpw_span){key_width + key.begin, key.count};
    out[2] =
        (tpw_span){2 * key_width + partition->v_heads.begin * config->linear_v_dim, tpw_value_width(config, partition)};
}
