/* The scheduler: decoding first, then prompt chunks in order, never past the budget. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "worker/schedule.h"

Test(schedule, decode_first_then_chunks_in_order)
{
    const tpw_candidate c[] = {{100, 0}, {51, 50}, {30, 10}, {9, 8}, {500, 499}};
    tpw_planned out[5];
    int32_t rows, n = tpw_schedule(c, 5, (tpw_schedule_limits){.rows_max = 64, .chunk = 32}, out, &rows);

    cr_assert(n == 5 && rows == 3 + 32 + 20);
    cr_assert(out[0].sequence == 1 && out[0].rows == 1 && out[0].logits);
    cr_assert(out[1].sequence == 3 && out[2].sequence == 4);
    cr_assert(out[3].sequence == 0 && out[3].rows == 32 && !out[3].logits);
    cr_assert(out[4].sequence == 2 && out[4].rows == 20 && out[4].logits);
}

Test(schedule, budget_cuts_the_last_chunk)
{
    const tpw_candidate c[] = {{40, 0}, {40, 0}, {40, 0}};
    tpw_planned out[3];
    int32_t rows, n = tpw_schedule(c, 3, (tpw_schedule_limits){.rows_max = 50, .chunk = 256}, out, &rows);

    cr_assert(n == 2 && rows == 50);
    cr_assert(out[0].rows == 40 && out[0].logits && out[1].rows == 10 && !out[1].logits);
}

/* Whatever the limits, every sequence gets through in finite steps, each row once, with one logit at the end of its prompt. */
Test(schedule, random_runs_finish)
{
    srand(11);
    for (int trial = 0; trial < 2000; trial++) {
        tpw_candidate c[8];
        int32_t count = 1 + rand() % 8, logits = 0;
        tpw_schedule_limits limits = {.rows_max = count + rand() % 40, .chunk = 1 + rand() % 50};

        for (int32_t i = 0; i < count; i++)
            c[i] = (tpw_candidate){.known = 1 + rand() % 200};
        for (int steps = 0; logits < count; steps++) {
            tpw_planned out[8];
            int32_t rows, n, sum = 0, live = 0;
            tpw_candidate alive[8];
            int32_t index[8];

            for (int32_t i = 0; i < count; i++)
                if (c[i].pos < c[i].known) {
                    index[live] = i;
                    alive[live++] = c[i];
                }
            n = tpw_schedule(alive, live, limits, out, &rows);
            cr_assert(n >= 1 && rows <= limits.rows_max);
            for (int32_t i = 0; i < n; i++) {
                tpw_candidate *s = &c[index[out[i].sequence]];

                sum += out[i].rows;
                s->pos += out[i].rows;
                cr_assert(out[i].rows >= 1 && out[i].rows <= limits.chunk && s->pos <= s->known);
                cr_assert_eq(out[i].logits, s->pos == s->known);
                logits += out[i].logits;
            }
            cr_assert_eq(sum, rows);
            cr_assert_lt(steps, 2000, "no progress");
        }
    }
}
