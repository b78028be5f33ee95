/* Tests of the preflight's way through GPUs that are made up: the CUDA backend and the NCCL communicator are replaced in this
 * program by host memory and threads, each wrong in one way. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/selftest.h"
#include "kernels/host/host.h"
#include "local_ranks.h"
#include "tp/agree.h"
#include "tp/comm_nccl.h"
#include "worker/doctor.h"

#define VALUES  327680
#define MATRIX  1016 /* values that the made-up self-test compares */
#define TIMEOUT 20000

typedef enum fault {
    FAULT_NONE,
    FAULT_BLIND,    /* sees no GPU */
    FAULT_LIST,     /* cannot list its GPUs */
    FAULT_SAME,     /* sees rank 0's GPU */
    FAULT_EXEC,     /* cannot make its stream */
    FAULT_UNIT,     /* the matrix unit loses subnormals */
    FAULT_NO_UNIT,  /* the self-test asks nothing */
    FAULT_WGMMA,    /* wgmma has other bits */
    FAULT_NCCL,     /* NCCL refuses, on all ranks alike */
    FAULT_NO_PEERS, /* no peer access */
    FAULT_PACKETS,  /* one wrong bit by packets */
    FAULT_COPIES,   /* a peer's data does not come */
    FAULT_CLOSE     /* the last communicator does not close */
} fault;

typedef struct scene {
    fault fault;
    int bad; /* rank, -1: all */
    int size;
    bool needed;
    bool ignored;
    int ranks_per_gpu; /* 0: 1 */
    tpw_doctor_rank *ranks[LOCAL_RANKS_MAX];
    int execs[LOCAL_RANKS_MAX]; /* alive */
    int comms[LOCAL_RANKS_MAX];
    int64_t spin_ms;
} scene;

static _Thread_local scene *here;
static _Thread_local int rank_here;
static _Thread_local tpw_nccl_transport transport_here;
static _Thread_local const tpw_comm_ops *real;
static _Thread_local tpw_comm_ops changed;

static bool has(fault f)
{
    return here->fault == f && (here->bad < 0 || here->bad == rank_here);
}

/* What doctor calls of the CUDA backend. */

int32_t tpw_cuda_count(char *reason, int bytes)
{
    snprintf(reason, (size_t)bytes, "%s", has(FAULT_BLIND) ? "it is dark" : "");
    return has(FAULT_BLIND) ? 0 : 1;
}

tpw_status tpw_cuda_gpu(int32_t index, tpw_gpu *out, tpw_error *err)
{
    int number = has(FAULT_SAME) ? 0 : rank_here;
    if (has(FAULT_LIST))
        return tpw_fail(err, TPW_ERR_DEVICE, "GPU %d: properties: smoke", (int)index);
    memset(out, 0, sizeof *out);
    *out = (tpw_gpu){.index = index, .bytes = 1 << 30, .major = 9, .processors = 132, .name = "GPU X"};
    snprintf(out->uuid, sizeof out->uuid, "GPU-%d", number);
    snprintf(out->bus, sizeof out->bus, "00ff:%02x:00.0", (unsigned)number);
    return TPW_OK;
}

tpw_status tpw_cuda_create(const tpw_cuda_options *options, tpw_exec **out, tpw_error *err)
{
    if (has(FAULT_EXEC))
        return tpw_fail(err, TPW_ERR_MEMORY, "GPU 0: no memory for scratch");
    here->execs[rank_here]++;
    here->spin_ms = options->spin_ms;
    return tpw_host_create("auto", out, err);
}

void tpw_cuda_destroy(tpw_exec *exec)
{
    here->execs[rank_here]--;
    tpw_host_destroy(exec);
}

tpw_status tpw_cuda_sync(const tpw_exec *exec, tpw_error *err)
{
    (void)exec;
    if (has(FAULT_COPIES) && transport_here == TPW_NCCL_COPIES)
        return tpw_fail(err, TPW_ERR_PEER, "a peer's data did not come");
    return TPW_OK;
}

const char *tpw_cuda_version(void)
{
    return "CUDA 1.2 (made up)";
}

tpw_status tpw_cuda_selftest(const tpw_exec *exec, tpw_cuda_selftest_report *out, tpw_error *err)
{
    (void)exec;
    (void)err;
    *out = (tpw_cuda_selftest_report){.subnormal_wrong = has(FAULT_UNIT) ? 3 : 0,
                                      .subnormal_asked = has(FAULT_NO_UNIT) ? 0 : 1000,
                                      .wgmma_unequal = has(FAULT_WGMMA) ? 5 : 0,
                                      .wgmma_asked = MATRIX - 1000,
                                      .text = "numbers"};
    return TPW_OK;
}

/* And of the communicator. */

static tpw_status allreduce_here(tpw_comm *comm, float *x, size_t count, tpw_error *err)
{
    TPW_TRY(real->allreduce(comm, x, count, err));
    if (has(FAULT_PACKETS) && transport_here == TPW_NCCL_PACKETS)
        x[count - 1] = -x[count - 1];
    return TPW_OK;
}

tpw_status tpw_comm_nccl_create(tpw_boot *boot, tpw_exec *exec, const tpw_nccl_options *options, tpw_comm **out,
                                tpw_error *err)
{
    (void)exec;
    tpw_status st = TPW_OK;
    if (has(FAULT_NCCL))
        st = tpw_fail(err, TPW_ERR_RESOURCE, "NCCL 1 was compiled against, NCCL 2 is loaded");
    TPW_TRY(tpw_agree_status(boot, st, err));
    if (boot->size == 1)
        TPW_TRY(tpw_comm_solo_create(boot, out, err));
    else
        TPW_TRY(tpw_comm_local_create(boot, out, err));
    transport_here = options->rows_max == 64 && options->cols_max == 5120 ? options->transport : TPW_NCCL_AUTO;
    real = (*out)->ops;
    changed = *real;
    changed.allreduce = allreduce_here;
    (*out)->ops = &changed;
    here->comms[rank_here]++;
    return TPW_OK;
}

tpw_status tpw_comm_nccl_close(tpw_comm *comm, tpw_error *err)
{
    here->comms[rank_here]--;
    tpw_comm_destroy(comm);
    if (has(FAULT_CLOSE) && transport_here == TPW_NCCL_GATHER)
        return tpw_fail(err, TPW_ERR_PEER, "it was aborted");
    return TPW_OK;
}

tpw_status tpw_comm_nccl_check(tpw_comm *comm, tpw_error *err)
{
    (void)comm;
    (void)err;
    return TPW_OK;
}

tpw_nccl_transport tpw_comm_nccl_transport(const tpw_comm *comm, int64_t rows)
{
    (void)comm;
    (void)rows;
    return has(FAULT_NO_PEERS) ? TPW_NCCL_GATHER : transport_here;
}

void tpw_nccl_versions(int *compiled, int *loaded)
{
    *compiled = *loaded = 10203;
}

/* A scene. */

static tpw_status make_comm(tpw_boot *boot, tpw_comm **out, tpw_error *err)
{
    return tpw_comm_local_create(boot, out, err);
}

static tpw_status examine(local_rank *self)
{
    here = self->data;
    rank_here = self->rank;
    const tpw_doctor_options options = {.binding = TPW_BIND_NONE,
                                        .isa = "auto",
                                        .gpus_needed = here->needed,
                                        .gpus_ignored = here->ignored,
                                        .ranks_per_gpu = here->ranks_per_gpu > 0 ? here->ranks_per_gpu : 1,
                                        .make_comm = make_comm};
    return tpw_doctor_run(self->boot, &options, here->ranks[self->rank], &self->err);
}

static void play(scene *s)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    for (int r = 0; r < s->size; r++)
        s->ranks[r] = calloc((size_t)s->size, sizeof *s->ranks[r]);
    run_local(s->size, TIMEOUT, examine, s, ranks);
    expect_all_ok(ranks, s->size);
    for (int r = 0; r < s->size; r++) {
        cr_assert(s->execs[r] == 0 && s->comms[r] == 0, "rank %d left %d execs and %d communicators", r, s->execs[r],
                  s->comms[r]);
        for (int id = 0; id < TPW_DOCTOR_CHECKS; id++)
            cr_assert_neq(s->ranks[0][r].checks[id].text[0], '\0', "rank %d, %s: no reason", r,
                          tpw_doctor_name((tpw_doctor_id)id));
        if (r > 0)
            free(s->ranks[r]);
    }
}

/* The checks from gpu on, one letter each in the order of TPW_DOCTOR_MAP: o, s or F. */
static void expect_letters(const scene *s, int rank, const char *expected)
{
    static const tpw_doctor_id ids[] = {TPW_DOCTOR_GPU,  TPW_DOCTOR_MPI,     TPW_DOCTOR_CUDA,   TPW_DOCTOR_SELFTEST,
                                        TPW_DOCTOR_NCCL, TPW_DOCTOR_PACKETS, TPW_DOCTOR_COPIES, TPW_DOCTOR_GATHER};
    char found[16] = "";
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        found[i] = "soF"[s->ranks[0][rank].checks[ids[i]].result];
    cr_assert_str_eq(found, expected, "fault %d, rank %d: %s, not %s", (int)s->fault, rank, found, expected);
}

static void expect_verdict(const scene *s, tpw_status status, const char *part)
{
    tpw_error err = {0};
    cr_assert_eq(tpw_doctor_verdict(s->ranks[0], s->size, &err), status, "fault %d: %s", (int)s->fault, err.text);
    cr_assert_not_null(strstr(err.text, part), "\"%s\" lacks \"%s\"", err.text, part);
}

TestSuite(doctor_gpus, .timeout = 50);

Test(doctor_gpus, nothing_is_wrong)
{
    for (int size = 2; size <= 4; size *= 2) {
        scene s = {.bad = -1, .size = size};
        play(&s);
        for (int r = 0; r < size; r++) {
            const tpw_doctor_rank *rank = &s.ranks[0][r];
            expect_letters(&s, r, "oooooooo");
            cr_assert(rank->seated && rank->gpu.uuid[4] == '0' + r, "rank %d has %s", r, rank->gpu.uuid);
            cr_assert_eq(rank->nearness, TPW_NEARNESS_UNKNOWN);
            cr_assert_not_null(strstr(rank->warnings, "hwloc shows no PCI device"), "%s", rank->warnings);
            cr_assert_eq(rank->no_gpu[0], '\0');
            cr_assert(rank->nccl_compiled == 10203 && strcmp(rank->cuda, "CUDA 1.2 (made up)") == 0);
            for (int id = TPW_DOCTOR_PACKETS; id <= TPW_DOCTOR_GATHER; id++)
                cr_assert_eq(rank->checks[id].compared, VALUES);
            cr_assert_eq(rank->checks[TPW_DOCTOR_SELFTEST].compared, MATRIX);
        }
        cr_assert_eq(s.spin_ms, TIMEOUT, "kernels wait %lld ms", (long long)s.spin_ms);
        expect_verdict(&s, TPW_OK, "");
        free(s.ranks[0]);
    }
}

Test(doctor_gpus, one_rank_joins_and_exchanges_nothing)
{
    scene s = {.bad = -1, .size = 1};
    play(&s);
    expect_letters(&s, 0, "osooosss");
    expect_verdict(&s, TPW_OK, "");
    free(s.ranks[0]);
}

Test(doctor_gpus, two_ranks_share_when_they_may)
{
    scene s = {.fault = FAULT_SAME, .bad = 1, .size = 2, .ranks_per_gpu = 2};
    play(&s);
    for (int r = 0; r < 2; r++) {
        expect_letters(&s, r, "oooooooo");
        cr_assert_not_null(strstr(s.ranks[0][r].warnings, "shared by 2 ranks"), "%s", s.ranks[0][r].warnings);
    }
    expect_verdict(&s, TPW_OK, "");
    free(s.ranks[0]);
}

/* Rank 1 is the bad one, or all are: what the good ranks and the bad one find, and what the job ends with. */
Test(doctor_gpus, what_is_wrong_is_found_and_nobody_waits)
{
    static const struct {
        fault fault;
        int bad;
        const char *good_letters;
        const char *bad_letters;
        tpw_status status;
        const char *part;
    } cases[] = {
        {FAULT_BLIND, 1, "Fossssss", "Fossssss", TPW_ERR_RESOURCE, "rank 1 of 2 (first on hostB) sees no GPU"},
        {FAULT_BLIND, -1, "sossssss", "sossssss", TPW_OK, ""},
        {FAULT_LIST, 1, "sossssss", "Fossssss", TPW_ERR_DEVICE, "gpu on rank 1 (hostB): GPU 0: properties: smoke"},
        {FAULT_SAME, 1, "Fossssss", "Fossssss", TPW_ERR_RESOURCE, "would share GPU"},
        {FAULT_EXEC, 1, "oooossss", "ooFsssss", TPW_ERR_MEMORY, "cuda on rank 1 (hostB)"},
        {FAULT_UNIT, 1, "oooossss", "oooFssss", TPW_ERR_DIVERGED, "selftest on rank 1 (hostB)"},
        {FAULT_NO_UNIT, 1, "oooossss", "oooFssss", TPW_ERR_INTERNAL, "compared nothing"},
        {FAULT_WGMMA, 1, "oooooooo", "oooooooo", TPW_OK, ""},
        {FAULT_NCCL, 1, "ooooFsss", "ooooFsss", TPW_ERR_RESOURCE, "NCCL 2 is loaded"},
        {FAULT_NO_PEERS, -1, "ooooosso", "ooooosso", TPW_OK, ""},
        {FAULT_PACKETS, 1, "oooooooo", "oooooFoo", TPW_ERR_DIVERGED, "packets on rank 1 (hostB): 1 of 327680 sums"},
        {FAULT_PACKETS, -1, "oooooFoo", "oooooFoo", TPW_ERR_DIVERGED, "value 327679 is"},
        {FAULT_COPIES, 1, "ooooooos", "ooooooFs", TPW_ERR_PEER, "copies on rank 1 (hostB): a peer's data"},
        {FAULT_CLOSE, 1, "oooooooo", "ooooFooo", TPW_ERR_PEER, "nccl on rank 1 (hostB): it was aborted"},
    };
    int seen = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scene s = {.fault = cases[i].fault, .bad = cases[i].bad, .size = 2};
        play(&s);
        expect_letters(&s, 0, cases[i].bad < 0 ? cases[i].bad_letters : cases[i].good_letters);
        expect_letters(&s, 1, cases[i].bad_letters);
        expect_verdict(&s, cases[i].status, cases[i].part);
        seen |= 1 << cases[i].fault;
        free(s.ranks[0]);
    }
    cr_assert_eq(seen, (1 << (FAULT_CLOSE + 1)) - 2, "a fault is not played");
}

/* What the caller says of GPUs. */
Test(doctor_gpus, needed_or_ignored)
{
    scene s = {.fault = FAULT_BLIND, .bad = -1, .size = 2, .needed = true};
    play(&s);
    expect_letters(&s, 1, "Fossssss");
    expect_verdict(&s, TPW_ERR_RESOURCE, "no rank sees a GPU: it is dark");
    free(s.ranks[0]);
    s = (scene){.bad = -1, .size = 2, .needed = true};
    play(&s);
    expect_letters(&s, 1, "oooooooo");
    free(s.ranks[0]);
    s = (scene){.bad = -1, .size = 2, .ignored = true};
    play(&s);
    expect_letters(&s, 1, "sossssss");
    expect_verdict(&s, TPW_OK, "");
    free(s.ranks[0]);
}

/* So many ranks have no communicator; their GPUs are looked at all the same. */
Test(doctor_gpus, three_ranks)
{
    scene s = {.bad = -1, .size = 3};
    play(&s);
    for (int r = 0; r < 3; r++)
        expect_letters(&s, r, "osoossss");
    expect_verdict(&s, TPW_ERR_ARGUMENT, "ranks on rank 0");
    free(s.ranks[0]);
}
