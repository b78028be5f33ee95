/* Derives limits from options and config, and measures what a rank will hold. SPDX-License-Identifier: Apache-2.0 */
#include "worker/plan.h"

#include "base/checked.h"
#include "kernels/cuda/cuda.h"
#include "model/weights.h"
#include "tp/comm_nccl.h"

#define CONTEXT_DEFAULT 4096

tpw_status tpw_plan_open(const tpw_options *options, tpw_config *config, tpw_checkpoint **out, tpw_error *err)
{
    if (options->dummy != NULL) {
        TPW_TRY(tpw_config_dummy(options->dummy, options->dummy_layers, options->dummy_vocab, config, err));
        return tpw_checkpoint_open_dummy(config, out, err);
    }
    TPW_TRY(tpw_config_load(options->model, config, err));
    return tpw_checkpoint_open(options->model, out, err);
}

tpw_status tpw_plan_limits_make(const tpw_options *options, const tpw_config *config, tpw_plan_limits *out,
                                tpw_error *err)
{
    const tpw_options *o = options;
    tpw_dtype act = o->compute == TPW_COMPUTE_F32 ? TPW_F32 : TPW_BF16;
    int32_t context = o->context_max > 0 ? o->context_max : CONTEXT_DEFAULT;
    int64_t pages_each;

    if (o->context_max > config->positions_max)
        return tpw_fail(err, TPW_ERR_LIMIT, "context of %d positions: the model has %d", o->context_max,
                        config->positions_max);
    if (context > config->positions_max)
        context = config->positions_max;
    pages_each = (context + o->draft_max + o->page_size - 1) / o->page_size;
    if (o->pages == 0 && pages_each * o->sequences_max >= INT32_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "%d sequences of %lld pages are too many: set pages", o->sequences_max,
                        (long long)pages_each);
    out->context_max = context;
    out->layout = o->backend == TPW_BACKEND_CUDA ? tpw_cuda_layout() : NULL;
    out->state = (tpw_state_limits){.slots = o->sequences_max,
                                    .pages = o->pages > 0 ? o->pages : (int32_t)(pages_each * o->sequences_max),
                                    .page_size = o->page_size,
                                    .act = act,
                                    .mtp = o->draft_max > 0 && o->drafter == NULL};
    out->pass = (tpw_pass_limits){.rows_max = o->rows_max,
                                  .logits_max = o->sequences_max * (o->draft_max + 1),
                                  .entries_max = o->sequences_max,
                                  .drafts_max = out->state.mtp ? o->draft_max : 0,
                                  .act = act};
    return TPW_OK;
}

static tpw_status add_all(tpw_plan *plan, tpw_error *err)
{
    const size_t parts[] = {plan->weights, plan->kv, plan->state, plan->workspace};

    plan->total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!tpw_add_size(plan->total, parts[i], &plan->total))
            return tpw_fail(err, TPW_ERR_LIMIT, "the planned sizes do not fit into memory addresses");
    return TPW_OK;
}

tpw_status tpw_plan_make(const tpw_config *config, tpw_checkpoint *checkpoint, const tpw_plan_limits *limits, int rank,
                         int size, tpw_plan *out, tpw_error *err)
{
    tpw_plan plan = {0};
    tpw_partition part;
    tpw_state_bytes state;
    tpw_tensor_info info;

    TPW_TRY(tpw_partition_make(config, rank, size, &part, err));
    if (limits->state.mtp && !tpw_checkpoint_find(checkpoint, "mtp.fc.weight", &info))
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "%s has no MTP weights: draft_max must be 0 without a drafter of your own",
                        tpw_checkpoint_path(checkpoint));
    TPW_TRY(tpw_model_bytes(config, &part, checkpoint, limits->layout, limits->context_max, &plan.weights, err));
    TPW_TRY(tpw_state_plan(config, &part, &limits->state, &state, err));
    TPW_TRY(tpw_pass_bytes(config, &part, &limits->pass, &plan.workspace, err));
    plan.kv = state.kv;
    plan.state = state.total - state.kv;
    TPW_TRY(tpw_pass_host_bytes(config, &part, &limits->pass, &plan.communication, err));
    TPW_TRY(add_all(&plan, err));
    if (limits->layout != NULL) {
        const tpw_nccl_options comm = {.rows_max = limits->pass.rows_max, .cols_max = config->hidden};

        plan.gpu = tpw_cuda_own_bytes() + (size > 1 ? tpw_comm_nccl_bytes(&comm, size) : 0);
    }
    *out = plan;
    return TPW_OK;
}
