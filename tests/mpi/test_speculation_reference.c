/* The MTP chain of pocket against the drafts that an independent implementation proposed, and the tokens a step that come of
 * them; both float32. SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_test.h"

#include "engine.h"
#include "tpworker/mpi.h"

#define MARGIN     1e-3 /* below it two float32 implementations may choose differently */
#define STEPS      64
#define DRAFTS     4
#define PROMPTS    11
#define NEAR_TIES  8 /* of 2,816 drafts, at most so many may differ */
#define ROWS_MAX   320
#define POSITIONS  512
#define FREE_LIMIT (STEPS + DRAFTS + 4)

MPI_SUITE(drafts);

#define MUST(call)                                                                       \
    do {                                                                                 \
        tpw_error err_ = {0};                                                            \
        tpw_error *err = &err_;                                                          \
        tpw_status st_ = (call);                                                         \
        cr_assert_eq(st_, TPW_OK, "%s: %s: %s", #call, tpw_status_name(st_), err_.text); \
    } while (0)

/* One prompt of the reference that has drafts. */
typedef struct reference {
    const char *name;
    int32_t *ids;
    int32_t *out;
    int32_t count;
    int32_t out_count;
    int32_t drafts[STEPS][DRAFTS];
    double tokens_per_step[DRAFTS + 1]; /* by K */
} reference;

static int32_t read_references(const json_t *list, reference out[PROMPTS])
{
    int32_t n = 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i), *drafts = json_object_get(p, "drafts");
        char key[32];

        if (drafts == NULL)
            continue;
        cr_assert(n < PROMPTS && json_array_size(drafts) == STEPS);
        reference *r = &out[n++];
        r->name = json_string_value(json_object_get(p, "name"));
        r->ids = engine_ints(json_object_get(p, "ids"), &r->count);
        r->out = engine_ints(json_object_get(p, "out"), &r->out_count);
        for (size_t s = 0; s < STEPS; s++) {
            const json_t *row = json_array_get(drafts, s);

            cr_assert_eq(json_array_size(row), DRAFTS);
            for (size_t j = 0; j < DRAFTS; j++)
                r->drafts[s][j] = (int32_t)json_integer_value(json_array_get(row, j));
        }
        for (int k = 1; k <= DRAFTS; k++) {
            snprintf(key, sizeof key, "tokens_per_step_k%d", k);
            r->tokens_per_step[k] = json_real_value(json_object_get(p, key));
            cr_assert_gt(r->tokens_per_step[k], 1.0);
        }
    }
    return n;
}

static void free_references(reference *r, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        free(r[i].ids);
        free(r[i].out);
    }
}

/* Best and second of the first row of the last head call, over all ranks. Collective. */
static double margin_of_last(const engine *e)
{
    const float *logits = e->pass->ws.logits.data;
    float two[2] = {-INFINITY, -INFINITY}, all[2 * 8];

    for (int32_t v = 0; v < e->part.vocab.count; v++)
        if (logits[v] > two[0]) {
            two[1] = two[0];
            two[0] = logits[v];
        } else if (logits[v] > two[1]) {
            two[1] = logits[v];
        }
    MPI_Allgather(two, 2, MPI_FLOAT, all, 2, MPI_FLOAT, MPI_COMM_WORLD);
    two[0] = two[1] = -INFINITY;
    for (int i = 0; i < 2 * mt_size; i++)
        if (all[i] > two[0]) {
            two[1] = two[0];
            two[0] = all[i];
        } else if (all[i] > two[1]) {
            two[1] = all[i];
        }
    return (double)two[0] - (double)two[1];
}

/* MTP rows `ids` at pos.. with hiddens `hidden`. */
static void run_mtp(engine *e, const int32_t *ids, int32_t rows, int64_t pos, const tpw_mat *hidden)
{
    MUST(engine_mtp(e, ids, rows, pos, hidden, err));
}

/* The chain of drafts behind the kept output for position `pos`, as a step makes it. Returns how many differ, all of them near ties. */
static int32_t compare_chain(engine *e, const reference *r, int32_t s, int64_t pos, int32_t got[DRAFTS])
{
    const int32_t first = 0, slot = 1;
    int32_t differ = 0;

    MUST(tpw_pass_recall_mtp(e->pass, &slot, 1, err));
    for (int32_t j = 0; j < DRAFTS; j++) {
        if (j > 0)
            run_mtp(e, &got[j - 1], 1, pos + j, &e->pass->ws.carry);
        MUST(engine_head(e, &first, 1, &got[j], err));
        if (got[j] != r->drafts[s][j]) {
            double margin = margin_of_last(e);

            if (mt_rank == 0)
                printf("%s, s %d, draft %d: %d instead of %d, margin %g\n", r->name, s, j, got[j], r->drafts[s][j],
                       margin);
            cr_assert_lt(margin, MARGIN, "%s, s %d, draft %d: %d instead of %d", r->name, s, j, got[j],
                         r->drafts[s][j]);
            differ++;
            got[j] = r->drafts[s][j]; /* the rest of the chain is the reference's */
        }
        MUST(tpw_pass_carry(e->pass, &first, 1, err));
    }
    return differ;
}

/* The trunk emits out[0..s] for each s; behind each the module follows and proposes. */
static int32_t compare_drafts(engine *e, const reference *r, int32_t got[STEPS][DRAFTS])
{
    int32_t *shifted = calloc((size_t)r->count, sizeof *shifted), differ = 0;
    const int32_t first = 0, last = r->count - 1, slot = 1;

    cr_assert(r->count <= ROWS_MAX && r->count + STEPS + DRAFTS <= POSITIONS);
    memcpy(shifted, r->ids + 1, (size_t)(r->count - 1) * sizeof *shifted);
    shifted[r->count - 1] = r->out[0];
    MUST(engine_run(e, r->ids, r->count, 0, err));
    run_mtp(e, shifted, r->count, 0, &e->pass->ws.y);
    MUST(tpw_pass_keep_mtp(e->pass, &last, &slot, 1, err));
    for (int32_t s = 0; s < STEPS; s++) {
        int64_t pos = r->count - 1 + s;

        if (s > 0) {
            MUST(engine_run(e, &r->out[s - 1], 1, pos, err));
            run_mtp(e, &r->out[s], 1, pos, &e->pass->ws.y);
            MUST(tpw_pass_keep_mtp(e->pass, &first, &slot, 1, err));
        }
        differ += compare_chain(e, r, s, pos, got[s]);
    }
    free(shifted);
    return differ;
}

/* Emitted over steps of a run with K drafts, by the rule of the reference. */
static double tokens_per_step(const reference *r, int32_t drafts[STEPS][DRAFTS], int32_t k)
{
    int32_t s = 0, steps = 0, emitted = 0;

    while (s + k + 1 < STEPS) {
        int32_t a = 0;

        while (a < k && drafts[s][a] == r->out[s + 1 + a])
            a++;
        s += a + 1;
        emitted += a + 1;
        steps++;
    }
    return (double)emitted / steps;
}

MPI_TEST(drafts, equal_the_reference, .timeout = 140)
{
    json_t *list = json_load_file(TPW_TEST_POCKET "/reference/greedy.json", JSON_REJECT_DUPLICATES, NULL);
    static reference r[PROMPTS];
    int32_t got[STEPS][DRAFTS], n = read_references(list, r), differ = 0, rates = 0;
    engine e;

    cr_assert_eq(n, PROMPTS);
    MUST(engine_open(&e, TPW_TEST_POCKET, TPW_F32, POSITIONS, ROWS_MAX, 1, MPI_COMM_WORLD, err));
    for (int32_t i = 0; i < n; i++) {
        differ += compare_drafts(&e, &r[i], got);
        for (int32_t k = 1; k <= DRAFTS; k++, rates++)
            cr_assert_float_eq(tokens_per_step(&r[i], got, k), r[i].tokens_per_step[k], 1e-12,
                               "%s: K %d gives %.17g tokens a step instead of %.17g", r[i].name, k,
                               tokens_per_step(&r[i], got, k), r[i].tokens_per_step[k]);
    }
    cr_assert_leq(differ, NEAR_TIES);
    cr_assert_eq(rates, PROMPTS * DRAFTS);
    if (mt_rank == 0)
        printf("drafts, %d ranks: %d equal, %d near ties; %d rates equal\n", mt_size, n * STEPS * DRAFTS - differ,
               differ, rates);
    engine_close(&e);
    free_references(r, n);
    json_decref(list);
}

/* What a worker emitted for a prompt, step by step: where each run of tokens began. */
typedef struct emission {
    int32_t count;
    int32_t runs;
    int32_t begin[FREE_LIMIT + 1];
} emission;

static void admit(tpw_worker *worker, const reference *r, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const tpw_request request = {.size = sizeof request,
                                     .id = (uint64_t)i,
                                     .ids = r[i].ids,
                                     .count = r[i].count,
                                     .max_tokens = FREE_LIMIT,
                                     .ignore_eos = true};

        MUST(tpw_worker_admit(worker, &request, err));
    }
}

/* Runs the worker with its MTP drafter and K = k. */
static void run_worker(const reference *r, int32_t n, int32_t k, emission *out)
{
    tpw_options options = TPW_OPTIONS_INIT;
    tpw_worker *worker = NULL;
    tpw_event event;
    bool busy = true;

    options.model = TPW_TEST_POCKET;
    options.compute = TPW_COMPUTE_F32;
    options.sequences_max = 6;
    options.context_max = POSITIONS;
    options.draft_max = k;
    MUST(tpw_worker_create(&options, MPI_COMM_WORLD, &worker, err));
    MUST(tpw_worker_load(worker, err));
    if (mt_rank == 0)
        admit(worker, r, n);
    while (busy) {
        bool began[PROMPTS] = {false};

        MUST(tpw_worker_step(worker, &busy, err));
        while (tpw_worker_poll(worker, &event)) {
            emission *e = &out[event.id];

            if (event.type != TPW_EVENT_TOKEN)
                continue;
            if (!began[event.id])
                e->begin[e->runs++] = e->count;
            began[event.id] = true;
            cr_assert_eq(event.token, r[event.id].out[e->count], "%s, K %d: token %d", r[event.id].name, k, e->count);
            e->count++;
        }
    }
    MUST(tpw_worker_finalize(worker, err));
    tpw_worker_destroy(worker);
}

/* The worker's own draft phase: its runs of tokens give the reference's tokens a step, exactly. */
MPI_TEST(drafts, worker_emits_as_many_tokens_a_step, .timeout = 140)
{
    json_t *list = json_load_file(TPW_TEST_POCKET "/reference/greedy.json", JSON_REJECT_DUPLICATES, NULL);
    static reference r[PROMPTS];
    int32_t n = read_references(list, r), compared = 0;

    cr_assert_eq(n, PROMPTS);
    for (int32_t k = 1; k <= DRAFTS; k++) {
        emission out[PROMPTS] = {{0}};

        run_worker(r, n, k, out);
        for (int32_t i = 0; i < n; i++, compared++) {
            const emission *e = &out[i];
            int32_t steps = 0, emitted = 0;

            /* run 0 is the token of the prompt; the run that begins at token s + 1 is the step at s */
            cr_assert_eq(e->count, FREE_LIMIT);
            for (int32_t run = 1; e->begin[run] - 1 + k + 1 < STEPS; run++, steps++)
                emitted += e->begin[run + 1] - e->begin[run];
            cr_assert_float_eq((double)emitted / steps, r[i].tokens_per_step[k], 1e-12,
                               "%s, K %d: %d tokens in %d steps instead of %.17g", r[i].name, k, emitted, steps,
                               r[i].tokens_per_step[k]);
        }
    }
    cr_assert_eq(compared, PROMPTS * DRAFTS);
    free_references(r, n);
    json_decref(list);
}
