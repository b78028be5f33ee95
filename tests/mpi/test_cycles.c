/* A thousand workers one after the other in one process leave nothing behind: memory, descriptors, threads, communicators.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "mpi_test.h"

#include "output.h"

/* The sanitizer finds lost memory itself, and holds back what is freed. */
#if defined(__SANITIZE_ADDRESS__)
#define CYCLES    120
#define GROWTH_KB 1000000
#define SLOPE_KB  10000.0
#else
#define CYCLES    1000
#define GROWTH_KB 2048
#define SLOPE_KB  1.0 /* a cycle: less than a page lost in one of four */
#endif
#define WARM        100
#define SAMPLE_EACH 10

MPI_SUITE(cycles);

static long entries(const char *folder)
{
    DIR *dir = opendir(folder);
    long n = 0;

    cr_assert_not_null(dir, "%s", folder);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* Without what the allocator merely keeps for later. */
static long resident_kb(void)
{
    char line[256];
    long kb = -1;
    FILE *file;

    (void)malloc_trim(0);
    file = fopen("/proc/self/status", "r");
    cr_assert_not_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            (void)sscanf(line + 6, "%ld", &kb);
    (void)fclose(file);
    cr_assert_gt(kb, 0);
    return kb;
}

static void cycle(const tpw_options *o)
{
    const int32_t ids[] = {5, 9, 11};
    output out = {.over = false};
    tpw_worker *w = NULL;
    tpw_error err = {0};

    must(tpw_worker_create(o, MPI_COMM_WORLD, &w, &err), "create", &err);
    must(tpw_worker_load(w, &err), "load", &err);
    worker_admit(w, 0, ids, 3, 1);
    (void)worker_step(w, &out, 1);
    cr_assert(out.over && out.count == 1);
    output_free(&out);
    worker_close(w);
}

/* Kilobytes a cycle, by least squares over the samples. */
static double slope(const long *kb, int count)
{
    double x = 0, y = 0, xx = 0, xy = 0;

    for (int i = 0; i < count; i++) {
        x += i;
        y += (double)kb[i];
        xx += (double)i * i;
        xy += (double)i * (double)kb[i];
    }
    return (count * xy - x * y) / (count * xx - x * x) / SAMPLE_EACH;
}

MPI_TEST(cycles, a_thousand_workers, .timeout = 270)
{
    long kb[(CYCLES - WARM) / SAMPLE_EACH], files = 0, threads = 0;
    tpw_options o = TPW_OPTIONS_INIT;
    int samples = 0;
    double growing;

    o.model = TPW_TEST_DATA "/tiny/qwen35-odd";
    o.sequences_max = 1;
    o.rows_max = 8;
    o.context_max = 16;
    o.timeout_ms = 60000;
    for (int i = 0; i < CYCLES; i++) {
        cycle(&o);
        if (i == WARM - 1) {
            files = entries("/proc/self/fd");
            threads = entries("/proc/self/task");
        }
        if (i >= WARM && (i - WARM) % SAMPLE_EACH == 0)
            kb[samples++] = resident_kb();
    }
    growing = slope(kb, samples);
    printf("rank %d: %ld to %ld kB, %.3f kB a cycle; %ld to %ld descriptors, %ld to %ld threads\n", mt_rank, kb[0],
           kb[samples - 1], growing, files, entries("/proc/self/fd"), threads, entries("/proc/self/task"));
    cr_assert_leq(entries("/proc/self/fd"), files, "descriptors are lost");
    cr_assert_leq(entries("/proc/self/task"), threads, "threads are lost");
    cr_assert_lt(kb[samples - 1] - kb[0], GROWTH_KB, "%ld kB more than after %d cycles", kb[samples - 1] - kb[0], WARM);
    cr_assert_lt(growing, SLOPE_KB, "%.3f kB a cycle", growing);
}

/* Workers whose creation or loading fails leave as little behind. */
MPI_TEST(cycles, workers_that_fail, .timeout = 100)
{
    enum { TRIES = 300, EARLY = 100 };
    long begin = 0, files = 0;
    tpw_options o = TPW_OPTIONS_INIT;

    o.timeout_ms = 60000;
    o.rows_max = 8;
    for (int i = 0; i < TRIES; i++) {
        tpw_worker *w = NULL;
        tpw_error err = {0};

        o.model = i % 3 == 0 ? "/nonexistent/model" : TPW_TEST_DATA "/tiny/qwen35-odd";
        o.isa = i % 3 == 1 && mt_rank == 1 ? "no such isa" : NULL;
        o.chunk = i % 3 == 2 && mt_rank == 1 ? 77 : 256; /* options that differ */
        tpw_status st = tpw_worker_create(&o, MPI_COMM_WORLD, &w, &err);

        if (i % 3 == 0) {
            must(st, "create", &err);
            cr_assert_eq(tpw_worker_load(w, &err), TPW_ERR_MISSING, "%s", err.text);
            tpw_worker_destroy(w);
        } else {
            cr_assert_eq(st, i % 3 == 1 ? TPW_ERR_ARGUMENT : TPW_ERR_DIVERGED, "%s: %s", tpw_status_name(st), err.text);
            cr_assert_null(w);
        }
        if (i == EARLY - 1) {
            begin = resident_kb();
            files = entries("/proc/self/fd");
        }
    }
    printf("rank %d: %ld to %ld kB over %d workers that fail\n", mt_rank, begin, resident_kb(), TRIES - EARLY);
    cr_assert_leq(entries("/proc/self/fd"), files, "descriptors are lost");
    cr_assert_lt(resident_kb() - begin, GROWTH_KB);
}
