/* Decides which rows a step runs. Pure. SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule.h"

int32_t tpw_schedule(const tpw_candidate *candidates, int32_t count, tpw_schedule_limits limits, tpw_planned *out,
                     int32_t *rows)
{
    int32_t planned = 0, used = 0;

    for (int32_t i = 0; i < count; i++)
        if (candidates[i].known - candidates[i].pos == 1 && used < limits.rows_max) {
            out[planned++] = (tpw_planned){.sequence = i, .rows = 1, .logits = true};
            used++;
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
