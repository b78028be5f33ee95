/* The numbers at the end of a run, for people and for JSON. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_SUMMARY_H
#define TPW_CLI_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

#include "tpworker/worker.h"

typedef struct tpw_summary {
    size_t prompts;
    size_t finished;
    size_t digested; /* sequences in `digest` */
    int64_t prompt_tokens;
    int64_t output_tokens;
    int64_t decode_tokens; /* of steps without prompt rows */
    int64_t steps;
    double seconds; /* from the first step to the last */
    double prefill_seconds;
    double decode_seconds;
    uint64_t digest;
    int64_t checks;
    const tpw_rank_info *ranks; /* [size] */
    int size;
} tpw_summary;

/* Tokens per second, 0 when no time was spent. */
static inline double tpw_rate(int64_t tokens, double seconds)
{
    return seconds > 0 ? (double)tokens / seconds : 0;
}

#endif
