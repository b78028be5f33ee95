/* Who owns which state slot and KV page. The same calls in the same order give the same ids on every rank.
 *
 * Slot 0 and page 0 never leave the ledger. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_LEDGER_H
#define TPW_WORKER_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct tpw_ledger {
    int32_t slots; /* in all, without slot 0 */
    int32_t pages;
    int32_t *free_slots; /* stacks; the top is given next */
    int32_t *free_pages;
    int32_t slots_free;
    int32_t pages_free;
    uint8_t *slot_used; /* [slots + 1] */
    uint8_t *page_used; /* [pages + 1] */
} tpw_ledger;

tpw_status tpw_ledger_init(tpw_ledger *out, int32_t slots, int32_t pages, tpw_error *err) TPW_MUST_CHECK;
void tpw_ledger_fini(tpw_ledger *ledger);

/* Takes one slot and `count` pages, all or nothing. False when they are not there. */
bool tpw_ledger_take(tpw_ledger *ledger, int32_t *slot, int32_t *pages, int32_t count);

/* Gives them back. ERR_INTERNAL for an id that is foreign or already free; then nothing is changed. */
tpw_status tpw_ledger_give(tpw_ledger *ledger, int32_t slot, const int32_t *pages, int32_t count,
                           tpw_error *err) TPW_MUST_CHECK;

#endif
