/* How many tokens of a verified run are taken: one source for the host's decision and for kernels. Pure.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_ACCEPT_H
#define TPW_KERNELS_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/device_code.h"

typedef enum tpw_run_end {
    TPW_RUN_GOES_ON,
    TPW_RUN_NO_NUMBER, /* a row's logits held none */
    TPW_RUN_END_TOKEN,
    TPW_RUN_LENGTH
} tpw_run_end;

/* What ends a sequence. */
typedef struct tpw_run_rule {
    const int32_t *end_ids;
    int32_t end_count;
    bool ignore_eos;
    int32_t emitted;    /* before this run */
    int32_t max_tokens; /* > emitted */
} tpw_run_rule;

typedef struct tpw_run {
    int32_t tokens; /* taken from best[0..]: the accepted drafts and the one after them, unless something ends before */
    int32_t drafts; /* leading drafts that were right: the longest matching prefix */
    tpw_run_end end;
} tpw_run;

TPW_HD bool tpw_run_is_end(const tpw_run_rule *rule, int32_t token)
{
    for (int32_t i = 0; !rule->ignore_eos && i < rule->end_count; i++)
        if (rule->end_ids[i] == token)
            return true;
    return false;
}

/* best[i] is the arg-max after row i of a run [known token, drafts[0], ..., drafts[k-1]]; -1: the row held no number. */
TPW_HD tpw_run tpw_run_accept(const int32_t *drafts, int32_t k, const int32_t *best, const tpw_run_rule *rule)
{
    tpw_run run = {0, 0, TPW_RUN_GOES_ON};

    while (run.drafts < k && drafts[run.drafts] == best[run.drafts])
        run.drafts++;
    for (int32_t i = 0; i <= run.drafts && run.end == TPW_RUN_GOES_ON; i++) {
        if (best[i] < 0) {
            run.end = TPW_RUN_NO_NUMBER;
            return run;
        }
        run.tokens++;
        if (tpw_run_is_end(rule, best[i]))
            run.end = TPW_RUN_END_TOKEN;
        else if (rule->emitted + run.tokens == rule->max_tokens)
            run.end = TPW_RUN_LENGTH;
    }
    return run;
}

/* Rows that are committed of a run of `rows` certain rows and its drafts: the certain ones, and one draft row for each token beyond
 * the first; the last token has not been run, unless it was run and gave no number: that row stays at every K, since at K = 0 it
 * is a certain one. */
TPW_HD int32_t tpw_run_taken(int32_t rows, const tpw_run *run)
{
    return rows + run->tokens - (run->end == TPW_RUN_NO_NUMBER ? 0 : 1);
}

#endif
