/* Acceptance: what is taken of a verified run is what one-token steps would have given. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "worker/accept.h"

static const tpw_run_rule open_end = {.ignore_eos = true, .max_tokens = 1000};

Test(accept, no_drafts_is_one_token)
{
    const int32_t best[] = {7};
    tpw_accepted a = tpw_accept(NULL, 0, best, &open_end);

    cr_assert(a.tokens == 1 && a.drafts == 0 && !a.ended);
}

Test(accept, longest_prefix_and_one_more)
{
    const int32_t best[] = {5, 6, 7, 8, 9};
    const struct {
        int32_t drafts[4];
        int32_t right;
    } cases[] = {{{5, 6, 7, 8}, 4}, {{5, 6, 7, 0}, 3}, {{5, 6, 0, 8}, 2},
                 {{5, 0, 7, 8}, 1}, {{0, 6, 7, 8}, 0}, {{6, 7, 8, 9}, 0}}; /* the last: right tokens one place early */

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tpw_accepted a = tpw_accept(cases[i].drafts, 4, best, &open_end);

        cr_assert(a.drafts == cases[i].right && a.tokens == cases[i].right + 1 && !a.ended, "case %zu: %d, %d", i,
                  a.drafts, a.tokens);
    }
}

Test(accept, end_token_cuts_an_accepted_run)
{
    const int32_t drafts[] = {5, 2, 7, 8}, best[] = {5, 2, 7, 8, 9}, ends[] = {0, 2};
    tpw_run_rule rule = {.end_ids = ends, .end_count = 2, .max_tokens = 1000};
    tpw_accepted a = tpw_accept(drafts, 4, best, &rule);

    cr_assert(a.tokens == 2 && a.drafts == 4 && a.ended && a.why == TPW_FINISH_STOP);
    rule.ignore_eos = true;
    a = tpw_accept(drafts, 4, best, &rule);
    cr_assert(a.tokens == 5 && a.drafts == 4 && !a.ended);
}

Test(accept, end_token_that_was_drafted_wrongly_ends_nothing)
{
    const int32_t drafts[] = {2, 2}, best[] = {5, 2, 2}, ends[] = {2};
    const tpw_run_rule rule = {.end_ids = ends, .end_count = 1, .max_tokens = 1000};
    tpw_accepted a = tpw_accept(drafts, 2, best, &rule);

    cr_assert(a.tokens == 1 && a.drafts == 0 && !a.ended);
}

Test(accept, limit_cuts_and_an_end_token_at_the_limit_is_a_stop)
{
    const int32_t drafts[] = {5, 6, 7}, best[] = {5, 6, 7, 8}, ends[] = {6};
    tpw_run_rule rule = {.end_ids = ends, .end_count = 1, .ignore_eos = true, .emitted = 9, .max_tokens = 11};
    tpw_accepted a = tpw_accept(drafts, 3, best, &rule);

    cr_assert(a.tokens == 2 && a.drafts == 3 && a.ended && a.why == TPW_FINISH_LENGTH);
    rule.ignore_eos = false;
    a = tpw_accept(drafts, 3, best, &rule);
    cr_assert(a.tokens == 2 && a.ended && a.why == TPW_FINISH_STOP);
    rule.max_tokens = 10;
    a = tpw_accept(drafts, 3, best, &rule);
    cr_assert(a.tokens == 1 && a.ended && a.why == TPW_FINISH_LENGTH);
}

/* A row without a number ends the sequence when its turn comes, and only then; a draft of -1 does not make it right. */
Test(accept, row_without_a_number)
{
    const int32_t drafts[] = {5, 0, 7}, first[] = {-1, 6, 7, 8}, second[] = {5, -1, 7, 8}, unreached[] = {4, -1, 7, 8};
    tpw_accepted a = tpw_accept(drafts, 3, first, &open_end);

    cr_assert(a.tokens == 0 && a.drafts == 0 && a.ended && a.why == TPW_FINISH_ERROR);
    a = tpw_accept(drafts, 3, second, &open_end);
    cr_assert(a.tokens == 1 && a.drafts == 1 && a.ended && a.why == TPW_FINISH_ERROR);
    a = tpw_accept(drafts, 3, unreached, &open_end);
    cr_assert(a.tokens == 1 && a.drafts == 0 && !a.ended);
}

/* One step at a time: take best[i]; end if something ends; go on as long as the row behind was run on the right token. */
static tpw_accepted slowly(const int32_t *drafts, int32_t k, const int32_t *best, const tpw_run_rule *rule)
{
    tpw_accepted a = {0};
    int32_t row = 0;
    bool on = true;

    while (row < k && drafts[row] == best[row])
        row++;
    a.drafts = row;
    for (row = 0; on; row++) {
        bool end = false;

        if (best[row] < 0) {
            a.ended = true;
            a.why = TPW_FINISH_ERROR;
            break;
        }
        a.tokens = row + 1;
        for (int32_t e = 0; e < rule->end_count; e++)
            end = end || (!rule->ignore_eos && best[row] == rule->end_ids[e]);
        a.ended = end || rule->emitted + row + 1 >= rule->max_tokens;
        if (a.ended)
            a.why = end ? TPW_FINISH_STOP : TPW_FINISH_LENGTH;
        on = !a.ended && row < k && drafts[row] == best[row];
    }
    return a;
}

/* All runs of K <= 3 over three tokens and "no number", for every limit that matters. */
Test(accept, every_small_run)
{
    const int32_t ends[] = {2};
    int runs = 0, ended[4] = {0};

    for (int32_t k = 0; k <= 3; k++)
        for (int32_t code = 0; code < 1 << (2 * (2 * k + 1)); code++) {
            int32_t drafts[3], best[4];

            for (int32_t i = 0; i <= k; i++)
                best[i] = (code >> (2 * i) & 3) - 1;
            for (int32_t i = 0; i < k; i++) /* a drafter gives tokens: 0..3, of which 3 is never right */
                drafts[i] = code >> (2 * (k + 1 + i)) & 3;
            for (int32_t left = 1; left <= k + 2; left++) {
                const tpw_run_rule rule = {.end_ids = ends,
                                           .end_count = 1,
                                           .ignore_eos = (code + left) % 2 == 0,
                                           .emitted = 40,
                                           .max_tokens = 40 + left};
                tpw_accepted want = slowly(drafts, k, best, &rule), got = tpw_accept(drafts, k, best, &rule);

                cr_assert(got.tokens == want.tokens && got.drafts == want.drafts && got.ended == want.ended &&
                              (!got.ended || got.why == want.why),
                          "K %d, code %x, %d left: %d tokens, %d drafts, ended %d instead of %d, %d, %d", k,
                          (unsigned)code, left, got.tokens, got.drafts, got.ended, want.tokens, want.drafts,
                          want.ended);
                ended[got.ended ? (int)got.why : 3]++;
                runs++;
            }
        }
    cr_assert_eq(runs, 4 * 2 + 64 * 3 + 1024 * 4 + 16384 * 5);
    for (int i = 0; i < 4; i++)
        cr_assert_gt(ended[i], i == TPW_FINISH_CANCELLED ? -1 : 100);
}

Test(accept, draft_limit)
{
    const struct {
        int32_t k, emitted, max_tokens, expected;
    } cases[] = {{4, 0, 100, 4}, {4, 95, 100, 4}, {4, 96, 100, 3}, {4, 98, 100, 1}, {4, 99, 100, 0},     {8, 1, 1, 0},
                 {8, 0, 1, 0},   {8, 0, 2, 1},    {0, 0, 100, 0},  {8, 2, 3, 0},    {8, 0, INT32_MAX, 8}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_assert_eq(tpw_draft_limit(cases[i].k, cases[i].emitted, cases[i].max_tokens), cases[i].expected, "case %zu",
                     i);
    /* what is verified can be emitted: the certain row and every draft row give at most the tokens that are left */
    for (int32_t k = 0; k <= TPW_K_MAX; k++)
        for (int32_t left = 1; left < 20; left++) {
            int32_t n = tpw_draft_limit(k, 50, 50 + left);

            cr_assert(n >= 0 && n <= k && n + 1 <= left && (n == k || n + 1 == left));
        }
}
