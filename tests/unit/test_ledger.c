/* Slots and pages: never handed out twice, all come back, foreign ids refused. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "worker/ledger.h"

#define SLOTS 5
#define PAGES 40

typedef struct held {
    int32_t slot;
    int32_t pages[PAGES];
    int32_t count;
} held;

Test(ledger, random_against_a_model)
{
    tpw_ledger l;
    tpw_error err = {0};
    held now[SLOTS];
    int held_count = 0, owner[PAGES + 1] = {0}, slot_owner[SLOTS + 1] = {0}, pages_free = PAGES;

    cr_assert_eq(tpw_ledger_init(&l, SLOTS, PAGES, &err), TPW_OK);
    srand(7);
    for (int i = 0; i < 50000; i++) {
        if (held_count > 0 && rand() % 2 == 0) {
            int k = rand() % held_count;

            cr_assert_eq(tpw_ledger_give(&l, now[k].slot, now[k].pages, now[k].count, &err), TPW_OK, "%s", err.text);
            slot_owner[now[k].slot] = 0;
            for (int32_t p = 0; p < now[k].count; p++)
                owner[now[k].pages[p]] = 0;
            pages_free += now[k].count;
            now[k] = now[--held_count];
            continue;
        }
        held h = {.count = rand() % 20};
        bool fits = held_count < SLOTS && h.count <= pages_free;

        cr_assert_eq(tpw_ledger_take(&l, &h.slot, h.pages, h.count), fits);
        if (!fits)
            continue;
        cr_assert(h.slot >= 1 && h.slot <= SLOTS && !slot_owner[h.slot]++);
        for (int32_t p = 0; p < h.count; p++)
            cr_assert(h.pages[p] >= 1 && h.pages[p] <= PAGES && !owner[h.pages[p]]++, "page %d twice", h.pages[p]);
        pages_free -= h.count;
        now[held_count++] = h;
    }
    while (held_count-- > 0)
        cr_assert_eq(tpw_ledger_give(&l, now[held_count].slot, now[held_count].pages, now[held_count].count, &err),
                     TPW_OK);
    cr_assert(l.slots_free == SLOTS && l.pages_free == PAGES);
    tpw_ledger_fini(&l);
}

Test(ledger, foreign_and_double)
{
    tpw_ledger l;
    tpw_error err = {0};
    int32_t slot, pages[3];

    cr_assert_eq(tpw_ledger_init(&l, 2, 4, &err), TPW_OK);
    cr_assert(tpw_ledger_take(&l, &slot, pages, 3));
    cr_assert(slot == 1 && pages[0] == 1 && pages[2] == 3, "lowest ids first, on every rank");
    const int32_t twice[] = {1, 2, 2}, foreign[] = {1, 2, 4}, outside[] = {1, 2, 99}, zero[] = {0, 1, 2};
    const int32_t *bad[] = {twice, foreign, outside, zero};

    for (int i = 0; i < 4; i++) {
        cr_assert_eq(tpw_ledger_give(&l, slot, bad[i], 3, &err), TPW_ERR_INTERNAL);
        cr_assert(l.slots_free == 1 && l.pages_free == 1, "nothing changed");
    }
    cr_assert_eq(tpw_ledger_give(&l, 2, pages, 3, &err), TPW_ERR_INTERNAL);
    cr_assert_eq(tpw_ledger_give(&l, 0, pages, 3, &err), TPW_ERR_INTERNAL);
    cr_assert_eq(tpw_ledger_give(&l, slot, pages, 3, &err), TPW_OK);
    cr_assert_eq(tpw_ledger_give(&l, slot, pages, 3, &err), TPW_ERR_INTERNAL, "double");
    tpw_ledger_fini(&l);
}
