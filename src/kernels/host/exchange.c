/* The exchange of arg-max: this rank's record, the choice among all ranks', and how much of a verified run is taken.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/accept.h"
#include "kernels/exchange.h"
#include "kernels/host/host_ops.h"

tpw_status tpw_host_record(const tpw_exec *exec, const tpw_record_args *args, tpw_error *err)
{
    (void)exec;
    (void)err;
    const size_t words = 1 + (size_t)args->rows;
    uint64_t *mine = args->all + (size_t)args->rank * words;
    memset(args->all, 0, (size_t)args->size * words * sizeof *args->all);
    mine[0] = *args->agree;
    for (int32_t i = 0; i < args->rows; i++)
        mine[1 + i] = tpw_best_pack(args->value[i], args->id[i]);
    return TPW_OK;
}

tpw_status tpw_host_pick(const tpw_exec *exec, const tpw_pick_args *args, tpw_error *err)
{
    (void)exec;
    (void)err;
    for (int32_t i = 0; i < args->rows; i++) {
        const int32_t id = tpw_best_of(args->all, args->rows, args->size, i);
        args->best[i] = id;
        args->tokens[args->to[i]] = id < 0 ? 0 : id;
    }
    return TPW_OK;
}

tpw_status tpw_host_accept(const tpw_exec *exec, const tpw_accept_args *args, tpw_error *err)
{
    (void)exec;
    if (args->end_count < 0 || args->end_count > TPW_ENDS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "host accept: %d end tokens, at most %d are possible",
                        (int)args->end_count, TPW_ENDS_MAX);
    for (int32_t i = 0; i < args->count; i++) {
        args->taken[i] = tpw_entry_taken(&args->entries[i], args->tokens, args->best, args->end_ids, args->end_count);
        args->last[i] = args->entries[i].row0 + args->taken[i] - 1;
    }
    return TPW_OK;
}
