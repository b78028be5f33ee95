// The exchange of arg-max on the device: this rank's record, the choice among all ranks', how much of a run is taken.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"

extern "C" {
#include "kernels/exchange.h"
}

namespace
{

enum { THREADS = 128 };

__global__ void __launch_bounds__(THREADS) record(tpw_record_args a)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int64_t words = 1 + (int64_t)a.rows, at = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (at >= words * a.size)
        return;
    const int64_t row = at % words - 1;
    uint64_t word = 0;
    if (at / words == a.rank)
        word = row < 0 ? *a.agree : tpw_best_pack(a.value[row], a.id[row]);
    a.all[at] = word;
}

__global__ void __launch_bounds__(THREADS) pick(tpw_pick_args a)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int32_t row = (int32_t)(blockIdx.x * THREADS + threadIdx.x);
    if (row >= a.rows)
        return;
    const int32_t id = tpw_best_of(a.all, a.rows, a.size, row);
    a.best[row] = id;
    a.tokens[a.to[row]] = id < 0 ? 0 : id;
}

__global__ void __launch_bounds__(THREADS) accept(tpw_accept_args a)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int32_t i = (int32_t)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= a.count)
        return;
    const tpw_accept_entry entry = a.entries[i];
    const int32_t taken = tpw_entry_taken(&entry, a.tokens, a.best, a.end_ids, a.end_count);
    a.taken[i] = taken;
    a.last[i] = entry.row0 + taken - 1;
}

dim3 blocks_for(int64_t items)
{
    return dim3((unsigned)((items + THREADS - 1) / THREADS));
}

} // namespace

extern "C" tpw_status tpw_cuda_record(const tpw_exec *exec, const tpw_record_args *args, tpw_error *err)
{
    if (args->rows < 0 || args->size < 1 || args->rank < 0 || args->rank >= args->size ||
        (1 + (int64_t)args->rows) * args->size > INT32_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda record: %d rows of rank %d of %d", (int)args->rows,
                        (int)args->rank, (int)args->size);
    return tpw_cuda_launch(exec, "record", err, record, blocks_for((1 + (int64_t)args->rows) * args->size),
                           dim3(THREADS), 0, 1, *args);
}

extern "C" tpw_status tpw_cuda_pick(const tpw_exec *exec, const tpw_pick_args *args, tpw_error *err)
{
    if (args->rows < 0 || args->size < 1)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda pick: %d rows of %d ranks", (int)args->rows, (int)args->size);
    return tpw_cuda_launch(exec, "pick", err, pick, blocks_for(args->rows), dim3(THREADS), 0, 1, *args);
}

extern "C" tpw_status tpw_cuda_accept(const tpw_exec *exec, const tpw_accept_args *args, tpw_error *err)
{
    if (args->count < 0 || args->end_count < 0 || args->end_count > TPW_ENDS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda accept: %d entries, %d end tokens, at most %d are possible",
                        (int)args->count, (int)args->end_count, TPW_ENDS_MAX);
    return tpw_cuda_launch(exec, "accept", err, accept, blocks_for(args->count), dim3(THREADS), 0, 1, *args);
}
