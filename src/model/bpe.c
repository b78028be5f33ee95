/* Merges the bytes of one piece with a heap of candidate pairs over a linked list of symbols.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define NO_RANK UINT32_MAX

struct tpw_bpe_pair {
    uint64_t key;  /* left << 32 | right */
    uint32_t rank; /* NO_RANK: the slot is free */
};

struct tpw_bpe_symbol {
    int32_t id;
    int32_t previous; /* -1 at the ends */
    int32_t next;
    uint32_t rank; /* of the pair (this, next); NO_RANK when it does not merge or this symbol is gone */
};

/* Makes room for at least `needed` elements, growing by half so that pushes stay cheap. */
static tpw_status grow(void **data, size_t *capacity, size_t needed, size_t element, tpw_error *err)
{
    if (needed <= *capacity)
        return TPW_OK;
    size_t wanted, size;
    if (!tpw_add_size(*capacity, *capacity / 2 + 16, &wanted))
        wanted = needed;
    if (wanted < needed)
        wanted = needed;
    if (!tpw_mul_size(wanted, element, &size))
        return tpw_fail(err, TPW_ERR_LIMIT, "tokenizer: %zu elements of %zu bytes are more than memory can address",
                        wanted, element);
    void *grown = realloc(*data, size);
    if (grown == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "tokenizer: out of memory for %zu bytes", size);
    *data = grown;
    *capacity = wanted;
    return TPW_OK;
}

tpw_status tpw_ids_push(tpw_ids *ids, int32_t id, tpw_error *err)
{
    if (ids->count == ids->capacity) {
        void *data = ids->data;
        TPW_TRY(grow(&data, &ids->capacity, ids->count + 1, sizeof *ids->data, err));
        ids->data = data;
    }
    ids->data[ids->count++] = id;
    return TPW_OK;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot that holds `key`, or the free one where it belongs. The table is never full, so this ends. */
static struct tpw_bpe_pair *pair_slot(const tpw_bpe *bpe, uint64_t key)
{
    uint64_t h = key * 0x9E3779B97F4A7C15ull;
    h ^= h >> 32;
    h *= 0xBF58476D1CE4E5B9ull;
    size_t i = (size_t)(h >> 29) & bpe->mask;
    while (bpe->pairs[i].rank != NO_RANK && bpe->pairs[i].key != key)
        i = (i + 1) & bpe->mask;
    return &bpe->pairs[i];
}

tpw_status tpw_bpe_init(tpw_bpe *bpe, const int32_t byte_id[256], size_t merges_max, tpw_error *err)
{
    memset(bpe, 0, sizeof *bpe);
    if (merges_max > INT32_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "%zu merges: at most %d are supported", merges_max, INT32_MAX);
    size_t slots = 16;
    while (slots < 2 * merges_max)
        slots *= 2;
    size_t size, result_size;
    if (!tpw_mul_size(slots, sizeof *bpe->pairs, &size) ||
        !tpw_mul_size(merges_max + 1, sizeof *bpe->result, &result_size))
        return tpw_fail(err, TPW_ERR_LIMIT, "%zu merges are more than memory can address", merges_max);
    bpe->pairs = malloc(size);
    bpe->result = malloc(result_size);
    if (bpe->pairs == NULL || bpe->result == NULL) {
        tpw_bpe_fini(bpe);
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for %zu merges", merges_max);
    }
    for (size_t i = 0; i < slots; i++)
        bpe->pairs[i] = (struct tpw_bpe_pair){.key = 0, .rank = NO_RANK};
    bpe->mask = slots - 1;
    bpe->merges_max = (uint32_t)merges_max;
    memcpy(bpe->byte_id, byte_id, sizeof bpe->byte_id);
    return TPW_OK;
}

tpw_status tpw_bpe_add(tpw_bpe *bpe, int32_t left, int32_t right, int32_t result, tpw_error *err)
{
    if (bpe->merges == bpe->merges_max)
        return tpw_fail(err, TPW_ERR_INTERNAL, "a merge more than the %u that were announced", bpe->merges_max);
    uint64_t key = pair_key(left, right);
    struct tpw_bpe_pair *slot = pair_slot(bpe, key);
    if (slot->rank != NO_RANK)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "merges[%u] joins the same two tokens (ids %d and %d) as merges[%u]",
                        bpe->merges, left, right, slot->rank);
    slot->key = key;
    slot->rank = bpe->merges;
    bpe->result[bpe->merges++] = result;
    return TPW_OK;
}

void tpw_bpe_fini(tpw_bpe *bpe)
{
    free(bpe->pairs);
    free(bpe->result);
    memset(bpe, 0, sizeof *bpe);
}

void tpw_bpe_work_fini(tpw_bpe_work *work)
{
    free(work->symbols);
    free(work->heap);
    memset(work, 0, sizeof *work);
}

static tpw_status heap_push(tpw_bpe_work *work, uint64_t key, tpw_error *err)
{
    if (work->heap_count == work->heap_capacity) {
        void *data = work->heap;
        TPW_TRY(grow(&data, &work->heap_capacity, work->heap_count + 1, sizeof *work->heap, err));
        work->heap = data;
    }
    size_t i = work->heap_count++;
    while (i > 0 && work->heap[(i - 1) / 2] > key) {
        work->heap[i] = work->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    work->heap[i] = key;
    return TPW_OK;
}

/* Takes the smallest key out of a heap that is not empty. */
static uint64_t heap_pop(tpw_bpe_work *work)
{
    uint64_t *heap = work->heap;
    uint64_t top = heap[0];
    uint64_t last = heap[--work->heap_count];
    size_t count = work->heap_count, i = 0;
    for (size_t child = 1; child < count; child = 2 * i + 1) {
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Looks up the pair that starts at `position` and makes it a candidate. */
static tpw_status consider(const tpw_bpe *bpe, tpw_bpe_work *work, int32_t position, tpw_error *err)
{
    struct tpw_bpe_symbol *symbol = &work->symbols[position];
    symbol->rank = NO_RANK;
    if (symbol->next < 0)
        return TPW_OK;
    symbol->rank = pair_slot(bpe, pair_key(symbol->id, work->symbols[symbol->next].id))->rank;
    if (symbol->rank == NO_RANK)
        return TPW_OK;
    return heap_push(work, (uint64_t)symbol->rank << 32 | (uint32_t)position, err);
}

static tpw_status merge_all(const tpw_bpe *bpe, tpw_bpe_work *work, tpw_error *err)
{
    struct tpw_bpe_symbol *symbols = work->symbols;
    while (work->heap_count > 0) {
        uint64_t key = heap_pop(work);
        uint32_t rank = (uint32_t)(key >> 32);
        int32_t position = (int32_t)(uint32_t)key;
        struct tpw_bpe_symbol *left = &symbols[position];
        /* a rank stands for one pair of ids, so an entry is stale exactly when the rank is another now */
        if (left->rank != rank)
            continue;
        struct tpw_bpe_symbol *right = &symbols[left->next];
        left->id = bpe->result[rank];
        left->next = right->next;
        right->rank = NO_RANK;
        if (left->next >= 0)
            symbols[left->next].previous = position;
        if (left->previous >= 0)
            TPW_TRY(consider(bpe, work, left->previous, err));
        TPW_TRY(consider(bpe, work, position, err));
    }
    return TPW_OK;
}

tpw_status tpw_bpe_encode(const tpw_bpe *bpe, tpw_bpe_work *work, const char *piece, size_t bytes, tpw_ids *ids,
                          tpw_error *err)
{
    if (bytes == 0)
        return TPW_OK;
    if (bytes >= INT32_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "a piece of %zu bytes: at most %d are supported", bytes, INT32_MAX - 1);
    void *data = work->symbols;
    TPW_TRY(grow(&data, &work->symbols_capacity, bytes, sizeof *work->symbols, err));
    work->symbols = data;
    work->heap_count = 0; /* a failed call may have left some */

    int32_t count = (int32_t)bytes;
    for (int32_t i = 0; i < count; i++)
        work->symbols[i] = (struct tpw_bpe_symbol){.id = bpe->byte_id[(unsigned char)piece[i]],
                                                   .previous = i - 1,
                                                   .next = i + 1 < count ? i + 1 : -1,
                                                   .rank = NO_RANK};
    for (int32_t i = 0; i < count; i++)
        TPW_TRY(consider(bpe, work, i, err));
    TPW_TRY(merge_all(bpe, work, err));
    for (int32_t i = 0; i >= 0; i = work->symbols[i].next) /* the first symbol is never merged away */
        TPW_TRY(tpw_ids_push(ids, work->symbols[i].id, err));
    return TPW_OK;
}
