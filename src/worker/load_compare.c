/* Compares what the ranks have loaded, and adds up the digests of the tensors. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "tp/agree.h"
#include "worker/worker.h"

/* A number of every tensor from every rank: (*all)[rank * count + tensor], the caller's to free. */
static tpw_status gather(tpw_worker *w, bool owned, uint64_t **all, tpw_error *err)
{
    size_t count = (size_t)w->weights.count, total, bytes = 0;
    uint64_t *mine = NULL, *block = NULL;
    tpw_status st = TPW_OK;

    if (tpw_mul_size(count, (size_t)w->boot->size, &total) && tpw_mul_size(total, sizeof *block, &bytes)) {
        mine = calloc(count + 1, sizeof *mine);
        block = malloc(bytes + 1);
    }
    if (mine == NULL || block == NULL)
        st = tpw_fail(err, TPW_ERR_MEMORY, "no memory to compare the digests of %zu tensors", count);
    st = tpw_agree_status(w->boot, st, err);
    for (size_t i = 0; st == TPW_OK && i < count; i++)
        mine[i] = owned ? w->weights.data[i].owned : w->weights.data[i].held;
    if (st == TPW_OK)
        st = w->boot->ops->allgather(w->boot, mine, block, count * sizeof *mine, err);
    free(mine);
    if (st != TPW_OK) {
        free(block);
        return st;
    }
    *all = block;
    return TPW_OK;
}

/* The first of ranks begin..begin + copies - 1 that has what most of them have; the lower on a tie. */
static int usual_rank(const uint64_t *values, size_t stride, int begin, int copies)
{
    int best = begin, best_votes = 0;

    for (int r = begin; r < begin + copies; r++) {
        int votes = 0;

        for (int q = begin; q < begin + copies; q++)
            votes += values[(size_t)q * stride] == values[(size_t)r * stride];
        if (votes > best_votes) {
            best = r;
            best_votes = votes;
        }
    }
    return best;
}

/* How many of them differ from it; adds their names to `text`. */
static int odd_ranks(const tpw_worker *w, const uint64_t *values, size_t stride, int begin, int copies, int usual,
                     char *text, size_t bytes)
{
    size_t used = 0;
    int odd = 0;

    text[0] = '\0';
    for (int r = begin; r < begin + copies; r++) {
        if (values[(size_t)r * stride] == values[(size_t)usual * stride])
            continue;
        used += (size_t)snprintf(text + used, used < bytes ? bytes - used : 0, "%srank %d (%.20s)", odd > 0 ? ", " : "",
                                 r, w->ranks[r].host);
        used = used < bytes ? used : bytes - 1;
        odd++;
    }
    return odd;
}

/* Ranks that read different files run as if nothing was wrong; what several of them hold shows it. */
static tpw_status compare_copies(const tpw_worker *w, const uint64_t *all, tpw_error *err)
{
    size_t count = (size_t)w->weights.count;
    int32_t different = 0, compared = 0;
    const char *name = NULL;
    char first[200] = "", text[200];
    int first_usual = 0;

    for (size_t i = 0; i < count; i++) {
        const tpw_weight_sum *sum = &w->weights.data[i];
        bool odd = false;

        for (int begin = 0; sum->copies > 1 && begin < w->boot->size; begin += sum->copies) {
            int usual = usual_rank(&all[i], count, begin, sum->copies);

            if (odd_ranks(w, &all[i], count, begin, sum->copies, usual, text, sizeof text) == 0)
                continue;
            odd = true;
            if (name != NULL)
                continue;
            name = sum->name;
            first_usual = usual;
            snprintf(first, sizeof first, "%s", text);
        }
        compared += sum->copies > 1;
        different += odd;
    }
    if (different == 0)
        return TPW_OK;
    return tpw_fail(
        err, TPW_ERR_DIVERGED,
        "tensor %.120s of %s is not that of rank %d (%.20s); %d of the %d tensors that ranks hold copies of "
        "differ: give all ranks the same revision of the model",
        name, first, first_usual, w->ranks[first_usual].host, different, compared);
}

/* Every element has been added by one rank. */
static tpw_status add_up(tpw_worker *w, const uint64_t *all, tpw_error *err)
{
    size_t count = (size_t)w->weights.count;
    tpw_weight_digest *list = calloc(count + 1, sizeof *list);
    int32_t n = 0;

    if (list == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the digests of %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        if (!w->weights.data[i].loaded)
            continue;
        list[n].name = w->weights.data[i].name;
        for (int r = 0; r < w->boot->size; r++)
            list[n].global += all[(size_t)r * count + i];
        n++;
    }
    w->weight_digests = list;
    w->weight_count = n;
    return TPW_OK;
}

tpw_status tpw_worker_compare_weights(tpw_worker *worker, tpw_error *err)
{
    uint64_t *all = NULL;
    tpw_status st;

    if (worker->boot->size > 1) {
        TPW_TRY(gather(worker, false, &all, err));
        st = compare_copies(worker, all, err);
        free(all);
        TPW_TRY(st);
    }
    if (!worker->settings.options.weight_digests) {
        tpw_weight_sums_fini(&worker->weights);
        return TPW_OK;
    }
    TPW_TRY(gather(worker, true, &all, err));
    st = add_up(worker, all, err);
    free(all);
    return tpw_agree_status(worker->boot, st, err);
}

void tpw_worker_weight_digests(const tpw_worker *worker, const tpw_weight_digest **list, int32_t *count)
{
    *list = worker != NULL ? worker->weight_digests : NULL;
    *count = worker != NULL ? worker->weight_count : 0;
}
