/* Many short runs with every check of every step on: nothing may be found where nothing is.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "mpi_test.h"

#include "base/digest.h"
#include "small_run.h"

#ifndef TPW_TEST_STEPS
#define TPW_TEST_STEPS 2000 /* checked steps in all */
#endif
#ifndef TPW_TEST_SECONDS
#define TPW_TEST_SECONDS 560
#endif

#define STEPS_EACH 250 /* of one worker */

MPI_SUITE(false_alarm);

/* Any tokens will do: a drafter for the model that has no module of its own. */
static int32_t draft_anything(void *data, uint64_t id, const int32_t *tokens, int32_t count, int32_t k, int32_t *drafts)
{
    int32_t n = (int32_t)(tpw_digest_term(id, (uint64_t)count, 1) % (uint64_t)(k + 1));

    (void)data;
    for (int32_t i = 0; i < n; i++) /* a guess that is right at times: what came before */
        drafts[i] = tokens[(count - 1) * (i + 1) / (n + 1)];
    return n;
}

/* Three workers of four have the small model, whose steps are short, and drafts from outside; the fourth is pocket with its own. */
static tpw_options random_options(small_random *r)
{
    bool pocket = small_below(r, 4) == 0;
    tpw_options o =
        small_options(pocket ? TPW_TEST_POCKET : TPW_TEST_DATA "/tiny/qwen35-odd", small_below(r, TPW_K_MAX + 1), 1);

    o.drafter = pocket || o.draft_max == 0 ? NULL : draft_anything;
    o.compute = small_below(r, 4) == 0 ? TPW_COMPUTE_F32 : TPW_COMPUTE_BF16;
    o.sequences_max = 1 + small_below(r, 4);
    o.rows_max = o.sequences_max * (o.draft_max + 1) + small_below(r, 16);
    o.chunk = 1 + small_below(r, 12);
    o.page_size = 1 << small_below(r, 7);
    return o;
}

/* Runs one worker with sequences that come and go. Adds its checks to *checks. */
static int64_t run_worker(small_random *r, int64_t steps, int64_t *checks, int64_t *sequences)
{
    tpw_options o = random_options(r);
    tpw_worker *worker = small_open(&o);
    tpw_error err = {0};
    tpw_stats stats;
    bool busy = false;
    uint64_t id = 1;

    for (int64_t s = 0; s < steps; s++) {
        tpw_status st;

        if (!busy || small_below(r, 8) == 0) {
            int32_t lengths[2] = {1 + small_below(r, 30), 1 + small_below(r, 12)}, count = 1 + small_below(r, 2);
            int32_t max_tokens = 1 + small_below(r, 30);

            tpw_worker_stats(worker, &stats);
            if (stats.sequences_waiting < 4) {
                small_admit(worker, id, lengths, count, max_tokens);
                id += (uint64_t)count;
                *sequences += count;
            }
        }
        st = small_step(worker, 0, &busy, NULL, &err);
        cr_assert_eq(st, TPW_OK, "step %lld of a worker with K %d, batch %d, rows %d, chunk %d, page %d, %s: %s: %s",
                     (long long)s, o.draft_max, o.sequences_max, o.rows_max, o.chunk, o.page_size,
                     o.compute == TPW_COMPUTE_F32 ? "f32" : "bf16", tpw_status_name(st), err.text);
    }
    tpw_worker_stats(worker, &stats);
    *checks += stats.checks;
    cr_assert_geq(stats.checks, 2 * steps); /* replicated values and state at rest, of every step */
    cr_assert_eq(tpw_worker_finalize(worker, &err), TPW_OK, "%s", err.text);
    tpw_worker_destroy(worker);
    return steps;
}

/* A number from the environment, so that a long run can be cut into several with seeds of their own. */
static int64_t number(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoll(text, NULL, 10) : otherwise;
}

MPI_TEST(false_alarm, none, .timeout = TPW_TEST_SECONDS)
{
    const int64_t wanted = number("TPW_TEST_STEPS", TPW_TEST_STEPS), seed = number("TPW_TEST_SEED", 4000);
    small_random r = {(uint64_t)(seed + mt_size)};
    int64_t steps = 0, checks = 0, sequences = 0, workers = 0;
    double began = MPI_Wtime();

    cr_assert_gt(wanted, 0);
    while (steps < wanted) {
        int64_t left = wanted - steps;

        steps += run_worker(&r, left < STEPS_EACH ? left : STEPS_EACH, &checks, &sequences);
        workers++;
    }
    if (mt_rank == 0)
        printf("np %d, seed %lld: no alarm in %lld checked steps (%lld comparisons) of %lld workers and %lld "
               "sequences, %.0f s\n",
               mt_size, (long long)seed, (long long)steps, (long long)checks, (long long)workers, (long long)sequences,
               MPI_Wtime() - began);
}
