/* Compares two sorted traces in one walk. SPDX-License-Identifier: Apache-2.0 */
#include "cli/diff.h"

#include <stdio.h>
#include <string.h>

#include "worker/scopes.h"

static bool replicated(tpw_trace_scope scope)
{
    return scope == TPW_TRACE_HIDDEN || scope == TPW_TRACE_TOKENS;
}

int tpw_diff_ranks_apart(const tpw_trace_file *file, const tpw_trace_entry *entry, char *text, size_t bytes)
{
    if (!replicated(entry->scope)) {
        text[0] = '\0';
        return 0;
    }
    return tpw_odd_ranks(&file->ranks[entry->ranks], file->head.ranks, 1, text, bytes);
}

int tpw_diff_ranks_between(const tpw_trace_file *a, const tpw_trace_entry *entry_a, const tpw_trace_file *b,
                           const tpw_trace_entry *entry_b, char *text, size_t bytes)
{
    size_t used = 0;
    int count = 0;
    text[0] = '\0';
    if (a->head.ranks != b->head.ranks)
        return 0; /* shards of another size: no rank has a twin */
    for (int r = 0; r < a->head.ranks; r++) {
        if (a->ranks[entry_a->ranks + (size_t)r] == b->ranks[entry_b->ranks + (size_t)r])
            continue;
        used += (size_t)snprintf(text + used, used < bytes ? bytes - used : 0, "%s%d", count > 0 ? ", " : "", r);
        used = used < bytes ? used : bytes - 1;
        count++;
    }
    return count;
}

void tpw_trace_entry_name(const tpw_trace_entry *entry, char *text, size_t bytes)
{
    if (entry->layer < 0)
        snprintf(text, bytes, "%s", tpw_trace_scope_name(entry->scope));
    else
        snprintf(text, bytes, "%s of layer %d", tpw_trace_scope_name(entry->scope), entry->layer);
}

static void find_split(const tpw_trace_file *f, tpw_diff_split *out)
{
    char text[64];
    for (size_t i = 0; i < f->count; i++) {
        const tpw_trace_entry *e = &f->entry[i];
        if (tpw_diff_ranks_apart(f, e, text, sizeof text) == 0)
            continue;
        out->records++;
        if (!out->first || tpw_trace_before(e, out->first) < 0)
            out->first = e;
    }
}

static void compare(tpw_diff *d, const tpw_trace_entry *a, const tpw_trace_entry *b)
{
    d->scope[a->scope].compared++;
    d->compared++;
    if (a->global == b->global)
        return;
    d->scope[a->scope].unequal++;
    d->unequal++;
    if (!d->first_a || tpw_trace_before(a, d->first_a) < 0) {
        d->first_a = a;
        d->first_b = b;
    }
}

void tpw_diff_make(const tpw_trace_file *a, const tpw_trace_file *b, tpw_diff *out)
{
    bool drafts = tpw_trace_same_drafts(&a->head, &b->head);
    size_t i = 0;
    size_t j = 0;
    *out = (tpw_diff){0};
    while (i < a->count || j < b->count) {
        int order = i == a->count ? 1 : j == b->count ? -1 : tpw_trace_order(&a->entry[i], &b->entry[j]);
        if (order < 0) {
            out->only_a++;
        } else if (order > 0) {
            out->only_b++;
        } else if (a->entry[i].scope == TPW_TRACE_MTP && !drafts) {
            out->passed_over++;
        } else {
            compare(out, &a->entry[i], &b->entry[j]);
        }
        i += order <= 0;
        j += order >= 0;
    }
    find_split(a, &out->split_a);
    find_split(b, &out->split_b);
}

bool tpw_diff_equal(const tpw_diff *diff)
{
    return diff->unequal == 0 && diff->split_a.records == 0 && diff->split_b.records == 0;
}
