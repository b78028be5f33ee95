/* Flips a bit. SPDX-License-Identifier: Apache-2.0 */
#include "cli/fault.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/worker.h"

#define FORM "KIND@step=S,rank=R,layer=L[,slot=N][,bit=B]"

static const char *const kinds[] = {"conv", "recurrent", "kv", "hidden", "partial"};
#define KIND_COUNT (int)(sizeof kinds / sizeof kinds[0])

static tpw_status refuse(const char *spec, const char *what, tpw_error *err)
{
    return tpw_fail(err, TPW_ERR_ARGUMENT, "--fault %.80s: %s; the form is " FORM, spec, what);
}

/* "step=12" up to a comma; moves *at behind it. False when it is not of that form. */
static bool take_field(const char **at, const char *key, int64_t *out)
{
    size_t bytes = strlen(key);
    char *end;
    if (strncmp(*at, key, bytes) != 0 || (*at)[bytes] != '=' || !isdigit((unsigned char)(*at)[bytes + 1]))
        return false;
    errno = 0;
    *out = strtoll(*at + bytes + 1, &end, 10);
    if (errno != 0 || *out > INT32_MAX || (*end != ',' && *end != '\0'))
        return false;
    *at = *end == ',' ? end + 1 : end;
    return *end == '\0' || **at != '\0'; /* nothing ends with a comma */
}

tpw_status tpw_fault_parse(const char *spec, tpw_fault *out, tpw_error *err)
{
    static const char *const keys[] = {"step", "rank", "layer", "slot", "bit"};
    int64_t value[] = {-1, -1, -1, 0, TPW_FAULT_BIT_TOP};
    bool given[5] = {false};
    const char *at = strchr(spec, '@');
    int kind = 0;
    *out = (tpw_fault){0};
    if (!at)
        return refuse(spec, "there is no \"@\"", err);
    while (kind < KIND_COUNT &&
           (strlen(kinds[kind]) != (size_t)(at - spec) || strncmp(spec, kinds[kind], (size_t)(at - spec)) != 0))
        kind++;
    if (kind == KIND_COUNT)
        return refuse(spec, "the kinds are conv, recurrent, kv, hidden and partial", err);
    for (at++; *at != '\0';) {
        int key = 0;
        while (key < 5 && (given[key] || !take_field(&at, keys[key], &value[key])))
            key++;
        if (key == 5)
            return refuse(spec, "a field is unknown, twice there, or not a number", err);
        given[key] = true;
    }
    if (!given[0] || !given[1] || !given[2])
        return refuse(spec, "step, rank and layer are needed", err);
    if (given[3] && value[3] == 0)
        return refuse(spec, "slots begin with 1", err);
    if (value[4] > 31)
        return refuse(spec, "the bit is in 0..31", err);
    out->kind = (tpw_fault_kind)kind;
    out->step = value[0];
    out->rank = (int32_t)value[1];
    out->layer = (int32_t)value[2];
    out->slot = (int32_t)value[3];
    out->bit = (int32_t)value[4];
    return TPW_OK;
}

/* Flips the bit of one element. */
static tpw_status flip(const tpw_fault *f, void *element, tpw_dtype dtype, tpw_error *err)
{
    const tpw_exec *exec = f->worker->exec;
    size_t bytes = tpw_dtype_size(dtype);
    int top = dtype == TPW_F32 ? 22 : 6;
    uint32_t bits = 0; /* a narrow element lies in its low end on the machines that this is for */
    TPW_TRY(exec->device->download(exec, &bits, element, bytes, err));
    bits ^= (uint32_t)1 << (f->bit == TPW_FAULT_BIT_TOP ? top : f->bit);
    return exec->device->upload(exec, element, &bits, bytes, err);
}

static bool armed(const tpw_fault *f)
{
    return f->worker->step == f->step && f->worker->boot->rank == f->rank;
}

/* The row-parallel end of the MLP is the last partial sum of a layer. */
static tpw_status spoilt_gemm(const tpw_exec *exec, const tpw_gemm_args *args, tpw_error *err)
{
    const tpw_fault *f = (const tpw_fault *)(const void *)exec->ops;
    const tpw_weight *down = &f->worker->model->layers[f->layer].down;
    TPW_TRY(f->inner->gemm(exec, args, err));
    if (!armed(f) || args->kind != TPW_GEMM_ROW || args->w.data != down->data || args->w.packed != down->packed)
        return TPW_OK;
    return flip(f, args->y.data, args->y.dtype, err);
}

/* Behind layer - 1 comes the layer; the embedding counts as -1. */
static void spoil_hidden(void *data, int32_t layer, const tpw_mat *rows)
{
    const tpw_fault *f = data;
    if (layer == f->layer - 1 && armed(f))
        (void)!flip(f, rows->data, rows->dtype, NULL);
}

tpw_status tpw_fault_attach(tpw_fault *fault, tpw_worker *worker, tpw_error *err)
{
    const tpw_config *c = &worker->config;
    bool linear = fault->kind == TPW_FAULT_CONV || fault->kind == TPW_FAULT_RECURRENT;
    bool narrow = worker->settings.options.compute == TPW_COMPUTE_BF16 && fault->kind != TPW_FAULT_RECURRENT &&
                  fault->kind != TPW_FAULT_PARTIAL;
    if (fault->rank >= worker->boot->size)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--fault: there is no rank %d of %d", fault->rank, worker->boot->size);
    if (fault->layer >= c->layers)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--fault: there is no layer %d of %d", fault->layer, c->layers);
    if ((linear && c->kind[fault->layer] == TPW_LAYER_ATTENTION) ||
        (fault->kind == TPW_FAULT_KV && c->kind[fault->layer] != TPW_LAYER_ATTENTION))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--fault: layer %d is %s layer, which has no %s state", fault->layer,
                        linear ? "an attention" : "a DeltaNet", kinds[fault->kind]);
    if (narrow && fault->bit > 15)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--fault: %s has 16 bits with BF16 compute, there is no bit %d",
                        kinds[fault->kind], fault->bit);
    fault->worker = worker;
    if (fault->kind == TPW_FAULT_PARTIAL) {
        fault->inner = worker->exec->ops;
        fault->ops = *fault->inner;
        fault->ops.gemm = spoilt_gemm;
        worker->exec->ops = &fault->ops;
    }
    return TPW_OK;
}

static const tpw_sequence *victim(const tpw_fault *f)
{
    const tpw_sequences *all = &f->worker->sequences;
    for (int32_t i = 0; i < all->running_count; i++)
        if (f->slot == 0 || all->running[i]->slot == f->slot)
            return all->running[i];
    return NULL;
}

/* The element that the next step reads first: of the newest row, or of the first page. */
static tpw_status flip_state(const tpw_fault *f, const tpw_sequence *s, tpw_error *err)
{
    const tpw_layer_state *state = &f->worker->state->layers[f->layer];
    const tpw_conv_state *conv = &state->conv;
    const tpw_gdn_state *gdn = &state->gdn;
    const tpw_kv *kv = &state->kv;
    int64_t newest = (s->pos + TPW_CONV_RING - 1) % TPW_CONV_RING;
    int64_t at;
    switch (f->kind) {
    case TPW_FAULT_CONV:
        at = (s->slot * (int64_t)TPW_CONV_RING + newest) * conv->channels;
        return flip(f, (char *)conv->x + (size_t)at * tpw_dtype_size(conv->dtype), conv->dtype, err);
    case TPW_FAULT_RECURRENT:
        at = (int64_t)s->slot * gdn->v_heads * gdn->k_dim * gdn->v_dim;
        return flip(f, gdn->S + at, TPW_F32, err);
    default:
        at = (int64_t)s->pages[0] * kv->heads * kv->page_size * kv->head_dim;
        return flip(f, (char *)kv->k + (size_t)at * tpw_dtype_size(kv->dtype), kv->dtype, err);
    }
}

tpw_status tpw_fault_before_step(tpw_fault *fault, tpw_error *err)
{
    tpw_worker *w = fault->worker;
    if (!w || w->step != fault->step)
        return TPW_OK;
    if (fault->kind == TPW_FAULT_HIDDEN) {
        w->pass->tap = spoil_hidden;
        w->pass->tap_data = fault;
    }
    if (fault->kind >= TPW_FAULT_HIDDEN)
        return TPW_OK;
    const tpw_sequence *s = victim(fault);
    if (!s)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--fault: no sequence runs in %s before step %lld",
                        fault->slot == 0 ? "any slot" : "that slot", (long long)fault->step);
    return w->boot->rank == fault->rank ? flip_state(fault, s, err) : TPW_OK;
}
