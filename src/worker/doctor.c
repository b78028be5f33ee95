/* Examines the ranks of a job one part at a time; where a part is missing on one rank, all ranks pass over what needs it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "worker/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/selftest.h"
#include "kernels/host/host.h"
#include "kernels/tree.h"
#include "tp/agree.h"
#include "tp/boot_mpi.h"
#include "tp/comm_nccl.h"
#include "tp/gpus.h"
#include "tp/node.h"

/* What is summed: the largest exchange of a communicator that is made for it. */
#define ROWS     64
#define COLS     5120
#define VALUES   ((size_t)ROWS * COLS)
#define DATA_KEY 0x646F63746F72ull

#define DRIVER_FILE "/sys/module/nvidia/version"

typedef struct examination {
    tpw_boot *boot;
    const tpw_doctor_options *options;
    tpw_doctor_rank *me;
    int32_t *numbers; /* [size] of the last exchange */
    float *x;         /* [VALUES] host memory */
    tpw_topology *topology;
    tpw_gpu *gpus; /* [TPW_PLACE_GPUS_MAX] visible ones */
    tpw_seat seat; /* set when me->seated */
    tpw_exec *gpu;
    float *block; /* [VALUES] on the GPU */
} examination;

static const char *const names[] = {
#define TPW_DOCTOR_TEXT(id, name) [TPW_DOCTOR_##id] = name,
    TPW_DOCTOR_MAP(TPW_DOCTOR_TEXT)
#undef TPW_DOCTOR_TEXT
};

const char *tpw_doctor_name(tpw_doctor_id id)
{
    return names[id];
}

/* Sets how a check came out on this rank. `err` is read if it failed. */
static void note(examination *e, tpw_doctor_id id, tpw_status st, const tpw_error *err)
{
    tpw_doctor_check *check = &e->me->checks[id];

    check->result = st == TPW_OK ? TPW_DOCTOR_OK : TPW_DOCTOR_FAILED;
    check->status = (int32_t)st;
    if (st != TPW_OK)
        (void)snprintf(check->text, sizeof check->text, "%s", err->text);
}

static void say(examination *e, tpw_doctor_id id, const char *format, ...) TPW_PRINTF(3, 4);

static void say(examination *e, tpw_doctor_id id, const char *format, ...)
{
    tpw_doctor_check *check = &e->me->checks[id];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(check->text, sizeof check->text, format, args);
    va_end(args);
}

/* Passes over the checks first..last, all for the same reason. */
static void skip(examination *e, tpw_doctor_id first, tpw_doctor_id last, const char *why)
{
    for (int id = (int)first; id <= (int)last; id++)
        say(e, (tpw_doctor_id)id, "%s", why);
}

/* Collective. The least and the greatest of all ranks' numbers. Fails only when the ranks cannot be asked. */
static tpw_status range_of(examination *e, int32_t mine, int32_t *least, int32_t *most, tpw_error *err)
{
    TPW_TRY(e->boot->ops->allgather(e->boot, &mine, e->numbers, sizeof mine, err));
    *least = *most = e->numbers[0];
    for (int r = 1; r < e->boot->size; r++) {
        *least = e->numbers[r] < *least ? e->numbers[r] : *least;
        *most = e->numbers[r] > *most ? e->numbers[r] : *most;
    }
    return TPW_OK;
}

/* Collective. The worst status of all ranks, which is the least. */
static tpw_status worst_of(examination *e, tpw_status mine, int32_t *worst, tpw_error *err)
{
    int32_t best;

    return range_of(e, (int32_t)mine, worst, &best, err);
}

static void read_driver(char *out, int bytes)
{
    FILE *file = fopen(DRIVER_FILE, "re");

    if (file == NULL)
        return;
    if (fgets(out, bytes, file) == NULL)
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    (void)fclose(file);
}

static void look_at_machine(examination *e)
{
    tpw_error err = {0};
    tpw_exec *host = NULL;
    tpw_status st = tpw_topology_load(NULL, &e->topology, &err);

    note(e, TPW_DOCTOR_TOPOLOGY, st, &err);
    if (st == TPW_OK) {
        tpw_topology_describe(e->topology, e->me->machine, (int)sizeof e->me->machine);
        say(e, TPW_DOCTOR_TOPOLOGY, "%s", e->me->machine);
    }
    st = tpw_host_create(e->options->isa, &host, &err);
    note(e, TPW_DOCTOR_HOST, st, &err);
    if (st == TPW_OK) {
        (void)snprintf(e->me->isa, sizeof e->me->isa, "%s", tpw_host_isa(host));
        say(e, TPW_DOCTOR_HOST, "instructions %s", e->me->isa);
    }
    tpw_host_destroy(host);
}

static void look_at_versions(examination *e)
{
    int compiled, loaded;

    tpw_nccl_versions(&compiled, &loaded);
    e->me->nccl_compiled = compiled;
    e->me->nccl_loaded = loaded;
    (void)snprintf(e->me->cuda, sizeof e->me->cuda, "%s", tpw_cuda_version());
    read_driver(e->me->driver, (int)sizeof e->me->driver);
}

/* Collective. May so many ranks share a model? *fit is the same on all. */
static tpw_status count_ranks(examination *e, tpw_node *node, bool *fit, tpw_error *err)
{
    tpw_error own = {0};
    tpw_status st = tpw_comm_check_size(e->boot->size, &own);

    TPW_TRY(tpw_node_find(e->boot, node, err));
    *fit = st == TPW_OK;
    e->me->hosts = node->hosts;
    note(e, TPW_DOCTOR_RANKS, st, &own);
    if (*fit)
        say(e, TPW_DOCTOR_RANKS, "%d on %d host%s", e->boot->size, node->hosts, node->hosts == 1 ? "" : "s");
    return TPW_OK;
}

/* The GPUs that this rank sees, as many as can be compared. */
static tpw_status list_gpus(examination *e, tpw_error *err)
{
    char reason[sizeof e->me->no_gpu] = "";
    const int32_t count = tpw_cuda_count(reason, (int)sizeof reason);

    e->me->gpus_visible = count;
    if (count == 0)
        (void)snprintf(e->me->no_gpu, sizeof e->me->no_gpu, "%s", reason[0] != '\0' ? reason : "none is visible");
    for (int32_t i = 0; i < count && i < TPW_PLACE_GPUS_MAX; i++)
        TPW_TRY(tpw_cuda_gpu(i, &e->gpus[i], err));
    return TPW_OK;
}

tpw_nearness tpw_doctor_nearness(const tpw_near *near, const tpw_binding *cpus)
{
    if (near->locality == TPW_NEAR_UNKNOWN || near->locality == TPW_NEAR_UNSEEN)
        return TPW_NEARNESS_UNKNOWN;
    if (near->locality == TPW_NEAR_NO_CPUS)
        return TPW_NEARNESS_FAR;
    if (strcmp(near->cpus, cpus->obtained) == 0 || (near->numa_node >= 0 && near->numa_node == cpus->numa_node))
        return TPW_NEARNESS_NEAR;
    return TPW_NEARNESS_FAR;
}

/* No rank sees a GPU. */
static void do_without(examination *e)
{
    tpw_error err = {0};

    if (e->options->gpus_needed)
        note(e, TPW_DOCTOR_GPU, tpw_fail(&err, TPW_ERR_RESOURCE, "no rank sees a GPU: %s", e->me->no_gpu), &err);
    else
        say(e, TPW_DOCTOR_GPU, "no GPU: %s", e->me->no_gpu);
    if (e->me->driver[0] != '\0')
        (void)snprintf(e->me->warnings, sizeof e->me->warnings,
                       "the kernel's GPU driver %s is loaded, but this process sees no GPU", e->me->driver);
}

/* Collective. A seat for every rank, or one refusal for all; none are wanted where no rank sees a GPU. */
static tpw_status take_seat(examination *e, tpw_error *err)
{
    tpw_error own = {0};
    int32_t worst, least, most;
    tpw_status st = list_gpus(e, &own);

    if (st != TPW_OK)
        note(e, TPW_DOCTOR_GPU, st, &own);
    else
        skip(e, TPW_DOCTOR_GPU, TPW_DOCTOR_GPU, "the machine or the GPUs of a rank are not known");
    if (st == TPW_OK && e->topology == NULL)
        st = TPW_ERR_RESOURCE; /* noted before */
    TPW_TRY(worst_of(e, st, &worst, err));
    TPW_TRY(range_of(e, e->me->gpus_visible, &least, &most, err));
    if (worst != TPW_OK)
        return TPW_OK;
    if (most == 0) {
        do_without(e);
        return TPW_OK;
    }
    st = tpw_gpus_agree(e->boot, e->topology, e->gpus, e->me->gpus_visible, e->options->ranks_per_gpu, &e->seat, &own);
    note(e, TPW_DOCTOR_GPU, st, &own);
    if (st == TPW_OK) {
        e->me->seated = true;
        e->me->gpu = e->seat.gpu;
        memcpy(e->me->warnings, e->seat.warnings, sizeof e->me->warnings);
        say(e, TPW_DOCTOR_GPU, "%s, %s, %s", e->seat.gpu.bus, e->seat.gpu.name,
            e->seat.gpu.uuid[0] != '\0' ? e->seat.gpu.uuid : "without UUID");
    }
    return TPW_OK;
}

static void bind_cpus(examination *e, const tpw_node *node)
{
    tpw_binding *b = &e->me->cpus;
    char cpus[TPW_MASK_TEXT_MAX];
    tpw_error err = {0};
    tpw_status st = TPW_OK;

    if (e->me->seated)
        memcpy(cpus, e->seat.cpus, sizeof cpus);
    else
        st = tpw_place_cpus(e->topology, node->rank, node->size, cpus, &err);
    if (st == TPW_OK)
        st = tpw_bind_cpus(e->topology, cpus, e->options->binding, b, &err);
    note(e, TPW_DOCTOR_CPUS, st, &err);
    if (st == TPW_OK && e->options->binding == TPW_BIND_NONE)
        say(e, TPW_DOCTOR_CPUS, "left as launched: %s of %s", b->obtained, b->allowed);
    else if (st == TPW_OK)
        say(e, TPW_DOCTOR_CPUS, "asked for %s, has %s of %s", b->requested, b->obtained, b->allowed);
}

/* Without a GPU nothing is asked for: the host backend takes its memory where it runs. */
static void bind_memory(examination *e)
{
    const tpw_bind_mode mode = e->me->seated ? e->options->binding : TPW_BIND_NONE;
    tpw_memory_binding *b = &e->me->memory;
    tpw_error err = {0};
    tpw_status st = tpw_bind_memory(e->topology, e->me->seated ? e->seat.nodes : "", mode, b, &err);

    note(e, TPW_DOCTOR_MEMORY, st, &err);
    if (st == TPW_OK)
        say(e, TPW_DOCTOR_MEMORY, "%s%s of %s%s%s", mode == TPW_BIND_NONE ? "left as launched: " : "nodes ",
            b->obtained[0] != '\0' ? b->obtained : "unknown", b->allowed, b->reason[0] != '\0' ? ": " : "", b->reason);
}

static void look_near_gpu(examination *e)
{
    tpw_near near;
    tpw_status st = tpw_topology_near_gpu(e->topology, e->seat.gpu.bus, e->seat.share, e->seat.shares, &near, NULL);

    e->me->nearness = (int32_t)(st == TPW_OK ? tpw_doctor_nearness(&near, &e->me->cpus) : TPW_NEARNESS_UNKNOWN);
}

static void bind_all(examination *e, const tpw_node *node)
{
    if (e->topology == NULL) {
        skip(e, TPW_DOCTOR_CPUS, TPW_DOCTOR_MEMORY, "the machine is not known");
        return;
    }
    bind_cpus(e, node);
    bind_memory(e);
    if (e->me->seated)
        look_near_gpu(e);
}

/* Element i of rank r: 21 magnitudes of both signs, so that sums round and their order shows. Among 64 elements one is a
 * subnormal and one a zero with a sign, which flushing or a start from +0 would change. */
static float value(int rank, size_t i)
{
    const uint64_t h = tpw_digest_term(DATA_KEY + (uint64_t)rank, (uint64_t)i, 0);
    uint32_t bits = (uint32_t)(h & 0x807FFFFFu);
    float out;

    if (i % 64 == 62)
        bits &= 0x80000000u;
    else if (i % 64 != 63)
        bits |= (117u + (uint32_t)(h >> 32) % 21u) << 23;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static void fill(examination *e)
{
    for (size_t i = 0; i < VALUES; i++)
        e->x[i] = value(e->boot->rank, i);
}

/* Holds x against the tree over all ranks' values. */
static tpw_status compare(examination *e, tpw_doctor_id id, tpw_error *err)
{
    float part[TPW_PARTS_MAX], expected, wanted = 0.0f;
    size_t different = 0, first = 0;

    for (size_t i = 0; i < VALUES; i++) {
        for (int r = 0; r < e->boot->size; r++)
            part[r] = value(r, i);
        expected = tpw_tree_parts(part, 1, e->boot->size);
        if (memcmp(&e->x[i], &expected, sizeof expected) != 0 && different++ == 0) {
            first = i;
            wanted = expected;
        }
    }
    e->me->checks[id].compared = (int64_t)VALUES;
    if (different > 0)
        return tpw_fail(err, TPW_ERR_DIVERGED,
                        "%zu of %zu sums over %d ranks are not those of the tree: value %zu is %a and should be %a",
                        different, VALUES, e->boot->size, first, (double)e->x[first], (double)wanted);
    say(e, id, "%zu sums over %d ranks, each with the bits of the tree", VALUES, e->boot->size);
    return TPW_OK;
}

/* Collective. */
static tpw_status make_host_comm(examination *e, tpw_comm **out, tpw_error *err)
{
    if (e->options->make_comm != NULL)
        return e->options->make_comm(e->boot, out, err);
    return tpw_comm_mpi_create(e->boot, out, err);
}

/* Collective. One all-reduce of the host's communicator. */
static tpw_status try_host_comm(examination *e, tpw_error *err)
{
    tpw_comm *comm = NULL;
    tpw_error own = {0};
    int32_t worst = TPW_ERR_PEER;
    tpw_status st, asked;

    if (e->boot->size == 1) {
        skip(e, TPW_DOCTOR_MPI, TPW_DOCTOR_MPI, "one rank: nothing is exchanged");
        return TPW_OK;
    }
    skip(e, TPW_DOCTOR_MPI, TPW_DOCTOR_MPI, "another rank could not make its communicator");
    st = make_host_comm(e, &comm, &own);
    asked = worst_of(e, st, &worst, err);
    if (asked == TPW_OK && worst == TPW_OK) {
        fill(e);
        st = comm->ops->allreduce(comm, e->x, VALUES, &own);
        if (st == TPW_OK)
            st = compare(e, TPW_DOCTOR_MPI, &own);
    }
    if (st != TPW_OK || worst == TPW_OK)
        note(e, TPW_DOCTOR_MPI, st, &own);
    tpw_comm_destroy(comm);
    return asked;
}

/* Local. Where wgmma has other bits than mma.sync, it is not used: no fault. */
static tpw_status ask_unit(examination *e, tpw_error *err)
{
    tpw_cuda_selftest_report report = {0};

    TPW_TRY(tpw_cuda_selftest(e->gpu, &report, err));
    e->me->checks[TPW_DOCTOR_SELFTEST].compared = (int64_t)report.subnormal_asked + report.wgmma_asked;
    if (report.subnormal_asked == 0)
        return tpw_fail(err, TPW_ERR_INTERNAL, "the self-test compared nothing");
    if (report.subnormal_wrong > 0)
        return tpw_fail(err, TPW_ERR_DIVERGED, "the GPU does not compute what is promised: %s", report.text);
    say(e, TPW_DOCTOR_SELFTEST, "%s%s", report.text,
        report.wgmma_unequal > 0 ? ", so that mma.sync is used in its place" : "");
    return TPW_OK;
}

/* Local. What the rank needs of its own GPU. */
static void open_gpu(examination *e, tpw_status *out)
{
    const tpw_cuda_options options = {.device = e->seat.gpu.index, .spin_ms = e->boot->timeout_ms};
    tpw_error err = {0};
    void *block = NULL;

    *out = tpw_cuda_create(&options, &e->gpu, &err);
    if (*out == TPW_OK)
        *out = e->gpu->device->alloc(e->gpu, VALUES * sizeof *e->block, &block, &err);
    e->block = block;
    note(e, TPW_DOCTOR_CUDA, *out, &err);
    if (*out != TPW_OK) {
        skip(e, TPW_DOCTOR_SELFTEST, TPW_DOCTOR_SELFTEST, "the GPU cannot be used");
        return;
    }
    say(e, TPW_DOCTOR_CUDA, "%s%s%s", e->me->cuda, e->me->driver[0] != '\0' ? ", kernel driver " : "", e->me->driver);
    *out = ask_unit(e, &err);
    note(e, TPW_DOCTOR_SELFTEST, *out, &err);
}

static void close_gpu(examination *e)
{
    if (e->gpu == NULL)
        return;
    e->gpu->device->free(e->gpu, e->block);
    tpw_cuda_destroy(e->gpu);
}

/* One all-reduce on the GPUs. No rank waits in it for longer than the exec's limit. */
static tpw_status sum_on_gpu(examination *e, tpw_comm *comm, tpw_doctor_id id, tpw_error *err)
{
    const tpw_device *device = e->gpu->device;

    fill(e);
    TPW_TRY(device->upload(e->gpu, e->block, e->x, VALUES * sizeof *e->x, err));
    TPW_TRY(comm->ops->allreduce(comm, e->block, VALUES, err));
    TPW_TRY(tpw_cuda_sync(e->gpu, err));
    TPW_TRY(tpw_comm_nccl_check(comm, err));
    TPW_TRY(device->download(e->gpu, e->x, e->block, VALUES * sizeof *e->x, err));
    return compare(e, id, err);
}

/* One way between GPUs, and the check that it is. */
typedef struct way {
    tpw_doctor_id id;
    tpw_nccl_transport transport;
} way;

/* With the communicator of one way. */
static tpw_status try_comm(examination *e, tpw_comm *comm, const way *w)
{
    tpw_error err = {0};
    tpw_status st;

    if (e->boot->size == 1) {
        skip(e, w->id, w->id, "one rank: nothing is exchanged");
        return TPW_OK;
    }
    if (tpw_comm_nccl_transport(comm, ROWS) != w->transport) {
        skip(e, w->id, w->id, "not all of the ranks' GPUs reach each other's memory");
        return TPW_OK;
    }
    st = sum_on_gpu(e, comm, w->id, &err);
    note(e, w->id, st, &err);
    return st;
}

/* Collective. *worst is what this way came to on all ranks. */
static tpw_status try_way(examination *e, const way *w, int32_t *worst, tpw_error *err)
{
    const tpw_nccl_options options = {.rows_max = ROWS, .cols_max = COLS, .transport = w->transport};
    tpw_comm *comm = NULL;
    tpw_error own = {0};
    tpw_status closed, st = tpw_comm_nccl_create(e->boot, e->gpu, &options, &comm, &own);

    if (st != TPW_OK || e->me->checks[TPW_DOCTOR_NCCL].result != TPW_DOCTOR_FAILED)
        note(e, TPW_DOCTOR_NCCL, st, &own);
    if (st == TPW_OK) {
        say(e, TPW_DOCTOR_NCCL, "communicator of %d rank%s", e->boot->size, e->boot->size == 1 ? "" : "s");
        st = try_comm(e, comm, w);
        closed = tpw_comm_nccl_close(comm, &own);
        if (st == TPW_OK && closed != TPW_OK) {
            note(e, TPW_DOCTOR_NCCL, closed, &own);
            st = closed;
        }
    } else {
        skip(e, w->id, w->id, "there is no communicator");
    }
    return worst_of(e, st, worst, err);
}

/* Collective. Different bits in one way are no reason not to look at the next; anything else is. */
static tpw_status try_nccl(examination *e, tpw_error *err)
{
    static const way ways[] = {{TPW_DOCTOR_PACKETS, TPW_NCCL_PACKETS},
                               {TPW_DOCTOR_COPIES, TPW_NCCL_COPIES},
                               {TPW_DOCTOR_GATHER, TPW_NCCL_GATHER}};
    int32_t worst = TPW_OK;

    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        if (worst != TPW_OK && worst != TPW_ERR_DIVERGED)
            skip(e, ways[w].id, ways[w].id, "the way before it failed on a rank");
        else if (w > 0 && e->boot->size == 1)
            skip(e, ways[w].id, ways[w].id, "one rank: nothing is exchanged");
        else
            TPW_TRY(try_way(e, &ways[w], &worst, err));
    }
    return TPW_OK;
}

/* Collective. */
static tpw_status try_gpus(examination *e, bool fit, tpw_error *err)
{
    int32_t worst;
    tpw_status st = TPW_OK;

    if (!e->me->seated) {
        skip(e, TPW_DOCTOR_CUDA, TPW_DOCTOR_GATHER, "not every rank has a GPU (see gpu)");
        return TPW_OK;
    }
    open_gpu(e, &st);
    TPW_TRY(worst_of(e, st, &worst, err));
    if (worst != TPW_OK)
        skip(e, TPW_DOCTOR_NCCL, TPW_DOCTOR_GATHER, "the GPU of a rank cannot be used (see cuda, selftest)");
    else if (!fit)
        skip(e, TPW_DOCTOR_NCCL, TPW_DOCTOR_GATHER, "no communicator has so many ranks (see ranks)");
    else
        return try_nccl(e, err);
    return TPW_OK;
}

/* Collective. Everything but sending it. */
static tpw_status examine(examination *e, tpw_error *err)
{
    tpw_node node;
    bool fit;

    look_at_machine(e);
    look_at_versions(e);
    TPW_TRY(count_ranks(e, &node, &fit, err));
    if (e->options->gpus_ignored)
        skip(e, TPW_DOCTOR_GPU, TPW_DOCTOR_GPU, "not asked for: the job runs on the host");
    else
        TPW_TRY(take_seat(e, err));
    bind_all(e, &node);
    if (fit)
        TPW_TRY(try_host_comm(e, err));
    else
        skip(e, TPW_DOCTOR_MPI, TPW_DOCTOR_MPI, "no communicator has so many ranks (see ranks)");
    return try_gpus(e, fit, err);
}

/* What came over the wire is cut to what its readers rely on. */
static void clean(tpw_doctor_rank *r)
{
    char *const texts[] = {r->host + sizeof r->host,         r->machine + sizeof r->machine,
                           r->isa + sizeof r->isa,           r->no_gpu + sizeof r->no_gpu,
                           r->warnings + sizeof r->warnings, r->cuda + sizeof r->cuda,
                           r->driver + sizeof r->driver,     r->gpu.name + sizeof r->gpu.name,
                           r->gpu.uuid + sizeof r->gpu.uuid, r->gpu.bus + sizeof r->gpu.bus};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        texts[i][-1] = '\0';
    for (int id = 0; id < TPW_DOCTOR_CHECKS; id++) {
        tpw_doctor_check *check = &r->checks[id];

        check->text[sizeof check->text - 1] = '\0';
        if (check->result < TPW_DOCTOR_SKIPPED || check->result > TPW_DOCTOR_FAILED)
            check->result = TPW_DOCTOR_FAILED;
        if (check->result == TPW_DOCTOR_FAILED && check->status >= 0)
            check->status = TPW_ERR_INTERNAL;
    }
}

static tpw_status allocate(examination *e, tpw_error *err)
{
    e->me = calloc(1, sizeof *e->me);
    e->numbers = calloc((size_t)e->boot->size, sizeof *e->numbers);
    e->x = calloc(VALUES, sizeof *e->x);
    e->gpus = calloc(TPW_PLACE_GPUS_MAX, sizeof *e->gpus);
    if (e->me == NULL || e->numbers == NULL || e->x == NULL || e->gpus == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for the examination of %d ranks", e->boot->size);
    e->me->rank = e->boot->rank;
    e->me->pid = (int64_t)getpid();
    memcpy(e->me->host, e->boot->host, strnlen(e->boot->host, sizeof e->me->host - 1));
    return TPW_OK;
}

tpw_status tpw_doctor_run(tpw_boot *boot, const tpw_doctor_options *options, tpw_doctor_rank *ranks, tpw_error *err)
{
    examination e = {.boot = boot, .options = options};
    tpw_status st;

    boot->phase = "doctor";
    TPW_TRY_GOTO(st, tpw_agree_status(boot, allocate(&e, err), err), done);
    TPW_TRY_GOTO(st, examine(&e, err), done);
    TPW_TRY_GOTO(st, boot->ops->allgather(boot, e.me, ranks, sizeof *ranks, err), done);
    for (int r = 0; r < boot->size; r++)
        clean(&ranks[r]);
done:
    close_gpu(&e);
    tpw_topology_destroy(e.topology);
    free(e.me);
    free(e.numbers);
    free(e.x);
    free(e.gpus);
    return st;
}

tpw_status tpw_doctor_verdict(const tpw_doctor_rank *ranks, int size, tpw_error *err)
{
    const tpw_doctor_rank *who = NULL;
    int failed = 0, what = 0;
    int32_t worst = TPW_OK;

    for (int id = 0; id < TPW_DOCTOR_CHECKS; id++) {
        bool any = false;

        for (int r = 0; r < size; r++) {
            const tpw_doctor_check *check = &ranks[r].checks[id];

            any = any || check->result == TPW_DOCTOR_FAILED;
            if (check->result == TPW_DOCTOR_FAILED && check->status < worst) {
                worst = check->status;
                who = &ranks[r];
                what = id;
            }
        }
        failed += any;
    }
    if (who == NULL)
        return TPW_OK;
    return tpw_fail(err, (tpw_status)worst, "doctor: %d of %d checks failed; %s on rank %d (%s): %s", failed,
                    TPW_DOCTOR_CHECKS, names[what], (int)who->rank, who->host, who->checks[what].text);
}
