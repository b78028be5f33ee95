/* The pool: the owner of all memory that is allocated on the device or pinned on the host, planned arenas included.
 *
 * Blocks come in size classes (32 K, 256 K, 1 M, 2 M, 4 M, 8 M, 16 M, 32 M, 64 M, 128 M, 256 M; a request takes the whole
 * class) and, above them, in multiples of TPW_POOL_ALIGN. What is freed stays cached: a class gives back its most
 * recently freed block; of the large ones the smallest that holds the request and is at most a quarter longer, of equal
 * ones the most recently freed. Fresh memory is asked for only when no cached block serves.
 *
 * A graph that is being captured keeps the addresses of the blocks it was given. So every block handed out while capturing,
 * fresh, reused or marked, is pinned to the capture's lease, and stays so, in use or not, until the graph's owner releases
 * the lease. A pinned block that is free is handed out again only while capturing (graphs of one pool replay one after the other
 * and may share scratch); never to anybody else, whose data a replay would overwrite. What a graph leaves in a block
 * that its owner does not hold (free) is valid until the next replay of any graph of this pool.
 *
 * One thread, the owner, may use a pool; it has waited for the device before it frees, trims or releases what kernels may
 * still touch. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_GRAPH_POOL_H
#define TPW_GRAPH_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "graph/arena.h"
#include "graph/backing.h"

#define TPW_POOL_ALIGN TPW_ARENA_ALIGN

typedef struct tpw_pool tpw_pool;

/* Names the blocks that one capture pinned. Never reused in the life of a pool; 0 is none. */
typedef uint64_t tpw_lease;

/* Bytes of one place, whole blocks. What the backing gave is in_use + cached + arena. */
typedef struct tpw_pool_bytes {
    size_t in_use; /* allocated or marked */
    size_t cached; /* free, kept for reuse */
    size_t arena;
    size_t pinned; /* by leases; part of in_use and cached */
    size_t peak;   /* the most that in_use + cached + arena has been */
} tpw_pool_bytes;

typedef struct tpw_pool_stats {
    tpw_pool_bytes place[TPW_PLACES];
    uint64_t fresh;   /* blocks taken from the backing for an alloc; arenas do not count */
    uint64_t reused;  /* allocs served from the cache */
    uint64_t trims;   /* calls of trim, and trims before a retry when the backing was out of memory */
    uint64_t trimmed; /* blocks that these gave back */
    size_t blocks_in_use;
    size_t leases; /* not released yet */
    size_t arenas;
} tpw_pool_stats;

/* `backing` is copied; its data must outlive the pool. With `poison`, blocks are filled with 0xFF (NaN) when they become
 * free, those freed while capturing at its end. ERR_ARGUMENT: an incomplete backing; ERR_MEMORY. */
tpw_status tpw_pool_create(const tpw_backing *backing, bool poison, tpw_pool **out, tpw_error *err) TPW_MUST_CHECK;

/* Gives everything back to the backing. ERR_BUSY, naming how many, while leases, blocks in use, arenas or a capture are left:
 * then nothing is freed and the pool lives on. NULL allowed. */
tpw_status tpw_pool_destroy(tpw_pool *pool, tpw_error *err) TPW_MUST_CHECK;
/* For error paths: gives everything back whoever holds it. NULL allowed. */
void tpw_pool_destroy_force(tpw_pool *pool);

/* At least `bytes` of memory, aligned to TPW_POOL_ALIGN, contents undefined. 0 bytes give NULL. When the backing is out of
 * memory, cached blocks are given back to it and it is asked once more (not while capturing). On error *out is NULL and
 * nothing has changed but the cache. ERR_UNSUPPORTED: the backing has no such place. */
tpw_status tpw_pool_alloc(tpw_pool *pool, tpw_place place, size_t bytes, void **out, tpw_error *err) TPW_MUST_CHECK;

/* Ends the use that alloc gave, or else one that mark gave. NULL is fine. ERR_ARGUMENT with the address: not a block of this
 * pool (an address inside of one neither), already free, or an arena. Other errors come from poisoning: the block is free. */
tpw_status tpw_pool_free(tpw_pool *pool, void *data, tpw_error *err) TPW_MUST_CHECK;

/* Marks a block as in use by its address, once more if it is already: an output of a graph that somebody keeps. A free block
 * leaves the cache. unmark ends one such use, and only such a one; the last use returns the block to the cache. Errors as free. */
tpw_status tpw_pool_mark(tpw_pool *pool, void *data, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_pool_unmark(tpw_pool *pool, void *data, tpw_error *err) TPW_MUST_CHECK;

/* From begin to end every block that is handed out is pinned to *lease, which the owner of the graph keeps, also if the capture
 * fails. ERR_BUSY: a capture is open already. ERR_ARGUMENT: none is. */
tpw_status tpw_pool_capture_begin(tpw_pool *pool, tpw_lease *lease, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_pool_capture_end(tpw_pool *pool, tpw_error *err) TPW_MUST_CHECK;

/* The graph is dead: its blocks are pinned by it no longer, and those not in use are as any cached block. ERR_ARGUMENT: unknown
 * or already released; ERR_BUSY: its capture is open. */
tpw_status tpw_pool_lease_release(tpw_pool *pool, tpw_lease lease, tpw_error *err) TPW_MUST_CHECK;

/* Gives cached blocks that no lease pins back to the backing; neither blocks in use nor arenas. Legal while graphs live;
 * ERR_BUSY while capturing, for freeing device memory waits for the device. *bytes (may be NULL): how much. */
tpw_status tpw_pool_trim(tpw_pool *pool, size_t *bytes, tpw_error *err) TPW_MUST_CHECK;

/* A planned arena of exactly `bytes` of device memory (0 counts as 1), zeroed, never from the cache: tpw_arena_init, owned by
 * the pool. Only arena_fini ends it; ERR_BUSY while leases live, since graphs refer to it. A zeroed arena is fine. */
tpw_status tpw_pool_arena_init(tpw_pool *pool, size_t bytes, tpw_arena *out, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_pool_arena_fini(tpw_pool *pool, tpw_arena *arena, tpw_error *err) TPW_MUST_CHECK;

void tpw_pool_get_stats(const tpw_pool *pool, tpw_pool_stats *out);

#endif
