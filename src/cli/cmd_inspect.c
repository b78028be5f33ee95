/* Looks through a checkpoint folder. SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_inspect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/jsonl.h"
#include "cli/progress.h"
#include "cli/weights_file.h"
#include "model/checkpoint.h"
#include "model/checkpoint_state.h"
#include "model/config.h"
#include "model/weight_digest.h"

typedef struct request {
    const char *model;
    const char *digests; /* file, or NULL */
    bool json;
    bool help;
} request;

typedef struct tally {
    int64_t tensors;
    int64_t bytes;
} tally;

/* What is in the folder. */
typedef struct contents {
    tpw_config config;
    tally all;
    tally stored[TPW_STORED_COUNT];
    tally mtp;
    tally vision;
    tally tied_head;     /* lm_head.weight beside a tied embedding: not loaded */
    int64_t fp8_blocks;  /* 128 x 128, each with a scale */
    int64_t fp8_weights; /* matrices of them */
    int32_t files;
} contents;

static void put_usage(FILE *out)
{
    fputs("Usage: tpworker inspect CHECKPOINT [--digests FILE] [--json]\n\n"
          "Says what a Hugging Face folder holds: config facts, tensors by type, FP8 blocks, MTP, vision, files.\n"
          "  --digests FILE  Read every tensor and write its digest there, for tpworker run --expect-weights FILE\n"
          "  --json          One JSON line in place of the table\n",
          out);
}

static tpw_status parse(int argc, char **argv, request *out, tpw_error *err)
{
    bool flags = true;
    *out = (request){0};
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (flags && strcmp(word, "--") == 0)
            flags = false;
        else if (flags && strcmp(word, "--json") == 0)
            out->json = true;
        else if (flags && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0))
            out->help = true;
        else if (flags && strncmp(word, "--digests=", 10) == 0)
            out->digests = word + 10;
        else if (flags && strcmp(word, "--digests") == 0) {
            if (++i == argc)
                return tpw_fail(err, TPW_ERR_ARGUMENT, "--digests needs a value (see tpworker inspect --help)");
            out->digests = argv[i];
        } else if (flags && word[0] == '-')
            return tpw_fail(err, TPW_ERR_ARGUMENT, "%.80s is not a flag of tpworker inspect (see its --help)", word);
        else if (out->model)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "inspect takes one folder, found \"%.80s\" after \"%.80s\"", word,
                            out->model);
        else
            out->model = word;
    }
    if (out->digests && out->digests[0] == '\0')
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--digests: must be a text that is not empty, found \"\"");
    if (!out->help && (!out->model || out->model[0] == '\0'))
        return tpw_fail(err, TPW_ERR_ARGUMENT, "inspect needs a checkpoint folder (see tpworker inspect --help)");
    return TPW_OK;
}

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static void count(tally *to, int64_t bytes)
{
    to->tensors++;
    to->bytes += bytes;
}

static void collect(const tpw_checkpoint *checkpoint, contents *c)
{
    static const char scale[] = ".weight_scale_inv";
    c->files = checkpoint->files_count;
    for (int32_t i = 0; i < checkpoint->count; i++) {
        const tpw_entry *e = &checkpoint->entries[i];
        int64_t bytes = (int64_t)e->bytes;
        size_t length = strlen(e->name);
        count(&c->all, bytes);
        count(&c->stored[e->stored], bytes);
        if (begins(e->name, "mtp."))
            count(&c->mtp, bytes);
        else if (tpw_weight_skipped(&c->config, e->name))
            count(strcmp(e->name, "lm_head.weight") == 0 ? &c->tied_head : &c->vision, bytes);
        if (length >= sizeof scale && strcmp(e->name + length - (sizeof scale - 1), scale) == 0) {
            c->fp8_weights++;
            c->fp8_blocks += e->rows * e->cols;
        }
    }
}

static int32_t attention_layers(const tpw_config *c)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->layers; i++)
        n += c->kind[i] == TPW_LAYER_ATTENTION;
    return n;
}

static double mib(int64_t bytes)
{
    return (double)bytes / 1048576.0;
}

static void put_tally(FILE *out, const char *what, const tally *t, const char *note)
{
    if (t->tensors == 0)
        fprintf(out, "%-12s none\n", what);
    else
        fprintf(out, "%-12s %" PRId64 " tensors, %.1f MiB%s\n", what, t->tensors, mib(t->bytes), note);
}

static void put_table(FILE *out, const char *model, const contents *k)
{
    const tpw_config *c = &k->config;
    int32_t attention = attention_layers(c);
    fprintf(out, "checkpoint   %s\n", model);
    fprintf(out, "model        %s: %d layers (%d linear, %d attention), hidden %d, MLP %d, vocabulary %d%s\n",
            c->model_type, c->layers, c->layers - attention, attention, c->hidden, c->intermediate, c->vocab,
            c->tied ? ", tied" : "");
    fprintf(out, "attention    %d heads of %d, %d KV heads, rotary %d, at most %d positions\n", c->heads, c->head_dim,
            c->kv_heads, c->rope_dim, c->positions_max);
    fprintf(out, "linear       %d key heads of %d, %d value heads of %d, conv %d\n", c->linear_k_heads, c->linear_k_dim,
            c->linear_v_heads, c->linear_v_dim, c->conv_width);
    fprintf(out, "files        %d\n", k->files);
    put_tally(out, "tensors", &k->all, "");
    for (int s = 0; s < TPW_STORED_COUNT; s++)
        if (k->stored[s].tensors > 0) {
            char name[32];
            snprintf(name, sizeof name, "  %s", tpw_stored_name((tpw_stored)s));
            put_tally(out, name, &k->stored[s], "");
        }
    if (k->fp8_weights > 0)
        fprintf(out, "FP8 blocks   %" PRId64 " of 128 x 128 in %" PRId64 " matrices\n", k->fp8_blocks, k->fp8_weights);
    else
        fprintf(out, "FP8 blocks   none\n");
    put_tally(out, "MTP", &k->mtp, "");
    put_tally(out, "vision", &k->vision, " (not loaded)");
    if (k->tied_head.tensors > 0)
        put_tally(out, "lm_head", &k->tied_head, " (tied: not loaded)");
}

static json_t *tally_json(const tally *t)
{
    return json_pack("{s:I, s:I}", "tensors", (json_int_t)t->tensors, "bytes", (json_int_t)t->bytes);
}

static json_t *config_json(const tpw_config *c)
{
    int32_t attention = attention_layers(c);
    return json_pack("{s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}",
                     "model_type", tpw_json_text(c->model_type, strlen(c->model_type)), "layers", c->layers,
                     "layers_linear", c->layers - attention, "layers_attention", attention, "hidden", c->hidden,
                     "intermediate", c->intermediate, "vocab", c->vocab, "tied", c->tied, "heads", c->heads, "head_dim",
                     c->head_dim, "kv_heads", c->kv_heads, "rope_dim", c->rope_dim, "positions_max", c->positions_max,
                     "linear_k_heads", c->linear_k_heads, "linear_k_dim", c->linear_k_dim, "linear_v_heads",
                     c->linear_v_heads, "linear_v_dim", c->linear_v_dim, "conv_width", c->conv_width, "fp8",
                     c->quantized);
}

static tpw_status put_json(FILE *out, const char *model, const contents *k, tpw_error *err)
{
    json_t *types = json_object();
    for (int s = 0; types && s < TPW_STORED_COUNT; s++) {
        if (k->stored[s].tensors > 0 &&
            json_object_set_new(types, tpw_stored_name((tpw_stored)s), tally_json(&k->stored[s])) != 0) {
            json_decref(types);
            types = NULL;
        }
    }
    json_t *line =
        json_pack("{s:s, s:i, s:o, s:o, s:i, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "type", "inspect", "schema",
                  TPW_JSONL_SCHEMA, "checkpoint", tpw_json_text(model, strlen(model)), "config",
                  config_json(&k->config), "files", k->files, "all", tally_json(&k->all), "dtypes", types,
                  "fp8_weights", (json_int_t)k->fp8_weights, "fp8_blocks", (json_int_t)k->fp8_blocks, "mtp",
                  tally_json(&k->mtp), "vision", tally_json(&k->vision), "tied_head", tally_json(&k->tied_head));
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (!text)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the JSON line");
    fprintf(out, "%s\n", text);
    free(text);
    return TPW_OK;
}

/* Reads every tensor that a model loads. */
static tpw_status digest_all(const char *path, tpw_checkpoint *checkpoint, const contents *k, tpw_error *err)
{
    int32_t total = tpw_checkpoint_count(checkpoint);
    int32_t n = 0;
    int64_t wanted = k->all.bytes - k->vision.bytes - k->tied_head.bytes;
    tpw_progress progress;
    tpw_tensor_info info;
    tpw_status st = TPW_OK;
    tpw_weight_digest *list = calloc((size_t)total + 1, sizeof *list);
    if (!list)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the digests of %d tensors", total);
    tpw_progress_init(&progress, STDERR_FILENO, isatty(STDERR_FILENO));
    for (int32_t i = 0; st == TPW_OK && i < total; i++) {
        st = tpw_checkpoint_get(checkpoint, i, &info, err);
        if (st != TPW_OK || tpw_weight_skipped(&k->config, info.name))
            continue;
        list[n].name = info.name;
        st = tpw_weight_digest_whole(checkpoint, &info, &list[n++].global, err);
        tpw_progress_say(&progress, "digesting weights, %.0f of %.0f MiB", mib(tpw_checkpoint_bytes_read(checkpoint)),
                         mib(wanted));
    }
    tpw_progress_end(&progress);
    if (st == TPW_OK)
        st = tpw_weights_file_write(path, list, n, err);
    free(list);
    return st;
}

tpw_status tpw_cmd_inspect(int argc, char **argv, FILE *out, tpw_error *err)
{
    request r;
    contents k = {0};
    tpw_checkpoint *checkpoint = NULL;
    TPW_TRY(parse(argc, argv, &r, err));
    if (r.help) {
        put_usage(out);
        return TPW_OK;
    }
    TPW_TRY(tpw_config_load(r.model, &k.config, err));
    TPW_TRY(tpw_checkpoint_open(r.model, &checkpoint, err));
    collect(checkpoint, &k);
    tpw_status st = TPW_OK;
    if (r.json)
        st = put_json(out, r.model, &k, err);
    else
        put_table(out, r.model, &k);
    if (st == TPW_OK && r.digests)
        st = digest_all(r.digests, checkpoint, &k, err);
    tpw_checkpoint_close(checkpoint);
    return st;
}
