/* Plans the workspace of a pass, runs the trunk and the MTP module, sends and fetches what a step needs and gives. SPDX-License-Identifier: Apache-2.0 */
#include "model/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "model/layers.h"

/* Both mixers and the MLP start from the same mark: they are never alive together. */
static void carve_blocks(const tpw_config *c, const tpw_partition *p, const tpw_pass_limits *l, tpw_arena *arena,
                         tpw_workspace *ws)
{
    int32_t M = l->rows_max, C = tpw_conv_channels(c, p), Kd = tpw_key_width(c, p), Vd = tpw_value_width(c, p);
    int32_t hv = p->v_heads.count, D = c->head_dim, hq = p->heads.count, hkv = p->kv_heads.count;
    size_t mark = arena->used;

    ws->qkv = tpw_arena_mat(arena, l->act, M, C);
    ws->conv = tpw_arena_mat(arena, l->act, M, C);
    ws->z = tpw_arena_mat(arena, l->act, M, Vd);
    ws->a = tpw_arena_mat(arena, TPW_F32, M, hv);
    ws->b = tpw_arena_mat(arena, TPW_F32, M, hv);
    ws->decay = tpw_arena_mat(arena, TPW_F32, M, hv);
    ws->beta = tpw_arena_mat(arena, TPW_F32, M, hv);
    ws->q32 = tpw_arena_mat(arena, TPW_F32, M, Kd);
    ws->k32 = tpw_arena_mat(arena, TPW_F32, M, Kd);
    ws->o = tpw_arena_mat(arena, l->act, M, Vd);
    ws->gated = tpw_arena_mat(arena, l->act, M, Vd);
    arena->used = mark;
    ws->qg = tpw_arena_mat(arena, l->act, M, (int64_t)hq * 2 * D);
    ws->k = tpw_arena_mat(arena, l->act, M, (int64_t)hkv * D);
    ws->v = tpw_arena_mat(arena, l->act, M, (int64_t)hkv * D);
    ws->q = tpw_arena_mat(arena, l->act, M, (int64_t)hq * D);
    ws->attended = tpw_arena_mat(arena, l->act, M, (int64_t)hq * D);
    arena->used = mark;
    ws->gate = tpw_arena_mat(arena, TPW_F32, M, p->inter.count);
    ws->up = tpw_arena_mat(arena, TPW_F32, M, p->inter.count);
    ws->act = tpw_arena_mat(arena, l->act, M, p->inter.count);
    arena->used = arena->peak;
}

static tpw_io_limits io_limits_of(const tpw_config *c, const tpw_partition *p, const tpw_pass_limits *l)
{
    return (tpw_io_limits){.rows = l->rows_max,
                           .logits = l->logits_max,
                           .entries = l->entries_max,
                           .drafts = l->drafts_max,
                           .ranks = p->size,
                           .layers = c->layers};
}

static void carve(const tpw_config *c, const tpw_partition *p, const tpw_pass_limits *l, tpw_arena *arena,
                  tpw_workspace *ws, tpw_step_io *io)
{
    int32_t M = l->rows_max, R = l->logits_max, H = c->hidden;
    const tpw_io_limits io_limits = io_limits_of(c, p, l);

    ws->ids = tpw_arena_take(arena, M, sizeof *ws->ids);
    ws->h = tpw_arena_mat(arena, l->act, M, H);
    ws->y = tpw_arena_mat(arena, l->act, M, H);
    ws->sum = tpw_arena_mat(arena, TPW_F32, M, H);
    ws->carry = tpw_arena_mat(arena, l->act, M, H);
    ws->join = tpw_arena_mat(arena, l->act, M, 2 * (int64_t)H);
    ws->head_in = tpw_arena_mat(arena, l->act, R, H);
    ws->logits = tpw_arena_mat(arena, TPW_F32, R, p->vocab.count);
    ws->value = tpw_arena_take(arena, R, sizeof *ws->value);
    ws->best = tpw_arena_take(arena, R, sizeof *ws->best);
    carve_blocks(c, p, l, arena, ws);
    tpw_step_io_carve(&io_limits, arena, io);
}

static tpw_status check_limits(const tpw_pass_limits *l, tpw_error *err)
{
    if (l->rows_max < 1 || l->logits_max < 1 || l->entries_max < 1 || l->drafts_max < 0 ||
        l->drafts_max > TPW_DRAFT_MAX)
        return tpw_fail(err, TPW_ERR_LIMIT,
                        "a pass of %d rows, %d logit rows and %d sequences: all must be at least 1; %d drafts: 0..%d",
                        l->rows_max, l->logits_max, l->entries_max, l->drafts_max, TPW_DRAFT_MAX);
    return TPW_OK;
}

tpw_status tpw_pass_bytes(const tpw_config *config, const tpw_partition *part, const tpw_pass_limits *limits,
                          size_t *bytes, tpw_error *err)
{
    tpw_arena arena = tpw_arena_measure();
    tpw_workspace ws;
    tpw_step_io io;

    TPW_TRY(check_limits(limits, err));
    carve(config, part, limits, &arena, &ws, &io);
    TPW_TRY(tpw_arena_check(&arena, "workspace", err));
    *bytes = arena.peak;
    return TPW_OK;
}

tpw_status tpw_pass_host_bytes(const tpw_config *config, const tpw_partition *part, const tpw_pass_limits *limits,
                               size_t *bytes, tpw_error *err)
{
    const tpw_io_limits io_limits = io_limits_of(config, part, limits);

    TPW_TRY(check_limits(limits, err));
    return tpw_step_io_bytes(&io_limits, bytes, err);
}

/* The host's side of what is sent and fetched, and room to stage the batches of a step. */
static tpw_status create_io(tpw_pass *p, tpw_error *err)
{
    const tpw_device *device = p->exec->device;
    const tpw_pass_limits *l = &p->limits;
    size_t bytes = 0;
    void *memory = NULL;

    TPW_TRY(tpw_step_io_bytes(&p->io_limits, &bytes, err));
    TPW_TRY(tpw_pool_alloc(p->model->pool, TPW_PLACE_HOST, bytes, &memory, err));
    memset(memory, 0, bytes);
    p->io.memory = (tpw_arena){.base = memory, .bytes = bytes};
    tpw_step_io_carve(&p->io_limits, &p->io.memory, &p->io.host);
    TPW_TRY(tpw_arena_check(&p->io.memory, "what a step sends and fetches", err));
    if (device->stage_reserve == NULL)
        return TPW_OK;
    return device->stage_reserve(p->exec, l->drafts_max + 1, l->rows_max, l->entries_max, p->state->limits.pages,
                                 tpw_step_io_sent(&p->io_limits, &p->io.host), err);
}

static tpw_status create_keys(tpw_pass *p, tpw_error *err)
{
    p->hidden_keys = calloc((size_t)p->model->config.layers, sizeof *p->hidden_keys);
    if (p->hidden_keys == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the keys of %d layers", p->model->config.layers);
    for (int32_t i = 0; i < p->model->config.layers; i++) {
        char name[32];

        snprintf(name, sizeof name, "hidden.%d", i);
        p->hidden_keys[i] = tpw_digest_key(name);
    }
    return TPW_OK;
}

tpw_status tpw_pass_create(tpw_model *model, tpw_state *state, tpw_comm *comm, const tpw_pass_limits *limits,
                           tpw_pass **out, tpw_error *err)
{
    size_t bytes;
    tpw_pass *p;
    tpw_status st;

    TPW_TRY(tpw_pass_bytes(&model->config, &model->part, limits, &bytes, err));
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a pass");
    p->model = model;
    p->state = state;
    p->exec = model->exec;
    p->comm = comm;
    p->limits = *limits;
    p->io_limits = io_limits_of(&model->config, &model->part, limits);
    TPW_TRY_GOTO(st, create_keys(p, err), fail);
    TPW_TRY_GOTO(st, tpw_pool_arena_init(model->pool, bytes, &p->arena, err), fail);
    carve(&model->config, &model->part, limits, &p->arena, &p->ws, &p->io.device);
    TPW_TRY_GOTO(st, tpw_arena_check(&p->arena, "workspace", err), fail);
    TPW_TRY_GOTO(st, create_io(p, err), fail);
    *out = p;
    return TPW_OK;
fail:
    tpw_pass_destroy(p);
    return st;
}

void tpw_pass_destroy(tpw_pass *pass)
{
    if (pass == NULL)
        return;
    (void)!tpw_pool_arena_fini(pass->model->pool, &pass->arena, NULL);
    (void)!tpw_pool_free(pass->model->pool, pass->io.memory.base, NULL);
    free(pass->hidden_keys);
    free(pass);
}

tpw_status tpw_pass_stage(tpw_pass *pass, const tpw_batch *batch, tpw_error *err)
{
    const tpw_device *device = pass->exec->device;

    if (batch->rows < 1 || batch->rows > pass->limits.rows_max)
        return tpw_fail(err, TPW_ERR_LIMIT, "a pass of %d rows: 1..%d are planned", batch->rows, pass->limits.rows_max);
    for (int32_t s = 0; s < batch->segment_count; s++)
        if (batch->segments[s].pos + batch->segments[s].rows > pass->model->rope_positions)
            return tpw_fail(err, TPW_ERR_LIMIT, "position %lld is past the planned %d",
                            (long long)(batch->segments[s].pos + batch->segments[s].rows - 1),
                            pass->model->rope_positions);
    return device->stage != NULL ? device->stage(pass->exec, batch, pass->state->limits.page_size, err) : TPW_OK;
}

static tpw_status check_tokens(const tpw_pass *pass, const int32_t *ids, int32_t count, tpw_error *err)
{
    int32_t vocab = pass->model->config.vocab;

    for (int32_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "token %d is outside the vocabulary of %d", ids[i], vocab);
    return TPW_OK;
}

tpw_status tpw_pass_send(tpw_pass *pass, int32_t rows, int32_t entries, tpw_error *err)
{
    const tpw_step_io *host = &pass->io.host, *device = &pass->io.device;

    TPW_TRY(check_tokens(pass, host->tokens, rows, err));
    TPW_TRY(check_tokens(pass, host->tokens + tpw_io_behind(&pass->io_limits, 0), entries, err));
    return pass->exec->device->send(pass->exec, device->agree, host->agree, tpw_step_io_sent(&pass->io_limits, host),
                                    err);
}

/* A peer's failure has words of its own; everything else is told with rank and step. */
typedef struct listener {
    tpw_boot *boot;
    bool heard;
} listener;

static tpw_status listen(void *data, tpw_error *err)
{
    listener *l = data;
    tpw_status st = l->boot->ops->look(l->boot, err);

    l->heard = st != TPW_OK;
    return st;
}

tpw_status tpw_pass_fetch(tpw_pass *pass, int32_t rows, tpw_error *err)
{
    const tpw_io_limits *l = &pass->io_limits;
    tpw_boot *boot = pass->comm->boot;
    listener own = {.boot = boot};
    /* alone, a rank waits for its own work, however long it is */
    const tpw_watch watch = {
        .timeout_ms = pass->comm->size > 1 ? boot->timeout_ms : INT64_MAX, .look = listen, .data = &own};
    int32_t *to = pass->io.host.tokens + tpw_io_draft(l, 0, 0);
    const int32_t *from = pass->io.device.tokens + tpw_io_draft(l, 0, 0);
    const uint64_t *end = pass->io.device.hidden + (size_t)rows * (size_t)l->layers;
    tpw_status st =
        pass->exec->device->fetch(pass->exec, to, from, (size_t)((const char *)end - (const char *)from), &watch, err);

    if (st != TPW_OK && !own.heard)
        tpw_error_prefix(err, "rank %d (%s), step %lld", boot->rank, boot->host, (long long)boot->step);
    return st;
}

/* y[i] = x[rows[i]] with indices of the device. */
static tpw_status gather(tpw_pass *pass, tpw_mat x, const int32_t *rows, int32_t count, tpw_mat y, tpw_error *err)
{
    const tpw_gather_args args = {.x = x, .rows = rows, .y = tpw_head_rows(y, count)};

    return pass->exec->ops->gather(pass->exec, &args, err);
}

/* Rows of the embedding table from their owners: every rank fills its part, the merge copies bits and sums nothing. */
static tpw_status embed(tpw_pass *pass, const int32_t *ids, int32_t rows, tpw_mat out, tpw_error *err)
{
    const tpw_embed_args args = {
        .ids = pass->ws.ids, .table = pass->model->embed, .vocab0 = pass->model->part.vocab.begin, .out = out};
    const tpw_mat tokens = {.data = pass->io.device.tokens,
                            .dtype = TPW_I32,
                            .rows = tpw_io_tokens(&pass->io_limits),
                            .cols = 1,
                            .stride = 1};
    const tpw_mat chosen = {.data = pass->ws.ids, .dtype = TPW_I32, .rows = rows, .cols = 1, .stride = 1};
    size_t bytes = (size_t)rows * (size_t)out.cols * tpw_dtype_size(out.dtype);

    TPW_TRY(gather(pass, tokens, ids, rows, chosen, err));
    TPW_TRY(pass->exec->ops->embed(pass->exec, &args, err));
    return pass->comm->ops->merge(pass->comm, out.data, bytes, err);
}

static void tap(tpw_pass *pass, int32_t layer, tpw_mat rows)
{
    if (pass->tap != NULL)
        pass->tap(pass->tap_data, layer, &rows);
}

static tpw_status digest_hidden(tpw_pass *pass, const tpw_batch *batch, int32_t layer, tpw_error *err)
{
    const tpw_digest_rows_args args = {.batch = batch,
                                       .x = tpw_head_rows(pass->ws.h, batch->rows),
                                       .key = pass->hidden_keys[layer],
                                       .sums = pass->io.device.hidden + (size_t)layer * (size_t)batch->rows};

    return pass->exec->ops->digest_rows(pass->exec, &args, err);
}

tpw_status tpw_pass_trunk(tpw_pass *pass, const tpw_batch *batch, const int32_t *ids, bool digests, tpw_error *err)
{
    const tpw_model *m = pass->model;
    int32_t rows = batch->rows, layers = m->config.layers;
    tpw_mat h = tpw_head_rows(pass->ws.h, rows);

    TPW_TRY(embed(pass, ids, rows, h, err));
    tap(pass, -1, h);
    TPW_TRY(tpw_layer_norm(pass, rows, m->layers[0].input_norm, false, err));
    for (int32_t i = 0; i < layers; i++) {
        const float *next = i + 1 < layers ? m->layers[i + 1].input_norm : m->final_norm;
        const tpw_layer_state *state = &pass->state->layers[i];

        TPW_TRY(tpw_layer_run(pass, batch, &m->layers[i], state, &state->kv, err));
        TPW_TRY(tpw_layer_norm(pass, rows, next, true, err));
        if (digests)
            TPW_TRY(digest_hidden(pass, batch, i, err));
        tap(pass, i, h);
    }
    tap(pass, layers, tpw_head_rows(pass->ws.y, rows));
    return TPW_OK;
}

tpw_status tpw_pass_agree(tpw_pass *pass, int32_t rows, tpw_error *err)
{
    uint64_t *sum = &pass->io.device.agree[pass->limits.drafts_max];
    int32_t hidden = rows * pass->model->config.layers;
    const tpw_digest_args ids = {.x = {.data = pass->ws.ids, .dtype = TPW_I32, .rows = 1, .cols = rows, .stride = rows},
                                 .key = tpw_digest_key("ids"),
                                 .sum = sum};
    const tpw_digest_args sums = {
        .x = {.data = pass->io.device.hidden, .dtype = TPW_I64, .rows = 1, .cols = hidden, .stride = hidden},
        .key = tpw_digest_key("hidden"),
        .sum = sum};

    TPW_TRY(pass->exec->ops->digest(pass->exec, &ids, err));
    return pass->exec->ops->digest(pass->exec, &sums, err);
}

tpw_status tpw_pass_accept(tpw_pass *pass, const tpw_config *c, int32_t count, tpw_error *err)
{
    const tpw_step_io *io = &pass->io.device;
    tpw_accept_args args = {.entries = io->entries,
                            .count = count,
                            .tokens = io->tokens,
                            .best = io->best,
                            .end_count = c->end_count,
                            .taken = io->taken,
                            .last = io->last};

    _Static_assert(sizeof args.end_ids == sizeof c->end_ids, "an op takes all end tokens of a model");
    memcpy(args.end_ids, c->end_ids, sizeof args.end_ids);
    return pass->exec->ops->accept(pass->exec, &args, err);
}

/* Rows that may be taken or not lie across a multiple of the grid. Known before anything has run. */
static bool may_advance(const tpw_batch *batch)
{
    for (int32_t i = 0; i < batch->segment_count; i++) {
        const tpw_segment *s = &batch->segments[i];

        if ((s->pos + s->rows) / TPW_GRID != (s->pos + s->rows_certain) / TPW_GRID)
            return true;
    }
    return false;
}

tpw_status tpw_pass_commit(tpw_pass *pass, const tpw_batch *batch, const int32_t *taken, tpw_error *err)
{
    const tpw_config *c = &pass->model->config;

    if (!may_advance(batch))
        return TPW_OK;
    for (int32_t i = 0; i < c->layers; i++) {
        const tpw_delta_commit_args args = {.batch = batch, .state = pass->state->layers[i].gdn, .taken = taken};

        if (c->kind[i] == TPW_LAYER_DELTANET)
            TPW_TRY(pass->exec->ops->delta_commit(pass->exec, &args, err));
    }
    return TPW_OK;
}

/* y = norm(x) with the zero-centred norm, into a part of a wider row. */
static tpw_status norm_into(tpw_pass *pass, tpw_mat x, const float *weight, tpw_mat y, tpw_error *err)
{
    const tpw_add_norm_args args = {.h = x, .weight = weight, .eps = pass->model->config.rms_eps, .y = y};

    return pass->exec->ops->add_norm(pass->exec, &args, err);
}

tpw_status tpw_pass_mtp(tpw_pass *pass, const tpw_batch *batch, const int32_t *ids, const tpw_mat *hidden,
                        tpw_error *err)
{
    const tpw_mtp_weights *w = &pass->model->mtp;
    tpw_workspace *ws = &pass->ws;
    int32_t rows = batch->rows, H = pass->model->config.hidden;
    tpw_mat h = tpw_head_rows(ws->h, rows);
    tpw_mat left = tpw_head_rows(ws->join, rows), right = left;
    tpw_gemm_args fc = {.x = left, .w = w->fc, .kind = TPW_GEMM_COLUMN, .y = h};

    if (!pass->model->has_mtp || !pass->state->limits.mtp)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "the checkpoint has no MTP module");
    left.cols = H;
    right.cols = H;
    right.data = (char *)right.data + (size_t)H * tpw_dtype_size(right.dtype);
    TPW_TRY(embed(pass, ids, rows, h, err));
    TPW_TRY(norm_into(pass, h, w->norm_embedding, left, err));
    TPW_TRY(norm_into(pass, tpw_head_rows(*hidden, rows), w->norm_hidden, right, err));
    TPW_TRY(pass->exec->ops->gemm(pass->exec, &fc, err));
    TPW_TRY(tpw_layer_norm(pass, rows, w->layer.input_norm, false, err));
    TPW_TRY(tpw_layer_run(pass, batch, &w->layer, NULL, &pass->state->mtp, err));
    return tpw_layer_norm(pass, rows, w->norm, true, err);
}

tpw_status tpw_pass_carry(tpw_pass *pass, const int32_t *rows, int32_t count, tpw_error *err)
{
    return gather(pass, pass->ws.y, rows, count, pass->ws.carry, err);
}

tpw_status tpw_pass_keep_mtp(tpw_pass *pass, const int32_t *rows, const int32_t *slots, int32_t count, tpw_error *err)
{
    const tpw_mat kept = pass->state->mtp_hidden;
    const tpw_gather_args args = {
        .x = pass->ws.y, .rows = rows, .y = tpw_head_rows(kept, count), .to = slots, .to_rows = kept.rows};

    return pass->exec->ops->gather(pass->exec, &args, err);
}

tpw_status tpw_pass_recall_mtp(tpw_pass *pass, const int32_t *slots, int32_t count, tpw_error *err)
{
    return gather(pass, pass->state->mtp_hidden, slots, count, pass->ws.y, err);
}
