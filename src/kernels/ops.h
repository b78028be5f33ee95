/* The table of operations that a backend fills, and the arguments of each. Kernels know neither ranks nor models.
 *
 * Shapes: M rows of the step, H hidden, C conv channels, K reduction axis, N outputs, hk/hv linear key/value heads,
 * dk/dv their sizes, hq/hkv attention heads, D head size. All head and channel counts are those of this rank.
 * `act` is the activation type of the worker: F32 or BF16 (--compute). Rounding points are in docs/numerics.md.
 *
 * Every op is local, enqueues on exec's stream (the host backend computes before it returns), allocates nothing, and
 * gives the bits of a row independently of all other rows and of the row count. Arguments are checked by the caller; a
 * backend returns ERR_UNSUPPORTED by name for a dtype or size that it does not have, and ERR_DEVICE for device faults.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_OPS_H
#define TPW_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "kernels/dummy_recipe.h"
#include "kernels/slices.h"

#define TPW_GRID          16 /* the recurrence's state S stands at absolute multiples of this position */
#define TPW_GDN_RING      32 /* recurrence rows kept per slot, by position mod 32: 16 + 9 verified rows fit */
#define TPW_CONV_RING     16 /* conv inputs kept per slot, by position mod 16: 3 taps back + 9 verified rows fit */
#define TPW_DRAFT_MAX     8  /* largest K */
#define TPW_SPLIT_KEYS    256
#define TPW_SUBSPLIT_KEYS 64

/* A 2-D view. Element (r, c) is at data + (r * stride + c) * size. */
typedef struct tpw_mat {
    void *data;
    tpw_dtype dtype;
    int32_t rows;
    int32_t cols;
    int64_t stride; /* elements from one row to the next */
} tpw_mat;

/* A weight matrix [rows, cols] of this rank (outputs by inputs), contiguous rows.
 * E4M3 weights carry block scales (F32, multiply): the scale of local element (r, c) is
 * scale[scale_row[r] * scale_cols + (col0 + c) / 128 - col0 / 128]. Others have scale = NULL. */
typedef struct tpw_weight {
    const void *data;
    tpw_dtype dtype; /* E4M3, BF16 or F32 */
    int32_t rows;
    int32_t cols;
    int32_t col0;        /* global column of local column 0 */
    int32_t cols_global; /* K of the whole weight */
    const float *scale;
    const int32_t *scale_row; /* [rows] */
    int32_t scale_cols;
    const void
        *packed; /* data in the layout of tpw_device.pack, or NULL; which of the two gemm reads is its own affair */
} tpw_weight;

/* Consecutive rows of one sequence in a step. */
typedef struct tpw_segment {
    int32_t row0; /* first row in the step */
    int32_t rows; /* >= 1 */
    int32_t
        rows_certain; /* leading rows that are committed whatever is accepted later: all of a prompt chunk, 1 of a verify */
    int32_t slot;     /* state slot, >= 1 */
    int64_t pos;      /* absolute position of the first row = the committed mark before this step */
    const int32_t *pages;      /* KV page ids by position / page_size; covers pos + rows */
    const int64_t *pages_wide; /* the same in 64 bits, for engines whose tables are: read where pages is NULL */
} tpw_segment;

/* Page `i` of the table, whichever of the two there is. Host memory. */
static inline int64_t tpw_segment_page(const tpw_segment *s, int64_t i)
{
    return s->pages != NULL ? s->pages[i] : s->pages_wide[i];
}

typedef struct tpw_batch {
    int32_t rows; /* M */
    int32_t segment_count;
    const tpw_segment *segments; /* ordered by row0, covering rows 0..M-1 exactly once */
} tpw_batch;

/* Paged K/V of one layer. Element (page, kv head, position in page, d) at
 * ((page * heads + head) * page_size + offset) * head_dim + d. Page 0 is never written. */
typedef struct tpw_kv {
    void *k;
    void *v;
    tpw_dtype dtype; /* act */
    int32_t heads;   /* hkv of this rank */
    int32_t head_dim;
    int32_t page_size; /* positions a page */
    int32_t pages;
} tpw_kv;

/* Recurrent state of one layer, all F32, for `slots` slots (slot 0 is never written).
 * S[slot][hv][dk][dv] at the last committed multiple of TPW_GRID; for rows since, at ring index position mod TPW_GDN_RING:
 * k[slot][ring][hk][dk] normed keys, u[slot][ring][hv][dv], decay[slot][ring][hv] = e^g. */
typedef struct tpw_gdn_state {
    float *S;
    float *k;
    float *u;
    float *decay;
    int32_t slots;
    int32_t k_heads;
    int32_t v_heads;
    int32_t k_dim;
    int32_t v_dim;
} tpw_gdn_state;

/* Pre-conv inputs of one layer: x[slot][TPW_CONV_RING][C], act, at ring index position mod TPW_CONV_RING. */
typedef struct tpw_conv_state {
    void *x;
    tpw_dtype dtype;
    int32_t slots;
    int32_t channels;
} tpw_conv_state;

/* out[m] = table[ids[m] - vocab0] for ids in [vocab0, vocab0 + table.rows); every other row becomes all-zero bits, so that
 * the owner's bits survive a bitwise OR over ranks. BF16 table into F32 out is exact; F32 table into BF16 out rounds once. */
typedef struct tpw_embed_args {
    const int32_t *ids; /* [M] */
    tpw_mat table;      /* [vocab_local, H] BF16 or F32 */
    int32_t vocab0;
    tpw_mat out; /* [M, H] act */
} tpw_embed_args;

/* If sum is given: h = act(f32(h) + sum), one rounding. Then, if y is given, y = act(x * (1/sqrt(mean(x^2) + eps)) * (1 + weight)) with x the
 * rounded h (`weight` holds the checkpoint's w; 1 + w is formed in FP32). Sum of squares by the vector's own tree:
 * pieces of 256, zero-padded; lane l of 32 sums elements 8l..8l+7 in order by fmaf from +0; xor butterfly 16, 8, 4, 2, 1;
 * pieces added in order. */
typedef struct tpw_add_norm_args {
    tpw_mat h;           /* [M, H] act, in and out */
    const float *sum;    /* [M, H] contiguous, or NULL */
    int32_t parts;       /* sum is [parts, M, H], folded by the binary tree of slices.h first; 0 counts as 1 */
    const float *weight; /* [H] */
    float eps;
    tpw_mat y; /* [M, H] act; data == NULL: none */
} tpw_add_norm_args;

/* y = x * w^T by the rule of slices.h. COLUMN: one slice. ROW: the tree over the slices that lie in this rank's columns
 * (a power of two of them), unrounded F32. */
typedef struct tpw_gemm_args {
    tpw_mat x; /* [M, K] act (cols = w.cols) */
    tpw_weight w;
    tpw_gemm_kind kind;
    tpw_mat y;     /* [M, N] act (rounded once) or F32 */
    int32_t parts; /* 0, or the number of this rank's slices: then y is [parts * M, N] F32 and gets slice s of row m,
                      not joined, at row s * M + m, for add_norm or an all-reduce to join */
} tpw_gemm_args;

/* y_c[n] = act(silu(sum_{i<W} w[c,i] * x_c[n - (W-1) + i])), taps in order i = 0..W-1 by fmaf from +0; x before position 0
 * is 0. Reads up to W-1 earlier inputs of the slot from the ring, then stores the last min(rows, TPW_CONV_RING) rows there. */
typedef struct tpw_conv_args {
    const tpw_batch *batch;
    tpw_mat x;           /* [M, C] act */
    const float *weight; /* [C, W] */
    int32_t width;       /* W, 2..8 */
    tpw_conv_state state;
    tpw_mat y; /* [M, C] act */
} tpw_conv_args;

/* decay = exp(-exp(A_log) * softplus(a + dt_bias)), beta = sigmoid(b), all F32. softplus(x) = x above 20. */
typedef struct tpw_gates_args {
    tpw_mat a;            /* [M, hv] F32 */
    tpw_mat b;            /* [M, hv] F32 */
    const float *a_log;   /* [hv] */
    const float *dt_bias; /* [hv] */
    tpw_mat decay;        /* [M, hv] F32 */
    tpw_mat beta;         /* [M, hv] F32 */
} tpw_gates_args;

/* Per head: y = x * (1/sqrt(sum(x^2) + 1e-6)) * scale; the sum by the tree of add_norm. */
typedef struct tpw_l2norm_args {
    tpw_mat x; /* [M, heads * dim] act */
    int32_t heads;
    float scale;
    tpw_mat y; /* [M, heads * dim] F32 */
} tpw_l2norm_args;

/* The gated delta rule on the absolute grid of 16 (value head j uses key head j div (hv/hk)). Row i of a chunk, with S at
 * the chunk's start, E_j and P the running decay products:
 *     E_j *= decay_i (j < i), E_i = 1, P = P * decay_i (decay_0 for i = 0)
 *     u_i = beta * (v_i - fma-sum in order j < i from P*(S^T k_i) of (E_j*(k_i.k_j)) * u_j)
 *     o_i = fma-sum in order j <= i from P*(S^T q_i) of (E_j*(q_i.k_j)) * u_j
 *     after row 15:  S = P*S + fma-sum in order j of (E_j*k_j) u_j^T
 * S^T x sums over dk in order by fmaf from +0. E_j*(k_i.k_j), P*(S^T x) and E_j*k_j are single products. k, u and decay of
 * each row are stored in the ring. At entry S stands at floor16(pos), where the last delta or delta_commit left it. Chunks
 * completed inside rows_certain advance S in place; later ones use a scratch copy, since those rows may be rejected.
 * pos == 0 starts from S = 0 whatever the slot held. On return S stands at floor16(pos + rows_certain): if more rows are
 * accepted, delta_commit moves it before the slot's next delta. At most TPW_GDN_RING - TPW_GRID rows may follow the
 * certain ones. */
typedef struct tpw_delta_args {
    const tpw_batch *batch;
    tpw_mat q;     /* [M, hk * dk] F32, normed and scaled */
    tpw_mat k;     /* [M, hk * dk] F32, normed */
    tpw_mat v;     /* [M, hv * dv] act */
    tpw_mat decay; /* [M, hv] F32 */
    tpw_mat beta;  /* [M, hv] F32 */
    tpw_gdn_state state;
    tpw_mat o; /* [M, hv * dv] act */
} tpw_delta_args;

/* Moves S of every segment's slot forward from floor16(pos + rows_certain), where delta left it, to floor16(pos + taken), the new
 * committed mark, with the arithmetic of delta and the rows of the ring. rows_certain <= taken <= rows: the host refuses others, a
 * device, which learns `taken` only while it runs, leaves S where it is. */
typedef struct tpw_delta_commit_args {
    const tpw_batch *batch;
    tpw_gdn_state state;
    const int32_t *taken; /* [segment_count] */
} tpw_delta_commit_args;

/* Per value head: y = act(x * (1/sqrt(mean(x^2) + eps)) * w * gate(z)), all F32, one rounding; gate = silu or sigmoid. */
typedef struct tpw_gated_norm_args {
    tpw_mat x;           /* [M, hv * dv] act */
    tpw_mat z;           /* [M, hv * dv] act */
    const float *weight; /* [dv] */
    int32_t heads;
    float eps;
    bool sigmoid_gate;
    tpw_mat y; /* [M, hv * dv] act */
} tpw_gated_norm_args;

/* Query and key norm (as add_norm, per head over D), rotary on the first rope_dim dims in half-split pairs, one rounding
 * to act; k and v are written to their pages. rope[pos][j] = (cos, sin), j < rope_dim/2, F32. In qg, head h owns columns
 * 2D*h..: first D query, then D gate. */
typedef struct tpw_attn_prepare_args {
    const tpw_batch *batch;
    tpw_mat qg; /* [M, hq * 2 * D] act */
    tpw_mat k;  /* [M, hkv * D] act */
    tpw_mat v;  /* [M, hkv * D] act */
    int32_t q_heads;
    const float *q_norm; /* [D] */
    const float *k_norm; /* [D] */
    float eps;
    const float *rope; /* [positions, rope_dim/2, 2] */
    int32_t rope_dim;
    tpw_kv kv;
    tpw_mat q; /* [M, hq * D] act, out */
} tpw_attn_prepare_args;

/* out = act(softmax(q k^T / sqrt(D)) v * sigmoid(gate)), causal; query head h uses kv head h div (hq/hkv). Splits of 256 keys
 * at absolute multiples; one maximum per split and row; p rounded to act for p*V, l from unrounded p; four 64-key sub-sums
 * (in key order) from +0 joined (0+1)+(2+3); splits folded left to right:
 *   M' = max(M, m); O = fma(O, exp(M-M'), o*exp(m-M')); L likewise.
 * Keys past a row's own position are skipped by select and their V is never read. Here act may be F16 too: the op serves
 * engines whose caches are; the layers of this worker do not use it. */
typedef struct tpw_attention_args {
    const tpw_batch *batch;
    tpw_mat q;  /* [M, hq * D] act */
    tpw_mat qg; /* [M, hq * 2 * D] act: the gate half */
    int32_t q_heads;
    tpw_kv kv;
    tpw_mat out; /* [M, hq * D] act */
} tpw_attention_args;

/* y = act(silu(gate) * up). */
typedef struct tpw_swiglu_args {
    tpw_mat gate; /* [M, I] F32 */
    tpw_mat up;   /* [M, I] F32 */
    tpw_mat y;    /* [M, I] act */
} tpw_swiglu_args;

/* y[to[i]] = x[rows[i]] for i < y.rows, raw copy; to == NULL: y[i]. */
typedef struct tpw_gather_args {
    tpw_mat x;
    const int32_t *rows; /* [y.rows] */
    tpw_mat y;
    const int32_t *to; /* [y.rows] or NULL; then y has to_rows rows */
    int32_t to_rows;
} tpw_gather_args;

/* Per row the largest logit and its global id (vocab0 + column); ties to the lowest id; NaN never wins; a row without any
 * number gives id -1 and value -infinity. -0 and +0 are equal. */
typedef struct tpw_argmax_args {
    tpw_mat logits; /* [R, vocab_local] F32 */
    int32_t vocab0;
    float *value; /* [R] */
    int32_t *id;  /* [R] */
} tpw_argmax_args;

/* *sum += digest of a block, as tpw_digest_block. `sum` is device memory, or host memory: then the call waits for the result. */
typedef struct tpw_digest_args {
    tpw_mat x;
    uint64_t key;
    uint64_t index0;
    uint64_t index_stride;
    uint64_t *sum;
} tpw_digest_args;

/* *jobs[i].sum += digest of jobs[i]; a device works on many at a time, and the call waits for the last. Jobs and sums are host memory; several jobs may share a sum. */
typedef struct tpw_digest_list_args {
    const tpw_digest_args *jobs;
    int32_t count;
} tpw_digest_list_args;

/* sums[m] = sum over columns of tpw_digest_term(key, position of row m * cols + column, bits): one digest a row of the batch. */
typedef struct tpw_digest_rows_args {
    const tpw_batch *batch;
    tpw_mat x; /* [M, cols] */
    uint64_t key;
    uint64_t *sums; /* [M] */
} tpw_digest_rows_args;

/* Records of an exchange of arg-max: by rank, [1 + rows] words: what ranks must agree on, then for each row the bits of the value
 * (low half) and the id (high half). Fills the own one and clears the others, so that a bitwise OR over ranks gathers them. */
typedef struct tpw_record_args {
    const uint64_t *agree;
    const float *value; /* [rows] */
    const int32_t *id;  /* [rows] */
    int32_t rows;
    int32_t rank;
    int32_t size;
    uint64_t *all; /* [size, 1 + rows] */
} tpw_record_args;

/* The choice among all ranks' records: the largest value wins, ties go to the lowest rank, whose ids are lower. best[i] = -1 when no
 * rank had a number for row i. tokens[to[i]] is the same with 0 for -1, so that it can be embedded. */
typedef struct tpw_pick_args {
    const uint64_t *all; /* [size, 1 + rows] */
    int32_t rows;
    int32_t size;
    int32_t *best;     /* [rows] */
    const int32_t *to; /* [rows] */
    int32_t *tokens;
} tpw_pick_args;

/* One entry of a step: a prompt chunk, or a certain token with its drafts. */
typedef struct tpw_accept_entry {
    int32_t row0;
    int32_t rows;   /* certain ones */
    int32_t drafts; /* rows behind them */
    int32_t draft0; /* where its drafts begin in tokens */
    int32_t best0;  /* where its rows begin in best; -1: no logits were asked for, the rows are committed */
    int32_t ignore_eos;
    int32_t emitted;
    int32_t max_tokens;
} tpw_accept_entry;

#define TPW_ENDS_MAX 16

/* By the rule of kernels/accept.h: taken[i] = rows that entry i commits, last[i] = the last of them in the step. */
typedef struct tpw_accept_args {
    const tpw_accept_entry *entries; /* [count] */
    int32_t count;
    const int32_t *tokens;
    const int32_t *best;
    int32_t end_ids[TPW_ENDS_MAX];
    int32_t end_count;
    int32_t *taken; /* [count] */
    int32_t *last;  /* [count] */
} tpw_accept_args;

#define TPW_DIMS_MAX   4
#define TPW_CONCAT_MAX 8

/* A strided array. Element (i0, i1, ..) is at data + (i0 * stride[0] + i1 * stride[1] + ..) * size; strides may be any. */
typedef struct tpw_array {
    void *data;
    tpw_dtype dtype;
    int32_t dims; /* 0..TPW_DIMS_MAX; 0: one element */
    int64_t extent[TPW_DIMS_MAX];
    int64_t stride[TPW_DIMS_MAX]; /* elements */
} tpw_array;

/* y = x in y's type, element by element, by the rules of tpw_convert (base/dtype.h): every pair of types. Shapes equal. */
typedef struct tpw_cast_args {
    tpw_array x;
    tpw_array y;
} tpw_cast_args;

/* y = act(sum of x over the axes whose bit is set in `axes`), F32, BF16 or F16 in and out, FP32 inside, one rounding. The
 * terms of an output are taken in row-major order of the summed axes and added by the tree of add_norm without the squares:
 * pieces of 256, lane l of 32 adds terms 8l..8l+7 in order from +0, butterfly 16, 8, 4, 2, 1, pieces in order. y has the
 * other axes in order, or, with keep, all axes with extent 1 for the summed ones. No axis set: y = act(+0 + x). */
typedef struct tpw_sum_args {
    tpw_array x;
    uint32_t axes;
    bool keep;
    tpw_array y;
} tpw_sum_args;

/* y = act(x ^ exponent), F32, BF16 or F16 in and out; formed in double, one rounding to F32 and, if narrower, one more.
 * Special values as C's pow. Shapes equal. */
typedef struct tpw_power_args {
    tpw_array x;
    float exponent;
    tpw_array y;
} tpw_power_args;

/* y = the inputs side by side on the last axis: raw bits, equal types, equal leading extents, any strides. */
typedef struct tpw_concat_args {
    int32_t count; /* 1..TPW_CONCAT_MAX */
    tpw_array x[TPW_CONCAT_MAX];
    tpw_array y;
} tpw_concat_args;

typedef struct tpw_exec tpw_exec;

/* One list makes the table, its completeness check and its tests. */
/* The formatter's output for this list is not stable. */
/* clang-format off */
#define TPW_OP_MAP(X)                                                                                  \
    X(embed) X(add_norm) X(gemm) X(conv) X(gates) X(l2norm) X(delta) X(delta_commit) X(gated_norm)     \
    X(attn_prepare) X(attention) X(swiglu) X(gather) X(argmax) X(digest) X(digest_rows) X(digest_list)  \
    X(record) X(pick) X(accept)                                                                        \
    X(cast) X(sum) X(power) X(concat)
/* clang-format on */

typedef struct tpw_ops {
    const char *name; /* "host" or "cuda" */
#define TPW_OP_SLOT(op) tpw_status (*op)(const tpw_exec *exec, const tpw_##op##_args *args, tpw_error *err);
    TPW_OP_MAP(TPW_OP_SLOT)
#undef TPW_OP_SLOT
} tpw_ops;

/* How long the wait of a fetch may be, and what may end it before. */
typedef struct tpw_watch {
    int64_t timeout_ms;
    tpw_status (*look)(void *data,
                       tpw_error *err); /* asked now and then; an error ends the wait with it. NULL: nothing */
    void *data;
} tpw_watch;

/* Memory of a place. alloc gives zeroed, 256-byte aligned memory; upload, download and fill are complete on return (control plane
 * only). send and fetch are a step's: what ops read goes in before the first of them, what they gave comes out behind the last. */
typedef struct tpw_device {
    const char *name;
    tpw_status (*alloc)(const tpw_exec *exec, size_t bytes, void **out, tpw_error *err);
    void (*free)(const tpw_exec *exec, void *data);
    tpw_status (*upload)(const tpw_exec *exec, void *to, const void *from_host, size_t bytes, tpw_error *err);
    tpw_status (*download)(const tpw_exec *exec, void *to_host, const void *from, size_t bytes, tpw_error *err);
    tpw_status (*fill)(const tpw_exec *exec, void *to, int byte, size_t bytes, tpw_error *err);
    /* Copies in the order of ops, without waiting for any; `from_host` may change on return. */
    tpw_status (*send)(const tpw_exec *exec, void *to, const void *from_host, size_t bytes, tpw_error *err);
    /* Copies what the ops before have left, and waits for that. `to_host` is of alloc_host where there is one. ERR_PEER past the
     * time limit. */
    tpw_status (*fetch)(const tpw_exec *exec, void *to_host, const void *from, size_t bytes, const tpw_watch *watch,
                        tpw_error *err);
    size_t (*bytes_now)(const tpw_exec *exec); /* allocated through this table */
    size_t (*bytes_peak)(const tpw_exec *exec);
    /* Makes `batch` known to the device, before the first op that is given it; ops take what it held then. No wait. The last ones
     * staged stay known: as many as stage_reserve was told, at least one. NULL for a backend whose ops read a batch where it is. ERR_ARGUMENT
     * for a page that 32 bits do not hold. */
    tpw_status (*stage)(const tpw_exec *exec, const tpw_batch *batch, int32_t page_size, tpw_error *err);
    /* Sets room aside for the steps: so many batches of at most rows, segments and pages each, and `bytes` to send. At planning time. NULL
     * as above. */
    tpw_status (*stage_reserve)(const tpw_exec *exec, int32_t batches, int32_t rows, int32_t segments, int64_t pages,
                                size_t bytes, tpw_error *err);
    /* Host memory that the device reads and writes directly (pinned), zeroed; NULL for a backend to which all memory is host memory. */
    tpw_status (*alloc_host)(const tpw_exec *exec, size_t bytes, void **out, tpw_error *err);
    void (*free_host)(const tpw_exec *exec, void *data);
    /* The layout in which this backend's gemm reads a weight. packed_bytes: its size, 0 when that is the plain rows (then
     * pack is not called); both are NULL for a backend without one. pack fills `to` (device memory of that size) from
     * w->data; the caller then sets w->packed = to. */
    size_t (*packed_bytes)(const tpw_weight *w, tpw_gemm_kind kind);
    tpw_status (*pack)(const tpw_exec *exec, const tpw_weight *w, tpw_gemm_kind kind, void *to, tpw_error *err);
    /* Writes a block of a dummy tensor (dummy_recipe.h) where it is used, row r at out + r * out_stride elements; enqueued. NULL for a
     * backend to whose memory the host writes as fast. */
    tpw_status (*make_dummy)(const tpw_exec *exec, const tpw_dummy_recipe *recipe, int64_t row0, int64_t rows,
                             int64_t col0, int64_t cols, void *out, int64_t out_stride, tpw_error *err);
} tpw_device;

/* Where ops run. Created by a backend, used by everyone above. */
struct tpw_exec {
    const tpw_ops *ops;
    const tpw_device *device;
    void *impl;
};

#endif
