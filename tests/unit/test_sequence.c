/* The table of sequences: order, reservation, removal. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "worker/events.h"
#include "worker/options.h"
#include "worker/sequence.h"

static void add(tpw_sequences *s, uint64_t id, int32_t prompt, int32_t max_tokens)
{
    static int32_t ids[4096];
    const tpw_request r = {.size = sizeof r, .id = id, .ids = ids, .count = prompt, .max_tokens = max_tokens};
    tpw_error err = {0};

    cr_assert_eq(tpw_sequences_add(s, &r, &err), TPW_OK, "%s", err.text);
}

Test(sequence, pages_needed)
{
    cr_assert_eq(tpw_pages_needed(63, 1, 0, 64), 1);
    cr_assert_eq(tpw_pages_needed(64, 1, 0, 64), 2);
    cr_assert_eq(tpw_pages_needed(1, 1, 8, 1), 10);
    cr_assert_eq(tpw_pages_needed((int64_t)1 << 40, 1, 0, 1), INT32_MAX);
}

Test(sequence, first_in_line_is_never_overtaken)
{
    tpw_sequences s;
    tpw_error err = {0};

    cr_assert_eq(tpw_sequences_init(&s, 3, 10, 64, 4, 0, &err), TPW_OK);
    add(&s, 1, 300, 20); /* 5 pages */
    add(&s, 2, 500, 12); /* 8 pages: must wait */
    add(&s, 3, 10, 10);  /* 1 page: would fit, must not overtake */
    tpw_sequences_start(&s);
    cr_assert(s.running_count == 1 && s.waiting_count == 2 && s.running[0]->id == 1 && s.ledger.pages_free == 5);
    cr_assert(tpw_sequences_find(&s, 3) != NULL && tpw_sequences_find(&s, 4) == NULL);
    cr_assert_eq(tpw_sequences_remove(&s, tpw_sequences_find(&s, 1), &err), TPW_OK);
    tpw_sequences_start(&s);
    cr_assert(s.running_count == 2 && s.waiting_count == 0 && s.running[0]->id == 2 && s.running[1]->id == 3);
    cr_assert(s.running[0]->slot != s.running[1]->slot);
    add(&s, 5, 10, 10);
    cr_assert_eq(tpw_sequences_remove(&s, tpw_sequences_find(&s, 5), &err), TPW_OK, "a waiting one");
    cr_assert_eq(tpw_sequences_remove(&s, tpw_sequences_find(&s, 2), &err), TPW_OK);
    cr_assert(s.running_count == 1 && s.running[0]->id == 3);
    cr_assert_eq(tpw_sequences_remove(&s, tpw_sequences_find(&s, 3), &err), TPW_OK);
    cr_assert(s.ledger.pages_free == 10 && s.ledger.slots_free == 3 && s.waiting_count == 0);
    add(&s, 6, 10, 10); /* left to fini: the sanitizer build sees a leak */
    tpw_sequences_fini(&s);
}

Test(sequence, events_keep_order_while_the_ring_grows)
{
    tpw_events q = {0};
    tpw_event e;
    tpw_error err = {0};
    int in = 0, out = 0;

    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 3; i++) {
            tpw_event push = {.type = TPW_EVENT_TOKEN, .token = in++};

            if (in % 10 == 0) {
                push.type = TPW_EVENT_FINISHED;
                push.digests = malloc(sizeof *push.digests);
                push.digest_count = 1;
            }
            cr_assert_eq(tpw_events_push(&q, &push, &err), TPW_OK);
        }
        cr_assert(tpw_events_pop(&q, &e) && e.token == out++);
    }
    while (tpw_events_pop(&q, &e))
        cr_assert_eq(e.token, out++);
    cr_assert_eq(in, out);
    cr_assert_not(tpw_events_pop(&q, &e));
    tpw_events_fini(&q);
}

Test(sequence, options_init_and_macro_agree)
{
    tpw_options a, b = TPW_OPTIONS_INIT;

    memset(&a, 0x5A, sizeof a);
    tpw_options_init(&a);
    cr_assert(a.size == b.size && a.model == b.model && a.dummy == b.dummy && a.compute == b.compute);
    cr_assert(a.sequences_max == b.sequences_max && a.rows_max == b.rows_max && a.chunk == b.chunk);
    cr_assert(a.page_size == b.page_size && a.pages == b.pages && a.context_max == b.context_max);
    cr_assert(a.timeout_ms == b.timeout_ms && a.isa == b.isa && a.binding == b.binding && a.log == b.log);
    cr_assert(a.log_level == b.log_level && a.progress == b.progress && a.dummy_vocab == b.dummy_vocab);
}

Test(sequence, options_are_range_checked)
{
    const size_t fields[] = {offsetof(tpw_options, sequences_max), offsetof(tpw_options, rows_max),
                             offsetof(tpw_options, chunk), offsetof(tpw_options, page_size)};
    const int32_t bad[] = {0, -1, INT32_MIN, INT32_MAX};

    for (size_t f = 0; f < 4; f++)
        for (size_t v = 0; v < 4; v++) {
            tpw_options o = TPW_OPTIONS_INIT;
            tpw_settings s;
            tpw_error err = {0};

            o.model = "x";
            memcpy((char *)&o + fields[f], &bad[v], sizeof bad[v]);
            cr_assert_eq(tpw_settings_init(&s, &o, &err), TPW_ERR_ARGUMENT);
            cr_assert_gt(strlen(err.text), 0);
            tpw_settings_fini(&s);
        }
}

/* How many of the listed settings differ. */
static int listed_differences(const tpw_settings *a, const tpw_settings *b)
{
    int count = 0;

    for (int i = 0; i < TPW_SETTINGS_COUNT; i++) {
        int64_t x, y;

        cr_assert_str_eq(tpw_settings_list(a, i, &x), tpw_settings_list(b, i, &y));
        count += x != y;
    }
    return count;
}

Test(sequence, options_need_one_model_and_digest_what_must_agree)
{
    tpw_options o = TPW_OPTIONS_INIT;
    tpw_settings s, t;
    tpw_error err = {0};

    cr_assert_eq(tpw_settings_init(&s, &o, &err), TPW_ERR_ARGUMENT, "neither");
    o.model = "a";
    o.dummy = "b";
    cr_assert_eq(tpw_settings_init(&s, &o, &err), TPW_ERR_ARGUMENT, "both");
    o.dummy = NULL;
    cr_assert_eq(tpw_settings_init(&s, &o, &err), TPW_OK);
    o.model = "elsewhere";
    cr_assert_eq(tpw_settings_init(&t, &o, &err), TPW_OK);
    cr_assert_eq(listed_differences(&s, &t), 0, "a path may differ between hosts");
    tpw_settings_fini(&t);
    o.chunk++;
    cr_assert_eq(tpw_settings_init(&t, &o, &err), TPW_OK);
    cr_assert_eq(listed_differences(&s, &t), 1, "the chunk alone");
    tpw_settings_fini(&t);
    tpw_settings_fini(&s);
    o.page_size = 48;
    cr_assert_eq(tpw_settings_init(&s, &o, &err), TPW_ERR_ARGUMENT);
    tpw_settings_fini(&s);
    o.page_size = 64;
    o.rows_max = 4;
    cr_assert_eq(tpw_settings_init(&s, &o, &err), TPW_ERR_ARGUMENT, "fewer rows than sequences");
    tpw_settings_fini(&s);
}
