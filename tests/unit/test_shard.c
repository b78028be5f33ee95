/* Tests of the cuts: exact values, and every element covered once. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tp/shard.h"

static void expect(tpw_span span, int32_t begin, int32_t count)
{
    cr_assert(span.begin == begin && span.count == count, "got %d+%d, expected %d+%d", span.begin, span.count, begin,
              count);
}

Test(shard, sizes)
{
    for (int size = -9; size <= 70; size++)
        cr_assert(tpw_tp_size_ok(size) == (size == 1 || size == 2 || size == 4 || size == 8), "size %d", size);
}

Test(shard, even_values)
{
    expect(tpw_span_even(24, 2, 4), 12, 6);
    expect(tpw_span_even(0, 3, 4), 0, 0);
    expect(tpw_span_even(2147483647, 0, 1), 0, 2147483647);
    expect(tpw_span_even(2147483640, 7, 8), 1879048185, 268435455);
    expect(tpw_span_even(25, 0, 4), -1, 0);
    expect(tpw_span_even(2, 0, 4), -1, 0);
    expect(tpw_span_even(24, 4, 4), -1, 0);
    expect(tpw_span_even(24, -1, 4), -1, 0);
    expect(tpw_span_even(24, 0, 0), -1, 0);
    expect(tpw_span_even(24, 0, -4), -1, 0);
    expect(tpw_span_even(-24, 0, 4), -1, 0);
}

Test(shard, ceil_values)
{
    /* 10 by 4: parts of 3, the last one short */
    expect(tpw_span_ceil(10, 0, 4), 0, 3);
    expect(tpw_span_ceil(10, 2, 4), 6, 3);
    expect(tpw_span_ceil(10, 3, 4), 9, 1);
    /* 9 by 8: parts of 2, five of them used, three empty ones at the end */
    expect(tpw_span_ceil(9, 4, 8), 8, 1);
    expect(tpw_span_ceil(9, 5, 8), 9, 0);
    expect(tpw_span_ceil(9, 7, 8), 9, 0);
    expect(tpw_span_ceil(0, 1, 2), 0, 0);
    expect(tpw_span_ceil(2147483647, 7, 8), 1879048192, 268435455);
    expect(tpw_span_ceil(1, 1000, 1024), 1, 0);
    expect(tpw_span_ceil(10, 4, 4), -1, 0);
    expect(tpw_span_ceil(-1, 0, 4), -1, 0);
    expect(tpw_span_ceil(10, 0, 0), -1, 0);
}

Test(shard, ceil_covers_once)
{
    for (int32_t total = 0; total <= 300; total++)
        for (int size = 1; size <= 9; size++) {
            int32_t next = 0;
            for (int rank = 0; rank < size; rank++) {
                tpw_span span = tpw_span_ceil(total, rank, size);
                cr_assert(span.begin == next && span.count >= 0, "total %d, rank %d of %d: begins at %d, not %d", total,
                          rank, size, span.begin, next);
                next += span.count;
            }
            cr_assert_eq(next, total, "total %d by %d covers %d", total, size, next);
        }
}

Test(shard, heads)
{
    bool owner = false;
    expect(tpw_span_heads(16, 3, 4, &owner), 12, 4);
    cr_assert(owner);
    /* two heads on eight ranks: four ranks a head, the lowest of each owns it */
    const int head[8] = {0, 0, 0, 0, 1, 1, 1, 1};
    for (int rank = 0; rank < 8; rank++) {
        expect(tpw_span_heads(2, rank, 8, &owner), head[rank], 1);
        cr_assert_eq(owner, rank == 0 || rank == 4, "rank %d", rank);
    }
    expect(tpw_span_heads(1, 1, 2, &owner), 0, 1);
    cr_assert(!owner);
    expect(tpw_span_heads(1, 0, 1, NULL), 0, 1);
    const int32_t refused[] = {3, 6, 0, -2};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        owner = true;
        expect(tpw_span_heads(refused[i], 1, 4, &owner), -1, 0);
        cr_assert(!owner, "heads %d", refused[i]);
    }
    owner = true;
    expect(tpw_span_heads(8, 4, 4, &owner), -1, 0);
    cr_assert(!owner);
}
