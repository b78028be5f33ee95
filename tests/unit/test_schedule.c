/* The scheduler: decoding first, then prompt chunks in order, never past the budget. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "worker/schedule.h"

Test(schedule, decode_first_then_chunks_in_order)
{
    const tpw_candidate c[] = {{100, 0, 0}, {51, 50, 0}, {30, 10, 0}, {9, 8, 0}, {500, 499, 0}};
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
    const tpw_candidate c[] = {{40, 0, 0}, {40, 0, 0}, {40, 0, 0}};
    tpw_planned out[3];
    int32_t rows, n = tpw_schedule(c, 3, (tpw_schedule_limits){.rows_max = 50, .chunk = 256}, out, &rows);

    cr_assert(n == 2 && rows == 50);
    cr_assert(out[0].rows == 40 && out[0].logits && out[1].rows == 10 && !out[1].logits);
}

Test(schedule, drafts_are_rows_of_decoding_sequences)
{
    const tpw_candidate c[] = {{100, 0, 0}, {51, 50, 4}, {30, 10, 0}, {9, 8, 1}, {500, 499, 0}};
    tpw_planned out[5];
    int32_t rows, n = tpw_schedule(c, 5, (tpw_schedule_limits){.rows_max = 40, .chunk = 16}, out, &rows);

    cr_assert(n == 5 && rows == 40);
    cr_assert(out[0].sequence == 1 && out[0].rows == 1 && out[0].drafts == 4 && out[0].logits);
    cr_assert(out[1].sequence == 3 && out[1].rows == 1 && out[1].drafts == 1 && out[1].logits);
    cr_assert(out[2].sequence == 4 && out[2].rows == 1 && out[2].drafts == 0 && out[2].logits);
    cr_assert(out[3].sequence == 0 && out[3].rows == 16 && out[3].drafts == 0 && !out[3].logits);
    cr_assert(out[4].sequence == 2 && out[4].rows == 16 && out[4].drafts == 0 && !out[4].logits);
}

/* A prompt of one token is decoding from the start; a prompt's last single row too. Neither may carry drafts before the
 * first token is out, which the caller sees to; the scheduler takes what it is given. */
Test(schedule, last_row_of_a_prompt_goes_first)
{
    const tpw_candidate c[] = {{64, 0, 0}, {65, 64, 0}, {1, 0, 0}};
    tpw_planned out[3];
    int32_t rows, n = tpw_schedule(c, 3, (tpw_schedule_limits){.rows_max = 64, .chunk = 64}, out, &rows);

    cr_assert(n == 3 && rows == 64);
    cr_assert(out[0].sequence == 1 && out[0].logits && out[1].sequence == 2 && out[1].logits);
    cr_assert(out[2].sequence == 0 && out[2].rows == 62 && !out[2].logits);
}

/* At the smallest legal rows_max every decoding sequence still verifies all its drafts, and prompts wait. */
Test(schedule, drafts_fill_the_budget)
{
    tpw_candidate c[9] = {{20, 0, 0}};
    tpw_planned out[9];
    int32_t rows, n;

    for (int32_t i = 1; i < 9; i++)
        c[i] = (tpw_candidate){.known = 30 + i, .pos = 29 + i, .drafts = 8};
    n = tpw_schedule(c, 9, (tpw_schedule_limits){.rows_max = 72, .chunk = 64}, out, &rows);
    cr_assert(n == 8 && rows == 72);
    for (int32_t i = 0; i < 8; i++)
        cr_assert(out[i].sequence == i + 1 && out[i].rows == 1 && out[i].drafts == 8);
    c[4].drafts = 3;
    n = tpw_schedule(c, 9, (tpw_schedule_limits){.rows_max = 72, .chunk = 64}, out, &rows);
    cr_assert(n == 9 && rows == 72 && out[8].sequence == 0 && out[8].rows == 5 && !out[8].logits);
}

/* Sequences that decode with drafts of which a random part is accepted, beside prompts that still come: all decode in every step,
 * rows and limits add up, everybody finishes. */
Test(schedule, random_runs_with_drafts_finish)
{
    srand(12);
    for (int trial = 0; trial < 1000; trial++) {
        tpw_candidate c[8];
        int32_t count = 1 + rand() % 8, k = rand() % 9, emitted[8] = {0}, finished = 0;
        tpw_schedule_limits limits = {.rows_max = count * (k + 1) + rand() % 40, .chunk = 1 + rand() % 50};

        for (int32_t i = 0; i < count; i++)
            c[i] = (tpw_candidate){.known = 1 + rand() % 100};
        for (int steps = 0; finished < count; steps++) {
            tpw_planned out[8];
            tpw_candidate alive[8];
            int32_t index[8], live = 0, decoding = 0, n, rows, sum = 0;

            for (int32_t i = 0; i < count; i++)
                if (emitted[i] < 20) {
                    c[i].drafts = emitted[i] == 0 ? 0 : 19 - emitted[i] < k ? 19 - emitted[i] : k;
                    decoding += c[i].known - c[i].pos == 1;
                    index[live] = i;
                    alive[live++] = c[i];
                }
            n = tpw_schedule(alive, live, limits, out, &rows);
            cr_assert(n >= decoding && rows <= limits.rows_max && n >= 1);
            for (int32_t i = 0; i < n; i++) {
                tpw_candidate *s = &c[index[out[i].sequence]];
                int32_t *tokens = &emitted[index[out[i].sequence]], taken;

                cr_assert_eq(i < decoding, s->known - s->pos == 1);
                cr_assert_eq(out[i].drafts, i < decoding ? s->drafts : 0);
                sum += out[i].rows + out[i].drafts;
                taken = rand() % (out[i].drafts + 1);
                s->pos += out[i].rows;
                cr_assert_eq(out[i].logits, s->pos == s->known);
                if (!out[i].logits)
                    continue;
                s->pos += taken;
                s->known = s->pos + 1;
                *tokens += taken + 1;
                cr_assert_leq(*tokens, 20);
                finished += *tokens == 20;
            }
            cr_assert_eq(sum, rows);
            cr_assert_lt(steps, 3000, "no progress");
        }
    }
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
