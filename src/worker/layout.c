/* Lays out a step, and reads back what it gave. SPDX-License-Identifier: Apache-2.0 */
#include "worker/layout.h"

#include <string.h>

#include "worker/draft.h"

/* Hidden digests of a prompt chunk are one group; a verified run has one a row, since rows may be dropped. */
int32_t tpw_groups_of(const tpw_planned *planned)
{
    return planned->logits && planned->rows == 1 ? 1 + planned->drafts : 1;
}

/* Where the ids of the entry's rows stand, and those of the tokens behind them. */
static void lay_out_tokens(tpw_worker *w, int32_t planned, int32_t row, int32_t logits)
{
    const tpw_io_limits *at = &w->pass->io_limits;
    const tpw_planned *p = &w->buf.planned[planned];
    const tpw_sequence *s = w->sequences.running[p->sequence];
    tpw_step_io *io = &w->pass->io.host;
    bool chained = tpw_worker_uses_mtp(w);
    int32_t last = p->rows - 1, behind = tpw_io_behind(at, planned);

    memcpy(&io->tokens[row], &s->tokens[s->pos], (size_t)p->rows * sizeof *io->tokens);
    io->tokens[behind] = p->logits ? 0 : s->tokens[s->pos + p->rows];
    for (int32_t d = 0; d < p->drafts; d++)
        io->tokens[row + p->rows + d] = chained ? 0 : w->buf.drafts[(size_t)planned * TPW_K_MAX + (size_t)d];
    for (int32_t r = 0; r < p->rows + p->drafts; r++) {
        io->row_ids[row + r] = r > last && chained ? tpw_io_draft(at, planned, r - p->rows) : row + r;
        io->next_ids[row + r] = r < last ? row + r + 1 : p->logits ? tpw_io_best(at, logits + r - last) : behind;
    }
}

/* Adds one planned entry at `row`. */
static void lay_out_entry(tpw_worker *w, int32_t planned, int32_t row, tpw_layout *l)
{
    const tpw_io_limits *at = &w->pass->io_limits;
    tpw_step_buffers *b = &w->buf;
    tpw_step_io *io = &w->pass->io.host;
    const tpw_planned *p = &b->planned[planned];
    const tpw_sequence *s = w->sequences.running[p->sequence];
    int32_t rows = p->rows + p->drafts, groups = tpw_groups_of(p);

    b->segments[planned] = (tpw_segment){
        .row0 = row, .rows = rows, .rows_certain = p->rows, .slot = s->slot, .pos = s->pos, .pages = s->pages};
    io->slots[planned] = s->slot;
    io->entries[planned] =
        (tpw_accept_entry){.row0 = row,
                           .rows = p->rows,
                           .drafts = p->drafts,
                           .draft0 = tpw_worker_uses_mtp(w) ? tpw_io_draft(at, planned, 0) : row + p->rows,
                           .best0 = p->logits ? l->logits : -1,
                           .ignore_eos = s->ignore_eos,
                           .emitted = s->emitted,
                           .max_tokens = s->max_tokens};
    lay_out_tokens(w, planned, row, l->logits);
    for (int32_t g = 0; g < groups; g++)
        b->groups[l->groups++] = (tpw_hidden_group){.row0 = row + g, .rows = groups == 1 ? rows : 1, .pos = s->pos + g};
    for (int32_t r = p->rows - 1; p->logits && r < rows; r++, l->logits++) {
        io->logit_rows[l->logits] = row + r;
        io->best_to[l->logits] = tpw_io_best(at, l->logits);
    }
}

tpw_layout tpw_worker_lay_out(tpw_worker *worker, int32_t planned)
{
    int32_t row = 0;
    tpw_layout l = {0};

    for (int32_t i = 0; i < planned; i++) {
        lay_out_entry(worker, i, row, &l);
        row += worker->buf.segments[i].rows;
    }
    l.batch = (tpw_batch){.rows = row, .segment_count = planned, .segments = worker->buf.segments};
    return l;
}

static uint64_t group_sum(const uint64_t *rows, const tpw_hidden_group *group)
{
    uint64_t sum = 0;

    for (int32_t r = group->row0; r < group->row0 + group->rows; r++)
        sum += rows[r];
    return sum;
}

void tpw_worker_read_back(tpw_worker *worker, int32_t planned, const tpw_layout *layout)
{
    const tpw_io_limits *at = &worker->pass->io_limits;
    const tpw_step_io *io = &worker->pass->io.host;
    tpw_step_buffers *b = &worker->buf;
    int32_t rows = layout->batch.rows, layers = worker->config.layers;
    bool digests = worker->settings.options.check != TPW_CHECK_OFF;

    for (int32_t i = 0; tpw_worker_uses_mtp(worker) && i < planned; i++)
        memcpy(&b->drafts[(size_t)i * TPW_K_MAX], &io->tokens[tpw_io_draft(at, i, 0)],
               (size_t)b->planned[i].drafts * sizeof *b->drafts);
    for (int32_t r = 0; r < rows; r++)
        b->ids[r] = io->tokens[io->row_ids[r]];
    for (int32_t g = 0; g < layout->groups; g++)
        for (int32_t l = 0; l < layers; l++)
            b->hidden[(size_t)g * (size_t)layers + (size_t)l] =
                digests ? group_sum(&io->hidden[(size_t)l * (size_t)rows], &b->groups[g]) : 0;
}
