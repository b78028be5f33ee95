/* The boot table of ranks that are threads of one process: the fake with which several ranks are tested without MPI.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "tp/common.h"
#include "tp/local.h"
#include "tp/notice.h"

#define NS_PER_S 1000000000

/* What one rank brought to one meeting. Written by its rank before it arrives, read by all until they meet again. */
typedef struct slot {
    void *data;
    size_t room;
    size_t bytes; /* this and the next two: what the rank believes the exchange to be */
    int root;
    tpw_local_kind kind;
} slot;

typedef struct member {
    slot slots[2];    /* by the parity of the exchange */
    int64_t exchange; /* meetings arrived at; under the lock */
    tpw_host_name host;
} member;

typedef struct group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size;
    int users;         /* boots not yet destroyed */
    bool raised;       /* a rank has failed */
    tpw_notice notice; /* what it said */
    member members[];
} group;

/* One rank's own part. */
typedef struct local {
    group *group;
    int64_t exchange;  /* meetings begun */
    tpw_status failed; /* the first failure, which all later calls repeat: after it the ranks are no longer in step */
    tpw_error failure; /* this and `failed` under the group's lock: raise may come from a watching thread */
} local;

static local *local_of(const tpw_boot *boot)
{
    return boot->impl;
}

/* Why this rank must not wait (any longer), or OK. Call with the lock held. */
static tpw_status stopped(const tpw_boot *boot, tpw_error *err)
{
    const local *own = local_of(boot);
    if (own->failed != TPW_OK)
        return tpw_fail(err, own->failed, "%s", own->failure.text);
    if (own->group->raised && own->group->notice.rank != boot->rank)
        return tpw_notice_fail(&own->group->notice, err);
    return TPW_OK;
}

/* Call with the lock held. */
static tpw_status keep_failure(local *own, tpw_status status, const tpw_error *failure, tpw_error *err)
{
    if (own->failed == TPW_OK) {
        own->failed = status;
        own->failure = *failure;
    }
    return tpw_fail(err, status, "%s", failure->text);
}

static void until(int64_t deadline_ns, struct timespec *out)
{
    out->tv_sec = (time_t)(deadline_ns / NS_PER_S);
    out->tv_nsec = (long)(deadline_ns % NS_PER_S);
}

/* Ranks that have not arrived at `exchange`. Call with the lock held. */
static int list_missing(const group *all, int64_t exchange, int missing[TPW_RANKS_MAX])
{
    int count = 0;
    for (int r = 0; r < all->size; r++)
        if (all->members[r].exchange < exchange)
            missing[count++] = r;
    return count;
}

/* Waits until all ranks have arrived. Call with the lock held. */
static tpw_status wait_for_all(const tpw_boot *boot, const char *call, tpw_error *err)
{
    local *own = local_of(boot);
    group *all = own->group;
    int missing[TPW_RANKS_MAX];
    tpw_host_name hosts[TPW_RANKS_MAX]; /* at most 64 KiB; only the missing ranks' are filled */
    int64_t start = tpw_clock_ns();
    struct timespec end;
    until(tpw_boot_deadline(boot, start), &end);

    for (bool late = false;;) {
        TPW_TRY(stopped(boot, err));
        int count = list_missing(all, own->exchange, missing);
        if (count == 0)
            return TPW_OK;
        if (late) {
            for (int i = 0; i < count; i++)
                memcpy(hosts[missing[i]], all->members[missing[i]].host, sizeof hosts[0]);
            return tpw_notice_timeout(boot, call, tpw_clock_ns() - start, missing, count, hosts, err);
        }
        late = pthread_cond_timedwait(&all->changed, &all->lock, &end) != 0; /* then one last look */
    }
}

static const char *kind_name(tpw_local_kind kind)
{
    switch (kind) {
    case TPW_LOCAL_BROADCAST:
        return "broadcast";
    case TPW_LOCAL_GATHER:
        return "allgather";
    case TPW_LOCAL_BARRIER:
        return "barrier";
    case TPW_LOCAL_REDUCE:
        return "allreduce";
    case TPW_LOCAL_MERGE:
        return "merge";
    }
    return "exchange";
}

static tpw_status check_alike(const tpw_boot *boot, tpw_error *err)
{
    const local *own = local_of(boot);
    const slot *first = &own->group->members[0].slots[own->exchange & 1];
    for (int r = 1; r < boot->size; r++) {
        const slot *other = &own->group->members[r].slots[own->exchange & 1];
        if (other->kind != first->kind || other->bytes != first->bytes || other->root != first->root)
            return tpw_fail(
                err, TPW_ERR_DIVERGED,
                "ranks make different exchanges: rank %d (%s) a %s of %zu bytes (root %d), rank 0 (%s) a %s of "
                "%zu bytes (root %d)",
                r, own->group->members[r].host, kind_name(other->kind), other->bytes, other->root,
                own->group->members[0].host, kind_name(first->kind), first->bytes, first->root);
    }
    return TPW_OK;
}

/* Only the owner touches its slot between two meetings, so neither growing nor copying needs the lock. */
static tpw_status fill_slot(slot *mine, const tpw_local_call *call, bool brings, tpw_error *err)
{
    size_t bytes = brings ? call->bytes : 0;
    if (bytes > mine->room) {
        void *grown = realloc(mine->data, bytes);
        if (grown == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for %zu bytes of an exchange among threads", bytes);
        mine->data = grown;
        mine->room = bytes;
    }
    if (bytes > 0)
        memcpy(mine->data, call->data, bytes);
    mine->kind = call->kind;
    mine->root = call->root;
    mine->bytes = call->bytes;
    return TPW_OK;
}

tpw_status tpw_local_meet(tpw_boot *boot, const tpw_local_call *call, tpw_error *err)
{
    local *own = local_of(boot);
    group *all = own->group;
    member *me = &all->members[boot->rank];
    tpw_error failure;

    pthread_mutex_lock(&all->lock);
    tpw_status st;
    TPW_TRY_GOTO(st, stopped(boot, &failure), failed);
    pthread_mutex_unlock(&all->lock);

    bool brings = call->root < 0 || call->root == boot->rank;
    st = fill_slot(&me->slots[(own->exchange + 1) & 1], call, brings, &failure);

    pthread_mutex_lock(&all->lock);
    if (st != TPW_OK)
        goto failed;
    own->exchange++;
    me->exchange = own->exchange;
    memcpy(me->host, boot->host, sizeof me->host);
    me->host[sizeof me->host - 1] = '\0';
    pthread_cond_broadcast(&all->changed);
    TPW_TRY_GOTO(st, wait_for_all(boot, kind_name(call->kind), &failure), failed);
    TPW_TRY_GOTO(st, check_alike(boot, &failure), failed);
    pthread_mutex_unlock(&all->lock);
    return TPW_OK;

failed:
    st = keep_failure(own, st, &failure, err);
    pthread_mutex_unlock(&all->lock);
    return st;
}

const void *tpw_local_slot(const tpw_boot *boot, int rank)
{
    const local *own = local_of(boot);
    return own->group->members[rank].slots[own->exchange & 1].data;
}

static tpw_status local_broadcast(tpw_boot *boot, void *data, size_t bytes, int root, tpw_error *err)
{
    TPW_TRY(tpw_boot_check_root(boot, root, err));
    TPW_TRY(tpw_boot_check_buffer(data, bytes, "broadcast", err));
    const tpw_local_call call = {.kind = TPW_LOCAL_BROADCAST, .root = root, .data = data, .bytes = bytes};
    TPW_TRY(tpw_local_meet(boot, &call, err));
    if (bytes > 0 && boot->rank != root)
        memcpy(data, tpw_local_slot(boot, root), bytes);
    return TPW_OK;
}

static tpw_status local_allgather(tpw_boot *boot, const void *send, void *recv, size_t bytes, tpw_error *err)
{
    TPW_TRY(tpw_boot_check_buffer(send, bytes, "allgather", err));
    TPW_TRY(tpw_boot_check_buffer(recv, bytes, "allgather", err));
    const tpw_local_call call = {.kind = TPW_LOCAL_GATHER, .root = -1, .data = send, .bytes = bytes};
    TPW_TRY(tpw_local_meet(boot, &call, err));
    for (int r = 0; r < boot->size && bytes > 0; r++)
        memcpy((char *)recv + (size_t)r * bytes, tpw_local_slot(boot, r), bytes);
    return TPW_OK;
}

static tpw_status local_barrier(tpw_boot *boot, tpw_error *err)
{
    const tpw_local_call call = {.kind = TPW_LOCAL_BARRIER, .root = -1};
    return tpw_local_meet(boot, &call, err);
}

static void local_raise(tpw_boot *boot, tpw_status status, const char *text)
{
    local *own = local_of(boot);
    group *all = own->group;
    if (status == TPW_OK)
        status = TPW_ERR_INTERNAL;
    if (text == NULL)
        text = tpw_status_text(status);

    pthread_mutex_lock(&all->lock);
    if (own->failed == TPW_OK)
        own->failed = tpw_fail(&own->failure, status, "this rank has already failed: %s", text);
    if (!all->raised) { /* the first failure is the cause; later ones follow from it */
        tpw_notice_fill(&all->notice, TPW_NOTICE_FAILED, boot, own->exchange, status, text);
        all->raised = true;
    }
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

static tpw_status local_look(tpw_boot *boot, tpw_error *err)
{
    group *all = local_of(boot)->group;
    tpw_status st;

    pthread_mutex_lock(&all->lock);
    st = stopped(boot, err);
    pthread_mutex_unlock(&all->lock);
    return st;
}

static void group_destroy(group *all)
{
    for (int r = 0; r < all->size; r++) {
        free(all->members[r].slots[0].data);
        free(all->members[r].slots[1].data);
    }
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

static void local_destroy(tpw_boot *boot)
{
    group *all = local_of(boot)->group;
    pthread_mutex_lock(&all->lock);
    bool last = --all->users == 0;
    pthread_mutex_unlock(&all->lock);
    if (last)
        group_destroy(all);
    free(boot->impl);
    free(boot);
}

static const tpw_boot_ops local_ops = {
    .broadcast = local_broadcast,
    .allgather = local_allgather,
    .barrier = local_barrier,
    .raise = local_raise,
    .look = local_look,
    .destroy = local_destroy,
};

tpw_status tpw_local_check(const tpw_boot *boot, tpw_error *err)
{
    if (boot == NULL || boot->ops != &local_ops)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "a local communicator needs a boot made by tpw_boot_local_create");
    return TPW_OK;
}

static tpw_status group_create(int n, group **out, tpw_error *err)
{
    size_t bytes;
    group *all = NULL;
    if (tpw_mul_size((size_t)n, sizeof(member), &bytes) && tpw_add_size(bytes, sizeof *all, &bytes))
        all = calloc(1, bytes);
    if (all == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for %d ranks in one process", n);
    all->size = n;

    pthread_condattr_t attributes;
    bool lock = pthread_mutex_init(&all->lock, NULL) == 0;
    bool made = lock && pthread_condattr_init(&attributes) == 0;
    if (made) { /* waits must not end early or late because somebody sets the clock */
        made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
               pthread_cond_init(&all->changed, &attributes) == 0;
        pthread_condattr_destroy(&attributes);
    }
    if (!made) {
        if (lock)
            pthread_mutex_destroy(&all->lock);
        free(all);
        return tpw_fail(err, TPW_ERR_MEMORY, "the system has no lock left for %d ranks in one process", n);
    }
    *out = all;
    return TPW_OK;
}

tpw_status tpw_boot_local_create(int n, int64_t timeout_ms, tpw_boot **boots, tpw_error *err)
{
    if (boots == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tpw_boot_local_create: boots is NULL");
    if (n < 1 || n > TPW_RANKS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%d ranks in one process: 1 to %d are possible", n, TPW_RANKS_MAX);
    TPW_TRY(tpw_boot_check_timeout(timeout_ms, err));

    group *all = NULL;
    TPW_TRY(group_create(n, &all, err));
    for (int r = 0; r < n; r++) {
        local *own = calloc(1, sizeof *own);
        tpw_status st = own == NULL ? tpw_fail(err, TPW_ERR_MEMORY, "out of memory for rank %d in one process", r)
                                    : tpw_boot_new(&local_ops, r, n, timeout_ms, own, &boots[r], err);
        if (st != TPW_OK) {
            free(own);
            for (int made = 0; made < r; made++)
                local_destroy(boots[made]); /* the last one frees the group */
            if (r == 0)
                group_destroy(all);
            return st;
        }
        own->group = all;
        all->users++;
        memcpy(all->members[r].host, boots[r]->host, sizeof all->members[r].host);
    }
    return TPW_OK;
}
