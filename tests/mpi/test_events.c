/* Random calls to a worker without arithmetic, compared with a model of the scheduler after every call.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mpi_test.h"

#include "event_list.h"
#include "fake_ops.h"
#include "model_scheduler.h"
#include "tpworker/mpi.h"
#include "worker/worker.h"

#ifndef TPW_TEST_EVENTS
#define TPW_TEST_EVENTS 5000
#endif
#define SEED     20260727ull
#define VOCAB    64
#define END_ID   7
#define IDS      16
#define SHRINKS  400
#define OVER_MAX 100000 /* steps after which a list must have ended */

MPI_SUITE(events);

static const call_limits draw = {.ids = IDS, .prompt_max = 300, .max_tokens_max = 40, .vocab = VOCAB};

/* Knows the answer about half the time, and now and then has less to say than it was asked for. */
static int32_t half_right(void *data, uint64_t id, const int32_t *tokens, int32_t count, int32_t k, int32_t *drafts)
{
    int32_t last = tokens[count - 1], n = k;

    (void)data;
    for (int32_t i = 0; i < k; i++) {
        uint64_t roll = ((uint64_t)last * 31 + (uint64_t)(count + i) * 17 + id) * 0x9E3779B97F4A7C15ull >> 40;
        int32_t next = fake_next(last, count - 1 + i, VOCAB);

        last = drafts[i] = roll % 2 == 0 || next < 0 ? (int32_t)(roll / 2 % VOCAB) : next;
        if (roll % 11 == 3 && n == k)
            n = i;
    }
    return n;
}

/* A worker and the model that it is compared with. */
typedef struct pair {
    model_limits limits;
    tpw_worker *worker;
    model_scheduler model;
    int64_t seen[SEEN_COUNT]; /* of all runs */
    int64_t steps;
    int64_t calls;
    char text[512]; /* the first difference */
} pair;

static bool differs(pair *p, const char *format, ...) TPW_PRINTF(2, 3);
static bool differs(pair *p, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    (void)vsnprintf(p->text, sizeof p->text, format, list);
    va_end(list);
    return false;
}

static void open_worker(pair *p)
{
    const model_limits *l = &p->limits;
    tpw_options o = TPW_OPTIONS_INIT;
    tpw_error err = {0};
    tpw_status st;

    o.dummy = "qwen3.5-0.8b";
    o.dummy_layers = 1;
    o.dummy_vocab = l->vocab;
    o.compute = TPW_COMPUTE_F32;
    o.sequences_max = l->slots;
    o.pages = l->pages;
    o.page_size = l->page_size;
    o.rows_max = l->rows;
    o.chunk = l->chunk;
    o.context_max = l->context;
    o.draft_max = l->k;
    o.drafter = l->drafter;
    st = tpw_worker_create(&o, MPI_COMM_SELF, &p->worker, &err);
    cr_assert_eq(st, TPW_OK, "%s", err.text);
    st = tpw_worker_load(p->worker, &err);
    cr_assert_eq(st, TPW_OK, "%s", err.text);
    p->worker->exec->ops = fake_ops();
    p->worker->config.end_ids[0] = l->end_id;
    p->worker->config.end_count = 1;
}

/* Takes the worker back to its start, whatever a run left behind; makes a new one when it has failed. */
static void reset(pair *p)
{
    bool busy = true;
    tpw_event event;
    tpw_stats stats;

    for (uint64_t id = 0; p->worker != NULL && id < IDS; id++)
        (void)tpw_worker_cancel(p->worker, id, NULL);
    if (p->worker == NULL || tpw_worker_step(p->worker, &busy, NULL) != TPW_OK || busy) {
        tpw_worker_destroy(p->worker);
        open_worker(p);
    }
    while (tpw_worker_poll(p->worker, &event))
        continue;
    tpw_worker_stats(p->worker, &stats);
    if (stats.pages_free != p->limits.pages || stats.slots_free != p->limits.slots) {
        tpw_worker_destroy(p->worker);
        open_worker(p);
    }
    model_init(&p->model, &p->limits);
}

/* What the public counters, and the ledger behind them, must be after a step. */
static bool same_counts(pair *p, int64_t output_before)
{
    const tpw_sequences *all = &p->worker->sequences;
    const model_scheduler *m = &p->model;
    bool owned[4096] = {false};
    tpw_stats s;

    tpw_worker_stats(p->worker, &s);
    if (s.sequences_running != m->running_count || s.sequences_waiting != m->waiting_count)
        return differs(p, "%d running and %d waiting instead of %d and %d", s.sequences_running, s.sequences_waiting,
                       m->running_count, m->waiting_count);
    if (s.pages_free != m->pages_free || s.slots_free != p->limits.slots - m->running_count)
        return differs(p, "%d pages and %d slots free instead of %d and %d", s.pages_free, s.slots_free, m->pages_free,
                       p->limits.slots - m->running_count);
    if (s.output_tokens - output_before != m->output_tokens)
        return differs(p, "%lld tokens counted instead of %lld", (long long)(s.output_tokens - output_before),
                       (long long)m->output_tokens);
    for (int32_t i = 0; i < m->running_count; i++) {
        const tpw_sequence *a = all->running[i];
        const model_sequence *b = m->running[i];

        if (a->id != b->id || a->pos != b->pos || a->emitted != b->emitted || a->page_count != b->pages)
            return differs(p, "place %d runs sequence %llu at %lld with %d out instead of %llu at %d with %d", i,
                           (unsigned long long)a->id, (long long)a->pos, a->emitted, (unsigned long long)b->id, b->pos,
                           b->emitted);
        for (int32_t j = 0; j < a->page_count; j++) {
            if (a->pages[j] < 1 || a->pages[j] > p->limits.pages || owned[a->pages[j]])
                return differs(p, "sequence %llu has page %d, which is not there or another's",
                               (unsigned long long)a->id, a->pages[j]);
            owned[a->pages[j]] = true;
        }
    }
    return true;
}

static bool admit(pair *p, const call *c)
{
    int32_t ids[512];
    tpw_request r = call_request(c, &draw, ids);
    tpw_error err = {0};
    tpw_status also, expected = model_admit(&p->model, &r, &also);
    tpw_status st = tpw_worker_admit(p->worker, &r, &err);

    memset(ids, 0xEE, sizeof ids); /* the worker has its own copy */
    if (st != expected && st != also)
        return differs(p, "admit gives %s (%s) instead of %s", tpw_status_name(st), err.text,
                       tpw_status_name(expected));
    return st == TPW_OK || err.text[0] != '\0' ? true : differs(p, "a refusal without text");
}

static bool cancel(pair *p, const call *c)
{
    tpw_error err = {0};
    tpw_status expected = model_cancel(&p->model, c->id), st = tpw_worker_cancel(p->worker, c->id, &err);

    return st == expected ? true
                          : differs(p, "cancel gives %s (%s) instead of %s", tpw_status_name(st), err.text,
                                    tpw_status_name(expected));
}

static bool one_step(pair *p, int64_t output_before, bool *busy)
{
    bool expected = model_step(&p->model);
    tpw_error err = {0};
    tpw_status st = tpw_worker_step(p->worker, busy, &err);

    p->steps++;
    if (st != TPW_OK)
        return differs(p, "step gives %s: %s", tpw_status_name(st), err.text);
    if (*busy != expected)
        return differs(p, "busy is %d instead of %d", *busy, expected);
    return same_counts(p, output_before);
}

/* Polls once on both sides. *any: there was an event. */
static bool poll_both(pair *p, bool *any)
{
    tpw_event a, b = {0};
    bool there = tpw_worker_poll(p->worker, &a);

    *any = model_poll(&p->model, &b);
    if (there != *any)
        return differs(p, "poll gives %s event", there ? "an" : "no");
    if (!there)
        return true;
    if (a.type != b.type || a.id != b.id || a.position != b.position)
        return differs(p, "event %d of sequence %llu at %lld instead of %d of %llu at %lld", a.type,
                       (unsigned long long)a.id, (long long)a.position, b.type, (unsigned long long)b.id,
                       (long long)b.position);
    if (a.type == TPW_EVENT_TOKEN)
        return a.token == b.token ? true
                                  : differs(p, "sequence %llu: token %d at %lld instead of %d",
                                            (unsigned long long)a.id, a.token, (long long)a.position, b.token);
    if (a.finish != b.finish || a.prompt_tokens != b.prompt_tokens || a.output_tokens != b.output_tokens ||
        (a.digest_count > 0) != (b.digest_count > 0) || (a.digest_count > 0) != (a.digests != NULL))
        return differs(p, "sequence %llu finished %d with %d + %d tokens, %d digests instead of %d with %d + %d",
                       (unsigned long long)a.id, a.finish, a.prompt_tokens, a.output_tokens, a.digest_count, b.finish,
                       b.prompt_tokens, b.output_tokens);
    return true;
}

static bool poll_some(pair *p, int32_t times)
{
    bool any = true;

    for (int32_t i = 0; i < times && any; i++)
        if (!poll_both(p, &any))
            return false;
    return true;
}

/* Runs what is left to its end. */
static bool drain(pair *p, int64_t output_before)
{
    bool busy = true, any = true;

    for (int32_t i = 0; busy && i < OVER_MAX; i++)
        if (!one_step(p, output_before, &busy) || !poll_some(p, MODEL_EVENTS))
            return false;
    while (any)
        if (!poll_both(p, &any))
            return false;
    return !busy && p->model.pages_free == p->limits.pages ? true : differs(p, "it never ends");
}

/* A calls_fail. */
static bool run_list(void *data, const call *list, int32_t count, int32_t *at)
{
    pair *p = data;
    bool good = true, busy;
    tpw_stats stats;

    reset(p);
    tpw_worker_stats(p->worker, &stats);
    for (*at = 0; *at < count; ++*at) {
        const call *c = &list[*at];

        switch (c->kind) {
        case CALL_ADMIT:
            good = admit(p, c);
            break;
        case CALL_CANCEL:
            good = cancel(p, c);
            break;
        case CALL_STEP:
            good = one_step(p, stats.output_tokens, &busy);
            break;
        case CALL_POLL:
            good = poll_some(p, c->prompt);
            break;
        }
        if (!good)
            break;
        p->calls++;
    }
    good = good && drain(p, stats.output_tokens);
    for (int i = 0; i < SEEN_COUNT; i++)
        p->seen[i] += p->model.seen[i];
    model_fini(&p->model);
    return !good;
}

/* Runs a list; on a difference makes it small, prints it and fails. */
static void check_list(pair *p, int32_t count, uint64_t seed)
{
    call *list = calloc((size_t)count, sizeof *list);
    int32_t at;

    calls_fill(list, count, &draw, seed);
    if (run_list(p, list, count, &at)) {
        printf("seed %llu, K %d, %d pages, call %d of %d: %s\n", (unsigned long long)seed, p->limits.k, p->limits.pages,
               at, count, p->text);
        count = calls_shrink(list, count, run_list, p, SHRINKS);
        (void)run_list(p, list, count, &at);
        printf("smallest list that was found (%d calls): %s\n", count, p->text);
        calls_print(list, count);
        cr_assert_fail("worker and model differ: %s", p->text);
    }
    free(list);
}

/* Enough pages for all; too few, so that sequences wait and some can never fit; rows so few that prompts share them. */
static const model_limits settings[] = {
    {.slots = 4, .pages = 64, .page_size = 16, .rows = 64, .chunk = 48, .k = 0},
    {.slots = 4, .pages = 15, .page_size = 16, .rows = 40, .chunk = 256, .k = 3},
    {.slots = 6, .pages = 8, .page_size = 32, .rows = 24, .chunk = 7, .k = 3},
    {.slots = 3, .pages = 300, .page_size = 1, .rows = 256, .chunk = 256, .k = 0},
    {.slots = 8, .pages = 4, .page_size = 64, .rows = 72, .chunk = 256, .k = 8},
};

static void setting(pair *p, int which)
{
    *p = (pair){.limits = settings[which]};
    p->limits.context = 280; /* less than the longest prompt */
    p->limits.vocab = VOCAB;
    p->limits.end_id = END_ID;
    p->limits.next = fake_next;
    p->limits.drafter = p->limits.k > 0 ? half_right : NULL;
}

MPI_TEST(events, worker_is_its_model, .timeout = 100)
{
    int n = (int)(sizeof settings / sizeof settings[0]);
    int64_t seen[SEEN_COUNT] = {0}, calls = 0, steps = 0;
    static pair p;

    for (int i = 0; i < n; i++) {
        setting(&p, i);
        check_list(&p, TPW_TEST_EVENTS / n, SEED + (uint64_t)i);
        for (int s = 0; s < SEEN_COUNT; s++)
            seen[s] += p.seen[s];
        calls += p.calls;
        steps += p.steps;
        tpw_worker_destroy(p.worker);
    }
    printf("seed %llu: %lld calls, %lld steps:", SEED, (long long)calls, (long long)steps);
    for (int s = 0; s < SEEN_COUNT; s++)
        printf(" %s %lld", model_seen_name(s), (long long)seen[s]);
    printf("\n");
    cr_assert_eq(calls, TPW_TEST_EVENTS / n * n);
    for (int s = 0; s < SEEN_COUNT; s++)
        cr_assert_gt(seen[s], 0, "%s never happened", model_seen_name(s));
}

/* The test itself can fail: a model that lets sequences overtake is found, and with a list that a person can read. */
MPI_TEST(events, a_wrong_model_is_found, .timeout = 100)
{
    enum { COUNT = 1000 };
    static call list[COUNT];
    static pair p;
    int32_t at, left;

    setting(&p, 1);
    p.limits.overtakes = true;
    calls_fill(list, COUNT, &draw, SEED);
    cr_assert(run_list(&p, list, COUNT, &at), "overtaking was not noticed");
    left = calls_shrink(list, COUNT, run_list, &p, SHRINKS);
    cr_assert(run_list(&p, list, left, &at), "the smaller list does not fail");
    printf("%d calls are left: %s\n", left, p.text);
    calls_print(list, left);
    /* one that runs, one that waits for pages, one that would fit; the step is that of the drain */
    cr_assert_leq(left, 4, "shrinking left %d calls", left);
    tpw_worker_destroy(p.worker);
}
