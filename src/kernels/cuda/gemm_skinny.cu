// The gemm of few rows: weights stream once from memory through a ring of shared memory that each warp owns, x stays whole.
//
// A warp takes strips of 16 weight rows, or, where there are fewer strips than warps, one of several ranges of a strip's
// pieces; the sums of pieces may be computed anywhere, because they are joined in order by one warp. Warps start their rings
// before the kernel ahead has ended: weights depend on nothing. On sm_90 rings are filled by bulk copies, elsewhere by
// 16-byte copies of each lane. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm_params.cuh"

namespace
{

constexpr int WARPS_MAX = 16;
constexpr int PORTABLE_STAGES = 4;

struct skinny_plan {
    int32_t ctas;         // a slice
    int32_t ranges;       // of pieces of one strip, one warp each
    int32_t stages;       // of a ring
    int32_t stage_chunks; // of one stage
    int32_t x_stride;     // bytes of a row of x in shared memory
    int32_t bars_at;      // offsets in shared memory
    int32_t x_at;
    int32_t raw_at;
    int32_t raw_words; // of one buffer of raw sums, in float4
    bool raw_double;
};

// The ring of one warp: stages of consecutive chunks, strip by strip.
template <bool BULK> struct ring {
    const char *w;
    unsigned char *slots;
    uint32_t slot0, bar;
    int64_t strip_bytes;
    int32_t chunk_bytes, stage_chunks, stages;
    int32_t begin, end;  // chunks of the warp's range
    int32_t strip, step; // next strip to fetch, strips from one to the next
    int32_t chunk, slot; // next chunk and slot to fill
    int32_t left;        // stages still to fetch
    int32_t at, parity;  // next slot to read

    __device__ void fetch(int lane)
    {
        if (left > 0) {
            const int32_t n = min(stage_chunks, end - chunk);
            const char *from = w + strip * strip_bytes + (int64_t)chunk * chunk_bytes;
            const uint32_t to = slot0 + slot * stage_chunks * chunk_bytes;
#if __CUDA_ARCH__ >= 900
            if (BULK) {
                if (lane == 0)
                    tpw_bulk_copy(to, from, n * chunk_bytes, bar + 8 * slot);
            } else
#endif
                for (int32_t b = lane * 16; b < n * chunk_bytes; b += 512)
                    tpw_copy16(to + b, from + b);
            chunk += n;
            if (chunk == end) {
                chunk = begin;
                strip += step;
            }
            slot = slot + 1 == stages ? 0 : slot + 1;
            left--;
        }
        if (!BULK)
            tpw_copy_commit(); // an empty group too: the count of groups is what tells the stages apart
    }
    __device__ const uint4 *wait()
    {
#if __CUDA_ARCH__ >= 900
        if (BULK)
            tpw_barrier_wait(bar + 8 * at, parity);
        else
#endif
            tpw_copy_wait<PORTABLE_STAGES - 1>();
        return (const uint4 *)(slots + at * stage_chunks * chunk_bytes);
    }
    __device__ void next(int lane)
    {
        __syncwarp(); // all lanes have read the slot
        at = at + 1 == stages ? 0 : at + 1;
        parity ^= at == 0;
        fetch(lane);
    }
};

// PIECES full pieces side by side: independent chains hide the latency of each other.
template <int NT, bool E4M3, int PIECES>
__device__ __forceinline__ void full_pieces(float (*raw)[NT][4], const uint4 *word, const char *x, const int32_t *x_row)
{
    constexpr int WORDS = E4M3 ? 32 : 64;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
#pragma unroll
        for (int n = 0; n < NT; n++)
            raw[i][n][0] = raw[i][n][1] = raw[i][n][2] = raw[i][n][3] = 0.0f;
#pragma unroll
    for (int c = 0; c < TPW_PIECE_CHUNKS; c++)
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            uint32_t a[8];
            tpw_widen_chunk<E4M3>(word + (i * TPW_PIECE_CHUNKS + c) * WORDS, a);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const uint4 b = *(const uint4 *)(x + x_row[n] + (i * TPW_PIECE_CHUNKS + c) * 64);
                tpw_mma(raw[i][n], a, b.x, b.y);
                tpw_mma(raw[i][n], a + 4, b.z, b.w);
            }
        }
}

template <int NT, bool E4M3, bool BULK>
__global__ void __launch_bounds__(32 * WARPS_MAX)
    skinny(const __grid_constant__ tpw_gemm_params p, const __grid_constant__ skinny_plan plan)
{
    extern __shared__ __align__(128) unsigned char memory[];
    constexpr int WORDS = E4M3 ? 32 : 64;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int32_t groups = (int32_t)(blockDim.x >> 5) / plan.ranges, group = warp / plan.ranges,
                  range = warp % plan.ranges;
    const int32_t slice = blockIdx.x / plan.ctas, cta = blockIdx.x % plan.ctas;
    const int32_t strips = (p.n + TPW_STRIP - 1) / TPW_STRIP;
    const int32_t strip0 = (int32_t)((int64_t)strips * cta / plan.ctas) + group,
                  strip1 = (int32_t)((int64_t)strips * (cta + 1) / plan.ctas);
    const int32_t first = tpw_cut_first(&p.cut, slice), pieces = tpw_cut_pieces(&p.cut, slice);
    const int32_t chunk0 = p.cut.chunk_begin[slice], chunks = p.cut.chunk_begin[slice + 1] - chunk0;
    const int32_t piece0 = pieces * range / plan.ranges, piece1 = pieces * (range + 1) / plan.ranges;
    const int32_t own = pieces / plan.ranges; // pieces of range 0, whose warp joins all
    auto chunk_of = [&](int32_t piece) { return piece < pieces ? tpw_cut_piece_chunk(first, piece) : chunks; };

    ring<BULK> r;
    r.begin = chunk_of(piece0), r.end = chunk_of(piece1);
    r.chunk_bytes = WORDS * 16, r.stage_chunks = plan.stage_chunks, r.stages = plan.stages;
    r.strip_bytes = (int64_t)p.cut.chunk_begin[p.cut.slices] * r.chunk_bytes;
    r.w = (const char *)p.w + (int64_t)chunk0 * r.chunk_bytes;
    r.slots = memory + (size_t)warp * plan.stages * plan.stage_chunks * r.chunk_bytes;
    r.slot0 = tpw_shared(r.slots), r.bar = tpw_shared(memory + plan.bars_at) + 8 * warp * plan.stages;
    r.strip = strip0, r.step = groups, r.chunk = r.begin, r.slot = r.at = r.parity = 0;
    const int32_t units = strip0 < strip1 ? (strip1 - strip0 + groups - 1) / groups : 0;
    r.left = units * ((r.end - r.begin + plan.stage_chunks - 1) / plan.stage_chunks);
#if __CUDA_ARCH__ >= 900
    if (BULK) {
        if (lane == 0) {
            for (int s = 0; s < plan.stages; s++)
                tpw_barrier_init(r.bar + 8 * s);
            tpw_barrier_fence();
        }
        __syncwarp();
    }
#endif
    for (int s = 0; s < plan.stages; s++)
        r.fetch(lane);
    tpw_pdl_trigger();
    tpw_pdl_wait();

    unsigned char *x = memory + plan.x_at;
    for (int32_t i = threadIdx.x; i < p.m * chunks * 4; i += blockDim.x) {
        const int32_t m = i / (chunks * 4), u = i % (chunks * 4);
        *(uint4 *)(x + m * plan.x_stride + u * 16) = tpw_load_x<E4M3>(p, slice, m, u);
    }
    __syncthreads();

    int32_t x_row[NT]; // rows past the last read row 0: no column of a product depends on another
#pragma unroll
    for (int n = 0; n < NT; n++)
        x_row[n] = (8 * n + g < p.m ? 8 * n + g : 0) * plan.x_stride + t * 16;
    float4 *raws = (float4 *)(memory + plan.raw_at) + (size_t)group * plan.raw_words * (plan.raw_double ? 2 : 1);
    for (int32_t strip = strip0, turn = 0; strip < strip1; strip += groups, turn ^= 1) {
        float acc[NT][4] = {};
        const tpw_lane_scales<E4M3> scales(p, strip * TPW_STRIP + g, slice);
        float4 *raw_out = raws + (plan.raw_double && turn ? plan.raw_words : 0);
        auto finish = [&](int32_t piece, float(*raw)[4], float low, float high) {
#pragma unroll
            for (int n = 0; n < NT; n++)
                if (range == 0)
                    tpw_fold_piece(acc[n], raw[n], low, high);
                else
                    raw_out[((piece - own) * NT + n) * 32 + lane] =
                        make_float4(raw[n][0], raw[n][1], raw[n][2], raw[n][3]);
        };
        int32_t piece = piece0, done = 0; // chunks of the piece so far, when it is taken chunk by chunk
        float single[1][NT][4];
        for (int32_t c = r.begin; c < r.end;) {
            const int32_t n_chunks = min(plan.stage_chunks, r.end - c);
            const uint4 *word = r.wait() + lane;
            for (int32_t j = 0; j < n_chunks;) {
                const char *xc = (const char *)x + (c + j) * 64;
                if (done == 0 && j + 2 * TPW_PIECE_CHUNKS <= n_chunks &&
                    chunk_of(piece + 2) - chunk_of(piece) == 2 * TPW_PIECE_CHUNKS &&
                    chunk_of(piece + 1) - chunk_of(piece) == TPW_PIECE_CHUNKS) {
                    float raw[2][NT][4];
                    const float low0 = scales.low(piece), high0 = scales.high(piece), low1 = scales.low(piece + 1),
                                high1 = scales.high(piece + 1);
                    full_pieces<NT, E4M3, 2>(raw, word + j * WORDS, xc, x_row);
                    finish(piece, raw[0], low0, high0);
                    finish(piece + 1, raw[1], low1, high1);
                    piece += 2, j += 2 * TPW_PIECE_CHUNKS;
                } else if (done == 0 && j + TPW_PIECE_CHUNKS <= n_chunks &&
                           chunk_of(piece + 1) - chunk_of(piece) == TPW_PIECE_CHUNKS) {
                    const float low = scales.low(piece), high = scales.high(piece);
                    full_pieces<NT, E4M3, 1>(single, word + j * WORDS, xc, x_row);
                    finish(piece, single[0], low, high);
                    piece++, j += TPW_PIECE_CHUNKS;
                } else { // short pieces, and those that a stage cuts
                    if (done == 0)
#pragma unroll
                        for (int n = 0; n < NT; n++)
                            single[0][n][0] = single[0][n][1] = single[0][n][2] = single[0][n][3] = 0.0f;
                    uint32_t a[8];
                    tpw_widen_chunk<E4M3>(word + j * WORDS, a);
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        const uint4 b = *(const uint4 *)(xc + x_row[n]);
                        tpw_mma(single[0][n], a, b.x, b.y);
                        tpw_mma(single[0][n], a + 4, b.z, b.w);
                    }
                    j++;
                    if (++done == chunk_of(piece + 1) - chunk_of(piece)) {
                        finish(piece, single[0], scales.low(piece), scales.high(piece));
                        piece++, done = 0;
                    }
                }
            }
            c += n_chunks;
            r.next(lane);
        }
        if (plan.ranges > 1) {
            asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "r"(32 * plan.ranges) : "memory");
            if (range == 0)
                for (int32_t q = own; q < pieces; q++) {
                    const float low = scales.low(q), high = scales.high(q);
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        const float4 v = raw_out[((q - own) * NT + n) * 32 + lane];
                        const float raw[4] = {v.x, v.y, v.z, v.w};
                        tpw_fold_piece(acc[n], raw, low, high);
                    }
                }
        }
        if (range == 0)
#pragma unroll
            for (int n = 0; n < NT; n++)
                tpw_store_tile(p, slice, 8 * n, strip * TPW_STRIP + g, acc[n]);
    }
}

// Cuts the work and the shared memory; false when x leaves no room for rings. Speed only: no choice here moves a bit.
bool make_plan(const tpw_gemm_params &p, bool e4m3, bool bulk, int processors, size_t capacity, skinny_plan *plan,
               int *warps, size_t *bytes)
{
    const int32_t strips = (p.n + TPW_STRIP - 1) / TPW_STRIP, chunk_bytes = tpw_chunk_bytes(e4m3 ? TPW_E4M3 : TPW_BF16);
    int32_t chunks = 0, pieces = 0, pieces_min = INT32_MAX;
    for (int32_t s = 0; s < p.cut.slices; s++) {
        const int32_t c = p.cut.chunk_begin[s + 1] - p.cut.chunk_begin[s], n = tpw_cut_pieces(&p.cut, s);
        chunks = c > chunks ? c : chunks;
        pieces = n > pieces ? n : pieces;
        pieces_min = n < pieces_min ? n : pieces_min;
    }
    plan->ctas = processors / p.cut.slices < 1 ? 1 : processors / p.cut.slices;
    plan->ctas = plan->ctas > strips ? strips : plan->ctas;
    const int32_t most = (strips + plan->ctas - 1) / plan->ctas; // strips of a CTA
    const int32_t turns = (most + WARPS_MAX - 1) / WARPS_MAX;
    plan->ranges = most <= 6 ? 12 / most : 1;
    plan->ranges = plan->ranges > 8 ? 8 : plan->ranges;
    plan->ranges = plan->ranges > pieces_min ? pieces_min : plan->ranges;
    const int32_t tiles = p.m > 8 ? 2 : 1;
    for (;; plan->ranges--) {
        *warps = plan->ranges > 1 ? most * plan->ranges : (most + turns - 1) / turns;
        plan->raw_double = false; // with several ranges every group has one strip
        plan->raw_words = plan->ranges > 1 ? (pieces - pieces_min / plan->ranges) * tiles * 32 : 0;
        plan->x_stride = chunks * 64 + (chunks & 1 ? 0 : 64); // odd multiples of 64 bytes: rows fall on different banks
        const size_t x = (size_t)p.m * plan->x_stride, raw = plan->ranges > 1 ? (size_t)most * plan->raw_words * 16 : 0;
        const size_t fixed = x + raw + (size_t)*warps * 8 * 8 + 256;
        const size_t room = fixed < capacity ? (capacity - fixed) / *warps : 0;
        int32_t stage = (int32_t)(room / (bulk ? 3 : PORTABLE_STAGES) / chunk_bytes);
        stage = stage > 32 ? 32 : stage;
        stage = stage >= 2 * TPW_PIECE_CHUNKS ? stage / (2 * TPW_PIECE_CHUNKS) * (2 * TPW_PIECE_CHUNKS) : stage;
        if (stage >= TPW_PIECE_CHUNKS || (plan->ranges == 1 && stage >= 1)) {
            stage = stage < 2 * TPW_PIECE_CHUNKS && stage > TPW_PIECE_CHUNKS ? TPW_PIECE_CHUNKS : stage;
            plan->stage_chunks = stage;
            plan->stages = bulk ? (int32_t)(room / ((size_t)stage * chunk_bytes)) : PORTABLE_STAGES;
            plan->stages = plan->stages > 8 ? 8 : plan->stages;
            break;
        }
        if (plan->ranges == 1)
            return false;
    }
    const size_t ring = (size_t)*warps * plan->stages * plan->stage_chunks * chunk_bytes;
    plan->bars_at = (int32_t)ring;
    plan->x_at = (int32_t)((ring + (size_t)*warps * plan->stages * 8 + 127) / 128 * 128);
    plan->raw_at = plan->x_at + p.m * plan->x_stride;
    *bytes = (size_t)plan->raw_at + (plan->ranges > 1 ? (size_t)most * plan->raw_words * 16 : 0);
    return *bytes <= capacity;
}

template <int NT, bool E4M3, bool BULK>
tpw_status launch(const tpw_exec *exec, const tpw_gemm_params &p, const skinny_plan &plan, int warps, size_t bytes,
                  tpw_error *err)
{
    void (*kernel)(tpw_gemm_params, skinny_plan) = skinny<NT, E4M3, BULK>;
    TPW_TRY(tpw_cuda_allow_shared(exec, (const void *)kernel, bytes, err));
    return tpw_cuda_launch(exec, "gemm (few rows)", err, kernel, dim3((unsigned)(plan.ctas * p.cut.slices)),
                           dim3(32u * (unsigned)warps), bytes, 1, p, plan);
}

template <bool E4M3, bool BULK>
tpw_status launch_rows(const tpw_exec *exec, const tpw_gemm_params &p, const skinny_plan &plan, int warps, size_t bytes,
                       tpw_error *err)
{
    return p.m > 8 ? launch<2, E4M3, BULK>(exec, p, plan, warps, bytes, err)
                   : launch<1, E4M3, BULK>(exec, p, plan, warps, bytes, err);
}

} // namespace

extern "C" tpw_status tpw_gemm_skinny(const tpw_exec *exec, const tpw_gemm_params &p, bool e4m3, bool *fits,
                                      tpw_error *err)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    const bool bulk = !cuda->portable;
    skinny_plan plan = {};
    int warps = 0;
    size_t bytes = 0;

    *fits = p.m <= TPW_GEMM_SKINNY_ROWS &&
            make_plan(p, e4m3, bulk, cuda->gpu.processors, cuda->shared_bytes, &plan, &warps, &bytes);
    if (!*fits)
        return TPW_OK;
    if (bulk)
        return e4m3 ? launch_rows<true, true>(exec, p, plan, warps, bytes, err)
                    : launch_rows<false, true>(exec, p, plan, warps, bytes, err);
    return e4m3 ? launch_rows<true, false>(exec, p, plan, warps, bytes, err)
                : launch_rows<false, false>(exec, p, plan, warps, bytes, err);
}
