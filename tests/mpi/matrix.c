/* Runs one cell of an exactness matrix and compares outcomes. SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "base/digest.h"
#include "worker/worker.h"

void cell_name(const cell *c, char *text, size_t bytes)
{
    snprintf(text, bytes, "tp %d, chunk %d, %s, %s, page %d, batch %d, rows %d", c->tp, c->chunk,
             c->compute == TPW_COMPUTE_F32 ? "f32" : "bf16", c->isa, c->page, c->batch, c->rows);
}

/* Sleeps instead of spinning: the ranks that do nothing must not take the cores of those that do. */
static void polite_barrier(MPI_Comm comm)
{
    MPI_Request request;
    int done = 0;

    MPI_Ibarrier(comm, &request);
    while (!done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done)
            usleep(2000);
    }
}

static void must(tpw_status st, const char *what, const tpw_error *err)
{
    cr_assert_eq(st, TPW_OK, "%s: %s: %s", what, tpw_status_name(st), err->text);
}

static void admit_all(tpw_worker *worker, const workload *w)
{
    tpw_error err = {0};

    for (int32_t p = 0; p < w->prompts; p++) {
        int32_t *ids = malloc((size_t)w->lengths[p] * sizeof *ids);
        const tpw_request request = {.size = sizeof request,
                                     .id = (uint64_t)p,
                                     .ids = ids,
                                     .count = w->lengths[p],
                                     .max_tokens = w->limits[p] > 0 ? w->limits[p] : w->max_tokens,
                                     .ignore_eos = w->end_count == 0};

        for (int32_t i = 0; i < w->lengths[p]; i++)
            ids[i] = 3 + (int32_t)(tpw_digest_term(77, (uint64_t)(p * 100000 + i), 0) % (uint64_t)(w->vocab_used - 3));
        must(tpw_worker_admit(worker, &request, &err), "admit", &err);
        free(ids);
    }
}

static void take_events(tpw_worker *worker, outcome *out)
{
    tpw_event event;

    while (tpw_worker_poll(worker, &event)) {
        if (event.type == TPW_EVENT_TOKEN) {
            cr_assert_lt(out->token_count[event.id], CELL_TOKENS_MAX);
            out->tokens[event.id][out->token_count[event.id]++] = event.token;
            continue;
        }
        cr_assert(event.finish == TPW_FINISH_LENGTH || event.finish == TPW_FINISH_STOP, "sequence %llu ended with %d",
                  (unsigned long long)event.id, event.finish);
        cr_assert_eq(event.output_tokens, out->token_count[event.id]);
        cr_assert_eq(event.position, event.prompt_tokens + event.output_tokens - 1);
        out->finish[event.id] = event.finish;
        out->position[event.id] = event.position;
        out->digest_count[event.id] = event.digest_count;
        out->digests[event.id] = malloc((size_t)event.digest_count * sizeof *event.digests);
        memcpy(out->digests[event.id], event.digests, (size_t)event.digest_count * sizeof *event.digests);
    }
}

static void set_options(tpw_options *o, const cell *c, const speculation *s, const workload *w)
{
    int32_t longest = 0;

    for (int32_t p = 0; p < w->prompts; p++)
        longest = w->lengths[p] > longest ? w->lengths[p] : longest;
    test_set_backend(o);
    o->model = w->model;
    o->dummy = w->dummy;
    o->dummy_layers = w->layers;
    o->dummy_vocab = w->vocab;
    o->compute = c->compute;
    o->sequences_max = c->batch;
    o->rows_max = c->rows;
    o->chunk = c->chunk;
    o->page_size = c->page;
    o->context_max = longest + w->max_tokens;
    o->isa = c->isa;
    o->timeout_ms = 120000;
    o->draft_max = s->k;
    o->drafter = s->drafter;
    o->drafter_data = s->drafter_data;
}

static void run_group(const cell *c, const speculation *s, const workload *w, MPI_Comm group, outcome *out)
{
    tpw_options options = TPW_OPTIONS_INIT;
    tpw_worker *worker = NULL;
    tpw_error err = {0};
    bool busy = true;
    int rank;

    set_options(&options, c, s, w);
    MPI_Comm_rank(group, &rank);
    must(tpw_worker_create(&options, group, &worker, &err), "create", &err);
    must(tpw_worker_load(worker, &err), "load", &err);
    if (w->end_count > 0) {
        memcpy(worker->config.end_ids, w->end_ids, sizeof w->end_ids);
        worker->config.end_count = w->end_count;
    }
    if (s->poison)
        must(tpw_worker_poison(worker, &err), "poison", &err);
    if (s->loaded != NULL)
        s->loaded(worker);
    if (rank == 0)
        admit_all(worker, w);
    while (busy) {
        must(tpw_worker_step(worker, &busy, &err), "step", &err);
        take_events(worker, out);
    }
    tpw_worker_stats(worker, &out->stats);
    must(tpw_worker_finalize(worker, &err), "finalize", &err);
    tpw_worker_destroy(worker);
}

void cell_run_drafting(const cell *c, const speculation *s, const workload *w, MPI_Comm world, outcome *out)
{
    MPI_Comm group;
    int rank, size;

    *out = (outcome){0};
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    MPI_Comm_split(world, rank < test_tp(c->tp, size) ? 0 : MPI_UNDEFINED, rank, &group);
    if (group != MPI_COMM_NULL) {
        run_group(c, s, w, group, out);
        MPI_Comm_free(&group);
    }
    polite_barrier(world);
}

void cell_run(const cell *c, const workload *w, MPI_Comm world, outcome *out)
{
    const speculation none = {0};

    cell_run_drafting(c, &none, w, world, out);
}

void outcome_free(outcome *o)
{
    for (int p = 0; p < CELL_PROMPTS_MAX; p++)
        free(o->digests[p]);
    *o = (outcome){0};
}

/* Prompt p of both; true when they are equal. */
static bool prompt_equal(const outcome *a, const outcome *b, int p, char *text, size_t bytes, int *tokens, int *digests)
{
    for (int i = 0; i < a->token_count[p] && i < b->token_count[p]; i++, (*tokens)++)
        if (a->tokens[p][i] != b->tokens[p][i]) {
            snprintf(text, bytes, "prompt %d token %d is %d instead of %d", p, i, b->tokens[p][i], a->tokens[p][i]);
            return false;
        }
    if (a->token_count[p] != b->token_count[p] || a->finish[p] != b->finish[p] || a->position[p] != b->position[p]) {
        snprintf(text, bytes, "prompt %d ends with %d tokens, finish %d, position %lld instead of %d, %d, %lld", p,
                 b->token_count[p], b->finish[p], (long long)b->position[p], a->token_count[p], a->finish[p],
                 (long long)a->position[p]);
        return false;
    }
    if (b->digest_count[p] < a->digest_count[p]) {
        snprintf(text, bytes, "prompt %d has %d digests instead of %d", p, b->digest_count[p], a->digest_count[p]);
        return false;
    }
    for (int i = 0; i < a->digest_count[p]; i++, (*digests)++) {
        const tpw_scope_digest *x = &a->digests[p][i], *y = &b->digests[p][i];

        if (strcmp(x->scope, y->scope) != 0 || x->layer != y->layer || x->global != y->global) {
            snprintf(text, bytes, "prompt %d, %s of layer %d: %016llx instead of %016llx", p, x->scope, x->layer,
                     (unsigned long long)y->global, (unsigned long long)x->global);
            return false;
        }
    }
    return true;
}

void outcome_difference(const outcome *a, const outcome *b, int32_t prompts, char *text, size_t bytes, int *tokens,
                        int *digests)
{
    text[0] = '\0';
    for (int32_t p = 0; p < prompts; p++)
        if (!prompt_equal(a, b, p, text, bytes, tokens, digests))
            return;
}

int outcome_compare(const outcome *a, const outcome *b, const char *what)
{
    int tokens = 0, digests = 0;
    char text[200];

    outcome_difference(a, b, CELL_PROMPTS_MAX, text, sizeof text, &tokens, &digests);
    cr_assert(text[0] == '\0', "%s: %s", what, text);
    for (int p = 0; p < CELL_PROMPTS_MAX; p++)
        cr_assert_eq(a->digest_count[p], b->digest_count[p]);
    cr_assert_gt(tokens + digests, 0, "%s: nothing was compared", what);
    return tokens + digests;
}

int matrix_run(const char *name, const workload *w, const cell *cells, int count, MPI_Comm world)
{
    outcome first = {0}, now;
    int compared = 0, cells_compared = 0, rank;
    char text[320];

    MPI_Comm_rank(world, &rank);
    for (int i = 0; i < count; i++) {
        cell_run(&cells[i], w, world, &now);
        if (i == 0 || cells[i].compute != cells[i - 1].compute) {
            outcome_free(&first);
            first = now;
            continue;
        }
        cell_name(&cells[i], text, sizeof text);
        if (rank == 0) {
            compared += outcome_compare(&first, &now, text);
            cells_compared++;
        }
        outcome_free(&now);
    }
    if (rank == 0)
        printf("%s: %d cells against their first, %d tokens and digests equal\n", name, cells_compared, compared);
    outcome_free(&first);
    return compared;
}
