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
    const char *check;         /* as it was given, borrowed: "step", "off" */
    bool digested;             /* its sequences have digests: not with checks off */
    tpw_bench_sample *samples; /* [count] */
    int32_t count;
    uint64_t digest;   /* of sequence 0, which every cell has; 0 without digests */
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

/* What came out of the sequences 0..known-1: one number each. */
typedef struct tpw_bench_known {
    uint64_t *values; /* [known], room for the largest batch */
    int32_t known;
} tpw_bench_known;

/* The sequences as the first run that had them left them. Zero-initialise with room. */
typedef struct tpw_bench_reference {
    tpw_bench_known tokens;  /* digests of the output tokens alone, which every cell has */
    tpw_bench_known digests; /* of all scopes, from cells that make them */
} tpw_bench_reference;

/* Holds a run of `cell` against the reference and counts: tokens, and digests where the cell makes them. Both are [cell->batch].
 * Sequences that no run had before become the reference. */
void tpw_bench_compare(tpw_bench_reference *reference, tpw_bench_cell *cell, const uint64_t *tokens,
                       const uint64_t *digests);

/* What a check costs: time of decode with it over the time without any, less one. */
typedef struct tpw_bench_cost {
    int32_t cells; /* pairs of cells with times; 0: the rest is zero */
    double median; /* over cells, of each the median of its runs */
    double least;
    double most;
} tpw_bench_cost;

/* Every cell of check `check` against the first cell without checks of its K and batch, run by run: two of one round are neighbours in
 * time, and what slows one slows the other. Cells without decode steps do not count. ERR_MEMORY. */
tpw_status tpw_bench_compare_cost(const tpw_bench_cell *cells, int32_t count, const char *check, tpw_bench_cost *out,
                                  tpw_error *err) TPW_MUST_CHECK;

/* How many CPUs a mask text ("0-3,8") names; 0 when it is empty or of another form. */
int tpw_bench_cpus(const char *mask);

/* The table for people: a title, a row for every cell with runs. */
void tpw_bench_title(tpw_sink *sink);
void tpw_bench_line(tpw_sink *sink, const tpw_bench_cell *cell, const tpw_bench_row *row);
/* The JSON line "cell". */
void tpw_bench_json(tpw_sink *sink, const tpw_bench_cell *cell, const tpw_bench_row *row);
/* "checks   step costs 1.2 % of decode (...)" and the JSON line "cost"; nothing of no cells. */
void tpw_bench_say_cost(tpw_sink *people, tpw_sink *json, const char *check, const tpw_bench_cost *cost);

#endif
