/* Lets a few sequences run to different places and probes each of them. SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_probe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exit.h"
#include "cli/fault.h"
#include "cli/jsonl.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/trial.h"

#define PROMPT_MAX  66 /* longest prompt */
#define STEPS_APART 5  /* between two probes of a sequence: other places in the grid of 16 */

typedef struct probing {
    tpw_session session;
    const tpw_values *values;
    tpw_outcome *out;
    tpw_worker *worker;
    tpw_model_info info;
    tpw_fault fault;
    int32_t sequences;
    int32_t k;
    int32_t *ids;     /* rank 0: [sequences, PROMPT_MAX] */
    int32_t admitted; /* rank 0 */
    bool *begun;      /* [sequences]: gave a token */
    int64_t probes;
    int64_t compared;
    int64_t unequal;
    bool stopped;
    tpw_probe_result first; /* the first that found something */
    int32_t first_sequence;
} probing;

int64_t tpw_probe_count(const tpw_model_info *info, int ranks, int32_t k)
{
    int64_t state = (int64_t)info->layers_linear * 2 + info->layers_attention;
    return (state + (int64_t)info->layers * (k + 1)) * ranks;
}

static int32_t prompt_length(int32_t sequence)
{
    return 5 + 7 * sequence % (PROMPT_MAX - 4);
}

static int32_t max_tokens(const probing *p)
{
    return 2 * p->sequences + 2 * PROMPT_MAX + STEPS_APART * (int32_t)p->values->repeat + p->k + 4;
}

static tpw_status load(probing *p, tpw_error *err)
{
    tpw_options options;
    tpw_session_options(&p->session, &options);
    options.draft_max = 0; /* the probe brings its own */
    options.sequences_max = p->sequences;
    if (options.rows_max < p->sequences + PROMPT_MAX)
        options.rows_max = p->sequences + PROMPT_MAX;
    options.pages = 0;
    options.context_max = PROMPT_MAX + max_tokens(p);
    TPW_TRY(tpw_session_start(&p->session, &options, &p->worker, err));
    tpw_worker_model_info(p->worker, &p->info);
    if (p->values->fault)
        TPW_TRY(tpw_fault_attach(&p->fault, p->worker, err));
    return tpw_session_ranks(&p->session, p->worker, err);
}

/* Rank 0, after loading. */
static tpw_status begin(probing *p, tpw_error *err)
{
    TPW_TRY(tpw_trial_prompts(&p->session, p->info.vocab, p->sequences, PROMPT_MAX, &p->ids, err));
    tpw_jsonl_run(&p->out->json, p->values, &p->info, p->session.ranks, p->out->size);
    if (p->values->quiet)
        return TPW_OK;
    tpw_output_model(&p->out->people, &p->info);
    tpw_sink_printf(&p->out->people, "%8s %8s %8s %8s  %s\n", "sequence", "position", "compared", "unequal",
                    "first difference");
    return TPW_OK;
}

/* Rank 0: one sequence more every second step, so that their histories differ. */
static tpw_status admit(probing *p, int64_t step, tpw_error *err)
{
    if (p->admitted == p->sequences || step % 2 != 0)
        return TPW_OK;
    tpw_request request = {.size = sizeof request,
                           .id = (uint64_t)p->admitted,
                           .ids = p->ids + (size_t)p->admitted * PROMPT_MAX,
                           .count = prompt_length(p->admitted),
                           .max_tokens = max_tokens(p),
                           .ignore_eos = true};
    p->admitted++;
    return tpw_worker_admit(p->worker, &request, err);
}

/* One step on all ranks. A stop reaches the others through *busy. */
static tpw_status step(probing *p, bool *busy, tpw_error *err)
{
    tpw_event event;
    if (p->out->rank == 0) {
        if (tpw_stop_signal() != 0 || tpw_session_reader_gone(&p->session))
            TPW_TRY(tpw_worker_stop(p->worker, err));
        else
            TPW_TRY(admit(p, p->out->step + 1, err));
    }
    TPW_TRY(tpw_fault_before_step(&p->fault, err));
    TPW_TRY(tpw_worker_step(p->worker, busy, err));
    p->out->step++;
    while (tpw_worker_poll(p->worker, &event))
        if (event.type == TPW_EVENT_TOKEN)
            p->begun[event.id] = true;
    return TPW_OK;
}

static bool all_begun(const probing *p)
{
    for (int32_t i = 0; i < p->sequences; i++)
        if (!p->begun[i])
            return false;
    return true;
}

static void say(probing *p, int32_t sequence, const tpw_probe_result *r)
{
    tpw_sink *people = &p->out->people;
    if (!p->values->quiet || r->unequal > 0) {
        tpw_sink_printf(people, "%8d %8lld %8lld %8lld", sequence, (long long)r->position, (long long)r->compared,
                        (long long)r->unequal);
        if (r->unequal > 0) {
            tpw_sink_printf(people, "  layer %d, %s, rank %d", r->layer, r->scope, r->rank);
            if (r->op[0] != '\0')
                tpw_sink_printf(people, "; operation %s in layer %d, row %d", r->op, r->op_layer, r->op_row);
        }
        tpw_sink_printf(people, "\n");
    }
    if (p->out->json.fd >= 0) {
        bool found = r->unequal > 0;
        bool op = r->op[0] != '\0';
        tpw_jsonl_push(&p->out->json,
                       json_pack("{s:s, s:i, s:i, s:I, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "type", "probe",
                                 "schema", TPW_JSONL_SCHEMA, "sequence", sequence, "position", (json_int_t)r->position,
                                 "k", r->k, "compared", (json_int_t)r->compared, "unequal", (json_int_t)r->unequal,
                                 "scope", found ? json_string(r->scope) : json_null(), "layer",
                                 found ? json_integer(r->layer) : json_null(), "rank",
                                 found ? json_integer(r->rank) : json_null(), "op",
                                 op ? json_string(r->op) : json_null(), "op_layer",
                                 op ? json_integer(r->op_layer) : json_null(), "op_row",
                                 op ? json_integer(r->op_row) : json_null()));
    }
    tpw_sink_flush(people);
    tpw_sink_flush(&p->out->json);
}

static tpw_status probe_all(probing *p, tpw_error *err)
{
    for (int32_t i = 0; i < p->sequences; i++) {
        tpw_probe_result r;
        TPW_TRY(tpw_worker_probe(p->worker, (uint64_t)i, p->k, &r, err));
        p->probes++;
        p->compared += r.compared;
        p->unequal += r.unequal;
        if (r.unequal > 0 && p->first.unequal == 0) {
            p->first = r;
            p->first_sequence = i;
        }
        if (p->out->rank == 0)
            say(p, i, &r);
    }
    return TPW_OK;
}

static tpw_status run_all(probing *p, tpw_error *err)
{
    bool busy = true;
    while (busy && !all_begun(p))
        TPW_TRY(step(p, &busy, err));
    for (int64_t round = 0; busy && round < p->values->repeat; round++) {
        TPW_TRY(probe_all(p, err));
        for (int i = 0; busy && i < STEPS_APART && round + 1 < p->values->repeat; i++)
            TPW_TRY(step(p, &busy, err));
    }
    p->stopped = !busy;
    return TPW_OK;
}

/* The same on all ranks. */
static tpw_status verdict(const probing *p, tpw_error *err)
{
    int64_t each = tpw_probe_count(&p->info, p->out->size, p->k);
    int64_t wanted = each * p->sequences * p->values->repeat;
    if (p->stopped)
        return tpw_fail(err, TPW_ERR_STOPPED, "stopped by %s after %lld probes", tpw_session_signal_name(),
                        (long long)p->probes);
    if (p->compared != wanted)
        return tpw_fail(err, TPW_ERR_INTERNAL, "probe compared %lld tensors and vectors, there are %lld",
                        (long long)p->compared, (long long)wanted);
    if (p->unequal > 0)
        return tpw_fail(err, TPW_ERR_DIVERGED,
                        "probe: %lld of %lld differ; first: %s of layer %d on rank %d, sequence %d at position %lld",
                        (long long)p->unequal, (long long)p->compared, p->first.scope, p->first.layer, p->first.rank,
                        p->first_sequence, (long long)p->first.position);
    return TPW_OK;
}

/* Rank 0. */
static void report(probing *p, tpw_status st)
{
    if (p->unequal == 0)
        tpw_sink_printf(&p->out->people, "%lld compared, none unequal\n", (long long)p->compared);
    else
        tpw_sink_printf(&p->out->people, "%lld compared, %lld UNEQUAL\n", (long long)p->compared,
                        (long long)p->unequal);
    if (p->out->json.fd >= 0)
        tpw_jsonl_push(&p->out->json, json_pack("{s:s, s:i, s:s, s:s, s:i, s:I, s:I, s:I}", "type", "verdict", "schema",
                                                TPW_JSONL_SCHEMA, "command", "probe", "status", tpw_status_name(st),
                                                "exit", tpw_exit_code(st), "probes", (json_int_t)p->probes, "compared",
                                                (json_int_t)p->compared, "unequal", (json_int_t)p->unequal));
    tpw_session_drain(&p->session);
}

static tpw_status prepare(probing *p, tpw_error *err)
{
    p->sequences = (int32_t)p->values->sequences;
    p->k = (int32_t)p->values->k.data[0];
    p->begun = calloc((size_t)p->sequences, sizeof *p->begun);
    if (!p->begun)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %d sequences", p->sequences);
    if (p->values->fault)
        TPW_TRY(tpw_fault_parse(p->values->fault, &p->fault, err));
    return tpw_session_prepare(&p->session, err);
}

static tpw_status together(probing *p, tpw_error *err)
{
    bool leader = p->out->rank == 0;
    TPW_TRY(tpw_session_agree(&p->session, prepare(p, err), err));
    TPW_TRY(load(p, err));
    TPW_TRY(tpw_session_agree(&p->session, leader ? begin(p, err) : TPW_OK, err));
    p->out->broken = true;
    TPW_TRY(run_all(p, err));
    TPW_TRY(tpw_worker_finalize(p->worker, err));
    p->out->broken = false;
    tpw_status st = verdict(p, err);
    if (leader)
        report(p, st);
    if (st == TPW_OK && leader)
        st = tpw_sink_drain(&p->out->json, 0, err);
    return tpw_session_agree(&p->session, st, err);
}

void tpw_cmd_probe(const tpw_values *values, tpw_outcome *out)
{
    probing p = {.values = values, .out = out};
    tpw_status st = tpw_session_open(&p.session, values, out, &out->error);
    if (st == TPW_OK)
        st = together(&p, &out->error);
    if (st != TPW_OK && p.worker)
        tpw_session_keep_ring(&p.session, p.worker);
    tpw_session_conclude(&p.session, st);
    if (out->broken)
        return; /* peers may still be inside of what this would free; the process ends anyway */
    tpw_worker_destroy(p.worker);
    free(p.ids);
    free(p.begun);
    tpw_session_close(&p.session);
}
