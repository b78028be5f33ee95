/* Decides which GPU each rank takes and what is near it; refuses what would end in NCCL.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tp/place.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define NAMED_MAX 3 /* more GPUs than these are only counted: each takes 55 characters */
#define GIB       (1024.0 * 1024 * 1024)

/* A text that grows as far as there is room. */
typedef struct line {
    char *text;
    size_t room;
    size_t used;
} line;

static void put(line *to, const char *format, ...) TPW_PRINTF(2, 3);

static void put(line *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(to->text + to->used, to->room - to->used, format, args);
    va_end(args);
    size_t left = to->room - to->used - 1;
    if (length > 0)
        to->used += (size_t)length < left ? (size_t)length : left;
}

#define PLACES_MAX (TPW_PLACE_GPUS_MAX * TPW_RANKS_PER_GPU_MAX)

/* The places that one rank may take: its GPUs, each once, in order of bus; then their second places, and so on. */
typedef struct candidates {
    int gpus;
    int count;             /* gpus * places a GPU of the running attempt */
    int index[PLACES_MAX]; /* in the rank's list */
    int id[PLACES_MAX];    /* in seen[] of its host */
} candidates;

/* One place on a GPU of a host. */
typedef struct seen_gpu {
    const tpw_gpu *gpu;
    int place;  /* 0.. on the GPU */
    int owner;  /* rank, -1: free */
    int sights; /* ranks that may take it */
    bool tried; /* in the running search */
} seen_gpu;

/* The decision being made. One host at a time is in members[] and seen[]. */
typedef struct plan {
    const tpw_place_rank *ranks;
    int size;
    int ranks_per_gpu; /* at most */
    int32_t *chosen;
    candidates *candidates; /* [size] */
    int *members;           /* [size]: ranks of the host, ascending */
    int member_count;
    seen_gpu *seen; /* [size * PLACES_MAX] */
    int seen_count;
} plan;

static bool is_slice(const tpw_gpu *gpu)
{
    return gpu->slice || strncmp(gpu->uuid, "MIG-", 4) == 0;
}

static bool same_gpu(const tpw_gpu *a, const tpw_gpu *b)
{
    return a->uuid[0] != '\0' && b->uuid[0] != '\0' ? strcmp(a->uuid, b->uuid) == 0 : strcmp(a->bus, b->bus) == 0;
}

static int order_of(const tpw_gpu *a, const tpw_gpu *b)
{
    int by_bus = strcmp(a->bus, b->bus);
    return by_bus != 0 ? by_bus : strcmp(a->uuid, b->uuid);
}

static void put_gpu(line *to, const tpw_gpu *gpu)
{
    put(to, "%s %s", gpu->bus, gpu->uuid[0] != '\0' ? gpu->uuid : "without UUID");
}

/* "rank 3" or "ranks 0-2, 5": of members[0..count) (ascending) those that are marked, all with mark == NULL. */
static void put_ranks(line *to, const int *members, int count, const bool *mark)
{
    int listed = 0, total = 0;
    for (int i = 0; i < count; i++)
        total += mark == NULL || mark[i];
    put(to, "rank%s ", total == 1 ? "" : "s");
    for (int i = 0; i < count; i++) {
        if (mark != NULL && !mark[i])
            continue;
        int last = i;
        while (last + 1 < count && (mark == NULL || mark[last + 1]) && members[last + 1] == members[last] + 1)
            last++;
        put(to, last > i ? "%s%d-%d" : "%s%d", listed++ > 0 ? ", " : "", members[i], members[last]);
        i = last;
    }
}

static bool same_host(const tpw_place_rank *a, const tpw_place_rank *b)
{
    return strcmp(a->host, b->host) == 0;
}

/* Lists what a rank may take. Whole GPUs make it blind for slices. */
static void list_candidates(const tpw_place_rank *rank, candidates *out)
{
    bool whole = false;
    for (int g = 0; g < rank->gpu_count; g++)
        whole = whole || !is_slice(&rank->gpus[g]);
    out->gpus = 0;
    for (int g = 0; g < rank->gpu_count; g++) {
        const tpw_gpu *gpu = &rank->gpus[g];
        bool take = !(whole && is_slice(gpu));
        for (int i = 0; take && i < out->gpus; i++)
            take = !same_gpu(&rank->gpus[out->index[i]], gpu);
        if (!take)
            continue;
        int at = out->gpus++;
        for (; at > 0 && order_of(gpu, &rank->gpus[out->index[at - 1]]) < 0; at--)
            out->index[at] = out->index[at - 1];
        out->index[at] = g;
    }
}

static int id_of(plan *p, const tpw_gpu *gpu, int place)
{
    int id = 0;
    while (id < p->seen_count && !(p->seen[id].place == place && same_gpu(p->seen[id].gpu, gpu)))
        id++;
    if (id == p->seen_count)
        p->seen[p->seen_count++] = (seen_gpu){.gpu = gpu, .place = place, .owner = -1};
    return id;
}

/* Fills members[] and seen[] with the host of rank `first`, each GPU with as many places as it may have ranks. */
static void open_host(plan *p, int first)
{
    p->member_count = 0;
    p->seen_count = 0;
    for (int r = first; r < p->size; r++) {
        if (!same_host(&p->ranks[r], &p->ranks[first]))
            continue;
        candidates *own = &p->candidates[r];
        p->members[p->member_count++] = r;
        p->chosen[r] = -1;
        for (int i = 0; i < own->gpus * p->ranks_per_gpu; i++) {
            own->index[i] = own->index[i % own->gpus];
            own->id[i] = id_of(p, &p->ranks[r].gpus[own->index[i]], i / own->gpus);
            p->seen[own->id[i]].sights++;
        }
    }
}

/* Lets the ranks use so many places of each GPU. */
static void allow_places(plan *p, int places)
{
    for (int m = 0; m < p->member_count; m++) {
        candidates *own = &p->candidates[p->members[m]];
        own->count = own->gpus * places;
    }
}

/* Gives the ranks the GPUs that all of them see, in order. False, with nothing given, if those are too few. */
static bool take_common(plan *p)
{
    const candidates *order = &p->candidates[p->members[0]];
    int common = 0, m = 0;
    for (int id = 0; id < p->seen_count; id++)
        common += p->seen[id].place == 0 && p->seen[id].sights == p->member_count;
    if (common < p->member_count)
        return false;
    for (int i = 0; i < order->gpus && m < p->member_count; i++) {
        if (p->seen[order->id[i]].sights < p->member_count)
            continue;
        const candidates *own = &p->candidates[p->members[m]];
        int at = 0;
        while (at < own->gpus && own->id[at] != order->id[i])
            at++;
        if (at < own->gpus)
            p->chosen[p->members[m++]] = own->index[at];
    }
    return m == p->member_count;
}

static void take(plan *p, int rank, int i)
{
    const candidates *own = &p->candidates[rank];
    p->seen[own->id[i]].owner = rank;
    p->chosen[rank] = own->index[i];
}

/* Finds a place for `rank`: a free one, or one whose owner can move. Each is tried once, so the search ends. What had an owner before
 * has one afterwards. */
static bool settle(plan *p, int rank)
{
    const candidates *own = &p->candidates[rank];
    for (int i = 0; i < own->count; i++)
        if (p->seen[own->id[i]].owner < 0 && !p->seen[own->id[i]].tried) {
            p->seen[own->id[i]].tried = true;
            take(p, rank, i);
            return true;
        }
    for (int i = 0; i < own->count; i++) {
        seen_gpu *gpu = &p->seen[own->id[i]];
        if (gpu->tried)
            continue;
        gpu->tried = true;
        if (settle(p, gpu->owner)) {
            take(p, rank, i);
            return true;
        }
    }
    return false;
}

/* Lets `rank` have the first of its list that leaves every later rank one; earlier ones keep theirs. All have one. */
static void improve(plan *p, int rank)
{
    const candidates *own = &p->candidates[rank];
    int now = 0;
    while (p->seen[own->id[now]].owner != rank)
        now++;
    for (int i = 0; i < now; i++) {
        seen_gpu *gpu = &p->seen[own->id[i]];
        for (int id = 0; id < p->seen_count; id++)
            p->seen[id].tried = p->seen[id].owner >= 0 && p->seen[id].owner < rank;
        if (gpu->tried)
            continue;
        gpu->tried = true;
        p->seen[own->id[now]].owner = -1; /* the one that gives way may take it */
        if (gpu->owner < 0 || settle(p, gpu->owner)) {
            take(p, rank, i);
            return;
        }
        p->seen[own->id[now]].owner = rank;
    }
}

/* After a failed search for `rank`: it and the owners of all that was tried see nothing but what was tried. When the
 * host has fewer GPUs than ranks, that is said instead. */
static tpw_status refuse_host(const plan *p, int rank, bool *mark, tpw_error *err)
{
    char text[TPW_ERROR_TEXT_MAX - 176] = "";
    line to = {text, sizeof text, 0};
    bool all = p->seen_count < p->member_count;
    int gpus = 0;
    for (int id = 0; id < p->seen_count; id++)
        gpus += p->seen[id].place == 0 && (all || p->seen[id].tried);
    for (int m = 0; m < p->member_count; m++) {
        mark[m] = all || p->members[m] == rank;
        for (int id = 0; id < p->seen_count; id++)
            mark[m] = mark[m] || (p->seen[id].tried && p->seen[id].owner == p->members[m]);
    }
    put_ranks(&to, p->members, p->member_count, mark);
    put(&to, " on %s see only %d GPU%s between them (", p->ranks[rank].host, gpus, gpus == 1 ? "" : "s");
    for (int id = 0, named = 0; id < p->seen_count && named <= NAMED_MAX; id++) {
        if (p->seen[id].place > 0 || (!all && !p->seen[id].tried))
            continue;
        put(&to, "%s", named > 0 ? ", " : "");
        if (named++ < NAMED_MAX)
            put_gpu(&to, p->seen[id].gpu);
        else
            put(&to, "%d more", gpus - NAMED_MAX);
    }
    return tpw_fail(err, TPW_ERR_RESOURCE,
                    "%s), and a GPU takes %d rank%s: start fewer ranks there, show each its own GPU "
                    "(CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)%s",
                    text, p->ranks_per_gpu, p->ranks_per_gpu == 1 ? "" : "s",
                    p->ranks_per_gpu < TPW_RANKS_PER_GPU_MAX ? ", or let more share one (ranks_per_gpu)" : "");
}

/* Places the members of the open host that have none yet. Returns the first that finds none, or -1. */
static int place_members(plan *p)
{
    int without = -1;
    for (int m = 0; m < p->member_count; m++) {
        if (p->chosen[p->members[m]] >= 0)
            continue;
        for (int id = 0; id < p->seen_count; id++)
            p->seen[id].tried = false;
        if (!settle(p, p->members[m]) && without < 0)
            without = p->members[m];
    }
    return without;
}

/* One place on each GPU first, then a second for those that are left, and so on: no GPU gets a further rank before as many as
 * possible have as many as it. */
static tpw_status place_host(plan *p, int first, tpw_error *err)
{
    int without = 0;
    open_host(p, first);
    if (take_common(p))
        return TPW_OK;
    for (int places = 1; places <= p->ranks_per_gpu && without >= 0; places++) {
        allow_places(p, places);
        without = place_members(p);
        for (int m = 0; places == 1 && without < 0 && m < p->member_count; m++)
            improve(p, p->members[m]);
    }
    if (without < 0)
        return TPW_OK;
    for (int id = 0; id < p->seen_count; id++)
        p->seen[id].tried = false;
    (void)settle(p, without); /* fails again: tried are those that are short */
    bool *mark = calloc((size_t)p->member_count, sizeof *mark);
    if (mark == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for the placement of %d ranks", p->size);
    tpw_status st = refuse_host(p, without, mark, err);
    free(mark);
    return st;
}

/* Every rank needs something to take, and that must be whole when there are several ranks. */
static tpw_status check_visible(const plan *p, tpw_error *err)
{
    int blind = 0;
    for (int r = 0; r < p->size; r++)
        if (p->ranks[r].gpu_count == 0)
            p->members[blind++] = r;
    if (blind > 0) {
        char text[160] = "";
        line to = {text, sizeof text, 0};
        put_ranks(&to, p->members, blind, NULL);
        return tpw_fail(err, TPW_ERR_RESOURCE,
                        "%s of %d (first on %s) see%s no GPU: check CUDA_VISIBLE_DEVICES, the scheduler's GPU request "
                        "and nvidia-smi there, or run on the host backend",
                        text, p->size, p->ranks[p->members[0]].host, blind == 1 ? "s" : "");
    }
    for (int r = 0; r < p->size && p->size > 1; r++) {
        const tpw_gpu *gpu = &p->ranks[r].gpus[p->candidates[r].index[0]];
        if (is_slice(gpu))
            return tpw_fail(err, TPW_ERR_RESOURCE,
                            "rank %d on %s sees only MIG slices (%s on GPU %s, %s): slices have no peer access, which "
                            "NCCL needs, and graph replay is not tested on them; switch MIG off or run one rank",
                            r, p->ranks[r].host, gpu->uuid, gpu->bus, gpu->name);
    }
    return TPW_OK;
}

static const tpw_gpu *gpu_of(const tpw_place_rank *ranks, const int32_t *chosen, int rank)
{
    return &ranks[rank].gpus[chosen[rank]];
}

/* The ranks of the whole job on the GPU of `rank`: those of its host, and those of others that see the same UUID. */
static int count_sharers(const tpw_place_rank *ranks, int size, const int32_t *chosen, int rank)
{
    const tpw_gpu *own = gpu_of(ranks, chosen, rank);
    int sharers = 0;
    for (int r = 0; r < size; r++) {
        const tpw_gpu *other = gpu_of(ranks, chosen, r);
        sharers += same_host(&ranks[r], &ranks[rank]) ? same_gpu(other, own)
                                                      : own->uuid[0] != '\0' && strcmp(other->uuid, own->uuid) == 0;
    }
    return sharers;
}

/* Two containers of one machine look like two hosts and may see the same GPUs. */
static tpw_status check_between_hosts(const plan *p, tpw_error *err)
{
    for (int b = 1; b < p->size; b++)
        for (int a = 0; a < b; a++) {
            const tpw_gpu *one = gpu_of(p->ranks, p->chosen, a), *two = gpu_of(p->ranks, p->chosen, b);
            if (same_host(&p->ranks[a], &p->ranks[b]) || one->uuid[0] == '\0' || strcmp(one->uuid, two->uuid) != 0 ||
                count_sharers(p->ranks, p->size, p->chosen, a) <= p->ranks_per_gpu)
                continue;
            return tpw_fail(err, TPW_ERR_RESOURCE,
                            "rank %d (%s) and rank %d (%s) would share GPU %s (%s), which takes %d and would have %d: "
                            "if these are containers of one machine, show each its own GPUs",
                            a, p->ranks[a].host, b, p->ranks[b].host, one->bus, one->uuid, p->ranks_per_gpu,
                            count_sharers(p->ranks, p->size, p->chosen, a));
        }
    return TPW_OK;
}

static tpw_status check_models(const plan *p, tpw_error *err)
{
    const tpw_gpu *one = gpu_of(p->ranks, p->chosen, 0);
    for (int r = 1; r < p->size; r++) {
        const tpw_gpu *two = gpu_of(p->ranks, p->chosen, r);
        if (one->major == two->major && one->minor == two->minor && strcmp(one->name, two->name) == 0)
            continue;
        return tpw_fail(err, TPW_ERR_RESOURCE,
                        "rank 0 (%s) has %s (%d.%d, %s), rank %d (%s) has %s (%d.%d, %s): the same bits are not "
                        "promised across GPU models; choose equal ones with CUDA_VISIBLE_DEVICES",
                        p->ranks[0].host, one->name, one->major, one->minor, one->uuid, r, p->ranks[r].host, two->name,
                        two->major, two->minor, two->uuid);
    }
    return TPW_OK;
}

static tpw_status check_counts(const tpw_place_rank *ranks, int size, const int32_t *chosen, tpw_error *err)
{
    if (ranks == NULL || chosen == NULL || size < 1 || size > TPW_RANKS_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cannot place %d ranks: 1 to %d are possible", size, TPW_RANKS_MAX);
    for (int r = 0; r < size; r++)
        if (ranks[r].gpu_count < 0 || ranks[r].gpu_count > TPW_PLACE_GPUS_MAX)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "rank %d tells of %d GPUs: 0 to %d are possible", r,
                            ranks[r].gpu_count, TPW_PLACE_GPUS_MAX);
    return TPW_OK;
}

static tpw_status decide(plan *p, tpw_error *err)
{
    for (int r = 0; r < p->size; r++)
        list_candidates(&p->ranks[r], &p->candidates[r]);
    TPW_TRY(check_visible(p, err));
    for (int r = 0; r < p->size; r++) {
        bool first = true; /* of its host */
        for (int before = 0; before < r && first; before++)
            first = !same_host(&p->ranks[before], &p->ranks[r]);
        if (first)
            TPW_TRY(place_host(p, r, err));
    }
    TPW_TRY(check_between_hosts(p, err));
    return check_models(p, err);
}

tpw_status tpw_place_gpus(const tpw_place_rank *ranks, int size, int ranks_per_gpu, int32_t *chosen, tpw_error *err)
{
    TPW_TRY(check_counts(ranks, size, chosen, err));
    if (ranks_per_gpu < 1 || ranks_per_gpu > TPW_RANKS_PER_GPU_MAX)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%d ranks a GPU: 1 to %d are possible", ranks_per_gpu,
                        TPW_RANKS_PER_GPU_MAX);
    size_t count = (size_t)size; /* at most TPW_RANKS_MAX: no product below overflows, and calloc checks its own */
    plan p = {.ranks = ranks, .size = size, .ranks_per_gpu = ranks_per_gpu, .chosen = chosen};
    p.candidates = calloc(count, sizeof *p.candidates);
    p.members = calloc(count, sizeof *p.members);
    p.seen = calloc(count * PLACES_MAX, sizeof *p.seen);
    tpw_status st = p.candidates != NULL && p.members != NULL && p.seen != NULL
                        ? decide(&p, err)
                        : tpw_fail(err, TPW_ERR_MEMORY, "out of memory for the placement of %d ranks", size);
    free(p.candidates);
    free(p.members);
    free(p.seen);
    return st;
}

/* Counts the ranks that divide the CPUs near rank's GPU, and those before it. */
static void count_shares(const tpw_topology *topology, const tpw_place_rank *ranks, int size, const int32_t *chosen,
                         int rank, tpw_seat *out)
{
    for (int r = 0; r < size; r++) {
        bool with =
            r == rank || (same_host(&ranks[r], &ranks[rank]) && ranks[r].allowed_key == ranks[rank].allowed_key &&
                          tpw_topology_near_same(topology, out->gpu.bus, gpu_of(ranks, chosen, r)->bus));
        out->shares += with;
        out->share += with && r < rank;
    }
}

static void warn(tpw_seat *seat, line *to, const tpw_near *near, const tpw_gpu *first)
{
    const char *bus = seat->gpu.bus;
    if (seat->sharers > 1)
        put(to, "; GPU %s is shared by %d ranks: the bits stay the same, the speed does not", bus, seat->sharers);
    if (is_slice(&seat->gpu))
        put(to, "; GPU %s is a MIG slice (%s), on which nothing was tested", bus, seat->gpu.uuid);
    if (seat->gpu.bytes != first->bytes)
        put(to, "; GPU %s has %.1f GiB of memory, that of rank 0 has %.1f: the smaller one limits all", bus,
            (double)seat->gpu.bytes / GIB, (double)first->bytes / GIB);
    if (near->locality == TPW_NEAR_UNSEEN)
        put(to, "; hwloc shows no PCI device %s (a container without PCI view?), so all allowed CPUs are taken", bus);
    if (near->locality == TPW_NEAR_UNKNOWN)
        put(to, "; hwloc does not say which memory node GPU %s is near, so all allowed CPUs are taken", bus);
    if (near->locality == TPW_NEAR_NO_CPUS)
        put(to, "; none of the CPUs near GPU %s may be used, so all allowed CPUs are taken", bus);
    if (near->locality <= TPW_NEAR_NO_CPUS && near->nodes[0] == '\0')
        put(to, "; the memory near GPU %s may not be used", bus);
    if (near->cpus_left_out > 0)
        put(to, "; %d of the CPUs are left out, because their list is too long", near->cpus_left_out);
}

tpw_status tpw_place_seat(const tpw_topology *topology, const tpw_place_rank *ranks, int size, const int32_t *chosen,
                          int rank, tpw_seat *out, tpw_error *err)
{
    TPW_TRY(check_counts(ranks, size, chosen, err));
    if (topology == NULL || out == NULL || rank < 0 || rank >= size)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cannot seat rank %d of %d", rank, size);
    for (int r = 0; r < size; r++)
        if (chosen[r] < 0 || chosen[r] >= ranks[r].gpu_count)
            return tpw_fail(err, TPW_ERR_ARGUMENT, "rank %d was given GPU %d of %d", r, chosen[r], ranks[r].gpu_count);
    tpw_near near;
    *out = (tpw_seat){.choice = chosen[rank], .gpu = *gpu_of(ranks, chosen, rank)};
    out->sharers = count_sharers(ranks, size, chosen, rank);
    count_shares(topology, ranks, size, chosen, rank, out);
    TPW_TRY(tpw_topology_near_gpu(topology, out->gpu.bus, out->share, out->shares, &near, err));
    memcpy(out->cpus, near.cpus, sizeof out->cpus);
    memcpy(out->nodes, near.nodes, sizeof out->nodes);
    out->numa_node = near.numa_node;
    char text[2 * TPW_ERROR_TEXT_MAX] = "";
    line to = {text, sizeof text, 0};
    warn(out, &to, &near, gpu_of(ranks, chosen, 0));
    if (to.used > 0) /* without the first "; " */
        (void)snprintf(out->warnings, sizeof out->warnings, "%.*s", (int)sizeof out->warnings - 1, text + 2);
    return TPW_OK;
}
