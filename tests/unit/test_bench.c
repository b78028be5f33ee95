/* Tests of the numbers of bench: what counts as decode, medians, comparison of digests, costs of checks, CPU masks, the table.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/settings.h"

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
    uint64_t room[2][4];
    tpw_bench_reference reference = {.tokens = {.values = room[0]}, .digests = {.values = room[1]}};
    tpw_bench_cell small = {.batch = 2, .check = "step", .digested = true};
    tpw_bench_cell large = {.k = 3, .batch = 4, .check = "step", .digested = true};
    static const uint64_t tokens[] = {1, 2, 3, 4};
    static const uint64_t two[] = {11, 22};
    static const uint64_t four[] = {11, 22, 33, 44};
    static const uint64_t wrong[] = {11, 22, 33, 45};
    static const uint64_t exchanged[] = {22, 11};
    tpw_bench_compare(&reference, &small, tokens, two);
    cr_assert_eq(small.compared, 0);
    cr_assert_eq(small.digest, 11u);
    tpw_bench_compare(&reference, &large, tokens, four);
    cr_assert_eq(large.compared, 2);
    cr_assert_eq(large.different, 0);
    cr_assert_eq(reference.digests.known, 4);
    tpw_bench_compare(&reference, &large, tokens, four);
    cr_assert_eq(large.compared, 6);
    cr_assert_eq(large.different, 0);
    tpw_bench_compare(&reference, &large, tokens, wrong);
    cr_assert_eq(large.compared, 10);
    cr_assert_eq(large.different, 1);
    tpw_bench_compare(&reference, &small, tokens, exchanged);
    cr_assert_eq(small.compared, 2);
    cr_assert_eq(small.different, 2);
    cr_assert_eq(reference.digests.known, 4);
}

/* A cell without checks makes no digests: its tokens are compared, and it is no reference for digests. */
Test(bench, cells_without_digests_are_compared_by_tokens)
{
    uint64_t room[2][3];
    tpw_bench_reference reference = {.tokens = {.values = room[0]}, .digests = {.values = room[1]}};
    tpw_bench_cell off = {.batch = 3, .check = "off"};
    tpw_bench_cell step = {.batch = 3, .check = "step", .digested = true};
    static const uint64_t tokens[] = {1, 2, 3};
    static const uint64_t other[] = {1, 9, 3};
    static const uint64_t none[] = {0, 0, 0};
    static const uint64_t digests[] = {11, 22, 33};
    tpw_bench_compare(&reference, &off, tokens, none);
    cr_assert_eq(off.compared, 0);
    cr_assert_eq(off.digest, 0u);
    cr_assert_eq(reference.digests.known, 0);
    tpw_bench_compare(&reference, &step, tokens, digests); /* tokens have a twin by now, digests have not */
    cr_assert_eq(step.compared, 3);
    cr_assert_eq(step.different, 0);
    cr_assert_eq(reference.digests.known, 3);
    tpw_bench_compare(&reference, &off, other, none);
    cr_assert_eq(off.compared, 3);
    cr_assert_eq(off.different, 1);
    tpw_bench_compare(&reference, &step, other, digests);
    cr_assert_eq(step.different, 1);
    tpw_bench_compare(&reference, &step, other, none); /* a sequence that differs in both counts once */
    cr_assert_eq(step.compared, 9);
    cr_assert_eq(step.different, 4);
}

static tpw_bench_cell timed(int32_t k, int32_t batch, const char *check, tpw_bench_sample *samples, int32_t count)
{
    return (tpw_bench_cell){.k = k,
                            .batch = batch,
                            .check = check,
                            .digested = strcmp(check, "off") != 0,
                            .samples = samples,
                            .count = count};
}

/* By hand: K 0 costs 10, 20 and 50 % of its neighbours, K 2 5 % in 3 runs of which one has no decode steps. */
Test(bench, costs_are_taken_run_by_run_against_the_cell_without_checks)
{
    tpw_bench_sample a[3] = {{.decode_ns = 100, .decode_steps = 1},
                             {.decode_ns = 1000, .decode_steps = 5},
                             {.decode_ns = 20, .decode_steps = 2}};
    tpw_bench_sample b[3] = {{.decode_ns = 110, .decode_steps = 1},
                             {.decode_ns = 1200, .decode_steps = 5},
                             {.decode_ns = 30, .decode_steps = 2}};
    tpw_bench_sample c[3] = {{.decode_ns = 200, .decode_steps = 2}, {0}, {.decode_ns = 100, .decode_steps = 1}};
    tpw_bench_sample d[3] = {{.decode_ns = 210, .decode_steps = 2},
                             {.decode_ns = 7, .decode_steps = 1},
                             {.decode_ns = 105, .decode_steps = 1}};
    tpw_bench_sample e[1] = {{.decode_ns = 300, .decode_steps = 2}};
    const tpw_bench_cell cells[] = {timed(0, 1, "off", a, 3),  timed(0, 1, "step", b, 3), timed(0, 1, "7", e, 1),
                                    timed(2, 1, "off", c, 3),  timed(2, 1, "step", d, 3), timed(2, 1, "7", e, 0),
                                    timed(2, 4, "step", d, 3), timed(2, 4, "7", d, 3)};
    const int32_t count = sizeof cells / sizeof cells[0];
    tpw_bench_cost cost;
    tpw_error err;
    cr_assert_eq(tpw_bench_compare_cost(cells, count, "step", &cost, &err), TPW_OK);
    cr_assert_eq(cost.cells, 2); /* K 2 at batch 4 has nothing to be compared with */
    cr_assert_float_eq(cost.least, 0.05, 1e-12);
    cr_assert_float_eq(cost.most, 0.20, 1e-12);
    cr_assert_float_eq(cost.median, 0.125, 1e-12);
    cr_assert_eq(tpw_bench_compare_cost(cells, count, "7", &cost, &err), TPW_OK);
    cr_assert_eq(cost.cells, 1);
    cr_assert_float_eq(cost.median, 0.5, 1e-12);
    cr_assert_eq(tpw_bench_compare_cost(cells, count, "off", &cost, &err), TPW_OK);
    cr_assert_eq(cost.cells, 0);
    cr_assert_eq(tpw_bench_compare_cost(&cells[1], 2, "step", &cost, &err), TPW_OK);
    cr_assert_eq(cost.cells, 0, "no cell without checks");
    cr_assert_eq(cost.most, 0.0);
}

Test(bench, the_line_of_a_cost)
{
    const tpw_bench_cost none = {0}, one = {1, 0.014, 0.014, 0.014}, three = {3, 0.0149, -0.002, 0.123};
    tpw_sink people, json = {.fd = -1};
    tpw_sink_init_fd(&people, 1, "x");
    tpw_bench_say_cost(&people, &json, "step", &none);
    cr_assert_eq(people.bytes, 0);
    tpw_bench_say_cost(&people, &json, "step", &three);
    tpw_bench_say_cost(&people, &json, "16", &one);
    static const char text[] = "checks   step costs 1.5 % of decode (median over 3 cells; from -0.2 % to 12.3 %)\n"
                               "checks   16 costs 1.4 % of decode (median over 1 cell; from 1.4 % to 1.4 %)\n";
    cr_assert_eq(people.bytes, sizeof text - 1);
    cr_assert_eq(memcmp(people.data, text, sizeof text - 1), 0);
    tpw_sink_fini(&people);
}

/* The list of --check. */
Test(bench, checks_are_a_list)
{
    static const char *const bad[] = {"off,",           ",off",  "off,,step",     "off step",
                                      "off,step,1,2,3", "off,0", "off,2147483648"};
    tpw_values v;
    tpw_check_modes modes;
    tpw_error err = {0};
    cr_assert_eq(tpw_values_init(&v, &err), TPW_OK);
    cr_assert_eq(tpw_values_checks(&v, &modes, &err), TPW_OK);
    cr_assert_eq(modes.count, 1);
    cr_assert_str_eq(modes.data[0].name, "step");
    cr_assert_eq(tpw_values_set_text(&v, TPW_SETTING_CHECK, TPW_SOURCE_FLAG, "x", "off,end,2147483647,step", &err),
                 TPW_OK);
    cr_assert_eq(tpw_values_checks(&v, &modes, &err), TPW_OK);
    cr_assert_eq(modes.count, 4);
    static const tpw_check_mode expected[] = {{"off", TPW_CHECK_OFF, 64},
                                              {"end", TPW_CHECK_END, 64},
                                              {"2147483647", TPW_CHECK_STEP, INT32_MAX},
                                              {"step", TPW_CHECK_STEP, 64}};
    for (int i = 0; i < 4; i++) {
        cr_assert_str_eq(modes.data[i].name, expected[i].name);
        cr_assert_eq(modes.data[i].check, expected[i].check);
        cr_assert_eq(modes.data[i].every, expected[i].every);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(tpw_values_set_text(&v, TPW_SETTING_CHECK, TPW_SOURCE_FLAG, "x", bad[i], &err), TPW_OK);
        cr_assert_eq(tpw_values_checks(&v, &modes, &err), TPW_ERR_ARGUMENT, "\"%s\"", bad[i]);
        cr_assert_not_null(strstr(err.text, bad[i]), "%s", err.text);
    }
    tpw_values_fini(&v);
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
    tpw_bench_cell cell = {.k = 0, .batch = 16, .check = "step", .digested = true, .digest = 0xABC};
    tpw_bench_row row = {.tokens_per_second = 123.44, .tokens_per_step = 1, .ms_per_step = 8.1};
    tpw_sink sink;
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_bench_title(&sink);
    tpw_bench_line(&sink, &cell, &row);
    cell.k = 4;
    cell.different = 2;
    row.acceptance = 0.655;
    tpw_bench_line(&sink, &cell, &row);
    cell.check = "2147483647";
    cell.digested = false;
    tpw_bench_line(&sink, &cell, &row);
    char text[1024];
    cr_assert_lt(sink.bytes, sizeof text);
    memcpy(text, sink.data, sink.bytes);
    text[sink.bytes] = '\0';
    char *first = strchr(text, '\n') + 1;
    char *second = strchr(first, '\n') + 1;
    char *third = strchr(second, '\n') + 1;
    cr_assert_eq(strstr(text, "tokens/s") + strlen("tokens/s") - text, strstr(first, "123.4") + 5 - first);
    cr_assert_eq(strstr(text, "digest") - text, strstr(first, "0000000000000abc") - first);
    cr_assert_not_null(strstr(second, "65.5 %  "));
    cr_assert_not_null(strstr(second, "DIFFERS"));
    cr_assert_eq(strstr(first, "DIFFERS"), strstr(second, "DIFFERS"));
    cr_assert_eq(strstr(text, "check") - text, strstr(first, "step") - first);
    cr_assert_eq(strstr(text, "check") - text, strstr(third, "2147483647") - third);
    cr_assert_eq(strstr(second, "DIFFERS") - second, strstr(third, "DIFFERS") - third, "the widest check fits");
    cr_assert_null(strstr(third, "0000000000000abc"), "no digest where none was made");
    tpw_sink_fini(&sink);
}
