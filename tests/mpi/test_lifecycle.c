/* Sequences come, share steps, are cancelled, wait, come again: each gives what it gives alone in a fresh worker.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "mpi_test.h"

#include "backend.h"
#include "output.h"
#include "worker/worker.h"

#define VOCAB 2048

MPI_SUITE(lifecycle);

enum { A, B, C, PROMPTS };
#if defined(__SANITIZE_ADDRESS__) /* one cell of each axis, and that a small one */
#define LONGEST 191
#define MAX     6
static const int32_t ks[] = {2};
#else
#define LONGEST 1023
#define MAX     24
static const int32_t ks[] = {0, 1, 2, 4};
#endif
static const int32_t lengths[PROMPTS] = {63, 127, LONGEST}; /* one short of one page, of two, and of many */
static int32_t prompts[PROMPTS][LONGEST];

static tpw_options options_of(tpw_compute compute, int32_t k)
{
    tpw_options o = TPW_OPTIONS_INIT;

    test_set_backend(&o);
    o.model = TPW_TEST_POCKET;
    o.compute = compute;
    o.sequences_max = 2;
    o.pages = 80;
    o.page_size = 64;
    o.context_max = 1200;
    o.draft_max = k;
    o.timeout_ms = 60000;
    return o;
}

static void expect_all_free(tpw_worker *w, const char *when)
{
    tpw_stats s;

    tpw_worker_stats(w, &s);
    cr_assert(s.pages_total == 80 && s.pages_free == 80 && s.slots_free == 2 && s.sequences_running == 0 &&
                  s.sequences_waiting == 0,
              "%s: %d of %d pages and %d slots are free, %d run, %d wait", when, s.pages_free, s.pages_total,
              s.slots_free, s.sequences_running, s.sequences_waiting);
}

static void cancel(tpw_worker *w, uint64_t id)
{
    tpw_error err = {0};

    if (tpw_worker_rank(w) == 0)
        must(tpw_worker_cancel(w, id, &err), "cancel", &err);
}

/* The scene on one worker. again: A the second time. */
static void play(tpw_worker *w, output *out, output *again)
{
    tpw_stats before, s;

    expect_all_free(w, "at the start");
    worker_admit(w, A, prompts[A], lengths[A], MAX);
    worker_admit(w, B, prompts[B], lengths[B], MAX);
    tpw_worker_stats(w, &before);
    (void)worker_step(w, out, PROMPTS);
    tpw_worker_stats(w, &s);
    cr_assert_eq(s.prompt_tokens - before.prompt_tokens, lengths[A] + lengths[B], "the prompts did not share a step");
    while (out[A].count == 0 || out[B].count == 0)
        (void)worker_step(w, out, PROMPTS);

    cancel(w, A);
    worker_admit(w, C, prompts[C], lengths[C], MAX);
    (void)worker_step(w, out, PROMPTS);
    cr_assert(out[A].over && out[A].finish == TPW_FINISH_CANCELLED && out[A].count >= 1 && out[A].count < MAX);
    tpw_worker_stats(w, &s);
    cr_assert_eq(s.sequences_running, 2, "C does not run in A's place");
    while (worker_step(w, out, PROMPTS))
        continue;
    cr_assert(out[B].over && out[C].over && out[B].finish == TPW_FINISH_LENGTH && out[C].finish == TPW_FINISH_LENGTH);
    expect_all_free(w, "after B and C");

    worker_run(w, prompts[A], lengths[A], MAX, again); /* id 0 is A's */
    expect_all_free(w, "after A");
}

/* What A had given when it was cancelled is the beginning of its solo run, state included. */
static int compare_cut(const tpw_options *o, const output *cut, const char *name)
{
    output part;
    int compared;

    solo_run(o, MPI_COMM_WORLD, prompts[A], lengths[A], cut->count, &part);
    compared = output_compare(&part, cut, false, name);
    output_free(&part);
    return compared;
}

static int scene(tpw_compute compute, int32_t k, const output *solo)
{
    const tpw_options o = options_of(compute, k);
    output out[PROMPTS] = {{.over = false}}, again = {.over = false};
    tpw_worker *w = worker_open(&o, MPI_COMM_WORLD);
    char name[64];
    int compared;

    for (int round = 0; round < (k == 2 ? 2 : 1); round++) { /* a second one finds what the first has left */
        for (int p = 0; p < PROMPTS; p++)
            output_free(&out[p]);
        output_free(&again);
        play(w, out, &again);
    }
    worker_close(w);
    (void)snprintf(name, sizeof name, "K %d, %s", k, compute == TPW_COMPUTE_F32 ? "f32" : "bf16");
    compared = output_compare(&solo[B], &out[B], false, name) + output_compare(&solo[C], &out[C], false, name) +
               output_compare(&solo[A], &again, false, name) + compare_cut(&o, &out[A], name);
    for (int p = 0; p < PROMPTS; p++)
        output_free(&out[p]);
    output_free(&again);
    return compared;
}

static void scenes(tpw_compute compute)
{
    const tpw_options o = options_of(compute, 0);
    output solo[PROMPTS];
    int compared = 0;

    MT_SKIP_F32_ON_GPU(compute);
    for (int p = 0; p < PROMPTS; p++) {
        prompt_fill(prompts[p], lengths[p], VOCAB, 900 + (uint64_t)p);
        solo_run(&o, MPI_COMM_WORLD, prompts[p], lengths[p], MAX, &solo[p]);
    }
    for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++)
        compared += scene(compute, ks[i], solo);
    for (int p = 0; p < PROMPTS; p++)
        output_free(&solo[p]);
    if (mt_rank == 0)
        printf("%d tokens and digests equal those of solo runs\n", compared);
    cr_assert_gt(compared, (int)(sizeof ks / sizeof ks[0]) * 3 * (MAX + 20));
}

MPI_TEST(lifecycle, f32, .timeout = 270)
{
    scenes(TPW_COMPUTE_F32);
}

MPI_TEST(lifecycle, bf16, .timeout = 270)
{
    scenes(TPW_COMPUTE_BF16);
}
