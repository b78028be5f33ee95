/* A million random calls of the pool against a simple model that watches every block and every count.
 *
 * The model knows what each block is (in use, marked, pinned by which leases), says which cached blocks may serve a request,
 * and adds up the statistics anew after every call. TPW_TEST_SEED sets the seed. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "fake_backing.h"
#include "graph/pool.h"

#ifdef __SANITIZE_ADDRESS__
#define CALLS 100000
#else
#define CALLS 1000000
#endif

#define MIB        ((size_t)1 << 20)
#define KNOWN_MAX  2048
#define USED_MAX   96 /* about so many blocks are in use at once */
#define LEASES_MAX 6
#define ARENAS_MAX 4

/* Costs nothing when it holds, which the framework's own asserts do not promise. */
#define CHECK(m, condition, ...)                                                                               \
    do {                                                                                                       \
        if (!(condition))                                                                                      \
            cr_assert_fail("seed %llu, call %d: %s: %s", (unsigned long long)(m)->seed, (m)->call, #condition, \
                           text_of(__VA_ARGS__));                                                              \
    } while (0)

typedef struct known {
    char *at;
    size_t bytes;
    tpw_place place;
    bool owned;
    int marks;
    uint32_t leases; /* bit i: pinned by model.leases[i] */
} known;

typedef struct model {
    uint64_t seed, random;
    int call;
    fake fake;
    tpw_pool *pool;
    tpw_error err;
    known blocks[KNOWN_MAX];
    int count, used;
    tpw_lease leases[LEASES_MAX]; /* 0: none */
    int capture;                  /* index, -1: none is open */
    tpw_arena arenas[ARENAS_MAX];
    tpw_pool_stats stats;
    uint64_t pinned_kept; /* pinned, free blocks that a trim passed over */
    uint64_t refused, failed, served_pinned, large_reused, tally[16];
} model;

static const char *text_of(const char *format, ...)
{
    static char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

static uint64_t next(model *m)
{
    return tpw_digest_fin(m->random += 0x9E3779B97F4A7C15ull);
}

static int below(model *m, int n)
{
    return (int)(next(m) % (uint64_t)n);
}

static bool in_use(const known *k)
{
    return k->owned || k->marks > 0;
}

static bool cached(const known *k)
{
    return !in_use(k);
}

/* The whole block for a request, by the classes of the header. */
static size_t whole_of(size_t request)
{
    static const size_t kib[] = {32, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144};

    for (size_t i = 0; i < sizeof kib / sizeof kib[0]; i++)
        if (request <= kib[i] * 1024)
            return kib[i] * 1024;
    return (request + 255) / 256 * 256;
}

static bool serves(const known *k, tpw_place place, size_t whole)
{
    if (!cached(k) || k->place != place)
        return false;
    if (whole <= 256 * MIB)
        return k->bytes == whole;
    return k->bytes > 256 * MIB && k->bytes >= whole && k->bytes - whole <= whole / 4;
}

/* The backing asks: may this go? Called inside of trims and at the end. */
static void watch_free(void *data, const fake_region *region)
{
    model *m = data;

    for (int i = 0; i < m->count; i++)
        if (m->blocks[i].at == (char *)region->at) {
            known *k = &m->blocks[i];

            CHECK(m, cached(k) && k->leases == 0, "%p was freed: owned %d, marks %d, leases %x", (void *)k->at,
                  k->owned, k->marks, k->leases);
            CHECK(m, k->bytes == region->bytes && k->place == region->place, "%p", (void *)k->at);
            *k = m->blocks[--m->count];
            return;
        }
    for (int i = 0; i < ARENAS_MAX; i++)
        if (m->arenas[i].base == (uint8_t *)region->at)
            return;
    CHECK(m, false, "%p was freed, which nobody had", (void *)region->at);
}

static void add_up(const model *m, tpw_pool_stats *s)
{
    *s = m->stats;
    s->blocks_in_use = s->leases = s->arenas = 0;
    for (int p = 0; p < TPW_PLACES; p++)
        s->place[p].in_use = s->place[p].cached = s->place[p].pinned = s->place[p].arena = 0;
    for (int i = 0; i < m->count; i++) {
        const known *k = &m->blocks[i];
        tpw_pool_bytes *b = &s->place[k->place];

        b->in_use += in_use(k) ? k->bytes : 0;
        b->cached += in_use(k) ? 0 : k->bytes;
        b->pinned += k->leases != 0 ? k->bytes : 0;
        s->blocks_in_use += in_use(k);
    }
    for (int i = 0; i < LEASES_MAX; i++)
        s->leases += m->leases[i] != 0;
    for (int i = 0; i < ARENAS_MAX; i++) {
        s->place[TPW_PLACE_DEVICE].arena += m->arenas[i].base != NULL ? m->arenas[i].bytes : 0;
        s->arenas += m->arenas[i].base != NULL;
    }
    for (int p = 0; p < TPW_PLACES; p++) {
        size_t held = s->place[p].in_use + s->place[p].cached + s->place[p].arena;

        if (held > s->place[p].peak)
            s->place[p].peak = held;
    }
}

static void compare_stats(model *m)
{
    tpw_pool_stats got;

    add_up(m, &m->stats);
    tpw_pool_get_stats(m->pool, &got);
    for (int p = 0; p < TPW_PLACES; p++) {
        const tpw_pool_bytes *a = &got.place[p], *b = &m->stats.place[p];

        CHECK(m, a->in_use == b->in_use && a->cached == b->cached && a->arena == b->arena && a->pinned == b->pinned,
              "place %d: in use %zu, cached %zu, arena %zu, pinned %zu; the model has %zu, %zu, %zu, %zu", p, a->in_use,
              a->cached, a->arena, a->pinned, b->in_use, b->cached, b->arena, b->pinned);
        CHECK(m, a->peak == b->peak, "place %d: %zu, the model has %zu", p, a->peak, b->peak);
    }
    CHECK(m, got.fresh == m->stats.fresh && got.reused == m->stats.reused, "%llu, %llu; the model has %llu, %llu",
          (unsigned long long)got.fresh, (unsigned long long)got.reused, (unsigned long long)m->stats.fresh,
          (unsigned long long)m->stats.reused);
    CHECK(m, got.trims == m->stats.trims && got.trimmed == m->stats.trimmed, "%llu, %llu",
          (unsigned long long)got.trims, (unsigned long long)got.trimmed);
    CHECK(m,
          got.blocks_in_use == m->stats.blocks_in_use && got.leases == m->stats.leases && got.arenas == m->stats.arenas,
          "%zu, %zu, %zu", got.blocks_in_use, got.leases, got.arenas);
    CHECK(m, m->fake.count == (size_t)m->count + got.arenas, "the backing has %zu", m->fake.count);
    m->used = (int)got.blocks_in_use;
}

/* Counts a trim before it happens: watch_free then removes the blocks. */
static int expect_trim(model *m)
{
    int trimmed = 0;

    for (int i = 0; i < m->count; i++) {
        trimmed += cached(&m->blocks[i]) && m->blocks[i].leases == 0;
        m->pinned_kept += cached(&m->blocks[i]) && m->blocks[i].leases != 0;
    }
    return trimmed;
}

static size_t random_size(model *m)
{
    static const size_t edges[] = {1, 32 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB};
    int kind = below(m, 8);

    if (kind == 0)
        return 256 * MIB + 1 + (size_t)below(m, 300) * MIB; /* large */
    if (kind == 1)
        return edges[below(m, 8)] + (size_t)below(m, 3) - 1;
    return 1 + next(m) % ((size_t)1 << (10 + below(m, 19)));
}

/* Which cached block the rule of the header allows; for a class any of the eligible ones, for large ones the bytes count. */
static const known *eligible(model *m, tpw_place place, size_t whole, bool pinned)
{
    const known *best = NULL;

    for (int i = 0; i < m->count; i++) {
        const known *k = &m->blocks[i];

        if (serves(k, place, whole) && (k->leases != 0) == pinned && (best == NULL || k->bytes < best->bytes))
            best = k;
    }
    return best;
}

static void took_cached(model *m, char *p, const known *want)
{
    for (int i = 0; i < m->count; i++)
        if (m->blocks[i].at == p) {
            known *k = &m->blocks[i];

            CHECK(m,
                  serves(k, want->place, want->bytes) && k->bytes == want->bytes && k->place == want->place &&
                      (k->leases != 0) == (want->leases != 0),
                  "%p of %zu bytes, leases %x, in use %d; wanted one like %p of %zu bytes, leases %x", (void *)p,
                  k->bytes, k->leases, in_use(k), (void *)want->at, want->bytes, want->leases);
            m->served_pinned += k->leases != 0;
            m->large_reused += k->bytes > 256 * MIB;
            k->owned = true;
            k->leases |= m->capture >= 0 ? 1u << m->capture : 0;
            m->stats.reused++;
            return;
        }
    CHECK(m, false, "%p is fresh although %p was free", (void *)p, (void *)want->at);
}

static void took_fresh(model *m, char *p, tpw_place place, size_t whole)
{
    CHECK(m, (uintptr_t)p % TPW_POOL_ALIGN == 0, "%p", (void *)p);
    for (int i = 0; i < m->count; i++)
        CHECK(m, p + whole <= m->blocks[i].at || m->blocks[i].at + m->blocks[i].bytes <= p, "%p overlaps %p", (void *)p,
              (void *)m->blocks[i].at);
    CHECK(m, m->count < KNOWN_MAX, "too many blocks for the model");
    m->blocks[m->count++] = (known){
        .at = p, .bytes = whole, .place = place, .owned = true, .leases = m->capture >= 0 ? 1u << m->capture : 0};
    m->stats.fresh++;
}

static void do_alloc(model *m)
{
    tpw_place place = below(m, 4) == 0 ? TPW_PLACE_HOST : TPW_PLACE_DEVICE;
    size_t bytes = random_size(m), whole = whole_of(bytes);
    const known *want = m->capture >= 0 ? eligible(m, place, whole, true) : NULL;
    bool fails = below(m, 64) == 0;
    void *p = m;
    tpw_status st;

    if (bytes == 0)
        whole = 0;
    if (want == NULL)
        want = eligible(m, place, whole, false);
    if (fails) {
        m->fake.fail_at = m->fake.calls + 1;
        m->fake.fail_on = true;
    }
    if (fails && bytes > 0 && want == NULL && m->capture < 0) { /* the cache is given up, in vain */
        m->stats.trimmed += (uint64_t)expect_trim(m);
        m->stats.trims++;
    }
    st = tpw_pool_alloc(m->pool, place, bytes, &p, &m->err);
    m->fake.fail_at = 0;
    if (bytes == 0 || (fails && want == NULL)) {
        CHECK(m, p == NULL && st == (bytes == 0 ? TPW_OK : TPW_ERR_MEMORY), "%s", m->err.text);
        m->failed += st != TPW_OK;
        return;
    }
    CHECK(m, st == TPW_OK, "%s", m->err.text);
    if (want != NULL)
        took_cached(m, p, want);
    else
        took_fresh(m, p, place, whole);
}

static known *any(model *m)
{
    return m->count > 0 ? &m->blocks[below(m, m->count)] : NULL;
}

static void do_free(model *m)
{
    known *k = any(m);
    bool legal;
    tpw_status st;

    if (k == NULL)
        return;
    legal = in_use(k);
    st = tpw_pool_free(m->pool, k->at, &m->err);
    CHECK(m, st == (legal ? TPW_OK : TPW_ERR_ARGUMENT), "%p: %s", (void *)k->at, m->err.text);
    m->refused += !legal;
    if (k->owned)
        k->owned = false;
    else if (legal)
        k->marks--;
}

static void do_mark(model *m)
{
    known *k = any(m);
    tpw_status st;

    if (k == NULL)
        return;
    st = tpw_pool_mark(m->pool, k->at, &m->err);
    CHECK(m, st == TPW_OK, "%s", m->err.text);
    k->marks++;
    k->leases |= m->capture >= 0 ? 1u << m->capture : 0;
}

static void do_unmark(model *m)
{
    known *k = any(m);
    tpw_status st;

    if (k == NULL)
        return;
    st = tpw_pool_unmark(m->pool, k->at, &m->err);
    CHECK(m, st == (k->marks > 0 ? TPW_OK : TPW_ERR_ARGUMENT), "%s", m->err.text);
    m->refused += k->marks == 0;
    k->marks -= k->marks > 0;
}

static void do_capture(model *m)
{
    int slot = 0;

    if (m->capture >= 0) {
        CHECK(m, tpw_pool_capture_end(m->pool, &m->err) == TPW_OK, "%s", m->err.text);
        m->capture = -1;
        return;
    }
    while (slot < LEASES_MAX && m->leases[slot] != 0)
        slot++;
    if (slot == LEASES_MAX)
        return;
    CHECK(m, tpw_pool_capture_begin(m->pool, &m->leases[slot], &m->err) == TPW_OK, "%s", m->err.text);
    m->capture = slot;
}

static void do_release(model *m)
{
    int slot = below(m, LEASES_MAX);
    tpw_lease lease = m->leases[slot];
    tpw_status want = lease == 0 ? TPW_ERR_ARGUMENT : slot == m->capture ? TPW_ERR_BUSY : TPW_OK;
    tpw_status st = tpw_pool_lease_release(m->pool, lease, &m->err);

    CHECK(m, st == want, "%s", m->err.text);
    m->refused += st != TPW_OK;
    if (st != TPW_OK)
        return;
    m->leases[slot] = 0;
    for (int i = 0; i < m->count; i++)
        m->blocks[i].leases &= ~(1u << slot);
}

static void do_trim(model *m)
{
    tpw_status st;

    if (m->capture < 0) {
        m->stats.trims++;
        m->stats.trimmed += (uint64_t)expect_trim(m);
    }
    st = tpw_pool_trim(m->pool, NULL, &m->err);
    CHECK(m, st == (m->capture >= 0 ? TPW_ERR_BUSY : TPW_OK), "%s", m->err.text);
    for (int i = 0; m->capture < 0 && i < m->count; i++)
        CHECK(m, in_use(&m->blocks[i]) || m->blocks[i].leases != 0, "%p is still cached", (void *)m->blocks[i].at);
}

static void do_arena(model *m)
{
    tpw_arena *a = &m->arenas[below(m, ARENAS_MAX)];
    tpw_arena old = *a;
    int leases = 0;
    tpw_status st;

    if (a->base == NULL) {
        st = tpw_pool_arena_init(m->pool, 1 + next(m) % (64 * MIB), a, &m->err);
        CHECK(m, st == TPW_OK, "%s", m->err.text);
        return;
    }
    for (int i = 0; i < LEASES_MAX; i++)
        leases += m->leases[i] != 0;
    st = tpw_pool_arena_fini(m->pool, a, &m->err);
    CHECK(m, st == (leases > 0 ? TPW_ERR_BUSY : TPW_OK), "%s", m->err.text);
    CHECK(m, (a->base == NULL) == (st == TPW_OK) && (st == TPW_OK || a->base == old.base), "%p", (void *)a->base);
}

static void do_foreign(model *m)
{
    known *k = any(m);
    char *p = k != NULL && below(m, 2) == 0 ? k->at + 256 : (char *)(uintptr_t)(next(m) | 1);
    tpw_status st = below(m, 2) == 0 ? tpw_pool_free(m->pool, p, &m->err) : tpw_pool_mark(m->pool, p, &m->err);

    CHECK(m, st == TPW_ERR_ARGUMENT, "%p was taken", (void *)p);
    m->refused++;
}

static void one_call(model *m)
{
    int dice = below(m, 1000), many = m->used > USED_MAX;

    if (dice < (many ? 250 : 450))
        m->tally[0]++, do_alloc(m);
    else if (dice < 860)
        m->tally[1]++, do_free(m);
    else if (dice < 900)
        m->tally[2]++, do_mark(m);
    else if (dice < 950)
        m->tally[3]++, do_unmark(m);
    else if (dice < 970)
        m->tally[4]++, do_capture(m);
    else if (dice < 982)
        m->tally[5]++, do_release(m);
    else if (dice < 987)
        m->tally[6]++, do_trim(m);
    else if (dice < 992)
        m->tally[7]++, do_arena(m);
    else
        m->tally[8]++, do_foreign(m);
}

/* Everybody leaves; the pool goes without force and nothing stays behind. */
static void leave(model *m)
{
    if (m->capture >= 0)
        do_capture(m);
    for (int i = 0; i < LEASES_MAX; i++)
        if (m->leases[i] != 0) {
            CHECK(m, tpw_pool_lease_release(m->pool, m->leases[i], &m->err) == TPW_OK, "%s", m->err.text);
            m->leases[i] = 0;
        }
    for (int i = 0; i < m->count; i++) {
        known *k = &m->blocks[i];

        for (; k->marks > 0; k->marks--)
            CHECK(m, tpw_pool_unmark(m->pool, k->at, &m->err) == TPW_OK, "%s", m->err.text);
        if (k->owned)
            CHECK(m, tpw_pool_free(m->pool, k->at, &m->err) == TPW_OK, "%s", m->err.text);
        k->owned = false;
        k->leases = 0;
    }
    for (int i = 0; i < ARENAS_MAX; i++)
        CHECK(m, tpw_pool_arena_fini(m->pool, &m->arenas[i], &m->err) == TPW_OK, "%s", m->err.text);
    compare_stats(m);
    CHECK(m, tpw_pool_destroy(m->pool, &m->err) == TPW_OK, "%s", m->err.text);
    CHECK(m, m->fake.count == 0 && m->count == 0 && m->fake.allocs == m->fake.frees, "%zu regions leaked",
          m->fake.count);
}

Test(pool_random, a_million_calls_do_what_the_model_says)
{
    const char *seed = getenv("TPW_TEST_SEED");
    model *m = calloc(1, sizeof *m);
    tpw_backing backing;

    cr_assert_not_null(m);
    m->seed = m->random = seed != NULL ? strtoull(seed, NULL, 10) : 20261129;
    m->capture = -1;
    fake_init(&m->fake, false);
    m->fake.on_free = watch_free;
    m->fake.on_free_data = m;
    backing = fake_backing(&m->fake);
    CHECK(m, tpw_pool_create(&backing, false, &m->pool, &m->err) == TPW_OK, "%s", m->err.text);
    for (m->call = 1; m->call <= CALLS; m->call++) {
        one_call(m);
        compare_stats(m);
    }
    leave(m);
    cr_log_info(
        "seed %llu: %d calls, %llu fresh, %llu reused (%llu pinned, %llu large), %llu trimmed, %llu refused, %llu "
        "failed\n",
        (unsigned long long)m->seed, CALLS, (unsigned long long)m->stats.fresh, (unsigned long long)m->stats.reused,
        (unsigned long long)m->served_pinned, (unsigned long long)m->large_reused, (unsigned long long)m->stats.trimmed,
        (unsigned long long)m->refused, (unsigned long long)m->failed);
    for (int i = 0; i <= 8; i++)
        cr_assert_geq(m->tally[i], (uint64_t)CALLS / 1000, "call %d was made %llu times", i,
                      (unsigned long long)m->tally[i]);
    cr_assert_geq(m->stats.reused, (uint64_t)CALLS / 10);
    cr_assert_geq(m->stats.fresh, (uint64_t)CALLS / 100);
    cr_assert_geq(m->served_pinned, (uint64_t)CALLS / 1000);
    cr_assert_geq(m->large_reused, (uint64_t)CALLS / 1000);
    cr_assert_geq(m->pinned_kept, (uint64_t)CALLS / 1000);
    cr_assert_geq(m->refused, (uint64_t)CALLS / 100);
    cr_assert_geq(m->failed, (uint64_t)CALLS / 10000);
    free(m);
}
