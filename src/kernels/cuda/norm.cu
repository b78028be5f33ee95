// Residual addition and RMSNorm of one step: slices joined, added, rounded, normed in one kernel.
//
// A warp takes a piece of 256 columns, lane l the elements 8l..8l+7: the tree of ops.h as it stands. Few rows are spread
// over clusters of CTAs, which tell each other the sums of their pieces; every thread then adds all pieces in order. How many
// CTAs and warps there are changes no bit. SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/elementary.h"
#include "kernels/tree.h"
}

namespace
{

enum {
    WARPS_MAX = 20, // 640 threads leave each the registers to hold eight slices under way
    THREADS_MAX = WARPS_MAX * TPW_WARP,
    CLUSTER_MAX = 8,
    PIECES_MAX = 12288 // sums in 48 KiB of shared memory
};

struct norm_params {
    void *h;
    int64_t h_stride;
    const float *sum;
    int64_t part_step; // M * H
    const float *weight;
    float eps;
    void *y; // or NULL
    int64_t y_stride;
    int32_t cols;
    int32_t pieces;
    bool h_bf16;
    bool y_bf16;
    bool h_wide;
    bool sum_wide;
    bool weight_wide;
    bool y_wide;
};

#if __CUDA_ARCH__ >= 900
#define TPW_CLUSTERS 1
#else
#define TPW_CLUSTERS 0
#endif

__device__ __forceinline__ void cluster_arrive()
{
#if TPW_CLUSTERS
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait()
{
#if TPW_CLUSTERS
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Stores `x` at `at` of the shared memory of CTA `rank` of the cluster.
__device__ __forceinline__ void cluster_store(float *at, unsigned rank, float x)
{
#if TPW_CLUSTERS
    const uint32_t here = (uint32_t)__cvta_generic_to_shared(at);
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
#endif
}

// Four neighbours of every slice, joined; PARTS loads are under way together.
template <int PARTS> __device__ __forceinline__ void joined4(const norm_params &p, int64_t at, int32_t n, float v[4])
{
    float part[4][PARTS];
#pragma unroll
    for (int s = 0; s < PARTS; s++) {
        const float *from = p.sum + s * p.part_step + at;
        if (n >= 4 && p.sum_wide) {
            const float4 f = *(const float4 *)from;
            part[0][s] = f.x, part[1][s] = f.y, part[2][s] = f.z, part[3][s] = f.w;
            continue;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            part[i][s] = i < n ? from[i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = tpw_tree_parts(part[i], 1, PARTS);
}

// The lane's eight elements of piece `piece` of row m: h + sum, rounded, stored, and read as the norm reads it. Returns the
// piece's sum of squares, in all lanes.
template <int PARTS>
__device__ __forceinline__ float take_piece(const norm_params &p, int64_t m, int32_t piece, float x[8])
{
    const int32_t c = piece * TPW_TREE_PIECE + (int32_t)(threadIdx.x % TPW_WARP) * TPW_TREE_RUN, n = p.cols - c;
    tpw_row_load8(p.h, p.h_bf16, m * p.h_stride + c, n, p.h_wide, x);
    if (PARTS > 0) {
#pragma unroll
        for (int half = 0; half < 8; half += 4) {
            float v[4];
            joined4<PARTS == 0 ? 1 : PARTS>(p, m * p.cols + c + half, n - half, v);
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[half + i] += v[i];
        }
        if (p.h_bf16)
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = tpw_bf16_to_f32(tpw_bf16_from_f32(x[i]));
        tpw_row_store8(p.h, p.h_bf16, m * p.h_stride + c, n, p.h_wide, x);
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum = fmaf(x[i], x[i], sum);
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
        sum += __shfl_xor_sync(TPW_ALL, sum, mask);
    return sum;
}

// Tells every CTA that works on the row; all lanes hold `sum`.
template <bool CLUSTER> __device__ __forceinline__ void publish(float *sums, int32_t piece, float sum, unsigned ctas)
{
    const unsigned lane = threadIdx.x % TPW_WARP;
    if (CLUSTER) {
        if (lane < ctas)
            cluster_store(sums + piece, lane, sum);
    } else if (lane == 0) {
        sums[piece] = sum;
    }
}

__device__ __forceinline__ void norm_piece(const norm_params &p, int64_t m, int32_t piece, float inverse,
                                           const float x[8], const float weight[8])
{
    const int32_t c = piece * TPW_TREE_PIECE + (int32_t)(threadIdx.x % TPW_WARP) * TPW_TREE_RUN;
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        y[i] = x[i] * inverse * (1.0f + weight[i]);
    tpw_row_store8(p.y, p.y_bf16, m * p.y_stride + c, p.cols - c, p.y_wide, y);
}

__device__ __forceinline__ void load_weight(const norm_params &p, int32_t piece, float w[8])
{
    const int32_t c = piece * TPW_TREE_PIECE + (int32_t)(threadIdx.x % TPW_WARP) * TPW_TREE_RUN;
    tpw_row_load8(p.weight, false, c, p.cols - c, p.weight_wide, w);
}

// `ctas` CTAs a row, neighbours in x. A warp keeps its first piece in registers and reads further ones again from h.
template <int PARTS, bool CLUSTER> __global__ void __launch_bounds__(THREADS_MAX) add_norm(norm_params p, unsigned ctas)
{
    extern __shared__ float sums[];
    const int64_t m = blockIdx.x / ctas;
    const int32_t warps = (int32_t)(blockDim.x / TPW_WARP), all = warps * (int32_t)ctas;
    const int32_t mine = (int32_t)(blockIdx.x % ctas) * warps + (int32_t)(threadIdx.x / TPW_WARP);
    float x[8], weight[8], sum = 0.0f;

    tpw_pdl_trigger();
    tpw_pdl_wait();
    if (CLUSTER)
        cluster_arrive();
    if (mine < p.pieces) {
        if (p.y != NULL)
            load_weight(p, mine, weight);
        sum = take_piece<PARTS>(p, m, mine, x);
    }
    if (CLUSTER)
        cluster_wait(); // the others run: their shared memory may be written
    if (mine < p.pieces)
        publish<CLUSTER>(sums, mine, sum, ctas);
    for (int32_t piece = mine + all; piece < p.pieces; piece += all) {
        float more[8];
        sum = take_piece<PARTS>(p, m, piece, more);
        publish<CLUSTER>(sums, piece, sum, ctas);
    }
    if (CLUSTER) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    if (p.y == NULL)
        return;
    float total = 0.0f;
    for (int32_t piece = 0; piece < p.pieces; piece++)
        total += sums[piece];
    const float inverse = tpw_rsqrt(total / (float)p.cols + p.eps);
    if (mine < p.pieces)
        norm_piece(p, m, mine, inverse, x, weight);
    for (int32_t piece = mine + all; piece < p.pieces; piece += all) {
        const int32_t c = piece * TPW_TREE_PIECE + (int32_t)(threadIdx.x % TPW_WARP) * TPW_TREE_RUN;
        tpw_row_load8(p.h, p.h_bf16, m * p.h_stride + c, p.cols - c, p.h_wide, x);
        load_weight(p, piece, weight);
        norm_piece(p, m, piece, inverse, x, weight);
    }
}

typedef void (*norm_kernel)(norm_params, unsigned);

template <bool CLUSTER> norm_kernel kernel_of(int32_t parts)
{
    switch (parts) {
    case 0:
        return add_norm<0, CLUSTER>;
    case 1:
        return add_norm<1, CLUSTER>;
    case 2:
        return add_norm<2, CLUSTER>;
    case 4:
        return add_norm<4, CLUSTER>;
    default:
        return add_norm<8, CLUSTER>;
    }
}

tpw_status check(const tpw_add_norm_args *a, tpw_error *err)
{
    const tpw_mat *h = &a->h, *y = &a->y;
    if (!tpw_is_act(h->dtype) || (y->data != NULL && !tpw_is_act(y->dtype)))
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda add_norm: h of type %s, y of type %s", tpw_dtype_name(h->dtype),
                        tpw_dtype_name(y->dtype));
    TPW_TRY(tpw_mat_check("cuda add_norm", "h", h, err));
    if (y->data != NULL) {
        TPW_TRY(tpw_mat_check("cuda add_norm", "y", y, err));
        if (y->rows != h->rows || y->cols != h->cols || a->weight == NULL)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda add_norm: h [%d, %d] into y [%d, %d]%s", (int)h->rows,
                            (int)h->cols, (int)y->rows, (int)y->cols, a->weight == NULL ? " without weights" : "");
    }
    if (a->parts != 0 && !tpw_parts_good(a->parts))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cuda add_norm: a sum in %d parts; 1, 2, 4 or 8 make a tree",
                        (int)a->parts);
    if (h->cols > PIECES_MAX * TPW_TREE_PIECE)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda add_norm: rows of %d; at most %d are supported", (int)h->cols,
                        PIECES_MAX * TPW_TREE_PIECE);
    return TPW_OK;
}

// CTAs a row: as many as help and the GPU holds at once. Only the speed depends on it.
unsigned ctas_of(const tpw_exec *exec, int32_t rows, int32_t pieces)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    for (int32_t ctas = CLUSTER_MAX; ctas > 1 && !cuda->portable; ctas /= 2)
        if ((int64_t)ctas * rows <= cuda->gpu.processors && pieces >= 2 * ctas)
            return (unsigned)ctas;
    return 1;
}

} // namespace

extern "C" tpw_status tpw_cuda_add_norm(const tpw_exec *exec, const tpw_add_norm_args *args, tpw_error *err)
{
    const tpw_mat *h = &args->h, *y = &args->y;
    TPW_TRY(check(args, err));
    const int32_t parts = args->sum == NULL ? 0 : args->parts > 0 ? args->parts : 1;
    if (h->rows == 0 || h->cols == 0 || (parts == 0 && y->data == NULL))
        return TPW_OK;
    norm_params p = {};
    p.h = h->data, p.h_stride = h->stride, p.h_bf16 = h->dtype == TPW_BF16, p.h_wide = tpw_mat_wide(h);
    p.sum = args->sum, p.part_step = (int64_t)h->rows * h->cols;
    p.sum_wide = (uintptr_t)args->sum % 16 == 0 && h->cols % 4 == 0;
    p.weight = args->weight, p.weight_wide = (uintptr_t)args->weight % 16 == 0, p.eps = args->eps;
    p.y = y->data, p.y_stride = y->stride, p.y_bf16 = y->dtype == TPW_BF16, p.y_wide = tpw_mat_wide(y);
    p.cols = h->cols;
    p.pieces = (h->cols + TPW_TREE_PIECE - 1) / TPW_TREE_PIECE;
    const unsigned ctas = ctas_of(exec, h->rows, p.pieces);
    const int32_t each = (p.pieces + (int32_t)ctas - 1) / (int32_t)ctas, rounds = (each + WARPS_MAX - 1) / WARPS_MAX;
    const int32_t warps = (each + rounds - 1) / rounds;
    return tpw_cuda_launch(exec, "add_norm", err, ctas > 1 ? kernel_of<true>(parts) : kernel_of<false>(parts),
                           dim3((unsigned)h->rows * ctas), dim3((unsigned)warps * TPW_WARP),
                           (size_t)p.pieces * sizeof(float), ctas, p, ctas);
}
