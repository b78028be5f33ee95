/* A small engine around libtpworker: sequences arrive over time, tokens stream out, one is cancelled, statistics at the end.
 *
 *   mpirun -np 2 embed MODEL_FOLDER
 *
 * Uses the public headers alone. Every rank runs the same loop; rank 0 leads. SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>

#include "tpworker/mpi.h"
#include "tpworker/worker.h"

#define SEQUENCES 4
#define DRAFTS    2

/* Sequence i is admitted before step 3 * i. Its prompt is ids, for an engine has its own tokenizer. */
static const int32_t prompts[SEQUENCES][6] = {
    {12, 7, 301, 44, 9, 5}, {8, 8, 90, 91, 17, 3}, {77, 12, 64, 31, 200, 6}, {5, 4, 3, 2, 1, 150}};

static tpw_status fail(const char *what, tpw_status status, const tpw_error *err)
{
    fprintf(stderr, "embed: %s: %s: %s\n", what, tpw_status_name(status), err->text);
    return status;
}

/* Rank 0, before a step: what an engine's clients want. */
static tpw_status lead(tpw_worker *worker, int64_t step, tpw_error *err)
{
    tpw_status status = TPW_OK;
    if (step % 3 == 0 && step / 3 < SEQUENCES) {
        tpw_request request = {.size = sizeof request,
                               .id = 100 + (uint64_t)(step / 3),
                               .ids = prompts[step / 3],
                               .count = 6,
                               .max_tokens = 12,
                               .ignore_eos = true};
        status = tpw_worker_admit(worker, &request, err);
    }
    if (status == TPW_OK && step == 8) {
        status = tpw_worker_cancel(worker, 102, err);
        if (status == TPW_ERR_ARGUMENT)
            status = TPW_OK; /* it was faster: nothing is left to cancel, and nothing is lost */
    }
    return status;
}

/* Takes what came out. All ranks see the same events and must take them; rank 0 passes them on. */
static void stream(tpw_worker *worker)
{
    static const char *const reasons[] = {[TPW_FINISH_LENGTH] = "length",
                                          [TPW_FINISH_STOP] = "stop",
                                          [TPW_FINISH_CANCELLED] = "cancelled",
                                          [TPW_FINISH_ERROR] = "error"};
    bool speaks = tpw_worker_rank(worker) == 0;
    tpw_event event;
    while (tpw_worker_poll(worker, &event)) {
        if (speaks && event.type == TPW_EVENT_TOKEN)
            printf("%llu: token %d at %lld\n", (unsigned long long)event.id, event.token, (long long)event.position);
        else if (speaks)
            printf("%llu: %s after %d tokens, %d digests\n", (unsigned long long)event.id, reasons[event.finish],
                   event.output_tokens, event.digest_count);
    }
    if (speaks)
        fflush(stdout);
}

/* Collective. *own is what rank 0 alone could not do: then it stops all ranks, which still end together. Arrivals overlap, so
 * the worker is busy until the last sequence has finished. */
static tpw_status serve(tpw_worker *worker, tpw_status *own, tpw_error *err)
{
    bool busy = true;
    for (int64_t step = 0; busy; step++) {
        if (tpw_worker_rank(worker) == 0 && *own == TPW_OK && (*own = lead(worker, step, err)) != TPW_OK) {
            fail("admit or cancel", *own, err);
            tpw_status status = tpw_worker_stop(worker, err);
            if (status != TPW_OK)
                return fail("stop", status, err);
        }
        tpw_status status = tpw_worker_step(worker, &busy, err);
        if (status != TPW_OK)
            return fail("step", status, err);
        stream(worker);
    }
    return TPW_OK;
}

static void print_statistics(const tpw_worker *worker)
{
    tpw_stats s;
    tpw_rank_info rank;
    tpw_worker_stats(worker, &s);
    printf("steps %lld, prompt tokens %lld, output tokens %lld, drafted %lld, accepted %lld, checks %lld\n",
           (long long)s.steps, (long long)s.prompt_tokens, (long long)s.output_tokens, (long long)s.draft_tokens,
           (long long)s.accepted_tokens, (long long)s.checks);
    for (int r = 0; r < tpw_worker_size(worker); r++)
        if (tpw_worker_rank_info(worker, r, &rank, NULL) == TPW_OK)
            printf("rank %d on %s: %lld bytes of weights\n", r, rank.device, (long long)rank.weight_bytes);
}

static tpw_status run(const char *model, tpw_worker **worker, tpw_error *err)
{
    tpw_options options = TPW_OPTIONS_INIT;
    options.model = model;
    options.sequences_max = SEQUENCES;
    options.context_max = 64;
    options.draft_max = DRAFTS;
    tpw_status status = tpw_worker_create(&options, MPI_COMM_WORLD, worker, err);
    if (status != TPW_OK)
        return fail("create", status, err);
    status = tpw_worker_load(*worker, err);
    if (status != TPW_OK)
        return fail("load", status, err);
    tpw_status own = TPW_OK;
    status = serve(*worker, &own, err);
    if (status != TPW_OK)
        return status;
    status = tpw_worker_finalize(*worker, err);
    if (status != TPW_OK)
        return fail("finalize", status, err);
    if (tpw_worker_rank(*worker) == 0)
        print_statistics(*worker);
    return own;
}

int main(int argc, char **argv)
{
    int provided = 0;
    tpw_worker *worker = NULL;
    tpw_error err = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: mpirun -np 2 embed MODEL_FOLDER\n");
        return 2;
    }
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
        return 1;
    tpw_status status = run(argv[1], &worker, &err);
    if (status == TPW_ERR_PEER || status == TPW_ERR_DIVERGED)
        MPI_Abort(MPI_COMM_WORLD, 1); /* somebody may never come to MPI_Finalize */
    tpw_worker_destroy(worker);
    MPI_Finalize();
    return status == TPW_OK ? 0 : 1;
}
