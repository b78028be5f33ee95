/* Tests of the numbers of bench: what counts as decode, medians, comparison of digests, CPU masks, the table.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/bench.h"

Test(bench, steps_with_prompt_rows_are_no_decode)
{
    tpw_stats a = {.steps = 7, .step_ns = 1000, .prefill_ns = 400, .prompt_tokens = 10, .output_tokens = 5};
    tpw_stats b = a;
    tpw_stats c;
    tpw_bench_sample s = {0};
    b.steps++; /* a prompt chunk beside a decoding sequence: its token is not counted */
    b.step_ns += 300;
    b.prefill_ns += 300;
    b.prompt_tokens += 32;
    b.output_tokens += 1;
    tpw_bench_add_step(&s, &a, &b);
    cr_assert_eq(s.prompt_tokens, 32);
    cr_assert_eq(s.prefill_ns, 300);
    cr_assert_eq(s.decode_steps, 0);
    cr_assert_eq(s.decode_tokens, 0);
    cr_assert_eq(s.decode_ns, 0);
    c = b;
    c.steps++;
    c.step_ns += 50;
    c.output_tokens += 3;
    c.drafts++;
    c.draft_tokens += 4;
    c.accepted_tokens += 2;
    tpw_bench_add_step(&s, &b, &c);
    tpw_bench_add_step(&s, &b, &c);
    cr_assert_eq(s.decode_steps, 2);
    cr_assert_eq(s.decode_tokens, 6);
    cr_assert_eq(s.decode_ns, 100);
    cr_assert_eq(s.drafts, 2);
    cr_assert_eq(s.draft_tokens, 8);
    cr_assert_eq(s.accepted_tokens, 4);
    cr_assert_eq(s.prefill_ns, 300);
}

Test(bench, medians)
{
    double odd[] = {9, 1, 5};
    double even[] = {8, 1, 2, 4};
    double one[] = {3};
    cr_assert_eq(tpw_bench_median(odd, 3), 5.0);
    cr_assert_eq(tpw_bench_median(even, 4), 3.0);
    cr_assert_eq(tpw_bench_median(one, 1), 3.0);
    cr_assert_eq(tpw_bench_median(one, 0), 0.0);
}

/* Rates by hand: 100, 50 and 200 tokens/s; 20, 40 and 10 ms; acceptance (1 + 2 + 3) / 24, 1 + 6 / 12 tokens. */
Test(bench, a_row_is_the_median_of_its_runs)
{
    tpw_bench_sample samples[3] = {
        {64, 1000000000, 10, 5, 100000000, 4, 8, 1},
        {64, 4000000000, 10, 5, 200000000, 4, 8, 2},
        {64, 2000000000, 10, 5, 50000000, 4, 8, 3},
    };
    tpw_bench_cell cell = {.k = 2, .batch = 2, .samples = samples, .count = 3};
    tpw_bench_row row;
    tpw_error err;
    cr_assert_eq(tpw_bench_evaluate(&cell, &row, &err), TPW_OK);
    cr_assert_float_eq(row.tokens_per_second, 100, 1e-9);
    cr_assert_float_eq(row.slowest, 50, 1e-9);
    cr_assert_float_eq(row.fastest, 200, 1e-9);
    cr_assert_float_eq(row.ms_per_step, 20, 1e-9);
    cr_assert_float_eq(row.prefill_tokens_per_second, 32, 1e-9);
    cr_assert_float_eq(row.acceptance, 0.25, 1e-9);
    cr_assert_float_eq(row.tokens_per_step, 1.5, 1e-9);
    cell.count = 0;
    cr_assert_eq(tpw_bench_evaluate(&cell, &row, &err), TPW_OK);
    cr_assert_eq(row.tokens_per_second, 0.0);
    cr_assert_eq(row.tokens_per_step, 1.0);
    /* one token a sequence: all came with the prompt, no time was spent */
    samples[0] = (tpw_bench_sample){.prompt_tokens = 1, .prefill_ns = 1};
    cell.count = 1;
    cr_assert_eq(tpw_bench_evaluate(&cell, &row, &err), TPW_OK);
    cr_assert_eq(row.ms_per_step, 0.0);
    cr_assert_eq(row.tokens_per_second, 0.0);
}

/* Every sequence is held against the first run that had it, whatever the batch. */
Test(bench, digests_are_compared_by_sequence)
{
    uint64_t room[4];
    tpw_bench_reference reference = {.digests = room};
    tpw_bench_cell small = {.batch = 2};
    tpw_bench_cell large = {.k = 3, .batch = 4};
    static const uint64_t two[] = {11, 22};
    static const uint64_t four[] = {11, 22, 33, 44};
    static const uint64_t wrong[] = {11, 22, 33, 45};
    static const uint64_t exchanged[] = {22, 11};
    tpw_bench_compare(&reference, &small, two);
    cr_assert_eq(small.compared, 0);
    cr_assert_eq(small.digest, 11u);
    tpw_bench_compare(&reference, &large, four);
    cr_assert_eq(large.compared, 2);
    cr_assert_eq(large.different, 0);
    cr_assert_eq(reference.known, 4);
    tpw_bench_compare(&reference, &large, four);
    cr_assert_eq(large.compared, 6);
    cr_assert_eq(large.different, 0);
    tpw_bench_compare(&reference, &large, wrong);
    cr_assert_eq(large.compared, 10);
    cr_assert_eq(large.different, 1);
    tpw_bench_compare(&reference, &small, exchanged);
    cr_assert_eq(small.compared, 2);
    cr_assert_eq(small.different, 2);
    cr_assert_eq(reference.known, 4);
}

Test(bench, cpu_masks)
{
    static const struct {
        const char *mask;
        int count;
    } cases[] = {{"0", 1},   {"0-3", 4}, {"0-3,8", 5}, {"0,2,4-5", 4}, {"12-12", 1}, {"", 0},          {"all", 0},
                 {"3-1", 0}, {"1-", 0},  {"1,", 0},    {"1;2", 0},     {"-1", 0},    {"0-9999999", 0}, {"0x3", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_assert_eq(tpw_bench_cpus(cases[i].mask), cases[i].count, "\"%s\"", cases[i].mask);
}

Test(bench, lines_stand_under_their_titles_and_differences_show)
{
    tpw_bench_cell cell = {.k = 0, .batch = 16, .digest = 0xABC};
    tpw_bench_row row = {.tokens_per_second = 123.44, .tokens_per_step = 1, .ms_per_step = 8.1};
    tpw_sink sink;
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_bench_title(&sink);
    tpw_bench_line(&sink, &cell, &row);
    cell.k = 4;
    cell.different = 2;
    row.acceptance = 0.655;
    tpw_bench_line(&sink, &cell, &row);
    char text[1024];
    cr_assert_lt(sink.bytes, sizeof text);
    memcpy(text, sink.data, sink.bytes);
    text[sink.bytes] = '\0';
    char *first = strchr(text, '\n') + 1;
    char *second = strchr(first, '\n') + 1;
    cr_assert_eq(strstr(text, "tokens/s") + strlen("tokens/s") - text, strstr(first, "123.4") + 5 - first);
    cr_assert_eq(strstr(text, "digest") - text, strstr(first, "0000000000000abc") - first);
    cr_assert_not_null(strstr(second, "65.5 %  "));
    cr_assert_not_null(strstr(second, "DIFFERS"));
    cr_assert_eq(strstr(first, "DIFFERS"), strstr(second, "DIFFERS"));
    tpw_sink_fini(&sink);
}
