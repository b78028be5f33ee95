/* The waits of an MPI boot and of its comms: bounded, ended by a peer's failure, and never leaving MPI with memory that is
 * gone. Private to this folder.
 *
 * The rules that make this hold:
 * - Every exchange goes through memory owned by the boot or the comm, never through the caller's, so an exchange that
 *   is given up can stay pending.
 * - The first failure is final: later calls repeat it at once, because the ranks are no longer in step. So at most one
 *   exchange can be pending at the end, and its memory is freed only once MPI reports it as complete (or is finalised);
 *   else it is left to the process, on purpose.
 * - MPI_Comm_free is collective by the book, although in practice it only drops a reference (Open MPI 4.1.4: 30 us while a
 *   peer slept for two seconds). It is called only when nothing has failed and nothing is pending. A communicator on which
 *   this rank sent more than greetings is not freed either: a notice may still be on its way to a peer that has already
 *   freed its side, and would reach whatever gets the same context id next.
 * - One lock is around every MPI call of a boot and its comms, so that a watching thread may raise while another
 *   waits, with MPI_THREAD_SERIALIZED. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_MPI_LINK_H
#define TPW_TP_MPI_LINK_H

#include <pthread.h>
#include <stdbool.h>

#include "tp/boot_mpi.h"
#include "tp/notice.h"

#define TPW_MPI_STAGE_BYTES  (1024 * 1024)
#define TPW_MPI_REQUESTS_MAX 2

/* Memory of a comm that MPI may still write to; starts the comm's own block. */
typedef struct tpw_mpi_block {
    struct tpw_mpi_block *next;
} tpw_mpi_block;

/* What is known of a peer's waiting. */
typedef struct tpw_mpi_peer {
    int64_t reached; /* the exchange in which it last said to wait; 0 after its greeting, -1 before */
    int64_t heard;   /* in which wait of ours it said so */
} tpw_mpi_peer;

/* One kind of notice to all peers; the message stays until all sends of it are complete. */
typedef struct tpw_mpi_mail {
    tpw_notice notice;
    MPI_Request *requests; /* [size], MPI_REQUEST_NULL where none */
} tpw_mpi_mail;

typedef struct tpw_mpi_link {
    pthread_mutex_t lock; /* around every MPI call and every field that a raising thread touches */
    MPI_Comm notices;     /* out of band */
    MPI_Comm control;     /* collectives of the boot */
    MPI_Comm born;        /* where a duplication in progress writes */
    tpw_status failed;    /* first failure; OK while healthy */
    tpw_error failure;
    bool spoke;       /* sent more than greetings */
    bool raised;      /* raise was called */
    bool asked;       /* a peer asked who waits, since our last answer */
    int hellos;       /* greetings received */
    int64_t exchange; /* exchanges begun on the boot or any comm of it */
    int64_t waits;
    int pending_count; /* requests of the exchange that was given up */
    MPI_Request pending[TPW_MPI_REQUESTS_MAX];
    tpw_mpi_block *kept; /* blocks of destroyed comms that must outlive it */
    tpw_mpi_mail hello, waiting, failing;
    tpw_mpi_peer *peers;  /* [size] */
    tpw_host_name *hosts; /* [size], from the greetings */
    unsigned char *send;  /* [TPW_MPI_STAGE_BYTES] */
    unsigned char *recv;  /* [TPW_MPI_STAGE_BYTES] */
} tpw_mpi_link;

/* One started exchange to wait for. */
typedef struct tpw_mpi_wait_args {
    const char *call; /* for messages: "allreduce" */
    MPI_Request *requests;
    MPI_Status *statuses;
    int count;       /* requests; 0 waits for the greetings of all peers */
    int partner;     /* the rank that is waited for directly, -1 if it may be any */
    bool cancelable; /* requests[0] is a receive */
} tpw_mpi_wait_args;

/* The link of an MPI boot; NULL for any other boot. */
tpw_mpi_link *tpw_mpi_link_of(tpw_boot *boot);

/* Local. All memory of a link for `size` ranks, no MPI call. */
tpw_status tpw_mpi_link_create(int size, tpw_mpi_link **out, tpw_error *err) TPW_MUST_CHECK;
/* Local. Frees what may be freed. NULL allowed. */
void tpw_mpi_link_destroy(tpw_mpi_link *link, int size);

/* Local, before an exchange: returns the earlier failure, or a peer's, if there is one. */
tpw_status tpw_mpi_begin(tpw_boot *boot, tpw_error *err) TPW_MUST_CHECK;

/* Local, under the lock: OK for MPI_SUCCESS, else keeps and returns the failure with MPI's text. */
tpw_status tpw_mpi_check(tpw_boot *boot, int code, const char *call, tpw_error *err) TPW_MUST_CHECK;

/* Waits until all requests are complete. On any failure the requests belong to the link. */
tpw_status tpw_mpi_wait(tpw_boot *boot, const tpw_mpi_wait_args *args, tpw_error *err) TPW_MUST_CHECK;

/* Gives up started requests after a failure to start the rest. Under the lock. */
void tpw_mpi_abandon(tpw_mpi_link *link, MPI_Request *requests, int count, bool cancelable);

/* Keeps and returns a failure that the caller found (sizes that do not match, say). Takes the lock. */
tpw_status tpw_mpi_keep(tpw_boot *boot, const tpw_error *failure, tpw_error *err) TPW_MUST_CHECK;

/* Collective over `parent`: a duplicate whose error handler returns. */
tpw_status tpw_mpi_duplicate(tpw_boot *boot, MPI_Comm parent, MPI_Comm *out, tpw_error *err) TPW_MUST_CHECK;

/* Collective: greets every peer and waits for all greetings. */
tpw_status tpw_mpi_greet(tpw_boot *boot, tpw_error *err) TPW_MUST_CHECK;

/* Local, under the lock: receives what peers have sent. A peer's failure becomes the link's. */
void tpw_mpi_hear(tpw_boot *boot);

/* Local, under the lock: tells all peers that this rank waits. */
void tpw_mpi_announce(tpw_boot *boot);

/* Local, never blocks: what has been heard, as tpw_boot_ops.look. */
tpw_status tpw_mpi_look(tpw_boot *boot, tpw_error *err) TPW_MUST_CHECK;

/* Local, never blocks. */
void tpw_mpi_raise(tpw_boot *boot, tpw_status status, const char *text);

/* True while MPI may be called at all. */
bool tpw_mpi_alive(void);

#endif
