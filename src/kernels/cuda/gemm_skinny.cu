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

// What a warp works on: its slice, its strips, and its range of every strip's pieces.
struct skinny_place {
    int32_t slice, strip0, strip1, groups, group, range;
    int32_t first, pieces; // of the slice
    int32_t chunk0, chunks;
    int32_t piece0, own; // first piece of the range; pieces of range 0, whose warp joins all

    __device__ __forceinline__ int32_t chunk_of(int32_t piece) const
    {
        return piece < pieces ? tpw_cut_piece_chunk(first, piece) : chunks;
    }
};

__device__ __forceinline__ skinny_place place_of(const tpw_gemm_params &p, const skinny_plan &plan, int warp)
{
    skinny_place w;
    const int32_t cta = blockIdx.x % plan.ctas, strips = (p.n + TPW_STRIP - 1) / TPW_STRIP;
    w.groups = (int32_t)(blockDim.x >> 5) / plan.ranges, w.group = warp / plan.ranges, w.range = warp % plan.ranges;
    w.slice = blockIdx.x / plan.ctas;
    w.strip0 = (int32_t)((int64_t)strips * cta / plan.ctas) + w.group;
    w.strip1 = (int32_t)((int64_t)strips * (cta + 1) / plan.ctas);
    w.first = tpw_cut_first(&p.cut, w.slice), w.pieces = tpw_cut_pieces(&p.cut, w.slice);
    w.chunk0 = p.cut.chunk_begin[w.slice], w.chunks = p.cut.chunk_begin[w.slice + 1] - w.chunk0;
    w.piece0 = w.pieces * w.range / plan.ranges, w.own = w.pieces / plan.ranges;
    return w;
}

// Lays out the warp's ring and fills it: weights depend on no kernel ahead.
template <bool BULK>
__device__ __forceinline__ ring<BULK> start_ring(const tpw_gemm_params &p, const skinny_plan &plan,
                                                 const skinny_place &w, int warp, int lane, int32_t chunk_bytes,
                                                 unsigned char *memory)
{
    ring<BULK> r;
    r.begin = w.chunk_of(w.piece0), r.end = w.chunk_of(w.pieces * (w.range + 1) / plan.ranges);
    r.chunk_bytes = chunk_bytes, r.stage_chunks = plan.stage_chunks, r.stages = plan.stages;
    r.strip_bytes = (int64_t)p.cut.chunk_begin[p.cut.slices] * chunk_bytes;
    r.w = (const char *)p.w + (int64_t)w.chunk0 * chunk_bytes;
    r.slots = memory + (size_t)warp * plan.stages * plan.stage_chunks * chunk_bytes;
    r.slot0 = tpw_shared(r.slots), r.bar = tpw_shared(memory + plan.bars_at) + 8 * warp * plan.stages;
    r.strip = w.strip0, r.step = w.groups, r.chunk = r.begin, r.slot = r.at = r.parity = 0;
    const int32_t units = w.strip0 < w.strip1 ? (w.strip1 - w.strip0 + w.groups - 1) / w.groups : 0;
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
    return r;
}

// One strip's sums in the registers of a warp. Range 0 folds its pieces at once; the others leave theirs in `raw_out`.
template <int NT, bool E4M3> struct strip_sums {
    static constexpr int WORDS = E4M3 ? 32 : 64;
    const skinny_place &w;
    const tpw_lane_scales<E4M3> scales;
    float4 *raw_out;
    int lane;
    float acc[NT][4] = {};
    float single[1][NT][4];  // a piece that is taken chunk by chunk
    int32_t piece, done = 0; // and how many of its chunks are in it so far

    __device__ __forceinline__ strip_sums(const tpw_gemm_params &p, const skinny_place &place, int32_t strip,
                                          float4 *raw, int lane)
        : w(place), scales(p, strip * TPW_STRIP + (lane >> 2), place.slice), raw_out(raw), lane(lane),
          piece(place.piece0)
    {
    }

    __device__ __forceinline__ void finish(int32_t at, float (*raw)[4], float low, float high)
    {
#pragma unroll
        for (int n = 0; n < NT; n++)
            if (w.range == 0)
                tpw_fold_piece(acc[n], raw[n], low, high);
            else
                raw_out[((at - w.own) * NT + n) * 32 + lane] = make_float4(raw[n][0], raw[n][1], raw[n][2], raw[n][3]);
    }

    __device__ __forceinline__ bool is_full(int32_t at) const
    {
        return w.chunk_of(at + 1) - w.chunk_of(at) == TPW_PIECE_CHUNKS;
    }

    // One chunk of a short piece, or of one that a stage cuts.
    __device__ __forceinline__ void take_chunk(const uint4 *word, const char *x, const int32_t *x_row)
    {
        if (done == 0)
#pragma unroll
            for (int n = 0; n < NT; n++)
                single[0][n][0] = single[0][n][1] = single[0][n][2] = single[0][n][3] = 0.0f;
        uint32_t a[8];
        tpw_widen_chunk<E4M3>(word, a);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint4 b = *(const uint4 *)(x + x_row[n]);
            tpw_mma(single[0][n], a, b.x, b.y);
            tpw_mma(single[0][n], a + 4, b.z, b.w);
        }
        if (++done == w.chunk_of(piece + 1) - w.chunk_of(piece)) {
            finish(piece, single[0], scales.low(piece), scales.high(piece));
            piece++, done = 0;
        }
    }

    // The chunks of one stage: two pieces at a time where both are whole in it, else one, else chunk by chunk.
    __device__ __forceinline__ void take_stage(int32_t chunks, const uint4 *word, const char *x, const int32_t *x_row)
    {
        for (int32_t j = 0; j < chunks;) {
            const char *xc = x + j * 64;
            if (done == 0 && j + 2 * TPW_PIECE_CHUNKS <= chunks &&
                w.chunk_of(piece + 2) - w.chunk_of(piece) == 2 * TPW_PIECE_CHUNKS && is_full(piece)) {
                float raw[2][NT][4];
                const float low0 = scales.low(piece), high0 = scales.high(piece), low1 = scales.low(piece + 1),
                            high1 = scales.high(piece + 1);
                full_pieces<NT, E4M3, 2>(raw, word + j * WORDS, xc, x_row);
                finish(piece, raw[0], low0, high0);
                finish(piece + 1, raw[1], low1, high1);
                piece += 2, j += 2 * TPW_PIECE_CHUNKS;
            } else if (done == 0 && j + TPW_PIECE_CHUNKS <= chunks && is_full(piece)) {
                const float low = scales.low(piece), high = scales.high(piece);
                full_pieces<NT, E4M3, 1>(single, word + j * WORDS, xc, x_row);
                finish(piece, single[0], low, high);
                piece++, j += TPW_PIECE_CHUNKS;
            } else {
                take_chunk(word + j * WORDS, xc, x_row);
                j++;
            }
        }
    }

    // Range 0 folds what the other ranges left, in order of pieces.
    __device__ __forceinline__ void join(int32_t ranges)
    {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + w.group), "r"(32 * ranges) : "memory");
        if (w.range != 0)
            return;
        for (int32_t q = w.own; q < w.pieces; q++) {
            const float low = scales.low(q), high = scales.high(q);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const float4 v = raw_out[((q - w.own) * NT + n) * 32 + lane];
                const float raw[4] = {v.x, v.y, v.z, v.w};
                tpw_fold_piece(acc[n], raw, low, high);
            }
        }
    }
};

template <int NT, bool E4M3, bool BULK>
__global__ void __launch_bounds__(32 * WARPS_MAX)
    skinny(const __grid_constant__ tpw_gemm_params p, const __grid_constant__ skinny_plan plan)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const skinny_place w = place_of(p, plan, warp);
    ring<BULK> r = start_ring<BULK>(p, plan, w, warp, lane, (E4M3 ? 32 : 64) * 16, memory);
    tpw_pdl_trigger();
    tpw_pdl_wait();

    unsigned char *x = memory + plan.x_at;
    for (int32_t i = threadIdx.x; i < p.m * w.chunks * 4; i += blockDim.x) {
        const int32_t m = i / (w.chunks * 4), u = i % (w.chunks * 4);
        *(uint4 *)(x + m * plan.x_stride + u * 16) = tpw_load_x<E4M3>(p, w.slice, m, u);
    }
    __syncthreads();

    int32_t x_row[NT]; // rows past the last read row 0: no column of a product depends on another
#pragma unroll
    for (int n = 0; n < NT; n++)
        x_row[n] = (8 * n + g < p.m ? 8 * n + g : 0) * plan.x_stride + t * 16;
    float4 *raws = (float4 *)(memory + plan.raw_at) + (size_t)w.group * plan.raw_words * (plan.raw_double ? 2 : 1);
    for (int32_t strip = w.strip0, turn = 0; strip < w.strip1; strip += w.groups, turn ^= 1) {
        strip_sums<NT, E4M3> sums(p, w, strip, raws + (plan.raw_double && turn ? plan.raw_words : 0), lane);
        for (int32_t c = r.begin; c < r.end;) {
            const int32_t n = min(plan.stage_chunks, r.end - c);
            const uint4 *word = r.wait() + lane;
            sums.take_stage(n, word, (const char *)x + c * 64, x_row);
            c += n;
            r.next(lane);
        }
        if (plan.ranges > 1)
            sums.join(plan.ranges);
        if (w.range == 0)
#pragma unroll
            for (int n = 0; n < NT; n++)
                tpw_store_tile(p, w.slice, 8 * n, strip * TPW_STRIP + g, sums.acc[n]);
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
