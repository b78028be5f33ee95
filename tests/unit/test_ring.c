/* Tests of the ring of exchanges: what is kept, in which order, and what a communicator notes. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "local_ranks.h"
#include "tp/common.h"
#include "tp/ring.h"

Test(ring, keeps_the_newest_256_oldest_first)
{
    static const uint64_t counts[] = {0, 1, 2, 255, 256, 257, 511, 512, 513, 100000};
    static const int32_t rooms[] = {-5, 0, 1, 2, 255, 256, 257, 1000};
    static tpw_ring ring;
    static tpw_ring_entry out[1001];
    uint64_t made = 0;

    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (; made < counts[c]; made++)
            ring.entry[made % 256] = (tpw_ring_entry){.seq = made, .bytes = made * 3};
        ring.count = made;
        for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
            int64_t expected = made < 256 ? (int64_t)made : 256;

            expected = rooms[i] < expected ? rooms[i] : expected;
            expected = expected < 0 ? 0 : expected;
            memset(out, 0xAB, sizeof out);
            cr_assert_eq(tpw_ring_copy(&ring, out, rooms[i]), expected, "%d of %d", rooms[i], (int)made);
            for (int64_t n = 0; n < expected; n++)
                cr_assert(out[n].seq == made - (uint64_t)(expected - n) && out[n].bytes == out[n].seq * 3,
                          "room %d, count %d: entry %d is %d", rooms[i], (int)made, (int)n, (int)out[n].seq);
            cr_assert_eq(out[expected].seq, 0xABABABABABABABABu, "wrote past the end");
        }
    }
}

/* What the digest of a sum must be, term by term. */
static uint64_t digest_of(const float *x, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        sum += tpw_digest_term(tpw_digest_key("allreduce"), i, bits);
    }
    return sum;
}

static tpw_status rounds(local_rank *self)
{
    tpw_ring *ring = (tpw_ring *)self->data + self->rank;
    tpw_comm *inner = NULL, *comm = NULL;
    float x[5], all[8];
    tpw_status st = TPW_OK;

    TPW_TRY(tpw_comm_local_create(self->boot, &inner, &self->err));
    TPW_TRY(tpw_comm_noted_create(inner, ring, true, &comm, &self->err));
    for (int s = 0; st == TPW_OK && s < 100; s++) {
        unsigned char bytes[7] = {0};

        self->boot->step = s;
        for (int i = 0; i < 5; i++)
            x[i] = (float)(self->rank + 1) * (float)(i + s);
        st = comm->ops->allreduce(comm, x, 5, &self->err);
        if (st == TPW_OK)
            st = comm->ops->merge(comm, bytes, sizeof bytes, &self->err);
        if (st == TPW_OK)
            st = comm->ops->allgather(comm, x, all, sizeof *x, &self->err);
    }
    if (st == TPW_OK && comm->seq != 300)
        st = tpw_fail(&self->err, TPW_ERR_INTERNAL, "%d exchanges", (int)comm->seq);
    tpw_comm_destroy(comm);
    return st;
}

Test(ring, notes_every_exchange)
{
    static tpw_ring rings[4];
    static tpw_ring_entry out[4][256];
    local_rank ranks[LOCAL_RANKS_MAX];

    run_local(4, 10000, rounds, rings, ranks);
    expect_all_ok(ranks, 4);
    for (int r = 0; r < 4; r++)
        cr_assert_eq(tpw_ring_copy(&rings[r], out[r], 256), 256);
    for (int n = 0; n < 256; n++) {
        static const char *const ops[] = {"allreduce", "merge", "allgather"};
        static const uint64_t bytes[] = {20, 7, 4};
        int seq = 300 - 256 + n, s = seq / 3;
        float sum[5];

        for (int i = 0; i < 5; i++)
            sum[i] = 10.0f * (float)(i + s); /* ranks bring 1 + 2 + 3 + 4 times as much */
        for (int r = 0; r < 4; r++) {
            const tpw_ring_entry *e = &out[r][n];

            cr_assert(e->seq == (uint64_t)seq && e->step == s, "entry %d: %d of step %d", n, (int)e->seq, (int)e->step);
            cr_assert_str_eq(e->op, ops[seq % 3]);
            cr_assert_eq(e->bytes, bytes[seq % 3]);
            cr_assert_eq(e->digest, seq % 3 == 0 ? digest_of(sum, 5) : 0, "entry %d on rank %d", n, r);
            cr_assert(e->begin_ns > 0 && e->end_ns >= e->begin_ns);
            cr_assert(n == 0 || e->begin_ns >= out[r][n - 1].end_ns);
        }
    }
}

/* An inner communicator that fails when it is told to. */
typedef struct fake {
    tpw_status next;
    int destroyed;
} fake;

static tpw_status fake_allreduce(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    (void)x;
    (void)count;
    fake *f = comm->impl;

    return f->next == TPW_OK ? TPW_OK : tpw_fail(err, f->next, "the wire is cut");
}

static tpw_status fake_merge(tpw_comm *comm, void *x, size_t bytes, tpw_error *err)
{
    (void)x;
    return fake_allreduce(comm, NULL, bytes, err);
}

static tpw_status fake_allgather(tpw_comm *comm, const void *send, void *recv, size_t bytes, tpw_error *err)
{
    (void)send;
    (void)recv;
    return fake_allreduce(comm, NULL, bytes, err);
}

static void fake_destroy(tpw_comm *comm)
{
    ((fake *)comm->impl)->destroyed++;
    free(comm);
}

static const tpw_comm_ops fake_ops = {"fake", fake_allreduce, fake_merge, fake_allgather, fake_destroy};

Test(ring, a_failed_exchange_stays_open)
{
    static tpw_ring ring;
    fake f = {.next = TPW_OK};
    tpw_ring_entry out[4];
    tpw_comm *inner = NULL, *comm = NULL;
    tpw_boot *boot = NULL;
    tpw_error err = {0};
    float x[3] = {1, 2, 3};

    cr_assert_eq(tpw_boot_solo_create(&boot, &err), TPW_OK);
    cr_assert_eq(tpw_comm_new(&fake_ops, boot, &f, &inner, &err), TPW_OK);
    cr_assert_eq(tpw_comm_noted_create(inner, &ring, false, &comm, &err), TPW_OK);
    cr_assert(comm->rank == 0 && comm->size == 1 && comm->boot == boot);
    cr_assert_eq(comm->ops->allreduce(comm, x, 3, &err), TPW_OK);
    f.next = TPW_ERR_PEER;
    cr_assert_eq(comm->ops->allreduce(comm, x, 3, &err), TPW_ERR_PEER);
    cr_assert_str_eq(err.text, "the wire is cut");
    cr_assert_eq(comm->ops->merge(comm, x, 2, &err), TPW_ERR_PEER);
    cr_assert_eq(comm->ops->allgather(comm, x, x, 2, &err), TPW_ERR_PEER);
    cr_assert_eq(tpw_ring_copy(&ring, out, 4), 4);
    cr_assert(out[0].end_ns >= out[0].begin_ns && out[0].digest == 0, "no digests were asked for");
    for (int n = 1; n < 4; n++)
        cr_assert(out[n].end_ns == 0 && out[n].begin_ns > 0 && out[n].seq == (uint64_t)n, "entry %d", n);
    tpw_comm_destroy(comm);
    cr_assert_eq(f.destroyed, 1);
    tpw_boot_destroy(boot);
}
