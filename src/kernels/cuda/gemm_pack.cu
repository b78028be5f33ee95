// Lays a weight out as the matrix instruction wants it: one 16-byte word a lane and chunk.
//
// Packed: [strip of 16 rows][chunk][words][32 lanes][16 bytes], words = 1 for E4M3, 2 for BF16. Lane (g = lane / 4,
// t = lane % 4) owns rows g and g + 8 and columns 8t..8t+7 of the chunk. In the first k16 step it gives columns 8t..8t+3, in
// the second 8t+4..8t+7; x is read in the same order, so every kernel sums the same columns in the same step.
// E4M3 bits are placed so that two and three integer operations make two pairs of BF16 that are 2^-120 too small; x carries
// 2^60 and the block scale another 2^60 (all exact). Code 0x7F and 0xFF (NaN) have no such form and are refused.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"

extern "C" {
#include "kernels/cuda/gemm.h"
}

namespace
{

struct pack_params {
    const void *w;
    void *to;
    unsigned *nans;
    int32_t rows;
    int32_t cols;
    tpw_gemm_cut cut;
};

// Where chunk `c` of the whole rank starts (local column) and how many of its 32 columns exist.
__device__ void chunk_place(const tpw_gemm_cut &cut, int32_t c, int32_t &col, int32_t &width)
{
    int32_t s = 0;
    while (c >= cut.chunk_begin[s + 1])
        s++;
    const int32_t first = tpw_cut_first(&cut, s), in = c - cut.chunk_begin[s], p = tpw_cut_piece_of(first, in);
    const int32_t begin = tpw_cut_piece_col(first, p), next = tpw_cut_piece_col(first, p + 1);
    const int32_t end = next < cut.slice_len ? next : cut.slice_len;
    const int32_t at = begin + (in - tpw_cut_piece_chunk(first, p)) * TPW_CHUNK;
    col = s * cut.slice_len + at;
    width = end - at < TPW_CHUNK ? end - at : TPW_CHUNK;
}

// Four codes to the word from which cvt4 of gemm_math.cuh makes (0, 1) and (2, 3).
__device__ uint32_t place4(const uint32_t code[4])
{
    uint32_t word = 0;
    for (int h = 0; h < 2; h++) {
        const uint32_t a = code[h], b = code[2 + h];
        word |= ((a & 0x80) << 8 | (a & 0x7F) << 4 | (b & 0x80) << 4 | (b & 0x70) << 8 | (b & 0x0F)) << (16 * h);
    }
    return word;
}

// One thread a (strip, chunk, lane).
__global__ void pack_e4m3(pack_params p)
{
    const int32_t chunks = p.cut.chunk_begin[p.cut.slices];
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    const int32_t lane = (int32_t)(i % 32), c = (int32_t)(i / 32 % chunks), strip = (int32_t)(i / 32 / chunks);
    tpw_pdl_wait();
    if ((int64_t)strip * TPW_STRIP >= p.rows)
        return;
    int32_t col, width;
    chunk_place(p.cut, c, col, width);
    uint32_t word[4];
    bool nan = false;
    for (int q = 0; q < 4; q++) { // rows g, g + 8 of columns 8t.., then of 8t + 4..
        const int32_t row = strip * TPW_STRIP + lane / 4 + 8 * (q & 1), k = lane % 4 * 8 + 4 * (q >> 1);
        uint32_t code[4];
        for (int j = 0; j < 4; j++) {
            code[j] = row < p.rows && k + j < width ? ((const uint8_t *)p.w)[(int64_t)row * p.cols + col + k + j] : 0;
            nan |= (code[j] & 0x7F) == 0x7F;
        }
        word[q] = place4(code);
    }
    ((uint4 *)p.to)[i] = make_uint4(word[0], word[1], word[2], word[3]);
    if (nan)
        atomicAdd(p.nans, 1u);
}

__global__ void pack_bf16(pack_params p)
{
    const int32_t chunks = p.cut.chunk_begin[p.cut.slices];
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; // [strip][chunk][half][lane]
    const int32_t lane = (int32_t)(i % 32), half = (int32_t)(i / 32 % 2), c = (int32_t)(i / 64 % chunks),
                  strip = (int32_t)(i / 64 / chunks);
    tpw_pdl_wait();
    if ((int64_t)strip * TPW_STRIP >= p.rows)
        return;
    int32_t col, width;
    chunk_place(p.cut, c, col, width);
    uint32_t word[4];
    for (int q = 0; q < 4; q++) { // a0: row g, a1: row g + 8, a2 and a3: the next two columns
        const int32_t row = strip * TPW_STRIP + lane / 4 + 8 * (q & 1), k = lane % 4 * 8 + 4 * half + 2 * (q >> 1);
        uint32_t pair[2];
        for (int j = 0; j < 2; j++)
            pair[j] = row < p.rows && k + j < width ? ((const uint16_t *)p.w)[(int64_t)row * p.cols + col + k + j] : 0;
        word[q] = pair[0] | pair[1] << 16;
    }
    ((uint4 *)p.to)[i] = make_uint4(word[0], word[1], word[2], word[3]);
}

} // namespace

extern "C" size_t tpw_cuda_packed_bytes(const tpw_weight *w, tpw_gemm_kind kind)
{
    tpw_gemm_cut cut;
    if ((w->dtype != TPW_E4M3 && w->dtype != TPW_BF16) || w->rows < 1 || tpw_gemm_cut_of(w, kind, &cut, NULL) != TPW_OK)
        return 0;
    const size_t strips = ((size_t)w->rows + TPW_STRIP - 1) / TPW_STRIP;
    return strips * (size_t)cut.chunk_begin[cut.slices] * (size_t)tpw_chunk_bytes(w->dtype);
}

extern "C" tpw_status tpw_cuda_pack(const tpw_exec *exec, const tpw_weight *w, tpw_gemm_kind kind, void *to,
                                    tpw_error *err)
{
    pack_params p = {};
    const size_t bytes = tpw_cuda_packed_bytes(w, kind);
    unsigned nans = 0;

    if (w->dtype != TPW_E4M3 && w->dtype != TPW_BF16)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "cuda gemm: weights of type %s; E4M3 and BF16 are there",
                        tpw_dtype_name(w->dtype));
    TPW_TRY(tpw_gemm_cut_of(w, kind, &p.cut, err));
    const size_t blocks = (bytes / 16 + 255) / 256;
    if (blocks == 0 || blocks > 0x7FFFFFFF)
        return tpw_fail(err, TPW_ERR_LIMIT, "cuda gemm: a weight of [%d, %d] cannot be packed", (int)w->rows,
                        (int)w->cols);
    p.w = w->data;
    p.to = to;
    p.nans = (unsigned *)tpw_cuda_of(exec)->scratch;
    p.rows = w->rows;
    p.cols = w->cols;
    TPW_TRY(exec->device->fill(exec, p.nans, 0, sizeof nans, err));
    TPW_TRY(tpw_cuda_launch(exec, "packing a weight", err, w->dtype == TPW_E4M3 ? pack_e4m3 : pack_bf16,
                            dim3((unsigned)blocks), dim3(256), 0, 1, p));
    TPW_TRY(exec->device->download(exec, &nans, p.nans, sizeof nans, err));
    if (nans > 0)
        return tpw_fail(err, TPW_ERR_CHECKPOINT, "cuda gemm: an E4M3 weight of [%d, %d] holds NaN (in %u words)",
                        (int)w->rows, (int)w->cols, nans);
    return TPW_OK;
}
