/* Small runs of a model folder, stepped by hand. SPDX-License-Identifier: Apache-2.0 */
#include "small_run.h"

#include <criterion/criterion.h>
#include <string.h>

#include "backend.h"
#include "base/digest.h"

#define PROMPT_MAX 64

uint64_t small_next(small_random *r)
{
    return tpw_digest_fin(r->state += 0x9E3779B97F4A7C15ull);
}

int32_t small_below(small_random *r, int32_t n)
{
    return (int32_t)(small_next(r) % (uint64_t)n);
}

tpw_options small_options(const char *model, int32_t k, int32_t check_every)
{
    tpw_options o = TPW_OPTIONS_INIT;

    test_set_backend(&o);
    o.model = model;
    o.sequences_max = 7;
    o.chunk = 16;
    o.page_size = 8;
    o.context_max = 160;
    o.draft_max = k;
    o.check_every = check_every;
    o.timeout_ms = 60000;
    return o;
}

tpw_worker *small_open(const tpw_options *options)
{
    tpw_worker *worker = NULL;
    tpw_error err = {0};

    cr_assert_eq(tpw_worker_create(options, MPI_COMM_WORLD, &worker, &err), TPW_OK, "create: %s", err.text);
    cr_assert_eq(tpw_worker_load(worker, &err), TPW_OK, "load: %s", err.text);
    return worker;
}

void small_admit(tpw_worker *worker, uint64_t first_id, const int32_t *lengths, int32_t count, int32_t max_tokens)
{
    tpw_model_info info;
    tpw_error err = {0};

    if (tpw_worker_rank(worker) != 0)
        return;
    tpw_worker_model_info(worker, &info);
    for (int32_t p = 0; p < count; p++) {
        int32_t ids[PROMPT_MAX];
        const tpw_request request = {.size = sizeof request,
                                     .id = first_id + (uint64_t)p,
                                     .ids = ids,
                                     .count = lengths[p],
                                     .max_tokens = max_tokens,
                                     .ignore_eos = true};

        cr_assert(lengths[p] <= PROMPT_MAX);
        for (int32_t i = 0; i < lengths[p]; i++)
            ids[i] = (int32_t)(tpw_digest_term(99, (uint64_t)(p * 1000 + i), 0) % (uint64_t)info.vocab);
        cr_assert_eq(tpw_worker_admit(worker, &request, &err), TPW_OK, "admit: %s", err.text);
    }
}

static void fold(const tpw_event *e, uint64_t first_id, small_result *r)
{
    uint64_t key = tpw_digest_fin(e->id - first_id + 1);

    if (e->type == TPW_EVENT_TOKEN) {
        r->tokens++;
        r->token_sum += tpw_digest_term(key, (uint64_t)e->position, (uint64_t)e->token);
        return;
    }
    r->finished++;
    for (int32_t i = 0; i < e->digest_count; i++) {
        const tpw_scope_digest *d = &e->digests[i];

        r->digest_sum += tpw_digest_term(key ^ tpw_digest_key(d->scope), (uint64_t)(d->layer + 1), d->global);
    }
}

tpw_status small_step(tpw_worker *worker, uint64_t first_id, bool *busy, small_result *result, tpw_error *err)
{
    tpw_status st = tpw_worker_step(worker, busy, err);
    tpw_event event;

    while (tpw_worker_poll(worker, &event))
        if (result != NULL)
            fold(&event, first_id, result);
    return st;
}

void small_diverged(tpw_status st, const tpw_error *err, const char *part1, const char *part2, const char *what)
{
    int found = st == TPW_ERR_DIVERGED, any = 0;

    cr_assert(found || st == TPW_ERR_PEER, "%s: ended with %s: %s", what, tpw_status_name(st), err->text);
    cr_assert(strstr(err->text, part1) != NULL && strstr(err->text, part2) != NULL, "%s: \"%s\" and \"%s\" not in: %s",
              what, part1, part2, err->text);
    MPI_Allreduce(&found, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    cr_assert(any, "%s: every rank was told by another", what);
}

void small_finish(tpw_worker *worker, uint64_t first_id, small_result *result)
{
    tpw_error err = {0};
    bool busy = true;

    while (busy)
        cr_assert_eq(small_step(worker, first_id, &busy, result, &err), TPW_OK, "step: %s", err.text);
}

void small_equal(const small_result *a, const small_result *b, const char *what)
{
    cr_assert(a->tokens > 0 && a->finished > 0 && a->digest_sum != 0, "%s: nothing came out", what);
    cr_assert(a->tokens == b->tokens && a->finished == b->finished, "%s: %lld tokens of %d sequences, not %lld of %d",
              what, (long long)b->tokens, b->finished, (long long)a->tokens, a->finished);
    cr_assert(a->token_sum == b->token_sum, "%s: other tokens", what);
    cr_assert(a->digest_sum == b->digest_sum, "%s: other digests", what);
}
