/* Measures the plan of every rank, shows it, and holds it against the memory that there is. SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/exit.h"
#include "cli/jsonl.h"
#include "cli/model_path.h"
#include "cli/sink.h"
#include "kernels/cuda/cuda.h"
#include "worker/options.h"
#include "worker/plan.h"

#define RANKS_MAX 8
#define MIB       1048576.0
#define GIB       1073741824.0
#define PLACES    6 /* decimal places of --memory */

/* What a rank may take. */
typedef struct memory {
    bool known;
    uint64_t bytes;
    char source[160]; /* "--memory", "GPU 0, NVIDIA H200", or why it is not known */
} memory;

typedef struct planned {
    const tpw_values *values;
    const char *model; /* folder or dummy */
    tpw_settings settings;
    tpw_config config;
    tpw_checkpoint *checkpoint;
    tpw_plan_limits limits;
    tpw_plan ranks[RANKS_MAX];
    int size;
    memory memory;
    tpw_sink people;
    tpw_sink json;
} planned;

tpw_status tpw_memory_parse(const char *text, uint64_t *out, tpw_error *err)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    uint64_t whole = 0, part = 0, scale = 1, product;
    const char *at = text;
    bool good = *at >= '0' && *at <= '9';
    int unit = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        good = good && !__builtin_mul_overflow(whole, 10, &whole) &&
               !__builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole);
    if (*at == '.') {
        int places = 0;
        for (at++; *at >= '0' && *at <= '9'; at++, places++) {
            part = places < PLACES ? part * 10 + (uint64_t)(*at - '0') : part;
            scale = places < PLACES ? scale * 10 : scale;
        }
        good = good && places > 0 && places <= PLACES;
    }
    while (unit < 5 && strcmp(at, units[unit]) != 0)
        unit++;
    good = good && unit < 5 && (unit > 0 || scale == 1);
    if (good) {
        uint64_t unit_bytes = (uint64_t)1 << (10 * unit);
        good = !__builtin_mul_overflow(whole, unit_bytes, &product) &&
               !__builtin_add_overflow(product, part * unit_bytes / scale, out) && *out > 0;
    }
    if (good)
        return TPW_OK;
    return tpw_fail(
        err, TPW_ERR_ARGUMENT,
        "--memory: must be bytes, or a number of KiB, MiB, GiB or TiB such as 80GiB or 1.5TiB, found \"%.40s\"", text);
}

uint64_t tpw_memory_share(uint64_t bytes, int64_t tp, int32_t gpus, int64_t ranks_per_gpu, int64_t *sharers)
{
    *sharers = gpus > 0 ? (tp + gpus - 1) / gpus : 1;
    if (*sharers > ranks_per_gpu)
        *sharers = 1;
    return bytes / (uint64_t)*sharers;
}

static void divide(const tpw_values *v, int32_t gpus, memory *out)
{
    size_t used = strlen(out->source);
    int64_t sharers;
    out->bytes = tpw_memory_share(out->bytes, v->tp, gpus, v->ranks_per_gpu, &sharers);
    if (sharers > 1)
        snprintf(out->source + used, sizeof out->source - used, ", %d ranks on it", (int)sharers);
}

/* --memory, else the smallest GPU: which rank gets which is not known here. */
static tpw_status find_memory(const tpw_values *v, memory *out, tpw_error *err)
{
    char reason[100] = "";
    int32_t count;
    *out = (memory){0};
    if (v->memory) {
        out->known = true;
        snprintf(out->source, sizeof out->source, "--memory");
        return tpw_memory_parse(v->memory, &out->bytes, err);
    }
    count = tpw_cuda_count(reason, (int)sizeof reason);
    for (int32_t i = 0; i < count; i++) {
        tpw_gpu gpu;
        TPW_TRY(tpw_cuda_gpu(i, &gpu, err));
        if (out->known && gpu.bytes >= out->bytes)
            continue;
        out->known = true;
        out->bytes = gpu.bytes;
        snprintf(out->source, sizeof out->source, "GPU %d, %s", (int)i, gpu.name);
    }
    if (out->known)
        divide(v, count, out);
    else
        snprintf(out->source, sizeof out->source, "no GPU%s%s", reason[0] != '\0' ? ": " : "", reason);
    return TPW_OK;
}

/* What run would hand to its worker, as far as it decides about memory. */
static void fill_options(const planned *p, tpw_options *out)
{
    const tpw_values *v = p->values;
    tpw_options_init(out);
    out->model = v->dummy ? NULL : p->model;
    out->dummy = v->dummy;
    out->dummy_layers = (int32_t)v->layers;
    out->dummy_vocab = (int32_t)v->vocab;
    out->compute = (tpw_compute)v->compute;
    /* auto: what --tp ranks on this machine would take */
    bool gpus = v->backend == TPW_BACKEND_CUDA || (v->backend == TPW_BACKEND_AUTO && v->compute == TPW_COMPUTE_BF16 &&
                                                   tpw_cuda_count(NULL, 0) * v->ranks_per_gpu >= v->tp);
    out->backend = gpus ? TPW_BACKEND_CUDA : TPW_BACKEND_HOST;
    out->sequences_max = (int32_t)v->batch.data[0];
    out->rows_max = (int32_t)v->rows;
    out->page_size = (int32_t)v->page;
    out->pages = (int32_t)v->pages;
    out->context_max = (int32_t)v->context;
    out->draft_max = (int32_t)v->k.data[0];
}

static tpw_status find_model(planned *p, tpw_error *err)
{
    p->model = p->values->dummy ? p->values->dummy : p->values->model;
    if (!p->model)
        TPW_TRY(tpw_model_path_pocket(&p->model, err));
    return p->values->dummy ? TPW_OK : tpw_model_path_check(p->model, err);
}

static tpw_status measure(planned *p, tpw_error *err)
{
    tpw_options options;
    TPW_TRY(find_memory(p->values, &p->memory, err));
    TPW_TRY(find_model(p, err));
    fill_options(p, &options);
    TPW_TRY(tpw_settings_init(&p->settings, &options, err));
    TPW_TRY(tpw_plan_open(&p->settings.options, &p->config, &p->checkpoint, err));
    TPW_TRY(tpw_plan_limits_make(&p->settings.options, &p->config, &p->limits, err));
    p->size = (int)p->values->tp;
    for (int r = 0; r < p->size; r++)
        TPW_TRY(tpw_plan_make(&p->config, p->checkpoint, &p->limits, r, p->size, &p->ranks[r], err));
    return TPW_OK;
}

/* The first of the ranks that hold most. */
static int largest(const planned *p)
{
    int most = 0;
    for (int r = 1; r < p->size; r++)
        most = p->ranks[r].total > p->ranks[most].total ? r : most;
    return most;
}

static uint64_t needed(const tpw_plan *k)
{
    return (uint64_t)k->total + k->gpu;
}

static bool fits(const planned *p)
{
    return !p->memory.known || needed(&p->ranks[largest(p)]) <= p->memory.bytes;
}

static void say(planned *p)
{
    const tpw_config *c = &p->config;
    tpw_sink *out = &p->people;
    int most = largest(p);
    tpw_tensor_info info;
    tpw_sink_printf(out, "model %s (%s): %d layers, hidden %d, vocabulary %d, %s weights, %s\n", p->model,
                    c->model_type, c->layers, c->hidden, c->vocab, c->quantized ? "FP8" : "unquantised",
                    tpw_checkpoint_find(p->checkpoint, "mtp.fc.weight", &info) ? "MTP layer present" : "no MTP layer");
    tpw_sink_printf(out, "plan  %d %s, K = %d, %d sequences of %d positions, %d pages of %d, %d rows, %s\n\n", p->size,
                    p->size == 1 ? "rank" : "ranks", p->settings.options.draft_max, p->limits.state.slots,
                    p->limits.context_max, p->limits.state.pages, p->limits.state.page_size, p->limits.pass.rows_max,
                    p->limits.pass.act == TPW_F32 ? "f32" : "bf16");
    tpw_sink_printf(out, "%4s  %12s  %12s  %12s  %13s  %12s  %22s\n", "rank", "weights MiB", "KV MiB", "state MiB",
                    "workspace MiB", "device MiB", "host communication KiB");
    for (int r = 0; r < p->size; r++) {
        const tpw_plan *k = &p->ranks[r];
        tpw_sink_printf(out, "%4d  %12.1f  %12.1f  %12.1f  %13.1f  %12.1f  %22.1f\n", r, (double)k->weights / MIB,
                        (double)k->kv / MIB, (double)k->state / MIB, (double)k->workspace / MIB, (double)k->total / MIB,
                        (double)k->communication / 1024.0);
    }
    if (p->ranks[most].gpu > 0)
        tpw_sink_printf(out, "\non the GPU of a rank also %.1f MiB: scratch of the ops, buffers of the communicator\n",
                        (double)p->ranks[most].gpu / MIB);
    if (!p->memory.known)
        tpw_sink_printf(out, "\nnot compared with any memory (%s); give --memory\n", p->memory.source);
    else if (fits(p))
        tpw_sink_printf(out, "\nfits: %.2f of %.2f GiB (%s)\n", (double)needed(&p->ranks[most]) / GIB,
                        (double)p->memory.bytes / GIB, p->memory.source);
    else
        tpw_sink_printf(out, "\nDOES NOT FIT: %.2f of %.2f GiB (%s)\n", (double)needed(&p->ranks[most]) / GIB,
                        (double)p->memory.bytes / GIB, p->memory.source);
}

static json_t *rank_json(const tpw_plan *k, int rank)
{
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "rank", rank, "weight_bytes", (json_int_t)k->weights,
                     "kv_bytes", (json_int_t)k->kv, "state_bytes", (json_int_t)k->state, "workspace_bytes",
                     (json_int_t)k->workspace, "device_bytes", (json_int_t)k->total, "gpu_bytes", (json_int_t)k->gpu,
                     "host_communication_bytes", (json_int_t)k->communication);
}

static void push_json(planned *p, tpw_status st)
{
    json_t *ranks, *totals;
    if (p->json.fd < 0)
        return;
    ranks = json_array();
    totals = json_array();
    for (int r = 0; r < p->size; r++)
        if (json_array_append_new(ranks, rank_json(&p->ranks[r], r)) != 0 ||
            json_array_append_new(totals, json_integer((json_int_t)p->ranks[r].total)) != 0) {
            json_decref(ranks);
            ranks = NULL; /* json_pack then gives NULL, too, and the sink fails */
        }
    tpw_jsonl_push(
        &p->json,
        json_pack("{s:s, s:i, s:s, s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "type",
                  "plan", "schema", TPW_JSONL_SCHEMA, "status", tpw_status_name(st), "exit", tpw_exit_code(st), "model",
                  tpw_json_text(p->model, strlen(p->model)), "tp", p->size, "k", p->settings.options.draft_max,
                  "sequences", p->limits.state.slots, "context", p->limits.context_max, "pages", p->limits.state.pages,
                  "page", p->limits.state.page_size, "rows", p->limits.pass.rows_max, "compute",
                  p->limits.pass.act == TPW_F32 ? "f32" : "bf16", "ranks", ranks, "device_bytes", totals,
                  "memory_bytes", p->memory.known ? json_integer((json_int_t)p->memory.bytes) : json_null(),
                  "memory_source",
                  p->memory.known ? tpw_json_text(p->memory.source, strlen(p->memory.source)) : json_null(), "fits",
                  p->memory.known ? json_boolean(fits(p)) : json_null()));
}

static tpw_status verdict(const planned *p, tpw_error *err)
{
    int most = largest(p);
    const tpw_plan *k = &p->ranks[most];
    if (fits(p))
        return TPW_OK;
    return tpw_fail(err, TPW_ERR_MEMORY,
                    "rank %d needs %zu bytes (weights %zu, KV %zu, state %zu, workspace %zu), %" PRIu64
                    " are there (%s), %" PRIu64 " too few: more ranks (--tp), or less --batch, --context, --pages or "
                    "--rows",
                    most, (size_t)needed(k), k->weights, k->kv, k->state, k->workspace, p->memory.bytes,
                    p->memory.source, needed(k) - p->memory.bytes);
}

static tpw_status open_sinks(planned *p, tpw_error *err)
{
    const tpw_values *v = p->values;
    bool json_out = v->json && strcmp(v->json, "-") == 0;
    if (!(v->quiet && v->json))
        tpw_sink_init_fd(&p->people, json_out ? STDERR_FILENO : STDOUT_FILENO,
                         json_out ? "standard error" : "standard output");
    if (json_out)
        tpw_sink_init_fd(&p->json, STDOUT_FILENO, "standard output");
    else if (v->json)
        return tpw_sink_init_file(&p->json, v->json, err);
    return TPW_OK;
}

static tpw_status plan_all(planned *p, tpw_error *err)
{
    tpw_status st = measure(p, err);
    if (st == TPW_OK) {
        st = verdict(p, err);
        say(p);
        push_json(p, st);
    }
    if (st != TPW_OK)
        tpw_jsonl_error(&p->json, st, err->text);
    return st;
}

tpw_status tpw_cmd_plan(const tpw_values *values, tpw_error *err)
{
    planned p = {.values = values, .people = {.fd = -1}, .json = {.fd = -1}};
    tpw_error own = {0};
    tpw_status st = open_sinks(&p, err);
    if (st == TPW_OK)
        st = plan_all(&p, err);
    tpw_status drained = tpw_sink_drain(&p.json, -1, &own);
    if (drained == TPW_OK)
        drained = tpw_sink_drain(&p.people, -1, &own);
    if (st == TPW_OK && drained != TPW_OK) {
        *err = own;
        st = drained;
    }
    tpw_sink_fini(&p.people);
    tpw_sink_fini(&p.json);
    tpw_checkpoint_close(p.checkpoint);
    tpw_settings_fini(&p.settings);
    return st;
}
