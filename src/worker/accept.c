/* Decides how many tokens of a verified run are taken. Pure. SPDX-License-Identifier: Apache-2.0 */
#include "worker/accept.h"

static bool is_end(const tpw_end_rule *rule, int32_t token)
{
    for (int32_t i = 0; !rule->ignore_eos && i < rule->end_count; i++)
        if (rule->end_ids[i] == token)
            return true;
    return false;
}

tpw_accepted tpw_accept(const int32_t *drafts, int32_t k, const int32_t *best, const tpw_end_rule *rule)
{
    tpw_accepted a = {0};

    while (a.drafts < k && drafts[a.drafts] == best[a.drafts])
        a.drafts++;
    for (int32_t i = 0; i <= a.drafts; i++) {
        if (best[i] < 0) {
            a.ended = true;
            a.why = TPW_FINISH_ERROR;
            return a;
        }
        a.tokens++;
        if (is_end(rule, best[i])) {
            a.ended = true;
            a.why = TPW_FINISH_STOP;
            return a;
        }
        if (rule->emitted + a.tokens == rule->max_tokens) {
            a.ended = true;
            a.why = TPW_FINISH_LENGTH;
            return a;
        }
    }
    return a;
}

int32_t tpw_draft_limit(int32_t draft_max, int32_t emitted, int32_t max_tokens)
{
    int32_t left = max_tokens - emitted - 1;

    return left < draft_max ? (left > 0 ? left : 0) : draft_max;
}
