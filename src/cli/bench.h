/* The numbers of bench: samples of cells, their medians, whether cells agree, and how that is shown. No worker, no ranks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_BENCH_H
#define TPW_CLI_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/sink.h"
#include "tpworker/worker.h"

/* One run of a cell: differences of the worker's counters. */
typedef struct tpw_bench_sample {
    int64_t prompt_tokens;
    int64_t prefill_ns;    /* steps that held prompt rows */
    int64_t decode_tokens; /* of the other steps */
    int64_t decode_steps;
    int64_t decode_ns;
    int64_t drafts;
    int64_t draft_tokens;
    int64_t accepted_tokens;
} tpw_bench_sample;

typedef struct tpw_bench_cell {
    int32_t k;
    int32_t batch;
    tpw_bench_sample *samples; /* [count] */
    int32_t count;
    uint64_t digest;   /* of sequence 0, which every cell has */
    int64_t compared;  /* sequences held against the first run that had them */
    int64_t different; /* of them */
} tpw_bench_cell;

/* Adds what lies between two readings of a worker's counters to a sample: a step with prompt rows, or one without. */
void tpw_bench_add_step(tpw_bench_sample *sample, const tpw_stats *before, const tpw_stats *after);

/* What a cell comes to. */
typedef struct tpw_bench_row {
    double tokens_per_second; /* decode: median of the runs */
    double slowest;
    double fastest;
    double ms_per_step; /* decode: median */
    double prefill_tokens_per_second;
    double tokens_per_step; /* of one sequence: (accepted + verified runs) / verified runs; 1 without drafts */
    double acceptance;      /* accepted / drafted; 0 without drafts */
} tpw_bench_row;

/* Sorts `values`. The mean of the two in the middle when their count is even; 0 of none. */
double tpw_bench_median(double *values, size_t count);

/* ERR_MEMORY. A cell without runs gives zeros. */
tpw_status tpw_bench_evaluate(const tpw_bench_cell *cell, tpw_bench_row *out, tpw_error *err) TPW_MUST_CHECK;

/* Digests of the sequences as the first run that had them left them. Zero-initialise with room for the largest batch. */
typedef struct tpw_bench_reference {
    uint64_t *digests; /* [known] */
    int32_t known;
} tpw_bench_reference;

/* Holds the digests of a run of `cell` against the reference and counts; sequences that no run had before become the reference. */
void tpw_bench_compare(tpw_bench_reference *reference, tpw_bench_cell *cell, const uint64_t *digests);

/* How many CPUs a mask text ("0-3,8") names; 0 when it is empty or of another form. */
int tpw_bench_cpus(const char *mask);

/* The table for people: a title, a row for every cell with runs. */
void tpw_bench_title(tpw_sink *sink);
void tpw_bench_line(tpw_sink *sink, const tpw_bench_cell *cell, const tpw_bench_row *row);
/* The JSON line "cell". */
void tpw_bench_json(tpw_sink *sink, const tpw_bench_cell *cell, const tpw_bench_row *row);

#endif
