/* The vocabulary-parallel head and its exchange. SPDX-License-Identifier: Apache-2.0 */
#include "model/head.h"

#include <math.h>
#include <string.h>

#include "model/layers.h"

/* What one rank tells the others: its digest, then its best logit of every row. */
typedef struct best {
    float value;
    int32_t id;
} best;

typedef struct record {
    uint64_t agree;
    best row[];
} record;

size_t tpw_exchange_bytes(int32_t rows)
{
    return sizeof(record) + (size_t)rows * sizeof(best);
}

/* Logits and local arg-max of `count` rows of ws.y into the own record. */
static tpw_status local_best(tpw_pass *pass, const int32_t *rows, int32_t count, record *mine, tpw_error *err)
{
    const tpw_exec *exec = pass->exec;
    tpw_workspace *ws = &pass->ws;
    const tpw_gather_args gather = {.x = ws->y, .rows = ws->rows, .y = tpw_head_rows(ws->head_in, count)};
    const tpw_gemm_args gemm = {
        .x = gather.y, .w = pass->model->lm_head, .kind = TPW_GEMM_COLUMN, .y = tpw_head_rows(ws->logits, count)};
    const tpw_argmax_args argmax = {
        .logits = gemm.y, .vocab0 = pass->model->part.vocab.begin, .value = ws->value, .id = ws->best};

    for (int32_t i = 0; i < count; i++)
        mine->row[i] = (best){-INFINITY, -1};
    if (gemm.y.cols == 0) /* more ranks than vocabulary parts */
        return TPW_OK;
    TPW_TRY(exec->device->upload(exec, ws->rows, rows, (size_t)count * sizeof *rows, err));
    TPW_TRY(exec->ops->gather(exec, &gather, err));
    TPW_TRY(exec->ops->gemm(exec, &gemm, err));
    TPW_TRY(exec->ops->argmax(exec, &argmax, err));
    for (int32_t i = 0; i < count; i++) {
        TPW_TRY(exec->device->download(exec, &mine->row[i].value, ws->value + i, sizeof(float), err));
        TPW_TRY(exec->device->download(exec, &mine->row[i].id, ws->best + i, sizeof(int32_t), err));
    }
    return TPW_OK;
}

/* Larger value wins; ties go to the lower id, which is the lower rank's since vocabulary parts ascend. */
static best pick(const char *all, size_t bytes, int size, int32_t row)
{
    best b = {-INFINITY, -1};

    for (int r = 0; r < size; r++) {
        const record *other = (const record *)(all + (size_t)r * bytes);
        best c = other->row[row];

        if (c.id >= 0 && (b.id < 0 || c.value > b.value))
            b = c;
    }
    return b;
}

tpw_status tpw_pass_head(tpw_pass *pass, const int32_t *rows, int32_t count, uint64_t agree, int32_t *ids,
                         float *values, tpw_error *err)
{
    size_t bytes = tpw_exchange_bytes(count);
    record *mine = pass->exchange;
    char *all = (char *)pass->exchange + tpw_exchange_bytes(pass->limits.logits_max);

    if (count < 0 || count > pass->limits.logits_max)
        return tpw_fail(err, TPW_ERR_LIMIT, "%d logit rows: at most %d are planned", count, pass->limits.logits_max);
    mine->agree = agree;
    if (count > 0)
        TPW_TRY(local_best(pass, rows, count, mine, err));
    TPW_TRY(pass->records->ops->allgather(pass->records, mine, all, bytes, err));
    for (int r = 0; r < pass->comm->size; r++) {
        const record *other = (const record *)(all + (size_t)r * bytes), *first = (const record *)all;

        if (other->agree != first->agree)
            return tpw_fail(
                err, TPW_ERR_DIVERGED, "rank %d differs from rank 0 after step %lld: digest %016llx against %016llx", r,
                (long long)pass->comm->boot->step, (unsigned long long)other->agree, (unsigned long long)first->agree);
    }
    for (int32_t i = 0; i < count; i++) {
        best b = pick(all, bytes, pass->comm->size, i);

        ids[i] = b.id;
        if (values != NULL)
            values[i] = b.value;
    }
    return TPW_OK;
}
