/* Where results go: an aligned table for people, and JSON Lines. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BENCH_REPORT_H
#define TPW_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define BENCH_SCHEMA 1

/* NULL and 0 are fields that do not apply: "-" in the table, null in JSON. */
typedef struct bench_cell {
    const char *name;  /* "gemm.down" */
    const char *shape; /* "5120x8704" */
    int32_t rows;
    double us;      /* of one launch */
    double bytes;   /* that one launch must move: packed weights of a gemm, all reads and writes of another op, the
                       values that a rank brings to an exchange */
    double read_us; /* that the GPU needs to only read as many */
    double flops;   /* of one launch */
} bench_cell;

/* What was measured on. Text that is not known is "", a clock 0. */
typedef struct bench_header {
    const char *gpu;
    const char *bus;
    const char *driver;
    const char *cuda;
    int nccl_compiled;
    int nccl_loaded;
    const char *commit;
    unsigned sm_mhz; /* under load, as found */
    unsigned memory_mhz;
    int ranks;
    bool quick;
} bench_header;

typedef struct bench_report {
    FILE *table; /* NULL: another rank writes */
    FILE *json;  /* NULL: none */
    const char *json_path;
    int64_t cells;
} bench_report;

/* json_path NULL: no JSON; "-": JSON to standard output and the table to standard error. ERR_IO. */
tpw_status bench_report_open(bench_report *report, const char *json_path, tpw_error *err) TPW_MUST_CHECK;

/* Each writes what it is given at once; all do nothing on a rank that does not write. ERR_IO, ERR_MEMORY. */
tpw_status bench_report_header(bench_report *report, const bench_header *header, tpw_error *err) TPW_MUST_CHECK;
tpw_status bench_report_section(bench_report *report, const char *title, tpw_error *err) TPW_MUST_CHECK;
tpw_status bench_report_note(bench_report *report, const char *text, tpw_error *err) TPW_MUST_CHECK;
tpw_status bench_report_cell(bench_report *report, const bench_cell *cell, tpw_error *err) TPW_MUST_CHECK;
/* The last line: how many cells there are, how long it took, and with what status it ended. */
tpw_status bench_report_end(bench_report *report, double seconds, tpw_status status, tpw_error *err) TPW_MUST_CHECK;

/* Closes. ERR_IO when something did not reach the file. */
tpw_status bench_report_close(bench_report *report, tpw_error *err) TPW_MUST_CHECK;

#endif
