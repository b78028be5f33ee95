/* Tests of the matrix of verify: its cells, their comparison, the report for build servers. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd_probe.h"
#include "cli/verify.h"

static bool has(const tpw_cell *cells, int count, const char *name)
{
    char text[TPW_CELL_NAME_MAX];
    for (int i = 0; i < count; i++) {
        tpw_cell_name(&cells[i], text);
        if (strcmp(text, name) == 0)
            return true;
    }
    return false;
}

Test(verify, the_fixed_cells_change_one_setting_at_a_time)
{
    static const char *const wanted[] = {
        "tp 2, K 0, batch 1, chunk whole, page 64",
        "tp 4, K 0, batch 1, chunk whole, page 64",
        "tp 1, K 1 (mtp), batch 1, chunk whole, page 64",
        "tp 1, K 3 (mtp), batch 1, chunk whole, page 64",
        "tp 1, K 4 (mtp), batch 1, chunk whole, page 64",
        "tp 1, K 0, batch 8, chunk whole, page 64",
        "tp 1, K 0, batch 1, chunk 1, page 64",
        "tp 1, K 0, batch 1, chunk 7, page 64",
        "tp 1, K 0, batch 1, chunk 64, page 64",
        "tp 1, K 0, batch 1, chunk whole, page 16",
        "tp 1, K 3 (random), batch 1, chunk whole, page 64",
        "tp 1, K 3 (oracle), batch 1, chunk whole, page 64",
        "tp 4, K 3 (mtp), batch 8, chunk whole, page 64",
    };
    const tpw_cell_space space = {.ranks = 5, .mtp = true};
    char first[TPW_CELL_NAME_MAX];
    int count;
    tpw_cell *cells = tpw_cells_make(&space, 0, 1, &count);
    cr_assert_not_null(cells);
    tpw_cell_name(&cells[0], first);
    cr_assert_str_eq(first, "tp 1, K 0, batch 1, chunk whole, page 64");
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        cr_assert(has(cells, count, wanted[i]), "%s", wanted[i]);
    for (int i = 0; i < count; i++)
        cr_assert_leq(cells[i].tp, 4, "5 ranks run sizes 1, 2 and 4");
    free(cells);
}

Test(verify, random_cells_follow_from_the_seed_and_repeat_nothing)
{
    const tpw_cell_space space = {.ranks = 2, .mtp = false};
    int fixed;
    int counts[3];
    tpw_cell *plain = tpw_cells_make(&space, 0, 1, &fixed);
    tpw_cell *cells[3] = {tpw_cells_make(&space, 40, 1, &counts[0]), tpw_cells_make(&space, 40, 1, &counts[1]),
                          tpw_cells_make(&space, 40, 2, &counts[2])};
    int other = 0;
    cr_assert_eq(counts[0], fixed + 40);
    cr_assert_eq(counts[2], fixed + 40);
    for (int i = 0; i < counts[0]; i++) {
        char a[TPW_CELL_NAME_MAX];
        char b[TPW_CELL_NAME_MAX];
        tpw_cell_name(&cells[0][i], a);
        tpw_cell_name(&cells[1][i], b);
        cr_assert_str_eq(a, b);
        tpw_cell_name(&cells[2][i], b);
        other += strcmp(a, b) != 0;
        cr_assert(cells[0][i].k == 0 || cells[0][i].drafter != TPW_CELL_MTP, "there is no MTP module");
        cr_assert_leq(cells[0][i].tp, 2);
        for (int j = 0; j < i; j++) {
            tpw_cell_name(&cells[0][j], b);
            cr_assert_str_neq(a, b);
        }
    }
    cr_assert_gt(other, 20, "another seed, other cells");
    for (int i = 0; i < 3; i++)
        free(cells[i]);
    free(plain);
    /* all there are: 1 size, 2 batches, 4 chunks, 2 pages; K 0 once, three K with two drafters */
    const tpw_cell_space small = {.ranks = 1, .mtp = false};
    int all;
    tpw_cell *every = tpw_cells_make(&small, 10000, 3, &all);
    cr_assert_eq(all, 2 * 4 * 2 * (1 + 3 * 2));
    free(every);
}

/* Two sequences of two tokens with the digests of one layer. */
static void fill(tpw_results *r)
{
    cr_assert_eq(tpw_results_init(r, 2, NULL, NULL), TPW_OK);
    for (size_t i = 0; i < 2; i++) {
        tpw_scope_digest digests[] = {{.scope = "tokens", .layer = -1, .global = 1 + i},
                                      {.scope = "hidden", .layer = 0, .global = 2},
                                      {.scope = "conv", .layer = 0, .global = 3},
                                      {.scope = "recurrent", .layer = 0, .global = 4},
                                      {.scope = "mtp", .layer = -1, .global = 5}};
        const tpw_event end = {.type = TPW_EVENT_FINISHED,
                               .id = i,
                               .finish = TPW_FINISH_LENGTH,
                               .output_tokens = 2,
                               .digests = digests,
                               .digest_count = 5};
        for (int32_t t = 0; t < 2; t++) {
            const tpw_event token = {.type = TPW_EVENT_TOKEN, .id = i, .token = 10 + t};
            cr_assert_eq(tpw_results_take(r, &token, NULL), TPW_OK);
        }
        cr_assert_eq(tpw_results_take(r, &end, NULL), TPW_OK);
    }
}

Test(verify, comparison_counts_and_names_the_first_difference)
{
    tpw_results a;
    tpw_results b;
    tpw_cell_result r = {.text = "old", .different = true};
    fill(&a);
    fill(&b);
    tpw_cell_compare(&a, NULL, &b, &r);
    cr_assert_not(r.different);
    cr_assert_eq(r.tokens, 4);
    cr_assert_eq(r.digests, 8, "without mtp");
    tpw_cell_compare(&a, &a, &b, &r);
    cr_assert_eq(r.digests, 10);
    b.data[1].digests[4].global++;
    tpw_cell_compare(&a, NULL, &b, &r);
    cr_assert_not(r.different, "mtp of other drafts is no difference");
    tpw_cell_compare(&a, &a, &b, &r);
    cr_assert(r.different);
    cr_assert_not_null(strstr(r.text, "sequence 1, mtp"), "%s", r.text);
    /* hidden and tokens follow from the state of their layer */
    b.data[1].digests[0].global++;
    b.data[1].digests[1].global++;
    b.data[1].digests[3].global++;
    tpw_cell_compare(&a, NULL, &b, &r);
    cr_assert_not_null(strstr(r.text, "sequence 1, recurrent of layer 0: 0000000000000005 instead of 0000000000000004"),
                       "%s", r.text);
    b.data[0].ids[1] = 99;
    tpw_cell_compare(&a, NULL, &b, &r);
    cr_assert_str_eq(r.text, "sequence 0, output token 1: 99 instead of 11");
    cr_assert_eq(r.tokens, 1);
    b.data[0].count = 1;
    tpw_cell_compare(&a, NULL, &b, &r);
    cr_assert_not_null(strstr(r.text, "1 output tokens (length) instead of 2"), "%s", r.text);
    b.data[0].count = 2;
    b.data[0].ids[1] = 11;
    b.data[0].digest_count = 2;
    tpw_cell_compare(&a, NULL, &b, &r);
    cr_assert_not_null(strstr(r.text, "no digest of conv"), "%s", r.text);
    tpw_results_fini(&a);
    tpw_results_fini(&b);
}

Test(verify, junit_has_a_case_for_each_cell_and_escapes)
{
    const tpw_cell_result results[] = {
        {.cell = {.tp = 1, .batch = 1, .page = 64}, .nanoseconds = 1500000000},
        {.cell = {.tp = 2, .k = 3, .batch = 8, .chunk = 7, .page = 16, .drafter = TPW_CELL_ORACLE},
         .different = true,
         .text = "a < b & \"c\"\n"},
    };
    char *text = tpw_cells_junit(results, 2);
    cr_assert_not_null(text);
    cr_assert_not_null(strstr(text, "tests=\"2\" failures=\"1\""), "%s", text);
    cr_assert_not_null(strstr(text, "name=\"tp 1, K 0, batch 1, chunk whole, page 64\" time=\"1.500\"/>"), "%s", text);
    cr_assert_not_null(strstr(text, "name=\"tp 2, K 3 (oracle), batch 8, chunk 7, page 16\""), "%s", text);
    cr_assert_not_null(strstr(text, "message=\"a &lt; b &amp; &quot;c&quot;?\""), "%s", text);
    free(text);
}

/* 3 linear and 1 attention layers, K = 4, 2 ranks: (3 * 2 + 1 + 4 * 5) * 2. */
Test(verify, a_probe_has_so_much_to_compare)
{
    const tpw_model_info info = {.layers = 4, .layers_linear = 3, .layers_attention = 1};
    cr_assert_eq(tpw_probe_count(&info, 2, 4), 54);
    cr_assert_eq(tpw_probe_count(&info, 1, 1), 15);
}
