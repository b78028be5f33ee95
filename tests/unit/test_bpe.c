/* Tests src/model/bpe.c against the definition of the merge order, done the slow way, and against counts made by hand.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/bpe.h"

static void byte_ids(int32_t ids[256])
{
    for (int i = 0; i < 256; i++)
        ids[i] = 1000 + i; /* not the byte itself, so that mixing them up shows */
}

typedef struct rule {
    int32_t left, right, result;
} rule;

static void fill(tpw_bpe *bpe, const rule *rules, size_t count)
{
    tpw_error err = {0};
    int32_t ids[256];
    byte_ids(ids);
    cr_assert_eq(tpw_bpe_init(bpe, ids, count, &err), TPW_OK, "%s", err.text);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(tpw_bpe_add(bpe, rules[i].left, rules[i].right, rules[i].result, &err), TPW_OK, "%s", err.text);
}

static void check(const tpw_bpe *bpe, const char *piece, const int32_t *wanted, size_t count)
{
    tpw_error err = {0};
    tpw_bpe_work work = {0};
    tpw_ids ids = {0};
    cr_assert_eq(tpw_bpe_encode(bpe, &work, piece, strlen(piece), &ids, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(ids.count, count, "\"%s\": %zu ids instead of %zu", piece, ids.count, count);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(ids.data[i], wanted[i], "\"%s\": id %zu is %d instead of %d", piece, i, ids.data[i], wanted[i]);
    tpw_bpe_work_fini(&work);
    free(ids.data);
}

#define B(c)          (1000 + (c))
#define CHECK(p, ...) check(&bpe, p, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4)

Test(bpe, order_by_rank_then_from_the_left)
{
    /* rank 0: bc, 1: ab, 2: (ab)(bc), 3: aa, 4: (aa)a */
    const rule rules[] = {{B('b'), B('c'), 1}, {B('a'), B('b'), 2}, {2, 1, 3}, {B('a'), B('a'), 4}, {4, B('a'), 5}};
    tpw_bpe bpe;
    fill(&bpe, rules, 5);
    CHECK("abc", B('a'), 1); /* bc has the lower rank though ab comes first */
    CHECK("abbc", 3);        /* ab, bc, then both */
    CHECK("ab", 2);
    CHECK("aa", 4);
    CHECK("aaa", 5);      /* (aa) on the left, then with the third */
    CHECK("aaaa", 4, 4);  /* not (aaa)a: both pairs merge before rank 4 is reached */
    CHECK("aaaaa", 4, 5); /* the odd one joins the second pair */
    CHECK("aaab", 4, 2);  /* ab (1) before aa (3) */
    CHECK("x", B('x'));
    CHECK("xyz\xff", B('x'), B('y'), B('z'), B(255));
    CHECK("cba", B('c'), B('b'), B('a'));
    tpw_bpe_fini(&bpe);
}

Test(bpe, a_merge_may_open_a_pair_of_lower_rank)
{
    /* rank 0 can only be reached after rank 1 and then goes before rank 2 */
    const rule rules[] = {{7, B('c'), 8}, {B('a'), B('b'), 7}, {B('c'), B('d'), 9}};
    tpw_bpe bpe;
    fill(&bpe, rules, 3);
    CHECK("abcd", 8, B('d'));
    CHECK("bcd", B('b'), 9);
    CHECK("abcdabcd", 8, B('d'), 8, B('d'));
    tpw_bpe_fini(&bpe);
}

Test(bpe, two_ways_to_one_token)
{
    /* (ab)c and a(bc) give the same id, as in real vocabularies; the pair (abc)d must be found from both */
    const rule rules[] = {{B('a'), B('b'), 20}, {B('b'), B('c'), 21}, {20, B('c'), 22},
                          {B('x'), 21, 23},     {B('a'), 21, 22},     {22, B('d'), 24}};
    tpw_bpe bpe;
    fill(&bpe, rules, 6);
    CHECK("abcd", 24);
    CHECK("xbcd", 23, B('d'));
    CHECK("aabcd", B('a'), 24);
    tpw_bpe_fini(&bpe);
}

Test(bpe, without_merges)
{
    tpw_bpe bpe;
    fill(&bpe, NULL, 0);
    CHECK("ab", B('a'), B('b'));
    tpw_error err = {0};
    cr_assert_eq(tpw_bpe_add(&bpe, 1, 2, 3, &err), TPW_ERR_INTERNAL);
    tpw_bpe_work work = {0};
    tpw_ids ids = {0};
    cr_assert_eq(tpw_bpe_encode(&bpe, &work, "", 0, &ids, NULL), TPW_OK);
    cr_assert_eq(ids.count, 0u);
    tpw_bpe_work_fini(&work);
    tpw_bpe_fini(&bpe);
}

Test(bpe, refuses_a_pair_twice)
{
    tpw_bpe bpe;
    tpw_error err = {0};
    const rule rules[] = {{5, 6, 7}};
    int32_t ids[256];
    byte_ids(ids);
    cr_assert_eq(tpw_bpe_init(&bpe, ids, 3, &err), TPW_OK);
    cr_assert_eq(tpw_bpe_add(&bpe, rules[0].left, rules[0].right, 7, &err), TPW_OK);
    cr_assert_eq(tpw_bpe_add(&bpe, 6, 5, 7, &err), TPW_OK);
    cr_assert_eq(tpw_bpe_add(&bpe, 5, 6, 8, &err), TPW_ERR_CHECKPOINT);
    cr_assert(strstr(err.text, "merges[2]") && strstr(err.text, "merges[0]"), "%s", err.text);
    tpw_bpe_fini(&bpe);
    cr_assert_eq(tpw_bpe_init(&bpe, ids, (size_t)INT32_MAX + 1, &err), TPW_ERR_LIMIT);
}

/* The definition: find the lowest rank among all pairs, leftmost; merge it; start again. */
static size_t slow_encode(const rule *rules, size_t count, int32_t *ids, size_t length)
{
    for (;;) {
        size_t best = count, where = 0;
        for (size_t i = 0; i + 1 < length; i++) {
            for (size_t k = 0; k < best; k++) {
                if (rules[k].left == ids[i] && rules[k].right == ids[i + 1]) {
                    best = k;
                    where = i;
                }
            }
        }
        if (best == count)
            return length;
        ids[where] = rules[best].result;
        memmove(ids + where + 1, ids + where + 2, (length - where - 2) * sizeof *ids);
        length--;
    }
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

/* Random merges over three letters, dense enough that pairs overlap in every way. */
static size_t random_rules(rule *rules, size_t wanted, uint64_t *state)
{
    size_t count = 0;
    for (size_t tries = 0; count < wanted && tries < 20 * wanted; tries++) {
        uint32_t a = next_random(state) % (uint32_t)(3 + count), b = next_random(state) % (uint32_t)(3 + count);
        rule r = {a < 3 ? B('a' + (int32_t)a) : (int32_t)a - 3, b < 3 ? B('a' + (int32_t)b) : (int32_t)b - 3,
                  (int32_t)count};
        bool known = false;
        for (size_t i = 0; i < count; i++)
            known = known || (rules[i].left == r.left && rules[i].right == r.right);
        if (!known)
            rules[count++] = r;
    }
    /* shuffled ranks: in trained files results come after their parts, but the order must hold without that */
    for (size_t i = count; i > 1; i--) {
        size_t j = next_random(state) % i;
        rule swap = rules[i - 1];
        rules[i - 1] = rules[j];
        rules[j] = swap;
    }
    return count;
}

Test(bpe, random_merges_match_the_definition)
{
    uint64_t state = 20240;
    size_t compared = 0, merged = 0;
    tpw_bpe_work work = {0};
    tpw_ids ids = {0};
    for (int round = 0; round < 60; round++) {
        rule rules[40];
        tpw_bpe bpe;
        size_t count = random_rules(rules, 4 + next_random(&state) % 36, &state);
        fill(&bpe, rules, count);
        for (int k = 0; k < 60; k++) {
            char piece[48];
            int32_t wanted[48];
            size_t length = 1 + next_random(&state) % 47;
            for (size_t i = 0; i < length; i++) {
                piece[i] = (char)('a' + next_random(&state) % 3);
                wanted[i] = B(piece[i]);
            }
            size_t left = slow_encode(rules, count, wanted, length);
            ids.count = 0;
            cr_assert_eq(tpw_bpe_encode(&bpe, &work, piece, length, &ids, NULL), TPW_OK);
            cr_assert_eq(ids.count, left, "round %d: %.*s", round, (int)length, piece);
            cr_assert_eq(memcmp(ids.data, wanted, left * sizeof *wanted), 0, "round %d: %.*s", round, (int)length,
                         piece);
            compared++;
            merged += length - left;
        }
        tpw_bpe_fini(&bpe);
    }
    tpw_bpe_work_fini(&work);
    free(ids.data);
    cr_assert_eq(compared, 3600u);
    cr_assert_gt(merged, 10000u);
}

/* A million times one letter, with tokens of 2, 4, ... 1024 of it: quadratic work would take hours. */
Test(bpe, a_million_of_one_letter)
{
    rule rules[10];
    for (int i = 0; i < 10; i++)
        rules[i] = (rule){i ? i - 1 : B('a'), i ? i - 1 : B('a'), i};
    tpw_bpe bpe;
    fill(&bpe, rules, 10);
    size_t bytes = 1000000;
    char *piece = malloc(bytes);
    memset(piece, 'a', bytes);
    tpw_bpe_work work = {0};
    tpw_ids ids = {0};
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    cr_assert_eq(tpw_bpe_encode(&bpe, &work, piece, bytes, &ids, NULL), TPW_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    cr_assert_lt(end.tv_sec - start.tv_sec, 20);
    /* 1,000,000 = 976 * 1024 + 512 + 64 */
    cr_assert_eq(ids.count, 978u);
    for (size_t i = 0; i < 976; i++)
        cr_assert_eq(ids.data[i], 9);
    cr_assert_eq(ids.data[976], 8);
    cr_assert_eq(ids.data[977], 5);
    free(piece);
    free(ids.data);
    tpw_bpe_work_fini(&work);
    tpw_bpe_fini(&bpe);
}

Test(bpe, refuses_a_piece_that_positions_cannot_count)
{
    tpw_bpe bpe;
    fill(&bpe, NULL, 0);
    tpw_error err = {0};
    tpw_bpe_work work = {0};
    tpw_ids ids = {0};
    cr_assert_eq(tpw_bpe_encode(&bpe, &work, "", INT32_MAX, &ids, &err), TPW_ERR_LIMIT);
    cr_assert(strstr(err.text, "2147483647"), "%s", err.text);
    tpw_bpe_fini(&bpe);
}
