/* Compares runs with drafts with one run without. SPDX-License-Identifier: Apache-2.0 */
#include "speculate.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

void bench_open(bench *b, const workload *w, tpw_compute compute, int32_t vocab, const truth *known, MPI_Comm world)
{
    const cell plain = {1, 1024, compute, "auto", 64, 1, 1024};

    *b = (bench){.work = w, .world = world};
    MPI_Comm_rank(world, &b->rank);
    cell_run(&plain, w, world, &b->reference);
    if (known != NULL)
        b->truth = *known;
    else
        truth_share(&b->truth, &b->reference, w, vocab, world);
}

void bench_close(bench *b)
{
    outcome_free(&b->reference);
    outcome_free(&b->mtp);
}

/* "mtp" of two runs with the MTP drafter: the last scope of each. */
static void compare_mtp(bench *b, const outcome *now, int32_t prompts, const char *what)
{
    for (int32_t p = 0; p < prompts; p++) {
        const tpw_scope_digest *x = &b->mtp.digests[p][b->mtp.digest_count[p] - 1];
        const tpw_scope_digest *y = &now->digests[p][now->digest_count[p] - 1];

        cr_assert(strcmp(x->scope, "mtp") == 0 && strcmp(y->scope, "mtp") == 0, "%s: no mtp digest", what);
        cr_assert_eq(x->global, y->global, "%s: prompt %d, mtp: %016llx instead of %016llx", what, p,
                     (unsigned long long)y->global, (unsigned long long)x->global);
        b->mtp_digests++;
    }
}

/* What must come of drafting: all that was right is taken, as far as the drafter is one of ours and knows. */
static void check_drafter(const drafter *d, const tpw_stats *s, const char *what)
{
    int64_t drafted = 0;

    cr_assert_gt(s->draft_tokens, 0, "%s: nothing was drafted", what);
    if (d->kind == DRAFTER_MTP)
        return;
    drafted = s->draft_tokens;
    cr_assert_eq(drafted, d->drafted, "%s: %lld drafts verified of %lld", what, (long long)drafted,
                 (long long)d->drafted);
    cr_assert_eq(s->accepted_tokens, d->right, "%s: %lld drafts accepted of %lld right ones", what,
                 (long long)s->accepted_tokens, (long long)d->right);
    cr_assert(d->kind != DRAFTER_ORACLE || s->accepted_tokens == drafted);
    cr_assert(d->kind != DRAFTER_WRONG || s->accepted_tokens == 0);
}

void bench_run(bench *b, const cell *c, drafter *d, int32_t k)
{
    workload w = *b->work;
    speculation s;
    outcome now;
    char what[200], text[200];
    int n;

    if (c->batch == 1 && b->single > 0)
        w.prompts = b->single;
    d->truth = &b->truth;
    s = drafter_speculation(d, k);
    n = snprintf(what, sizeof what, "%s, K %d, ", k > 0 ? drafter_name(d->kind) : "none", k);
    cell_name(c, what + n, sizeof what - (size_t)n);
    cell_run_drafting(c, &s, &w, b->world, &now);
    if (b->rank == 0) {
        bool mtp = k > 0 && d->kind == DRAFTER_MTP;

        outcome_difference(&b->reference, &now, w.prompts, text, sizeof text, &b->tokens, &b->digests);
        cr_assert(text[0] == '\0', "%s: %s", what, text);
        for (int32_t p = 0; p < w.prompts; p++)
            cr_assert_eq(now.digest_count[p], b->reference.digest_count[p] + mtp);
        if (k > 0)
            check_drafter(d, &now.stats, what);
        if (mtp && b->has_mtp)
            compare_mtp(b, &now, w.prompts, what);
        b->cells++;
        if (mtp && !b->has_mtp) {
            cr_assert_eq(w.prompts, b->work->prompts, "%s: the first run of MTP must have all prompts", what);
            b->mtp = now;
            b->has_mtp = true;
            return;
        }
    }
    outcome_free(&now);
}
