/* Sends and receives the notices of an MPI boot: greetings, "I wait too", and failures. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tp/mpi_link.h"

#define TAG        1
#define HEAR_MAX   64 /* notices taken in one go: a flood must not keep a wait from its deadline */
#define PUSH_TESTS 8

/* Starts one send to every peer. False when the mail before is still under way. Under the lock. */
static bool post(tpw_boot *boot, tpw_mpi_mail *mail, tpw_notice_kind kind, tpw_status status, const char *text)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    int done = 0;
    if (link->notices == MPI_COMM_NULL ||
        MPI_Testall(boot->size, mail->requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS || !done)
        return false;
    tpw_notice_fill(&mail->notice, kind, boot, link->exchange, status, text);
    bool sent = true;
    for (int r = 0; r < boot->size; r++)
        if (r != boot->rank)
            sent = MPI_Isend(&mail->notice, (int)sizeof mail->notice, MPI_BYTE, r, TAG, link->notices,
                             &mail->requests[r]) == MPI_SUCCESS &&
                   sent;
    return sent;
}

static void take_notice(tpw_boot *boot, const tpw_notice *notice)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    tpw_mpi_peer *peer = &link->peers[notice->rank];
    switch ((tpw_notice_kind)notice->kind) {
    case TPW_NOTICE_HELLO:
        if (peer->reached < 0) {
            peer->reached = 0;
            link->hellos++;
        }
        memcpy(link->hosts[notice->rank], notice->host, sizeof notice->host);
        break;
    case TPW_NOTICE_WAITING:
        peer->reached = notice->exchange;
        peer->heard = link->waits;
        link->asked = true;
        break;
    case TPW_NOTICE_FAILED:
        if (link->failed == TPW_OK)
            link->failed = tpw_notice_fail(notice, &link->failure);
        break;
    }
}

void tpw_mpi_hear(tpw_boot *boot)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    for (int i = 0; i < HEAR_MAX && link->notices != MPI_COMM_NULL && link->failed == TPW_OK; i++) {
        MPI_Status status;
        int there = 0, bytes = 0;
        int code = MPI_Iprobe(MPI_ANY_SOURCE, TAG, link->notices, &there, &status);
        if (tpw_mpi_check(boot, code, "MPI_Iprobe for notices", NULL) != TPW_OK || !there)
            return;

        tpw_notice notice;
        memset(&notice, 0, sizeof notice);
        int source = status.MPI_SOURCE;
        code = MPI_Recv(&notice, (int)sizeof notice, MPI_BYTE, source, TAG, link->notices, &status); /* has arrived */
        if (code != MPI_SUCCESS || MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes < 0 ||
            !tpw_notice_check(&notice, (size_t)bytes, source)) {
            link->failed = tpw_fail(&link->failure, TPW_ERR_PEER,
                                    "rank %d (%s) sent a notice of unknown form: start all ranks with the same build",
                                    source, link->hosts[source]);
            return;
        }
        take_notice(boot, &notice);
    }
}

tpw_status tpw_mpi_look(tpw_boot *boot, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    tpw_status st = TPW_OK;

    pthread_mutex_lock(&link->lock);
    if (link->failed == TPW_OK && tpw_mpi_alive())
        tpw_mpi_hear(boot);
    if (link->failed != TPW_OK)
        st = tpw_fail(err, link->failed, "%s", link->failure.text);
    pthread_mutex_unlock(&link->lock);
    return st;
}

void tpw_mpi_announce(tpw_boot *boot)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    if (link->notices == MPI_COMM_NULL)
        return;
    link->spoke = true;
    (void)post(boot, &link->waiting, TPW_NOTICE_WAITING, TPW_OK, NULL); /* unsent, it only makes a message less exact */
}

/* Beside names, greetings give each pair of ranks its connection: a notice sent later by a rank in trouble needs no answer
 * of the peer before it can leave. */
tpw_status tpw_mpi_greet(tpw_boot *boot, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    pthread_mutex_lock(&link->lock);
    memcpy(link->hosts[boot->rank], boot->host, sizeof boot->host);
    bool sent = post(boot, &link->hello, TPW_NOTICE_HELLO, TPW_OK, NULL);
    pthread_mutex_unlock(&link->lock);
    if (!sent) {
        tpw_error failure;
        (void)tpw_fail(&failure, TPW_ERR_DEVICE, "rank %d (%s): MPI cannot send to all peers", boot->rank, boot->host);
        return tpw_mpi_keep(boot, &failure, err);
    }
    const tpw_mpi_wait_args args = {.call = "the first greeting", .count = 0, .partner = -1};
    return tpw_mpi_wait(boot, &args, err);
}

void tpw_mpi_raise(tpw_boot *boot, tpw_status status, const char *text)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    if (status == TPW_OK)
        status = TPW_ERR_INTERNAL;
    if (text == NULL)
        text = tpw_status_text(status);

    pthread_mutex_lock(&link->lock);
    if (!link->raised && tpw_mpi_alive()) {
        link->raised = true;
        link->spoke = true;
        (void)post(boot, &link->failing, TPW_NOTICE_FAILED, status, text);
        int done = 0;
        for (int i = 0; i < PUSH_TESTS && !done; i++) /* give MPI some turns: this rank may never call it again */
            if (MPI_Testall(boot->size, link->failing.requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
                break;
        if (link->failed == TPW_OK)
            link->failed = tpw_fail(&link->failure, status, "this rank has already failed: %s", text);
    }
    pthread_mutex_unlock(&link->lock);
}
