/* The sum over ranks in another order: on one rank the step's comparison names it; on all ranks only a run at another rank count
 * shows it. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"

#include "backend.h"
#include "matrix.h"
#include "small_run.h"
#include "worker/worker.h"

MPI_SUITE(tree);

/* ((0+1)+(2+3)), or with ranks 1 and 2 exchanged ((0+2)+(1+3)). */
static struct {
    const tpw_comm_ops *real;
    tpw_comm_ops ops;
    const tpw_exec *exec; /* of the memory that is summed */
    bool exchanged;
    int64_t moved; /* sums that came out different */
} now;

static void add_all(const float *all, float *x, size_t count)
{
    const int order[] = {0, now.exchanged ? 2 : 1, now.exchanged ? 1 : 2, 3};

    for (size_t i = 0; i < count; i++) {
        volatile float low = all[(size_t)order[0] * count + i] + all[(size_t)order[1] * count + i];
        volatile float high = all[(size_t)order[2] * count + i] + all[(size_t)order[3] * count + i];
        volatile float a = all[i] + all[count + i], b = all[2 * count + i] + all[3 * count + i];

        x[i] = low + high;
        now.moved += x[i] != a + b;
    }
}

static tpw_status sum_here(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    const tpw_device *device = now.exec->device;
    const size_t bytes = count * sizeof *x;
    float *all = malloc(5 * bytes + 1), *sum = all + 4 * count;
    void *gathered = NULL;
    tpw_status st;

    cr_assert(all != NULL && comm->size == 4);
    TPW_TRY(device->alloc(now.exec, 4 * bytes, &gathered, err));
    st = now.real->allgather(comm, x, gathered, bytes, err);
    if (st == TPW_OK)
        st = device->download(now.exec, all, gathered, 4 * bytes, err);
    if (st == TPW_OK) {
        add_all(all, sum, count);
        st = device->upload(now.exec, x, sum, bytes, err);
    }
    device->free(now.exec, gathered);
    free(all);
    return st;
}

static void hook(tpw_worker *worker)
{
    tpw_comm *comm = worker->on_gpu ? worker->gpu_comm : worker->comm;

    now.exec = worker->exec;
    now.real = comm->ops;
    now.ops = *now.real;
    now.ops.allreduce = sum_here;
    comm->ops = &now.ops;
}

static void one_rank(tpw_compute compute, int bad)
{
    static const int32_t lengths[] = {5, 21, 33};
    tpw_options o = small_options(TPW_TEST_POCKET, 0, 1);
    tpw_error err = {0};
    tpw_status st = TPW_OK;
    char where[64], what[64];
    tpw_worker *worker;
    bool busy = true;

    o.compute = compute;
    worker = small_open(&o);
    now.exchanged = mt_rank == bad;
    hook(worker);
    small_admit(worker, 1, lengths, 3, 100);
    while (st == TPW_OK && busy)
        st = small_step(worker, 1, &busy, NULL, &err);
    snprintf(where, sizeof where, " differs on rank %d: sequence ", bad);
    snprintf(what, sizeof what, "tree of rank %d", bad);
    small_diverged(st, &err, where, compute == TPW_COMPUTE_F32 ? "hidden of layer 0" : "hidden of layer", what);
    if (mt_rank == 0)
        printf("%s, exchanged on rank %d: %s\n", compute == TPW_COMPUTE_F32 ? "f32" : "bf16", bad, err.text);
    tpw_worker_destroy(worker);
}

MPI_TEST(tree, one_rank_is_named)
{
    for (int bad = 0; bad < 4; bad++)
        one_rank(test_on_gpu() ? TPW_COMPUTE_BF16 : TPW_COMPUTE_F32, bad);
    one_rank(TPW_COMPUTE_BF16, 2);
}

/* The wrapper itself changes nothing; with it exchanged everywhere nothing fails, but the digests are not those of one rank. */
static void all_ranks(tpw_compute compute)
{
    const workload w = {
        .model = TPW_TEST_POCKET, .prompts = 3, .lengths = {5, 21, 33}, .max_tokens = 24, .vocab_used = 2048};
    const cell alone = {1, 64, compute, "auto", 16, 3, 64}, four = {4, 64, compute, "auto", 16, 3, 64};
    const speculation hooked = {.loaded = hook};
    outcome one, same, other;
    int tokens = 0, digests = 0;
    char text[200];

    cell_run(&alone, &w, MPI_COMM_WORLD, &one);
    now.exchanged = false;
    cell_run_drafting(&four, &hooked, &w, MPI_COMM_WORLD, &same);
    now.exchanged = true;
    now.moved = 0;
    cell_run_drafting(&four, &hooked, &w, MPI_COMM_WORLD, &other);
    cr_assert_gt(now.moved, 0);
    if (mt_rank == 0) {
        outcome_compare(&one, &same, "the tree as documented");
        for (int32_t p = 0; p < w.prompts; p++) /* silent: the run ends as if nothing were wrong */
            cr_assert(other.finish[p] == TPW_FINISH_LENGTH && other.token_count[p] == w.max_tokens);
        outcome_difference(&one, &other, w.prompts, text, sizeof text, &tokens, &digests);
        cr_assert(text[0] != '\0', "exchanged on all ranks: not found");
        cr_assert(compute == TPW_COMPUTE_BF16 || strstr(text, "hidden of layer 0") != NULL ||
                      strstr(text, "token") != NULL,
                  "%s", text);
        printf("%s, exchanged on all ranks (%lld sums moved): silent, and against one rank: %s\n",
               compute == TPW_COMPUTE_F32 ? "f32" : "bf16", (long long)now.moved, text);
    }
    outcome_free(&one);
    outcome_free(&same);
    outcome_free(&other);
}

MPI_TEST(tree, all_ranks_show_against_one, .timeout = 120)
{
    if (!test_on_gpu())
        all_ranks(TPW_COMPUTE_F32);
    all_ranks(TPW_COMPUTE_BF16);
}
