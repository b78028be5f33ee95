/* Waits for MPI requests with a deadline, keeps the first failure, and owns what MPI may still write to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tp/mpi_link.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "tp/common.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAKS_ARE_CHECKED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define LEAKS_ARE_CHECKED 1
#endif
#if defined(LEAKS_ARE_CHECKED)
#include <sanitizer/lsan_interface.h>
#endif

#define ALIGNMENT  64
#define LOOK_EVERY 16 /* polls between two looks at the clock and at the notices */

bool tpw_mpi_alive(void)
{
    int begun = 0, ended = 0;
    return MPI_Initialized(&begun) == MPI_SUCCESS && begun && MPI_Finalized(&ended) == MPI_SUCCESS && !ended;
}

/* Reserves count * each bytes at the end of a block of *total bytes. */
static bool reserve(size_t *total, size_t count, size_t each, size_t *offset)
{
    size_t bytes, start;
    if (!tpw_align_size(*total, ALIGNMENT, &start) || !tpw_mul_size(count, each, &bytes))
        return false;
    *offset = start;
    return tpw_add_size(start, bytes, total);
}

static MPI_Request *no_requests(char *at, int size)
{
    MPI_Request *requests = (MPI_Request *)(void *)at;
    for (int r = 0; r < size; r++)
        requests[r] = MPI_REQUEST_NULL;
    return requests;
}

tpw_status tpw_mpi_link_create(int size, tpw_mpi_link **out, tpw_error *err)
{
    size_t n = (size_t)size, total = sizeof(tpw_mpi_link), mails[3], peers, hosts, send, recv;
    bool fits = true;
    for (int i = 0; i < 3; i++)
        fits = fits && reserve(&total, n, sizeof(MPI_Request), &mails[i]);
    fits = fits && reserve(&total, n, sizeof(tpw_mpi_peer), &peers) && reserve(&total, n, TPW_HOST_NAME_MAX, &hosts) &&
           reserve(&total, 1, TPW_MPI_STAGE_BYTES, &send) && reserve(&total, 1, TPW_MPI_STAGE_BYTES, &recv);
    char *block = fits ? calloc(1, total) : NULL;
    if (block == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for the exchange buffers of %d ranks", size);

    tpw_mpi_link *link = (tpw_mpi_link *)(void *)block;
    if (pthread_mutex_init(&link->lock, NULL) != 0) {
        free(block);
        return tpw_fail(err, TPW_ERR_MEMORY, "the system has no lock left for the boot table");
    }
    link->notices = link->control = link->born = MPI_COMM_NULL;
    link->hello.requests = no_requests(block + mails[0], size);
    link->waiting.requests = no_requests(block + mails[1], size);
    link->failing.requests = no_requests(block + mails[2], size);
    link->peers = (tpw_mpi_peer *)(void *)(block + peers);
    link->hosts = (tpw_host_name *)(void *)(block + hosts);
    link->send = (unsigned char *)block + send;
    link->recv = (unsigned char *)block + recv;
    for (int r = 0; r < size; r++) {
        link->peers[r].reached = -1;
        memcpy(link->hosts[r], "unknown host", sizeof "unknown host");
    }
    *out = link;
    return TPW_OK;
}

/* True when MPI will touch no memory of this link or of its comms any more. */
static bool all_quiet(tpw_mpi_link *link, int size)
{
    int done = 0;
    if (link->pending_count > 0 &&
        (MPI_Testall(link->pending_count, link->pending, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS || !done))
        return false;
    tpw_mpi_mail *mails[] = {&link->hello, &link->waiting, &link->failing};
    for (size_t i = 0; i < sizeof mails / sizeof mails[0]; i++)
        if (MPI_Testall(size, mails[i]->requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS || !done)
            return false;
    return true;
}

/* Leaves the link, and the blocks that it keeps, to the process; see the head of mpi_link.h. A leak checker that looks after
 * MPI_Finalize can no longer find MPI's own pointers to them, so it is told. */
static void leave_to_process(tpw_mpi_link *link)
{
#if defined(LEAKS_ARE_CHECKED)
    __lsan_ignore_object(link);
#else
    (void)link;
#endif
}

void tpw_mpi_link_destroy(tpw_mpi_link *link, int size)
{
    if (link == NULL)
        return;
    if (tpw_mpi_alive()) {
        if (!all_quiet(link, size)) {
            leave_to_process(link);
            return;
        }
        if (link->failed == TPW_OK) {
            if (link->control != MPI_COMM_NULL)
                (void)MPI_Comm_free(&link->control);
            if (link->notices != MPI_COMM_NULL && !link->spoke)
                (void)MPI_Comm_free(&link->notices);
        }
    }
    while (link->kept != NULL) {
        tpw_mpi_block *block = link->kept;
        link->kept = block->next;
        free(block);
    }
    pthread_mutex_destroy(&link->lock);
    free(link);
}

/* Makes `failure` the link's if it is the first. Under the lock. */
static void keep(tpw_mpi_link *link, const tpw_error *failure)
{
    if (link->failed == TPW_OK) {
        link->failed = failure->status;
        link->failure = *failure;
    }
}

tpw_status tpw_mpi_keep(tpw_boot *boot, const tpw_error *failure, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    pthread_mutex_lock(&link->lock);
    keep(link, failure);
    pthread_mutex_unlock(&link->lock);
    return tpw_fail(err, failure->status, "%s", failure->text);
}

tpw_status tpw_mpi_check(tpw_boot *boot, int code, const char *call, tpw_error *err)
{
    if (code == MPI_SUCCESS)
        return TPW_OK;
    char text[MPI_MAX_ERROR_STRING + 1] = "unknown MPI error";
    int length = 0, class = MPI_ERR_OTHER;
    (void)MPI_Error_string(code, text, &length);
    (void)MPI_Error_class(code, &class);

    tpw_error failure;
    if (class == MPI_ERR_TRUNCATE)
        (void)tpw_fail(&failure, TPW_ERR_DIVERGED,
                       "rank %d (%s): a peer sent more than expected in %s: the ranks make different exchanges (%s)",
                       boot->rank, boot->host, call, text);
    else
        (void)tpw_fail(&failure, TPW_ERR_DEVICE, "rank %d (%s): MPI failed in %s: %s", boot->rank, boot->host, call,
                       text);
    keep(tpw_mpi_link_of(boot), &failure);
    return tpw_fail(err, failure.status, "%s", failure.text);
}

tpw_status tpw_mpi_begin(tpw_boot *boot, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    if (!tpw_mpi_alive())
        return tpw_fail(err, TPW_ERR_ARGUMENT, "MPI is finalised: no exchange is possible any more");
    pthread_mutex_lock(&link->lock);
    if (link->failed == TPW_OK) {
        link->exchange++;
        tpw_mpi_hear(boot);
    }
    tpw_status st = link->failed == TPW_OK ? TPW_OK : tpw_fail(err, link->failed, "%s", link->failure.text);
    pthread_mutex_unlock(&link->lock);
    return st;
}

void tpw_mpi_abandon(tpw_mpi_link *link, MPI_Request *requests, int count, bool cancelable)
{
    /* Only receives can be cancelled; a send or a collective stays until it completes, if it ever does. */
    if (cancelable && count > 0 && requests[0] != MPI_REQUEST_NULL)
        (void)MPI_Cancel(&requests[0]);
    for (int i = 0; i < count && link->pending_count < TPW_MPI_REQUESTS_MAX; i++) {
        int done = 0;
        if (requests[i] == MPI_REQUEST_NULL)
            continue;
        if (MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done)
            continue;
        link->pending[link->pending_count++] = requests[i];
    }
}

/* The code of a failed MPI_Testall: that of the first request that failed. */
static int failed_code(int code, const MPI_Status *statuses, int count)
{
    int class = MPI_SUCCESS;
    (void)MPI_Error_class(code, &class);
    for (int i = 0; i < count && class == MPI_ERR_IN_STATUS; i++)
        if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            return statuses[i].MPI_ERROR;
    return code;
}

/* Looks once whether the wait is over. Under the lock. */
static tpw_status poll_once(tpw_boot *boot, const tpw_mpi_wait_args *args, bool look, bool *done, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    if (args->count > 0) {
        int flag = 0;
        int code = MPI_Testall(args->count, args->requests, &flag, args->statuses);
        if (code != MPI_SUCCESS)
            return tpw_mpi_check(boot, failed_code(code, args->statuses, args->count), args->call, err);
        *done = flag != 0;
    }
    if (*done || !look)
        return TPW_OK;
    tpw_mpi_hear(boot);
    if (link->failed != TPW_OK)
        return tpw_fail(err, link->failed, "%s", link->failure.text);
    *done = args->count == 0 && link->hellos == boot->size - 1;
    return TPW_OK;
}

/* The deadline has passed: says for whom. A rank that waits itself has said so, in this wait or by having come as far; what
 * remains are those that do something else, or nothing. Under the lock. */
static tpw_status timed_out(tpw_boot *boot, const tpw_mpi_wait_args *args, int64_t waited_ns, tpw_error *err)
{
    const tpw_mpi_link *link = tpw_mpi_link_of(boot);
    int missing[TPW_RANKS_MAX], count = 0;
    if (link->notices != MPI_COMM_NULL) {
        for (int pass = 0; pass < 2 && count == 0; pass++)
            for (int r = 0; r < boot->size; r++) {
                bool behind = r != boot->rank && link->peers[r].reached < link->exchange;
                if (behind && (pass == 1 || link->peers[r].heard != link->waits))
                    missing[count++] = r;
            }
        if (count == 0 && args->partner >= 0)
            missing[count++] = args->partner;
    }
    return tpw_notice_timeout(boot, args->call, waited_ns, missing, count, link->hosts, err);
}

tpw_status tpw_mpi_wait(tpw_boot *boot, const tpw_mpi_wait_args *args, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    int64_t start = tpw_clock_ns(), deadline = tpw_boot_deadline(boot, start);
    int64_t half = start + (deadline - start) / 2;
    bool announced = false, done = false;
    tpw_backoff backoff = {0};
    tpw_status st = TPW_OK;
    tpw_error failure;

    pthread_mutex_lock(&link->lock);
    link->waits++;
    for (uint64_t polls = 1;; polls++) {
        bool look = polls % LOOK_EVERY == 0 || args->count == 0;
        st = poll_once(boot, args, look, &done, &failure);
        if (st == TPW_OK && !done && look) {
            int64_t now = tpw_clock_ns();
            if (!announced && (link->asked || now >= half)) {
                tpw_mpi_announce(boot);
                announced = true;
            }
            if (now >= deadline)
                st = timed_out(boot, args, now - start, &failure);
        }
        if (st != TPW_OK || done)
            break;
        pthread_mutex_unlock(&link->lock);
        tpw_backoff_wait(&backoff);
        pthread_mutex_lock(&link->lock);
    }
    link->asked = false;
    if (st != TPW_OK) {
        keep(link, &failure);
        tpw_mpi_abandon(link, args->requests, args->count, args->cancelable);
        st = tpw_fail(err, failure.status, "%s", failure.text);
    }
    pthread_mutex_unlock(&link->lock);
    return st;
}

tpw_status tpw_mpi_duplicate(tpw_boot *boot, MPI_Comm parent, MPI_Comm *out, tpw_error *err)
{
    tpw_mpi_link *link = tpw_mpi_link_of(boot);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;

    pthread_mutex_lock(&link->lock);
    tpw_status st = tpw_mpi_check(boot, MPI_Comm_idup(parent, &link->born, &request), "MPI_Comm_idup", err);
    pthread_mutex_unlock(&link->lock);
    TPW_TRY(st);

    const tpw_mpi_wait_args args = {
        .call = "communicator set-up", .requests = &request, .statuses = &status, .count = 1, .partner = -1};
    TPW_TRY(tpw_mpi_wait(boot, &args, err));

    pthread_mutex_lock(&link->lock);
    *out = link->born;
    st = tpw_mpi_check(boot, MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", err);
    pthread_mutex_unlock(&link->lock);
    return st;
}
