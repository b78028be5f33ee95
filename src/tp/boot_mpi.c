/* The boot table over a duplicate of the caller's MPI communicator. SPDX-License-Identifier: Apache-2.0 */
#include "tp/boot_mpi.h"

#include <stdlib.h>
#include <string.h>

#include "tp/common.h"
#include "tp/mpi_link.h"

/* Waits for the one collective that was started with `code`. Takes the lock that the starter holds off. */
static tpw_status finish(tpw_boot *boot, int code, MPI_Request *request, const char *call, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    MPI_Status status;
    tpw_status st = tpw_mpi_check(boot, code, call, err);
    pthread_mutex_unlock(&link->lock);
    TPW_TRY(st);
    const tpw_mpi_wait_args args = {.call = call, .requests = request, .statuses = &status, .count = 1, .partner = -1};
    return tpw_mpi_wait(boot, &args, err);
}

static tpw_status mpi_broadcast(tpw_boot *boot, void *data, size_t bytes, int root, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    TPW_TRY(tpw_boot_check_root(boot, root, err));
    TPW_TRY(tpw_boot_check_buffer(data, bytes, "broadcast", err));
    TPW_TRY(tpw_mpi_begin(boot, err));
    for (size_t offset = 0; offset < bytes && boot->size > 1; offset += TPW_MPI_STAGE_BYTES) {
        size_t piece = bytes - offset < TPW_MPI_STAGE_BYTES ? bytes - offset : TPW_MPI_STAGE_BYTES;
        if (boot->rank == root)
            memcpy(link->recv, (char *)data + offset, piece);
        MPI_Request request = MPI_REQUEST_NULL;
        pthread_mutex_lock(&link->lock);
        int code = MPI_Ibcast(link->recv, (int)piece, MPI_BYTE, root, link->control, &request);
        TPW_TRY(finish(boot, code, &request, "broadcast", err));
        if (boot->rank != root)
            memcpy((char *)data + offset, link->recv, piece);
    }
    return TPW_OK;
}

static tpw_status mpi_allgather(tpw_boot *boot, const void *send, void *recv, size_t bytes, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    TPW_TRY(tpw_boot_check_buffer(send, bytes, "allgather", err));
    TPW_TRY(tpw_boot_check_buffer(recv, bytes, "allgather", err));
    TPW_TRY(tpw_mpi_begin(boot, err));
    size_t room = TPW_MPI_STAGE_BYTES / (size_t)boot->size; /* >= 1 KiB, since size <= TPW_RANKS_MAX */
    for (size_t offset = 0; offset < bytes; offset += room) {
        size_t piece = bytes - offset < room ? bytes - offset : room;
        memcpy(link->send, (const char *)send + offset, piece);
        MPI_Request request = MPI_REQUEST_NULL;
        pthread_mutex_lock(&link->lock);
        int code =
            MPI_Iallgather(link->send, (int)piece, MPI_BYTE, link->recv, (int)piece, MPI_BYTE, link->control, &request);
        TPW_TRY(finish(boot, code, &request, "allgather", err));
        for (int r = 0; r < boot->size; r++)
            memcpy((char *)recv + (size_t)r * bytes + offset, link->recv + (size_t)r * piece, piece);
    }
    return TPW_OK;
}

static tpw_status mpi_barrier(tpw_boot *boot, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    TPW_TRY(tpw_mpi_begin(boot, err));
    MPI_Request request = MPI_REQUEST_NULL;
    pthread_mutex_lock(&link->lock);
    int code = MPI_Ibarrier(link->control, &request);
    return finish(boot, code, &request, "barrier", err);
}

static void mpi_destroy(tpw_boot *boot)
{
    tpw_mpi_link_destroy(boot->impl, boot->size);
    free(boot);
}

static const tpw_boot_ops mpi_ops = {
    .broadcast = mpi_broadcast,
    .allgather = mpi_allgather,
    .barrier = mpi_barrier,
    .raise = tpw_mpi_raise,
    .look = tpw_mpi_look,
    .destroy = mpi_destroy,
};

tpw_mpi_link *tpw_mpi_link_of(tpw_boot *boot)
{
    return boot != NULL && boot->ops == &mpi_ops ? boot->impl : NULL;
}

static tpw_status check_mpi(tpw_error *err)
{
    if (!tpw_mpi_alive())
        return tpw_fail(err, TPW_ERR_RESOURCE,
                        "MPI is not running: call MPI_Init_thread before, and MPI_Finalize after, the worker's life");
    int level = MPI_THREAD_SINGLE;
    if (MPI_Query_thread(&level) != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED)
        return tpw_fail(err, TPW_ERR_RESOURCE,
                        "MPI gives thread level %d, at least MPI_THREAD_SERIALIZED (%d) is needed: ask for it in "
                        "MPI_Init_thread",
                        level, MPI_THREAD_SERIALIZED);
    return TPW_OK;
}

static tpw_status check_comm(MPI_Comm comm, int *rank, int *size, tpw_error *err)
{
    if (comm == MPI_COMM_NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "the communicator is MPI_COMM_NULL: this process is not one of its ranks");
    int inter = 0;
    if (MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "an inter-communicator has no ranks of its own: merge it before");
    if (MPI_Comm_rank(comm, rank) != MPI_SUCCESS || MPI_Comm_size(comm, size) != MPI_SUCCESS)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "MPI does not know the given communicator");
    if (*size > TPW_RANKS_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "%d ranks are more than %d: split the communicator", *size, TPW_RANKS_MAX);
    return TPW_OK;
}

tpw_status tpw_boot_mpi_create(MPI_Comm comm, int64_t timeout_ms, tpw_boot **out, tpw_error *err)
{
    int rank, size;
    if (out == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tpw_boot_mpi_create: out is NULL");
    TPW_TRY(tpw_boot_check_timeout(timeout_ms, err));
    TPW_TRY(check_mpi(err));
    TPW_TRY(check_comm(comm, &rank, &size, err));

    tpw_boot *boot = NULL;
    tpw_mpi_link *link = NULL;
    tpw_status st;
    TPW_TRY_GOTO(st, tpw_mpi_link_create(size, &link, err), free_link);
    TPW_TRY_GOTO(st, tpw_boot_new(&mpi_ops, rank, size, timeout_ms, link, &boot, err), free_link);

    /* the caller's communicator is used once; what follows can be ended by notices already */
    TPW_TRY_GOTO(st, tpw_mpi_duplicate(boot, comm, &link->notices, err), destroy_boot);
    TPW_TRY_GOTO(st, tpw_mpi_greet(boot, err), destroy_boot);
    TPW_TRY_GOTO(st, tpw_mpi_begin(boot, err), destroy_boot);
    TPW_TRY_GOTO(st, tpw_mpi_duplicate(boot, link->notices, &link->control, err), destroy_boot);
    *out = boot;
    return TPW_OK;

destroy_boot:
    mpi_destroy(boot);
    return st;
free_link:
    tpw_mpi_link_destroy(link, size);
    return st;
}
