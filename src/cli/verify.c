/* Makes, names and compares cells. SPDX-License-Identifier: Apache-2.0 */
#include "cli/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

static const int32_t axis_tp[] = {1, 2, 4, 8};
static const int32_t axis_k[] = {0, 1, 3, 4};
static const int32_t axis_batch[] = {1, 8};
static const int32_t axis_chunk[] = {0, 1, 7, 64};
static const int32_t axis_page[] = {64, 16};
static const char *const drafter_names[TPW_CELL_DRAFTERS] = {"mtp", "random", "oracle"};
#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

#define FIXED_MAX 32 /* cells that are not random */

const char *tpw_cell_drafter_name(const tpw_cell *cell)
{
    return cell->k > 0 ? drafter_names[cell->drafter] : "none";
}

void tpw_cell_name(const tpw_cell *cell, char out[TPW_CELL_NAME_MAX])
{
    char drafts[24] = "";
    char chunk[16] = "whole";
    if (cell->k > 0)
        snprintf(drafts, sizeof drafts, " (%s)", tpw_cell_drafter_name(cell));
    if (cell->chunk > 0)
        snprintf(chunk, sizeof chunk, "%d", cell->chunk);
    snprintf(out, TPW_CELL_NAME_MAX, "tp %d, K %d%s, batch %d, chunk %s, page %d", cell->tp, cell->k, drafts,
             cell->batch, chunk, cell->page);
}

static bool same(const tpw_cell *a, const tpw_cell *b)
{
    return a->tp == b->tp && a->k == b->k && a->batch == b->batch && a->chunk == b->chunk && a->page == b->page &&
           (a->k == 0 || a->drafter == b->drafter);
}

/* Adds a cell that is possible and not there yet. */
static bool add(tpw_cell *cells, int *count, const tpw_cell_space *space, tpw_cell cell)
{
    if (cell.tp > space->ranks || (cell.k > 0 && cell.drafter == TPW_CELL_MTP && !space->mtp))
        return false;
    for (int i = 0; i < *count; i++)
        if (same(&cells[i], &cell))
            return false;
    cells[(*count)++] = cell;
    return true;
}

static int32_t largest_tp(const tpw_cell_space *space)
{
    int32_t most = 1;
    for (int i = 0; i < COUNT(axis_tp); i++)
        if (axis_tp[i] <= space->ranks)
            most = axis_tp[i];
    return most;
}

static void add_fixed(tpw_cell *cells, int *count, const tpw_cell_space *space)
{
    const tpw_cell first = {.tp = 1, .batch = 1, .page = 64};
    tpw_cell_drafter usual = space->mtp ? TPW_CELL_MTP : TPW_CELL_RANDOM;
    int32_t tp = largest_tp(space);
    tpw_cell c;
    add(cells, count, space, first);
    for (int i = 1; i < COUNT(axis_tp); i++)
        c = first, c.tp = axis_tp[i], add(cells, count, space, c);
    for (int i = 1; i < COUNT(axis_k); i++)
        c = first, c.k = axis_k[i], c.drafter = usual, add(cells, count, space, c);
    for (int i = 1; i < COUNT(axis_batch); i++)
        c = first, c.batch = axis_batch[i], add(cells, count, space, c);
    for (int i = 1; i < COUNT(axis_chunk); i++)
        c = first, c.chunk = axis_chunk[i], add(cells, count, space, c);
    for (int i = 1; i < COUNT(axis_page); i++)
        c = first, c.page = axis_page[i], add(cells, count, space, c);
    for (int d = TPW_CELL_RANDOM; d < TPW_CELL_DRAFTERS; d++)
        c = first, c.k = 3, c.drafter = (tpw_cell_drafter)d, add(cells, count, space, c);
    add(cells, count, space, (tpw_cell){tp, 3, 8, 0, 64, usual});
    add(cells, count, space, (tpw_cell){tp, 0, 8, 7, 16, usual});
    add(cells, count, space, (tpw_cell){tp, 4, 8, 1, 16, TPW_CELL_ORACLE});
    add(cells, count, space, (tpw_cell){tp, 1, 1, 64, 16, TPW_CELL_RANDOM});
}

static int32_t pick(const int32_t *axis, int count, uint64_t seed, uint64_t index)
{
    return axis[tpw_digest_term(seed, index, 0) % (uint64_t)count];
}

/* The index-th draw of a seed. */
static tpw_cell draw(const tpw_cell_space *space, uint64_t seed, uint64_t index)
{
    tpw_cell c;
    int sizes = 0;
    while (sizes < COUNT(axis_tp) && axis_tp[sizes] <= space->ranks)
        sizes++;
    index *= 8;
    c.tp = pick(axis_tp, sizes > 0 ? sizes : 1, seed, index);
    c.k = pick(axis_k, COUNT(axis_k), seed, index + 1);
    c.batch = pick(axis_batch, COUNT(axis_batch), seed, index + 2);
    c.chunk = pick(axis_chunk, COUNT(axis_chunk), seed, index + 3);
    c.page = pick(axis_page, COUNT(axis_page), seed, index + 4);
    c.drafter = (tpw_cell_drafter)(tpw_digest_term(seed, index + 5, 0) % TPW_CELL_DRAFTERS);
    return c;
}

tpw_cell *tpw_cells_make(const tpw_cell_space *space, int64_t random, uint64_t seed, int *count)
{
    tpw_cell *cells = calloc((size_t)random + FIXED_MAX, sizeof *cells);
    uint64_t key = tpw_digest_key("verify") ^ tpw_digest_fin(seed + 1);
    int64_t left = random;
    *count = 0;
    if (!cells)
        return NULL;
    add_fixed(cells, count, space);
    /* the space holds 640 cells at most; draws beyond many times that find nothing new */
    for (uint64_t i = 0; left > 0 && i < 20000; i++)
        left -= add(cells, count, space, draw(space, key, i));
    return cells;
}

static void differ(tpw_cell_result *out, const char *text)
{
    out->different = true;
    snprintf(out->text, sizeof out->text, "%s", text);
}

static bool tokens_equal(size_t sequence, const tpw_result *a, const tpw_result *b, tpw_cell_result *out)
{
    char text[200];
    for (int32_t i = 0; i < a->count && i < b->count; i++, out->tokens++) {
        if (a->ids[i] == b->ids[i])
            continue;
        snprintf(text, sizeof text, "sequence %zu, output token %d: %d instead of %d", sequence, i, b->ids[i],
                 a->ids[i]);
        differ(out, text);
        return false;
    }
    if (a->count == b->count && a->finish == b->finish)
        return true;
    snprintf(text, sizeof text, "sequence %zu: %d output tokens (%s) instead of %d (%s)", sequence, b->count,
             tpw_result_finish_name(b), a->count, tpw_result_finish_name(a));
    differ(out, text);
    return false;
}

static const tpw_scope_digest *find(const tpw_result *r, const char *scope, int32_t layer)
{
    for (int32_t i = 0; i < r->digest_count; i++)
        if (r->digests[i].layer == layer && strcmp(r->digests[i].scope, scope) == 0)
            return &r->digests[i];
    return NULL;
}

/* The digests of `b` that count (all but "mtp", or only that) against those of `a`. In the order of execution: of two unequal ones
 * the lower layer is named, and there the state. */
static bool digests_equal(size_t sequence, const tpw_result *a, const tpw_result *b, bool drafts, tpw_cell_result *out)
{
    char text[200];
    const tpw_scope_digest *worst = NULL;
    uint64_t wanted = 0;
    for (int32_t i = 0; i < a->digest_count; i++) {
        const tpw_scope_digest *x = &a->digests[i];
        if ((strcmp(x->scope, "mtp") == 0) != drafts)
            continue;
        const tpw_scope_digest *y = find(b, x->scope, x->layer);
        if (!y) {
            snprintf(text, sizeof text, "sequence %zu has no digest of %s of layer %d", sequence, x->scope, x->layer);
            differ(out, text);
            return false;
        }
        bool equal = x->global == y->global;
        out->digests += equal;
        bool earlier = !worst || (uint32_t)y->layer < (uint32_t)worst->layer ||
                       (y->layer == worst->layer && strcmp(worst->scope, "hidden") == 0);
        if (equal || !earlier)
            continue;
        worst = y;
        wanted = x->global;
    }
    if (!worst)
        return true;
    snprintf(text, sizeof text, "sequence %zu, %s of layer %d: %016" PRIx64 " instead of %016" PRIx64, sequence,
             worst->scope, worst->layer, worst->global, wanted);
    differ(out, text);
    return false;
}

void tpw_cell_compare(const tpw_results *reference, const tpw_results *drafts, const tpw_results *now,
                      tpw_cell_result *out)
{
    out->tokens = 0;
    out->digests = 0;
    out->different = false;
    out->text[0] = '\0';
    if (now->count != reference->count) {
        differ(out, "another number of sequences");
        return;
    }
    for (size_t i = 0; i < reference->count; i++) {
        const tpw_result *r = &now->data[i];
        if (!tokens_equal(i, &reference->data[i], r, out) || !digests_equal(i, &reference->data[i], r, false, out) ||
            (drafts && !digests_equal(i, &drafts->data[i], r, true, out)))
            return;
    }
}

/* Text of ours only; a difference may quote what a worker said. */
static void put_escaped(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7F ? '?' : *text, out);
        }
    }
}

static void put_case(FILE *out, const tpw_cell_result *r)
{
    char name[TPW_CELL_NAME_MAX];
    tpw_cell_name(&r->cell, name);
    fprintf(out, "    <testcase classname=\"verify\" name=\"%s\" time=\"%.3f\"", name, (double)r->nanoseconds * 1e-9);
    if (!r->different) {
        fputs("/>\n", out);
        return;
    }
    fputs(">\n      <failure message=\"", out);
    put_escaped(out, r->text);
    fputs("\"/>\n    </testcase>\n", out);
}

char *tpw_cells_junit(const tpw_cell_result *results, int count)
{
    char *text = NULL;
    size_t bytes = 0;
    int failures = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (int i = 0; i < count; i++)
        failures += results[i].different;
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    fprintf(out, "  <testsuite name=\"tpworker verify\" tests=\"%d\" failures=\"%d\" errors=\"0\" skipped=\"0\">\n",
            count, failures);
    for (int i = 0; i < count; i++)
        put_case(out, &results[i]);
    fprintf(out, "  </testsuite>\n</testsuites>\n");
    bool good = !ferror(out);
    if (fclose(out) == 0 && good)
        return text;
    free(text);
    return NULL;
}
