/* Checks the options of a worker and freezes a copy. SPDX-License-Identifier: Apache-2.0 */
#include "worker/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "tp/place.h"

#define TIMEOUT_MS_MAX (24LL * 3600 * 1000)

void tpw_options_init(tpw_options *options)
{
    *options = (tpw_options)TPW_OPTIONS_INIT;
}

/* One integer option and its legal range (unused where only names and values are wanted). */
typedef struct range {
    const char *name;
    int64_t value;
    int64_t low;
    int64_t high;
} range;

static tpw_status check_ranges(const tpw_options *o, tpw_error *err)
{
    const range ranges[] = {{"sequences_max", o->sequences_max, 1, 4096},
                            {"rows_max", o->rows_max, 1, 65536},
                            {"chunk", o->chunk, 1, 65536},
                            {"page_size", o->page_size, 1, 256},
                            {"pages", o->pages, 0, INT32_MAX - 1},
                            {"context_max", o->context_max, 0, 1 << 24},
                            {"draft_max", o->draft_max, 0, TPW_K_MAX},
                            {"check", o->check, TPW_CHECK_STEP, TPW_CHECK_OFF},
                            {"check_every", o->check_every, 0, INT32_MAX},
                            {"trace_every", o->trace_every, 1, INT32_MAX},
                            {"dummy_layers", o->dummy_layers, 0, 1024},
                            {"dummy_vocab", o->dummy_vocab, 0, 1 << 24},
                            {"timeout_ms", o->timeout_ms, 1, TIMEOUT_MS_MAX},
                            {"compute", o->compute, TPW_COMPUTE_BF16, TPW_COMPUTE_F32},
                            {"backend", o->backend, TPW_BACKEND_HOST, TPW_BACKEND_AUTO},
                            {"binding", o->binding, TPW_BINDING_NONE, TPW_BINDING_STRICT},
                            {"ranks_per_gpu", o->ranks_per_gpu, 1, TPW_RANKS_PER_GPU_MAX}};

    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "option %s = %lld is not in %lld..%lld", ranges[i].name,
                            (long long)ranges[i].value, (long long)ranges[i].low, (long long)ranges[i].high);
    return TPW_OK;
}

static tpw_status check(const tpw_options *o, tpw_error *err)
{
    if (o == NULL || o->size != sizeof *o)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "options: start from tpw_options_init (size %zu, this library has %zu)",
                        o == NULL ? (size_t)0 : o->size, sizeof *o);
    if ((o->model == NULL) == (o->dummy == NULL))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "options: give either a model folder or a dummy shape");
    TPW_TRY(check_ranges(o, err));
    if ((o->page_size & (o->page_size - 1)) != 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "option page_size = %d is not a power of two", o->page_size);
    if (o->backend == TPW_BACKEND_CUDA && o->compute != TPW_COMPUTE_BF16)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED, "the CUDA backend computes in BF16; F32 is the host backend's");
    if (o->rows_max / (o->draft_max + 1) < o->sequences_max)
        return tpw_fail(
            err, TPW_ERR_ARGUMENT,
            "option rows_max = %d is less than sequences_max * (draft_max + 1) = %d * %d: running sequences never wait",
            o->rows_max, o->sequences_max, o->draft_max + 1);
    return TPW_OK;
}

static tpw_status copy_string(char **to, const char *from, tpw_error *err)
{
    *to = from == NULL ? NULL : strdup(from);
    return from != NULL && *to == NULL ? tpw_fail(err, TPW_ERR_MEMORY, "no memory for the options") : TPW_OK;
}

tpw_status tpw_settings_init(tpw_settings *out, const tpw_options *options, tpw_error *err)
{
    *out = (tpw_settings){0};
    TPW_TRY(check(options, err));
    out->options = *options;
    TPW_TRY(copy_string(&out->model, options->model, err));
    TPW_TRY(copy_string(&out->dummy, options->dummy, err));
    TPW_TRY(copy_string(&out->isa, options->isa, err));
    out->options.model = out->model;
    out->options.dummy = out->dummy;
    out->options.isa = out->isa;
    return TPW_OK;
}

void tpw_settings_fini(tpw_settings *settings)
{
    free(settings->model);
    free(settings->dummy);
    free(settings->isa);
    *settings = (tpw_settings){0};
}

const char *tpw_settings_list(const tpw_settings *settings, int i, int64_t *value)
{
    const tpw_options *o = &settings->options;
    const range list[] = {{"size (the library's version)", (int64_t)o->size, 0, 0},
                          {"dummy", o->dummy != NULL ? (int64_t)tpw_digest_key(o->dummy) : 0, 0, 0},
                          {"dummy_layers", o->dummy_layers, 0, 0},
                          {"dummy_vocab", o->dummy_vocab, 0, 0},
                          {"compute", o->compute, 0, 0},
                          {"backend", o->backend, 0, 0},
                          {"sequences_max", o->sequences_max, 0, 0},
                          {"rows_max", o->rows_max, 0, 0},
                          {"chunk", o->chunk, 0, 0},
                          {"page_size", o->page_size, 0, 0},
                          {"pages", o->pages, 0, 0},
                          {"context_max", o->context_max, 0, 0},
                          {"draft_max", o->draft_max, 0, 0},
                          {"drafter", o->drafter != NULL, 0, 0},
                          {"timeout_ms", o->timeout_ms, 0, 0},
                          {"binding", o->binding, 0, 0},
                          {"check", o->check, 0, 0},
                          {"check_every", o->check_every, 0, 0},
                          {"trace", o->trace != NULL, 0, 0},
                          {"trace_every", o->trace_every, 0, 0},
                          {"weight_digests", o->weight_digests, 0, 0},
                          {"ranks_per_gpu", o->ranks_per_gpu, 0, 0}};

    _Static_assert(sizeof list / sizeof list[0] == TPW_SETTINGS_COUNT, "TPW_SETTINGS_COUNT counts this list");
    *value = list[i].value;
    return list[i].name;
}
