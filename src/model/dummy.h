/* Tensors of a dummy checkpoint: their names and shapes, and the integer recipe that gives any element by itself.
 *
 * The bytes of element (row, col) of a tensor [rows, cols] (cols = product of all sides but the first) depend on its
 * name, its global index i = row * cols + col, and a few integers of its recipe. Nothing rounds but the last step,
 * which is integer too, so any device can make the same bytes. Arithmetic on h is unsigned, 64 bits, modulo 2^64:
 *
 *   h = tpw_digest_term(tpw_digest_key(name), i, 0)
 *   E4M3:       byte = ((h >> 63) << 7) | (((h & 63) != 0 ? 32 : 0) + ((h >> 8) & 31))
 *               63 of 64 codes have one of the exponents 4..7 (0.125 <= |x| <= 1.875), the rest 0..3, so that
 *               subnormals and both zeros occur; never a NaN. Mean square 0.7022.
 *   F32, BF16:  n = low + (int)(((h >> 32) * span) >> 32), x = n * 2^exponent (|n| < 2^24: exact in F32),
 *               stored as its F32 bits, or those rounded to BF16 to nearest even (tpw_bf16_from_f32).
 *
 *   tensor                          low    span     exponent     values
 *   weight_scale_inv, BF16           N      N         -m         [N, 2N) 2^-m, N = floor(sqrt(3 * 4^m / (5 K)))
 *   other projections, BF16         -N    2N + 1      -m         N = floor(sqrt(3 * 4^m / K))
 *   embed_tokens, lm_head          -128    257        -11        +-1/16
 *   RMSNorm weights (zero-centred)  -64    129         -8        +-1/4
 *   linear_attn.norm            786432  524288        -20        0.75..1.25
 *   conv1d                         -128    257         -8        +-1/2
 *   A_log                             0  2883584      -20        0..2.75
 *   dt_bias                        -128    161         -5        -4..1
 *
 * with m the smallest that gives N >= 128, and K the columns of the weight (for a scale: 128 times its own columns). So
 * a projection of a vector with mean square 1 has mean square about 1: through any number of layers the residual stream
 * grows like the square root of their number. The embedding is small against what a layer adds, or else a tied head
 * would only give back the token that went in. One element is made in kernels/dummy_recipe.h, for every backend. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_DUMMY_H
#define TPW_MODEL_DUMMY_H

#include <stdint.h>

#include "base/error.h"
#include "kernels/dummy_recipe.h"
#include "model/config.h"
#include "model/safetensors.h"

/* All tensors of a checkpoint of `config` in no particular order: projections E4M3 with BF16 scales (plain BF16 when
 * config->quantized is false), `mtp.*` when config->mtp_layers is 1, lm_head unless tied. The caller frees both.
 * Local. */
tpw_status tpw_dummy_entries(const tpw_config *config, tpw_entry **entries, char **names, int32_t *count,
                             tpw_error *err) TPW_MUST_CHECK;

/* The recipe of one of those entries. Pure. */
tpw_dummy_recipe tpw_dummy_recipe_of(const tpw_entry *entry);

/* Writes a block; the arguments have been checked. Row r goes to out + r * out_stride elements. Pure. */
void tpw_dummy_fill(const tpw_dummy_recipe *recipe, int64_t row0, int64_t rows, int64_t col0, int64_t cols, void *out,
                    int64_t out_stride);

#endif
