/* Captures, replays, takes medians; on several ranks in step. SPDX-License-Identifier: Apache-2.0 */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kernels/cuda/exec.h"
#include "tp/agree.h"

/* All ranks go on together or stop together. A rank's own failure is shown: the agreed one may be its consequence. */
static tpw_status together(const bench_work *work, tpw_status mine, tpw_error *err)
{
    if (work->boot == NULL)
        return mine;
    if (mine != TPW_OK)
        fprintf(stderr, "bench-kernels: rank %d (%s): %s\n", work->boot->rank, work->boot->host, err->text);
    return tpw_agree_status(work->boot, mine, err);
}

static tpw_status cuda(const bench_work *work, cudaError_t code, const char *what, tpw_error *err)
{
    return tpw_cuda_check(tpw_cuda_of(work->exec), code, what, err);
}

static cudaStream_t stream_of(const bench_work *work)
{
    return tpw_cuda_of(work->exec)->stream;
}

/* Without a graph: loads the kernels, sets up connections, and shows errors where they arise. */
static tpw_status first_run(const bench_work *work, tpw_error *err)
{
    if (tpw_clock_ns() > work->deadline_ns)
        return tpw_fail(err, TPW_ERR_LIMIT, "the time of the run is used up: take --quick, or a part with --only");
    TPW_TRY(work->enqueue(work->exec, work->data, 0, err));
    return tpw_cuda_sync(work->exec, err);
}

static tpw_status capture(const bench_work *work, cudaGraphExec_t *out, tpw_error *err)
{
    cudaGraph_t graph = NULL;
    tpw_status st = TPW_OK;
    cudaError_t code;

    TPW_TRY(cuda(work, cudaStreamBeginCapture(stream_of(work), cudaStreamCaptureModeThreadLocal), "beginning a capture",
                 err));
    for (int32_t i = 0; i < work->launches && st == TPW_OK; i++)
        st = work->enqueue(work->exec, work->data, i, err);
    code = cudaStreamEndCapture(stream_of(work), &graph);
    if (st == TPW_OK)
        st = cuda(work, code, "ending a capture", err);
    if (st == TPW_OK)
        st = cuda(work, cudaGraphInstantiate(out, graph, 0), "making a graph", err);
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError(); /* a broken capture leaves its error behind */
    return st;
}

static tpw_status replay(const bench_work *work, cudaGraphExec_t graph, tpw_error *err)
{
    return cuda(work, cudaGraphLaunch(graph, stream_of(work)), "replaying a graph", err);
}

static tpw_status warm(const bench_work *work, cudaGraphExec_t graph, tpw_error *err)
{
    for (int i = 0; i < BENCH_WARM; i++)
        TPW_TRY(replay(work, graph, err));
    return tpw_cuda_sync(work->exec, err);
}

static int ascending(const void *left, const void *right)
{
    const float a = *(const float *)left, b = *(const float *)right;

    return (a > b) - (a < b);
}

/* Replays are enqueued back to back with an event between any two. */
static tpw_status timed(const bench_work *work, cudaGraphExec_t graph, cudaEvent_t events[BENCH_REPLAYS + 1],
                        double *us, tpw_error *err)
{
    float ms[BENCH_REPLAYS];

    TPW_TRY(cuda(work, cudaEventRecord(events[0], stream_of(work)), "recording an event", err));
    for (int i = 0; i < BENCH_REPLAYS; i++) {
        TPW_TRY(replay(work, graph, err));
        TPW_TRY(cuda(work, cudaEventRecord(events[i + 1], stream_of(work)), "recording an event", err));
    }
    TPW_TRY(tpw_cuda_sync(work->exec, err));
    for (int i = 0; i < BENCH_REPLAYS; i++)
        TPW_TRY(cuda(work, cudaEventElapsedTime(&ms[i], events[i], events[i + 1]), "reading an event", err));
    qsort(ms, BENCH_REPLAYS, sizeof *ms, ascending);
    *us = (double)ms[BENCH_REPLAYS / 2] * 1e3 / work->launches;
    return TPW_OK;
}

static tpw_status time_graph(const bench_work *work, cudaGraphExec_t graph, double *us, tpw_error *err)
{
    cudaEvent_t events[BENCH_REPLAYS + 1];
    int made = 0;
    tpw_status st = TPW_OK;

    for (; made <= BENCH_REPLAYS && st == TPW_OK; made++)
        st = cuda(work, cudaEventCreate(&events[made]), "making an event", err);
    made -= st != TPW_OK;
    if (st == TPW_OK)
        st = warm(work, graph, err);
    st = together(work, st, err); /* also the barrier before what is timed */
    if (st == TPW_OK)
        st = together(work, timed(work, graph, events, us, err), err);
    while (made > 0)
        (void)cudaEventDestroy(events[--made]);
    return st;
}

static tpw_status slowest(const bench_work *work, double *us, tpw_error *err)
{
    double all[TPW_RANKS_MAX];

    TPW_TRY(work->boot->ops->allgather(work->boot, us, all, sizeof *us, err));
    for (int i = 0; i < work->boot->size; i++)
        *us = all[i] > *us ? all[i] : *us;
    return TPW_OK;
}

tpw_status bench_time(const bench_work *work, double *us, tpw_error *err)
{
    cudaGraphExec_t graph = NULL;
    tpw_status st;

    TPW_TRY(together(work, first_run(work, err), err));
    st = together(work, capture(work, &graph, err), err);
    if (st == TPW_OK)
        st = time_graph(work, graph, us, err);
    if (st == TPW_OK && work->boot != NULL)
        st = slowest(work, us, err);
    if (graph != NULL)
        (void)cudaGraphExecDestroy(graph);
    return st;
}

int64_t bench_runs(int32_t launch)
{
    return BENCH_WARM + BENCH_REPLAYS + (launch == 0);
}
