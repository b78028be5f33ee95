/* Tests of the pool: reuse and its order, pins and leases, marks, trims, wrong calls, and the backing failing at every call.
 * Random operations are in test_pool_random.c. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "fake_backing.h"
#include "graph/pool.h"
#include "kernels/host/host.h"

#define MIB ((size_t)1 << 20)

#define MUST(call) cr_assert_eq((call), TPW_OK, "%s: %s", #call, w->err.text)

typedef struct world {
    fake fake;
    tpw_pool *pool;
    tpw_error err;
} world;

static world *open_world(bool real, bool poison)
{
    world *w = calloc(1, sizeof *w);
    tpw_backing backing;

    fake_init(&w->fake, real);
    backing = fake_backing(&w->fake);
    MUST(tpw_pool_create(&backing, poison, &w->pool, &w->err));
    return w;
}

/* Everything has been given back by the test: the pool goes without force, and nothing is left in the backing. */
static void close_world(world *w)
{
    MUST(tpw_pool_destroy(w->pool, &w->err));
    cr_assert_eq(w->fake.count, 0u, "%zu regions leaked", w->fake.count);
    cr_assert_eq(w->fake.allocs, w->fake.frees);
    free(w);
}

static void *take(world *w, size_t bytes)
{
    void *out;

    MUST(tpw_pool_alloc(w->pool, TPW_PLACE_DEVICE, bytes, &out, &w->err));
    return out;
}

static void refuse(world *w, tpw_status got, tpw_status wanted, const char *part)
{
    cr_assert_eq(got, wanted, "%s: \"%s\"", tpw_status_name(got), w->err.text);
    cr_assert_not_null(strstr(w->err.text, part), "\"%s\" lacks \"%s\"", w->err.text, part);
}

static void refuse_address(world *w, tpw_status got, const void *address, const char *part)
{
    char text[32];

    snprintf(text, sizeof text, "%p", address);
    refuse(w, got, TPW_ERR_ARGUMENT, text);
    refuse(w, got, TPW_ERR_ARGUMENT, part);
}

static tpw_pool_stats stats(const world *w)
{
    tpw_pool_stats s;

    tpw_pool_get_stats(w->pool, &s);
    return s;
}

static size_t trim(world *w)
{
    size_t bytes = 1;

    MUST(tpw_pool_trim(w->pool, &bytes, &w->err));
    return bytes;
}

/* The reference system's regression (i): a revived block must not stay in the free list. */
Test(pool, revived_block_survives_a_trim)
{
    world *w = open_world(true, false);
    void *p = take(w, 1000);

    MUST(tpw_pool_free(w->pool, p, &w->err));
    MUST(tpw_pool_mark(w->pool, p, &w->err));
    cr_assert_eq(trim(w), 0u);
    cr_assert_eq(w->fake.frees, 0u, "the trim freed a block in use");
    memset(p, 7, 1000);
    MUST(tpw_pool_free(w->pool, p, &w->err));
    cr_assert_eq(trim(w), 32u * 1024);
    cr_assert_eq(w->fake.frees, 1u);
    close_world(w);
}

/* The reference system's regression (ii): a block reused while capturing is pinned like a fresh one. */
Test(pool, block_reused_while_capturing_is_pinned)
{
    world *w = open_world(true, false);
    tpw_lease lease;
    void *p = take(w, 1000), *q;

    MUST(tpw_pool_free(w->pool, p, &w->err));
    MUST(tpw_pool_capture_begin(w->pool, &lease, &w->err));
    q = take(w, 1000);
    cr_assert_eq(p, q, "not reused");
    MUST(tpw_pool_free(w->pool, q, &w->err));
    MUST(tpw_pool_capture_end(w->pool, &w->err));
    cr_assert_eq(trim(w), 0u, "pinned storage was trimmed");
    cr_assert_eq(w->fake.frees, 0u);
    memset(p, 7, 1000);
    MUST(tpw_pool_mark(w->pool, p, &w->err));
    MUST(tpw_pool_free(w->pool, p, &w->err));
    refuse_address(w, tpw_pool_free(w->pool, p, &w->err), p, "already free");
    MUST(tpw_pool_lease_release(w->pool, lease, &w->err));
    cr_assert_eq(trim(w), 32u * 1024);
    close_world(w);
}

Test(pool, blocks_return_when_the_graph_dies)
{
    world *w = open_world(false, false);
    tpw_lease lease;
    void *held, *freed;

    MUST(tpw_pool_capture_begin(w->pool, &lease, &w->err));
    cr_assert_neq(lease, 0u);
    held = take(w, 5 * MIB);
    freed = take(w, 5 * MIB);
    MUST(tpw_pool_free(w->pool, freed, &w->err));
    MUST(tpw_pool_capture_end(w->pool, &w->err));
    cr_assert_eq(stats(w).place[0].pinned, 16 * MIB);
    cr_assert_neq(take(w, 5 * MIB), freed, "an eager caller got what a replay overwrites");
    cr_assert_eq(stats(w).fresh, 3u);
    MUST(tpw_pool_lease_release(w->pool, lease, &w->err));
    cr_assert_eq(stats(w).place[0].pinned, 0u);
    cr_assert_eq(take(w, 5 * MIB), freed, "back in the free list");
    MUST(tpw_pool_free(w->pool, freed, &w->err));
    cr_assert_eq(trim(w), 8 * MIB, "the held block stays");
    MUST(tpw_pool_free(w->pool, held, &w->err));
    cr_assert_eq(take(w, 5 * MIB), held, "a block held past the graph's death is cached like any other");
    tpw_pool_destroy_force(w->pool);
    cr_assert_eq(w->fake.count, 0u);
    free(w);
}

Test(pool, unmark_returns_a_block_to_the_list)
{
    world *w = open_world(false, false);
    void *p = take(w, 10);

    refuse_address(w, tpw_pool_unmark(w->pool, p, &w->err), p, "not marked");
    MUST(tpw_pool_mark(w->pool, p, &w->err));
    MUST(tpw_pool_free(w->pool, p, &w->err)); /* the allocation's use; the mark holds it */
    cr_assert_neq(take(w, 10), p, "still in use");
    MUST(tpw_pool_mark(w->pool, p, &w->err));
    MUST(tpw_pool_unmark(w->pool, p, &w->err));
    cr_assert_eq(stats(w).blocks_in_use, 2u);
    MUST(tpw_pool_unmark(w->pool, p, &w->err));
    cr_assert_eq(stats(w).blocks_in_use, 1u);
    refuse_address(w, tpw_pool_unmark(w->pool, p, &w->err), p, "not marked");
    cr_assert_eq(take(w, 10), p, "not back in the list");
    cr_assert_eq(stats(w).reused, 1u);
    tpw_pool_destroy_force(w->pool);
    cr_assert_eq(w->fake.count, 0u);
    free(w);
}

/* Two graphs share scratch; each keeps it until the last of them is gone. */
Test(pool, trim_works_under_live_graphs)
{
    world *w = open_world(false, false);
    tpw_lease a, b;
    void *shared, *eager = take(w, 3 * MIB);

    MUST(tpw_pool_capture_begin(w->pool, &a, &w->err));
    shared = take(w, 100);
    MUST(tpw_pool_free(w->pool, shared, &w->err));
    cr_assert_eq(take(w, 100), shared, "scratch is shared inside of a capture");
    MUST(tpw_pool_free(w->pool, shared, &w->err));
    refuse(w, tpw_pool_trim(w->pool, NULL, &w->err), TPW_ERR_BUSY, "capture is open");
    MUST(tpw_pool_capture_end(w->pool, &w->err));
    MUST(tpw_pool_capture_begin(w->pool, &b, &w->err));
    cr_assert_neq(a, b);
    cr_assert_eq(take(w, 100), shared, "pinned but free blocks serve the next capture");
    MUST(tpw_pool_free(w->pool, shared, &w->err));
    MUST(tpw_pool_capture_end(w->pool, &w->err));
    MUST(tpw_pool_free(w->pool, eager, &w->err));
    cr_assert_eq(trim(w), 4 * MIB, "only what no graph has");
    MUST(tpw_pool_lease_release(w->pool, a, &w->err));
    cr_assert_eq(trim(w), 0u, "the other graph still has it");
    MUST(tpw_pool_lease_release(w->pool, b, &w->err));
    cr_assert_eq(trim(w), 32u * 1024);
    cr_assert_eq(stats(w).fresh, 2u);
    cr_assert_eq(stats(w).reused, 2u);
    close_world(w);
}

Test(pool, classes_and_their_order)
{
    static const struct {
        size_t request, whole;
    } cases[] = {{1, MIB / 32},
                 {MIB / 32, MIB / 32},
                 {MIB / 32 + 1, MIB / 4},
                 {MIB / 4 + 1, MIB},
                 {MIB + 1, 2 * MIB},
                 {2 * MIB + 1, 4 * MIB},
                 {4 * MIB + 1, 8 * MIB},
                 {8 * MIB + 1, 16 * MIB},
                 {16 * MIB + 1, 32 * MIB},
                 {32 * MIB + 1, 64 * MIB},
                 {64 * MIB + 1, 128 * MIB},
                 {128 * MIB + 1, 256 * MIB},
                 {256 * MIB, 256 * MIB},
                 {256 * MIB + 1, 256 * MIB + 256}};
    world *w = open_world(false, false);
    void *p[3], *none = w;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *q = take(w, cases[i].request);

        cr_assert_eq(stats(w).place[0].in_use, cases[i].whole, "%zu bytes took %zu", cases[i].request,
                     stats(w).place[0].in_use);
        cr_assert_eq((uintptr_t)q % TPW_POOL_ALIGN, 0u);
        MUST(tpw_pool_free(w->pool, q, &w->err));
        trim(w);
    }
    cr_assert_eq(stats(w).trimmed, sizeof cases / sizeof cases[0]);
    for (int i = 0; i < 3; i++)
        p[i] = take(w, 100);
    for (int i = 0; i < 3; i++)
        MUST(tpw_pool_free(w->pool, p[i], &w->err));
    MUST(tpw_pool_mark(w->pool, p[1], &w->err)); /* out of the middle of the list */
    cr_assert_eq(take(w, 100), p[2], "the most recently freed one");
    cr_assert_eq(take(w, 100), p[0]);
    for (int i = 0; i < 3; i++)
        MUST(tpw_pool_free(w->pool, p[i], &w->err));
    MUST(tpw_pool_alloc(w->pool, TPW_PLACE_DEVICE, 0, &none, &w->err));
    cr_assert_null(none);
    MUST(tpw_pool_free(w->pool, NULL, &w->err));
    close_world(w);
}

Test(pool, large_blocks_best_fit_within_a_quarter)
{
    world *w = open_world(false, false);
    void *a = take(w, 400 * MIB), *b = take(w, 360 * MIB), *c = take(w, 360 * MIB);

    MUST(tpw_pool_free(w->pool, b, &w->err));
    MUST(tpw_pool_free(w->pool, c, &w->err));
    MUST(tpw_pool_free(w->pool, a, &w->err));
    cr_assert_eq(take(w, 350 * MIB), c, "the smallest that holds it, of equal ones the most recently freed");
    cr_assert_eq(take(w, 350 * MIB), b);
    cr_assert_eq(take(w, 350 * MIB), a);
    MUST(tpw_pool_free(w->pool, a, &w->err));
    a = take(w, 320 * MIB);
    cr_assert_eq(stats(w).fresh, 3u, "a quarter longer will do");
    MUST(tpw_pool_free(w->pool, a, &w->err));
    a = take(w, 320 * MIB - 256);
    cr_assert_eq(stats(w).fresh, 4u, "more than a quarter is waste");
    MUST(tpw_pool_free(w->pool, a, &w->err));
    cr_assert_eq(trim(w), 720 * MIB - 256);
    MUST(tpw_pool_free(w->pool, b, &w->err));
    MUST(tpw_pool_free(w->pool, c, &w->err));
    close_world(w);
}

Test(pool, places_do_not_mix)
{
    world *w = open_world(true, true);
    unsigned char *host, *device = take(w, 100);
    void *again;

    MUST(tpw_pool_alloc(w->pool, TPW_PLACE_HOST, 100, (void **)&host, &w->err));
    memset(host, 1, 100);
    memset(device, 1, 100);
    MUST(tpw_pool_free(w->pool, host, &w->err));
    for (size_t i = 0; i < 32 * 1024; i++)
        if (host[i] != 0xFF)
            cr_assert_fail("byte %zu of a freed host block is %d", i, host[i]);
    MUST(tpw_pool_alloc(w->pool, TPW_PLACE_DEVICE, 100, &again, &w->err));
    cr_assert_neq(again, (void *)host);
    cr_assert_eq(stats(w).place[TPW_PLACE_HOST].cached, 32u * 1024);
    cr_assert_eq(stats(w).place[TPW_PLACE_DEVICE].in_use, 64u * 1024);
    MUST(tpw_pool_free(w->pool, again, &w->err));
    MUST(tpw_pool_free(w->pool, device, &w->err));
    for (size_t i = 0; i < 32 * 1024; i++)
        if (device[i] != 0xFF)
            cr_assert_fail("byte %zu of a freed device block is %d", i, device[i]);
    refuse(w, tpw_pool_alloc(w->pool, (tpw_place)2, 1, &again, &w->err), TPW_ERR_ARGUMENT, "no place");
    close_world(w);
}

/* A fill would be recorded by an open capture: it waits for the end, and leaves alone what is in use again. */
Test(pool, poison_waits_for_the_end_of_a_capture)
{
    world *w = open_world(true, true);
    unsigned char *kept, *freed;
    tpw_lease lease;

    MUST(tpw_pool_capture_begin(w->pool, &lease, &w->err));
    kept = take(w, 100);
    freed = take(w, 300 * 1024);
    kept[0] = freed[0] = 1;
    MUST(tpw_pool_free(w->pool, freed, &w->err));
    MUST(tpw_pool_free(w->pool, kept, &w->err));
    cr_assert_eq(take(w, 100), (void *)kept);
    cr_assert_eq(w->fake.fills, 0u);
    MUST(tpw_pool_capture_end(w->pool, &w->err));
    cr_assert_eq(w->fake.fills, 1u);
    cr_assert_eq(kept[0], 1);
    cr_assert_eq(freed[0], 0xFF);
    cr_assert_eq(freed[MIB - 1], 0xFF);
    MUST(tpw_pool_free(w->pool, kept, &w->err));
    cr_assert_eq(kept[0], 0xFF);
    MUST(tpw_pool_lease_release(w->pool, lease, &w->err));
    close_world(w);
}

Test(pool, wrong_calls_are_errors_with_the_address)
{
    world *w = open_world(true, false);
    tpw_lease lease, other;
    tpw_arena arena, copy;
    char *p = take(w, 1000);
    void *out;
    int local;

    refuse_address(w, tpw_pool_free(w->pool, &local, &w->err), &local, "no block of this pool");
    refuse_address(w, tpw_pool_free(w->pool, p + 256, &w->err), p + 256, "no block of this pool");
    refuse_address(w, tpw_pool_mark(w->pool, &local, &w->err), &local, "no block of this pool");
    refuse_address(w, tpw_pool_unmark(w->pool, NULL, &w->err), NULL, "no block of this pool");
    refuse(w, tpw_pool_capture_end(w->pool, &w->err), TPW_ERR_ARGUMENT, "no capture is open");
    refuse(w, tpw_pool_lease_release(w->pool, 0, &w->err), TPW_ERR_ARGUMENT, "lease 0");
    refuse(w, tpw_pool_lease_release(w->pool, 77, &w->err), TPW_ERR_ARGUMENT, "lease 77");
    MUST(tpw_pool_capture_begin(w->pool, &lease, &w->err));
    refuse(w, tpw_pool_capture_begin(w->pool, &other, &w->err), TPW_ERR_BUSY, "a capture is open");
    cr_assert_eq(other, 0u);
    refuse(w, tpw_pool_lease_release(w->pool, lease, &w->err), TPW_ERR_BUSY, "end it first");
    refuse(w, tpw_pool_destroy(w->pool, &w->err), TPW_ERR_BUSY, "1 leases (a capture is open), 1 blocks and 0 arenas");
    MUST(tpw_pool_capture_end(w->pool, &w->err));
    MUST(tpw_pool_arena_init(w->pool, 1000, &arena, &w->err));
    copy = arena;
    refuse_address(w, tpw_pool_free(w->pool, arena.base, &w->err), arena.base, "planned arena");
    refuse_address(w, tpw_pool_mark(w->pool, arena.base, &w->err), arena.base, "planned arena");
    refuse(w, tpw_pool_arena_fini(w->pool, &arena, &w->err), TPW_ERR_BUSY, "1 leases live");
    refuse(w, tpw_pool_destroy(w->pool, &w->err), TPW_ERR_BUSY, "1 leases, 1 blocks and 1 arenas");
    MUST(tpw_pool_lease_release(w->pool, lease, &w->err));
    refuse(w, tpw_pool_lease_release(w->pool, lease, &w->err), TPW_ERR_ARGUMENT, "already released");
    MUST(tpw_pool_arena_fini(w->pool, &arena, &w->err));
    cr_assert_null(arena.base);
    MUST(tpw_pool_arena_fini(w->pool, &arena, &w->err));
    refuse_address(w, tpw_pool_arena_fini(w->pool, &copy, &w->err), copy.base, "no arena");
    MUST(tpw_pool_free(w->pool, p, &w->err));
    refuse_address(w, tpw_pool_free(w->pool, p, &w->err), p, "already free");
    trim(w);
    refuse_address(w, tpw_pool_free(w->pool, p, &w->err), p, "no block of this pool");
    refuse_address(w, tpw_pool_mark(w->pool, p, &w->err), p, "no block of this pool");
    refuse(w, tpw_pool_alloc(w->pool, TPW_PLACE_DEVICE, SIZE_MAX - 3, &out, &w->err), TPW_ERR_MEMORY, "address space");
    cr_assert_null(out);
    close_world(w);
}

/* Arenas are what arena.h gives, only that the pool owns them: exact size, zeroed, carved alike. */
Test(pool, arenas_over_a_real_exec)
{
    world w_ = {0}, *w = &w_;
    tpw_exec *exec = NULL;
    tpw_backing backing;
    tpw_arena arena;
    uint8_t *at;
    void *p;

    MUST(tpw_host_create("baseline", &exec, &w->err));
    backing = tpw_backing_of(exec);
    MUST(tpw_pool_create(&backing, true, &w->pool, &w->err));
    MUST(tpw_pool_arena_init(w->pool, 1000, &arena, &w->err));
    cr_assert_eq(exec->device->bytes_now(exec), 1000u);
    cr_assert_eq(stats(w).place[0].arena, 1000u);
    cr_assert_eq(stats(w).place[0].peak, 1000u);
    at = tpw_arena_take(&arena, 1000, 1);
    cr_assert_not_null(at);
    for (int i = 0; i < 1000; i++)
        if (at[i] != 0)
            cr_assert_fail("byte %d of an arena is %d", i, at[i]);
    cr_assert_null(tpw_arena_take(&arena, 1, 1));
    MUST(tpw_pool_alloc(w->pool, TPW_PLACE_HOST, 100, &p, &w->err));
    cr_assert_eq(exec->device->bytes_now(exec), 1000u, "host memory is no device memory");
    MUST(tpw_pool_free(w->pool, p, &w->err));
    MUST(tpw_pool_alloc(w->pool, TPW_PLACE_DEVICE, 100, &p, &w->err));
    cr_assert_eq(exec->device->bytes_now(exec), 1000u + 32 * 1024);
    MUST(tpw_pool_free(w->pool, p, &w->err));
    MUST(tpw_pool_arena_fini(w->pool, &arena, &w->err));
    MUST(tpw_pool_destroy(w->pool, &w->err));
    cr_assert_eq(exec->device->bytes_now(exec), 0u);
    tpw_host_destroy(exec);
}

Test(pool, a_backing_without_host_memory_or_half_of_it)
{
    world w_ = {0}, *w = &w_;
    tpw_backing backing;
    void *p = w;

    fake_init(&w->fake, false);
    backing = fake_backing(&w->fake);
    backing.free_host = NULL;
    refuse(w, tpw_pool_create(&backing, false, &w->pool, &w->err), TPW_ERR_ARGUMENT, "lacks a function");
    cr_assert_null(w->pool);
    backing.alloc_host = NULL;
    MUST(tpw_pool_create(&backing, false, &w->pool, &w->err));
    refuse(w, tpw_pool_alloc(w->pool, TPW_PLACE_HOST, 1, &p, &w->err), TPW_ERR_UNSUPPORTED, "no pinned host memory");
    cr_assert_null(p);
    MUST(tpw_pool_destroy(w->pool, &w->err));
    MUST(tpw_pool_destroy(NULL, &w->err));
}

/* Out of memory: the cache goes back, and the backing is asked once more; nothing is written to *err on success. */
Test(pool, the_cache_is_given_up_before_an_alloc_fails)
{
    world *w = open_world(false, false);
    tpw_lease lease;
    void *small = take(w, 100), *large;

    MUST(tpw_pool_free(w->pool, small, &w->err));
    w->fake.fail_at = w->fake.calls + 1;
    w->err = (tpw_error){0};
    large = take(w, MIB);
    cr_assert_str_empty(w->err.text);
    cr_assert_eq(w->fake.frees, 1u);
    cr_assert_eq(stats(w).trims, 1u);
    MUST(tpw_pool_free(w->pool, large, &w->err));
    MUST(tpw_pool_capture_begin(w->pool, &lease, &w->err));
    w->fake.fail_at = w->fake.calls + 1;
    refuse(w, tpw_pool_alloc(w->pool, TPW_PLACE_DEVICE, 100, &small, &w->err), TPW_ERR_MEMORY, "fake");
    cr_assert_null(small);
    cr_assert_eq(w->fake.frees, 1u, "no trim while capturing");
    MUST(tpw_pool_capture_end(w->pool, &w->err));
    MUST(tpw_pool_lease_release(w->pool, lease, &w->err));
    close_world(w);
}

#define STORY_BLOCKS 24

/* A life with every kind of call. Keeps what it holds, so that the caller can give it back after a failure. */
typedef struct story {
    void *held[STORY_BLOCKS];
    int count;
    tpw_arena arena;
    tpw_lease lease;
    bool capturing;
} story;

static tpw_status hold(world *w, story *s, tpw_place place, size_t bytes)
{
    TPW_TRY(tpw_pool_alloc(w->pool, place, bytes, &s->held[s->count], &w->err));
    s->count++;
    return TPW_OK;
}

/* The block is free whatever poisoning says. */
static tpw_status part(world *w, story *s)
{
    return tpw_pool_free(w->pool, s->held[--s->count], &w->err);
}

static tpw_status live(world *w, story *s)
{
    TPW_TRY(tpw_pool_arena_init(w->pool, 5000, &s->arena, &w->err));
    for (int i = 0; i < 6; i++) {
        TPW_TRY(hold(w, s, TPW_PLACE_DEVICE, (size_t)1 << (10 + 3 * i)));
        TPW_TRY(hold(w, s, TPW_PLACE_HOST, 3000));
    }
    TPW_TRY(part(w, s));
    TPW_TRY(part(w, s));
    TPW_TRY(hold(w, s, TPW_PLACE_DEVICE, 500 * MIB)); /* a failure here is met by giving up the cache */
    TPW_TRY(tpw_pool_capture_begin(w->pool, &s->lease, &w->err));
    s->capturing = true;
    for (int i = 0; i < 6; i++)
        TPW_TRY(hold(w, s, TPW_PLACE_DEVICE, (size_t)1 << (10 + 3 * i)));
    TPW_TRY(part(w, s));
    TPW_TRY(part(w, s));
    s->capturing = false;
    TPW_TRY(tpw_pool_capture_end(w->pool, &w->err));
    TPW_TRY(tpw_pool_trim(w->pool, NULL, &w->err));
    TPW_TRY(part(w, s));
    TPW_TRY(hold(w, s, TPW_PLACE_DEVICE, 500 * MIB));
    return hold(w, s, TPW_PLACE_HOST, 100);
}

Test(pool, the_backing_fails_at_every_call)
{
    int failed = 0, served = 0;

    for (int on = 0; on < 2; on++)
        for (uint64_t n = 1;; n++) {
            world *w = open_world(false, true);
            story s = {0};
            tpw_status st;

            w->fake.real[TPW_PLACE_HOST] = true; /* the pool itself poisons it */
            w->fake.fail_at = n;
            w->fake.fail_on = on != 0;
            st = live(w, &s);
            if (st != TPW_OK)
                refuse(w, st, st == TPW_ERR_DEVICE ? TPW_ERR_DEVICE : TPW_ERR_MEMORY, "fake: call ");
            failed += st != TPW_OK;
            served += st == TPW_OK && w->fake.calls >= n;
            bool over = w->fake.calls < n;
            w->fake.fail_at = 0;
            if (s.capturing)
                MUST(tpw_pool_capture_end(w->pool, &w->err));
            if (s.lease != 0)
                MUST(tpw_pool_lease_release(w->pool, s.lease, &w->err));
            while (s.count > 0)
                MUST(part(w, &s));
            MUST(tpw_pool_arena_fini(w->pool, &s.arena, &w->err));
            close_world(w);
            if (over)
                break;
        }
    cr_assert_geq(failed, 40, "%d failures", failed);
    cr_assert_geq(served, 1, "none was served by giving up the cache");
}
