/* The pool's blocks: their sizes, the free lists, and the table that finds one by its address. Private to the pool; knows
 * neither backing nor leases. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_GRAPH_POOL_BLOCKS_H
#define TPW_GRAPH_POOL_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "graph/backing.h"

/* Free lists of a place: one for each size class, then that of the large blocks. Arenas are in none. */
#define TPW_POOL_CLASSES 11
#define TPW_POOL_LARGE   TPW_POOL_CLASSES
#define TPW_POOL_LISTS   (TPW_POOL_CLASSES + 1)
#define TPW_POOL_ARENA   TPW_POOL_LISTS

typedef struct tpw_block {
    void *data;
    size_t bytes;
    tpw_place place;
    int list;                        /* class, TPW_POOL_LARGE or TPW_POOL_ARENA */
    bool owned;                      /* by who allocated it */
    uint64_t marks;                  /* further uses */
    uint64_t pins;                   /* leases that pin it */
    uint64_t last_lease;             /* the newest of them */
    bool unpoisoned;                 /* freed while capturing: to be poisoned at its end */
    struct tpw_block *newer, *older; /* neighbours in its free list */
    struct tpw_block *chain;         /* next in its bucket of the table */
} tpw_block;

typedef struct tpw_block_table {
    tpw_block **buckets; /* [bucket_count], a power of two */
    size_t bucket_count;
    size_t count;
    /* heads, most recently freed first; blocks with pins are apart */
    tpw_block *free_blocks[TPW_PLACES][TPW_POOL_LISTS][2];
} tpw_block_table;

/* The list that serves a request, and the bytes of a fresh block for it. ERR_MEMORY when they overflow. Pure. */
tpw_status tpw_block_size(size_t request, int *list, size_t *bytes, tpw_error *err) TPW_MUST_CHECK;

tpw_status tpw_block_table_init(tpw_block_table *out, tpw_error *err) TPW_MUST_CHECK;
void tpw_block_table_fini(tpw_block_table *table); /* frees the blocks' records, not their memory */

/* add never fails: a table that cannot grow gets slower. remove leaves the record to the caller. */
void tpw_block_table_add(tpw_block_table *table, tpw_block *block);
void tpw_block_table_remove(tpw_block_table *table, tpw_block *block);
tpw_block *tpw_block_table_find(const tpw_block_table *table, const void *data); /* NULL: none begins there */

static inline bool tpw_block_used(const tpw_block *block)
{
    return block->owned || block->marks > 0 || block->list == TPW_POOL_ARENA;
}

/* Into and out of the free list of its place, list and pins: out before pins change, into after. */
void tpw_block_list_add(tpw_block_table *table, tpw_block *block);
void tpw_block_list_remove(tpw_block_table *table, tpw_block *block);

/* The free block that serves a request of `bytes` (rounded by tpw_block_size) by the rule of pool.h, pinned or not; NULL: none. */
tpw_block *tpw_block_list_pick(const tpw_block_table *table, tpw_place place, int list, size_t bytes, bool pinned);

#endif
