/* The pool: uses, pins, captures, trims, and the count of all of it. SPDX-License-Identifier: Apache-2.0 */
#include "graph/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "graph/pool_blocks.h"

#define POISON 0xFF

/* What one capture pinned: each block once, and every block that is pinned at all is in the lease of each of its pins. */
typedef struct lease {
    tpw_lease id;
    tpw_block **blocks;
    size_t count;
    size_t room;
    struct lease *next;
} lease;

struct tpw_pool {
    tpw_backing backing;
    bool poison;
    tpw_block_table table;
    lease *leases;
    lease *capture; /* the open one */
    tpw_lease last_lease;
    tpw_pool_stats stats;
};

static tpw_pool_bytes *bytes_of(tpw_pool *pool, const tpw_block *b)
{
    return &pool->stats.place[b->place];
}

static void give_back(tpw_pool *pool, const tpw_block *b)
{
    if (b->place == TPW_PLACE_DEVICE)
        pool->backing.free_device(pool->backing.data, b->data);
    else
        pool->backing.free_host(pool->backing.data, b->data);
}

static tpw_status take_from_backing(tpw_pool *pool, tpw_place place, size_t bytes, void **out, tpw_error *err)
{
    const tpw_backing *b = &pool->backing;

    *out = NULL;
    TPW_TRY(place == TPW_PLACE_DEVICE ? b->alloc_device(b->data, bytes, out, err)
                                      : b->alloc_host(b->data, bytes, out, err));
    if (*out != NULL && (uintptr_t)*out % TPW_POOL_ALIGN == 0)
        return TPW_OK;
    if (*out != NULL)
        give_back(pool, &(tpw_block){.data = *out, .place = place});
    return tpw_fail(err, TPW_ERR_INTERNAL, "pool: the backing gave %p, which is not aligned memory", *out);
}

/* Drops the record and the memory of a block that is in no free list. */
static void drop(tpw_pool *pool, tpw_block *b)
{
    tpw_block_table_remove(&pool->table, b);
    give_back(pool, b);
    free(b);
}

/* Cached blocks without pins go back; returns their number. */
static size_t trim(tpw_pool *pool, size_t *bytes)
{
    size_t count = 0;

    *bytes = 0;
    for (int place = 0; place < TPW_PLACES; place++)
        for (int list = 0; list < TPW_POOL_LISTS; list++)
            for (tpw_block *b; (b = pool->table.free_blocks[place][list][false]) != NULL; count++) {
                tpw_block_list_remove(&pool->table, b);
                bytes_of(pool, b)->cached -= b->bytes;
                *bytes += b->bytes;
                drop(pool, b);
            }
    pool->stats.trims++;
    pool->stats.trimmed += count;
    return count;
}

static void note_peak(tpw_pool_bytes *p)
{
    size_t held = p->in_use + p->cached + p->arena;

    if (held > p->peak)
        p->peak = held;
}

/* A new block with its record, neither used nor in a list; its bytes are not counted yet. */
static tpw_status make_block(tpw_pool *pool, tpw_place place, int list, size_t bytes, tpw_block **out, tpw_error *err)
{
    tpw_block *b = calloc(1, sizeof *b);
    tpw_error first;
    size_t trimmed;
    tpw_status st;

    if (b == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the record of a pool block");
    st = take_from_backing(pool, place, bytes, &b->data, &first);
    if (st == TPW_ERR_MEMORY && pool->capture == NULL && trim(pool, &trimmed) > 0)
        st = take_from_backing(pool, place, bytes, &b->data, &first);
    if (st != TPW_OK) {
        free(b);
        return tpw_fail(err, st, "%s", first.text);
    }
    b->place = place;
    b->list = list;
    b->bytes = bytes;
    tpw_block_table_add(&pool->table, b);
    *out = b;
    return TPW_OK;
}

/* Fills a block that became free. Kernels and host memory alike must not find what was there. */
static tpw_status poison(tpw_pool *pool, tpw_block *b, tpw_error *err)
{
    b->unpoisoned = false;
    if (b->place == TPW_PLACE_DEVICE)
        return pool->backing.fill_device(pool->backing.data, b->data, POISON, b->bytes, err);
    memset(b->data, POISON, b->bytes);
    return TPW_OK;
}

/* Takes a cached block into use: out of its list, whatever pins it. */
static void begin_use(tpw_pool *pool, tpw_block *b)
{
    tpw_block_list_remove(&pool->table, b);
    b->unpoisoned = false;
    bytes_of(pool, b)->cached -= b->bytes;
    bytes_of(pool, b)->in_use += b->bytes;
    pool->stats.blocks_in_use++;
}

/* After the last use: into the cache. A fill cannot be enqueued into an open capture, so poison waits for its end. */
static tpw_status end_use(tpw_pool *pool, tpw_block *b, tpw_error *err)
{
    bytes_of(pool, b)->in_use -= b->bytes;
    bytes_of(pool, b)->cached += b->bytes;
    pool->stats.blocks_in_use--;
    tpw_block_list_add(&pool->table, b);
    if (pool->poison && pool->capture != NULL)
        b->unpoisoned = true;
    return pool->poison && pool->capture == NULL ? poison(pool, b, err) : TPW_OK;
}

/* Room for one more block in the open capture's lease, so that pinning cannot fail. */
static tpw_status lease_reserve(tpw_pool *pool, tpw_error *err)
{
    lease *l = pool->capture;
    size_t room, bytes;
    tpw_block **grown;

    if (l == NULL || l->count < l->room)
        return TPW_OK;
    room = l->room > 0 ? 2 * l->room : 16;
    grown = tpw_mul_size(room, sizeof *grown, &bytes) ? realloc(l->blocks, bytes) : NULL;
    if (grown == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a lease of %zu blocks", room);
    l->blocks = grown;
    l->room = room;
    return TPW_OK;
}

/* Pins a block in use to the open capture, if there is one. */
static void pin(tpw_pool *pool, tpw_block *b)
{
    lease *l = pool->capture;

    if (l == NULL || b->last_lease == l->id)
        return; /* ids rise and only one capture is open: equal means that it is pinned by it already */
    l->blocks[l->count++] = b;
    b->last_lease = l->id;
    if (b->pins++ == 0)
        bytes_of(pool, b)->pinned += b->bytes;
}

static void unpin(tpw_pool *pool, tpw_block *b)
{
    bool last = b->pins == 1, cached = !tpw_block_used(b);

    if (last && cached)
        tpw_block_list_remove(&pool->table, b); /* from the list of the pinned */
    b->pins--;
    if (last)
        bytes_of(pool, b)->pinned -= b->bytes;
    if (last && cached)
        tpw_block_list_add(&pool->table, b);
}

/* The block that begins at `data`. */
static tpw_status find(tpw_pool *pool, const char *call, const void *data, tpw_block **out, tpw_error *err)
{
    tpw_block *b = tpw_block_table_find(&pool->table, data);

    if (b == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "pool %s: %p is no block of this pool", call, data);
    if (b->list == TPW_POOL_ARENA)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "pool %s: %p is a planned arena, which only arena_fini ends", call,
                        data);
    *out = b;
    return TPW_OK;
}

tpw_status tpw_pool_create(const tpw_backing *backing, bool poison_free, tpw_pool **out, tpw_error *err)
{
    tpw_pool *pool;
    tpw_status st;

    *out = NULL;
    if (backing->alloc_device == NULL || backing->free_device == NULL || backing->fill_device == NULL ||
        (backing->alloc_host == NULL) != (backing->free_host == NULL))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "pool: the backing lacks a function");
    pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a pool");
    pool->backing = *backing;
    pool->poison = poison_free;
    st = tpw_block_table_init(&pool->table, err);
    if (st != TPW_OK) {
        free(pool);
        return st;
    }
    *out = pool;
    return TPW_OK;
}

void tpw_pool_destroy_force(tpw_pool *pool)
{
    if (pool == NULL)
        return;
    for (size_t i = 0; i < pool->table.bucket_count; i++)
        for (const tpw_block *b = pool->table.buckets[i]; b != NULL; b = b->chain)
            give_back(pool, b);
    tpw_block_table_fini(&pool->table);
    for (lease *l = pool->leases, *next; l != NULL; l = next) {
        next = l->next;
        free(l->blocks);
        free(l);
    }
    free(pool);
}

tpw_status tpw_pool_destroy(tpw_pool *pool, tpw_error *err)
{
    const tpw_pool_stats *s;

    if (pool == NULL)
        return TPW_OK;
    s = &pool->stats;
    if (s->leases > 0 || s->blocks_in_use > 0 || s->arenas > 0)
        return tpw_fail(err, TPW_ERR_BUSY,
                        "pool: %zu leases%s, %zu blocks and %zu arenas are still in use: end graphs and their users "
                        "first",
                        s->leases, pool->capture != NULL ? " (a capture is open)" : "", s->blocks_in_use, s->arenas);
    tpw_pool_destroy_force(pool);
    return TPW_OK;
}

/* A cached block for a request: while capturing, those that eager callers cannot have go first. */
static tpw_block *pick(const tpw_pool *pool, tpw_place place, int list, size_t bytes)
{
    tpw_block *b = NULL;

    if (pool->capture != NULL)
        b = tpw_block_list_pick(&pool->table, place, list, bytes, true);
    return b != NULL ? b : tpw_block_list_pick(&pool->table, place, list, bytes, false);
}

tpw_status tpw_pool_alloc(tpw_pool *pool, tpw_place place, size_t bytes, void **out, tpw_error *err)
{
    int list;
    size_t whole;
    tpw_block *b;

    *out = NULL;
    if (place != TPW_PLACE_DEVICE && place != TPW_PLACE_HOST)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "pool alloc: %d is no place", (int)place);
    if (bytes == 0)
        return TPW_OK;
    if (place == TPW_PLACE_HOST && pool->backing.alloc_host == NULL)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "pool alloc: this backing has no pinned host memory");
    TPW_TRY(tpw_block_size(bytes, &list, &whole, err));
    TPW_TRY(lease_reserve(pool, err));
    b = pick(pool, place, list, whole);
    if (b != NULL) {
        begin_use(pool, b);
        pool->stats.reused++;
    } else {
        TPW_TRY(make_block(pool, place, list, whole, &b, err));
        bytes_of(pool, b)->in_use += b->bytes;
        note_peak(bytes_of(pool, b));
        pool->stats.blocks_in_use++;
        pool->stats.fresh++;
    }
    b->owned = true;
    pin(pool, b);
    *out = b->data;
    return TPW_OK;
}

tpw_status tpw_pool_free(tpw_pool *pool, void *data, tpw_error *err)
{
    tpw_block *b = NULL;

    if (data == NULL)
        return TPW_OK;
    TPW_TRY(find(pool, "free", data, &b, err));
    if (!tpw_block_used(b))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "pool free: %p is already free", data);
    if (b->owned)
        b->owned = false;
    else
        b->marks--;
    return tpw_block_used(b) ? TPW_OK : end_use(pool, b, err);
}

tpw_status tpw_pool_mark(tpw_pool *pool, void *data, tpw_error *err)
{
    tpw_block *b = NULL;

    TPW_TRY(find(pool, "mark", data, &b, err));
    TPW_TRY(lease_reserve(pool, err));
    if (!tpw_block_used(b))
        begin_use(pool, b);
    b->marks++;
    pin(pool, b);
    return TPW_OK;
}

tpw_status tpw_pool_unmark(tpw_pool *pool, void *data, tpw_error *err)
{
    tpw_block *b = NULL;

    TPW_TRY(find(pool, "unmark", data, &b, err));
    if (b->marks == 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "pool unmark: %p is not marked", data);
    b->marks--;
    return tpw_block_used(b) ? TPW_OK : end_use(pool, b, err);
}

tpw_status tpw_pool_capture_begin(tpw_pool *pool, tpw_lease *out, tpw_error *err)
{
    lease *l;

    *out = 0;
    if (pool->capture != NULL)
        return tpw_fail(err, TPW_ERR_BUSY, "pool: a capture is open (lease %llu): end it first",
                        (unsigned long long)pool->capture->id);
    l = calloc(1, sizeof *l);
    if (l == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a lease");
    l->id = ++pool->last_lease;
    l->next = pool->leases;
    pool->leases = l;
    pool->capture = l;
    pool->stats.leases++;
    *out = l->id;
    return TPW_OK;
}

tpw_status tpw_pool_capture_end(tpw_pool *pool, tpw_error *err)
{
    tpw_status st = TPW_OK;

    if (pool->capture == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "pool: no capture is open");
    pool->capture = NULL;
    for (size_t i = 0; pool->poison && i < pool->table.bucket_count; i++)
        for (tpw_block *b = pool->table.buckets[i]; b != NULL; b = b->chain)
            if (b->unpoisoned && st == TPW_OK)
                st = poison(pool, b, err);
    return st;
}

tpw_status tpw_pool_lease_release(tpw_pool *pool, tpw_lease id, tpw_error *err)
{
    lease **at = &pool->leases, *l;

    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    l = *at;
    if (l == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "pool: lease %llu is unknown or already released",
                        (unsigned long long)id);
    if (l == pool->capture)
        return tpw_fail(err, TPW_ERR_BUSY, "pool: the capture of lease %llu is open: end it first",
                        (unsigned long long)id);
    for (size_t i = l->count; i-- > 0;)
        unpin(pool, l->blocks[i]);
    *at = l->next;
    free(l->blocks);
    free(l);
    pool->stats.leases--;
    return TPW_OK;
}

tpw_status tpw_pool_trim(tpw_pool *pool, size_t *bytes, tpw_error *err)
{
    size_t trimmed;

    if (pool->capture != NULL)
        return tpw_fail(err, TPW_ERR_BUSY, "pool trim: a capture is open (lease %llu): end it first",
                        (unsigned long long)pool->capture->id);
    (void)trim(pool, &trimmed);
    if (bytes != NULL)
        *bytes = trimmed;
    return TPW_OK;
}

tpw_status tpw_pool_arena_init(tpw_pool *pool, size_t bytes, tpw_arena *out, tpw_error *err)
{
    tpw_block *b;

    *out = (tpw_arena){0};
    TPW_TRY(make_block(pool, TPW_PLACE_DEVICE, TPW_POOL_ARENA, bytes > 0 ? bytes : 1, &b, err));
    bytes_of(pool, b)->arena += b->bytes;
    note_peak(bytes_of(pool, b));
    pool->stats.arenas++;
    *out = (tpw_arena){.base = b->data, .bytes = bytes};
    return TPW_OK;
}

tpw_status tpw_pool_arena_fini(tpw_pool *pool, tpw_arena *arena, tpw_error *err)
{
    tpw_block *b;

    if (arena->base == NULL)
        return TPW_OK;
    b = tpw_block_table_find(&pool->table, arena->base);
    if (b == NULL || b->list != TPW_POOL_ARENA)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "pool arena_fini: %p is no arena of this pool", (void *)arena->base);
    if (pool->stats.leases > 0)
        return tpw_fail(err, TPW_ERR_BUSY, "pool arena_fini: %zu leases live, whose graphs may refer to %p",
                        pool->stats.leases, (void *)arena->base);
    bytes_of(pool, b)->arena -= b->bytes;
    pool->stats.arenas--;
    drop(pool, b);
    *arena = (tpw_arena){0};
    return TPW_OK;
}

void tpw_pool_get_stats(const tpw_pool *pool, tpw_pool_stats *out)
{
    *out = pool->stats;
}
