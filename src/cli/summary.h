/* The numbers at the end of a run, for people and for JSON. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_SUMMARY_H
#define TPW_CLI_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpworker/worker.h"

typedef struct tpw_summary {
    size_t prompts;
    size_t finished;
    size_t digested; /* sequences in `digest` */
    tpw_stats stats;
    int32_t k;
    int64_t decode_tokens; /* of steps without prompt rows */
    double seconds;        /* from the first step to the last */
    uint64_t digest;
    const tpw_rank_info *ranks; /* [size] */
    int size;
} tpw_summary;

static inline double tpw_prefill_seconds(const tpw_stats *stats)
{
    return (double)stats->prefill_ns * 1e-9;
}

static inline double tpw_decode_seconds(const tpw_stats *stats)
{
    return (double)(stats->step_ns - stats->prefill_ns) * 1e-9;
}

/* part / whole, 0 of nothing. */
static inline double tpw_share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

/* Tokens that one sequence gains in one step that verifies drafts: the certain one and the accepted ones. 1 without drafts. */
static inline double tpw_tokens_per_step(const tpw_stats *stats)
{
    return 1 + tpw_share(stats->accepted_tokens, stats->drafts);
}

/* So many drafts without a hit are no chance. */
static inline bool tpw_drafter_suspect(const tpw_stats *stats)
{
    return stats->draft_tokens > 100 && stats->accepted_tokens == 0;
}

/* Tokens per second, 0 when no time was spent. */
static inline double tpw_rate(int64_t tokens, double seconds)
{
    return seconds > 0 ? (double)tokens / seconds : 0;
}

#endif
