/* Tests of the text for people: table, streaming order, and what a terminal must not obey. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/output.h"

/* Takes what is queued out of the sink, as text. */
static void taken(tpw_sink *sink, char *out, size_t bytes)
{
    cr_assert_lt(sink->bytes, bytes);
    memcpy(out, sink->data + sink->start, sink->bytes);
    out[sink->bytes] = '\0';
    sink->bytes = 0;
    sink->start = 0;
}

Test(output, the_table_is_aligned_and_complete)
{
    tpw_rank_info ranks[2] = {
        {.rank = 0,
         .host = "n1",
         .pid = 7,
         .device = "host (avx2)",
         .cpus_requested = "0-3",
         .cpus_obtained = "0-3",
         .numa_node = -1,
         .weight_bytes = 3 << 19,
         .state_bytes = 0,
         .kv_bytes = 1 << 20},
        {.rank = 1, .host = "a-much-longer-host", .pid = 1234567, .device = "host (avx2)", .numa_node = 1}};
    tpw_sink sink;
    char text[2048];
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_output_ranks(&sink, ranks, 2);
    taken(&sink, text, sizeof text);
    char *second = strchr(text, '\n') + 1;
    char *third = strchr(second, '\n') + 1;
    cr_assert_not_null(strstr(text, "weights MiB"));
    cr_assert_not_null(strstr(second, "0-3"));
    cr_assert_not_null(strstr(second, " 1.5 "));
    cr_assert_not_null(strstr(third, "a-much-longer-host"));
    /* the columns stand under each other */
    cr_assert_eq(strstr(second, "host (avx2)") - second, strstr(third, "host (avx2)") - third);
    cr_assert_eq(strcspn(text, "\n"), strcspn(second, "\n"));
    tpw_sink_fini(&sink);
}

/* Three prompts of which the second ends first. */
Test(output, prompts_come_in_order_and_the_first_unfinished_one_live)
{
    tpw_prompt p[3] = {{.text = (char *)"A", .text_bytes = 1},
                       {.text = (char *)"B", .text_bytes = 1},
                       {.text = (char *)"C", .text_bytes = 1}};
    tpw_prompts prompts = {.data = p, .count = 3};
    char a[] = " one two";
    char b[] = " three";
    tpw_result r[3] = {{.text = a}, {.text = b, .text_bytes = 6, .finished = true, .finish = TPW_FINISH_STOP}, {0}};
    /* only asked whether it is there: these texts are texts, not ids */
    tpw_results results = {.data = r, .count = 3, .tokenizer = (const tpw_tokenizer *)&prompts};
    tpw_stream stream = {0};
    tpw_sink sink;
    char text[512];
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_output_stream(&sink, &stream, &prompts, &results, false, false);
    cr_assert_eq(sink.bytes, 0u, "nothing to show yet");
    r[0].text_bytes = 4;
    tpw_output_stream(&sink, &stream, &prompts, &results, false, false);
    taken(&sink, text, sizeof text);
    cr_assert_str_eq(text, "[A] one");
    tpw_output_stream(&sink, &stream, &prompts, &results, false, false);
    cr_assert_eq(sink.bytes, 0u, "nothing twice");
    r[0].text_bytes = 8;
    r[0].finished = true;
    tpw_output_stream(&sink, &stream, &prompts, &results, false, false);
    taken(&sink, text, sizeof text);
    cr_assert_str_eq(text, " two\n\n[B] three\n\n");
    tpw_output_stream(&sink, &stream, &prompts, &results, false, true);
    taken(&sink, text, sizeof text);
    cr_assert_str_eq(text, "[C] [stopped]\n\n");
    tpw_output_stream(&sink, &stream, &prompts, &results, false, true);
    cr_assert_eq(sink.bytes, 0u);
    tpw_sink_fini(&sink);
}

Test(output, control_characters_of_the_model_are_not_passed_on)
{
    char hostile[] = "a\033[2Jb\x07\x7F\r\n\tc\xC2\x9B"
                     "d\xC3\xA9\x00z";
    tpw_prompt p = {.text = (char *)"\033]0;x", .text_bytes = 5};
    tpw_prompts prompts = {.data = &p, .count = 1};
    tpw_result r = {.text = hostile, .text_bytes = sizeof hostile - 1, .finished = true};
    tpw_results results = {.data = &r, .count = 1, .tokenizer = (const tpw_tokenizer *)&prompts};
    tpw_stream stream = {0};
    tpw_sink sink;
    char text[512];
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_output_stream(&sink, &stream, &prompts, &results, false, false);
    taken(&sink, text, sizeof text);
#define X "\xEF\xBF\xBD"
    cr_assert_str_eq(text, "[" X "]0;x]a" X "[2Jb" X X X "\n\tc" X "d\xC3\xA9" X "z\n\n");
    tpw_sink_fini(&sink);
}

Test(output, the_summary_claims_agreement_only_of_several_ranks)
{
    tpw_rank_info ranks[2] = {{.peak_bytes = 1 << 20}, {.peak_bytes = 5 << 19}};
    tpw_summary s = {.prompts = 3,
                     .finished = 3,
                     .digested = 3,
                     .stats = {.prompt_tokens = 100,
                               .output_tokens = 50,
                               .steps = 10,
                               .step_ns = 3000000000,
                               .prefill_ns = 1000000000,
                               .checks = 77},
                     .decode_tokens = 40,
                     .seconds = 3,
                     .digest = 0xABCDEF,
                     .ranks = ranks,
                     .size = 2};
    tpw_sink sink;
    char text[1024];
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_output_summary(&sink, &s);
    taken(&sink, text, sizeof text);
    cr_assert_not_null(strstr(text, "digest   0000000000abcdef  all 2 ranks agree (77 checks)\n"), "%s", text);
    cr_assert_not_null(strstr(text, "prefill 100.0 tokens/s, decode 20.0 tokens/s"), "%s", text);
    cr_assert_not_null(strstr(text, " 1.0 2.5\n"), "%s", text);
    cr_assert_null(strstr(text, "drafts"), "%s", text);
    s.size = 1;
    s.digested = 2;
    tpw_output_summary(&sink, &s);
    taken(&sink, text, sizeof text);
    cr_assert_null(strstr(text, "agree"), "%s", text);
    cr_assert_not_null(strstr(text, "of 2 of 3 prompts"), "%s", text);
    s.digested = 0;
    s.stats.step_ns = s.stats.prefill_ns;
    tpw_output_summary(&sink, &s);
    taken(&sink, text, sizeof text);
    cr_assert_not_null(strstr(text, "none"), "%s", text);
    cr_assert_null(strstr(text, "nan"), "%s", text);
    tpw_sink_fini(&sink);
}

/* Numbers worked out by hand: 801 / 1234, 444 / 617, 357 / 617, 1 + 801 / 617. */
Test(output, the_drafts_line_counts_by_position)
{
    tpw_rank_info rank = {0};
    tpw_summary s = {.ranks = &rank, .size = 1, .k = 2};
    s.stats = (tpw_stats){.drafts = 617,
                          .draft_tokens = 1234,
                          .accepted_tokens = 801,
                          .drafted_at = {617, 617},
                          .accepted_at = {444, 357}};
    tpw_sink sink;
    char text[1024];
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_output_summary(&sink, &s);
    taken(&sink, text, sizeof text);
    cr_assert_not_null(strstr(text, "drafts   K=2: 1234 drafted, 801 accepted (64.9 %), by position 72 % 58 %, "
                                    "2.30 tokens a step\n"),
                       "%s", text);
    cr_assert_null(strstr(text, "warning"), "%s", text);
    s.stats = (tpw_stats){.drafts = 50, .draft_tokens = 100, .drafted_at = {50, 50}};
    tpw_output_summary(&sink, &s);
    taken(&sink, text, sizeof text);
    cr_assert_null(strstr(text, "warning"), "100 may be chance: %s", text);
    s.stats.draft_tokens = 101;
    tpw_output_summary(&sink, &s);
    taken(&sink, text, sizeof text);
    cr_assert_not_null(strstr(text, "warning"), "%s", text);
    cr_assert_not_null(strstr(text, "check mtp.* weights"), "%s", text);
    s.stats.accepted_tokens = 1;
    tpw_output_summary(&sink, &s);
    taken(&sink, text, sizeof text);
    cr_assert_null(strstr(text, "warning"), "%s", text);
    s.stats = (tpw_stats){0};
    tpw_output_summary(&sink, &s);
    taken(&sink, text, sizeof text);
    cr_assert_not_null(strstr(text, "K=2: 0 drafted, 0 accepted (0.0 %), 1.00 tokens a step\n"), "%s", text);
    tpw_sink_fini(&sink);
}
