/* Several workers at once: two groups of ranks side by side, and two workers of one process in all orders.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "mpi_test.h"

#include "output.h"
#include "worker/worker.h"

#define VOCAB   2048
#define MAX     16
#define PROMPTS 4
#define LONGEST 90

MPI_SUITE(groups);

static const int32_t lengths[PROMPTS] = {5, 17, 64, LONGEST};
static int32_t prompts[PROMPTS][LONGEST];
static output expected[PROMPTS];

static tpw_options options_of(int32_t k)
{
    tpw_options o = TPW_OPTIONS_INIT;

    o.model = TPW_TEST_POCKET;
    o.sequences_max = 2;
    o.page_size = 16;
    o.context_max = LONGEST + MAX;
    o.draft_max = k;
    o.timeout_ms = 60000;
    return o;
}

/* What one rank alone gives: every rank makes it for itself. */
static void expect_alone(void)
{
    const tpw_options o = options_of(0);

    for (int p = 0; p < PROMPTS; p++) {
        prompt_fill(prompts[p], lengths[p], VOCAB, 300 + (uint64_t)p);
        solo_run(&o, MPI_COMM_SELF, prompts[p], lengths[p], MAX, &expected[p]);
    }
}

static void forget(void)
{
    for (int p = 0; p < PROMPTS; p++)
        output_free(&expected[p]);
}

/* Prompts first and second of a worker, by id 0 and 1. */
static void admit_two(tpw_worker *w, int first, int second)
{
    worker_admit(w, 0, prompts[first], lengths[first], MAX);
    worker_admit(w, 1, prompts[second], lengths[second], MAX);
}

static int compare_two(output *out, int first, int second, const char *what)
{
    int compared = output_compare(&expected[first], &out[0], false, what);

    compared += output_compare(&expected[second], &out[1], false, what);
    output_free(&out[0]);
    output_free(&out[1]);
    return compared;
}

/* World of 4 as {0, 2} and {3, 1}: the second group in reversed order, so that its rank 0 is the world's rank 3. */
static MPI_Comm half(int *group)
{
    MPI_Comm comm;

    *group = mt_rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, *group, *group == 0 ? mt_rank : -mt_rank, &comm);
    return comm;
}

MPI_TEST(groups, side_by_side, .timeout = 270)
{
    output out[2] = {{.over = false}};
    int group, compared;
    MPI_Comm comm;
    tpw_worker *w;

    cr_assert_eq(mt_size, 4);
    expect_alone();
    comm = half(&group);
    const tpw_options o = options_of(group == 0 ? 0 : 2); /* the groups have nothing in common, not even K */
    w = worker_open(&o, comm);
    MPI_Comm_free(&comm); /* the worker has its own */
    cr_assert_eq(tpw_worker_size(w), 2);
    cr_assert_eq(tpw_worker_rank(w), mt_rank == 1 || mt_rank == 2);
    admit_two(w, group == 0 ? 0 : 2, group == 0 ? 3 : 1);
    while (worker_step(w, out, 2))
        continue;
    compared = compare_two(out, group == 0 ? 0 : 2, group == 0 ? 3 : 1, group == 0 ? "even ranks" : "odd ranks");
    worker_close(w);
    cr_assert_gt(compared, 2 * MAX);
    forget();
}

/* Steps two workers in turn, the first more often than the second. */
static void interleave(tpw_worker *a, output *from_a, tpw_worker *b, output *from_b)
{
    bool busy_a = true, busy_b = true;

    while (busy_a || busy_b) {
        for (int i = 0; i < 2 && busy_a; i++)
            busy_a = worker_step(a, from_a, 2);
        if (busy_b)
            busy_b = worker_step(b, from_b, 2);
    }
}

/* Workers of different TP and K in one process, destroyed in the order of their creation or against it. */
static int two_in_one_process(MPI_Comm pair, bool in_order)
{
    const tpw_options o_a = options_of(0), o_b = options_of(3);
    output from_a[2] = {{.over = false}}, from_b[2] = {{.over = false}};
    tpw_worker *a = worker_open(&o_a, pair), *b = worker_open(&o_b, in_order ? pair : MPI_COMM_WORLD);
    int compared;

    admit_two(a, 1, 2);
    admit_two(b, 3, 0);
    interleave(a, from_a, b, from_b);
    compared = compare_two(from_a, 1, 2, "worker a") + compare_two(from_b, 3, 0, "worker b");
    worker_close(in_order ? a : b);
    admit_two(in_order ? b : a, 2, 1); /* the one that is left is whole */
    while (worker_step(in_order ? b : a, from_a, 2))
        continue;
    compared += compare_two(from_a, 2, 1, "the worker that is left");
    worker_close(in_order ? b : a);
    return compared;
}

MPI_TEST(groups, one_process, .timeout = 270)
{
    int group, compared;
    MPI_Comm pair;

    cr_assert_eq(mt_size, 4);
    expect_alone();
    pair = half(&group);
    compared = two_in_one_process(pair, true);
    compared += two_in_one_process(pair, false);
    MPI_Comm_free(&pair);
    if (mt_rank == 0)
        printf("%d tokens and digests equal those of one rank\n", compared);
    cr_assert_gt(compared, 12 * MAX);
    forget();
}
