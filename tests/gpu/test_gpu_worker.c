/* A worker on GPUs: one wait a step, and the tokens and digests of K = 0 at every K.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi/mpi_test.h"

#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "mpi/backend.h"
#include "mpi/output.h"
#include "worker/worker.h"

#define VOCAB   2048
#define PROMPTS 3
#define MAX     24

TestSuite(gpu_worker, .init = mt_init, .fini = mt_fini, .timeout = 150);

static void skip_without_gpus(void)
{
    char reason[160], text[256];
    int count = tpw_cuda_count(reason, sizeof reason);

    snprintf(text, sizeof text, "%d GPUs for %d ranks%s%s", count, mt_size, reason[0] != '\0' ? ": " : "", reason);
    mt_skip_if(count * test_ranks_per_gpu() < mt_size, text);
}

/* The tests may run elsewhere than where they were built. */
static const char *pocket(void)
{
    return access("models/pocket/config.json", R_OK) == 0 ? "models/pocket" : TPW_TEST_POCKET;
}

static tpw_options options_of(int32_t k, tpw_check check)
{
    tpw_options o = TPW_OPTIONS_INIT;

    o.model = pocket();
    o.backend = TPW_BACKEND_CUDA;
    o.ranks_per_gpu = test_ranks_per_gpu();
    o.sequences_max = PROMPTS;
    o.page_size = 16;
    o.rows_max = 40; /* prompts come in chunks, beside those that decode */
    o.context_max = 128;
    o.draft_max = k;
    o.check = check;
    o.check_every = 0; /* state at rest would be waited for */
    o.timeout_ms = 30000;
    return o;
}

/* Runs all prompts. Counts the steps in which no sequence ended, whose only wait is that at the end; returns how many. */
static int run(int32_t k, tpw_check check, output out[PROMPTS])
{
    const int32_t lengths[PROMPTS] = {5, 41, 70};
    const tpw_options o = options_of(k, check);
    tpw_worker *w = worker_open(&o, MPI_COMM_WORLD);
    int counted = 0;
    bool busy = true;

    for (int p = 0; p < PROMPTS; p++) {
        int32_t prompt[70];

        prompt_fill(prompt, lengths[p], VOCAB, 40 + (uint64_t)p);
        worker_admit(w, (uint64_t)p, prompt, lengths[p], MAX);
    }
    while (busy) {
        const int64_t waits = tpw_cuda_waits(w->exec);
        int over = 0, before = 0;

        for (int p = 0; p < PROMPTS; p++)
            before += out[p].over;
        busy = worker_step(w, out, PROMPTS);
        for (int p = 0; p < PROMPTS; p++)
            over += out[p].over;
        if (over != before)
            continue;
        cr_assert_eq(tpw_cuda_waits(w->exec), waits + 1, "K %d, step %lld: %lld waits", k, (long long)w->step - 1,
                     (long long)(tpw_cuda_waits(w->exec) - waits));
        counted++;
    }
    worker_close(w);
    return counted;
}

MPI_TEST(gpu_worker, one_wait_a_step_and_one_output_for_all_drafts)
{
    static const int32_t ks[] = {0, 1, 3, 8};
    output reference[PROMPTS] = {{.over = false}};
    int counted = 0, compared = 0;

    skip_without_gpus();
    for (int i = 0; i < 4; i++) {
        output out[PROMPTS] = {{.over = false}};

        counted += run(ks[i], TPW_CHECK_STEP, i == 0 ? reference : out);
        for (int p = 0; i > 0 && p < PROMPTS; p++) {
            compared += output_compare(&reference[p], &out[p], false, "with drafts");
            output_free(&out[p]);
        }
    }
    cr_assert(counted > 20 && compared > 100, "%d steps, %d comparisons", counted, compared);
    if (mt_rank == 0)
        printf("np %d: %d steps of one wait, %d comparisons with K = 0\n", mt_size, counted, compared);
    for (int p = 0; p < PROMPTS; p++)
        output_free(&reference[p]);
}

MPI_TEST(gpu_worker, one_wait_without_checks)
{
    output out[PROMPTS] = {{.over = false}};

    skip_without_gpus();
    cr_assert_gt(run(2, TPW_CHECK_OFF, out), 5);
    for (int p = 0; p < PROMPTS; p++)
        output_free(&out[p]);
}

/* Ranks that run different tokens find it in the records that the GPUs exchange. */
MPI_TEST(gpu_worker, a_difference_is_named)
{
    const tpw_options o = options_of(2, TPW_CHECK_STEP);
    output out[PROMPTS] = {{.over = false}};
    int32_t prompt[20];
    tpw_error err = {0};
    tpw_worker *w;
    tpw_status st;
    bool busy;

    skip_without_gpus();
    mt_skip_if(mt_size == 1, "needs two ranks");
    w = worker_open(&o, MPI_COMM_WORLD);
    prompt_fill(prompt, 20, VOCAB, 3);
    worker_admit(w, 0, prompt, 20, MAX);
    (void)worker_step(w, out, PROMPTS);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mt_rank == mt_size - 1)
        w->sequences.running[0]->tokens[w->sequences.running[0]->pos] ^= 1;
    st = tpw_worker_step(w, &busy, &err);
    cr_assert(st == TPW_ERR_DIVERGED, "%s: %s", tpw_status_name(st), err.text);
    cr_assert(strstr(err.text, "the tokens of step 1 differs on rank") != NULL, "%s", err.text);
    tpw_worker_destroy(w);
}
