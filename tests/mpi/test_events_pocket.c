/* Random admissions and cancels on a real model with drafts and poisoned memory: every sequence gives what it gives alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "mpi_test.h"

#include "backend.h"
#include "event_list.h"
#include "output.h"
#include "worker/worker.h"

#if defined(__SANITIZE_ADDRESS__)
#define EVENTS 150
#else
#define EVENTS 2000
#endif
#define SEED    611ull
#define VOCAB   2048
#define PROMPTS 5
#define MAX     24
#define IDS     6
#define LONGEST 96

MPI_SUITE(events_pocket);

static const int32_t lengths[PROMPTS] = {1, 16, 37, 64, LONGEST};
static int32_t prompts[PROMPTS][LONGEST];
static output alone[PROMPTS][MAX + 1]; /* by prompt and tokens out, made when first needed */

/* What an id stands for just now. */
typedef struct entry {
    bool there;
    int32_t prompt;
    int32_t max_tokens;
    output out;
} entry;

typedef struct tally {
    int admitted;
    int finished;
    int cut; /* cancelled with tokens out: compared up to there */
    int cancelled_early;
    int compared;
    int steps;
} tally;

static tpw_options options_of(int32_t k, int32_t slots, int32_t pages)
{
    tpw_options o = TPW_OPTIONS_INIT;

    test_set_backend(&o);
    o.model = TPW_TEST_POCKET;
    o.sequences_max = slots;
    o.pages = pages;
    o.page_size = 16;
    o.rows_max = 64;
    o.chunk = 48;
    o.context_max = LONGEST + MAX;
    o.draft_max = k;
    o.timeout_ms = 60000;
    return o;
}

static const output *solo(tpw_worker *w, int32_t prompt, int32_t count)
{
    output *o = &alone[prompt][count];

    if (!o->over)
        worker_run(w, prompts[prompt], lengths[prompt], count, o);
    return o;
}

/* Compares everything that is over with its solo run and forgets it. */
static void settle(entry *all, tpw_worker *reference, tally *t)
{
    for (int i = 0; i < IDS; i++) {
        entry *e = &all[i];
        char name[80];

        if (!e->there || !e->out.over)
            continue;
        (void)snprintf(name, sizeof name, "step %d, id %d, prompt of %d, %d of %d out", t->steps, i, lengths[e->prompt],
                       e->out.count, e->max_tokens);
        if (e->out.finish == TPW_FINISH_LENGTH) {
            cr_assert_eq(e->out.count, e->max_tokens, "%s", name);
            t->finished++;
        } else {
            cr_assert_eq(e->out.finish, TPW_FINISH_CANCELLED, "%s: finish %d", name, e->out.finish);
            t->cut += e->out.count > 0;
            t->cancelled_early += e->out.count == 0;
        }
        if (e->out.count > 0)
            t->compared += output_compare(solo(reference, e->prompt, e->out.count), &e->out, false, name);
        output_free(&e->out);
        e->there = false;
    }
}

static void take(tpw_worker *w, entry *all)
{
    tpw_event event;

    while (tpw_worker_poll(w, &event)) {
        uint64_t id = event.id;

        cr_assert(id < IDS && all[id].there);
        event.id = 0;
        output_take(&all[id].out, 1, &event);
    }
}

static bool step(tpw_worker *w, entry *all, tally *t)
{
    tpw_error err = {0};
    bool busy;

    must(tpw_worker_step(w, &busy, &err), "step", &err);
    t->steps++;
    take(w, all);
    return busy;
}

static void one_event(tpw_worker *w, entry *all, uint64_t *state, tally *t)
{
    uint64_t roll = call_random(state) % 100, id = call_random(state) % IDS;
    entry *e = &all[id];
    tpw_error err = {0};

    if (roll < 25 && !e->there) {
        static const int32_t outs[] = {1, 2, 7, MAX};

        e->there = true;
        e->prompt = (int32_t)(call_random(state) % PROMPTS);
        e->max_tokens = outs[call_random(state) % 4];
        worker_admit(w, id, prompts[e->prompt], lengths[e->prompt], e->max_tokens);
        t->admitted++;
    } else if (roll < 35 && e->there) {
        if (mt_rank == 0)
            must(tpw_worker_cancel(w, id, &err), "cancel", &err);
    } else {
        (void)step(w, all, t);
    }
}

MPI_TEST(events_pocket, outputs_are_those_of_solo_runs, .timeout = 270)
{
    const tpw_options many = options_of(2, 3, 20), one = options_of(0, 1, 0);
    tpw_worker *w = worker_open(&many, MPI_COMM_WORLD), *reference = worker_open(&one, MPI_COMM_WORLD);
    entry all[IDS] = {{.there = false}};
    uint64_t state = SEED;
    tally t = {0};
    tpw_stats s;

    for (int p = 0; p < PROMPTS; p++)
        prompt_fill(prompts[p], lengths[p], VOCAB, 40 + (uint64_t)p);
    for (int i = 0; i < EVENTS; i++) {
        one_event(w, all, &state, &t);
        settle(all, reference, &t);
    }
    while (step(w, all, &t))
        settle(all, reference, &t);
    settle(all, reference, &t);
    for (int i = 0; i < IDS; i++)
        cr_assert(!all[i].there, "sequence %d never ended", i);
    tpw_worker_stats(w, &s);
    cr_assert(s.pages_free == 20 && s.slots_free == 3);
    if (mt_rank == 0)
        printf(
            "seed %llu: %d admitted, %d finished, %d cut, %d cancelled before a token, %d steps, %lld of %lld drafts "
            "accepted, %d tokens and digests equal\n",
            SEED, t.admitted, t.finished, t.cut, t.cancelled_early, t.steps, (long long)s.accepted_tokens,
            (long long)s.draft_tokens, t.compared);
    cr_assert_eq(t.admitted, t.finished + t.cut + t.cancelled_early);
    cr_assert(t.finished > EVENTS / 30 && t.cut > EVENTS / 80 && t.cancelled_early > EVENTS / 250 &&
              s.accepted_tokens > EVENTS / 100 && s.accepted_tokens < s.draft_tokens);
    worker_close(reference);
    worker_close(w);
    for (int p = 0; p < PROMPTS; p++)
        for (int i = 0; i <= MAX; i++)
            output_free(&alone[p][i]);
}
