/* Reads two traces and shows what differs. SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_diff.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/diff.h"
#include "cli/exit.h"
#include "cli/jsonl.h"
#include "cli/sink.h"

typedef struct side {
    const char *name; /* "A", "B" */
    const char *path;
    tpw_trace_file file;
} side;

typedef struct command {
    side a;
    side b;
    tpw_diff diff;
    tpw_sink people;
    tpw_sink json;
} command;

static void say_side(tpw_sink *out, const side *s)
{
    const tpw_trace_head *h = &s->file.head;
    tpw_sink_printf(out, "%s  %s: %zu records, %d ranks, K = %d, %s, %s%s\n", s->name, s->path, s->file.count, h->ranks,
                    h->k, h->compute, h->model, s->file.finished ? "" : " (the run did not come to its end)");
}

static void say_split(tpw_sink *out, const side *s, const tpw_diff_split *split)
{
    char what[48];
    char ranks[64];
    if (split->records == 0)
        return;
    tpw_trace_entry_name(split->first, what, sizeof what);
    tpw_diff_ranks_apart(&s->file, split->first, ranks, sizeof ranks);
    tpw_sink_printf(out,
                    "ranks of %s disagree in %zu records; first: %s on rank %s, sequence %" PRIu64
                    " at position %lld, step %lld\n",
                    s->name, split->records, what, ranks, split->first->seq, (long long)split->first->pos,
                    (long long)split->first->step);
}

static void say_first(tpw_sink *out, const command *c)
{
    const tpw_trace_entry *a = c->diff.first_a;
    const tpw_trace_entry *b = c->diff.first_b;
    char what[48];
    char ranks[64];
    if (!a)
        return;
    tpw_trace_entry_name(a, what, sizeof what);
    tpw_sink_printf(out, "first difference: %s, sequence %" PRIu64 " at position %lld (step %lld in A, %lld in B)\n",
                    what, a->seq, (long long)a->pos, (long long)a->step, (long long)b->step);
    tpw_sink_printf(out, "  A %016" PRIx64 "\n  B %016" PRIx64 "\n", a->global, b->global);
    if (tpw_diff_ranks_between(&c->a.file, a, &c->b.file, b, ranks, sizeof ranks) > 0)
        tpw_sink_printf(out, "  on rank %s\n", ranks);
    else
        tpw_sink_printf(out, "  ranks have no twins: A has %d, B has %d\n", c->a.file.head.ranks, c->b.file.head.ranks);
}

static void say(command *c)
{
    tpw_sink *out = &c->people;
    const tpw_diff *d = &c->diff;
    say_side(out, &c->a);
    say_side(out, &c->b);
    say_split(out, &c->a, &d->split_a);
    say_split(out, &c->b, &d->split_b);
    say_first(out, c);
    tpw_sink_printf(out, "%-10s %12s %12s\n", "scope", "compared", "unequal");
    for (int i = 0; i < TPW_TRACE_SCOPES; i++)
        if (d->scope[i].compared > 0)
            tpw_sink_printf(out, "%-10s %12zu %12zu\n", tpw_trace_scope_name((tpw_trace_scope)i), d->scope[i].compared,
                            d->scope[i].unequal);
    if (d->passed_over > 0)
        tpw_sink_printf(out, "mtp: %zu not compared, drafter or K differ\n", d->passed_over);
    tpw_sink_printf(out, "%zu compared, %zu unequal, %zu only in A, %zu only in B: %s\n", d->compared, d->unequal,
                    d->only_a, d->only_b, tpw_diff_equal(d) ? "equal where both go" : "DIFFERENT");
}

static json_t *first_json(const command *c)
{
    const tpw_trace_entry *a = c->diff.first_a;
    const tpw_trace_entry *b = c->diff.first_b;
    char ranks[64] = "";
    if (!a)
        return json_null();
    tpw_diff_ranks_between(&c->a.file, a, &c->b.file, b, ranks, sizeof ranks);
    return json_pack("{s:I, s:I, s:s, s:o, s:I, s:I, s:o, s:o, s:o}", "seq", (json_int_t)a->seq, "pos",
                     (json_int_t)a->pos, "scope", tpw_trace_scope_name(a->scope), "layer",
                     a->layer < 0 ? json_null() : json_integer(a->layer), "step_a", (json_int_t)a->step, "step_b",
                     (json_int_t)b->step, "a", tpw_json_hex(a->global), "b", tpw_json_hex(b->global), "ranks",
                     ranks[0] == '\0' ? json_null() : json_string(ranks));
}

static json_t *split_json(const side *s, const tpw_diff_split *split)
{
    const tpw_trace_entry *e = split->first;
    char ranks[64];
    if (!e)
        return json_null();
    tpw_diff_ranks_apart(&s->file, e, ranks, sizeof ranks);
    return json_pack("{s:I, s:I, s:I, s:I, s:s, s:o, s:s}", "records", (json_int_t)split->records, "seq",
                     (json_int_t)e->seq, "pos", (json_int_t)e->pos, "step", (json_int_t)e->step, "scope",
                     tpw_trace_scope_name(e->scope), "layer", e->layer < 0 ? json_null() : json_integer(e->layer),
                     "ranks", ranks);
}

static json_t *scopes_json(const tpw_diff *d)
{
    json_t *out = json_object();
    for (int i = 0; i < TPW_TRACE_SCOPES; i++) {
        if (d->scope[i].compared == 0)
            continue;
        json_t *counts = json_pack("{s:I, s:I}", "compared", (json_int_t)d->scope[i].compared, "unequal",
                                   (json_int_t)d->scope[i].unequal);
        if (json_object_set_new(out, tpw_trace_scope_name((tpw_trace_scope)i), counts) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

static void push_json(command *c, tpw_status st)
{
    const tpw_diff *d = &c->diff;
    if (c->json.fd < 0)
        return;
    tpw_jsonl_push(&c->json, json_pack("{s:s, s:i, s:s, s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}",
                                       "type", "diff", "schema", TPW_JSONL_SCHEMA, "status", tpw_status_name(st),
                                       "exit", tpw_exit_code(st), "a", tpw_json_text(c->a.path, strlen(c->a.path)), "b",
                                       tpw_json_text(c->b.path, strlen(c->b.path)), "compared", (json_int_t)d->compared,
                                       "unequal", (json_int_t)d->unequal, "only_a", (json_int_t)d->only_a, "only_b",
                                       (json_int_t)d->only_b, "passed_over", (json_int_t)d->passed_over, "scopes",
                                       scopes_json(d), "first", first_json(c), "split_a",
                                       split_json(&c->a, &d->split_a), "split_b", split_json(&c->b, &d->split_b)));
}

static tpw_status open_sinks(command *c, const tpw_values *v, tpw_error *err)
{
    bool json_out = v->json && strcmp(v->json, "-") == 0;
    if (!(v->quiet && v->json))
        tpw_sink_init_fd(&c->people, json_out ? STDERR_FILENO : STDOUT_FILENO,
                         json_out ? "standard error" : "standard output");
    if (json_out)
        tpw_sink_init_fd(&c->json, STDOUT_FILENO, "standard output");
    else if (v->json)
        return tpw_sink_init_file(&c->json, v->json, err);
    return TPW_OK;
}

static tpw_status verdict(const command *c, tpw_error *err)
{
    const tpw_diff *d = &c->diff;
    const tpw_trace_entry *first = d->first_a ? d->first_a : d->split_a.first ? d->split_a.first : d->split_b.first;
    char what[48];
    if (tpw_diff_equal(d)) {
        if (d->compared > 0)
            return TPW_OK;
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "not comparable: %.150s and %.150s have no record of the same sequence, "
                        "position, scope and layer",
                        c->a.path, c->b.path);
    }
    tpw_trace_entry_name(first, what, sizeof what);
    return tpw_fail(err, TPW_ERR_DIVERGED, "%s: %s of sequence %" PRIu64 " at position %lld",
                    d->first_a ? "the traces differ" : "the ranks of a trace disagree", what, first->seq,
                    (long long)first->pos);
}

static tpw_status compare(command *c, tpw_error *err)
{
    TPW_TRY(tpw_trace_read(c->a.path, &c->a.file, err));
    TPW_TRY(tpw_trace_read(c->b.path, &c->b.file, err));
    TPW_TRY(tpw_trace_comparable(&c->a.file.head, c->a.path, &c->b.file.head, c->b.path, err));
    tpw_diff_make(&c->a.file, &c->b.file, &c->diff);
    tpw_status st = verdict(c, err);
    say(c);
    push_json(c, st);
    return st;
}

tpw_status tpw_cmd_diff(const tpw_values *values, const char *a, const char *b, tpw_error *err)
{
    command c = {.a = {"A", a, {{0}}}, .b = {"B", b, {{0}}}, .people = {.fd = -1}, .json = {.fd = -1}};
    tpw_error own = {0};
    tpw_status st = open_sinks(&c, values, err);
    if (st == TPW_OK) {
        st = compare(&c, err);
        if (st != TPW_OK)
            tpw_jsonl_error(&c.json, st, err->text);
    }
    tpw_status drained = tpw_sink_drain(&c.json, -1, &own);
    if (drained == TPW_OK)
        drained = tpw_sink_drain(&c.people, -1, &own);
    if (st == TPW_OK && drained != TPW_OK) {
        *err = own;
        st = drained;
    }
    tpw_sink_fini(&c.people);
    tpw_sink_fini(&c.json);
    tpw_trace_file_fini(&c.a.file);
    tpw_trace_file_fini(&c.b.file);
    return st;
}
