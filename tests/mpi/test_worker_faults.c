/* What a worker does when something is wrong: with its arguments, with one rank, with one sequence.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "mpi_ranks.h"

#include "output.h"
#include "worker/worker.h"

#define VOCAB 2048
#define MAX   16
#define LONG  40

MPI_SUITE(worker_faults);

static tpw_options options_of(int32_t k)
{
    tpw_options o = TPW_OPTIONS_INIT;

    o.model = TPW_TEST_POCKET;
    o.sequences_max = 3;
    o.page_size = 16;
    o.rows_max = 128;
    o.context_max = 96;
    o.draft_max = k;
    o.timeout_ms = 20000;
    return o;
}

static int last_rank(void)
{
    return mt_size - 1;
}

/* "rank 3 (" of the last rank. */
static const char *last_name(void)
{
    static char text[32];

    (void)snprintf(text, sizeof text, "rank %d (", last_rank());
    return text;
}

/* F35: the backend's arg-max, but for one row of calls with `bad_rows` rows. */
static const tpw_ops *real_ops;
static int32_t bad_row, bad_rows;

static tpw_status spoilt_argmax(const tpw_exec *exec, const tpw_argmax_args *args, tpw_error *err)
{
    TPW_TRY(real_ops->argmax(exec, args, err));
    if (args->logits.rows == bad_rows)
        args->id[bad_row] = -1;
    return TPW_OK;
}

static void spoil(tpw_worker *w)
{
    static tpw_ops ops;

    real_ops = w->exec->ops;
    ops = *real_ops;
    ops.argmax = spoilt_argmax;
    w->exec->ops = &ops;
    bad_rows = 0;
}

/* The middle one of three sequences gets no number in step 3. */
static void run_three(int32_t k, int32_t prompts[3][LONG], const int32_t *lengths, output *out)
{
    const tpw_options o = options_of(k);
    tpw_worker *w = worker_open(&o, MPI_COMM_WORLD);
    tpw_stats s;

    spoil(w);
    for (int p = 0; p < 3; p++)
        worker_admit(w, (uint64_t)p, prompts[p], lengths[p], MAX);
    for (int i = 0; i < 3; i++)
        (void)worker_step(w, out, 3);
    bad_rows = 3 * (k + 1);
    bad_row = k + 1;
    cr_assert(worker_step(w, out, 3));
    bad_rows = 0;
    cr_assert(out[1].over && !out[0].over && !out[2].over, "K %d: not one sequence has ended", k);
    while (worker_step(w, out, 3))
        continue;
    tpw_worker_stats(w, &s);
    cr_assert(s.pages_free == s.pages_total && s.slots_free == 3);
    worker_close(w);
}

/* The middle one alone at K = 0, without a number after as many tokens. */
static void run_failing_alone(const int32_t *prompt, int32_t count, int32_t good, output *out)
{
    tpw_options o = options_of(0);
    tpw_worker *w;

    o.sequences_max = 1;
    w = worker_open(&o, MPI_COMM_WORLD);
    spoil(w);
    worker_admit(w, 0, prompt, count, MAX);
    for (int i = 0; i < good; i++)
        cr_assert(worker_step(w, out, 1));
    bad_rows = 1;
    bad_row = 0;
    cr_assert_not(worker_step(w, out, 1));
    bad_rows = 0;
    worker_close(w);
}

MPI_TEST(worker_faults, one_sequence_without_a_number)
{
    const int32_t lengths[3] = {16, 31, LONG};
    const tpw_options o = options_of(0);
    int32_t prompts[3][LONG];
    output solo[3] = {{.over = false}};

    for (int p = 0; p < 3; p++) {
        prompt_fill(prompts[p], lengths[p], VOCAB, 70 + (uint64_t)p);
        solo_run(&o, MPI_COMM_WORLD, prompts[p], lengths[p], MAX, &solo[p]);
    }
    for (int32_t k = 0; k <= 2; k += 2) {
        output out[3] = {{.over = false}}, alone = {.over = false};

        run_three(k, prompts, lengths, out);
        cr_assert(out[0].finish == TPW_FINISH_LENGTH && out[2].finish == TPW_FINISH_LENGTH);
        (void)output_compare(&solo[0], &out[0], false, "the one before");
        (void)output_compare(&solo[2], &out[2], false, "the one behind");
        cr_assert_eq(out[1].finish, TPW_FINISH_ERROR);
        cr_assert(out[1].count >= 3 && out[1].count < MAX, "K %d: %d tokens", k, out[1].count);
        cr_assert_eq(memcmp(out[1].tokens, solo[1].tokens, (size_t)out[1].count * sizeof *out[1].tokens), 0);
        cr_assert_eq(out[1].position, lengths[1] + out[1].count);
        run_failing_alone(prompts[1], lengths[1], out[1].count, &alone);
        cr_assert_eq(alone.finish, TPW_FINISH_ERROR);
        (void)output_compare(&alone, &out[1], false, "the one without a number");
        output_free(&alone);
        for (int p = 0; p < 3; p++)
            output_free(&out[p]);
    }
    for (int p = 0; p < 3; p++)
        output_free(&solo[p]);
}

/* Every call on a worker that cannot work any more. */
static void expect_dead(tpw_worker *w)
{
    const int32_t id = 5;
    const tpw_request r = {.size = sizeof r, .ids = &id, .count = 1, .max_tokens = 1};
    tpw_error err = {0};
    bool busy = true;
    tpw_event event;
    tpw_stats stats;

    expect_error(tpw_worker_step(w, &busy, &err), TPW_ERR_ARGUMENT, &err, "step: the worker is not loaded");
    expect_error(tpw_worker_admit(w, &r, &err), TPW_ERR_ARGUMENT, &err, "admit: the worker is not loaded");
    expect_error(tpw_worker_cancel(w, 1, &err), TPW_ERR_ARGUMENT, &err, "cancel: the worker is not loaded");
    expect_error(tpw_worker_stop(w, &err), TPW_ERR_ARGUMENT, &err, "stop: the worker is not loaded");
    expect_error(tpw_worker_finalize(w, &err), TPW_ERR_ARGUMENT, &err, "finalize: the worker is not loaded");
    expect_error(tpw_worker_load(w, &err), TPW_ERR_ARGUMENT, &err, "load: the worker is already loaded");
    while (tpw_worker_poll(w, &event))
        continue;
    tpw_worker_stats(w, &stats);
    cr_assert_eq(tpw_worker_size(w), mt_size);
}

/* A worker that runs one sequence and has made two tokens. */
static tpw_worker *running(const tpw_options *o, output *out)
{
    tpw_worker *w = worker_open(o, MPI_COMM_WORLD);
    int32_t prompt[LONG];

    prompt_fill(prompt, 15, VOCAB, 3);
    worker_admit(w, 0, prompt, 15, MAX);
    for (int i = 0; i < 2; i++)
        (void)worker_step(w, out, 1);
    MPI_Barrier(MPI_COMM_WORLD); /* what goes wrong next must not be heard by a rank that is still in this step */
    return w;
}

/* Steps until the error that must come. */
static void step_to_error(tpw_worker *w, tpw_status expected, const char *part, int steps_max)
{
    tpw_error err = {0};
    tpw_status st = TPW_OK;
    bool busy = true;
    int steps = 0;

    while (st == TPW_OK && steps < steps_max) {
        st = tpw_worker_step(w, &busy, &err);
        steps++;
    }
    expect_error(st, expected, &err, part);
    expect_dead(w);
}

/* The ranks differ: the next step ends on all of them. A rank may hear of another's finding before its own exchange is over;
 * then it has ERR_PEER with that finding in the text. */
static void step_to_divergence(tpw_worker *w, const char *part)
{
    double begin = seconds_now();
    tpw_error err = {0};
    int own, all = 0;
    bool busy = true;
    tpw_status st = tpw_worker_step(w, &busy, &err);

    cr_assert(st == TPW_ERR_DIVERGED || st == TPW_ERR_PEER, "rank %d: %s: %s", mt_rank, tpw_status_name(st), err.text);
    expect_error(st, st, &err, part);
    cr_assert_lt(seconds_now() - begin, 10.0, "it waited for its deadline");
    own = st == TPW_ERR_DIVERGED;
    MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    cr_assert_gt(all, 0, "no rank has found the difference");
    expect_dead(w);
}

static void leak_page(tpw_worker *w)
{
    int32_t slot, page;

    cr_assert(tpw_ledger_take(&w->sequences.ledger, &slot, &page, 1));
    w->sequences.ledger.slot_used[slot] = 0; /* the slot comes back, the page does not */
    w->sequences.ledger.free_slots[w->sequences.ledger.slots_free++] = slot;
}

/* F34: nothing has been decided by it yet when it is found. */
MPI_TEST(worker_faults, a_leaked_page_while_running)
{
    const tpw_options o = options_of(0);
    output out = {.over = false};
    tpw_worker *w = running(&o, &out);

    if (mt_rank == last_rank())
        leak_page(w);
    step_to_divergence(w, "the plan (rows, slots, pages, positions) of step 2 differs on rank");
    tpw_worker_destroy(w);
}

/* F34: the next admission gets other pages on that rank. */
MPI_TEST(worker_faults, a_leaked_page_before_an_admission)
{
    const tpw_options o = options_of(0);
    output out = {.over = false};
    tpw_worker *w = running(&o, &out);
    int32_t prompt[LONG];

    prompt_fill(prompt, LONG, VOCAB, 4);
    if (mt_rank == last_rank())
        leak_page(w);
    worker_admit(w, 1, prompt, LONG, MAX);
    step_to_divergence(w, "the plan (rows, slots, pages, positions) of step 2 differs on rank");
    tpw_worker_destroy(w);
}

/* F34 at its worst: on that rank the next admission does not fit, so it would run other rows than the rest. */
MPI_TEST(worker_faults, a_leaked_page_that_changes_the_plan)
{
    tpw_options o = options_of(0);
    output out = {.over = false};
    int32_t prompt[LONG];
    tpw_worker *w;

    o.pages = 6; /* two hold the first sequence, the second takes all others */
    w = running(&o, &out);
    prompt_fill(prompt, LONG, VOCAB, 4);
    if (mt_rank == last_rank())
        leak_page(w);
    worker_admit(w, 1, prompt, LONG, 24);
    step_to_divergence(w, "make different exchanges");
    tpw_worker_destroy(w);
}

/* A sequence that has ended on one rank only. */
MPI_TEST(worker_faults, a_sequence_lost_on_one_rank)
{
    const tpw_options o = options_of(0);
    output out = {.over = false};
    tpw_worker *w = running(&o, &out);
    tpw_error err = {0};

    if (mt_rank == last_rank())
        must(tpw_sequences_remove(&w->sequences, w->sequences.running[0], &err), "remove", &err);
    step_to_divergence(w, "make different exchanges");
    tpw_worker_destroy(w);
}

/* A rank that has taken one step less than the others says so. */
MPI_TEST(worker_faults, steps_that_do_not_meet)
{
    const tpw_options o = options_of(0);
    output out = {.over = false};
    tpw_worker *w = running(&o, &out);

    if (mt_rank == last_rank())
        w->step--;
    step_to_error(w, TPW_ERR_DIVERGED, "rank 0 is at step 2, this rank at step 1", 1);
    tpw_worker_destroy(w);
}

MPI_TEST(worker_faults, a_malformed_control_record)
{
    const tpw_options o = options_of(0);
    output out = {.over = false};
    tpw_worker *w = running(&o, &out);
    int32_t prompt[LONG];
    tpw_error err = {0};
    int own, all = 0;
    tpw_status st;
    bool busy;

    prompt_fill(prompt, LONG, VOCAB, 4);
    worker_admit(w, 1, prompt, LONG, MAX);
    if (mt_rank == 0)
        w->control.data[0] = 0x7F;
    st = tpw_worker_step(w, &busy, &err);
    /* a rank may hear of another's failure before it has read the record itself */
    cr_assert(st == TPW_ERR_INTERNAL || st == TPW_ERR_PEER, "%s", tpw_status_name(st));
    expect_error(st, st, &err, "control record is malformed");
    own = st == TPW_ERR_INTERNAL;
    MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    cr_assert_gt(all, 0, "no rank has found it");
    expect_dead(w);
    tpw_worker_destroy(w);
}

/* Says of the first sequence that all of its rows stay, or none of its drafts where all should. */
static tpw_status lying_accept(const tpw_exec *exec, const tpw_accept_args *args, tpw_error *err)
{
    const tpw_accept_entry *e = &args->entries[0];

    TPW_TRY(real_ops->accept(exec, args, err));
    args->taken[0] = args->taken[0] == e->rows + e->drafts ? e->rows : e->rows + e->drafts;
    return TPW_OK;
}

/* The host decides again from what it is given, and does not go on where the device has decided otherwise. */
MPI_TEST(worker_faults, a_device_that_accepts_otherwise)
{
    const tpw_options o = options_of(2);
    output out = {.over = false};
    tpw_worker *w = running(&o, &out);
    static tpw_ops ops;

    real_ops = w->exec->ops;
    ops = *real_ops;
    ops.accept = lying_accept;
    if (mt_rank == last_rank()) {
        w->exec->ops = &ops;
        step_to_error(w, TPW_ERR_INTERNAL, "the device commits", 1);
    } else {
        step_to_error(w, TPW_ERR_PEER, "the device commits", MAX);
    }
    tpw_worker_destroy(w);
}

/* F2: one rank does not step. */
MPI_TEST(worker_faults, a_rank_that_sleeps)
{
    tpw_options o = options_of(0);
    output out = {.over = false};
    double begin, seconds;
    tpw_worker *w;

    w = running(&o, &out);
    w->boot->timeout_ms = 1500; /* only now: loading on a busy machine may take longer */
    EXPECT_OK(w->boot->ops->barrier(w->boot, &err_));
    begin = seconds_now();
    if (mt_rank == last_rank()) {
        sleep_ms(5000);
        step_to_error(w, TPW_ERR_PEER, "rank ", 1);
    } else {
        step_to_error(w, TPW_ERR_PEER, last_name(), MAX);
        seconds = seconds_now() - begin;
        cr_assert(seconds > 1.4 && seconds < 3.0, "it took %.2f s to notice", seconds);
    }
    tpw_worker_destroy(w);
}
