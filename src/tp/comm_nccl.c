/* The NCCL communicator's life and its exchanges: which transport, in what order, with which deadline.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "tp/agree.h"
#include "tp/common.h"
#include "tp/nccl_device.h"

#define POLL_NS   200000
#define NS_PER_MS 1000000
#define CLOSE_MS  4000 /* of finalising; then the communicator is aborted */
#define WORD      8u   /* bytes that the kernels exchange at a time */

typedef struct comm_nccl {
    ncclComm_t nccl; /* NULL once aborted */
    tpw_exec *exec;  /* held */
    tpw_nccl_device *device;
    bool peers; /* all ranks reach each other's memory */
    tpw_nccl_options options;
    int holds; /* graphs */
    bool ended;
} comm_nccl;

static int device_of(const comm_nccl *own)
{
    return tpw_cuda_gpu_of(own->exec)->index;
}

static void nap(void)
{
    const struct timespec ts = {0, POLL_NS};

    (void)nanosleep(&ts, NULL);
}

static tpw_status nccl_fail(tpw_comm *comm, ncclResult_t code, const char *what, tpw_error *err)
{
    const comm_nccl *own = comm->impl;
    const char *more = own->nccl != NULL ? ncclGetLastError(own->nccl) : NULL;
    bool peer = code == ncclRemoteError;
    char lost[24] = "";

    if (peer && comm->size == 2) /* NCCL does not say which; of two it can only be the other */
        snprintf(lost, sizeof lost, "lost rank %d: ", 1 - comm->rank);
    return tpw_fail(err, peer ? TPW_ERR_PEER : TPW_ERR_DEVICE, "rank %d (%s, GPU %s): %s%s: %s%s%s", comm->rank,
                    comm->boot->host, tpw_cuda_gpu_of(own->exec)->bus, lost, what, ncclGetErrorString(code),
                    more != NULL && more[0] != '\0' ? ": " : "", more != NULL ? more : "");
}

/* The communicator is non-blocking: waits until its last call has taken effect, at most the boot's deadline. Some calls return success
 * while they are still at work, so its state is asked even then. */
static tpw_status settle(tpw_comm *comm, ncclResult_t code, int64_t limit_ms, const char *what, tpw_error *err)
{
    const comm_nccl *own = comm->impl;
    const int64_t deadline = tpw_clock_ns() + limit_ms * NS_PER_MS;

    if (code == ncclSuccess && own->nccl != NULL && ncclCommGetAsyncError(own->nccl, &code) != ncclSuccess)
        code = ncclInternalError;
    while (code == ncclInProgress) {
        if (tpw_clock_ns() > deadline)
            return tpw_fail(err, TPW_ERR_PEER, "rank %d (%s): %s: not all %d ranks came within %lld ms", comm->rank,
                            comm->boot->host, what, comm->size, (long long)limit_ms);
        nap();
        if (ncclCommGetAsyncError(own->nccl, &code) != ncclSuccess)
            code = ncclInternalError;
    }
    return code == ncclSuccess ? TPW_OK : nccl_fail(comm, code, what, err);
}

static tpw_status settle_step(tpw_comm *comm, ncclResult_t code, const char *what, tpw_error *err)
{
    return settle(comm, code, comm->boot->timeout_ms, what, err);
}

void tpw_nccl_versions(int *compiled, int *loaded)
{
    *compiled = NCCL_VERSION_CODE;
    *loaded = 0;
    (void)ncclGetVersion(loaded);
}

/* Structures of the device API differ between versions, so that a program may run with no other than its headers'. */
static tpw_status check_versions(tpw_boot *boot, tpw_error *err)
{
    int compiled, loaded;
    tpw_status st = TPW_OK;

    tpw_nccl_versions(&compiled, &loaded);
    if (compiled != loaded)
        st = tpw_fail(err, TPW_ERR_RESOURCE,
                      "NCCL %d was compiled against, NCCL %d is loaded: put the folder of the former's libnccl.so.2 "
                      "first in LD_LIBRARY_PATH",
                      compiled, loaded);
    TPW_TRY(tpw_agree_status(boot, st, err));
    return tpw_agree_digest(boot, (uint64_t)loaded, "version of NCCL", err);
}

/* With the GPU current. */
static tpw_status join_ranks(tpw_comm *comm, tpw_error *err)
{
    comm_nccl *own = comm->impl;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclResult_t code = ncclSuccess;

    memset(&id, 0, sizeof id);
    if (comm->rank == 0)
        code = ncclGetUniqueId(&id);
    TPW_TRY(tpw_agree_status(comm->boot, code == ncclSuccess ? TPW_OK : nccl_fail(comm, code, "making NCCL's id", err),
                             err));
    TPW_TRY(comm->boot->ops->broadcast(comm->boot, &id, sizeof id, 0, err));
    config.blocking = 0;
    code = ncclCommInitRankConfig(&own->nccl, comm->size, id, comm->rank, &config);
    return tpw_agree_status(comm->boot, settle_step(comm, code, "joining the ranks' GPUs", err), err);
}

/* With the GPU current. Every step is collective inside NCCL; all ranks agree before the next. */
static tpw_status make_resources(tpw_comm *comm, tpw_error *err)
{
    comm_nccl *own = comm->impl;
    tpw_status st = TPW_OK;

    own->device = tpw_nccl_device_new(&own->options, comm->size);
    if (own->device == NULL)
        st = tpw_fail(err, TPW_ERR_MEMORY, "rank %d: no memory for the communicator", comm->rank);
    else if (tpw_nccl_device_gather(own->device) != ncclSuccess)
        st = tpw_fail(err, TPW_ERR_MEMORY, "rank %d: no GPU memory to gather %d rows of %d", comm->rank,
                      (int)own->options.rows_max, (int)own->options.cols_max);
    TPW_TRY(tpw_agree_status(comm->boot, st, err));
    own->peers = tpw_nccl_device_peers(own->nccl, comm->size);
    if (!own->peers)
        return TPW_OK;
    st = settle_step(comm, tpw_nccl_device_packets(own->nccl, own->device), "making the packet buffers", err);
    TPW_TRY(tpw_agree_status(comm->boot, st, err));
    st = settle_step(comm, tpw_nccl_device_memory(own->device), "allocating the window", err);
    TPW_TRY(tpw_agree_status(comm->boot, st, err));
    st = settle_step(comm, tpw_nccl_device_window(own->nccl, own->device), "registering the window", err);
    return tpw_agree_status(comm->boot, st, err);
}

/* Gives everything back. Returns what finalising said. */
static tpw_status free_all(tpw_comm *comm, tpw_error *err)
{
    comm_nccl *own = comm->impl;
    const int before = tpw_cuda_enter(device_of(own));
    tpw_status st = TPW_OK;

    if (own->nccl != NULL) {
        if (tpw_cuda_sync(own->exec, NULL) != TPW_OK)
            st = TPW_ERR_PEER; /* finalising would wait for the same peer */
        tpw_nccl_device_destroy(own->nccl, own->device);
        own->device = NULL;
        if (st == TPW_OK)
            st = settle(comm, ncclCommFinalize(own->nccl), CLOSE_MS, "ending the communicator", err);
        else
            (void)tpw_fail(err, st, "rank %d (%s): the communicator is aborted: a kernel gave up waiting for a peer",
                           comm->rank, comm->boot->host);
        (void)(st == TPW_OK ? ncclCommDestroy(own->nccl) : ncclCommAbort(own->nccl));
        own->nccl = NULL;
    }
    tpw_nccl_device_destroy(NULL, own->device);
    tpw_cuda_leave(before);
    tpw_cuda_release(own->exec);
    free(own);
    free(comm);
    return st;
}

static void abort_nccl(comm_nccl *own)
{
    const int before = tpw_cuda_enter(device_of(own));

    if (own->nccl != NULL)
        (void)ncclCommAbort(own->nccl);
    own->nccl = NULL;
    tpw_cuda_leave(before);
}

void tpw_comm_nccl_abort(tpw_comm *comm)
{
    comm_nccl *own;

    if (comm == NULL || comm->size == 1)
        return;
    own = comm->impl;
    *(volatile uint32_t *)tpw_cuda_of(own->exec)->fault = TPW_FAULT_WAIT; /* ends the waits of our own kernels */
    abort_nccl(own);
}

/* How many 8-byte words there are, in whole ones. */
static tpw_status words_of(const void *x, size_t bytes, const char *call, size_t *words, tpw_error *err)
{
    TPW_TRY(tpw_boot_check_buffer(x, bytes, call, err));
    if (bytes % WORD != 0 || (uintptr_t)x % WORD != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s of %zu bytes: NCCL exchanges go in whole, aligned words of %u bytes",
                        call, bytes, WORD);
    *words = bytes / WORD;
    return TPW_OK;
}

/* All-gather into the buffer, then the join, as much at a time as the buffer holds. */
static tpw_status by_gather(tpw_comm *comm, tpw_nccl_join join, char *x, size_t words, tpw_error *err)
{
    comm_nccl *own = comm->impl;
    const size_t room = tpw_nccl_gather_room(own->device);
    void *all = tpw_nccl_gather_buffer(own->device);

    for (size_t at = 0; at < words; at += room) {
        const size_t n = words - at < room ? words - at : room;
        const ncclResult_t code =
            ncclAllGather(x + at * WORD, all, n, ncclUint64, own->nccl, tpw_cuda_of(own->exec)->stream);

        TPW_TRY(settle_step(comm, code, "all-gather", err));
        TPW_TRY(tpw_nccl_gathered(own->exec, comm->size, join, all, x + at * WORD, n, err));
    }
    return TPW_OK;
}

tpw_nccl_transport tpw_comm_nccl_transport(const tpw_comm *comm, int64_t rows)
{
    const comm_nccl *own = comm->impl;

    if (!own->peers)
        return TPW_NCCL_GATHER;
    if (own->options.transport != TPW_NCCL_AUTO)
        return own->options.transport;
    return rows <= TPW_NCCL_PACKET_ROWS ? TPW_NCCL_PACKETS : TPW_NCCL_COPIES;
}

static tpw_status join_here(tpw_comm *comm, tpw_nccl_join join, void *x, size_t words, tpw_error *err)
{
    comm_nccl *own = comm->impl;
    const size_t row = ((size_t)own->options.cols_max + 1) / 2;
    const int64_t rows = (int64_t)((words + row - 1) / row);

    if (words == 0 || comm->size == 1)
        return TPW_OK;
    switch (tpw_comm_nccl_transport(comm, rows)) {
    case TPW_NCCL_PACKETS:
        return tpw_nccl_packets(own->exec, own->device, comm->rank, comm->size, join, x, words, err);
    case TPW_NCCL_COPIES:
        return tpw_nccl_copies(own->exec, own->device, comm->rank, comm->size, join, x, words, err);
    default:
        return by_gather(comm, join, x, words, err);
    }
}

/* The calls of the table. Each makes the GPU current for its own time. */
static tpw_status nccl_join_call(tpw_comm *comm, tpw_nccl_join join, void *x, size_t bytes, const char *call,
                                 tpw_error *err)
{
    size_t words = 0;
    tpw_status st;
    int before;

    TPW_TRY(words_of(x, bytes, call, &words, err));
    comm->seq++;
    before = tpw_cuda_enter(device_of(comm->impl));
    st = join_here(comm, join, x, words, err);
    tpw_cuda_leave(before);
    return st;
}

static tpw_status nccl_allreduce(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    size_t bytes;

    if (!tpw_mul_size(count, sizeof *x, &bytes))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "allreduce: %zu values do not fit in memory", count);
    return nccl_join_call(comm, TPW_JOIN_SUM, x, bytes, "allreduce", err);
}

static tpw_status nccl_merge(tpw_comm *comm, void *x, size_t bytes, tpw_error *err)
{
    return nccl_join_call(comm, TPW_JOIN_OR, x, bytes, "merge", err);
}

static tpw_status nccl_allgather(tpw_comm *comm, const void *send, void *recv, size_t bytes, tpw_error *err)
{
    comm_nccl *own = comm->impl;
    tpw_status st;
    int before;

    TPW_TRY(tpw_boot_check_buffer(send, bytes, "allgather", err));
    TPW_TRY(tpw_boot_check_buffer(recv, bytes, "allgather", err));
    comm->seq++;
    before = tpw_cuda_enter(device_of(own));
    st = settle_step(comm, ncclAllGather(send, recv, bytes, ncclInt8, own->nccl, tpw_cuda_of(own->exec)->stream),
                     "all-gather", err);
    tpw_cuda_leave(before);
    return st;
}

static void nccl_destroy(tpw_comm *comm)
{
    comm_nccl *own = comm->impl;

    own->ended = true;
    if (own->holds == 0)
        (void)free_all(comm, NULL);
}

tpw_status tpw_comm_nccl_close(tpw_comm *comm, tpw_error *err)
{
    const comm_nccl *own = comm->impl;

    if (own->holds > 0)
        return tpw_fail(err, TPW_ERR_BUSY, "the NCCL communicator is used by %d graphs: destroy them first",
                        own->holds);
    return free_all(comm, err);
}

static const tpw_comm_ops nccl_ops = {
    .name = "nccl",
    .allreduce = nccl_allreduce,
    .merge = nccl_merge,
    .allgather = nccl_allgather,
    .destroy = nccl_destroy,
};

void tpw_comm_nccl_hold(tpw_comm *comm)
{
    ((comm_nccl *)comm->impl)->holds++;
}

void tpw_comm_nccl_release(tpw_comm *comm)
{
    comm_nccl *own = comm->impl;

    if (--own->holds == 0 && own->ended)
        (void)free_all(comm, NULL);
}

tpw_status tpw_comm_nccl_check(tpw_comm *comm, tpw_error *err)
{
    const comm_nccl *own = comm->impl;
    ncclResult_t code = ncclSuccess;

    if (own->nccl == NULL)
        return tpw_fail(err, TPW_ERR_DEVICE, "rank %d: the NCCL communicator was aborted", comm->rank);
    if (ncclCommGetAsyncError(own->nccl, &code) != ncclSuccess)
        code = ncclInternalError;
    return code == ncclSuccess || code == ncclInProgress ? TPW_OK : nccl_fail(comm, code, "asynchronous error", err);
}

static tpw_status check_options(const tpw_nccl_options *o, tpw_error *err)
{
    if (o->rows_max < 1 || o->cols_max < 1 || o->rows_max > 65536 || o->cols_max > 65536)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "NCCL communicator for %d rows of %d: 1 to 65,536 of each",
                        (int)o->rows_max, (int)o->cols_max);
    return TPW_OK;
}

tpw_status tpw_comm_nccl_create(tpw_boot *boot, tpw_exec *exec, const tpw_nccl_options *options, tpw_comm **out,
                                tpw_error *err)
{
    comm_nccl *own = NULL;
    tpw_comm *comm = NULL;
    tpw_status st = check_options(options, err);
    int before;

    if (st == TPW_OK)
        st = tpw_comm_check_size(boot->size, err);
    if (st == TPW_OK) {
        own = calloc(1, sizeof *own);
        st = own != NULL ? tpw_comm_new(&nccl_ops, boot, own, &comm, err)
                         : tpw_fail(err, TPW_ERR_MEMORY, "rank %d: no memory for the communicator", boot->rank);
    }
    st = tpw_agree_status(boot, st, err);
    if (st != TPW_OK) {
        free(own);
        free(comm);
        return st;
    }
    own->exec = exec;
    own->options = *options;
    tpw_cuda_hold(exec);
    before = tpw_cuda_enter(device_of(own));
    TPW_TRY_GOTO(st, check_versions(boot, err), done);
    TPW_TRY_GOTO(st, join_ranks(comm, err), done);
    TPW_TRY_GOTO(st, make_resources(comm, err), done);
done:
    if (st != TPW_OK) {
        abort_nccl(own);
        (void)free_all(comm, NULL);
    } else {
        *out = comm;
    }
    tpw_cuda_leave(before);
    return st;
}

static tpw_status check_norm(const tpw_comm *comm, const tpw_add_norm_args *a, tpw_error *err)
{
    const comm_nccl *own = comm->impl;
    const int32_t parts = a->parts > 0 ? a->parts : 1;

    if (a->h.dtype != TPW_BF16 || (a->y.data != NULL && a->y.dtype != TPW_BF16))
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "all-reduce and norm: h and y of type BF16, not %s",
                        tpw_dtype_name(a->h.dtype));
    if (a->sum == NULL || parts > TPW_SLICES_ROW_PARALLEL || (parts & (parts - 1)) != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "all-reduce and norm: a sum in %d parts; 1, 2, 4 or 8 make a tree",
                        (int)a->parts);
    if (a->h.rows > own->options.rows_max || a->h.cols > own->options.cols_max)
        return tpw_fail(err, TPW_ERR_LIMIT, "all-reduce and norm of [%d, %d]; the communicator was made for [%d, %d]",
                        (int)a->h.rows, (int)a->h.cols, (int)own->options.rows_max, (int)own->options.cols_max);
    return TPW_OK;
}

/* The same in three steps: the slices' fold, the all-reduce, the op. The fold goes where the sum is gathered next. */
static tpw_status add_norm_apart(tpw_comm *comm, const tpw_add_norm_args *args, tpw_error *err)
{
    comm_nccl *own = comm->impl;
    tpw_add_norm_args a = *args;
    const size_t count = (size_t)a.h.rows * (size_t)a.h.cols;
    float *sum = (float *)a.sum; /* slice 0 is overwritten: the parts are this call's to use */

    if (count % 2 != 0)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "all-reduce and norm of [%d, %d]: an odd number of values",
                        (int)a.h.rows, (int)a.h.cols);
    if (a.parts > 1)
        TPW_TRY(tpw_nccl_fold_parts(own->exec, a.sum, a.parts, count, sum, err));
    TPW_TRY(join_here(comm, TPW_JOIN_SUM, sum, count / 2, err));
    a.parts = 0;
    return own->exec->ops->add_norm(own->exec, &a, err);
}

tpw_status tpw_comm_nccl_add_norm(tpw_comm *comm, const tpw_add_norm_args *args, tpw_error *err)
{
    comm_nccl *own = comm->impl;
    const tpw_nccl_transport way = tpw_comm_nccl_transport(comm, args->h.rows);
    tpw_status st;
    int before;

    TPW_TRY(check_norm(comm, args, err));
    comm->seq++;
    before = tpw_cuda_enter(device_of(own));
    if (comm->size == 1)
        st = own->exec->ops->add_norm(own->exec, args, err);
    else if (way == TPW_NCCL_PACKETS && args->h.cols <= TPW_NCCL_NORM_COLS && args->h.rows <= TPW_NCCL_PACKET_ROWS)
        st = tpw_nccl_packets_norm(own->exec, own->device, comm->rank, comm->size, args, err);
    else if (way == TPW_NCCL_COPIES && args->h.cols <= TPW_NCCL_NORM_COLS)
        st = tpw_nccl_copies_norm(own->exec, own->device, comm->rank, comm->size, args, err);
    else
        st = add_norm_apart(comm, args, err);
    tpw_cuda_leave(before);
    return st;
}

tpw_status tpw_comm_nccl_set_epoch(tpw_comm *comm, uint32_t epoch, tpw_error *err)
{
    comm_nccl *own = comm->impl;

    if (!own->peers)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "rank %d: no packets without peer access", comm->rank);
    TPW_TRY(tpw_agree_status(comm->boot, tpw_cuda_sync(own->exec, err), err));
    TPW_TRY(tpw_nccl_write_epoch(own->exec, own->device, epoch, err));
    return tpw_agree_status(comm->boot, tpw_cuda_sync(own->exec, err), err);
}
