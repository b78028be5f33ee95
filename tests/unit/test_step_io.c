/* Tests of the block that a step sends and fetches. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "model/step_io.h"

static const tpw_io_limits limits[] = {{1, 1, 1, 0, 1, 1}, {256, 72, 8, 8, 8, 64}, {33, 12, 3, 3, 2, 5}};

/* Places in tokens follow each other without a gap, known ones first. */
Test(step_io, tokens)
{
    for (int n = 0; n < 3; n++) {
        const tpw_io_limits *l = &limits[n];
        int32_t at = l->rows;

        for (int32_t i = 0; i < l->entries; i++)
            cr_assert_eq(tpw_io_behind(l, i), at++);
        for (int32_t i = 0; i < l->entries; i++)
            for (int32_t d = 0; d < TPW_DRAFT_MAX; d++)
                cr_assert_eq(tpw_io_draft(l, i, d), at++);
        for (int32_t i = 0; i < l->logits; i++)
            cr_assert_eq(tpw_io_best(l, i), at++);
        cr_assert_eq(tpw_io_tokens(l), at);
    }
}

/* The same layout wherever it is carved, and what is sent ends before what is fetched begins. */
Test(step_io, the_same_layout_in_two_places)
{
    for (int n = 0; n < 3; n++) {
        const tpw_io_limits *l = &limits[n];
        tpw_step_io a, b;
        tpw_error err = {0};
        size_t bytes = 0;

        cr_assert_eq(tpw_step_io_bytes(l, &bytes, &err), TPW_OK, "%s", err.text);
        char *memory = calloc(3, bytes);
        tpw_arena first = {.base = (uint8_t *)memory, .bytes = bytes},
                  second = {.base = (uint8_t *)memory, .bytes = 3 * bytes, .used = bytes};

        tpw_step_io_carve(l, &first, &a);
        cr_assert_eq(tpw_arena_check(&first, "block", &err), TPW_OK);
        cr_assert_eq(first.used, bytes);
        cr_assert(tpw_step_io_sent(l, &a) < bytes);
        (void)tpw_arena_take(&second, 1, 1); /* begins where an arena may begin */
        tpw_step_io_carve(l, &second, &b);
        cr_assert_eq(tpw_step_io_sent(l, &a), tpw_step_io_sent(l, &b));
        cr_assert_eq((char *)a.hidden - (char *)a.agree, (char *)b.hidden - (char *)b.agree);
        cr_assert_eq((char *)a.records - (char *)a.tokens, (char *)b.records - (char *)b.tokens);
        cr_assert_eq(tpw_io_records(l, &a, l->drafts) - a.records,
                     (int64_t)l->drafts * l->ranks * (1 + (int64_t)l->entries));
        cr_assert((char *)(tpw_io_records(l, &a, l->drafts) + (int64_t)l->ranks * (1 + (int64_t)l->logits)) <=
                  (char *)a.hidden);
        free(memory);
    }
}

Test(step_io, what_does_not_fit)
{
    const tpw_io_limits l = {INT32_MAX, INT32_MAX, INT32_MAX, 8, INT32_MAX, INT32_MAX};
    tpw_error err = {0};
    size_t bytes;

    cr_assert_eq(tpw_step_io_bytes(&l, &bytes, &err), TPW_ERR_LIMIT, "%s", err.text);
}
