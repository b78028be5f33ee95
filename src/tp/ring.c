/* The last exchanges of a communicator, kept for reports. SPDX-License-Identifier: Apache-2.0 */
#include "tp/ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "tp/common.h"

/* The wrapping communicator's own part. */
typedef struct noted {
    tpw_comm *inner;
    tpw_ring *ring;
    uint64_t key; /* of all-reduced results; 0: no digests */
} noted;

int32_t tpw_ring_copy(const tpw_ring *ring, tpw_ring_entry *out, int32_t max)
{
    uint64_t have = ring->count < TPW_RING_ENTRIES ? ring->count : TPW_RING_ENTRIES;
    uint64_t n = max < 0 ? 0 : ((uint64_t)max < have ? (uint64_t)max : have);

    for (uint64_t i = 0; i < n; i++)
        out[i] = ring->entry[(ring->count - n + i) % TPW_RING_ENTRIES];
    return (int32_t)n;
}

static tpw_ring_entry *begin(tpw_comm *comm, const char *op, uint64_t bytes)
{
    const noted *n = comm->impl;
    tpw_ring_entry *e = &n->ring->entry[n->ring->count++ % TPW_RING_ENTRIES];

    *e = (tpw_ring_entry){.seq = comm->seq++, .step = comm->boot->step, .bytes = bytes, .begin_ns = tpw_clock_ns()};
    snprintf(e->op, sizeof e->op, "%s", op);
    return e;
}

static tpw_status end(tpw_ring_entry *e, tpw_status st)
{
    if (st == TPW_OK)
        e->end_ns = tpw_clock_ns();
    return st;
}

static tpw_status noted_allreduce(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    const noted *n = comm->impl;
    tpw_ring_entry *e = begin(comm, "allreduce", count * sizeof *x);

    TPW_TRY(end(e, n->inner->ops->allreduce(n->inner, x, count, err)));
    if (n->key != 0)
        e->digest = tpw_digest_block(n->key, x, TPW_F32, 1, (int64_t)count, 0, 0, 0);
    return TPW_OK;
}

static tpw_status noted_merge(tpw_comm *comm, void *x, size_t bytes, tpw_error *err)
{
    const noted *n = comm->impl;
    tpw_ring_entry *e = begin(comm, "merge", bytes);

    return end(e, n->inner->ops->merge(n->inner, x, bytes, err));
}

static tpw_status noted_allgather(tpw_comm *comm, const void *send, void *recv, size_t bytes, tpw_error *err)
{
    const noted *n = comm->impl;
    tpw_ring_entry *e = begin(comm, "allgather", bytes);

    return end(e, n->inner->ops->allgather(n->inner, send, recv, bytes, err));
}

static void noted_destroy(tpw_comm *comm)
{
    noted *n = comm->impl;

    tpw_comm_destroy(n->inner);
    free(n);
    free(comm);
}

static const tpw_comm_ops noted_ops = {
    .name = "noted",
    .allreduce = noted_allreduce,
    .merge = noted_merge,
    .allgather = noted_allgather,
    .destroy = noted_destroy,
};

tpw_status tpw_comm_noted_create(tpw_comm *inner, tpw_ring *ring, bool digests, tpw_comm **out, tpw_error *err)
{
    noted *n = malloc(sizeof *n);
    tpw_status st;

    if (n == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a communicator's ring");
    *n = (noted){.inner = inner, .ring = ring, .key = digests ? tpw_digest_key("allreduce") : 0};
    st = tpw_comm_new(&noted_ops, inner->boot, n, out, err);
    if (st != TPW_OK)
        free(n);
    return st;
}
