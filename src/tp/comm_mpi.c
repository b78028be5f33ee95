/* The reference communicator: recursive doubling over MPI point to point, sums in the documented tree.
 *
 * At level d a rank exchanges with rank ^ 2^d and adds lower side + higher side; both partners then hold the same bits, and
 * after the last level all ranks hold the tree (0+1)+(2+3) and so on. Everything passes through a fixed stage, piece by
 * piece, so that no call allocates and no request refers to the caller's memory. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "tp/common.h"
#include "tp/mpi_link.h"

#define PIECE_BYTES ((size_t)256 * 1024) /* both stages stay in a second-level cache */

typedef struct comm_mpi {
    tpw_mpi_block block; /* first: the link may have to keep this memory */
    MPI_Comm comm;
    _Alignas(64) unsigned char out[PIECE_BYTES];
    _Alignas(64) unsigned char in[PIECE_BYTES];
} comm_mpi;

/* One exchange of a level. Both sides send `bytes` bytes. */
typedef struct swap_args {
    const char *call;
    const void *send;
    void *recv;
    size_t bytes; /* <= PIECE_BYTES */
    int partner;
} swap_args;

static tpw_status check_count(tpw_comm *comm, const swap_args *args, const MPI_Status *status, tpw_error *err)
{
    int bytes = 0;
    if (MPI_Get_count(status, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes >= 0 && (size_t)bytes == args->bytes)
        return TPW_OK;
    tpw_error failure;
    (void)tpw_fail(&failure, TPW_ERR_DIVERGED,
                   "ranks make different exchanges: rank %d (%s) sent %d bytes in %s %llu, rank %d expects %zu",
                   args->partner, tpw_mpi_link_of(comm->boot)->hosts[args->partner], bytes, args->call,
                   (unsigned long long)comm->seq, comm->rank, args->bytes);
    return tpw_mpi_keep(comm->boot, &failure, err);
}

static tpw_status swap(tpw_comm *comm, const swap_args *args, tpw_error *err)
{
    comm_mpi *own = comm->impl;
    tpw_mpi_link *link = tpw_mpi_link_of(comm->boot);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2];
    memset(statuses, 0, sizeof statuses);

    pthread_mutex_lock(&link->lock);
    int code = MPI_Irecv(args->recv, (int)args->bytes, MPI_BYTE, args->partner, 0, own->comm, &requests[0]);
    if (code == MPI_SUCCESS)
        code = MPI_Isend(args->send, (int)args->bytes, MPI_BYTE, args->partner, 0, own->comm, &requests[1]);
    tpw_status st = tpw_mpi_check(comm->boot, code, args->call, err);
    if (st != TPW_OK)
        tpw_mpi_abandon(link, requests, 2, true);
    pthread_mutex_unlock(&link->lock);
    TPW_TRY(st);

    const tpw_mpi_wait_args wait = {.call = args->call,
                                    .requests = requests,
                                    .statuses = statuses,
                                    .count = 2,
                                    .partner = args->partner,
                                    .cancelable = true};
    TPW_TRY(tpw_mpi_wait(comm->boot, &wait, err));
    return check_count(comm, args, &statuses[0], err);
}

/* out = lower + higher. In C, a sum of two floats does not depend on which is named first, NaN payloads aside; the order is
 * kept all the same so that the code is the tree. */
static void add_piece(comm_mpi *own, size_t bytes, bool mine_is_lower)
{
    float *restrict mine = (float *)(void *)own->out;
    const float *restrict theirs = (const float *)(const void *)own->in;
    size_t count = bytes / sizeof *mine;
    if (mine_is_lower) {
        for (size_t i = 0; i < count; i++)
            mine[i] = mine[i] + theirs[i];
    } else {
        for (size_t i = 0; i < count; i++)
            mine[i] = theirs[i] + mine[i];
    }
}

static void or_piece(comm_mpi *own, size_t bytes)
{
    unsigned char *restrict mine = own->out;
    const unsigned char *restrict theirs = own->in;
    for (size_t i = 0; i < bytes; i++)
        mine[i] |= theirs[i];
}

/* Doubles over all levels with every piece of x, joining by sum or by or. */
static tpw_status join(tpw_comm *comm, const char *call, void *x, size_t bytes, bool sum, tpw_error *err)
{
    comm_mpi *own = comm->impl;
    TPW_TRY(tpw_mpi_begin(comm->boot, err));
    for (size_t offset = 0; offset < bytes && comm->size > 1; offset += PIECE_BYTES) {
        size_t piece = bytes - offset < PIECE_BYTES ? bytes - offset : PIECE_BYTES;
        memcpy(own->out, (char *)x + offset, piece);
        for (int half = 1; half < comm->size; half *= 2) {
            const swap_args args = {
                .call = call, .send = own->out, .recv = own->in, .bytes = piece, .partner = comm->rank ^ half};
            TPW_TRY(swap(comm, &args, err));
            if (sum)
                add_piece(own, piece, (comm->rank & half) == 0);
            else
                or_piece(own, piece);
        }
        memcpy((char *)x + offset, own->out, piece);
    }
    return TPW_OK;
}

static tpw_status mpi_allreduce(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    size_t bytes;
    TPW_TRY(tpw_boot_check_buffer(x, count, "allreduce", err));
    if (!tpw_mul_size(count, sizeof *x, &bytes))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "allreduce: %zu values do not fit in memory", count);
    comm->seq++;
    return join(comm, "allreduce", x, bytes, true, err);
}

static tpw_status mpi_merge(tpw_comm *comm, void *x, size_t bytes, tpw_error *err)
{
    TPW_TRY(tpw_boot_check_buffer(x, bytes, "merge", err));
    comm->seq++;
    return join(comm, "merge", x, bytes, false, err);
}

/* Each level doubles the run of neighbouring blocks that a rank holds. */
static tpw_status mpi_allgather(tpw_comm *comm, const void *send, void *recv, size_t bytes, tpw_error *err)
{
    comm_mpi *own = comm->impl;
    TPW_TRY(tpw_boot_check_buffer(send, bytes, "allgather", err));
    TPW_TRY(tpw_boot_check_buffer(recv, bytes, "allgather", err));
    comm->seq++;
    TPW_TRY(tpw_mpi_begin(comm->boot, err));
    size_t room = PIECE_BYTES / (size_t)comm->size;
    for (size_t offset = 0; offset < bytes; offset += room) {
        size_t piece = bytes - offset < room ? bytes - offset : room;
        memcpy(own->out + (size_t)comm->rank * piece, (const char *)send + offset, piece);
        for (int half = 1; half < comm->size; half *= 2) {
            int first = comm->rank / half * half; /* of the run held so far; the partner's run is its neighbour */
            const swap_args args = {.call = "allgather",
                                    .send = own->out + (size_t)first * piece,
                                    .recv = own->out + (size_t)(first ^ half) * piece,
                                    .bytes = (size_t)half * piece,
                                    .partner = comm->rank ^ half};
            TPW_TRY(swap(comm, &args, err));
        }
        for (int r = 0; r < comm->size; r++)
            memcpy((char *)recv + (size_t)r * bytes + offset, own->out + (size_t)r * piece, piece);
    }
    return TPW_OK;
}

static void mpi_destroy(tpw_comm *comm)
{
    comm_mpi *own = comm->impl;
    tpw_mpi_link *link = tpw_mpi_link_of(comm->boot);
    pthread_mutex_lock(&link->lock);
    if (link->failed == TPW_OK && own->comm != MPI_COMM_NULL && tpw_mpi_alive())
        (void)MPI_Comm_free(&own->comm);
    bool keep = link->pending_count > 0; /* perhaps of another comm: then it is kept a little longer than needed */
    if (keep) {
        own->block.next = link->kept;
        link->kept = &own->block;
    }
    pthread_mutex_unlock(&link->lock);
    if (!keep)
        free(own);
    free(comm);
}

static const tpw_comm_ops mpi_ops = {
    .name = "mpi",
    .allreduce = mpi_allreduce,
    .merge = mpi_merge,
    .allgather = mpi_allgather,
    .destroy = mpi_destroy,
};

tpw_status tpw_comm_mpi_create(tpw_boot *boot, tpw_comm **out, tpw_error *err)
{
    if (out == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tpw_comm_mpi_create: out is NULL");
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    if (link == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "an MPI communicator needs a boot made by tpw_boot_mpi_create");
    TPW_TRY(tpw_comm_check_size(boot->size, err));

    comm_mpi *own = aligned_alloc(64, sizeof *own);
    if (own == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "rank %d: out of memory for the exchange buffers", boot->rank);
    own->block.next = NULL;
    own->comm = MPI_COMM_NULL;
    tpw_comm *comm = NULL;
    tpw_status st;
    TPW_TRY_GOTO(st, tpw_comm_new(&mpi_ops, boot, own, &comm, err), free_own);
    TPW_TRY_GOTO(st, tpw_mpi_begin(boot, err), destroy_comm);
    TPW_TRY_GOTO(st, tpw_mpi_duplicate(boot, link->control, &own->comm, err), destroy_comm);
    *out = comm;
    return TPW_OK;

destroy_comm:
    mpi_destroy(comm);
    return st;
free_own:
    free(own);
    return st;
}
