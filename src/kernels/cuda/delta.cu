// The gated delta rule on the absolute grid of 16: rows of a step, and the move of S to a new mark.
//
// A CTA takes some columns of one value head of one segment, from chunk to chunk in order, with its part of S in
// shared memory. S goes back to its slot once, at the last certain multiple of 16; what comes after is the scratch
// copy. The next chunk is fetched while one is worked on.
//
// The ring's place of position p is that of p - 32 too, and other CTAs may still have to read there. So segments of
// more than SHORT_ROWS rows are cut at their first multiple of 16, when that is certain, and done by two kernels: only
// the first one reads the ring. Where the cut is not certain, the segment ends before position floor16(pos) + 32 and
// nothing meets. Other long segments have nothing for the first kernel. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/delta_chunk.cuh"

namespace
{

enum {
    THREADS = TPW_DELTA_THREADS,
    SHORT_ROWS = TPW_GDN_RING - (TPW_GRID - 1),
    DOT_THREADS = 16 * TPW_GRID, // 16 lanes for each of 16 rows
    DOT_CHUNKS = 8,              // chunks of 16 of dk that the registers hold
    KEYS_MAX = 4096
};

struct delta_params {
    const float *q;
    int64_t q_stride;
    const float *k;
    int64_t k_stride;
    const void *v;
    int64_t v_stride;
    const float *decay;
    int64_t decay_stride;
    const float *beta;
    int64_t beta_stride;
    void *o;
    int64_t o_stride;
    tpw_gdn_state state;
    const tpw_segment *segments;
    const int32_t *segment_of;
    float *dots;    // [M][hk][TPW_DELTA_DOTS] of long segments, or NULL
    int32_t rows;   // M
    int32_t blocks; // of columns, a head
    int32_t stages; // 1, or 2: fetch ahead
    bool rest;      // long segments from their cut on; otherwise all before that
    bool v_bf16;
    bool o_bf16;
    bool wide; // 16-byte accesses are possible everywhere
};

// The rows of a segment that a kernel does.
struct part {
    int64_t pos;
    int64_t end;
    int64_t mark; // what is certain of it ends here
    int64_t keep; // the ring keeps rows from here on
    int64_t row;  // of pos, in the step
    int32_t slot;
};

// What a CTA works on.
struct place {
    float *S; // column 0 of the CTA
    int32_t slot;
    int32_t h;
    int32_t kh;
    int32_t x0;      // first column in the head
    int32_t columns; // that exist, at most CB
};

__host__ __device__ __forceinline__ int64_t grid_floor(int64_t pos)
{
    return pos / TPW_GRID * TPW_GRID;
}

// Where the second kernel takes over.
__host__ __device__ __forceinline__ int64_t cut_of(const tpw_segment &s)
{
    const int64_t border = grid_floor(s.pos) + TPW_GRID;
    if (s.rows <= SHORT_ROWS)
        return s.pos + s.rows;
    return s.pos % TPW_GRID != 0 && s.pos + s.rows_certain >= border ? border : s.pos;
}

__device__ __forceinline__ part part_of(const tpw_segment &s, bool rest)
{
    part t;
    const int64_t end = s.pos + s.rows, mark = s.pos + s.rows_certain, cut = cut_of(s);
    t.pos = rest ? cut : s.pos;
    t.end = rest ? end : cut;
    t.mark = mark < t.end ? mark : t.end;
    t.keep = end - TPW_GDN_RING;
    t.row = s.row0 + (t.pos - s.pos);
    t.slot = s.slot;
    return t;
}

template <int CB>
__device__ __forceinline__ place place_of(const tpw_gdn_state &g, int32_t slot, int32_t h, int32_t block)
{
    place w;
    w.slot = slot, w.h = h, w.kh = h / (g.v_heads / g.k_heads), w.x0 = block * CB;
    w.columns = g.v_dim - w.x0 < CB ? g.v_dim - w.x0 : CB;
    w.S = g.S + ((int64_t)slot * g.v_heads + h) * g.k_dim * g.v_dim + w.x0;
    return w;
}

__device__ __forceinline__ int64_t ring_row(int32_t slot, int64_t pos)
{
    return (int64_t)slot * TPW_GDN_RING + pos % TPW_GDN_RING;
}

__device__ __forceinline__ float *ring_k(const tpw_gdn_state &g, const place &w, int64_t pos)
{
    return g.k + (ring_row(w.slot, pos) * g.k_heads + w.kh) * g.k_dim;
}

__device__ __forceinline__ float *ring_u(const tpw_gdn_state &g, const place &w, int64_t pos)
{
    return g.u + (ring_row(w.slot, pos) * g.v_heads + w.h) * g.v_dim + w.x0;
}

__device__ __forceinline__ float *ring_decay(const tpw_gdn_state &g, const place &w, int64_t pos)
{
    return g.decay + ring_row(w.slot, pos) * g.v_heads + w.h;
}

// n elements of `size` bytes to shared memory, by a warp; they are there after tpw_copy_wait of all threads and a
// barrier.
__device__ __forceinline__ void fetch(void *to, const void *from, int32_t n, int32_t size, bool wide)
{
    const int lane = tpw_delta_lane();
    if (wide) {
        for (int c = lane; c < n * size / 16; c += TPW_WARP)
            tpw_copy16(tpw_shared((char *)to + c * 16), (const char *)from + c * 16);
        return;
    }
    for (int c = lane; c < n; c += TPW_WARP) {
        if (size == 2)
            ((uint16_t *)to)[c] = ((const uint16_t *)from)[c];
        else
            ((float *)to)[c] = ((const float *)from)[c];
    }
}

// All that a piece needs of memory; earlier rows of its chunk come from the ring. A warp takes every fourth row.
template <int CB>
__device__ __forceinline__ void fetch_piece(const delta_params &p, const place &w, const tpw_delta_piece &piece,
                                            const tpw_delta_shared<CB> &m, const tpw_delta_stage &s, bool dots)
{
    const tpw_gdn_state &g = p.state;
    const int32_t size = p.v_bf16 ? 2 : 4;
    for (int i = tpw_delta_warp(); i < piece.i1; i += TPW_DELTA_WARPS) {
        const int64_t pos = piece.base + i, row = piece.row + i - piece.i0;
        const bool old = i < piece.i0;
        fetch(s.k + i * m.row, old ? ring_k(g, w, pos) : p.k + row * p.k_stride + (int64_t)w.kh * g.k_dim, g.k_dim, 4,
              p.wide);
        if (tpw_delta_lane() == 0)
            tpw_copy4(tpw_shared(s.decay + i), old ? ring_decay(g, w, pos) : p.decay + row * p.decay_stride + w.h);
        if (old) {
            fetch(m.U + i * CB, ring_u(g, w, pos), w.columns, 4, p.wide);
            continue;
        }
        fetch(s.q + i * m.row, p.q + row * p.q_stride + (int64_t)w.kh * g.k_dim, g.k_dim, 4, p.wide);
        fetch((char *)s.v + i * CB * size,
              (const char *)p.v + (row * p.v_stride + (int64_t)w.h * g.v_dim + w.x0) * size, w.columns, size, p.wide);
        if (dots)
            fetch(s.dots + i * TPW_DELTA_DOT_ROW, p.dots + (row * g.k_heads + w.kh) * TPW_DELTA_DOTS, TPW_DELTA_DOTS, 4,
                  true);
        if (tpw_delta_lane() == 0)
            tpw_copy4(tpw_shared(s.beta + i), p.beta + row * p.beta_stride + w.h);
    }
}

template <int CB>
__device__ __forceinline__ void fetch_S(const tpw_gdn_state &g, const place &w, const tpw_delta_shared<CB> &m,
                                        bool wide)
{
    constexpr int UNITS = CB / 4;
    for (int at = (int)threadIdx.x; at < g.k_dim * UNITS; at += THREADS) {
        const int r = at / UNITS, c = at % UNITS * 4;
        const float *from = w.S + (int64_t)r * g.v_dim + c;
        if (wide) {
            if (c < w.columns)
                tpw_copy16(tpw_shared(m.S + r * CB + c), from);
            continue;
        }
        for (int d = 0; d < 4 && c + d < w.columns; d++)
            m.S[r * CB + c + d] = from[d];
    }
}

// S = 0 here, and in the slot if it stays so.
template <int CB>
__device__ __forceinline__ void clear_S(const tpw_gdn_state &g, const place &w, const tpw_delta_shared<CB> &m,
                                        bool store)
{
    for (int at = (int)threadIdx.x; at < g.k_dim * CB; at += THREADS) {
        m.S[at] = 0.0f;
        if (store && at % CB < w.columns)
            w.S[(int64_t)(at / CB) * g.v_dim + at % CB] = 0.0f;
    }
}

// The ring's rows of the piece. k is one CTA's affair for all value heads of its group, decay one CTA's a head.
template <int CB>
__device__ __forceinline__ void store_ring(const delta_params &p, const place &w, const tpw_delta_piece &piece,
                                           const tpw_delta_shared<CB> &m, const tpw_delta_stage &s, int64_t keep)
{
    const tpw_gdn_state &g = p.state;
    const bool keys = w.x0 == 0 && w.h % (g.v_heads / g.k_heads) == 0;
    for (int i = piece.i0 + tpw_delta_warp(); i < piece.i1; i += TPW_DELTA_WARPS) {
        const int64_t pos = piece.base + i;
        if (pos < keep)
            continue;
        float *k = ring_k(g, w, pos), *u = ring_u(g, w, pos);
        for (int c = tpw_delta_lane(); keys && c < g.k_dim; c += TPW_WARP)
            k[c] = s.k[i * m.row + c];
        for (int c = tpw_delta_lane(); c < w.columns; c += TPW_WARP)
            u[c] = m.U[i * CB + c];
        if (w.x0 == 0 && tpw_delta_lane() == 0)
            *ring_decay(g, w, pos) = s.decay[i];
    }
}

// u of the piece by warp 0, while the others weigh the products for o.
template <int CB>
__device__ __forceinline__ void solve(const delta_params &p, const tpw_delta_piece &piece,
                                      const tpw_delta_shared<CB> &m, const tpw_delta_stage &s)
{
    const int c = (int)threadIdx.x;
    if (tpw_delta_warp() != 0) {
        tpw_delta_weigh_q(m, s, piece);
        return;
    }
    tpw_delta_weigh_k(m, s, piece);
    __syncwarp();
    if (c >= CB)
        return;
    if (piece.i1 - piece.i0 == TPW_GRID)
        tpw_delta_solve_whole(m, s, p.v_bf16, c);
    else
        tpw_delta_solve_some(m, s, piece, p.v_bf16, c);
}

// One piece from what is staged; S at its chunk's start is in shared memory, and at the next one's start afterwards.
template <int CB>
__device__ __forceinline__ void run_piece(const delta_params &p, const place &w, const part &t,
                                          const tpw_delta_piece &piece, const tpw_delta_shared<CB> &m,
                                          const tpw_delta_stage &s, bool dots)
{
    const int64_t next = piece.base + TPW_GRID;
    if (tpw_delta_warp() == 0)
        tpw_delta_products(m.E, s.decay, piece.i1);
    if (!dots) // with one row half the warps have no chain below
        tpw_delta_make_dots(m, s, piece, piece.i1 - piece.i0 == 1 ? THREADS / 2 : 0);
    tpw_delta_predict_rows(m, s, piece);
    __syncthreads();
    solve(p, piece, m, s);
    __syncthreads();
    tpw_delta_outputs(m, piece, p.o, p.o_bf16, piece.row * p.o_stride + (int64_t)w.h * p.state.v_dim + w.x0, p.o_stride,
                      w.columns);
    if (piece.base + piece.i1 > t.keep)
        store_ring(p, w, piece, m, s, t.keep);
    if (next <= t.mark || next < t.end)
        if (piece.i1 == TPW_GRID)
            tpw_delta_absorb(m, s, next == grid_floor(t.mark) ? w.S : NULL, p.state.v_dim, w.columns, p.wide);
}

__device__ __forceinline__ tpw_delta_piece piece_at(const part &t, int64_t pos)
{
    tpw_delta_piece piece;
    piece.base = grid_floor(pos);
    piece.row = t.row + (pos - t.pos);
    piece.i0 = (int32_t)(pos - piece.base);
    piece.i1 = t.end - piece.base < TPW_GRID ? (int32_t)(t.end - piece.base) : TPW_GRID;
    return piece;
}

template <int CB>
__device__ __forceinline__ void run_part(const delta_params &p, const place &w, const part &t, float *memory)
{
    const tpw_delta_shared<CB> m(memory, p.state.k_dim);
    const bool made = p.dots != NULL && p.rest;
    int stage = 0;
    if (t.pos == 0)
        clear_S(p.state, w, m, t.mark < TPW_GRID);
    else
        fetch_S(p.state, w, m, p.wide);
    fetch_piece(p, w, piece_at(t, t.pos), m, m.stage(0), made && t.pos % TPW_GRID == 0);
    tpw_copy_commit();
    for (int64_t pos = t.pos; pos < t.end;) {
        const tpw_delta_piece piece = piece_at(t, pos);
        const int64_t next = piece.base + piece.i1;
        tpw_copy_wait<0>();
        __syncthreads();
        if (p.stages == 2 && next < t.end) {
            fetch_piece(p, w, piece_at(t, next), m, m.stage(1 - stage), made);
            tpw_copy_commit();
        }
        run_piece(p, w, t, piece, m, m.stage(stage), made && piece.base >= t.pos);
        if (p.stages == 1 && next < t.end) {
            __syncthreads();
            fetch_piece(p, w, piece_at(t, next), m, m.stage(0), made);
            tpw_copy_commit();
        }
        stage = p.stages == 2 ? 1 - stage : 0;
        pos = next;
    }
}

template <int CB> __global__ void __launch_bounds__(THREADS) delta(delta_params p)
{
    extern __shared__ __align__(16) float memory[];
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int32_t block = (int32_t)(blockIdx.x % (unsigned)p.blocks);
    const int32_t head = (int32_t)(blockIdx.x / (unsigned)p.blocks);
    const part t = part_of(p.segments[head / p.state.v_heads], p.rest);
    if (t.pos >= t.end)
        return;
    run_part<CB>(p, place_of<CB>(p.state, t.slot, head % p.state.v_heads, block), t, memory);
}

// The products of keys and queries for all chunks of long segments that begin in the step. Half a warp takes a row.
__global__ void __launch_bounds__(DOT_THREADS) delta_dots(delta_params p)
{
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const tpw_gdn_state &g = p.state;
    const int32_t kh = (int32_t)(blockIdx.x % (unsigned)g.k_heads), l = (int32_t)threadIdx.x % 16;
    const int64_t m = (int64_t)(blockIdx.x / (unsigned)g.k_heads) * TPW_GRID + threadIdx.x / 16;
    int last = -1; // the row's index in its chunk
    if (m < p.rows) {
        const tpw_segment s = p.segments[p.segment_of[m]];
        const int64_t pos = s.pos + (m - s.row0);
        if (s.rows > SHORT_ROWS && grid_floor(pos) >= s.pos)
            last = (int)(pos % TPW_GRID);
    }
    const int other = __shfl_xor_sync(TPW_ALL, last, 16), both = last > other ? last : other;
    const int64_t key = (int64_t)kh * g.k_dim, row = last < 0 ? 0 : m;
    const float *ki = p.k + row * p.k_stride + key, *qi = p.q + row * p.q_stride + key;
    float kr[DOT_CHUNKS], qr[DOT_CHUNKS], kk_l = 0.0f, qk_l = 0.0f;
#pragma unroll
    for (int t = 0; t < DOT_CHUNKS; t++) {
        kr[t] = l + 16 * t < g.k_dim ? ki[l + 16 * t] : 0.0f;
        qr[t] = l + 16 * t < g.k_dim ? qi[l + 16 * t] : 0.0f;
    }
    for (int j = 0; j <= both; j++) {
        const float *kj = p.k + (j <= last ? row - last + j : row) * p.k_stride + key;
        float kk = 0.0f, qk = 0.0f;
#pragma unroll
        for (int t = 0; t < DOT_CHUNKS; t++)
            if (16 * t < g.k_dim) { // the last lanes add zeros
                const float x = l + 16 * t < g.k_dim ? kj[l + 16 * t] : 0.0f;
                kk = fmaf(kr[t], x, kk);
                qk = fmaf(qr[t], x, qk);
            }
        for (int c = l + 16 * DOT_CHUNKS; c - l < g.k_dim; c += 16) {
            const float x = c < g.k_dim ? kj[c] : 0.0f;
            kk = fmaf(c < g.k_dim ? ki[c] : 0.0f, x, kk);
            qk = fmaf(c < g.k_dim ? qi[c] : 0.0f, x, qk);
        }
        kk = tpw_delta_join(kk);
        qk = tpw_delta_join(qk);
        kk_l = j == l ? kk : kk_l;
        qk_l = j == l ? qk : qk_l;
    }
    if (last < 0)
        return;
    float *to = p.dots + (m * g.k_heads + kh) * TPW_DELTA_DOTS;
    to[l] = kk_l;
    to[TPW_GRID + l] = qk_l;
}

// S of every segment's slot over the whole chunks of the ring that are committed now: none for most.
template <int CB> __global__ void __launch_bounds__(THREADS) delta_commit(delta_params p, const int32_t *taken)
{
    extern __shared__ __align__(16) float memory[];
    tpw_pdl_trigger();
    tpw_pdl_wait();
    const int32_t block = (int32_t)(blockIdx.x % (unsigned)p.blocks);
    const int32_t head = (int32_t)(blockIdx.x / (unsigned)p.blocks), i = head / p.state.v_heads;
    const tpw_segment t = p.segments[i];
    const int64_t from = grid_floor(t.pos + t.rows_certain), to = grid_floor(t.pos + taken[i]);
    if (from >= to || to > grid_floor(t.pos + t.rows))
        return;
    const place w = place_of<CB>(p.state, t.slot, head % p.state.v_heads, block);
    const tpw_delta_shared<CB> m(memory, p.state.k_dim);
    const tpw_delta_stage s = m.stage(0);
    fetch_S(p.state, w, m, p.wide);
    for (int64_t base = from; base < to; base += TPW_GRID) {
        const tpw_delta_piece piece = {base, 0, TPW_GRID, TPW_GRID};
        fetch_piece(p, w, piece, m, s, false);
        tpw_copy_commit();
        tpw_copy_wait<0>();
        __syncthreads();
        if (tpw_delta_warp() == 0)
            tpw_delta_products(m.E, s.decay, TPW_GRID);
        __syncthreads();
        tpw_delta_absorb(m, s, base + TPW_GRID == to ? w.S : NULL, p.state.v_dim, w.columns, p.wide);
        __syncthreads();
    }
}

template <int CB> size_t shared_bytes(int32_t dk, int32_t stages)
{
    typedef tpw_delta_shared<CB> shared;
    return sizeof(float) * (size_t)(shared::fixed_floats(dk) + stages * shared::stage_floats(dk));
}

tpw_status check_state(const tpw_exec *exec, const tpw_gdn_state *g, tpw_error *err)
{
    const int64_t sizes[][5] = {{g->slots, g->v_heads, g->k_dim, g->v_dim, 4},
                                {g->slots, TPW_GDN_RING, g->k_heads, g->k_dim, 4},
                                {g->slots, TPW_GDN_RING, g->v_heads, g->v_dim, 4}};
    const void *const parts[] = {g->S, g->k, g->u, g->decay};
    const size_t room = tpw_cuda_of(exec)->shared_bytes;
    if (g->k_heads < 1 || g->v_heads < 1 || g->v_heads % g->k_heads != 0 || g->k_dim < 1 || g->v_dim < 1)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "cuda delta: %d value heads over %d key heads of %d x %d are not supported", (int)g->v_heads,
                        (int)g->k_heads, (int)g->k_dim, (int)g->v_dim);
    if (g->k_dim > KEYS_MAX || shared_bytes<32>(g->k_dim, 1) > room)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda delta: keys of %d do not fit into the %zu bytes of a CTA",
                        (int)g->k_dim, room);
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        if (!tpw_product_size(sizes[i], 5, &bytes))
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda delta: a state of %d slots of %d heads of %d x %d cannot be",
                            (int)g->slots, (int)g->v_heads, (int)g->k_dim, (int)g->v_dim);
    }
    for (int i = 0; i < 4; i++)
        if (parts[i] == NULL || (uintptr_t)parts[i] % sizeof(float) != 0)
            return tpw_fail(err, TPW_ERR_ARGUMENT,
                            "cuda delta: part %d of the state is at %p; it needs device memory at a multiple of 4", i,
                            parts[i]);
    return TPW_OK;
}

tpw_status check_slot(const tpw_gdn_state *g, int32_t slot, tpw_error *err)
{
    if (slot < 1 || slot >= g->slots)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda delta: slot %d is outside 1..%d", (int)slot, (int)g->slots - 1);
    return TPW_OK;
}

tpw_status check_segments(const tpw_gdn_state *g, const tpw_batch *batch, tpw_error *err)
{
    for (int32_t i = 0; i < batch->segment_count; i++) {
        const tpw_segment *s = &batch->segments[i];
        TPW_TRY(check_slot(g, s->slot, err));
        if (s->rows_certain < 0 || s->rows_certain > s->rows || s->rows - s->rows_certain > TPW_GDN_RING - TPW_GRID)
            return tpw_fail(
                err, TPW_ERR_UNSUPPORTED,
                "cuda delta: segment %d has %d rows of which %d are certain, but a ring of %d rows holds at "
                "most %d others",
                (int)i, (int)s->rows, (int)s->rows_certain, TPW_GDN_RING, TPW_GDN_RING - TPW_GRID);
    }
    return TPW_OK;
}

tpw_status check_mats(const tpw_delta_args *a, tpw_error *err)
{
    const tpw_gdn_state *g = &a->state;
    const tpw_mat *mats[] = {&a->q, &a->k, &a->v, &a->decay, &a->beta, &a->o};
    const char *const names[] = {"q", "k", "v", "decay", "beta", "o"};
    const int64_t keys = (int64_t)g->k_heads * g->k_dim, values = (int64_t)g->v_heads * g->v_dim;
    const int64_t cols[] = {keys, keys, values, g->v_heads, g->v_heads, values};
    for (int i = 0; i < 6; i++) {
        if (mats[i]->dtype != TPW_F32 && !(tpw_is_act(mats[i]->dtype) && (i == 2 || i == 5)))
            return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda delta: %s of type %s", names[i],
                            tpw_dtype_name(mats[i]->dtype));
        TPW_TRY(tpw_mat_check("cuda delta", names[i], mats[i], err));
        if (mats[i]->rows < a->batch->rows || mats[i]->cols != cols[i])
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda delta: %s is [%d, %d], not [%d, %lld]", names[i],
                            (int)mats[i]->rows, (int)mats[i]->cols, (int)a->batch->rows, (long long)cols[i]);
    }
    return TPW_OK;
}

bool aligned16(const void *p, int64_t step_bytes)
{
    return (uintptr_t)p % 16 == 0 && step_bytes % 16 == 0;
}

bool state_wide(const tpw_gdn_state *g)
{
    return aligned16(g->S, g->v_dim * 4LL) && aligned16(g->u, g->v_dim * 4LL) && aligned16(g->k, g->k_dim * 4LL);
}

bool all_wide(const tpw_delta_args *a)
{
    return state_wide(&a->state) && tpw_mat_wide(&a->q) && tpw_mat_wide(&a->k) && tpw_mat_wide(&a->v) &&
           a->state.v_dim * (int64_t)tpw_dtype_size(a->v.dtype) % 16 == 0;
}

delta_params params_of(const tpw_delta_args *a, const tpw_cuda_batch *b)
{
    delta_params p = {};
    p.q = (const float *)a->q.data, p.q_stride = a->q.stride;
    p.k = (const float *)a->k.data, p.k_stride = a->k.stride;
    p.v = a->v.data, p.v_stride = a->v.stride, p.v_bf16 = a->v.dtype == TPW_BF16;
    p.decay = (const float *)a->decay.data, p.decay_stride = a->decay.stride;
    p.beta = (const float *)a->beta.data, p.beta_stride = a->beta.stride;
    p.o = a->o.data, p.o_stride = a->o.stride, p.o_bf16 = a->o.dtype == TPW_BF16;
    p.state = a->state, p.rows = a->batch->rows, p.wide = all_wide(a);
    p.segments = b->segments, p.segment_of = b->segment_of;
    return p;
}

template <int CB> tpw_status launch(const tpw_exec *exec, delta_params p, int32_t segments, tpw_error *err)
{
    p.blocks = (p.state.v_dim + CB - 1) / CB;
    if (shared_bytes<CB>(p.state.k_dim, p.stages) > tpw_cuda_of(exec)->shared_bytes)
        p.stages = 1;
    const size_t bytes = shared_bytes<CB>(p.state.k_dim, p.stages);
    const int64_t ctas = (int64_t)p.blocks * p.state.v_heads * segments;
    if (ctas > INT32_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "cuda delta: %d segments of %d heads are too many for one kernel",
                        (int)segments, (int)p.state.v_heads);
    TPW_TRY(tpw_cuda_allow_shared(exec, (const void *)delta<CB>, bytes, err));
    return tpw_cuda_launch(exec, "delta", err, delta<CB>, dim3((unsigned)ctas), dim3(THREADS), bytes, 1, p);
}

// Few heads are spread over more CTAs of fewer columns.
tpw_status launch_spread(const tpw_exec *exec, const delta_params &p, int32_t segments, tpw_error *err)
{
    const int64_t ctas = ((int64_t)p.state.v_dim + 31) / 32 * p.state.v_heads * segments;
    if (2 * ctas <= tpw_cuda_of(exec)->gpu.processors)
        return launch<16>(exec, p, segments, err);
    return launch<32>(exec, p, segments, err);
}

// What long segments need: their products, if the scratch holds them, then their rows from the cut on. `first`: the
// other kernel has work too, and goes between.
tpw_status launch_long(const tpw_exec *exec, delta_params p, int32_t segments, bool first, tpw_error *err)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    const int64_t floats[] = {p.rows, p.state.k_heads, TPW_DELTA_DOTS, (int64_t)sizeof(float)};
    const int64_t ctas = ((int64_t)p.rows + TPW_GRID - 1) / TPW_GRID * p.state.k_heads;
    size_t bytes;
    if (tpw_product_size(floats, 4, &bytes) && bytes <= cuda->scratch_bytes && ctas <= INT32_MAX) {
        p.dots = (float *)cuda->scratch;
        TPW_TRY(tpw_cuda_launch(exec, "delta (products)", err, delta_dots, dim3((unsigned)ctas), dim3(DOT_THREADS), 0,
                                1, p));
    }
    p.stages = 1;
    if (first)
        TPW_TRY(launch_spread(exec, p, segments, err));
    p.stages = 2, p.rest = true;
    return launch_spread(exec, p, segments, err);
}

} // namespace

// The kernels of one call depend on the batch's rows and segments and on whether some segment is long, or cut.
extern "C" tpw_status tpw_cuda_delta(const tpw_exec *exec, const tpw_delta_args *args, tpw_error *err)
{
    tpw_cuda_batch b;
    bool any_long = false, first = false;
    TPW_TRY(tpw_cuda_batch_of(exec, args->batch, "delta", &b, err));
    TPW_TRY(check_state(exec, &args->state, err));
    TPW_TRY(check_segments(&args->state, args->batch, err));
    TPW_TRY(check_mats(args, err));
    if (args->batch->rows == 0)
        return TPW_OK;
    for (int32_t i = 0; i < args->batch->segment_count; i++) {
        any_long |= args->batch->segments[i].rows > SHORT_ROWS;
        first |= cut_of(args->batch->segments[i]) > args->batch->segments[i].pos;
    }
    delta_params p = params_of(args, &b);
    p.stages = 1;
    if (any_long)
        return launch_long(exec, p, args->batch->segment_count, first, err);
    return launch_spread(exec, p, args->batch->segment_count, err);
}

extern "C" tpw_status tpw_cuda_delta_commit(const tpw_exec *exec, const tpw_delta_commit_args *args, tpw_error *err)
{
    tpw_cuda_batch b;
    TPW_TRY(tpw_cuda_batch_of(exec, args->batch, "delta_commit", &b, err));
    TPW_TRY(check_state(exec, &args->state, err));
    TPW_TRY(check_segments(&args->state, args->batch, err));
    delta_params p = {};
    p.state = args->state, p.stages = 1, p.wide = state_wide(&args->state);
    p.segments = b.segments, p.segment_of = b.segment_of;
    p.blocks = (args->state.v_dim + 31) / 32;
    const size_t bytes = shared_bytes<32>(p.state.k_dim, 1);
    const int64_t ctas = (int64_t)p.blocks * args->state.v_heads * args->batch->segment_count;
    if (ctas > INT32_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "cuda delta: %d segments of %d heads are too many for one kernel",
                        (int)args->batch->segment_count, (int)args->state.v_heads);
    TPW_TRY(tpw_cuda_allow_shared(exec, (const void *)delta_commit<32>, bytes, err));
    return tpw_cuda_launch(exec, "delta_commit", err, delta_commit<32>, dim3((unsigned)ctas), dim3(THREADS), bytes, 1,
                           p, args->taken);
}
