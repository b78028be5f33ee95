/* Sizes, free lists and the address table of the pool's blocks. SPDX-License-Identifier: Apache-2.0 */
#include "graph/pool_blocks.h"

#include <stdlib.h>

#include "base/checked.h"
#include "graph/arena.h"

#define KIB              ((size_t)1024)
#define MIB              (1024 * KIB)
#define BUCKETS_AT_FIRST 64
#define EXCESS_DIVISOR   4 /* a large block may be a quarter longer than what is asked for */

static const size_t class_bytes[TPW_POOL_CLASSES] = {32 * KIB, 256 * KIB, 1 * MIB,  2 * MIB,   4 * MIB,  8 * MIB,
                                                     16 * MIB, 32 * MIB,  64 * MIB, 128 * MIB, 256 * MIB};

tpw_status tpw_block_size(size_t request, int *list, size_t *bytes, tpw_error *err)
{
    for (int i = 0; i < TPW_POOL_CLASSES; i++)
        if (request <= class_bytes[i]) {
            *list = i;
            *bytes = class_bytes[i];
            return TPW_OK;
        }
    if (!tpw_align_size(request, TPW_ARENA_ALIGN, bytes))
        return tpw_fail(err, TPW_ERR_MEMORY, "pool: %zu bytes exceed the address space", request);
    *list = TPW_POOL_LARGE;
    return TPW_OK;
}

tpw_status tpw_block_table_init(tpw_block_table *out, tpw_error *err)
{
    *out = (tpw_block_table){.bucket_count = BUCKETS_AT_FIRST};
    out->buckets = calloc(BUCKETS_AT_FIRST, sizeof(tpw_block *));
    return out->buckets != NULL ? TPW_OK : tpw_fail(err, TPW_ERR_MEMORY, "no memory for the pool's table");
}

void tpw_block_table_fini(tpw_block_table *table)
{
    for (size_t i = 0; table->buckets != NULL && i < table->bucket_count; i++)
        for (tpw_block *b = table->buckets[i], *next; b != NULL; b = next) {
            next = b->chain;
            free(b);
        }
    free(table->buckets);
    *table = (tpw_block_table){0};
}

/* The low bits of a block's address are all alike. */
static size_t bucket_of(const void *data, size_t bucket_count)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)data / TPW_ARENA_ALIGN) * 0x9E3779B97F4A7C15ull;

    return (size_t)(mixed >> 32) & (bucket_count - 1);
}

static void grow(tpw_block_table *t)
{
    size_t wanted = 2 * t->bucket_count;
    tpw_block **buckets = calloc(wanted, sizeof(tpw_block *));

    if (buckets == NULL)
        return;
    for (size_t i = 0; i < t->bucket_count; i++)
        for (tpw_block *b = t->buckets[i], *next; b != NULL; b = next) {
            size_t to = bucket_of(b->data, wanted);

            next = b->chain;
            b->chain = buckets[to];
            buckets[to] = b;
        }
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = wanted;
}

void tpw_block_table_add(tpw_block_table *table, tpw_block *block)
{
    tpw_block **head;

    if (table->count >= table->bucket_count)
        grow(table);
    head = &table->buckets[bucket_of(block->data, table->bucket_count)];
    block->chain = *head;
    *head = block;
    table->count++;
}

void tpw_block_table_remove(tpw_block_table *table, tpw_block *block)
{
    tpw_block **at = &table->buckets[bucket_of(block->data, table->bucket_count)];

    while (*at != block)
        at = &(*at)->chain;
    *at = block->chain;
    block->chain = NULL;
    table->count--;
}

tpw_block *tpw_block_table_find(const tpw_block_table *table, const void *data)
{
    tpw_block *b = table->buckets[bucket_of(data, table->bucket_count)];

    while (b != NULL && b->data != data)
        b = b->chain;
    return b;
}

static tpw_block **list_of(tpw_block_table *t, const tpw_block *b)
{
    return &t->free_blocks[b->place][b->list][b->pins > 0];
}

void tpw_block_list_add(tpw_block_table *table, tpw_block *block)
{
    tpw_block **head = list_of(table, block);

    block->newer = NULL;
    block->older = *head;
    if (*head != NULL)
        (*head)->newer = block;
    *head = block;
}

void tpw_block_list_remove(tpw_block_table *table, tpw_block *block)
{
    if (block->newer != NULL)
        block->newer->older = block->older;
    else
        *list_of(table, block) = block->older;
    if (block->older != NULL)
        block->older->newer = block->newer;
    block->newer = block->older = NULL;
}

tpw_block *tpw_block_list_pick(const tpw_block_table *table, tpw_place place, int list, size_t bytes, bool pinned)
{
    tpw_block *head = table->free_blocks[place][list][pinned], *best = NULL;

    if (list != TPW_POOL_LARGE)
        return head;
    for (tpw_block *b = head; b != NULL; b = b->older)
        if (b->bytes >= bytes && b->bytes - bytes <= bytes / EXCESS_DIVISOR && (best == NULL || b->bytes < best->bytes))
            best = b;
    return best;
}
