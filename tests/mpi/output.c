/* Outputs of sequences of a real model, and their solo runs. SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "worker/worker.h"

void output_free(output *o)
{
    free(o->digests);
    *o = (output){0};
}

void must(tpw_status st, const char *what, const tpw_error *err)
{
    cr_assert_eq(st, TPW_OK, "%s: %s: %s", what, tpw_status_name(st), err->text);
}

void output_take(output *outputs, int32_t count, const tpw_event *event)
{
    output *o = &outputs[event->id];

    cr_assert_lt(event->id, (uint64_t)count);
    cr_assert(!o->over, "an event of sequence %llu, which is over", (unsigned long long)event->id);
    if (event->type == TPW_EVENT_TOKEN) {
        cr_assert_lt(o->count, OUTPUT_TOKENS);
        cr_assert(o->count == 0 || event->position == o->position + 1, "token at %lld behind %lld",
                  (long long)event->position, (long long)o->position);
        o->position = event->position;
        o->tokens[o->count++] = event->token;
        return;
    }
    cr_assert_eq(event->output_tokens, o->count);
    o->over = true;
    o->finish = event->finish;
    o->position = event->position;
    o->digest_count = event->digest_count;
    if (event->digest_count > 0) {
        o->digests = malloc((size_t)event->digest_count * sizeof *o->digests);
        cr_assert_not_null(o->digests);
        memcpy(o->digests, event->digests, (size_t)event->digest_count * sizeof *o->digests);
    }
}

tpw_worker *worker_open(const tpw_options *options, MPI_Comm comm)
{
    tpw_worker *worker = NULL;
    tpw_error err = {0};

    must(tpw_worker_create(options, comm, &worker, &err), "create", &err);
    must(tpw_worker_load(worker, &err), "load", &err);
    must(tpw_worker_poison(worker, &err), "poison", &err);
    return worker;
}

void worker_close(tpw_worker *worker)
{
    tpw_error err = {0};

    must(tpw_worker_finalize(worker, &err), "finalize", &err);
    tpw_worker_destroy(worker);
}

void worker_admit(tpw_worker *worker, uint64_t id, const int32_t *ids, int32_t count, int32_t max_tokens)
{
    const tpw_request request = {
        .size = sizeof request, .id = id, .ids = ids, .count = count, .max_tokens = max_tokens, .ignore_eos = true};
    tpw_error err = {0};

    if (tpw_worker_rank(worker) == 0)
        must(tpw_worker_admit(worker, &request, &err), "admit", &err);
}

bool worker_step(tpw_worker *worker, output *outputs, int32_t count)
{
    tpw_error err = {0};
    tpw_event event;
    bool busy;

    must(tpw_worker_step(worker, &busy, &err), "step", &err);
    while (tpw_worker_poll(worker, &event))
        output_take(outputs, count, &event);
    return busy;
}

void worker_run(tpw_worker *worker, const int32_t *ids, int32_t count, int32_t max_tokens, output *out)
{
    *out = (output){0};
    worker_admit(worker, 0, ids, count, max_tokens);
    while (worker_step(worker, out, 1))
        continue;
    cr_assert(out->over && out->finish == TPW_FINISH_LENGTH && out->count == max_tokens);
}

void solo_run(const tpw_options *options, MPI_Comm comm, const int32_t *ids, int32_t count, int32_t max_tokens,
              output *out)
{
    tpw_options solo = *options;
    tpw_worker *worker;

    solo.sequences_max = 1;
    solo.draft_max = 0;
    solo.drafter = NULL;
    solo.pages = 0;
    worker = worker_open(&solo, comm);
    worker_run(worker, ids, count, max_tokens, out);
    worker_close(worker);
}

static const tpw_scope_digest *digest_of(const output *o, const tpw_scope_digest *like)
{
    for (int32_t i = 0; i < o->digest_count; i++)
        if (strcmp(o->digests[i].scope, like->scope) == 0 && o->digests[i].layer == like->layer)
            return &o->digests[i];
    return NULL;
}

int output_compare(const output *expected, const output *got, bool mtp, const char *what)
{
    int compared = 0;

    cr_assert(expected->over && got->over, "%s: not over", what);
    cr_assert_eq(got->count, expected->count, "%s: %d tokens instead of %d", what, got->count, expected->count);
    cr_assert_eq(got->position, expected->position, "%s: ends at %lld instead of %lld", what, (long long)got->position,
                 (long long)expected->position);
    for (int32_t i = 0; i < got->count; i++, compared++)
        cr_assert_eq(got->tokens[i], expected->tokens[i], "%s: token %d is %d instead of %d", what, i, got->tokens[i],
                     expected->tokens[i]);
    for (int32_t i = 0; i < expected->digest_count; i++) {
        const tpw_scope_digest *a = &expected->digests[i], *b = digest_of(got, a);

        if (strcmp(a->scope, "mtp") == 0 && !mtp)
            continue;
        cr_assert_not_null(b, "%s: no digest of %s, layer %d", what, a->scope, a->layer);
        cr_assert_eq(b->global, a->global, "%s: %s of layer %d is %016llx instead of %016llx", what, a->scope, a->layer,
                     (unsigned long long)b->global, (unsigned long long)a->global);
        compared++;
    }
    cr_assert_gt(expected->digest_count, 0, "%s: no digests", what);
    return compared;
}

void prompt_fill(int32_t *ids, int32_t count, int32_t vocab, uint64_t seed)
{
    for (int32_t i = 0; i < count; i++)
        ids[i] = 3 + (int32_t)(tpw_digest_term(seed, (uint64_t)i, 0) % (uint64_t)(vocab - 3));
}
