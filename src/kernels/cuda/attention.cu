// Causal attention over paged keys and values on tensor cores: the arithmetic of ops.h, one for decode, verify and prefill.
//
// BF16 or F16. Fixed for every row, whatever shares the step with it:
//   score  = a chain of m16n8k16 over D from +0, times 1/sqrt(D);  m = largest score of the split's keys at or before the row;
//   p      = e^(score - m) as tpw_attention_exp forms it;  o: per 64 keys a chain of four m16n8k16 of act(p) and V from +0;
//   l      : per 32 keys, lane t of four adds keys 8j + 2t and 8j + 2t + 1 for j = 0..3 in order from +0, then (0+1)+(2+3);
//   64-key sums of l are first + second half; l and o of a split are (0+1)+(2+3) of their 64-key sums;
//   the first split is taken as it is; later ones fold, M' = max(M, m), O = fma(O, e^(M-M'), o * e^(m-M')), L alike;
//   out    = act((O * (1/L)) * sigmoid(gate)), the sigmoid from the same exponential.
// Keys after the row have p = 0 by select; K and V past the tile's last key are zeros and never read. The K/V of other rows of
// the step must be finite.
//
// One kernel does a tile of queries over some splits. Segments of few rows: one split a CTA, its m, l and o go to the scratch
// and fold_splits folds them in order. Longer ones: a CTA walks through all splits and folds in registers. Tile size, parts and
// passes change no bit. A split is 2 D/64 blocks of [256 keys][64 dims], first of K, then of V, in a ring of stages: a split's
// scores are all known before its one maximum is needed. Warp w has keys 32w..32w+31 of the scores, then columns of V.
// Positions, rows and pages are read on the device; a grid serves every batch of as many segments and rows of either class whose
// keys are no more. SPDX-License-Identifier: Apache-2.0
extern "C" {
#include "kernels/elementary.h"
}

#include "kernels/cuda/attention_cta.cuh"

namespace
{

// What a CTA does: few: tile, split and part of blockIdx.x; else tile, the last one first, and all its splits.
__device__ __forceinline__ bool find_work(const tpw_attention_params &p, int32_t tile, int32_t k_blocks,
                                          tpw_attention_tile *w, feed *f)
{
    const int32_t x = (int32_t)blockIdx.x, each = p.split_count * p.parts;
    if (!tpw_attention_find(p, p.few ? x / each : p.tiles - 1 - x, tile, w))
        return false;
    f->k_blocks = k_blocks;
    f->v_blocks = p.few ? k_blocks / p.parts : k_blocks;
    f->v_first = p.few ? x % p.parts * f->v_blocks : 0;
    f->split = p.few ? p.first_split + x % each / p.parts : 0;
    f->split_end = p.few ? f->split + 1 : (w->keys + TPW_SPLIT_KEYS - 1) / TPW_SPLIT_KEYS;
    f->stages = p.stages, f->put = f->take = f->block = 0;
    return f->split * TPW_SPLIT_KEYS < w->keys;
}

// 16 MT queries of a KV head (blockIdx.y) over their splits.
template <int D, int MT, bool F16>
__global__ void __launch_bounds__(THREADS, MT == 1 ? 2 : 1) attend(const __grid_constant__ tpw_attention_params p)
{
    extern __shared__ __align__(128) unsigned char memory[];
    constexpr int BLOCKS = D / BLOCK_DIMS, TILE = 16 * MT;
    typedef sharing<MT> share;
    const int warp = (int)(threadIdx.x / TPW_WARP), lane = (int)(threadIdx.x % TPW_WARP);
    const int row0 = warp / share::CW * share::MW * 16, unit = warp % share::CW * share::NV;
    unsigned char *q = memory + p.stages * BLOCK_BYTES, *weights = q + TILE * D * 2;
    row_sums *rows = (row_sums *)(weights + TILE * P_ROW);
    int32_t *bad = (int32_t *)(rows + TILE);
    tpw_attention_tile w;
    feed f;

    tpw_pdl_trigger();
    tpw_pdl_wait();
    if (!find_work(p, TILE, BLOCKS, &w, &f))
        return;
    f.ring = tpw_shared(memory);
    if (threadIdx.x == 0)
        *bad = 0;
    __syncthreads();
    const int32_t begin = f.split, end = f.split_end, v_first = f.v_first, v_blocks = f.v_blocks;
    for (int i = 0; i < p.stages - 1; i++)
        fetch(p, w, f, bad);
    load_queries<D, MT>(p, w, q, rows);
    float O[BLOCKS][share::MW][share::NV][4] = {};
    for (int32_t split = begin; split < end; split++) {
        float s[MT][4][4] = {};
        for (int block = 0; block < BLOCKS; block++)
            add_scores<D, MT, F16>(s, tpw_shared(q), next_block(p, w, f, bad), block);
        find_maxima<MT>(s, rows, split, p.root);
        __syncthreads();
        find_weights<MT, F16>(s, rows, weights, split);
        __syncthreads();
        if (threadIdx.x < TILE)
            join_row(&rows[threadIdx.x], split, split == begin, *bad != 0);
#pragma unroll
        for (int block = 0; block < BLOCKS; block++)
            if (block < v_blocks)
                add_values<share::MW, share::NV, F16>(O[block], tpw_shared(weights), next_block(p, w, f, bad), row0,
                                                      unit, rows);
    }
    if (!p.few && threadIdx.x < TILE)
        rows[threadIdx.x].L = 1.0f / rows[threadIdx.x].L;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BLOCKS * share::MW * share::NV * 2; i++) {
        const int h = i % 2, n = i / 2 % share::NV, m = i / 2 / share::NV % share::MW,
                  block = i / 2 / share::NV / share::MW;
        if (block < v_blocks)
            store_pair<F16>(p, w, rows, row0 + row_of(m, h),
                            (v_first + block) * BLOCK_DIMS + (unit + n) * 8 + lane % 4 * 2, begin,
                            &O[block][m][n][2 * h]);
    }
    if (p.few && v_first == 0)
        store_sums(p, w, rows, TILE, begin);
}

constexpr int UNDER_WAY = 8; // splits whose loads are under way together

// Folds the splits of this pass for one query; D threads, one a column. The last pass of a row writes the result.
__global__ void __launch_bounds__(256) fold_splits(const __grid_constant__ tpw_attention_params p)
{
    tpw_attention_tile w;
    tpw_pdl_trigger();
    tpw_pdl_wait();
    if (!tpw_attention_find(p, (int32_t)blockIdx.x, 1, &w))
        return;
    const int32_t splits = (w.keys + TPW_SPLIT_KEYS - 1) / TPW_SPLIT_KEYS, column = (int32_t)threadIdx.x;
    const int32_t count = splits - p.first_split < p.split_count ? splits - p.first_split : p.split_count;
    if (count < 1)
        return; // done by an earlier pass
    const int64_t slot = (int64_t)w.slot * p.kv_heads + blockIdx.y;
    const float *partial = p.partial + slot * p.split_count * p.dim + column;
    const float2 *sums = (const float2 *)p.sums + slot * p.split_count;
    float *state = p.state + slot * (p.dim + 2), O = 0.0f, M = 0.0f, L = 0.0f;
    if (p.first_split > 0)
        O = state[column], M = state[p.dim], L = state[p.dim + 1];
    for (int32_t base = 0; base < count; base += UNDER_WAY) {
        float o[UNDER_WAY];
        float2 ml[UNDER_WAY];
#pragma unroll
        for (int i = 0; i < UNDER_WAY; i++)
            if (base + i < count)
                o[i] = partial[(int64_t)(base + i) * p.dim], ml[i] = sums[base + i];
#pragma unroll
        for (int i = 0; i < UNDER_WAY; i++)
            if (base + i < count) {
                float keep, take;
                tpw_attention_join(p.first_split + base + i == 0, ml[i].x, ml[i].y, &M, &L, &keep, &take);
                O = tpw_attention_fold(O, o[i], keep, take);
            }
    }
    if (p.first_split + count < splits) {
        __syncthreads(); // all have read M and L
        state[column] = O;
        if (column == 0)
            state[p.dim] = M, state[p.dim + 1] = L;
        return;
    }
    const int64_t row = w.row0 + w.first / p.group, head = (int64_t)blockIdx.y * p.group + w.first % p.group;
    p.out[row * p.out_stride + head * p.dim + column] =
        tpw_attention_out(p.f16, O, 1.0f / L, p.qg[row * p.qg_stride + (2 * head + 1) * p.dim + column]);
}

typedef void (*attend_kernel)(tpw_attention_params);

template <int D, bool F16> attend_kernel kernel_of_size(int32_t tile)
{
    return tile == 16 ? attend<D, 1, F16> : tile == 32 ? attend<D, 2, F16> : attend<D, 4, F16>;
}

template <bool F16> attend_kernel kernel_of_type(int32_t dim, int32_t tile)
{
    return dim == 256   ? kernel_of_size<256, F16>(tile)
           : dim == 128 ? kernel_of_size<128, F16>(tile)
                        : kernel_of_size<64, F16>(tile);
}

// What the host knows of one class of segments.
struct census {
    int64_t rows;
    int32_t segments;
    int32_t rows_most; // of one segment
    int64_t keys_most;
};

census count_class(const tpw_batch *batch, bool few)
{
    census c = {};
    for (int32_t i = 0; i < batch->segment_count; i++) {
        const tpw_segment *s = &batch->segments[i];
        if ((s->rows <= TPW_FEW_ROWS) != few)
            continue;
        c.rows += s->rows, c.segments++;
        c.rows_most = s->rows > c.rows_most ? s->rows : c.rows_most;
        c.keys_most = s->pos + s->rows > c.keys_most ? s->pos + s->rows : c.keys_most;
    }
    return c;
}

// Tiles of any segments with these totals: a grid holds for every batch of as many rows and segments.
int64_t tiles_of(const census *c, int32_t group, int32_t tile)
{
    return c->rows * group / tile + c->segments;
}

// Stages that fit beside a tile when `ctas` share a multiprocessor; below STAGES_MIN the tile is too large for this GPU.
int32_t stages_of(const tpw_exec *exec, int32_t dim, int32_t tile, size_t ctas)
{
    const size_t fixed = fixed_bytes(dim, tile);
    const size_t all = (tpw_cuda_of(exec)->shared_bytes + CTA_RESERVED) / ctas - CTA_RESERVED;
    const size_t stages = all > fixed ? (all - fixed) / BLOCK_BYTES : 0;
    return (int32_t)(stages < STAGES_MAX ? stages : STAGES_MAX);
}

tpw_status launch_attend(const tpw_exec *exec, tpw_attention_params *p, int32_t tile, int64_t blocks, tpw_error *err)
{
    const attend_kernel kernel = p->f16 ? kernel_of_type<true>(p->dim, tile) : kernel_of_type<false>(p->dim, tile);
    const int32_t paired = stages_of(exec, p->dim, tile, 2);
    p->stages = stages_of(exec, p->dim, tile, 1);
    if (p->stages < STAGES_MIN)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "cuda attention: heads of %d need %zu bytes of shared memory, the GPU has %zu", (int)p->dim,
                        fixed_bytes(p->dim, tile) + STAGES_MIN * (size_t)BLOCK_BYTES, tpw_cuda_of(exec)->shared_bytes);
    if (p->few && p->stages > 2 * p->dim / BLOCK_DIMS)
        p->stages = 2 * p->dim / BLOCK_DIMS;
    /* where there is work for many rounds, one CTA begins and ends while the other streams */
    if (tile == 16 && blocks * p->kv_heads > 2 * tpw_cuda_of(exec)->gpu.processors && paired >= STAGES_MIN &&
        paired < p->stages)
        p->stages = paired;
    if (blocks > INT32_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT, "cuda attention: %lld blocks of work in one step are too many",
                        (long long)blocks);
    const size_t bytes = fixed_bytes(p->dim, tile) + (size_t)p->stages * BLOCK_BYTES;
    TPW_TRY(tpw_cuda_allow_shared(exec, (const void *)kernel, bytes, err));
    return tpw_cuda_launch(exec, "attention", err, kernel, dim3((unsigned)blocks, (unsigned)p->kv_heads), dim3(THREADS),
                           bytes, 1, *p);
}

// Cuts the scratch for `slots` rows of heads: how many of `splits` go into one pass.
tpw_status cut_scratch(const tpw_exec *exec, tpw_attention_params *p, int64_t slots, int64_t splits, tpw_error *err)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    const int64_t each = slots * (p->dim + 2) * (int64_t)sizeof(float);
    int64_t fit = (int64_t)(cuda->scratch_bytes / (size_t)each);
    if (fit < splits && fit < 2)
        return tpw_fail(err, TPW_ERR_LIMIT,
                        "cuda attention: %lld bytes of scratch are needed for %lld rows of heads, there are %zu",
                        (long long)(2 * each), (long long)slots, cuda->scratch_bytes);
    const bool once = fit >= splits;
    fit = once ? splits : fit - 1;
    p->split_count = (int32_t)fit;
    p->partial = (float *)cuda->scratch;
    p->sums = p->partial + slots * fit * p->dim;
    p->state = once ? NULL : p->sums + slots * fit * 2;
    return TPW_OK;
}

// CTAs a split: more than one, each with a share of V's columns, while multiprocessors would be idle.
int32_t parts_of(const tpw_exec *exec, int32_t dim, int64_t blocks)
{
    const int64_t processors = tpw_cuda_of(exec)->gpu.processors;
    int32_t parts = dim / BLOCK_DIMS;
    while (parts > 1 && blocks * parts > processors)
        parts /= 2;
    return parts;
}

// Segments of few rows: all splits side by side, then their fold; in passes when the scratch is small.
tpw_status run_few(const tpw_exec *exec, tpw_attention_params p, const census *c, tpw_error *err)
{
    const int64_t queries = c->rows * p.group, splits = (c->keys_most + TPW_SPLIT_KEYS - 1) / TPW_SPLIT_KEYS;
    int32_t tile = c->rows_most * p.group <= 16 ? 16 : c->rows_most * p.group <= 32 ? 32 : 64;
    while (tile > 16 && stages_of(exec, p.dim, tile, 1) < STAGES_MIN)
        tile /= 2;
    p.few = true;
    p.tiles = (int32_t)tiles_of(c, p.group, tile);
    TPW_TRY(cut_scratch(exec, &p, queries * p.kv_heads, splits, err));
    p.parts = parts_of(exec, p.dim, (int64_t)p.tiles * p.kv_heads * (splits < p.split_count ? splits : p.split_count));
    for (p.first_split = 0; p.first_split < splits; p.first_split += p.split_count) {
        TPW_TRY(launch_attend(exec, &p, tile, (int64_t)p.tiles * p.split_count * p.parts, err));
        TPW_TRY(tpw_cuda_launch(exec, "attention (fold)", err, fold_splits,
                                dim3((unsigned)queries, (unsigned)p.kv_heads), dim3((unsigned)p.dim), 0, 1, p));
    }
    return TPW_OK;
}

// Longer segments: the largest tile that still gives half of the multiprocessors work.
tpw_status run_many(const tpw_exec *exec, tpw_attention_params p, const census *c, tpw_error *err)
{
    const int64_t processors = tpw_cuda_of(exec)->gpu.processors;
    int32_t tile = 64;
    while (tile > 16 &&
           (stages_of(exec, p.dim, tile, 1) < STAGES_MIN || 2 * tiles_of(c, p.group, tile) * p.kv_heads < processors))
        tile /= 2;
    p.few = false, p.parts = 1, p.split_count = 1;
    p.tiles = (int32_t)tiles_of(c, p.group, tile);
    return launch_attend(exec, &p, tile, p.tiles, err);
}

tpw_status check_shape(const tpw_attention_args *a, tpw_error *err)
{
    const tpw_kv *kv = &a->kv;
    if ((kv->dtype != TPW_BF16 && kv->dtype != TPW_F16) || a->q.dtype != kv->dtype || a->qg.dtype != kv->dtype ||
        a->out.dtype != kv->dtype)
        return tpw_fail(
            err, TPW_ERR_UNSUPPORTED,
            "cuda attention: q %s, qg %s, out %s and K/V %s must all be BF16 or all F16; use --compute=bf16",
            tpw_dtype_name(a->q.dtype), tpw_dtype_name(a->qg.dtype), tpw_dtype_name(a->out.dtype),
            tpw_dtype_name(kv->dtype));
    if (kv->head_dim != 64 && kv->head_dim != 128 && kv->head_dim != 256)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda attention: heads of %d; 64, 128 and 256 are supported",
                        (int)kv->head_dim);
    if (kv->heads < 1 || kv->heads > 65535 || a->q_heads < 1 || a->q_heads % kv->heads != 0)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda attention: %d query heads over %d KV heads are not supported",
                        (int)a->q_heads, (int)kv->heads);
    if (kv->page_size < 1 || kv->page_size > TPW_SPLIT_KEYS || (kv->page_size & (kv->page_size - 1)) != 0)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda attention: pages of %d positions, not a power of two up to %d",
                        (int)kv->page_size, TPW_SPLIT_KEYS);
    return TPW_OK;
}

tpw_status check_mat(const char *name, const tpw_mat *m, int32_t rows, int64_t cols, tpw_error *err)
{
    TPW_TRY(tpw_mat_check("cuda attention", name, m, err));
    if (m->rows != rows || m->cols != cols)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda attention: %s is [%d, %d], the batch needs [%d, %lld]", name,
                        (int)m->rows, (int)m->cols, (int)rows, (long long)cols);
    return TPW_OK;
}

// Sizes that the kernels hold in 32 bits, and addresses of whole 16-byte units.
tpw_status check_sizes(const tpw_attention_args *a, tpw_error *err)
{
    const tpw_kv *kv = &a->kv;
    const int64_t q = (int64_t)a->q_heads * kv->head_dim;
    int64_t cells;
    TPW_TRY(check_mat("q", &a->q, a->batch->rows, q, err));
    TPW_TRY(check_mat("qg", &a->qg, a->batch->rows, 2 * q, err));
    TPW_TRY(check_mat("out", &a->out, a->batch->rows, q, err));
    if (kv->k == NULL || kv->v == NULL || (uintptr_t)kv->k % 16 != 0 || (uintptr_t)kv->v % 16 != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda attention: K/V at %p and %p; both need a multiple of 16", kv->k,
                        kv->v);
    if (!tpw_mul_i64((int64_t)kv->pages * kv->heads, kv->page_size, &cells) || cells > INT32_MAX ||
        (int64_t)a->batch->rows * a->q_heads > INT32_MAX / 2)
        return tpw_fail(err, TPW_ERR_LIMIT,
                        "cuda attention: %d pages of %d positions and %d heads, %d rows are too many", (int)kv->pages,
                        (int)kv->page_size, (int)kv->heads, (int)a->batch->rows);
    for (int32_t i = 0; i < a->batch->segment_count; i++) {
        const tpw_segment *s = &a->batch->segments[i];
        const bool tables = s->pages != NULL || s->pages_wide != NULL;
        if (s->pos < 0 || !tables || s->pos > INT32_MAX - s->rows - TPW_SPLIT_KEYS)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda attention: segment %d at position %lld%s", (int)i,
                            (long long)s->pos, !tables ? " has no pages" : " is out of range");
    }
    return TPW_OK;
}

tpw_attention_params params_of(const tpw_attention_args *a, const tpw_cuda_batch *b)
{
    tpw_attention_params p = {};
    p.segments = b->segments, p.segment_count = a->batch->segment_count;
    p.q = (const uint16_t *)a->q.data, p.q_stride = a->q.stride, p.q_wide = tpw_mat_wide(&a->q);
    p.qg = (const uint16_t *)a->qg.data, p.qg_stride = a->qg.stride;
    p.out = (uint16_t *)a->out.data, p.out_stride = a->out.stride;
    p.k = (const uint16_t *)a->kv.k, p.v = (const uint16_t *)a->kv.v;
    p.pages = a->kv.pages, p.page_size = a->kv.page_size, p.kv_heads = a->kv.heads;
    while (1 << p.page_shift < p.page_size)
        p.page_shift++;
    p.f16 = a->kv.dtype == TPW_F16;
    p.group = a->q_heads / a->kv.heads, p.dim = a->kv.head_dim, p.root = tpw_rsqrt((float)a->kv.head_dim);
    return p;
}

} // namespace

extern "C" tpw_status tpw_cuda_attention(const tpw_exec *exec, const tpw_attention_args *args, tpw_error *err)
{
    tpw_cuda_batch b;
    TPW_TRY(check_shape(args, err));
    TPW_TRY(tpw_cuda_batch_of(exec, args->batch, "attention", &b, err));
    if (args->batch->rows == 0)
        return TPW_OK;
    TPW_TRY(check_sizes(args, err));
    const tpw_attention_params p = params_of(args, &b);
    const census few = count_class(args->batch, true), many = count_class(args->batch, false);
    if (few.segments > 0)
        TPW_TRY(run_few(exec, p, &few, err));
    if (many.segments > 0)
        TPW_TRY(run_many(exec, p, &many, err));
    return TPW_OK;
}
