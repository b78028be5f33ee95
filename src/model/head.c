/* The vocabulary-parallel head: logits, arg-max, and the exchange that lets every rank choose alike. SPDX-License-Identifier: Apache-2.0 */
#include "model/layers.h"
#include "model/pass.h"

/* Logits of `count` rows and the best of this rank's part, in ws.value and ws.best. */
static tpw_status local_best(tpw_pass *pass, const int32_t *rows, int32_t count, tpw_error *err)
{
    const tpw_exec *exec = pass->exec;
    tpw_workspace *ws = &pass->ws;
    const tpw_gather_args gather = {.x = ws->y, .rows = rows, .y = tpw_head_rows(ws->head_in, count)};
    const tpw_gemm_args gemm = {.x = rows == NULL ? tpw_head_rows(ws->y, count) : gather.y,
                                .w = pass->model->lm_head,
                                .kind = TPW_GEMM_COLUMN,
                                .y = tpw_head_rows(ws->logits, count)};
    const tpw_argmax_args argmax = {
        .logits = gemm.y, .vocab0 = pass->model->part.vocab.begin, .value = ws->value, .id = ws->best};

    if (gemm.y.cols > 0) { /* there may be more ranks than vocabulary parts: then there is no number here */
        if (rows != NULL)
            TPW_TRY(exec->ops->gather(exec, &gather, err));
        TPW_TRY(exec->ops->gemm(exec, &gemm, err));
    }
    return exec->ops->argmax(exec, &argmax, err);
}

tpw_status tpw_pass_head(tpw_pass *pass, int32_t exchange, const int32_t *rows, int32_t count, const int32_t *to,
                         tpw_error *err)
{
    const tpw_exec *exec = pass->exec;
    tpw_step_io *io = &pass->io.device;
    uint64_t *all = tpw_io_records(&pass->io_limits, io, exchange);
    const tpw_record_args record = {.agree = &io->agree[exchange],
                                    .value = pass->ws.value,
                                    .id = pass->ws.best,
                                    .rows = count,
                                    .rank = pass->comm->rank,
                                    .size = pass->comm->size,
                                    .all = all};
    const tpw_pick_args pick = {
        .all = all, .rows = count, .size = pass->comm->size, .best = io->best, .to = to, .tokens = io->tokens};
    size_t words = (size_t)pass->comm->size * (1 + (size_t)count);

    if (count < 0 || count > (exchange == pass->limits.drafts_max ? pass->limits.logits_max : pass->limits.entries_max))
        return tpw_fail(err, TPW_ERR_LIMIT, "%d logit rows: at most %d are planned", count, pass->limits.logits_max);
    if (count > 0)
        TPW_TRY(local_best(pass, rows, count, err));
    TPW_TRY(exec->ops->record(exec, &record, err));
    TPW_TRY(pass->comm->ops->merge(pass->comm, all, words * sizeof *all, err));
    return count > 0 ? exec->ops->pick(exec, &pick, err) : TPW_OK;
}

tpw_status tpw_pass_compare(const tpw_pass *pass, int32_t exchange, int32_t count, tpw_error *err)
{
    const uint64_t *all = tpw_io_records(&pass->io_limits, &pass->io.host, exchange);

    for (int r = 1; r < pass->comm->size; r++) {
        uint64_t other = all[(size_t)r * (1 + (size_t)count)];

        if (other != all[0])
            return tpw_fail(err, TPW_ERR_DIVERGED,
                            "rank %d differs from rank 0 after step %lld: digest %016llx against %016llx", r,
                            (long long)pass->comm->boot->step, (unsigned long long)other, (unsigned long long)all[0]);
    }
    return TPW_OK;
}
