/* Decides which rows a step runs. Pure. SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule.h"

int32_t tpw_schedule(const tpw_candidate *candidates, int32_t count, tpw_schedule_limits limits, tpw_planned *out,
                     int32_t *rows)
{
    int32_t planned = 0, used = 0;

    for (int32_t i = 0; i < count; i++) {
        int32_t need = 1 + candidates[i].drafts;

        if (candidates[i].known - candidates[i].pos != 1 || need > limits.rows_max - used)
            continue;
        out[planned++] = (tpw_planned){.sequence = i, .rows = 1, .drafts = candidates[i].drafts, .logits = true};
        used += need;
    }
    for (int32_t i = 0; i < count && used < limits.rows_max; i++) {
        int64_t left = candidates[i].known - candidates[i].pos, n = left;

        if (left <= 1)
            continue;
        if (n > limits.chunk)
            n = limits.chunk;
        if (n > limits.rows_max - used)
            n = limits.rows_max - used;
        out[planned++] = (tpw_planned){.sequence = i, .rows = (int32_t)n, .logits = n == left};
        used += (int32_t)n;
    }
    *rows = used;
    return planned;
}
