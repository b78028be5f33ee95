/* Runs one function on n ranks that are threads of this process. Nothing is asserted in a thread: a failed assertion leaves
 * by a long jump, which must stay on the test's own thread. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_LOCAL_RANKS_H
#define TPW_TESTS_LOCAL_RANKS_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <time.h>

#include "tp/boot.h"

#define LOCAL_RANKS_MAX 8

typedef struct local_rank {
    int rank;
    tpw_boot *boot;
    void *data;        /* the same for all ranks */
    tpw_status status; /* what the function returned */
    tpw_error err;
    double seconds;
    tpw_status (*run)(struct local_rank *self);
} local_rank;

static double seconds_now(void)
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

static void *local_rank_main(void *arg)
{
    local_rank *self = arg;
    double start = seconds_now();
    self->status = self->run(self);
    self->seconds = seconds_now() - start;
    return NULL;
}

/* ranks[0..n-1] hold each rank's outcome afterwards. The boots are destroyed. */
static void run_local(int n, int64_t timeout_ms, tpw_status (*run)(local_rank *), void *data, local_rank *ranks)
{
    tpw_boot *boots[LOCAL_RANKS_MAX];
    pthread_t threads[LOCAL_RANKS_MAX];
    tpw_error err = {0};
    cr_assert_eq(tpw_boot_local_create(n, timeout_ms, boots, &err), TPW_OK, "%s", err.text);
    for (int r = 0; r < n; r++) {
        ranks[r] = (local_rank){.rank = r, .boot = boots[r], .data = data, .run = run};
        (void)snprintf(boots[r]->host, sizeof boots[r]->host, "host%c", 'A' + r);
        cr_assert_eq(pthread_create(&threads[r], NULL, local_rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < n; r++)
        tpw_boot_destroy(boots[r]);
}

static inline void expect_all_ok(const local_rank *ranks, int n)
{
    for (int r = 0; r < n; r++)
        cr_assert_eq(ranks[r].status, TPW_OK, "rank %d: %s: %s", r, tpw_status_name(ranks[r].status),
                     ranks[r].err.text);
}

#endif
