// NCCL's device communicator, window and buffers, and the kernels that exchange through them.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <nccl.h>
#include <nccl_device.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm_row.cuh"
#include "kernels/cuda/wait.cuh"

extern "C" {
#include "tp/nccl_device.h"
}

struct tpw_nccl_device {
    ncclDevComm comm;
    bool has_comm;
    ncclLLA2AHandle packets;
    int32_t slots; // of a block and epoch, all ranks together
    ncclWindow_t window;
    bool has_window;
    void *window_data;
    size_t region; // 8-byte words that one CTA stages
    void *gather;
    size_t gather_words; // a rank
    int size;
    int32_t rows_max;
    int32_t cols_max;
};

namespace
{

constexpr int THREADS = 256;
constexpr int EACH = TPW_NCCL_TILE / THREADS; // packets of a thread and epoch
constexpr int NORM_THREADS = TPW_NCCL_NORM_COLS / TPW_TREE_RUN;

// Everything that an exchanging kernel is told.
struct exchange {
    ncclDevComm comm;
    ncclLLA2AHandle packets;
    ncclWindow_t window;
    size_t region;
    tpw_wait_limit limit;
    int rank;
};

exchange exchange_of(const tpw_exec *exec, const tpw_nccl_device *d, int rank)
{
    exchange e;
    e.comm = d->comm, e.packets = d->packets, e.window = d->window, e.region = d->region;
    e.limit = tpw_wait_limit_of(tpw_cuda_of(exec)), e.rank = rank;
    return e;
}

// A word joined with another: two FP32 sums, lower rank first, or bits.
template <int JOIN> __device__ __forceinline__ uint2 join_word(uint2 a, uint2 b)
{
    if (JOIN == TPW_JOIN_OR)
        return make_uint2(a.x | b.x, a.y | b.y);
    return make_uint2(__float_as_uint(__fadd_rn(__uint_as_float(a.x), __uint_as_float(b.x))),
                      __float_as_uint(__fadd_rn(__uint_as_float(a.y), __uint_as_float(b.y))));
}

// (0+1)+(2+3) and so on, over ranks.
template <int RANKS, int JOIN> __device__ __forceinline__ uint2 join_ranks(uint2 *v)
{
#pragma unroll
    for (int step = 1; step < RANKS; step *= 2)
#pragma unroll
        for (int r = 0; r + step < RANKS; r += 2 * step)
            v[r] = join_word<JOIN>(v[r], v[r + step]);
    return v[0];
}

// A session of packets with a receive that ends. The session's own receive loops for ever.
struct packets {
    ncclLLA2ASession<ncclCoopCta> session;
    const tpw_wait_limit &limit;
    int32_t words; // of one rank and epoch

    __device__ packets(const exchange &e, uint32_t block, int32_t w)
        : session(ncclCoopCta(), e.comm, ncclTeamLsa(e.comm), e.packets, block, e.comm.nRanks * w), limit(e.limit),
          words(w)
    {
    }
    __device__ void send(int to, int from, int32_t at, uint2 v)
    {
        session.send(to, from * words + at, v);
    }
    // N words of rank `from` at at, at + stride, ...: waits until all carry this epoch. Zeros after a failure.
    template <int N> __device__ void receive(int from, int32_t at, int32_t stride, uint2 *out)
    {
        const uint4 *slot = (const uint4 *)ncclGetResourceBufferLocalPointer(session.comm, session.handle.bufHandle) +
                            session.slotsOffset + from * words + at;
        tpw_spin spin(limit);
        for (bool there = false; !there;) {
            there = true;
#pragma unroll
            for (int i = 0; i < N; i++) {
                uint4 p;
                asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(p.x), "=r"(p.y), "=r"(p.z), "=r"(p.w)
                             : "l"(slot + i * stride)
                             : "memory");
                out[i] = make_uint2(p.x, p.z);
                there = there && p.y == session.epoch && p.w == session.epoch;
            }
            if (!there && !spin.again()) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    out[i] = make_uint2(0, 0);
                return;
            }
        }
    }
    __device__ void end()
    {
        session.endEpoch(ncclCoopCta());
    }
};

// Waits until every rank has passed arrive() of this session; the session's own wait has no end.
__device__ void barrier_wait(ncclLsaBarrierSession<ncclCoopCta> &session, const tpw_wait_limit &limit)
{
    for (int peer = threadIdx.x; peer < session.team.nRanks; peer += blockDim.x) {
        if (peer == session.team.rank)
            continue;
        const uint32_t *inbox = session.ucInbox(session.team.rank, peer);
        tpw_spin spin(limit);
        for (;;) {
            uint32_t got;
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(got) : "l"(inbox) : "memory");
            if (got - (session.epoch + 1) <= 0x7FFFFFFFu || !spin.again())
                break;
        }
    }
    session.epoch += 1;
    __syncthreads();
}

// x = join over ranks of x, by packets; CTA b takes tiles b, b + grid, .. one epoch each.
template <int RANKS, int JOIN>
__global__ void __launch_bounds__(THREADS) packets_kernel(const __grid_constant__ exchange e, uint2 *x, size_t words)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    packets p(e, blockIdx.x, TPW_NCCL_TILE);
    const size_t tiles = (words + TPW_NCCL_TILE - 1) / TPW_NCCL_TILE;
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        uint2 own[EACH], all[EACH][RANKS], got[EACH];
        const size_t base = tile * TPW_NCCL_TILE + threadIdx.x;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            own[i] = base + i * THREADS < words ? x[base + i * THREADS] : make_uint2(0, 0);
        for (int to = 0; to < RANKS; to++)
            if (to != e.rank)
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    p.send(to, e.rank, threadIdx.x + i * THREADS, own[i]);
#pragma unroll
        for (int from = 0; from < RANKS; from++) {
            if (from != e.rank)
                p.receive<EACH>(from, threadIdx.x, THREADS, got);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                all[i][from] = from == e.rank ? own[i] : got[i];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (base + i * THREADS < words)
                x[base + i * THREADS] = join_ranks<RANKS, JOIN>(all[i]);
        p.end();
    }
}

// Where rank `of` stages the words of this CTA in this epoch's half of the window.
__device__ __forceinline__ uint2 *staged(const exchange &e, int of, uint32_t epoch)
{
    const size_t at = ((size_t)(epoch & 1) * TPW_NCCL_BLOCKS + blockIdx.x) * e.region;
    return (uint2 *)ncclGetLsaPointer(e.window, at * sizeof(uint2), of);
}

// x = join over ranks of x, through the window. A half is written again two barriers later, when every rank has read it.
template <int RANKS, int JOIN>
__global__ void __launch_bounds__(THREADS)
    copies_kernel(const __grid_constant__ exchange e, uint2 *x, size_t words, size_t share)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    ncclLsaBarrierSession<ncclCoopCta> session(ncclCoopCta(), e.comm, ncclTeamTagLsa(), blockIdx.x);
    const size_t pieces = (words + share - 1) / share;
    for (size_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const size_t begin = piece * share, n = words - begin < share ? words - begin : share;
        uint2 *mine = staged(e, e.rank, session.epoch);
        for (size_t i = threadIdx.x; i < n; i += THREADS)
            mine[i] = x[begin + i];
        const uint32_t epoch = session.epoch;
        session.arrive(ncclCoopCta(), cuda::memory_order_acq_rel);
        barrier_wait(session, e.limit);
        for (size_t i = threadIdx.x; i < n; i += THREADS) {
            uint2 all[RANKS];
#pragma unroll
            for (int r = 0; r < RANKS; r++)
                all[r] = __ldcv(staged(e, r, epoch) + i);
            x[begin + i] = join_ranks<RANKS, JOIN>(all);
        }
    }
}

template <int RANKS, int JOIN> __global__ void gathered_kernel(const uint2 *all, uint2 *x, size_t words)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
        uint2 v[RANKS];
#pragma unroll
        for (int r = 0; r < RANKS; r++)
            v[r] = all[r * words + i];
        x[i] = join_ranks<RANKS, JOIN>(v);
    }
}

__global__ void fold_kernel(const float *part, int32_t parts, size_t count, float *out)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = tpw_tree_parts(part + i, count, parts);
}

// One row of h by CTAs / rows CTAs of a cluster: fold, packets, tree over ranks, residual, norm.
template <int RANKS>
__global__ void __launch_bounds__(NORM_THREADS)
    packets_norm_kernel(const __grid_constant__ exchange e, const __grid_constant__ tpw_norm_row n, int ctas)
{
    const int row = blockIdx.x / ctas, lane = threadIdx.x & 31;
    const int warps = blockDim.x >> 5, piece = blockIdx.x % ctas * warps + (threadIdx.x >> 5);
    const tpw_norm_lane at(n, row, piece, lane);
    float gain[8], own[8], all[8][RANKS];
    at.load_gain(gain);
    tpw_pdl_trigger();
    tpw_pdl_wait();
    packets p(e, blockIdx.x, blockDim.x * 4);
    at.load_sum(own);
    for (int to = 0; to < RANKS; to++)
        if (to != e.rank)
#pragma unroll
            for (int i = 0; i < 4; i++)
                p.send(to, e.rank, threadIdx.x + i * blockDim.x,
                       make_uint2(__float_as_uint(own[2 * i]), __float_as_uint(own[2 * i + 1])));
#pragma unroll
    for (int from = 0; from < RANKS; from++) {
        uint2 got[4];
        if (from != e.rank)
            p.receive<4>(from, threadIdx.x, blockDim.x, got);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            all[2 * i][from] = from == e.rank ? own[2 * i] : __uint_as_float(got[i].x);
            all[2 * i + 1][from] = from == e.rank ? own[2 * i + 1] : __uint_as_float(got[i].y);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int step = 1; step < RANKS; step *= 2)
#pragma unroll
            for (int r = 0; r + step < RANKS; r += 2 * step)
                all[i][r] = __fadd_rn(all[i][r], all[i][r + step]);
        own[i] = all[i][0];
    }
    at.finish(own, gain, ctas);
    p.end();
}

// Rows b, b + grid, .. of h by CTA b: all its rows staged, one barrier, then each row read from every rank.
template <int RANKS>
__global__ void __launch_bounds__(NORM_THREADS)
    copies_norm_kernel(const __grid_constant__ exchange e, const __grid_constant__ tpw_norm_row n)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    ncclLsaBarrierSession<ncclCoopCta> session(ncclCoopCta(), e.comm, ncclTeamTagLsa(), blockIdx.x);
    const int lane = threadIdx.x & 31, piece = threadIdx.x >> 5, width = blockDim.x * 8;
    const uint32_t epoch = session.epoch;
    float *mine = (float *)staged(e, e.rank, epoch);
    for (int row = blockIdx.x, k = 0; row < n.rows; row += gridDim.x, k++) {
        float v[8];
        tpw_norm_lane(n, row, piece, lane).load_sum(v);
        float4 *to = (float4 *)(mine + (size_t)k * width + threadIdx.x * 8);
        to[0] = make_float4(v[0], v[1], v[2], v[3]);
        to[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
    session.arrive(ncclCoopCta(), cuda::memory_order_acq_rel);
    barrier_wait(session, e.limit);
    for (int row = blockIdx.x, k = 0; row < n.rows; row += gridDim.x, k++) {
        const tpw_norm_lane at(n, row, piece, lane);
        float gain[8], all[8][RANKS], sum[8];
        at.load_gain(gain);
#pragma unroll
        for (int r = 0; r < RANKS; r++) {
            const float4 *from =
                (const float4 *)((const float *)staged(e, r, epoch) + (size_t)k * width + threadIdx.x * 8);
            const float4 a = __ldcv(from), b = __ldcv(from + 1);
            all[0][r] = a.x, all[1][r] = a.y, all[2][r] = a.z, all[3][r] = a.w;
            all[4][r] = b.x, all[5][r] = b.y, all[6][r] = b.z, all[7][r] = b.w;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int step = 1; step < RANKS; step *= 2)
#pragma unroll
                for (int r = 0; r + step < RANKS; r += 2 * step)
                    all[i][r] = __fadd_rn(all[i][r], all[i][r + step]);
            sum[i] = all[i][0];
        }
        at.finish(sum, gain, 1);
        __syncthreads(); // the sums in shared memory are free for the next row
    }
}

__global__ void epoch_kernel(exchange e, uint32_t epoch)
{
    tpw_pdl_wait();
    uint4 *line = (uint4 *)ncclGetResourceBufferLocalPointer(e.comm, e.packets.bufHandle);
    const uint32_t block = 1 + 2 * e.packets.nSlots;
    for (uint32_t i = threadIdx.x; i < block; i += blockDim.x)
        line[blockIdx.x * block + i] = make_uint4(i == 0 ? epoch - 2 : 0, 0, 0, 0);
}

// Pieces of a row and how many CTAs share it: a divisor, so that all have the same number of warps.
int norm_ctas(const tpw_exec *exec, const tpw_add_norm_args *a)
{
    const int pieces = (a->h.cols + TPW_TREE_PIECE - 1) / TPW_TREE_PIECE;
    for (int ctas = tpw_cuda_of(exec)->portable ? 1 : 4; ctas > 1; ctas /= 2)
        if (pieces % ctas == 0 && (int64_t)a->h.rows * ctas <= TPW_NCCL_BLOCKS)
            return ctas;
    return 1;
}

template <int RANKS>
tpw_status packets_norm(const tpw_exec *exec, const exchange &e, const tpw_norm_row &n, int ctas, tpw_error *err)
{
    const int pieces = (n.cols + TPW_TREE_PIECE - 1) / TPW_TREE_PIECE;
    return tpw_cuda_launch(exec, "all-reduce and norm (packets)", err, packets_norm_kernel<RANKS>,
                           dim3((unsigned)(n.rows * ctas)), dim3((unsigned)(32 * pieces / ctas)), 0, (unsigned)ctas, e,
                           n, ctas);
}

template <int RANKS>
tpw_status copies_norm(const tpw_exec *exec, const exchange &e, const tpw_norm_row &n, tpw_error *err)
{
    const int pieces = (n.cols + TPW_TREE_PIECE - 1) / TPW_TREE_PIECE;
    const int grid = n.rows < TPW_NCCL_BLOCKS ? n.rows : TPW_NCCL_BLOCKS;
    return tpw_cuda_launch(exec, "all-reduce and norm (copies)", err, copies_norm_kernel<RANKS>, dim3((unsigned)grid),
                           dim3((unsigned)(32 * pieces)), 0, 1, e, n);
}

// Calls f<size, join>(..) for the sizes that exist.
#define FOR_SIZE(size, call) ((size) == 2 ? call(2) : (size) == 4 ? call(4) : (size) == 8 ? call(8) : call(1))

} // namespace

// The sizes of the buffers.
static void size_buffers(tpw_nccl_device *d, const tpw_nccl_options *options, int size)
{
    const size_t pieces = ((size_t)options->cols_max + TPW_TREE_PIECE - 1) / TPW_TREE_PIECE,
                 width = pieces * TPW_TREE_PIECE / 2;
    const size_t rows = ((size_t)options->rows_max + TPW_NCCL_BLOCKS - 1) / TPW_NCCL_BLOCKS;
    d->size = size, d->rows_max = options->rows_max, d->cols_max = options->cols_max;
    d->slots = (int32_t)(width > TPW_NCCL_TILE ? width : TPW_NCCL_TILE) * size;
    d->region = rows * width;
    d->gather_words = (size_t)options->rows_max * (((size_t)options->cols_max + 1) / 2);
}

extern "C" tpw_nccl_device *tpw_nccl_device_new(const tpw_nccl_options *options, int size)
{
    tpw_nccl_device *d = (tpw_nccl_device *)calloc(1, sizeof *d);
    if (d != NULL)
        size_buffers(d, options, size);
    return d;
}

extern "C" size_t tpw_comm_nccl_bytes(const tpw_nccl_options *options, int size)
{
    tpw_nccl_device d = {};
    size_buffers(&d, options, size);
    return d.gather_words * 8 * (size_t)size + 2 * TPW_NCCL_BLOCKS * d.region * sizeof(uint2) +
           (size_t)TPW_NCCL_BLOCKS * (1 + 2 * (size_t)d.slots) * sizeof(uint4);
}

extern "C" int tpw_nccl_device_peers(ncclComm_t comm, int size)
{
    return ncclTeamLsa(comm).nRanks == size;
}

extern "C" ncclResult_t tpw_nccl_device_gather(tpw_nccl_device *d)
{
    return cudaMalloc(&d->gather, d->gather_words * 8 * (size_t)d->size) == cudaSuccess ? ncclSuccess
                                                                                        : ncclUnhandledCudaError;
}

extern "C" ncclResult_t tpw_nccl_device_packets(ncclComm_t comm, tpw_nccl_device *d)
{
    ncclDevCommRequirements reqs = {};
    ncclDevResourceRequirements packets = {};
    ncclResult_t r = ncclLLA2ACreateRequirement(TPW_NCCL_BLOCKS, d->slots, &d->packets, &packets);
    if (r != ncclSuccess)
        return r;
    reqs.resourceRequirementsList = &packets;
    reqs.lsaBarrierCount = TPW_NCCL_BLOCKS; // lsaMultimem stays false
    r = ncclDevCommCreate(comm, &reqs, &d->comm);
    d->has_comm = r == ncclSuccess || r == ncclInProgress;
    return r;
}

extern "C" ncclResult_t tpw_nccl_device_memory(tpw_nccl_device *d)
{
    return ncclMemAlloc(&d->window_data, 2 * TPW_NCCL_BLOCKS * d->region * sizeof(uint2));
}

extern "C" ncclResult_t tpw_nccl_device_window(ncclComm_t comm, tpw_nccl_device *d)
{
    const ncclResult_t r = ncclCommWindowRegister(comm, d->window_data, 2 * TPW_NCCL_BLOCKS * d->region * sizeof(uint2),
                                                  &d->window, NCCL_WIN_DEFAULT);
    d->has_window = r == ncclSuccess || r == ncclInProgress;
    return r;
}

// The communicator is non-blocking: a release must have taken effect before the next one.
static void finish(ncclComm_t comm, ncclResult_t code)
{
    const struct timespec nap = {0, 200000};
    if (code == ncclSuccess && ncclCommGetAsyncError(comm, &code) != ncclSuccess)
        return;
    for (int turn = 0; code == ncclInProgress && turn < 10000; turn++) { // two seconds
        (void)nanosleep(&nap, NULL);
        if (ncclCommGetAsyncError(comm, &code) != ncclSuccess)
            return;
    }
}

extern "C" void tpw_nccl_device_destroy(ncclComm_t comm, tpw_nccl_device *d)
{
    if (d == NULL)
        return;
    if (comm != NULL && d->has_comm)
        finish(comm, ncclDevCommDestroy(comm, &d->comm));
    if (comm != NULL && d->has_window)
        finish(comm, ncclCommWindowDeregister(comm, d->window));
    if (d->window_data != NULL)
        (void)ncclMemFree(d->window_data);
    (void)cudaFree(d->gather);
    free(d);
}

extern "C" size_t tpw_nccl_gather_room(const tpw_nccl_device *d)
{
    return d->gather_words;
}

extern "C" void *tpw_nccl_gather_buffer(tpw_nccl_device *d)
{
    return d->gather;
}

extern "C" tpw_status tpw_nccl_packets(const tpw_exec *exec, tpw_nccl_device *d, int rank, int size, tpw_nccl_join join,
                                       void *x, size_t words, tpw_error *err)
{
    const size_t tiles = (words + TPW_NCCL_TILE - 1) / TPW_NCCL_TILE;
    const dim3 grid((unsigned)(tiles < TPW_NCCL_BLOCKS ? tiles : TPW_NCCL_BLOCKS));
    const exchange e = exchange_of(exec, d, rank);
#define CALL(r)                                                                                                    \
    tpw_cuda_launch(exec, "all-reduce (packets)", err,                                                             \
                    join == TPW_JOIN_SUM ? packets_kernel<r, TPW_JOIN_SUM> : packets_kernel<r, TPW_JOIN_OR>, grid, \
                    dim3(THREADS), 0, 1, e, (uint2 *)x, words)
    return FOR_SIZE(size, CALL);
#undef CALL
}

extern "C" tpw_status tpw_nccl_copies(const tpw_exec *exec, tpw_nccl_device *d, int rank, int size, tpw_nccl_join join,
                                      void *x, size_t words, tpw_error *err)
{
    const exchange e = exchange_of(exec, d, rank);
    const size_t even = (words + TPW_NCCL_BLOCKS - 1) / TPW_NCCL_BLOCKS, share = even < e.region ? even : e.region;
    const size_t pieces = share > 0 ? (words + share - 1) / share : 0;
    const dim3 grid((unsigned)(pieces < TPW_NCCL_BLOCKS ? pieces : TPW_NCCL_BLOCKS));
#define CALL(r)                                                                                                  \
    tpw_cuda_launch(exec, "all-reduce (copies)", err,                                                            \
                    join == TPW_JOIN_SUM ? copies_kernel<r, TPW_JOIN_SUM> : copies_kernel<r, TPW_JOIN_OR>, grid, \
                    dim3(THREADS), 0, 1, e, (uint2 *)x, words, share)
    return FOR_SIZE(size, CALL);
#undef CALL
}

extern "C" tpw_status tpw_nccl_gathered(const tpw_exec *exec, int size, tpw_nccl_join join, const void *all, void *x,
                                        size_t words, tpw_error *err)
{
    const dim3 grid((unsigned)(words / 256 + 1 < 1056 ? words / 256 + 1 : 1056));
#define CALL(r)                                                                                                      \
    tpw_cuda_launch(exec, "all-reduce (sum of the gathered)", err,                                                   \
                    join == TPW_JOIN_SUM ? gathered_kernel<r, TPW_JOIN_SUM> : gathered_kernel<r, TPW_JOIN_OR>, grid, \
                    dim3(256), 0, 1, (const uint2 *)all, (uint2 *)x, words)
    return FOR_SIZE(size, CALL);
#undef CALL
}

extern "C" tpw_status tpw_nccl_fold_parts(const tpw_exec *exec, const float *part, int32_t parts, size_t count,
                                          float *out, tpw_error *err)
{
    const dim3 grid((unsigned)(count / 256 + 1 < 1056 ? count / 256 + 1 : 1056));
    return tpw_cuda_launch(exec, "fold of slices", err, fold_kernel, grid, dim3(256), 0, 1, part, parts, count, out);
}

extern "C" tpw_status tpw_nccl_packets_norm(const tpw_exec *exec, tpw_nccl_device *d, int rank, int size,
                                            const tpw_add_norm_args *args, tpw_error *err)
{
    const exchange e = exchange_of(exec, d, rank);
    const tpw_norm_row n = tpw_norm_row_of(args);
    const int ctas = norm_ctas(exec, args);
#define CALL(r) packets_norm<r>(exec, e, n, ctas, err)
    return FOR_SIZE(size, CALL);
#undef CALL
}

extern "C" tpw_status tpw_nccl_copies_norm(const tpw_exec *exec, tpw_nccl_device *d, int rank, int size,
                                           const tpw_add_norm_args *args, tpw_error *err)
{
    const exchange e = exchange_of(exec, d, rank);
    const tpw_norm_row n = tpw_norm_row_of(args);
#define CALL(r) copies_norm<r>(exec, e, n, err)
    return FOR_SIZE(size, CALL);
#undef CALL
}

extern "C" tpw_status tpw_nccl_write_epoch(const tpw_exec *exec, tpw_nccl_device *d, uint32_t epoch, tpw_error *err)
{
    return tpw_cuda_launch(exec, "setting the epoch", err, epoch_kernel, dim3(TPW_NCCL_BLOCKS), dim3(256), 0, 1,
                           exchange_of(exec, d, 0), epoch);
}
