/* Gathers what GPUs the ranks see and agrees on who takes which. SPDX-License-Identifier: Apache-2.0 */
#include "tp/gpus.h"

#include <stdlib.h>
#include <string.h>

#include "tp/agree.h"

/* Room for everybody's record and choice; free both, also after an error. */
static tpw_status prepare(const tpw_boot *boot, const tpw_topology *topology, const tpw_gpu *gpus, int count,
                          const tpw_seat *out, tpw_place_rank **ranks, int32_t **chosen, tpw_error *err)
{
    if (topology == NULL || out == NULL || count < 0 || (gpus == NULL && count > 0))
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "tpw_gpus_agree: no topology, no place for the seat, or no list of GPUs");
    if (count > TPW_PLACE_GPUS_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT,
                        "%d GPUs are visible, of which %d can be compared: set CUDA_VISIBLE_DEVICES", count,
                        TPW_PLACE_GPUS_MAX);
    *ranks = calloc((size_t)boot->size + 1, sizeof **ranks); /* the last one is our own */
    *chosen = calloc((size_t)boot->size, sizeof **chosen);
    if (*ranks == NULL || *chosen == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for the GPU lists of %d ranks", boot->size);
    return TPW_OK;
}

static void fill(const tpw_boot *boot, const tpw_topology *topology, const tpw_gpu *gpus, int count,
                 tpw_place_rank *own)
{
    memcpy(own->host, boot->host, strnlen(boot->host, sizeof own->host - 1));
    own->allowed_key = tpw_topology_allowed_key(topology);
    own->gpu_count = count;
    if (count > 0)
        memcpy(own->gpus, gpus, (size_t)count * sizeof *gpus);
}

/* What came over the wire is cut to what the decision relies on. */
static void clean(tpw_place_rank *rank)
{
    rank->host[sizeof rank->host - 1] = '\0';
    for (int g = 0; g < TPW_PLACE_GPUS_MAX; g++) {
        tpw_gpu *gpu = &rank->gpus[g];
        gpu->name[sizeof gpu->name - 1] = '\0';
        gpu->uuid[sizeof gpu->uuid - 1] = '\0';
        gpu->bus[sizeof gpu->bus - 1] = '\0';
    }
}

tpw_status tpw_gpus_agree(tpw_boot *boot, const tpw_topology *topology, const tpw_gpu *gpus, int count,
                          int ranks_per_gpu, tpw_seat *out, tpw_error *err)
{
    tpw_place_rank *ranks = NULL;
    int32_t *chosen = NULL;
    tpw_error own = {0};
    bool refused = false;
    tpw_status st = prepare(boot, topology, gpus, count, out, &ranks, &chosen, &own);
    TPW_TRY_GOTO(st, tpw_agree_status(boot, st, &own), failed);
    fill(boot, topology, gpus, count, &ranks[boot->size]);
    TPW_TRY_GOTO(st, boot->ops->allgather(boot, &ranks[boot->size], ranks, sizeof *ranks, &own), failed);
    for (int r = 0; r < boot->size; r++)
        clean(&ranks[r]);
    st = tpw_place_gpus(ranks, boot->size, ranks_per_gpu, chosen, &own);
    refused = st == TPW_ERR_RESOURCE;
    if (st == TPW_OK)
        st = tpw_place_seat(topology, ranks, boot->size, chosen, boot->rank, out, &own);
    tpw_error agreed = own;
    st = tpw_agree_status(boot, st, &agreed);
    /* a refusal is the same decision everywhere: "rank 0 (host)" in front of it would point at a rank not concerned */
    if (!refused || st != TPW_ERR_RESOURCE)
        own = agreed;
failed:
    if (st != TPW_OK)
        (void)tpw_fail(err, st, "%s", own.text);
    free(ranks);
    free(chosen);
    return st;
}
