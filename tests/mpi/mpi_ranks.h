/* What tests of several ranks share: time, sleep, and text that starts or holds what it should.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_MPI_RANKS_H
#define TPW_TESTS_MPI_RANKS_H

#include <string.h>
#include <time.h>

#include "mpi_test.h"
#include "tp/boot_mpi.h"

static inline double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void sleep_ms(long ms)
{
    const struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&rest, NULL);
}

#define EXPECT_OK(expr)                                                                         \
    do {                                                                                        \
        tpw_error err_ = {0};                                                                   \
        tpw_status st_ = (expr);                                                                \
        cr_assert_eq(st_, TPW_OK, "rank %d: %s: %s", mt_rank, tpw_status_name(st_), err_.text); \
    } while (0)

static inline void expect_error(tpw_status got, tpw_status expected, const tpw_error *err, const char *part)
{
    cr_assert_eq(got, expected, "rank %d: %s instead of %s: %s", mt_rank, tpw_status_name(got),
                 tpw_status_name(expected), err->text);
    cr_assert(strstr(err->text, part) != NULL, "rank %d: \"%s\" does not say \"%s\"", mt_rank, err->text, part);
}

#endif
