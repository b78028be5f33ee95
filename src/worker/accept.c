/* Decides how many tokens of a verified run are taken. Pure. SPDX-License-Identifier: Apache-2.0 */
#include "worker/accept.h"

tpw_accepted tpw_accept(const int32_t *drafts, int32_t k, const int32_t *best, const tpw_run_rule *rule)
{
    static const tpw_finish whys[] = {[TPW_RUN_NO_NUMBER] = TPW_FINISH_ERROR,
                                      [TPW_RUN_END_TOKEN] = TPW_FINISH_STOP,
                                      [TPW_RUN_LENGTH] = TPW_FINISH_LENGTH};
    const tpw_run run = tpw_run_accept(drafts, k, best, rule);

    return (tpw_accepted){
        .tokens = run.tokens, .drafts = run.drafts, .ended = run.end != TPW_RUN_GOES_ON, .why = whys[run.end]};
}

int32_t tpw_draft_limit(int32_t draft_max, int32_t emitted, int32_t max_tokens)
{
    int32_t left = max_tokens - emitted - 1;

    return left < draft_max ? (left > 0 ? left : 0) : draft_max;
}
