/* Tests of the collected results: text, finish, and digests with values computed by an independent program.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/results.h"

static tpw_scope_digest four[] = {
    {"tokens", -1, 0x1111}, {"hidden", 0, 0x2222}, {"conv", 0, 0x3333}, {"kv", 11, UINT64_MAX}};

static void token(tpw_results *r, uint64_t id, int32_t value)
{
    tpw_error err = {0};
    tpw_event event = {.type = TPW_EVENT_TOKEN, .id = id, .token = value};
    cr_assert_eq(tpw_results_take(r, &event, &err), TPW_OK, "%s", err.text);
}

static void end(tpw_results *r, uint64_t id, tpw_finish finish, const tpw_scope_digest *digests, int32_t count)
{
    tpw_error err = {0};
    tpw_event event = {
        .type = TPW_EVENT_FINISHED, .id = id, .finish = finish, .digests = digests, .digest_count = count};
    cr_assert_eq(tpw_results_take(r, &event, &err), TPW_OK, "%s", err.text);
}

Test(results, digests_are_the_documented_sums)
{
    tpw_results r;
    tpw_error err;
    cr_assert_eq(tpw_results_init(&r, 3, NULL, &err), TPW_OK);
    end(&r, 2, TPW_FINISH_STOP, four, 1);
    end(&r, 0, TPW_FINISH_LENGTH, four, 4);
    end(&r, 1, TPW_FINISH_CANCELLED, NULL, 0);
    cr_assert_eq(tpw_result_digest(&r.data[0]), 0x24c6b5df31eb668bull);
    cr_assert_eq(tpw_result_digest(&r.data[2]), 0x4465d6ac3da6f05cull);
    cr_assert_eq(tpw_result_digest(&r.data[1]), 0u);
    cr_assert_eq(tpw_results_digest(&r), 0x411c262e62afbd14ull, "a sequence without digests adds nothing");
    tpw_results_fini(&r);
}

static uint64_t digest_of(const int order[3], int swapped)
{
    tpw_results r;
    tpw_error err;
    cr_assert_eq(tpw_results_init(&r, 3, NULL, &err), TPW_OK);
    for (int i = 0; i < 3; i++) {
        int at = order[i];
        int data = swapped ? 2 - at : at;
        end(&r, (uint64_t)at, TPW_FINISH_LENGTH, four + data, 1);
    }
    uint64_t digest = tpw_results_digest(&r);
    tpw_results_fini(&r);
    return digest;
}

Test(results, the_run_digest_depends_on_prompts_not_on_order)
{
    static const int up[] = {0, 1, 2};
    static const int mixed[] = {2, 0, 1};
    cr_assert_eq(digest_of(up, 0), digest_of(mixed, 0));
    cr_assert_neq(digest_of(up, 0), digest_of(up, 1), "results of two prompts exchanged");
}

Test(results, the_order_of_scopes_does_not_matter_but_their_names_do)
{
    tpw_scope_digest turned[] = {four[3], four[2], four[1], four[0]};
    tpw_scope_digest renamed[] = {four[0], four[1], four[2], {"kv", 12, UINT64_MAX}};
    tpw_result a = {.digests = four, .digest_count = 4};
    tpw_result b = {.digests = turned, .digest_count = 4};
    tpw_result c = {.digests = renamed, .digest_count = 4};
    cr_assert_eq(tpw_result_digest(&a), tpw_result_digest(&b));
    cr_assert_neq(tpw_result_digest(&a), tpw_result_digest(&c));
}

/* What the MTP module leaves behind depends on K; K must leave no trace in the digest. */
Test(results, scopes_of_the_drafter_are_left_out)
{
    tpw_scope_digest with[] = {four[0], {"mtp", -1, 0x99}, four[1], four[2], four[3]};
    tpw_result a = {.digests = four, .digest_count = 4};
    tpw_result b = {.digests = with, .digest_count = 5};
    cr_assert_eq(tpw_result_digest(&a), tpw_result_digest(&b));
}

Test(results, ids_and_finish_names)
{
    tpw_results r;
    tpw_error err;
    cr_assert_eq(tpw_results_init(&r, 5, NULL, &err), TPW_OK);
    for (int32_t i = 0; i < 200; i++)
        token(&r, 3, i * 7);
    token(&r, 1, 42);
    cr_assert_eq(r.data[3].count, 200);
    cr_assert_eq(r.data[3].ids[199], 199 * 7);
    cr_assert_eq(memcmp(r.data[3].text, "0 7 14 ", 7), 0);
    cr_assert_eq(r.data[1].text_bytes, 2u);
    cr_assert_str_eq(tpw_result_finish_name(&r.data[3]), "stopped");
    end(&r, 0, TPW_FINISH_LENGTH, NULL, 0);
    end(&r, 1, TPW_FINISH_STOP, NULL, 0);
    end(&r, 2, TPW_FINISH_CANCELLED, NULL, 0);
    end(&r, 4, TPW_FINISH_ERROR, NULL, 0);
    cr_assert_eq(r.finished, 4u);
    static const char *const names[] = {"length", "stop", "cancelled", "stopped", "error"};
    for (int i = 0; i < 5; i++)
        cr_assert_str_eq(tpw_result_finish_name(&r.data[i]), names[i]);
    tpw_results_fini(&r);
}

Test(results, events_of_unknown_or_ended_sequences_are_refused)
{
    tpw_results r;
    tpw_error err;
    tpw_event event = {.type = TPW_EVENT_TOKEN, .id = 2, .token = 1};
    cr_assert_eq(tpw_results_init(&r, 2, NULL, &err), TPW_OK);
    cr_assert_eq(tpw_results_take(&r, &event, &err), TPW_ERR_INTERNAL);
    event.id = UINT64_MAX;
    cr_assert_eq(tpw_results_take(&r, &event, &err), TPW_ERR_INTERNAL);
    end(&r, 1, TPW_FINISH_STOP, NULL, 0);
    event.id = 1;
    cr_assert_eq(tpw_results_take(&r, &event, &err), TPW_ERR_INTERNAL);
    event.type = TPW_EVENT_FINISHED;
    cr_assert_eq(tpw_results_take(&r, &event, &err), TPW_ERR_INTERNAL);
    cr_assert_eq(r.finished, 1u);
    tpw_results_fini(&r);
}

/* Characters that are cut between tokens come out whole; special tokens do not come out. */
Test(results, text_is_whole_characters_without_special_tokens)
{
    tpw_tokenizer *tokenizer;
    tpw_results r;
    tpw_error err = {0};
    int32_t *ids;
    size_t count;
    static const char text[] = "na\xC3\xAFve \xE2\x82\xAC";
    cr_assert_eq(tpw_tokenizer_load(TPW_TEST_POCKET, &tokenizer, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_tokenizer_encode(tokenizer, text, sizeof text - 1, &ids, &count, &err), TPW_OK);
    cr_assert_eq(tpw_results_init(&r, 1, tokenizer, &err), TPW_OK);
    for (size_t i = 0; i < count; i++)
        token(&r, 0, ids[i]);
    for (int32_t id = 0; id < tpw_tokenizer_vocab(tokenizer); id++) {
        if (tpw_tokenizer_special(tokenizer, id)) {
            token(&r, 0, id);
            break;
        }
    }
    end(&r, 0, TPW_FINISH_STOP, NULL, 0);
    cr_assert_eq(r.data[0].count, (int32_t)count + 1);
    cr_assert_eq(r.data[0].text_bytes, sizeof text - 1);
    cr_assert_eq(memcmp(r.data[0].text, text, sizeof text - 1), 0);
    free(ids);
    tpw_results_fini(&r);
    tpw_tokenizer_destroy(tokenizer);
}
