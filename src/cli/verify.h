/* The matrix of verify: which cells there are, whether two of them agree, and the report for build servers. No worker, no ranks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_VERIFY_H
#define TPW_CLI_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/results.h"

typedef enum tpw_cell_drafter { TPW_CELL_MTP, TPW_CELL_RANDOM, TPW_CELL_ORACLE, TPW_CELL_DRAFTERS } tpw_cell_drafter;

/* One way to cut the work. */
typedef struct tpw_cell {
    int32_t tp;
    int32_t k;
    int32_t batch;
    int32_t chunk; /* 0: whole prompts */
    int32_t page;
    tpw_cell_drafter drafter; /* with K above 0 */
} tpw_cell;

/* What the cells are made of. */
typedef struct tpw_cell_space {
    int ranks; /* sizes 1, 2, 4, 8 up to this */
    bool mtp;
} tpw_cell_space;

/* The cell that all others are compared with is the first: one rank, K 0, batch 1, whole prompts, page 64. Then one setting changed at
 * a time, then pairs, then `random` different ones that follow from `seed` alone (fewer when there are no more). malloc'ed; NULL when
 * there is no memory. Pure. */
tpw_cell *tpw_cells_make(const tpw_cell_space *space, int64_t random, uint64_t seed, int *count);

/* "tp 2, K 3 (oracle), batch 8, chunk 7, page 16". */
#define TPW_CELL_NAME_MAX 80
void tpw_cell_name(const tpw_cell *cell, char out[TPW_CELL_NAME_MAX]);

/* "mtp", "random", "oracle"; "none" at K = 0. Static storage. */
const char *tpw_cell_drafter_name(const tpw_cell *cell);

/* How a cell came out. */
typedef struct tpw_cell_result {
    tpw_cell cell;
    int64_t tokens; /* compared and equal, up to the first difference */
    int64_t digests;
    int64_t nanoseconds;
    bool different;
    char text[200]; /* the first difference: sequence, then token or scope and layer */
} tpw_cell_result;

/* Compares tokens, ends and all digests but "mtp" of every sequence; with `drafts` (of a cell with the same K and the MTP drafter, or
 * NULL) "mtp" too. Sets tokens, digests, different, text. Pure. */
void tpw_cell_compare(const tpw_results *reference, const tpw_results *drafts, const tpw_results *now,
                      tpw_cell_result *out);

/* JUnit's XML, one test case for each result; malloc'ed, NULL when there is no memory. Pure. */
char *tpw_cells_junit(const tpw_cell_result *results, int count);

#endif
