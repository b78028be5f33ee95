/* Formats the text for people. SPDX-License-Identifier: Apache-2.0 */
#include "cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"

#define MIB              (1024.0 * 1024.0)
#define PROMPT_SHOWN     240 /* bytes of a prompt that are repeated */
#define PROMPT_IDS_SHOWN 16
#define DIM              "\033[2m"
#define PLAIN            "\033[0m"
#define REPLACEMENT      "\xEF\xBF\xBD"

static void fill_row(const void *ranks, int index, tpw_table_row row)
{
    const tpw_rank_info *r = (const tpw_rank_info *)ranks + index;
    snprintf(row[0], TPW_TABLE_CELL, "%d", r->rank);
    snprintf(row[1], TPW_TABLE_CELL, "%s", r->host);
    snprintf(row[2], TPW_TABLE_CELL, "%lld", (long long)r->pid);
    snprintf(row[3], TPW_TABLE_CELL, "%s", r->device);
    snprintf(row[4], TPW_TABLE_CELL, "%s", r->cpus_requested[0] != '\0' ? r->cpus_requested : "-");
    snprintf(row[5], TPW_TABLE_CELL, "%s", r->cpus_obtained[0] != '\0' ? r->cpus_obtained : "-");
    if (r->numa_node >= 0)
        snprintf(row[6], TPW_TABLE_CELL, "%d", r->numa_node);
    else
        snprintf(row[6], TPW_TABLE_CELL, "-");
    snprintf(row[7], TPW_TABLE_CELL, "%.1f", (double)r->weight_bytes / MIB);
    snprintf(row[8], TPW_TABLE_CELL, "%.1f", (double)r->state_bytes / MIB);
    snprintf(row[9], TPW_TABLE_CELL, "%.1f", (double)r->kv_bytes / MIB);
}

void tpw_output_ranks(tpw_sink *sink, const tpw_rank_info *ranks, int size)
{
    static const tpw_table table = {.columns = 10,
                                    .titles = {"rank", "host", "pid", "device", "cpus asked", "cpus have", "NUMA",
                                               "weights MiB", "state MiB", "KV MiB"},
                                    .right = {[0] = true, [2] = true, [6] = true, [7] = true, [8] = true, [9] = true},
                                    .fill = fill_row};
    tpw_table_print(sink, &table, ranks, size);
}

void tpw_output_model(tpw_sink *sink, const tpw_model_info *m)
{
    tpw_sink_printf(
        sink,
        "model %s (%s): %d layers = %d linear + %d attention, hidden %d, vocabulary %d, %s weights, %s, context %d\n\n",
        m->name, m->model_type, m->layers, m->layers_linear, m->layers_attention, m->hidden, m->vocab,
        m->fp8 ? "FP8" : "unquantised", m->has_mtp ? "MTP layer present" : "no MTP layer", m->context_max);
}

/* Model output is untrusted: control characters, which a terminal might obey, become U+FFFD. Line breaks and tabs stay. */
static void push_clean(tpw_sink *sink, const char *text, size_t bytes)
{
    size_t start = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        bool c1 = byte == 0xC2 && i + 1 < bytes && (unsigned char)text[i + 1] < 0xA0;
        if (!c1 && (byte >= 0x20 || byte == '\n' || byte == '\t') && byte != 0x7F)
            continue;
        tpw_sink_push(sink, text + start, i - start);
        tpw_sink_push(sink, REPLACEMENT, strlen(REPLACEMENT));
        i += c1 ? 1 : 0;
        start = i + 1;
    }
    tpw_sink_push(sink, text + start, bytes - start);
}

static void open_prompt(tpw_sink *sink, const tpw_prompt *p, bool terminal)
{
    tpw_sink_printf(sink, "%s", terminal ? DIM : "[");
    if (p->text) {
        size_t shown = p->text_bytes > PROMPT_SHOWN ? tpw_text_cut(p->text, PROMPT_SHOWN) : p->text_bytes;
        push_clean(sink, p->text, shown);
        tpw_sink_printf(sink, "%s", shown < p->text_bytes ? "..." : "");
    } else {
        for (int32_t i = 0; i < p->count && i < PROMPT_IDS_SHOWN; i++)
            tpw_sink_printf(sink, i > 0 ? " %d" : "%d", p->ids[i]);
        tpw_sink_printf(sink, "%s", p->count > PROMPT_IDS_SHOWN ? " ..." : "");
    }
    tpw_sink_printf(sink, "%s", terminal ? PLAIN : "]");
}

void tpw_output_stream(tpw_sink *sink, tpw_stream *stream, const tpw_prompts *prompts, const tpw_results *results,
                       bool terminal, bool last)
{
    while (stream->index < results->count) {
        const tpw_result *r = &results->data[stream->index];
        if (!stream->opened && r->text_bytes == 0 && !r->finished && !last)
            return; /* nothing to show yet: the prompt appears with the first token */
        if (!stream->opened) {
            open_prompt(sink, &prompts->data[stream->index], terminal);
            if (!results->tokenizer)
                tpw_sink_push(sink, " ", 1);
            stream->opened = true;
        }
        if (r->text_bytes > stream->written)
            push_clean(sink, r->text + stream->written, r->text_bytes - stream->written);
        stream->written = r->text_bytes;
        if (!r->finished && !last)
            return;
        if (!r->finished || r->finish == TPW_FINISH_ERROR || r->finish == TPW_FINISH_CANCELLED)
            tpw_sink_printf(sink, " [%s]", tpw_result_finish_name(r));
        tpw_sink_push(sink, "\n\n", 2);
        *stream = (tpw_stream){.index = stream->index + 1};
    }
}

/* What speculation brought; a position is accepted when all before it are. */
static void push_drafts(tpw_sink *sink, int32_t k, const tpw_stats *s)
{
    tpw_sink_printf(sink, "drafts   K=%d: %lld drafted, %lld accepted (%.1f %%)", k, (long long)s->draft_tokens,
                    (long long)s->accepted_tokens, 100 * tpw_share(s->accepted_tokens, s->draft_tokens));
    for (int32_t i = 0; i < k && i < TPW_K_MAX; i++)
        if (s->drafted_at[i] > 0)
            tpw_sink_printf(sink, "%s %.0f %%", i == 0 ? ", by position" : "",
                            100 * tpw_share(s->accepted_at[i], s->drafted_at[i]));
    tpw_sink_printf(sink, ", %.2f tokens a step\n", tpw_tokens_per_step(s));
    if (tpw_drafter_suspect(s))
        tpw_sink_printf(sink,
                        "warning  none of %lld drafts was accepted: the drafter may not fit the model; "
                        "check mtp.* weights\n",
                        (long long)s->draft_tokens);
}

void tpw_output_summary(tpw_sink *sink, const tpw_summary *s)
{
    tpw_sink_printf(sink, "prompts  %zu of %zu finished, %lld prompt tokens, %lld output tokens\n", s->finished,
                    s->prompts, (long long)s->stats.prompt_tokens, (long long)s->stats.output_tokens);
    tpw_sink_printf(sink, "time     %.3f s in %lld steps, prefill %.1f tokens/s, decode %.1f tokens/s\n", s->seconds,
                    (long long)s->stats.steps, tpw_rate(s->stats.prompt_tokens, tpw_prefill_seconds(&s->stats)),
                    tpw_rate(s->decode_tokens, tpw_decode_seconds(&s->stats)));
    if (s->k > 0)
        push_drafts(sink, s->k, &s->stats);
    tpw_sink_printf(sink, "memory   peak of each rank, MiB:");
    for (int r = 0; r < s->size; r++)
        tpw_sink_printf(sink, " %.1f", (double)s->ranks[r].peak_bytes / MIB);
    char digest[32] = "none: no prompt has finished";
    if (s->digested > 0)
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)s->digest);
    if (s->size > 1)
        tpw_sink_printf(sink, "\ndigest   %s  all %d ranks agree (%lld checks)\n", digest, s->size,
                        (long long)s->stats.checks);
    else
        tpw_sink_printf(sink, "\ndigest   %s  one rank, nothing to compare with\n", digest);
    if (s->digested > 0 && s->digested < s->prompts)
        tpw_sink_printf(sink, "         of %zu of %zu prompts\n", s->digested, s->prompts);
}
