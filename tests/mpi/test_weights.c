/* Digests of weights across ranks: the same for every number of them, and what they find when a rank has other files.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "mpi_test.h"

#include "../unit/temp_folder.h"
#include "../unit/weights_by_hand.h"
#include "cli/weights_file.h"
#include "model/checkpoint.h"
#include "model/weight_digest.h"
#include "tpworker/mpi.h"

#define ODD      TPW_TEST_DATA "/tiny/qwen35-odd"
#define NORM     "model.language_model.layers.2.post_attention_layernorm.weight"
#define FP8      "model.language_model.layers.5.mlp.gate_proj.weight"
#define OTHER_OF 1 /* the rank with the other revision; of one rank, that one */

MPI_SUITE(weights);

#define MUST(call)                                                                       \
    do {                                                                                 \
        tpw_error err_ = {0};                                                            \
        tpw_error *err = &err_;                                                          \
        tpw_status st_ = (call);                                                         \
        cr_assert_eq(st_, TPW_OK, "%s: %s: %s", #call, tpw_status_name(st_), err_.text); \
    } while (0)

static tpw_options options_of(const char *model, const char *dummy)
{
    tpw_options o = TPW_OPTIONS_INIT;

    o.model = model;
    o.dummy = dummy;
    if (dummy != NULL) {
        o.dummy_layers = 1; /* that of MTP is one of attention */
        o.dummy_vocab = 509;
    }
    o.sequences_max = 1;
    o.rows_max = 16;
    o.context_max = 64;
    o.timeout_ms = 20000;
    o.weight_digests = true;
    return o;
}

/* The worker's list against whole tensors that one process reads. Returns how many were compared. */
static int compare_whole(const tpw_worker *w, const tpw_config *config, tpw_checkpoint *checkpoint)
{
    const tpw_weight_digest *list;
    int32_t count, n = 0;

    tpw_worker_weight_digests(w, &list, &count);
    for (int32_t i = 0; i < tpw_checkpoint_count(checkpoint); i++) {
        tpw_tensor_info info;
        uint64_t whole = 0;

        MUST(tpw_checkpoint_get(checkpoint, i, &info, err));
        if (tpw_weight_skipped(config, info.name))
            continue;
        cr_assert_lt(n, count);
        cr_assert_str_eq(list[n].name, info.name);
        MUST(tpw_weight_digest_whole(checkpoint, &info, &whole, err));
        cr_assert_eq(list[n].global, whole, "%s on %d ranks: %016llx, whole %016llx", info.name, mt_size,
                     (unsigned long long)list[n].global, (unsigned long long)whole);
        n++;
    }
    cr_assert_eq(n, count, "%d tensors, the worker has %d", n, count);
    return n;
}

static void check_model(const char *model, const char *dummy, int wanted)
{
    const tpw_options o = options_of(model, dummy);
    tpw_checkpoint *checkpoint = NULL;
    tpw_worker *w = NULL;
    tpw_config config;

    MUST(tpw_worker_create(&o, MPI_COMM_WORLD, &w, err));
    MUST(tpw_worker_load(w, err));
    if (mt_rank == mt_size - 1) { /* each has the whole list, one looks at it */
        if (dummy != NULL) {
            MUST(tpw_config_dummy(dummy, o.dummy_layers, o.dummy_vocab, &config, err));
            MUST(tpw_checkpoint_open_dummy(&config, &checkpoint, err));
        } else {
            MUST(tpw_config_load(model, &config, err));
            MUST(tpw_checkpoint_open(model, &checkpoint, err));
        }
        cr_assert_eq(compare_whole(w, &config, checkpoint), wanted);
        tpw_checkpoint_close(checkpoint);
    }
    MUST(tpw_worker_finalize(w, err));
    tpw_worker_destroy(w);
}

MPI_TEST(weights, pocket_is_the_same_on_all_counts)
{
    check_model(TPW_TEST_POCKET, NULL, 181);
}

MPI_TEST(weights, odd_is_the_same_on_all_counts)
{
    check_model(ODD, NULL, 55);
}

/* Two KV heads: four ranks hold copies. A tied head, FP8 with BF16 scales. Tensors: a linear layer of 20, 18 + 4
 * of MTP, 2 ends. */
MPI_TEST(weights, dummy_is_the_same_on_all_counts)
{
    check_model(NULL, "qwen3.5-0.8b", 20 + 22 + 2);
}

MPI_TEST(weights, none_unless_asked_for)
{
    tpw_options o = options_of(ODD, NULL);
    const tpw_weight_digest *list = (const tpw_weight_digest *)&o;
    tpw_worker *w = NULL;
    int32_t count = 7;

    o.weight_digests = false;
    MUST(tpw_worker_create(&o, MPI_COMM_WORLD, &w, err));
    MUST(tpw_worker_load(w, err));
    tpw_worker_weight_digests(w, &list, &count);
    cr_assert_eq(count, 0);
    cr_assert_null(list);
    MUST(tpw_worker_finalize(w, err));
    tpw_worker_destroy(w);
}

/* A copy of the pocket model with one byte of a tensor changed, at a share of its rows. */
static void other_revision(temp_folder *temp, const char *tensor, int row_part, int row_parts)
{
    static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors.index.json",
                                        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    int changed = 0;

    temp_make(temp);
    for (int i = 0; i < 5; i++) {
        char from[600];

        (void)snprintf(from, sizeof from, "%s/%s", TPW_TEST_POCKET, names[i]);
        hand_copy(from, temp_path(temp, names[i]));
        if (i < 3)
            continue;
        hand_file file;
        hand_open(&file, temp->file);
        const hand_tensor *t = hand_find(&file, tensor);
        if (t != NULL) {
            int64_t row = t->rows * row_part / row_parts + 1;
            size_t at = t->begin + t->bytes / (size_t)t->rows * (size_t)row;
            unsigned char byte = file.data[at] ^ 0x01;

            if (t->size == 1 && (byte & 0x7F) == 0x7F) /* not a NaN, which would be refused as damage */
                byte = file.data[at] ^ 0x02;
            int fd = open(temp->file, O_WRONLY);
            changed += pwrite(fd, &byte, 1, (off_t)at) == 1;
            close(fd);
        }
        hand_close(&file);
    }
    cr_assert_eq(changed, 1, "%s was changed %d times", tensor, changed);
}

static bool has_other(void)
{
    return mt_rank == (mt_size > OTHER_OF ? OTHER_OF : 0);
}

/* What run --expect-weights does: the list against digests of the true model. */
static tpw_status against_file(const tpw_worker *w, tpw_error *why)
{
    tpw_checkpoint *checkpoint = NULL;
    const tpw_weight_digest *list;
    json_t *expected = json_object();
    int32_t count;

    MUST(tpw_checkpoint_open(TPW_TEST_POCKET, &checkpoint, err));
    for (int32_t i = 0; i < tpw_checkpoint_count(checkpoint); i++) {
        tpw_tensor_info info;
        uint64_t whole = 0;
        char text[17];

        MUST(tpw_checkpoint_get(checkpoint, i, &info, err));
        MUST(tpw_weight_digest_whole(checkpoint, &info, &whole, err));
        (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)whole);
        json_object_set_new(expected, info.name, json_string(text));
    }
    tpw_checkpoint_close(checkpoint);
    tpw_worker_weight_digests(w, &list, &count);
    tpw_status st = tpw_weights_compare("pocket.json", expected, list, count, why);
    json_decref(expected);
    return st;
}

/* Loads with the other revision on one rank. With several ranks and `seen` the load must end with `tensor` and that rank; else it
 * succeeds, and a file of digests tells. */
static void load_other(const char *tensor, int row_part, int row_parts, bool seen)
{
    tpw_options o = options_of(TPW_TEST_POCKET, NULL);
    temp_folder temp = {.path = ""};
    tpw_worker *w = NULL;
    tpw_error why = {0};

    if (has_other()) {
        other_revision(&temp, tensor, row_part, row_parts);
        o.model = temp.path;
    }
    o.weight_digests = !seen || mt_size == 1;
    MUST(tpw_worker_create(&o, MPI_COMM_WORLD, &w, err));
    tpw_status st = tpw_worker_load(w, &why);
    if (has_other())
        temp_remove(&temp);
    if (seen && mt_size > 1) {
        cr_assert_eq(st, TPW_ERR_DIVERGED, "%s: %s", tpw_status_name(st), why.text);
        cr_assert_not_null(strstr(why.text, tensor), "%s", why.text);
        cr_assert_not_null(strstr(why.text, " of rank 1 ("), "%s", why.text);
        cr_assert_not_null(strstr(why.text, "not that of rank 0 ("), "%s", why.text);
    } else {
        cr_assert_eq(st, TPW_OK, "%s: %s", tpw_status_name(st), why.text);
        if (mt_rank == 0) { /* whose task it is in run; all have the same list */
            st = against_file(w, &why);
            cr_assert_eq(st, TPW_ERR_DIVERGED, "%s: %s", tpw_status_name(st), why.text);
            cr_assert_not_null(strstr(why.text, tensor), "%s", why.text);
            cr_assert_not_null(strstr(why.text, "1 of 181 differ"), "%s", why.text);
        }
        MUST(tpw_worker_finalize(w, err));
    }
    tpw_worker_destroy(w);
}

/* F18: ranks hold copies of a norm, and no file is needed to see that they differ. */
MPI_TEST(weights, another_norm_on_one_rank)
{
    load_other(NORM, 0, 1, true);
}

/* The other rank's part of an FP8 weight is nobody else's: the ranks agree on what comes of it, and only the digests of the true model
 * tell. */
MPI_TEST(weights, another_value_in_the_shard_of_one_rank)
{
    load_other(FP8, mt_size > OTHER_OF ? OTHER_OF : 0, mt_size, false);
}

/* A value in the file of rank 1 that rank 1 does not read makes no difference: not to what runs, and not to the digests. */
MPI_TEST(weights, another_value_that_nobody_reads)
{
    tpw_options o = options_of(TPW_TEST_POCKET, NULL);
    temp_folder temp = {.path = ""};
    tpw_worker *w = NULL;
    tpw_error why = {0};

    if (mt_size > 1 && has_other()) {
        other_revision(&temp, FP8, 0, 1); /* rank 0's rows */
        o.model = temp.path;
    }
    MUST(tpw_worker_create(&o, MPI_COMM_WORLD, &w, err));
    MUST(tpw_worker_load(w, err));
    if (o.model == temp.path)
        temp_remove(&temp);
    if (mt_rank == 0)
        cr_assert_eq(against_file(w, &why), TPW_OK, "%s", why.text);
    MUST(tpw_worker_finalize(w, err));
    tpw_worker_destroy(w);
}
