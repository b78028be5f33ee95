/* Records of the exchange of arg-max, the choice among them, and what is accepted of a run.
 * SPDX-License-Identifier: Apache-2.0 */
#include "exchange_case.h"

#include "kernels/accept.h"

/* The records of all ranks, joined by or. */
static void gather_records(const tpw_exec *exec, int32_t rows, int size, float value[][EXCHANGE_ROWS],
                           int32_t id[][EXCHANGE_ROWS], uint64_t *all)
{
    const size_t words = (size_t)size * (1 + (size_t)rows);
    uint64_t *one = ops_alloc(words * sizeof *one);

    memset(all, 0, words * sizeof *all);
    for (int r = 0; r < size; r++) {
        const uint64_t agree = 1000 + (uint64_t)r;
        const tpw_record_args args = {&agree, value[r], id[r], rows, r, size, one};

        memset(one, OPS_POISON, words * sizeof *one);
        cr_assert_eq(exec->ops->record(exec, &args, NULL), TPW_OK);
        for (size_t i = 0; i < words; i++) {
            const bool mine = i / (1 + (size_t)rows) == (size_t)r;

            cr_assert(mine || one[i] == 0, "rank %d wrote word %zu", r, i);
            all[i] |= one[i];
        }
        cr_assert_eq(all[(size_t)r * (1 + (size_t)rows)], agree);
    }
    free(one);
}

Test(exchange, every_rank_chooses_the_best_of_all)
{
    tpw_exec *exec = ops_exec(0);
    ops_random r = {71};
    int none = 0, ties = 0;

    for (int size = 1; size <= EXCHANGE_RANKS; size *= 2)
        for (int round = 0; round < 20; round++) {
            float value[EXCHANGE_RANKS][EXCHANGE_ROWS];
            int32_t id[EXCHANGE_RANKS][EXCHANGE_ROWS], best[EXCHANGE_ROWS], to[EXCHANGE_ROWS],
                tokens[2 * EXCHANGE_ROWS];
            uint64_t all[EXCHANGE_RANKS * (1 + EXCHANGE_ROWS)];
            const int32_t rows = 1 + round * 2;
            const tpw_pick_args args = {all, rows, size, best, to, tokens};

            for (int q = 0; q < size; q++)
                exchange_fill(value[q], id[q], rows, q, &r);
            for (int32_t i = 0; i < rows; i++)
                to[i] = 2 * (rows - 1 - i);
            memset(tokens, OPS_POISON, sizeof tokens);
            gather_records(exec, rows, size, value, id, all);
            cr_assert_eq(exec->ops->pick(exec, &args, NULL), TPW_OK);
            for (int32_t i = 0; i < rows; i++) {
                int at = -1;

                for (int q = size - 1; q >= 0; q--) /* the lowest rank among equals comes last */
                    if (id[q][i] >= 0 && (at < 0 || value[q][i] >= value[at][i])) {
                        ties += at >= 0 && value[q][i] == value[at][i];
                        at = q;
                    }
                cr_assert_eq(best[i], at < 0 ? -1 : id[at][i], "row %d of %d ranks", i, size);
                cr_assert_eq(tokens[2 * (rows - 1 - i)], at < 0 ? 0 : id[at][i]);
                none += at < 0;
            }
        }
    cr_assert(none > 10 && ties > 100, "%d rows without a number, %d ties", none, ties);
    tpw_host_destroy(exec);
}

/* Agreement alone, as in a step without rows. */
Test(exchange, no_rows)
{
    tpw_exec *exec = ops_exec(0);
    const uint64_t agree = 5;
    uint64_t all[4] = {9, 9, 9, 9};
    const tpw_record_args args = {&agree, NULL, NULL, 0, 2, 4, all};

    cr_assert_eq(exec->ops->record(exec, &args, NULL), TPW_OK);
    cr_assert(all[0] == 0 && all[1] == 0 && all[2] == 5 && all[3] == 0);
    tpw_host_destroy(exec);
}

Test(exchange, accept_takes_what_one_token_steps_would)
{
    tpw_exec *exec = ops_exec(0);
    ops_random r = {72};
    int rejected = 0, whole = 0, errors = 0;

    for (int round = 0; round < 200; round++) {
        static accept_case c;
        int32_t taken[EXCHANGE_ENTRIES], last[EXCHANGE_ENTRIES];

        accept_fill(&c, &r);
        tpw_accept_args args = {c.entries, EXCHANGE_ENTRIES, c.tokens, c.best, {0}, c.end_count, taken, last};
        memcpy(args.end_ids, c.end_ids, sizeof args.end_ids);
        cr_assert_eq(exec->ops->accept(exec, &args, NULL), TPW_OK);
        for (int i = 0; i < EXCHANGE_ENTRIES; i++) {
            const tpw_accept_entry *e = &c.entries[i];
            int32_t rows = e->rows, n = 0;

            cr_assert_eq(last[i], e->row0 + taken[i] - 1);
            for (bool on = e->best0 >= 0; on; n++) { /* one row after the other, as without drafts */
                const int32_t token = c.best[e->best0 + n];
                bool end = token < 0 || e->emitted + n + 1 == e->max_tokens;

                for (int k = 0; k < c.end_count && !e->ignore_eos; k++)
                    end = end || token == c.end_ids[k];
                on = !end && n < e->drafts && c.tokens[e->draft0 + n] == token;
                rows += on;
                errors += token < 0;
            }
            rejected += rows<e->rows + e->drafts, whole += e->drafts> 0 && rows == e->rows + e->drafts;
            cr_assert_eq(taken[i], rows, "entry %d of round %d: %d rows instead of %d", i, round, taken[i], rows);
        }
    }
    cr_assert(rejected > 500 && whole > 100 && errors > 100, "%d, %d, %d", rejected, whole, errors);
    tpw_host_destroy(exec);
}

Test(exchange, too_many_end_tokens)
{
    tpw_exec *exec = ops_exec(0);
    const tpw_accept_args args = {.end_count = TPW_ENDS_MAX + 1};
    tpw_error err = {0};

    cr_assert_eq(exec->ops->accept(exec, &args, &err), TPW_ERR_ARGUMENT);
    cr_assert(strstr(err.text, "17 end tokens") != NULL, "%s", err.text);
    tpw_host_destroy(exec);
}
