/* A backend without arithmetic. SPDX-License-Identifier: Apache-2.0 */
#include "fake_ops.h"

#include "base/error.h"
#include "kernels/host/host_ops.h"

#define NO_NUMBER_EVERY 211

/* Two elements of a row: the token and its position. NULL for a matrix that cannot hold them. */
static float *pair(const tpw_mat *m, int32_t row)
{
    return m->dtype == TPW_F32 && m->cols >= 2 ? (float *)m->data + (int64_t)row * m->stride : NULL;
}

static tpw_status no_pair(tpw_error *err, const char *op)
{
    return tpw_fail(err, TPW_ERR_UNSUPPORTED, "fake %s: rows of two F32 elements are needed", op);
}

int32_t fake_next(int32_t token, int64_t pos, int32_t vocab)
{
    uint64_t x =
        (uint64_t)token * 0x9E3779B97F4A7C15ull + (uint64_t)pos * 0xC2B2AE3D27D4EB4Full + 0x165667B19E3779F9ull;

    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 32;
    return x % NO_NUMBER_EVERY == 0 ? -1 : (int32_t)(x / NO_NUMBER_EVERY % (uint64_t)vocab);
}

static tpw_status fake_embed(const tpw_exec *exec, const tpw_embed_args *args, tpw_error *err)
{
    (void)exec;
    for (int32_t r = 0; r < args->out.rows; r++) {
        float *to = pair(&args->out, r);

        if (to == NULL)
            return no_pair(err, "embed");
        to[0] = (float)args->ids[r];
        to[1] = 0.0f;
    }
    return TPW_OK;
}

static tpw_status fake_add_norm(const tpw_exec *exec, const tpw_add_norm_args *args, tpw_error *err)
{
    (void)exec;
    for (int32_t r = 0; r < args->h.rows; r++) {
        float *h = pair(&args->h, r), *y = args->y.data != NULL ? pair(&args->y, r) : h;

        if (h == NULL || y == NULL)
            return no_pair(err, "add_norm");
        for (int i = 0; args->sum != NULL && i < 2; i++)
            h[i] += args->sum[(int64_t)r * args->h.cols + i];
        y[0] = h[0];
        y[1] = h[1];
    }
    return TPW_OK;
}

static tpw_status fake_gemm(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err)
{
    (void)exec;
    for (int32_t r = 0; r < args->x.rows; r++) {
        const float *x = pair(&args->x, r);
        float *y = pair(&args->y, r);

        if (x == NULL || y == NULL)
            return no_pair(err, "gemm");
        y[0] = x[0];
        y[1] = x[1];
    }
    return TPW_OK;
}

/* The position of every row, and whether the segments are what ops.h promises. */
static tpw_status fake_delta(const tpw_exec *exec, const tpw_delta_args *args, tpw_error *err)
{
    const tpw_batch *batch = args->batch;
    int32_t next = 0;

    (void)exec;
    for (int32_t s = 0; s < batch->segment_count; s++) {
        const tpw_segment *g = &batch->segments[s];

        if (g->row0 != next || g->rows < 1 || g->rows_certain < 1 || g->rows_certain > g->rows || g->slot < 1 ||
            g->slot >= args->state.slots || g->pos < 0)
            return tpw_fail(err, TPW_ERR_INTERNAL, "fake delta: segment %d of slot %d is malformed", s, g->slot);
        for (int32_t t = 0; t < s; t++)
            if (batch->segments[t].slot == g->slot)
                return tpw_fail(err, TPW_ERR_INTERNAL, "fake delta: slot %d runs twice in a step", g->slot);
        for (int32_t r = 0; r < g->rows; r++) {
            float *o = pair(&args->o, g->row0 + r);

            if (o == NULL)
                return no_pair(err, "delta");
            o[0] = 0.0f;
            o[1] = (float)(g->pos + r);
        }
        next += g->rows;
    }
    return next == batch->rows ? TPW_OK
                               : tpw_fail(err, TPW_ERR_INTERNAL, "fake delta: %d rows of %d", next, batch->rows);
}

static tpw_status fake_gated_norm(const tpw_exec *exec, const tpw_gated_norm_args *args, tpw_error *err)
{
    (void)exec;
    for (int32_t r = 0; r < args->x.rows; r++) {
        const float *x = pair(&args->x, r);
        float *y = pair(&args->y, r);

        if (x == NULL || y == NULL)
            return no_pair(err, "gated_norm");
        y[0] = x[0];
        y[1] = x[1];
    }
    return TPW_OK;
}

static tpw_status fake_swiglu(const tpw_exec *exec, const tpw_swiglu_args *args, tpw_error *err)
{
    (void)exec;
    for (int32_t r = 0; r < args->y.rows; r++) {
        float *y = pair(&args->y, r);

        if (y == NULL)
            return no_pair(err, "swiglu");
        y[0] = y[1] = 0.0f;
    }
    return TPW_OK;
}

static tpw_status fake_gather(const tpw_exec *exec, const tpw_gather_args *args, tpw_error *err)
{
    if (args->x.dtype == TPW_I32) /* token ids, which are what they are */
        return tpw_host_gather(exec, args, err);
    for (int32_t i = 0; i < args->y.rows; i++) {
        const float *x = args->rows[i] >= 0 ? pair(&args->x, args->rows[i]) : NULL;
        float *y = pair(&args->y, i);

        if (x == NULL || y == NULL)
            return no_pair(err, "gather");
        y[0] = x[0];
        y[1] = x[1];
    }
    return TPW_OK;
}

static tpw_status fake_argmax(const tpw_exec *exec, const tpw_argmax_args *args, tpw_error *err)
{
    (void)exec;
    for (int32_t r = 0; r < args->logits.rows; r++) {
        const float *x = pair(&args->logits, r);

        if (x == NULL)
            return no_pair(err, "argmax");
        args->id[r] = fake_next((int32_t)x[0], (int64_t)x[1], args->logits.cols);
        args->value[r] = (float)args->id[r];
    }
    return TPW_OK;
}

/* Ops that carry nothing. */
#define FAKE_NOTHING(op)                                                                           \
    static tpw_status fake_##op(const tpw_exec *exec, const tpw_##op##_args *args, tpw_error *err) \
    {                                                                                              \
        (void)exec;                                                                                \
        (void)args;                                                                                \
        (void)err;                                                                                 \
        return TPW_OK;                                                                             \
    }
FAKE_NOTHING(conv)
FAKE_NOTHING(gates)
FAKE_NOTHING(l2norm)
FAKE_NOTHING(delta_commit)
FAKE_NOTHING(attn_prepare)
FAKE_NOTHING(attention)
FAKE_NOTHING(digest)
FAKE_NOTHING(digest_rows)
FAKE_NOTHING(digest_list)
FAKE_NOTHING(cast)
FAKE_NOTHING(sum)
FAKE_NOTHING(power)
FAKE_NOTHING(concat)

/* Ops on tokens alone are the host's. */
#define fake_record tpw_host_record
#define fake_pick   tpw_host_pick
#define fake_accept tpw_host_accept

const tpw_ops *fake_ops(void)
{
    static const tpw_ops ops = {.name = "fake",
#define FAKE_SLOT(op) .op = fake_##op,
                                TPW_OP_MAP(FAKE_SLOT)
#undef FAKE_SLOT
    };

    return &ops;
}
