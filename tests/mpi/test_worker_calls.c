/* Calls that a worker refuses, and workers that only come half into being: the same answer on every rank, nothing broken.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "mpi_ranks.h"

#include "output.h"
#include "worker/worker.h"

MPI_SUITE(worker_calls);

static tpw_options small(void)
{
    tpw_options o = TPW_OPTIONS_INIT;

    o.model = TPW_TEST_DATA "/tiny/qwen35-odd";
    o.sequences_max = 2;
    o.rows_max = 32;
    o.context_max = 64;
    o.timeout_ms = 30000;
    return o;
}

static bool is_last(void)
{
    return mt_rank == mt_size - 1;
}

/* Creation that must fail on all ranks alike. `part` is in the text of each. */
static void expect_no_worker(const tpw_options *o, tpw_status expected, const char *part)
{
    tpw_worker *w = (tpw_worker *)&w;
    tpw_error err = {0};

    expect_error(tpw_worker_create(o, MPI_COMM_WORLD, &w, &err), expected, &err, part);
    cr_assert_null(w);
}

/* One field of the last rank's options is another; whichever it is, all ranks hear its name. */
MPI_TEST(worker_calls, options_that_differ)
{
    static const char *const names[13] = {"sequences_max", "rows_max",      "chunk",   "page_size",  "pages",
                                          "context_max",   "draft_max",     "compute", "timeout_ms", "dummy_layers",
                                          "dummy",         "ranks_per_gpu", "binding"};

    for (int i = 0; i < 13; i++) {
        tpw_options o = small();
        char part[64];

        if (is_last()) {
            switch (i) {
            case 0:
                o.sequences_max = 1;
                break;
            case 1:
                o.rows_max = 33;
                break;
            case 2:
                o.chunk = 7;
                break;
            case 3:
                o.page_size = 16;
                break;
            case 4:
                o.pages = 9;
                break;
            case 5:
                o.context_max = 63;
                break;
            case 6:
                o.draft_max = 1;
                break;
            case 7:
                o.compute = TPW_COMPUTE_F32;
                break;
            case 8:
                o.timeout_ms = 29999;
                break;
            case 9:
                o.dummy_layers = 1;
                break;
            case 10:
                o.dummy = "qwen3.5-0.8b";
                o.model = NULL;
                break;
            case 11:
                o.ranks_per_gpu = 2;
                break;
            default:
                o.binding = TPW_BINDING_AUTO;
                break;
            }
        }
        (void)snprintf(part, sizeof part, "option %s differs between ranks: ", names[i]);
        expect_no_worker(&o, TPW_ERR_DIVERGED, part);
    }
}

/* What is wrong on one rank only ends the call on all, naming that rank. */
MPI_TEST(worker_calls, one_rank_cannot_be_made)
{
    tpw_worker *w = NULL;
    tpw_error err = {0};
    tpw_options o = small();
    char name[32];

    (void)snprintf(name, sizeof name, "rank %d (", mt_size - 1);
    if (is_last())
        o.isa = "abacus";
    expect_no_worker(&o, TPW_ERR_ARGUMENT, name);
    expect_no_worker(&o, TPW_ERR_ARGUMENT, "abacus");
    o = small();
    if (is_last())
        o.size -= 8;
    expect_no_worker(&o, TPW_ERR_ARGUMENT, name);
    o = small();
    expect_no_worker(is_last() ? NULL : &o, TPW_ERR_ARGUMENT, name);
    if (is_last())
        o.page_size = 48;
    expect_no_worker(&o, TPW_ERR_ARGUMENT, "page_size = 48 is not a power of two");
    o = small();
    o.ranks_per_gpu = is_last() ? 9 : 1;
    expect_no_worker(&o, TPW_ERR_ARGUMENT, "ranks_per_gpu = 9 is not in 1..8");

    o = small(); /* a folder that is not there on one rank: found at load */
    if (is_last())
        o.model = "/nonexistent/model";
    must(tpw_worker_create(&o, MPI_COMM_WORLD, &w, &err), "create", &err);
    expect_error(tpw_worker_load(w, &err), TPW_ERR_MISSING, &err, name);
    expect_error(tpw_worker_load(w, &err), TPW_ERR_ARGUMENT, &err, "has failed");
    expect_error(tpw_worker_finalize(w, &err), TPW_ERR_ARGUMENT, &err, "not loaded");
    tpw_worker_destroy(w);

    o = small(); /* another model on one rank */
    if (is_last())
        o.model = TPW_TEST_POCKET;
    must(tpw_worker_create(&o, MPI_COMM_WORLD, &w, &err), "create", &err);
    expect_error(tpw_worker_load(w, &err), TPW_ERR_DIVERGED, &err, "config.json differs between ranks");
    tpw_worker_destroy(w);

    o = small(); /* drafts without a module to make them */
    o.draft_max = 2;
    must(tpw_worker_create(&o, MPI_COMM_WORLD, &w, &err), "create", &err);
    expect_error(tpw_worker_load(w, &err), TPW_ERR_ARGUMENT, &err, "has no MTP weights");
    tpw_worker_destroy(w);

    must(tpw_worker_create(&o, MPI_COMM_WORLD, &w, &err), "create", &err); /* never loaded */
    expect_error(tpw_worker_finalize(w, &err), TPW_ERR_ARGUMENT, &err, "not loaded");
    tpw_worker_destroy(w);
    tpw_worker_destroy(NULL);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Requests that are refused, all at once and without a trace. */
static void refused_requests(tpw_worker *w)
{
    const int32_t ids[4] = {3, 4, 5, 6}, foreign[4] = {3, 4, 1003, 6};
    const tpw_request good = {.size = sizeof good, .id = 9, .ids = ids, .count = 4, .max_tokens = 4};
    tpw_request r = good;
    tpw_error err = {0};

    if (mt_rank != 0) {
        expect_error(tpw_worker_admit(w, &good, &err), TPW_ERR_ARGUMENT, &err, "only rank 0");
        expect_error(tpw_worker_cancel(w, 9, &err), TPW_ERR_ARGUMENT, &err, "only rank 0");
        expect_error(tpw_worker_stop(w, &err), TPW_ERR_ARGUMENT, &err, "only rank 0");
        return;
    }
    expect_error(tpw_worker_admit(w, NULL, &err), TPW_ERR_ARGUMENT, &err, "request.size");
    r.size--;
    expect_error(tpw_worker_admit(w, &r, &err), TPW_ERR_ARGUMENT, &err, "request.size");
    r = good;
    r.ids = foreign;
    expect_error(tpw_worker_admit(w, &r, &err), TPW_ERR_ARGUMENT, &err, "token 1003 at place 2");
    r = good;
    r.max_tokens = 61;
    expect_error(tpw_worker_admit(w, &r, &err), TPW_ERR_LIMIT, &err,
                 "4 prompt + 61 output tokens exceed the context of 64");
    r.max_tokens = INT32_MAX;
    expect_error(tpw_worker_admit(w, &r, &err), TPW_ERR_LIMIT, &err, "exceed the context of 64");
    expect_error(tpw_worker_cancel(w, 9, &err), TPW_ERR_ARGUMENT, &err, "no sequence 9");
    EXPECT_OK(tpw_worker_admit(w, &good, &err_));
    expect_error(tpw_worker_admit(w, &good, &err), TPW_ERR_ARGUMENT, &err, "sequence 9 is already there");
}

MPI_TEST(worker_calls, order_and_stop)
{
    const tpw_options o = small();
    const int32_t ids[4] = {3, 4, 5, 6};
    tpw_worker *w = worker_open(&o, MPI_COMM_WORLD);
    output out[12] = {{.over = false}};
    tpw_error err = {0};
    tpw_rank_info info;
    tpw_stats before, after;
    bool busy = true;

    expect_error(tpw_worker_load(w, &err), TPW_ERR_ARGUMENT, &err, "already loaded");
    expect_error(tpw_worker_step(w, NULL, &err), TPW_ERR_ARGUMENT, &err, "step");
    expect_error(tpw_worker_rank_info(w, mt_size, &info, &err), TPW_ERR_ARGUMENT, &err, "does not exist");
    expect_error(tpw_worker_rank_info(w, -1, &info, &err), TPW_ERR_ARGUMENT, &err, "does not exist");
    refused_requests(w);
    for (uint64_t id = 0; id < 3; id++)
        worker_admit(w, id, ids, 4, 8);
    for (int i = 0; i < 3; i++)
        cr_assert(worker_step(w, out, 12));
    tpw_worker_stats(w, &before);
    cr_assert(before.sequences_running == 2 && before.sequences_waiting == 2);

    if (mt_rank == 0)
        EXPECT_OK(tpw_worker_stop(w, &err_));
    for (int i = 0; i < 3; i++) { /* stopped is stopped, however often one asks */
        EXPECT_OK(tpw_worker_step(w, &busy, &err_));
        cr_assert_not(busy);
    }
    tpw_worker_stats(w, &after);
    cr_assert_eq(after.output_tokens, before.output_tokens, "something ran after the stop");
    EXPECT_OK(tpw_worker_finalize(w, &err_));
    expect_error(tpw_worker_step(w, &busy, &err), TPW_ERR_ARGUMENT, &err, "finalized");
    expect_error(tpw_worker_finalize(w, &err), TPW_ERR_ARGUMENT, &err, "finalized");
    tpw_worker_destroy(w); /* with sequences that run, wait, and an event queue */
    for (int i = 0; i < 12; i++)
        output_free(&out[i]);
}
