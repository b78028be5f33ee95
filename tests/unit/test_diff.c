/* Tests of the comparison of two traces, on traces made by hand. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cli/diff.h"

#define ENTRIES 8

/* A trace of `ranks` ranks whose entries' rank values are all the entry's global. */
typedef struct trace {
    tpw_trace_file file;
    tpw_trace_entry entry[ENTRIES];
    uint64_t ranks[ENTRIES * 4];
} trace;

static void make(trace *t, int32_t ranks, const tpw_trace_entry *entries, size_t count)
{
    *t = (trace){.file = {.head = {.ranks = ranks, .k = 0, .drafter = "none"}, .count = count}};
    for (size_t i = 0; i < count; i++) {
        t->entry[i] = entries[i];
        t->entry[i].ranks = i * (size_t)ranks;
        for (int32_t r = 0; r < ranks; r++)
            t->ranks[i * (size_t)ranks + (size_t)r] = entries[i].global;
    }
    t->file.entry = t->entry;
    t->file.ranks = t->ranks;
}

/* Sorted: sequence, position, layer, scope. */
static const tpw_trace_entry base[] = {
    {.seq = 0, .pos = 3, .layer = 0, .scope = TPW_TRACE_CONV, .global = 1},
    {.seq = 0, .pos = 3, .layer = 0, .scope = TPW_TRACE_HIDDEN, .global = 2},
    {.seq = 0, .pos = 3, .layer = -1, .scope = TPW_TRACE_TOKENS, .global = 3},
    {.seq = 0, .pos = 9, .layer = 0, .scope = TPW_TRACE_CONV, .global = 4},
    {.seq = 1, .pos = 3, .layer = 0, .scope = TPW_TRACE_HIDDEN, .global = 5},
    {.seq = 1, .pos = 4, .layer = -1, .scope = TPW_TRACE_MTP, .global = 6},
};

Test(diff, equal_traces_of_other_rank_counts_are_equal)
{
    trace a;
    trace b;
    tpw_diff d;
    make(&a, 1, base, 6);
    make(&b, 4, base, 6);
    tpw_diff_make(&a.file, &b.file, &d);
    cr_assert(tpw_diff_equal(&d));
    cr_assert_eq(d.compared, 6u);
    cr_assert_eq(d.only_a + d.only_b + d.passed_over, 0u);
    cr_assert_null(d.first_a);
    cr_assert_eq(d.scope[TPW_TRACE_CONV].compared, 2u);
    cr_assert_eq(d.scope[TPW_TRACE_HIDDEN].compared, 2u);
}

Test(diff, the_first_difference_is_the_earliest_position_then_the_lowest_layer)
{
    trace a;
    trace b;
    tpw_diff d;
    char text[64];
    make(&a, 2, base, 6);
    make(&b, 2, base, 6);
    b.entry[3].global = 40; /* sequence 0, position 9 */
    b.entry[2].global = 30; /* tokens at position 3: behind the layers */
    b.entry[4].global = 50; /* sequence 1, hidden of layer 0 at position 3 */
    b.ranks[4 * 2 + 1] = 50;
    tpw_diff_make(&a.file, &b.file, &d);
    cr_assert_not(tpw_diff_equal(&d));
    cr_assert_eq(d.unequal, 3u);
    cr_assert_eq(d.first_a, &a.entry[4]);
    cr_assert_eq(d.first_b, &b.entry[4]);
    cr_assert_eq(d.scope[TPW_TRACE_CONV].unequal, 1u);
    cr_assert_eq(d.scope[TPW_TRACE_TOKENS].unequal, 1u);
    cr_assert_eq(tpw_diff_ranks_between(&a.file, d.first_a, &b.file, d.first_b, text, sizeof text), 1);
    cr_assert_str_eq(text, "1");
    /* the rank values of this record differ among themselves, too */
    cr_assert_eq(d.split_b.records, 1u);
    cr_assert_eq(d.split_b.first, &b.entry[4]);
    cr_assert_eq(d.split_a.records, 0u);
    tpw_trace_entry_name(d.first_a, text, sizeof text);
    cr_assert_str_eq(text, "hidden of layer 0");
    tpw_trace_entry_name(&a.entry[2], text, sizeof text);
    cr_assert_str_eq(text, "tokens");
}

/* K and trace-every leave other positions in the two. */
Test(diff, what_has_no_twin_is_counted_not_compared)
{
    trace a;
    trace b;
    tpw_diff d;
    make(&a, 1, base, 4);
    make(&b, 1, base + 3, 3);
    b.entry[1].global = 99; /* no twin: no difference */
    tpw_diff_make(&a.file, &b.file, &d);
    cr_assert(tpw_diff_equal(&d));
    cr_assert_eq(d.compared, 1u);
    cr_assert_eq(d.only_a, 3u);
    cr_assert_eq(d.only_b, 2u);
    make(&b, 1, base, 0);
    tpw_diff_make(&a.file, &b.file, &d);
    cr_assert_eq(d.compared, 0u);
    cr_assert_eq(d.only_a, 4u);
}

Test(diff, drafts_count_only_where_they_are_the_same_thing)
{
    trace a;
    trace b;
    tpw_diff d;
    make(&a, 1, base, 6);
    make(&b, 1, base, 6);
    b.entry[5].global = 60;
    b.file.head.k = 4;
    tpw_diff_make(&a.file, &b.file, &d);
    cr_assert(tpw_diff_equal(&d));
    cr_assert_eq(d.passed_over, 1u);
    cr_assert_eq(d.compared, 5u);
    a.file.head.k = 4;
    tpw_diff_make(&a.file, &b.file, &d);
    cr_assert_not(tpw_diff_equal(&d));
    cr_assert_eq(d.first_a, &a.entry[5]);
}

/* Ranks that hold shards differ by nature; replicated ones must not. */
Test(diff, ranks_apart_inside_one_trace_are_a_difference_of_replicated_scopes_only)
{
    trace a;
    trace b;
    tpw_diff d;
    char text[64];
    make(&a, 4, base, 6);
    make(&b, 4, base, 6);
    b.ranks[0 * 4 + 2] = 77; /* conv */
    tpw_diff_make(&a.file, &b.file, &d);
    cr_assert(tpw_diff_equal(&d));
    b.ranks[1 * 4 + 2] = 77; /* hidden */
    b.ranks[1 * 4 + 3] = 78;
    tpw_diff_make(&a.file, &b.file, &d);
    cr_assert_not(tpw_diff_equal(&d));
    cr_assert_eq(d.unequal, 0u);
    cr_assert_eq(tpw_diff_ranks_apart(&b.file, d.split_b.first, text, sizeof text), 2);
    cr_assert_str_eq(text, "2, 3");
}
