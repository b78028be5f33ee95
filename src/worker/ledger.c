/* Who owns which state slot and KV page. SPDX-License-Identifier: Apache-2.0 */
#include "worker/ledger.h"

#include <stdlib.h>
#include <string.h>

tpw_status tpw_ledger_init(tpw_ledger *out, int32_t slots, int32_t pages, tpw_error *err)
{
    *out = (tpw_ledger){.slots = slots, .pages = pages};
    out->free_slots = malloc((size_t)slots * sizeof *out->free_slots);
    out->free_pages = malloc((size_t)pages * sizeof *out->free_pages);
    out->slot_used = calloc((size_t)slots + 1, 1);
    out->page_used = calloc((size_t)pages + 1, 1);
    if (out->free_slots == NULL || out->free_pages == NULL || out->slot_used == NULL || out->page_used == NULL) {
        tpw_ledger_fini(out);
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the ledger of %d slots and %d pages", slots, pages);
    }
    while (out->slots_free < slots) {
        out->free_slots[out->slots_free] = slots - out->slots_free; /* lowest id on top */
        out->slots_free++;
    }
    while (out->pages_free < pages) {
        out->free_pages[out->pages_free] = pages - out->pages_free;
        out->pages_free++;
    }
    return TPW_OK;
}

void tpw_ledger_fini(tpw_ledger *ledger)
{
    free(ledger->free_slots);
    free(ledger->free_pages);
    free(ledger->slot_used);
    free(ledger->page_used);
    *ledger = (tpw_ledger){0};
}

bool tpw_ledger_take(tpw_ledger *ledger, int32_t *slot, int32_t *pages, int32_t count)
{
    if (count < 0 || ledger->slots_free < 1 || ledger->pages_free < count)
        return false;
    *slot = ledger->free_slots[--ledger->slots_free];
    ledger->slot_used[*slot] = 1;
    for (int32_t i = 0; i < count; i++) {
        pages[i] = ledger->free_pages[--ledger->pages_free];
        ledger->page_used[pages[i]] = 1;
    }
    return true;
}

/* True when every page is owned and none is named twice; the marks are left as they were. */
static bool all_owned(tpw_ledger *ledger, const int32_t *pages, int32_t count)
{
    int32_t seen = 0;
    bool good;

    while (seen < count && pages[seen] >= 1 && pages[seen] <= ledger->pages && ledger->page_used[pages[seen]] == 1)
        ledger->page_used[pages[seen++]] = 2;
    good = seen == count;
    while (seen > 0)
        ledger->page_used[pages[--seen]] = 1;
    return good;
}

tpw_status tpw_ledger_give(tpw_ledger *ledger, int32_t slot, const int32_t *pages, int32_t count, tpw_error *err)
{
    if (slot < 1 || slot > ledger->slots || !ledger->slot_used[slot])
        return tpw_fail(err, TPW_ERR_INTERNAL, "slot %d is given back but not in use", slot);
    if (!all_owned(ledger, pages, count))
        return tpw_fail(err, TPW_ERR_INTERNAL, "a KV page of slot %d is given back but not in use", slot);
    ledger->slot_used[slot] = 0;
    ledger->free_slots[ledger->slots_free++] = slot;
    for (int32_t i = count - 1; i >= 0; i--) {
        ledger->page_used[pages[i]] = 0;
        ledger->free_pages[ledger->pages_free++] = pages[i];
    }
    return TPW_OK;
}
