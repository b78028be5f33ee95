/* The ops of the host backend, one per entry of TPW_OP_MAP; their contracts stand beside the args in ops.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_HOST_HOST_OPS_H
#define TPW_KERNELS_HOST_HOST_OPS_H

#include "kernels/ops.h"

tpw_status tpw_host_embed(const tpw_exec *exec, const tpw_embed_args *args, tpw_error *err);
tpw_status tpw_host_add_norm(const tpw_exec *exec, const tpw_add_norm_args *args, tpw_error *err);
tpw_status tpw_host_gemm(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err);
tpw_status tpw_host_conv(const tpw_exec *exec, const tpw_conv_args *args, tpw_error *err);
tpw_status tpw_host_gates(const tpw_exec *exec, const tpw_gates_args *args, tpw_error *err);
tpw_status tpw_host_l2norm(const tpw_exec *exec, const tpw_l2norm_args *args, tpw_error *err);
tpw_status tpw_host_delta(const tpw_exec *exec, const tpw_delta_args *args, tpw_error *err);
tpw_status tpw_host_delta_commit(const tpw_exec *exec, const tpw_delta_commit_args *args, tpw_error *err);
tpw_status tpw_host_gated_norm(const tpw_exec *exec, const tpw_gated_norm_args *args, tpw_error *err);
tpw_status tpw_host_attn_prepare(const tpw_exec *exec, const tpw_attn_prepare_args *args, tpw_error *err);
tpw_status tpw_host_attention(const tpw_exec *exec, const tpw_attention_args *args, tpw_error *err);
tpw_status tpw_host_swiglu(const tpw_exec *exec, const tpw_swiglu_args *args, tpw_error *err);
tpw_status tpw_host_gather(const tpw_exec *exec, const tpw_gather_args *args, tpw_error *err);
tpw_status tpw_host_argmax(const tpw_exec *exec, const tpw_argmax_args *args, tpw_error *err);
tpw_status tpw_host_digest(const tpw_exec *exec, const tpw_digest_args *args, tpw_error *err);
tpw_status tpw_host_digest_list(const tpw_exec *exec, const tpw_digest_list_args *args, tpw_error *err);
tpw_status tpw_host_digest_rows(const tpw_exec *exec, const tpw_digest_rows_args *args, tpw_error *err);
tpw_status tpw_host_record(const tpw_exec *exec, const tpw_record_args *args, tpw_error *err);
tpw_status tpw_host_pick(const tpw_exec *exec, const tpw_pick_args *args, tpw_error *err);
tpw_status tpw_host_accept(const tpw_exec *exec, const tpw_accept_args *args, tpw_error *err);
tpw_status tpw_host_cast(const tpw_exec *exec, const tpw_cast_args *args, tpw_error *err);
tpw_status tpw_host_sum(const tpw_exec *exec, const tpw_sum_args *args, tpw_error *err);
tpw_status tpw_host_power(const tpw_exec *exec, const tpw_power_args *args, tpw_error *err);
tpw_status tpw_host_concat(const tpw_exec *exec, const tpw_concat_args *args, tpw_error *err);

#endif
