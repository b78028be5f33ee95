/* Tests of the monotonic clock and of the three phases of the back-off. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

Test(clock, is_the_monotonic_clock)
{
    for (int i = 0; i < 1000; i++) {
        int64_t before = now_ns(CLOCK_MONOTONIC);
        int64_t ours = tpw_clock_ns();
        int64_t after = now_ns(CLOCK_MONOTONIC);
        cr_assert(before <= ours && ours <= after, "%jd, %jd, %jd", (intmax_t)before, (intmax_t)ours, (intmax_t)after);
    }
}

Test(clock, counts_nanoseconds)
{
    const struct timespec rest = {.tv_nsec = 20000000};
    int64_t start = tpw_clock_ns();
    nanosleep(&rest, NULL);
    int64_t passed = tpw_clock_ns() - start;
    cr_assert(passed >= 20000000 && passed < 5000000000, "20 ms took %jd ns", (intmax_t)passed);
}

Test(clock, backoff_starts_without_sleeping)
{
    /* a sleeping wait is a voluntary switch of at least 50 us: the least of several tries is free of other load */
    int64_t best = INT64_MAX;
    for (int i = 0; i < 20; i++) {
        tpw_backoff backoff = {0};
        int64_t start = tpw_clock_ns();
        tpw_backoff_wait(&backoff);
        int64_t passed = tpw_clock_ns() - start;
        if (passed < best)
            best = passed;
        cr_assert_gt(backoff.polls, 0);
    }
    cr_assert_lt(best, 50000, "the first wait took %jd ns", (intmax_t)best);
}

Test(clock, backoff_ends_in_sleeping_and_stays_there)
{
    tpw_backoff backoff = {0};
    uint32_t last = 0;
    int grown = 0;
    for (; grown < 100000; grown++) {
        tpw_backoff_wait(&backoff);
        if (backoff.polls == last)
            break;
        last = backoff.polls;
    }
    cr_assert_lt(grown, 100000, "the count never came to rest");

    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* else the kernel adds 50 us of its own to any sleep */
    int64_t wall = tpw_clock_ns();
    int64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < 100; i++)
        tpw_backoff_wait(&backoff);
    wall = tpw_clock_ns() - wall;
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    cr_assert_eq(backoff.polls, last);
    cr_assert_geq(wall, 100 * 50000, "100 sleeps of 50 us took %jd ns", (intmax_t)wall);
    cr_assert_lt(cpu, wall / 2, "of %jd ns, %jd were spent computing", (intmax_t)wall, (intmax_t)cpu);
}

Test(clock, a_count_at_its_end_does_not_wrap_to_spinning)
{
    tpw_backoff backoff = {.polls = UINT32_MAX};
    int64_t start = tpw_clock_ns();
    tpw_backoff_wait(&backoff);
    cr_assert_geq(tpw_clock_ns() - start, 50000);
    cr_assert_eq(backoff.polls, UINT32_MAX);
}
