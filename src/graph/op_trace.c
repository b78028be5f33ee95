/* An exec that notes a digest of every output row of another one. SPDX-License-Identifier: Apache-2.0 */
#include "graph/op_trace.h"

#include <stdlib.h>

/* Digest of one row of an output, added to *sum. */
static tpw_status add_row(const tpw_exec *inner, tpw_mat out, int32_t row, uint64_t key, uint64_t *sum, tpw_error *err)
{
    tpw_digest_args args = {.x = out, .key = key, .sum = sum};

    args.x.rows = 1;
    args.x.data = (char *)out.data + (size_t)((int64_t)row * out.stride) * tpw_dtype_size(out.dtype);
    return inner->ops->digest(inner, &args, err);
}

static bool grow(void **array, size_t *max, size_t need, size_t size)
{
    size_t wanted = *max == 0 ? 1024 : *max;
    void *grown;

    if (need <= *max)
        return true;
    while (wanted < need)
        wanted *= 2;
    grown = realloc(*array, wanted * size);
    if (grown == NULL)
        return false;
    *array = grown;
    *max = wanted;
    return true;
}

#define KEY_FIRST  1
#define KEY_SECOND 2
#define KEY_PARTS  16 /* + s: slices s >= 1 of an output in parts */

/* Makes room for one more call of `rows` rows and enters it. */
static tpw_status note_call(tpw_op_trace *t, const char *op, int32_t rows, tpw_error *err)
{
    if (!grow((void **)&t->call, &t->calls_max, t->calls + 1, sizeof *t->call) ||
        !grow((void **)&t->row, &t->rows_max, t->rows + (size_t)rows, sizeof *t->row))
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory to trace operations");
    t->call[t->calls++] = (tpw_op_call){.op = op, .layer = t->layer, .rows = rows, .first = t->rows};
    return TPW_OK;
}

/* Notes one call with up to two outputs of the same rows (b.data == NULL: one). */
static tpw_status note(const tpw_exec *exec, const char *op, tpw_mat a, tpw_mat b, tpw_error *err)
{
    tpw_op_trace *t = exec->impl;

    TPW_TRY(note_call(t, op, a.rows, err));
    for (int32_t r = 0; r < a.rows; r++) {
        uint64_t sum = 0;

        TPW_TRY(add_row(t->inner, a, r, KEY_FIRST, &sum, err));
        if (b.data != NULL)
            TPW_TRY(add_row(t->inner, b, r, KEY_SECOND, &sum, err));
        t->row[t->rows++] = sum;
    }
    return TPW_OK;
}

/* A GEMM whose slices are not joined: row m is made of row m of every slice, so that it can be compared with the same row
 * of a call with another row count. */
static tpw_status note_parts(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err)
{
    tpw_op_trace *t = exec->impl;
    const int32_t rows = args->x.rows;

    TPW_TRY(note_call(t, "gemm", rows, err));
    for (int32_t r = 0; r < rows; r++) {
        uint64_t sum = 0;

        for (int32_t s = 0; s < args->parts; s++)
            TPW_TRY(
                add_row(t->inner, args->y, s * rows + r, s == 0 ? KEY_FIRST : (uint64_t)(KEY_PARTS + s), &sum, err));
        t->row[t->rows++] = sum;
    }
    return TPW_OK;
}

static const tpw_exec *inner_of(const tpw_exec *exec)
{
    return ((const tpw_op_trace *)exec->impl)->inner;
}

static const tpw_mat NONE;

/* Ops whose output rows are noted. */
static tpw_status traced_embed(const tpw_exec *exec, const tpw_embed_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->embed(inner_of(exec), args, err));
    return note(exec, "embed", args->out, NONE, err);
}

static tpw_status traced_add_norm(const tpw_exec *exec, const tpw_add_norm_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->add_norm(inner_of(exec), args, err));
    return note(exec, "add_norm", args->h, args->y, err);
}

static tpw_status traced_gemm(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->gemm(inner_of(exec), args, err));
    return args->parts > 1 ? note_parts(exec, args, err) : note(exec, "gemm", args->y, NONE, err);
}

static tpw_status traced_conv(const tpw_exec *exec, const tpw_conv_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->conv(inner_of(exec), args, err));
    return note(exec, "conv", args->y, NONE, err);
}

static tpw_status traced_gates(const tpw_exec *exec, const tpw_gates_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->gates(inner_of(exec), args, err));
    return note(exec, "gates", args->decay, args->beta, err);
}

static tpw_status traced_l2norm(const tpw_exec *exec, const tpw_l2norm_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->l2norm(inner_of(exec), args, err));
    return note(exec, "l2norm", args->y, NONE, err);
}

static tpw_status traced_delta(const tpw_exec *exec, const tpw_delta_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->delta(inner_of(exec), args, err));
    return note(exec, "delta", args->o, NONE, err);
}

static tpw_status traced_gated_norm(const tpw_exec *exec, const tpw_gated_norm_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->gated_norm(inner_of(exec), args, err));
    return note(exec, "gated_norm", args->y, NONE, err);
}

static tpw_status traced_attn_prepare(const tpw_exec *exec, const tpw_attn_prepare_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->attn_prepare(inner_of(exec), args, err));
    return note(exec, "attn_prepare", args->q, NONE, err);
}

static tpw_status traced_attention(const tpw_exec *exec, const tpw_attention_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->attention(inner_of(exec), args, err));
    return note(exec, "attention", args->out, NONE, err);
}

static tpw_status traced_swiglu(const tpw_exec *exec, const tpw_swiglu_args *args, tpw_error *err)
{
    TPW_TRY(inner_of(exec)->ops->swiglu(inner_of(exec), args, err));
    return note(exec, "swiglu", args->y, NONE, err);
}

/* Ops that only pass through: they move rows or state, decide, or work on arrays that have no rows of a step. */
static tpw_status traced_delta_commit(const tpw_exec *exec, const tpw_delta_commit_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->delta_commit(inner_of(exec), args, err);
}

static tpw_status traced_gather(const tpw_exec *exec, const tpw_gather_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->gather(inner_of(exec), args, err);
}

static tpw_status traced_argmax(const tpw_exec *exec, const tpw_argmax_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->argmax(inner_of(exec), args, err);
}

static tpw_status traced_digest(const tpw_exec *exec, const tpw_digest_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->digest(inner_of(exec), args, err);
}

static tpw_status traced_digest_list(const tpw_exec *exec, const tpw_digest_list_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->digest_list(inner_of(exec), args, err);
}

static tpw_status traced_digest_rows(const tpw_exec *exec, const tpw_digest_rows_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->digest_rows(inner_of(exec), args, err);
}

static tpw_status traced_record(const tpw_exec *exec, const tpw_record_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->record(inner_of(exec), args, err);
}

static tpw_status traced_pick(const tpw_exec *exec, const tpw_pick_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->pick(inner_of(exec), args, err);
}

static tpw_status traced_accept(const tpw_exec *exec, const tpw_accept_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->accept(inner_of(exec), args, err);
}

static tpw_status traced_cast(const tpw_exec *exec, const tpw_cast_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->cast(inner_of(exec), args, err);
}

static tpw_status traced_sum(const tpw_exec *exec, const tpw_sum_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->sum(inner_of(exec), args, err);
}

static tpw_status traced_power(const tpw_exec *exec, const tpw_power_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->power(inner_of(exec), args, err);
}

static tpw_status traced_concat(const tpw_exec *exec, const tpw_concat_args *args, tpw_error *err)
{
    return inner_of(exec)->ops->concat(inner_of(exec), args, err);
}

static const tpw_ops traced_ops = {.name = "traced",
#define SLOT(op) .op = traced_##op,
                                   TPW_OP_MAP(SLOT)
#undef SLOT
};

static tpw_status traced_alloc(const tpw_exec *exec, size_t bytes, void **out, tpw_error *err)
{
    return inner_of(exec)->device->alloc(inner_of(exec), bytes, out, err);
}

static void traced_free(const tpw_exec *exec, void *data)
{
    inner_of(exec)->device->free(inner_of(exec), data);
}

static tpw_status traced_upload(const tpw_exec *exec, void *to, const void *from_host, size_t bytes, tpw_error *err)
{
    return inner_of(exec)->device->upload(inner_of(exec), to, from_host, bytes, err);
}

static tpw_status traced_download(const tpw_exec *exec, void *to_host, const void *from, size_t bytes, tpw_error *err)
{
    return inner_of(exec)->device->download(inner_of(exec), to_host, from, bytes, err);
}

static tpw_status traced_fill(const tpw_exec *exec, void *to, int byte, size_t bytes, tpw_error *err)
{
    return inner_of(exec)->device->fill(inner_of(exec), to, byte, bytes, err);
}

static tpw_status traced_send(const tpw_exec *exec, void *to, const void *from_host, size_t bytes, tpw_error *err)
{
    return inner_of(exec)->device->send(inner_of(exec), to, from_host, bytes, err);
}

static tpw_status traced_fetch(const tpw_exec *exec, void *to_host, const void *from, size_t bytes,
                               const tpw_watch *watch, tpw_error *err)
{
    return inner_of(exec)->device->fetch(inner_of(exec), to_host, from, bytes, watch, err);
}

static size_t traced_now(const tpw_exec *exec)
{
    return inner_of(exec)->device->bytes_now(inner_of(exec));
}

static size_t traced_peak(const tpw_exec *exec)
{
    return inner_of(exec)->device->bytes_peak(inner_of(exec));
}

static tpw_status traced_stage(const tpw_exec *exec, const tpw_batch *batch, int32_t page_size, tpw_error *err)
{
    return inner_of(exec)->device->stage(inner_of(exec), batch, page_size, err);
}

static tpw_status traced_reserve(const tpw_exec *exec, int32_t batches, int32_t rows, int32_t segments, int64_t pages,
                                 size_t bytes, tpw_error *err)
{
    return inner_of(exec)->device->stage_reserve(inner_of(exec), batches, rows, segments, pages, bytes, err);
}

static tpw_status traced_pack(const tpw_exec *exec, const tpw_weight *w, tpw_gemm_kind kind, void *to, tpw_error *err)
{
    return inner_of(exec)->device->pack(inner_of(exec), w, kind, to, err);
}

static const tpw_device traced_device = {
    .name = "traced",
    .alloc = traced_alloc,
    .free = traced_free,
    .upload = traced_upload,
    .download = traced_download,
    .fill = traced_fill,
    .send = traced_send,
    .fetch = traced_fetch,
    .bytes_now = traced_now,
    .bytes_peak = traced_peak,
};

void tpw_op_trace_init(tpw_op_trace *out, const tpw_exec *inner)
{
    *out = (tpw_op_trace){.inner = inner};
    out->device = traced_device;
    /* the inner one's own function, which asks for no exec; NULL stays NULL */
    out->device.stage = inner->device->stage != NULL ? traced_stage : NULL;
    out->device.stage_reserve = inner->device->stage_reserve != NULL ? traced_reserve : NULL;
    out->device.packed_bytes = inner->device->packed_bytes;
    out->device.pack = inner->device->pack != NULL ? traced_pack : NULL;
    out->exec = (tpw_exec){.ops = &traced_ops, .device = &out->device, .impl = out};
}

void tpw_op_trace_fini(tpw_op_trace *trace)
{
    free(trace->call);
    free(trace->row);
    *trace = (tpw_op_trace){0};
}

void tpw_op_trace_clear(tpw_op_trace *trace)
{
    trace->calls = 0;
    trace->rows = 0;
    trace->layer = 0;
}
