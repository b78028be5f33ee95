/* Tests of the preflight without MPI and GPUs: ranks as threads, communicators that are wrong in one way each, and the pure
 * parts. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local_ranks.h"
#include "tp/comm.h"
#include "worker/doctor.h"

#define VALUES 327680 /* of one all-reduce: 64 rows of 5120 */

/* What one rank's communicator does besides its work. */
typedef enum fault {
    FAULT_NONE,
    FAULT_BIT,      /* one bit of one sum */
    FAULT_ZERO,     /* -0 becomes +0 */
    FAULT_FLUSH,    /* subnormals become 0 */
    FAULT_ORDER,    /* sums from rank 0 on, in order */
    FAULT_NO_COMM,  /* it cannot be made */
    FAULT_EXCHANGE, /* it fails */
    FAULT_ISA,      /* nobody has such instructions */
    FAULT_ABSENT    /* the rank never comes */
} fault;

typedef struct scene {
    fault fault;
    int bad; /* rank, -1: all */
    tpw_doctor_rank *ranks[LOCAL_RANKS_MAX];
} scene;

static _Thread_local const scene *here;
static _Thread_local const tpw_comm_ops *real;
static _Thread_local tpw_comm_ops wrong;

static bool is_subnormal(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7F800000u) == 0 && (bits & 0x007FFFFFu) != 0;
}

static bool is_minus_zero(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits == 0x80000000u;
}

static tpw_status sum_in_order(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    float *all = malloc((size_t)comm->size * count * sizeof *all);
    tpw_status st = real->allgather(comm, x, all, count * sizeof *x, err);
    for (size_t i = 0; st == TPW_OK && i < count; i++) {
        volatile float sum = all[i];
        for (int r = 1; r < comm->size; r++)
            sum += all[(size_t)r * count + i];
        x[i] = sum;
    }
    free(all);
    return st;
}

static tpw_status allreduce_wrong(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    if (here->fault == FAULT_EXCHANGE)
        return tpw_fail(err, TPW_ERR_PEER, "the line is dead");
    if (here->fault == FAULT_ORDER)
        return sum_in_order(comm, x, count, err);
    TPW_TRY(real->allreduce(comm, x, count, err));
    if (here->fault == FAULT_BIT) {
        uint32_t bits;
        memcpy(&bits, &x[777], sizeof bits);
        bits ^= 1;
        memcpy(&x[777], &bits, sizeof bits);
    }
    for (size_t i = 0; i < count; i++)
        if ((here->fault == FAULT_ZERO && is_minus_zero(x[i])) || (here->fault == FAULT_FLUSH && is_subnormal(x[i])))
            x[i] = 0.0f;
    return TPW_OK;
}

static tpw_status make_comm(tpw_boot *boot, tpw_comm **out, tpw_error *err)
{
    bool bad = here->bad < 0 || here->bad == boot->rank;
    if (bad && here->fault == FAULT_NO_COMM)
        return tpw_fail(err, TPW_ERR_MEMORY, "there is no room");
    TPW_TRY(tpw_comm_local_create(boot, out, err));
    if (bad) {
        real = (*out)->ops;
        wrong = *real;
        wrong.allreduce = allreduce_wrong;
        (*out)->ops = &wrong;
    }
    return TPW_OK;
}

static tpw_status examine(local_rank *self)
{
    scene *s = self->data;
    bool bad = s->bad < 0 || s->bad == self->rank;
    tpw_doctor_options options = {.binding = TPW_BIND_NONE, .isa = "auto", .ranks_per_gpu = 1, .make_comm = make_comm};
    here = s;
    if (bad && s->fault == FAULT_ABSENT)
        return TPW_OK;
    if (bad && s->fault == FAULT_ISA)
        options.isa = "mmx";
    return tpw_doctor_run(self->boot, &options, s->ranks[self->rank], &self->err);
}

/* Runs it; what the ranks were told is compared by bytes and is then in s->ranks[0]. */
static void play(scene *s, int n)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    for (int r = 0; r < n; r++)
        s->ranks[r] = calloc((size_t)n, sizeof *s->ranks[r]);
    run_local(n, 20000, examine, s, ranks);
    expect_all_ok(ranks, n);
    for (int r = 1; r < n; r++) {
        cr_assert_eq(memcmp(s->ranks[0], s->ranks[r], (size_t)n * sizeof **s->ranks), 0, "rank %d was told else", r);
        free(s->ranks[r]);
    }
    for (int r = 0; r < n; r++) {
        cr_assert_eq(s->ranks[0][r].rank, r);
        cr_assert_eq(s->ranks[0][r].host[4], 'A' + r);
        cr_assert_eq(s->ranks[0][r].hosts, n);
        for (int id = 0; id < TPW_DOCTOR_CHECKS; id++)
            cr_assert_neq(s->ranks[0][r].checks[id].text[0], '\0', "rank %d, %s: no reason", r,
                          tpw_doctor_name((tpw_doctor_id)id));
    }
}

static const tpw_doctor_check *check_of(const scene *s, int rank, tpw_doctor_id id)
{
    return &s->ranks[0][rank].checks[id];
}

static void expect_result(const scene *s, int rank, tpw_doctor_id id, tpw_doctor_result result, tpw_status status)
{
    const tpw_doctor_check *c = check_of(s, rank, id);
    cr_assert(c->result == (int32_t)result && c->status == (int32_t)status, "rank %d, %s: result %d, %s, \"%s\"", rank,
              tpw_doctor_name(id), (int)c->result, tpw_status_name((tpw_status)c->status), c->text);
}

/* The verdict has this status and holds each of the '|'-separated parts. */
static void expect_verdict(const scene *s, int n, tpw_status status, const char *parts)
{
    tpw_error err = {0};
    char wanted[256];
    cr_assert_eq(tpw_doctor_verdict(s->ranks[0], n, &err), status, "%s", err.text);
    snprintf(wanted, sizeof wanted, "%s", parts);
    for (char *part = strtok(wanted, "|"); part; part = strtok(NULL, "|"))
        cr_assert_not_null(strstr(err.text, part), "\"%s\" lacks \"%s\"", err.text, part);
}

/* No GPU for any of these, also where there are some. */
static void hide_gpus(void)
{
    cr_assert_eq(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
}

TestSuite(doctor, .init = hide_gpus, .timeout = 50);

Test(doctor, nothing_is_wrong_without_gpus)
{
    static const int sizes[] = {1, 2, 4, 8};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        scene s = {.bad = -2};
        int n = sizes[k];
        play(&s, n);
        for (int r = 0; r < n; r++) {
            expect_result(&s, r, TPW_DOCTOR_TOPOLOGY, TPW_DOCTOR_OK, TPW_OK);
            expect_result(&s, r, TPW_DOCTOR_HOST, TPW_DOCTOR_OK, TPW_OK);
            expect_result(&s, r, TPW_DOCTOR_RANKS, TPW_DOCTOR_OK, TPW_OK);
            expect_result(&s, r, TPW_DOCTOR_CPUS, TPW_DOCTOR_OK, TPW_OK);
            expect_result(&s, r, TPW_DOCTOR_MEMORY, TPW_DOCTOR_OK, TPW_OK);
            expect_result(&s, r, TPW_DOCTOR_MPI, n > 1 ? TPW_DOCTOR_OK : TPW_DOCTOR_SKIPPED, TPW_OK);
            cr_assert_eq(check_of(&s, r, TPW_DOCTOR_MPI)->compared, n > 1 ? VALUES : 0);
            expect_result(&s, r, TPW_DOCTOR_GPU, TPW_DOCTOR_SKIPPED, TPW_OK);
            cr_assert_not_null(strstr(check_of(&s, r, TPW_DOCTOR_GPU)->text, s.ranks[0][r].no_gpu));
            cr_assert_neq(s.ranks[0][r].no_gpu[0], '\0');
            for (int id = TPW_DOCTOR_CUDA; id < TPW_DOCTOR_CHECKS; id++)
                expect_result(&s, r, (tpw_doctor_id)id, TPW_DOCTOR_SKIPPED, TPW_OK);
        }
        expect_verdict(&s, n, TPW_OK, "");
        free(s.ranks[0]);
    }
}

/* One rank's sums are wrong in a way that a weaker comparison would not see. */
Test(doctor, wrong_sums_of_one_rank_are_found)
{
    static const struct {
        fault fault;
        const char *parts;
    } cases[] = {{FAULT_BIT, "1 of 13 checks|mpi on rank 1 (hostB)|1 of 327680 sums|value 777 is"},
                 {FAULT_ZERO, "mpi on rank 1 (hostB)|is 0x0p+0 and should be -0x0p+0"},
                 {FAULT_FLUSH, "mpi on rank 1 (hostB)|value 191 is 0x0p+0 and should be -0x1.b84p-138"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        scene s = {.fault = cases[k].fault, .bad = 1};
        play(&s, 2);
        expect_result(&s, 0, TPW_DOCTOR_MPI, TPW_DOCTOR_OK, TPW_OK);
        expect_result(&s, 1, TPW_DOCTOR_MPI, TPW_DOCTOR_FAILED, TPW_ERR_DIVERGED);
        expect_verdict(&s, 2, TPW_ERR_DIVERGED, cases[k].parts);
        free(s.ranks[0]);
    }
}

/* All ranks have the same sums, but not the tree's: comparing ranks would find nothing. */
Test(doctor, another_order_on_all_ranks_is_found)
{
    scene s = {.fault = FAULT_ORDER, .bad = -1};
    play(&s, 4);
    for (int r = 0; r < 4; r++)
        expect_result(&s, r, TPW_DOCTOR_MPI, TPW_DOCTOR_FAILED, TPW_ERR_DIVERGED);
    expect_verdict(&s, 4, TPW_ERR_DIVERGED, "mpi on rank 0 (hostA)|of 327680 sums over 4 ranks");
    free(s.ranks[0]);
    /* of two ranks there is one order only */
    s = (scene){.fault = FAULT_ORDER, .bad = -1};
    play(&s, 2);
    expect_verdict(&s, 2, TPW_OK, "");
    free(s.ranks[0]);
}

Test(doctor, what_one_rank_lacks_is_found_and_nobody_waits)
{
    scene s = {.fault = FAULT_NO_COMM, .bad = 2};
    play(&s, 4);
    expect_result(&s, 0, TPW_DOCTOR_MPI, TPW_DOCTOR_SKIPPED, TPW_OK);
    expect_result(&s, 2, TPW_DOCTOR_MPI, TPW_DOCTOR_FAILED, TPW_ERR_MEMORY);
    expect_verdict(&s, 4, TPW_ERR_MEMORY, "mpi on rank 2 (hostC): there is no room");
    free(s.ranks[0]);

    s = (scene){.fault = FAULT_ISA, .bad = 1};
    play(&s, 2);
    expect_result(&s, 0, TPW_DOCTOR_HOST, TPW_DOCTOR_OK, TPW_OK);
    expect_result(&s, 1, TPW_DOCTOR_HOST, TPW_DOCTOR_FAILED, TPW_ERR_ARGUMENT);
    expect_result(&s, 1, TPW_DOCTOR_MPI, TPW_DOCTOR_OK, TPW_OK);
    expect_verdict(&s, 2, TPW_ERR_ARGUMENT, "host on rank 1 (hostB)|mmx");
    free(s.ranks[0]);

    s = (scene){.fault = FAULT_EXCHANGE, .bad = -1};
    play(&s, 2);
    expect_result(&s, 0, TPW_DOCTOR_MPI, TPW_DOCTOR_FAILED, TPW_ERR_PEER);
    expect_verdict(&s, 2, TPW_ERR_PEER, "the line is dead");
    free(s.ranks[0]);
}

Test(doctor, a_number_of_ranks_that_cannot_share_a_model)
{
    scene s = {.bad = -2};
    play(&s, 3);
    for (int r = 0; r < 3; r++) {
        expect_result(&s, r, TPW_DOCTOR_RANKS, TPW_DOCTOR_FAILED, TPW_ERR_ARGUMENT);
        expect_result(&s, r, TPW_DOCTOR_TOPOLOGY, TPW_DOCTOR_OK, TPW_OK);
        expect_result(&s, r, TPW_DOCTOR_CPUS, TPW_DOCTOR_OK, TPW_OK);
        expect_result(&s, r, TPW_DOCTOR_MPI, TPW_DOCTOR_SKIPPED, TPW_OK);
    }
    expect_verdict(&s, 3, TPW_ERR_ARGUMENT, "ranks on rank 0|1, 2, 4 or 8");
    free(s.ranks[0]);
}

Test(doctor, a_rank_that_never_comes)
{
    scene s = {.fault = FAULT_ABSENT, .bad = 1};
    local_rank ranks[2];
    for (int r = 0; r < 2; r++)
        s.ranks[r] = calloc(2, sizeof *s.ranks[r]);
    run_local(2, 300, examine, &s, ranks);
    cr_assert_eq(ranks[0].status, TPW_ERR_PEER, "%s", ranks[0].err.text);
    cr_assert(strstr(ranks[0].err.text, "rank 1") != NULL && strstr(ranks[0].err.text, "doctor") != NULL, "%s",
              ranks[0].err.text);
    cr_assert_lt(ranks[0].seconds, 5.0);
    free(s.ranks[0]);
    free(s.ranks[1]);
}

static void fail(tpw_doctor_rank *r, tpw_doctor_id id, tpw_status status, const char *text)
{
    r->checks[id].result = TPW_DOCTOR_FAILED;
    r->checks[id].status = (int32_t)status;
    snprintf(r->checks[id].text, sizeof r->checks[id].text, "%s", text);
}

/* The worst status wins over the order of checks and ranks; among equal ones the first check and rank. */
Test(doctor, verdict_is_the_worst_of_all)
{
    tpw_error err = {0};
    tpw_doctor_rank ranks[3] = {{.rank = 0, .host = "a"}, {.rank = 1, .host = "b"}, {.rank = 2, .host = "c"}};
    cr_assert_eq(tpw_doctor_verdict(ranks, 3, &err), TPW_OK);
    fail(&ranks[2], TPW_DOCTOR_GPU, TPW_ERR_RESOURCE, "first text");
    cr_assert_eq(tpw_doctor_verdict(ranks, 3, &err), TPW_ERR_RESOURCE);
    cr_assert_str_eq(err.text, "doctor: 1 of 13 checks failed; gpu on rank 2 (c): first text");
    fail(&ranks[1], TPW_DOCTOR_GPU, TPW_ERR_RESOURCE, "second text");
    fail(&ranks[0], TPW_DOCTOR_CPUS, TPW_ERR_RESOURCE, "third text");
    cr_assert_eq(tpw_doctor_verdict(ranks, 3, &err), TPW_ERR_RESOURCE);
    cr_assert_str_eq(err.text, "doctor: 2 of 13 checks failed; gpu on rank 1 (b): second text");
    fail(&ranks[2], TPW_DOCTOR_GATHER, TPW_ERR_PEER, "fourth text");
    cr_assert_eq(tpw_doctor_verdict(ranks, 3, &err), TPW_ERR_PEER);
    cr_assert_str_eq(err.text, "doctor: 3 of 13 checks failed; gather on rank 2 (c): fourth text");
    fail(&ranks[1], TPW_DOCTOR_COPIES, TPW_ERR_DIVERGED, "fifth text");
    cr_assert_eq(tpw_doctor_verdict(ranks, 3, &err), TPW_ERR_DIVERGED);
    cr_assert_eq(tpw_doctor_verdict(ranks, 1, NULL), TPW_ERR_RESOURCE);
}

Test(doctor, nearness)
{
    static const struct {
        tpw_locality locality;
        const char *near_cpus;
        const char *cpus;
        int32_t near_node;
        int32_t node;
        tpw_nearness expected;
    } cases[] = {
        {TPW_NEAR_KNOWN, "0-3", "0-3", 0, 0, TPW_NEARNESS_NEAR},
        {TPW_NEAR_KNOWN, "0-3", "0-3", -1, -1, TPW_NEARNESS_NEAR},
        {TPW_NEAR_KNOWN, "0-3", "2", 1, 1, TPW_NEARNESS_NEAR}, /* left as launched, on one core of the node */
        {TPW_NEAR_KNOWN, "0-3", "4-7", 0, 1, TPW_NEARNESS_FAR},
        {TPW_NEAR_KNOWN, "0-3", "0-7", 0, -1, TPW_NEARNESS_FAR},
        {TPW_NEAR_KNOWN, "0-3", "0-7", -1, -1, TPW_NEARNESS_FAR},
        {TPW_NEAR_NO_CPUS, "0-3", "0-3", 0, 0, TPW_NEARNESS_FAR},
        {TPW_NEAR_UNKNOWN, "0-3", "0-3", 0, 0, TPW_NEARNESS_UNKNOWN},
        {TPW_NEAR_UNSEEN, "0-3", "0-3", 0, 0, TPW_NEARNESS_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tpw_near near = {.locality = cases[i].locality, .numa_node = cases[i].near_node};
        tpw_binding cpus = {.numa_node = cases[i].node};
        snprintf(near.cpus, sizeof near.cpus, "%s", cases[i].near_cpus);
        snprintf(cpus.obtained, sizeof cpus.obtained, "%s", cases[i].cpus);
        cr_assert_eq(tpw_doctor_nearness(&near, &cpus), cases[i].expected, "case %zu", i);
    }
}
