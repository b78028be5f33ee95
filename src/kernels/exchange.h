/* One row of the exchange of arg-max, and one entry of what follows from it, for the host and for kernels alike.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_EXCHANGE_H
#define TPW_KERNELS_EXCHANGE_H

#include "base/device_code.h"
#include "base/dtype.h"
#include "kernels/accept.h"
#include "kernels/ops.h"

/* A word of a record: the value's bits below, the id above. */
TPW_HD uint64_t tpw_best_pack(float value, int32_t id)
{
    return (uint64_t)(uint32_t)id << 32 | tpw_f32_bits(value);
}

/* Larger value wins; ties go to the lower id, which is the lower rank's since vocabulary parts ascend. -1: no rank had a number. */
TPW_HD int32_t tpw_best_of(const uint64_t *all, int32_t rows, int32_t size, int32_t row)
{
    int32_t best = -1;
    float most = 0.0f;

    for (int32_t r = 0; r < size; r++) {
        const uint64_t word = all[(int64_t)r * (1 + (int64_t)rows) + 1 + row];
        const int32_t id = (int32_t)(uint32_t)(word >> 32);
        const float value = tpw_f32_from_bits((uint32_t)word);

        if (id >= 0 && (best < 0 || value > most)) {
            best = id;
            most = value;
        }
    }
    return best;
}

TPW_HD int32_t tpw_entry_taken(const tpw_accept_entry *entry, const int32_t *tokens, const int32_t *best,
                               const int32_t *end_ids, int32_t end_count)
{
    const tpw_run_rule rule = {end_ids, end_count, entry->ignore_eos != 0, entry->emitted, entry->max_tokens};

    if (entry->best0 < 0)
        return entry->rows;
    const tpw_run run = tpw_run_accept(tokens + entry->draft0, entry->drafts, best + entry->best0, &rule);
    return tpw_run_taken(entry->rows, &run);
}

#endif
