/* The control record: round trip, and no read outside a cut or mangled one. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "worker/control.h"

static void fill(tpw_control *c, int32_t *ids, int32_t n)
{
    const tpw_request r = {
        .size = sizeof r, .id = 0xFFFFFFFFFFFFFFFEull, .ids = ids, .count = n, .max_tokens = 7, .ignore_eos = true};
    const tpw_request one = {.size = sizeof r, .id = 2, .ids = ids, .count = 1, .max_tokens = 1};
    tpw_error err = {0};

    cr_assert_eq(tpw_control_add_admit(c, &r, &err), TPW_OK);
    cr_assert_eq(tpw_control_add_cancel(c, 41, &err), TPW_OK);
    cr_assert_eq(tpw_control_add_admit(c, &one, &err), TPW_OK);
}

Test(control, round_trip)
{
    tpw_control c = {0};
    tpw_control_entry e;
    tpw_control_head head;
    tpw_error err = {0};
    size_t at = 0;
    int32_t ids[3001];

    for (int i = 0; i < 3001; i++)
        ids[i] = i * 7;
    fill(&c, ids, 3001);
    head = tpw_control_make_head(&c, 12);
    cr_assert(head.entries == 3 && head.bytes == c.bytes && head.step == 12 && head.stop == 0);
    cr_assert_eq(tpw_control_check_head(&head, 12, &err), TPW_OK);
    cr_assert_eq(tpw_control_check_head(&head, 13, &err), TPW_ERR_DIVERGED);
    head.version++;
    cr_assert_eq(tpw_control_check_head(&head, 12, &err), TPW_ERR_DIVERGED);
    cr_assert_eq(tpw_control_next(c.data, c.bytes, &at, &e, &err), TPW_OK);
    cr_assert(!e.cancel && e.request.id == 0xFFFFFFFFFFFFFFFEull && e.request.count == 3001 &&
              e.request.max_tokens == 7);
    cr_assert(e.request.ignore_eos && memcmp(e.request.ids, ids, sizeof ids) == 0);
    cr_assert_eq(tpw_control_next(c.data, c.bytes, &at, &e, &err), TPW_OK);
    cr_assert(e.cancel && e.id == 41);
    cr_assert_eq(tpw_control_next(c.data, c.bytes, &at, &e, &err), TPW_OK);
    cr_assert(!e.cancel && e.request.id == 2 && e.request.count == 1 && !e.request.ignore_eos);
    cr_assert_eq(at, c.bytes);
    cr_assert_eq(tpw_control_next(c.data, c.bytes, &at, &e, &err), TPW_ERR_INTERNAL, "nothing is left");
    tpw_control_clear(&c);
    cr_assert(tpw_control_make_head(&c, 0).bytes == 0);
    tpw_control_fini(&c);
}

/* Decodes until an error or the end; the sanitizer build sees any read outside. */
static void decode_all(const unsigned char *data, size_t bytes)
{
    tpw_control_entry e;
    size_t at = 0;
    long sum = 0;

    while (at < bytes && tpw_control_next(data, bytes, &at, &e, NULL) == TPW_OK)
        for (int32_t i = 0; !e.cancel && i < e.request.count; i++)
            sum += e.request.ids[i];
    cr_assert_leq(at, bytes + 24);
    (void)sum;
}

Test(control, cut_and_mangled)
{
    tpw_control c = {0};
    int32_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

    fill(&c, ids, 9);
    for (size_t n = 0; n < c.bytes; n++) {
        unsigned char *cut = malloc(n + 1);
        size_t at = 0;
        tpw_control_entry e;
        int good = 0;

        memcpy(cut, c.data, n);
        cut = realloc(cut, n > 0 ? n : 1);
        while (tpw_control_next(cut, n, &at, &e, NULL) == TPW_OK)
            good++;
        cr_assert_lt(good, 3, "a cut record must not decode whole");
        free(cut);
    }
    srand(3);
    for (int i = 0; i < 20000; i++) {
        unsigned char *bad = malloc(c.bytes);

        memcpy(bad, c.data, c.bytes);
        for (int k = 0; k < 3; k++)
            bad[(size_t)rand() % c.bytes] = (unsigned char)rand();
        decode_all(bad, c.bytes);
        free(bad);
    }
    tpw_control_fini(&c);
}
