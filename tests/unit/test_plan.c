/* Tests of the plan: it is what a load allocates, to the byte, and reads no weights; what cannot be run or cut is refused.
 *
 * A rank is loaded here without its peers; tests/cli compares with whole workers. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd_plan.h"
#include "kernels/host/host.h"
#include "kernels/rope.h"
#include "model/pass.h"
#include "model/state.h"
#include "model/weights.h"
#include "worker/plan.h"

#define MUST(call) cr_assert_eq((call), TPW_OK, "%s: %s", #call, err.text)

typedef struct subject {
    tpw_options options;
    tpw_config config;
    tpw_checkpoint *checkpoint;
    tpw_plan_limits limits;
} subject;

static void open_subject(subject *s, const tpw_options *options)
{
    tpw_error err = {0};

    s->options = *options;
    MUST(tpw_plan_open(options, &s->config, &s->checkpoint, &err));
    MUST(tpw_plan_limits_make(options, &s->config, &s->limits, &err));
}

/* What load does on one rank, on the host backend; compares every kind and the sum. */
static void compare_with_load(subject *s, int rank, int size)
{
    tpw_exec *exec = NULL;
    tpw_partition part;
    tpw_model *model = NULL;
    tpw_pool *pool = NULL;
    tpw_backing backing;
    tpw_state *state = NULL;
    tpw_pass *pass = NULL;
    tpw_comm comm = {.rank = rank, .size = size}; /* is never called */
    tpw_plan plan;
    tpw_error err = {0};
    size_t before;
    float *rope = malloc((size_t)s->limits.context_max * (size_t)s->config.rope_dim * sizeof(float));

    MUST(tpw_plan_make(&s->config, s->checkpoint, &s->limits, rank, size, &plan, &err));
    MUST(tpw_host_create("auto", &exec, &err));
    backing = tpw_backing_of(exec);
    MUST(tpw_pool_create(&backing, false, &pool, &err));
    MUST(tpw_rope_fill(rope, s->limits.context_max, s->config.rope_dim, s->config.rope_theta, &err));
    MUST(tpw_partition_make(&s->config, rank, size, &part, &err));
    cr_assert_eq(exec->device->bytes_now(exec), 0u);
    MUST(tpw_model_load(&s->config, &part, s->checkpoint, exec, pool, rope, s->limits.context_max, NULL, NULL, &model,
                        &err));
    before = exec->device->bytes_now(exec);
    cr_assert_eq(before, plan.weights, "rank %d of %d: weights %zu, planned %zu", rank, size, before, plan.weights);
    MUST(tpw_state_create(&s->config, &part, &s->limits.state, exec, pool, &state, &err));
    cr_assert_eq(exec->device->bytes_now(exec) - before, plan.kv + plan.state, "rank %d of %d: state %zu, planned %zu",
                 rank, size, exec->device->bytes_now(exec) - before, plan.kv + plan.state);
    before = exec->device->bytes_now(exec);
    MUST(tpw_pass_create(model, state, &comm, &s->limits.pass, &pass, &err));
    cr_assert_eq(exec->device->bytes_now(exec) - before, plan.workspace, "rank %d of %d: workspace %zu, planned %zu",
                 rank, size, exec->device->bytes_now(exec) - before, plan.workspace);
    cr_assert_eq(exec->device->bytes_now(exec), plan.total, "rank %d of %d", rank, size);
    cr_assert_eq(exec->device->bytes_peak(exec), plan.total, "rank %d of %d", rank, size);
    cr_assert_gt(plan.weights, 0u);
    cr_assert_gt(plan.kv, 0u);
    cr_assert_gt(plan.state, 0u);
    cr_assert_gt(plan.workspace, 0u);
    cr_assert_gt(plan.communication, 0u);
    tpw_pass_destroy(pass);
    tpw_state_destroy(state);
    tpw_model_destroy(model);
    free(rope);
    MUST(tpw_pool_destroy(pool, &err));
    tpw_host_destroy(exec);
}

static tpw_options options_of(const char *model, const char *dummy)
{
    tpw_options o;

    tpw_options_init(&o);
    o.model = model;
    o.dummy = dummy;
    o.sequences_max = 3;
    o.rows_max = 40;
    o.context_max = 300;
    return o;
}

Test(plan, equals_what_a_load_allocates)
{
    static const struct {
        const char *model, *dummy;
        int32_t k, pages;
        tpw_compute compute;
    } cases[] = {{TPW_TEST_POCKET, NULL, 0, 0, TPW_COMPUTE_BF16},
                 {TPW_TEST_POCKET, NULL, 4, 0, TPW_COMPUTE_BF16},
                 {TPW_TEST_POCKET, NULL, 1, 7, TPW_COMPUTE_F32},
                 {TPW_TEST_DATA "/tiny/qwen35-odd", NULL, 0, 0, TPW_COMPUTE_BF16},
                 {NULL, "qwen3.5-0.8b", 2, 0, TPW_COMPUTE_BF16}};
    int compared = 0, refused = 0;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int size = 1; size <= 4; size *= 2) {
            tpw_options o = options_of(cases[i].model, cases[i].dummy);
            subject s;
            tpw_partition part;

            o.draft_max = cases[i].k;
            o.pages = cases[i].pages;
            o.compute = cases[i].compute;
            o.dummy_layers = o.dummy != NULL ? 4 : 0;
            o.dummy_vocab = o.dummy != NULL ? 999 : 0;
            open_subject(&s, &o);
            for (int rank = 0; rank < size; rank++) {
                if (tpw_partition_make(&s.config, rank, size, &part, NULL) != TPW_OK) {
                    refused++;
                    continue;
                }
                compare_with_load(&s, rank, size);
                compared++;
            }
            tpw_checkpoint_close(s.checkpoint);
        }
    cr_assert_geq(compared, 4 * 7 + 1, "%d ranks were compared", compared);
    cr_assert_eq(compared + refused, 5 * 7);
}

/* From the headers alone, also where they speak of more than a disk holds. */
Test(plan, reads_no_weights_and_adds_up)
{
    tpw_options o = options_of(NULL, "qwen3.5-27b");
    tpw_error err = {0};
    subject s;
    tpw_plan one, part;
    size_t sum = 0;

    o.sequences_max = 16;
    o.draft_max = 8;
    o.rows_max = 256;
    open_subject(&s, &o);
    MUST(tpw_plan_make(&s.config, s.checkpoint, &s.limits, 0, 1, &one, &err));
    for (int rank = 0; rank < 8; rank++) {
        MUST(tpw_plan_make(&s.config, s.checkpoint, &s.limits, rank, 8, &part, &err));
        cr_assert_eq(part.total, part.weights + part.kv + part.state + part.workspace);
        cr_assert_lt(part.total, one.total / 4);
        sum += part.weights;
    }
    cr_assert_gt(sum, one.weights, "copies and cut blocks");
    cr_assert_lt(sum, one.weights + one.weights / 20, "%zu, %zu", sum, one.weights);
    cr_assert_eq(tpw_checkpoint_bytes_read(s.checkpoint), 0);
    tpw_checkpoint_close(s.checkpoint);
    o = options_of(TPW_TEST_POCKET, NULL);
    open_subject(&s, &o);
    MUST(tpw_plan_make(&s.config, s.checkpoint, &s.limits, 1, 2, &part, &err));
    cr_assert_eq(tpw_checkpoint_bytes_read(s.checkpoint), 0);
    tpw_checkpoint_close(s.checkpoint);
}

Test(plan, pages_and_context_follow_the_options)
{
    tpw_options o = options_of(TPW_TEST_POCKET, NULL);
    tpw_error err = {0};
    subject s;

    o.draft_max = 2;
    open_subject(&s, &o);
    cr_assert_eq(s.limits.context_max, 300);
    cr_assert_eq(s.limits.state.pages, 3 * 5, "ceil(302 / 64) pages for each");
    cr_assert_eq(s.limits.state.slots, 3);
    cr_assert(s.limits.state.mtp);
    cr_assert_eq(s.limits.pass.logits_max, 9);
    o.context_max = 0;
    o.pages = 11;
    MUST(tpw_plan_limits_make(&o, &s.config, &s.limits, &err));
    cr_assert_eq(s.limits.context_max, s.config.positions_max < 4096 ? s.config.positions_max : 4096);
    cr_assert_eq(s.limits.state.pages, 11);
    s.config.positions_max = 100;
    MUST(tpw_plan_limits_make(&o, &s.config, &s.limits, &err));
    cr_assert_eq(s.limits.context_max, 100);
    tpw_checkpoint_close(s.checkpoint);
}

static void refuse(tpw_status got, tpw_status wanted, const tpw_error *err, const char *part)
{
    cr_assert_eq(got, wanted, "%s: \"%s\"", tpw_status_name(got), err->text);
    cr_assert_not_null(strstr(err->text, part), "\"%s\" lacks \"%s\"", err->text, part);
}

Test(plan, what_cannot_be_is_refused)
{
    tpw_options o = options_of(TPW_TEST_DATA "/tiny/qwen35-odd", NULL);
    tpw_error err = {0};
    subject s;
    tpw_plan plan;

    open_subject(&s, &o);
    refuse(tpw_plan_make(&s.config, s.checkpoint, &s.limits, 0, 3, &plan, &err), TPW_ERR_ARGUMENT, &err, "size 3");
    s.limits.state.mtp = true;
    refuse(tpw_plan_make(&s.config, s.checkpoint, &s.limits, 0, 1, &plan, &err), TPW_ERR_ARGUMENT, &err,
           "no MTP weights");
    s.limits.state.mtp = false;
    s.config.intermediate *= 2;
    refuse(tpw_plan_make(&s.config, s.checkpoint, &s.limits, 0, 1, &plan, &err), TPW_ERR_CHECKPOINT, &err, "mlp.");
    s.config.intermediate /= 2;
    o.context_max = s.config.positions_max + 1;
    refuse(tpw_plan_limits_make(&o, &s.config, &s.limits, &err), TPW_ERR_LIMIT, &err, "the model has");
    o.context_max = 0;
    o.sequences_max = 4096;
    o.page_size = 1;
    s.config.positions_max = 1 << 24;
    o.context_max = 1 << 24;
    refuse(tpw_plan_limits_make(&o, &s.config, &s.limits, &err), TPW_ERR_LIMIT, &err, "too many");
    o.pages = INT32_MAX - 1;
    o.page_size = 256;
    s.config.head_dim = 1 << 20;
    s.config.kv_heads = 1 << 10;
    MUST(tpw_plan_limits_make(&o, &s.config, &s.limits, &err));
    cr_assert_neq(tpw_plan_make(&s.config, s.checkpoint, &s.limits, 0, 1, &plan, &err), TPW_OK);
    tpw_checkpoint_close(s.checkpoint);
    o = options_of("/nowhere", NULL);
    refuse(tpw_plan_open(&o, &s.config, &s.checkpoint, &err), TPW_ERR_MISSING, &err, "/nowhere");
}

Test(plan, memory_is_bytes_or_has_a_unit)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } cases[] = {{"1", 1},
                 {"85899345920", 85899345920u},
                 {"80GiB", 85899345920u},
                 {"1.5TiB", 1649267441664u},
                 {"0.5KiB", 512},
                 {"0.000001MiB", 1},
                 {"12.25MiB", 12845056},
                 {"18446744073709551615", UINT64_MAX},
                 {"18446744073709551616", 0},
                 {"16777216TiB", 0},
                 {"16777215.999999TiB", ((uint64_t)16777215 << 40) + 1099510528264u},
                 {"", 0},
                 {"0", 0},
                 {"0GiB", 0},
                 {"-1", 0},
                 {"+1", 0},
                 {" 1", 0},
                 {"1 ", 0},
                 {"1.5", 0},
                 {"1.GiB", 0},
                 {".5GiB", 0},
                 {"1.0000001GiB", 0},
                 {"1GB", 0},
                 {"1gib", 0},
                 {"1GiBx", 0},
                 {"0x10", 0},
                 {"many", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tpw_error err = {0};
        uint64_t bytes = 0;
        tpw_status st = tpw_memory_parse(cases[i].text, &bytes, &err);

        if (cases[i].bytes == 0)
            refuse(st, TPW_ERR_ARGUMENT, &err, "GiB");
        else
            cr_assert(st == TPW_OK && bytes == cases[i].bytes, "%s: %llu, not %llu", cases[i].text,
                      (unsigned long long)bytes, (unsigned long long)cases[i].bytes);
    }
}

Test(plan, ranks_divide_a_gpu)
{
    static const struct {
        int64_t tp;
        int32_t gpus;
        int64_t ranks_per_gpu, sharers;
    } cases[] = {{1, 1, 1, 1}, {2, 2, 1, 1}, {2, 1, 1, 1}, {2, 1, 2, 2}, {8, 2, 4, 4},
                 {8, 2, 3, 1}, {8, 3, 8, 3}, {4, 8, 8, 1}, {2, 0, 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t sharers = 0;
        uint64_t share = tpw_memory_share(1200, cases[i].tp, cases[i].gpus, cases[i].ranks_per_gpu, &sharers);
        cr_assert_eq(sharers, cases[i].sharers, "case %zu: %lld", i, (long long)sharers);
        cr_assert_eq(share, 1200 / (uint64_t)cases[i].sharers);
    }
}
