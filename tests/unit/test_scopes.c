/* Tests of the digest scopes' pure parts: who is odd among ranks, how many scopes there are. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "worker/scopes.h"

static const uint64_t values[3] = {0, 0x8000000000000000u, 77};

/* The value that most have, of equals the one that is met first, decides; all others are odd. Counted by value. */
static int expected_odd(const int *picked, int size, char *text)
{
    int count[3] = {0}, winner = -1, odd = 0;

    for (int r = 0; r < size; r++)
        count[picked[r]]++;
    for (int r = 0; r < size; r++)
        if (winner < 0 || count[picked[r]] > count[winner])
            winner = picked[r];
    text[0] = '\0';
    for (int r = 0; r < size; r++)
        if (picked[r] != winner) {
            char one[32];

            (void)snprintf(one, sizeof one, "%s%d", odd++ > 0 ? ", " : "", r);
            strcat(text, one);
        }
    return odd;
}

/* Every choice of three values on 1..8 ranks, also with other numbers between. */
Test(scopes, every_pattern_of_odd_ranks)
{
    int patterns = 1, seen = 0;

    for (int size = 1; size <= 8; size++) {
        patterns *= 3;
        for (int p = 0; p < patterns; p++) {
            uint64_t at[8 * 3];
            int picked[8];
            char text[64], expected[64];

            for (int i = 0; i < 8 * 3; i++)
                at[i] = 1000 + (uint64_t)i;
            for (int r = 0, rest = p; r < size; r++, rest /= 3) {
                picked[r] = rest % 3;
                at[r * 3] = values[picked[r]];
            }
            int odd = expected_odd(picked, size, expected);
            cr_assert_eq(tpw_odd_ranks(at, size, 3, text, sizeof text), odd, "%d ranks, pattern %d", size, p);
            cr_assert_str_eq(text, expected, "%d ranks, pattern %d", size, p);
            seen++;
        }
    }
    cr_assert_eq(seen, 3 + 9 + 27 + 81 + 243 + 729 + 2187 + 6561);
}

Test(scopes, known_cases)
{
    const uint64_t one[] = {5}, two[] = {5, 6}, first[] = {6, 5, 5, 5}, pairs[] = {1, 2, 2, 1};
    const uint64_t halves[] = {1, 1, 1, 1, 2, 2, 2, 2}, all[] = {8, 7, 6, 5};
    char text[64];

    cr_assert_eq(tpw_odd_ranks(one, 1, 1, text, sizeof text), 0);
    cr_assert_str_eq(text, "");
    cr_assert_eq(tpw_odd_ranks(two, 2, 1, text, sizeof text), 1); /* nobody can tell: the lower rank is believed */
    cr_assert_str_eq(text, "1");
    cr_assert_eq(tpw_odd_ranks(first, 4, 1, text, sizeof text), 1); /* rank 0 is not right because it is rank 0 */
    cr_assert_str_eq(text, "0");
    cr_assert_eq(tpw_odd_ranks(pairs, 4, 1, text, sizeof text), 2);
    cr_assert_str_eq(text, "1, 2");
    cr_assert_eq(tpw_odd_ranks(halves, 8, 1, text, sizeof text), 4);
    cr_assert_str_eq(text, "4, 5, 6, 7");
    cr_assert_eq(tpw_odd_ranks(all, 4, 1, text, sizeof text), 3);
    cr_assert_str_eq(text, "1, 2, 3");
}

/* Too little room: a beginning, ended, nothing behind it; the count is right all the same. */
Test(scopes, short_text)
{
    const uint64_t v[] = {1, 1, 1, 1, 1, 2, 3, 4};
    const char *whole = "5, 6, 7";

    for (size_t room = 1; room <= 8; room++) {
        char text[16];

        memset(text, '#', sizeof text);
        cr_assert_eq(tpw_odd_ranks(v, 8, 1, text, room), 3);
        cr_assert_eq(strlen(text), room - 1, "room %zu: %zu", room, strlen(text));
        cr_assert_eq(strncmp(text, whole, room - 1), 0, "room %zu: %s", room, text);
        for (size_t i = room; i < sizeof text; i++)
            cr_assert_eq(text[i], '#', "room %zu: wrote at %zu", room, i);
    }
}

Test(scopes, counts)
{
    static tpw_config c;

    c.layers = 5;
    c.kind[2] = c.kind[4] = TPW_LAYER_ATTENTION;
    cr_assert_eq(tpw_scope_count(&c, false), 1 + 5 + 3 * 2 + 2);
    cr_assert_eq(tpw_scope_count(&c, true), 1 + 5 + 3 * 2 + 2 + 1);
    c.layers = 1;
    cr_assert_eq(tpw_scope_count(&c, false), 1 + 1 + 2);
}
