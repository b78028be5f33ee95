/* Has the ranks examined and shows what they found. SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/exit.h"
#include "cli/jsonl.h"
#include "cli/table.h"

typedef struct doctoring {
    tpw_session session;
    const tpw_values *values;
    tpw_outcome *out;
    tpw_doctor_rank *ranks; /* [size] */
} doctoring;

/* How many results there are of each kind, over all checks and ranks. */
typedef struct tally {
    int of[TPW_DOCTOR_FAILED + 1];
    int64_t compared;
} tally;

static const char *const result_names[] = {
    [TPW_DOCTOR_SKIPPED] = "skipped", [TPW_DOCTOR_OK] = "ok", [TPW_DOCTOR_FAILED] = "FAILED"};

static const char *const nearness_names[] = {
    [TPW_NEARNESS_UNKNOWN] = "unknown", [TPW_NEARNESS_NEAR] = "near", [TPW_NEARNESS_FAR] = "far"};

static const char *nearness_name(const tpw_doctor_rank *r)
{
    return r->nearness == TPW_NEARNESS_NEAR || r->nearness == TPW_NEARNESS_FAR ? nearness_names[r->nearness]
                                                                               : nearness_names[TPW_NEARNESS_UNKNOWN];
}

static tally count(const tpw_doctor_rank *ranks, int size)
{
    tally t = {0};
    for (int r = 0; r < size; r++)
        for (int id = 0; id < TPW_DOCTOR_CHECKS; id++) {
            t.of[ranks[r].checks[id].result]++;
            t.compared += ranks[r].checks[id].compared;
        }
    return t;
}

/* "2.28.9", or "" for 0. */
static void nccl_text(int32_t code, char out[32])
{
    out[0] = '\0';
    if (code > 0)
        snprintf(out, 32, "%d.%d.%d", (int)code / 10000, (int)code / 100 % 100, (int)code % 100);
}

static void set_cell(tpw_table_row row, int column, const char *text)
{
    snprintf(row[column], TPW_TABLE_CELL, "%s", text[0] != '\0' ? text : "-");
    tpw_text_clean(row[column]);
}

static void set_number(tpw_table_row row, int column, long long number)
{
    if (number < 0)
        snprintf(row[column], TPW_TABLE_CELL, "-");
    else
        snprintf(row[column], TPW_TABLE_CELL, "%lld", number);
}

static void fill_row(const void *ranks, int index, tpw_table_row row)
{
    const tpw_doctor_rank *r = (const tpw_doctor_rank *)ranks + index;
    set_number(row, 0, r->rank);
    set_cell(row, 1, r->host);
    set_number(row, 2, r->pid);
    set_cell(row, 3, r->machine);
    set_cell(row, 4, r->isa);
    set_cell(row, 5, r->cpus.allowed);
    set_cell(row, 6, r->cpus.requested);
    set_cell(row, 7, r->cpus.obtained);
    set_number(row, 8, r->cpus.obtained[0] != '\0' ? r->cpus.numa_node : -1);
    set_cell(row, 9, r->memory.obtained);
    set_number(row, 10, r->seated ? r->gpu.index : -1);
    set_cell(row, 11, r->seated ? r->gpu.bus : "");
    set_cell(row, 12, r->seated ? nearness_name(r) : "");
    set_cell(row, 13, r->seated ? r->gpu.name : "");
    set_cell(row, 14, r->seated ? r->gpu.uuid : "");
}

static void print_table(tpw_sink *sink, const tpw_doctor_rank *ranks, int size)
{
    static const tpw_table table = {.columns = 15,
                                    .titles = {"rank", "host", "pid", "machine", "isa", "cpus allowed", "cpus asked",
                                               "cpus have", "NUMA", "memory", "GPU", "bus", "place", "name", "UUID"},
                                    .right = {[0] = true, [2] = true, [8] = true, [10] = true},
                                    .fill = fill_row};
    tpw_table_print(sink, &table, ranks, size);
}

/* One line of text that came from another machine. */
static void print_clean(tpw_sink *sink, const char *text)
{
    char line[TPW_ERROR_TEXT_MAX];
    snprintf(line, sizeof line, "%s", text);
    tpw_text_clean(line);
    tpw_sink_printf(sink, "%s\n", line);
}

static void print_version(tpw_sink *sink, const tpw_doctor_rank *r)
{
    char compiled[32], loaded[32], line[320];
    nccl_text(r->nccl_compiled, compiled);
    nccl_text(r->nccl_loaded, loaded);
    int at = snprintf(line, sizeof line, "versions  rank %d: %s", (int)r->rank, r->cuda);
    if (r->nccl_compiled > 0)
        at += snprintf(line + at, sizeof line - (size_t)at, ", NCCL %s compiled, %s loaded", compiled,
                       loaded[0] != '\0' ? loaded : "none");
    if (r->driver[0] != '\0')
        snprintf(line + at, sizeof line - (size_t)at, ", kernel driver %s", r->driver);
    print_clean(sink, line);
}

static bool same_versions(const tpw_doctor_rank *a, const tpw_doctor_rank *b)
{
    return strcmp(a->cuda, b->cuda) == 0 && strcmp(a->driver, b->driver) == 0 && a->nccl_compiled == b->nccl_compiled &&
           a->nccl_loaded == b->nccl_loaded;
}

/* Of rank 0, and of all ranks that have others. */
static void print_versions(tpw_sink *sink, const tpw_doctor_rank *ranks, int size)
{
    for (int r = 0; r < size; r++)
        if (r == 0 || !same_versions(&ranks[r], &ranks[0]))
            print_version(sink, &ranks[r]);
}

static void print_warnings(tpw_sink *sink, const tpw_doctor_rank *ranks, int size)
{
    for (int r = 0; r < size; r++) {
        const tpw_doctor_rank *rank = &ranks[r];
        if (rank->warnings[0] != '\0') {
            tpw_sink_printf(sink, "warning   rank %d: ", (int)rank->rank);
            print_clean(sink, rank->warnings);
        }
        if (rank->seated && rank->nearness == TPW_NEARNESS_FAR) {
            tpw_sink_printf(sink, "warning   rank %d: ", (int)rank->rank);
            print_clean(sink, "does not run near its GPU: --bind auto, and --bind-to none for mpirun");
        }
    }
}

/* What ranks find alike is one line; the first of several says how many they are. */
static void print_check(tpw_sink *sink, const tpw_doctor_rank *ranks, int size, int id)
{
    for (int r = 0; r < size; r++) {
        const tpw_doctor_check *check = &ranks[r].checks[id];
        int same = 0;
        bool first = true;
        for (int other = 0; other < size; other++) {
            const tpw_doctor_check *c = &ranks[other].checks[id];
            bool equal = c->result == check->result && strcmp(c->text, check->text) == 0;
            same += equal;
            first = first && !(equal && other < r);
        }
        if (!first)
            continue;
        tpw_sink_printf(sink, "%-9s %-8s ", tpw_doctor_name((tpw_doctor_id)id), result_names[check->result]);
        if (same == 1 && size > 1)
            tpw_sink_printf(sink, "rank %d: ", (int)ranks[r].rank);
        else if (same < size)
            tpw_sink_printf(sink, "%d ranks, first %d: ", same, (int)ranks[r].rank);
        print_clean(sink, check->text);
    }
}

void tpw_doctor_print(tpw_sink *sink, const tpw_doctor_rank *ranks, int size)
{
    tally t = count(ranks, size);
    print_table(sink, ranks, size);
    tpw_sink_push(sink, "\n", 1);
    print_versions(sink, ranks, size);
    print_warnings(sink, ranks, size);
    for (int id = 0; id < TPW_DOCTOR_CHECKS; id++)
        print_check(sink, ranks, size, id);
    tpw_sink_printf(sink, "\n%d checks on %d rank%s: %d ok, %d skipped, %d FAILED; %lld values compared by bits\n",
                    TPW_DOCTOR_CHECKS, size, size == 1 ? "" : "s", t.of[TPW_DOCTOR_OK], t.of[TPW_DOCTOR_SKIPPED],
                    t.of[TPW_DOCTOR_FAILED], (long long)t.compared);
}

/* null for "". */
static json_t *text_or_null(const char *text)
{
    return text[0] != '\0' ? tpw_json_text(text, strlen(text)) : json_null();
}

static json_t *nccl_json(int32_t code)
{
    char text[32];
    nccl_text(code, text);
    return text_or_null(text);
}

static json_t *gpu_json(const tpw_doctor_rank *r)
{
    char capability[32];
    if (!r->seated)
        return json_null();
    snprintf(capability, sizeof capability, "%d.%d", (int)r->gpu.major, (int)r->gpu.minor);
    return json_pack("{s:i, s:o, s:o, s:o, s:I, s:s, s:s}", "index", r->gpu.index, "bus", text_or_null(r->gpu.bus),
                     "uuid", text_or_null(r->gpu.uuid), "name", text_or_null(r->gpu.name), "bytes",
                     (json_int_t)r->gpu.bytes, "capability", capability, "place", nearness_name(r));
}

static json_t *checks_json(const tpw_doctor_rank *r)
{
    static const char *const words[] = {
        [TPW_DOCTOR_SKIPPED] = "skipped", [TPW_DOCTOR_OK] = "ok", [TPW_DOCTOR_FAILED] = "failed"};
    json_t *list = json_array();
    for (int id = 0; list && id < TPW_DOCTOR_CHECKS; id++) {
        const tpw_doctor_check *c = &r->checks[id];
        json_t *line = json_pack("{s:s, s:s, s:s, s:I, s:o}", "name", tpw_doctor_name((tpw_doctor_id)id), "result",
                                 words[c->result], "status", tpw_status_name((tpw_status)c->status), "compared",
                                 (json_int_t)c->compared, "text", tpw_json_text(c->text, strlen(c->text)));
        if (json_array_append_new(list, line) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *cpus_json(const tpw_binding *b)
{
    return json_pack("{s:o, s:o, s:o, s:i, s:i}", "allowed", text_or_null(b->allowed), "requested",
                     text_or_null(b->requested), "obtained", text_or_null(b->obtained), "cores", b->cores, "numa_node",
                     b->obtained[0] != '\0' ? b->numa_node : -1);
}

static json_t *memory_json(const tpw_memory_binding *b)
{
    return json_pack("{s:o, s:o, s:o, s:b, s:o}", "allowed", text_or_null(b->allowed), "requested",
                     text_or_null(b->requested), "obtained", text_or_null(b->obtained), "bound", b->bound, "reason",
                     text_or_null(b->reason));
}

static json_t *rank_json(const tpw_doctor_rank *r)
{
    return json_pack("{s:s, s:i, s:i, s:o, s:i, s:I, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "type", "doctor", "schema", TPW_JSONL_SCHEMA, "rank", r->rank, "host", text_or_null(r->host),
                     "hosts", r->hosts, "pid", (json_int_t)r->pid, "machine", text_or_null(r->machine), "isa",
                     text_or_null(r->isa), "cpus", cpus_json(&r->cpus), "memory", memory_json(&r->memory),
                     "gpus_visible", r->gpus_visible, "no_gpu", text_or_null(r->no_gpu), "gpu", gpu_json(r), "warnings",
                     text_or_null(r->warnings), "cuda", text_or_null(r->cuda), "driver", text_or_null(r->driver),
                     "nccl_compiled", nccl_json(r->nccl_compiled), "nccl_loaded", nccl_json(r->nccl_loaded), "checks",
                     checks_json(r));
}

void tpw_doctor_push(tpw_sink *sink, const tpw_doctor_rank *ranks, int size, tpw_status status)
{
    tally t = count(ranks, size);
    if (sink->fd < 0)
        return;
    for (int r = 0; r < size; r++)
        tpw_jsonl_push(sink, rank_json(&ranks[r]));
    tpw_jsonl_push(sink, json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:I}", "type", "verdict", "schema",
                                   TPW_JSONL_SCHEMA, "command", "doctor", "status", tpw_status_name(status), "exit",
                                   tpw_exit_code(status), "ranks", size, "ok", t.of[TPW_DOCTOR_OK], "skipped",
                                   t.of[TPW_DOCTOR_SKIPPED], "failed", t.of[TPW_DOCTOR_FAILED], "compared",
                                   (json_int_t)t.compared));
}

/* Rank 0. Text for people goes to standard output, unless JSON has it. */
static tpw_status open_sinks(doctoring *d, tpw_error *err)
{
    const tpw_values *v = d->values;
    bool json_out = v->json && strcmp(v->json, "-") == 0;
    if (!(v->quiet && v->json))
        tpw_sink_init_fd(&d->out->people, json_out ? STDERR_FILENO : STDOUT_FILENO,
                         json_out ? "standard error" : "standard output");
    if (json_out)
        tpw_sink_init_fd(&d->out->json, STDOUT_FILENO, "standard output");
    else if (v->json)
        return tpw_sink_init_file(&d->out->json, v->json, err);
    return TPW_OK;
}

static tpw_status prepare(doctoring *d, tpw_error *err)
{
    d->ranks = calloc((size_t)d->out->size, sizeof *d->ranks);
    if (!d->ranks)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %d ranks", d->out->size);
    return d->out->rank == 0 ? open_sinks(d, err) : TPW_OK;
}

static tpw_status together(doctoring *d, tpw_error *err)
{
    const tpw_bind_mode modes[] = {TPW_BIND_NONE, TPW_BIND_AUTO, TPW_BIND_STRICT};
    char isa[32];
    tpw_values_choice(d->values, TPW_SETTING_ISA, isa, sizeof isa);
    const tpw_doctor_options options = {.binding = modes[d->values->bind],
                                        .isa = isa,
                                        .gpus_needed = d->values->backend == TPW_BACKEND_CUDA,
                                        .gpus_ignored = d->values->backend == TPW_BACKEND_HOST,
                                        .ranks_per_gpu = (int)d->values->ranks_per_gpu};
    TPW_TRY(tpw_session_agree(&d->session, prepare(d, err), err));
    TPW_TRY(tpw_doctor_run(d->session.boot, &options, d->ranks, err));
    tpw_status st = tpw_doctor_verdict(d->ranks, d->out->size, err);
    if (d->out->rank == 0) {
        tpw_doctor_print(&d->out->people, d->ranks, d->out->size);
        tpw_doctor_push(&d->out->json, d->ranks, d->out->size, st);
        tpw_session_drain(&d->session);
    }
    if (st != TPW_OK) /* the same on all ranks */
        return st;
    if (d->out->rank == 0)
        st = tpw_sink_drain(&d->out->json, 0, err);
    return tpw_session_agree(&d->session, st, err);
}

void tpw_cmd_doctor(const tpw_values *values, tpw_outcome *out)
{
    doctoring d = {.values = values, .out = out};
    tpw_status st = tpw_session_open(&d.session, values, out, &out->error);
    if (st == TPW_OK)
        st = together(&d, &out->error);
    tpw_session_conclude(&d.session, st);
    if (out->broken)
        return; /* peers may still be inside of what this would free; the process ends anyway */
    free(d.ranks);
    tpw_session_close(&d.session);
}
