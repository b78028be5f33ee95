/* The hwloc door: loads a machine, decides which CPUs a rank gets, binds and reads back. SPDX-License-Identifier: Apache-2.0 */
#include "tp/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"

#define CPU_INDEX_MAX 65535 /* of a list text: larger ones would only cost memory */

struct tpw_topology {
    hwloc_topology_t hwloc;
    hwloc_bitmap_t allowed; /* of this process: the machine's allowed set, inside the mask that the launcher gave */
    bool this_system;
};

/* Cores of one memory node that this process may use, in order. */
typedef struct core_group {
    int memory; /* logical index of the NUMA node, -1 for cores of none */
    int first;  /* in the list of usable cores */
    int cores;
    int ranks; /* how many share this group */
} core_group;

/* The usable part of a machine: units[i] is a core, or a hardware thread where hwloc sees no cores. */
typedef struct usable {
    hwloc_obj_t *units;
    core_group *groups;
    int unit_count;
    int group_count;
} usable;

static tpw_status no_memory(tpw_error *err)
{
    return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for the machine's topology");
}

static hwloc_obj_type_t unit_type(hwloc_topology_t hwloc)
{
    return hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

/* The smallest memory node that holds the whole set: large nodes around small ones exist (CXL, HBM). NULL if none does. */
static hwloc_obj_t memory_of(hwloc_topology_t hwloc, hwloc_const_bitmap_t cpus)
{
    hwloc_obj_t best = NULL;
    if (hwloc_bitmap_iszero(cpus))
        return NULL;
    for (hwloc_obj_t node = NULL; (node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL;)
        if (node->cpuset != NULL && hwloc_bitmap_isincluded(cpus, node->cpuset) &&
            (best == NULL || hwloc_bitmap_weight(node->cpuset) < hwloc_bitmap_weight(best->cpuset)))
            best = node;
    return best;
}

static tpw_status find_allowed(tpw_topology *topology, tpw_error *err)
{
    hwloc_const_bitmap_t machine = hwloc_topology_get_topology_cpuset(topology->hwloc);
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology->hwloc);
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    topology->allowed = hwloc_bitmap_dup(machine);
    if (mask == NULL || topology->allowed == NULL) {
        hwloc_bitmap_free(mask);
        return no_memory(err);
    }
    if (allowed != NULL)
        (void)hwloc_bitmap_and(topology->allowed, topology->allowed, allowed);
    /* cgroups shape the topology, a mask set by taskset, mpirun or srun does not */
    if (topology->this_system && hwloc_get_cpubind(topology->hwloc, mask, HWLOC_CPUBIND_PROCESS) == 0)
        (void)hwloc_bitmap_and(topology->allowed, topology->allowed, mask);
    hwloc_bitmap_free(mask);
    if (hwloc_bitmap_iszero(topology->allowed))
        return tpw_fail(err, TPW_ERR_RESOURCE, "this process may use none of the machine's CPUs: check its cpuset");
    return TPW_OK;
}

static tpw_status load_hwloc(hwloc_topology_t hwloc, const char *xml, tpw_error *err)
{
    if (xml != NULL) {
        if (access(xml, R_OK) != 0)
            return tpw_fail(err, errno == ENOENT ? TPW_ERR_MISSING : TPW_ERR_IO, "topology file %s: %s", xml,
                            strerror(errno));
        if (hwloc_topology_set_xml(hwloc, xml) != 0)
            return tpw_fail(err, TPW_ERR_ARGUMENT,
                            "topology file %s is not hwloc XML: make one with `lstopo --of xml FILE`", xml);
    }
    if (hwloc_topology_load(hwloc) != 0)
        return tpw_fail(err, xml != NULL ? TPW_ERR_ARGUMENT : TPW_ERR_RESOURCE, "hwloc cannot load %s%s: %s",
                        xml != NULL ? "topology file " : "this machine", xml != NULL ? xml : "", strerror(errno));
    return TPW_OK;
}

tpw_status tpw_topology_load(const char *xml, tpw_topology **out, tpw_error *err)
{
    if (out == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tpw_topology_load: out is NULL");
    tpw_topology *topology = calloc(1, sizeof *topology);
    if (topology == NULL)
        return no_memory(err);
    if (hwloc_topology_init(&topology->hwloc) != 0) {
        free(topology);
        return no_memory(err);
    }
    tpw_status st;
    TPW_TRY_GOTO(st, load_hwloc(topology->hwloc, xml, err), destroy);
    /* hwloc itself may have been told to show another machine, so it is asked and not the argument */
    topology->this_system = hwloc_topology_is_thissystem(topology->hwloc) != 0;
    TPW_TRY_GOTO(st, find_allowed(topology, err), destroy);
    *out = topology;
    return TPW_OK;
destroy:
    tpw_topology_destroy(topology);
    return st;
}

void tpw_topology_destroy(tpw_topology *topology)
{
    if (topology == NULL)
        return;
    hwloc_bitmap_free(topology->allowed);
    hwloc_topology_destroy(topology->hwloc);
    free(topology);
}

/* Lists the usable units and groups them by memory node. Free both arrays, also after an error. */
static tpw_status find_usable(const tpw_topology *topology, usable *out, tpw_error *err)
{
    hwloc_topology_t hwloc = topology->hwloc;
    hwloc_obj_type_t type = unit_type(hwloc);
    int all = hwloc_get_nbobjs_by_type(hwloc, type);
    *out = (usable){0};
    if (all < 1)
        return tpw_fail(err, TPW_ERR_RESOURCE, "hwloc sees neither cores nor hardware threads");
    out->units = calloc((size_t)all, sizeof(hwloc_obj_t));
    out->groups = calloc((size_t)all, sizeof *out->groups); /* at most one each */
    if (out->units == NULL || out->groups == NULL)
        return no_memory(err);
    for (int i = 0; i < all; i++) {
        hwloc_obj_t unit = hwloc_get_obj_by_type(hwloc, type, (unsigned)i);
        if (!hwloc_bitmap_intersects(unit->cpuset, topology->allowed))
            continue;
        hwloc_obj_t node = memory_of(hwloc, unit->cpuset);
        int memory = node != NULL ? (int)node->logical_index : -1;
        core_group *last = out->group_count > 0 ? &out->groups[out->group_count - 1] : NULL;
        if (last == NULL || last->memory != memory) {
            last = &out->groups[out->group_count++];
            *last = (core_group){.memory = memory, .first = out->unit_count};
        }
        last->cores++;
        out->units[out->unit_count++] = unit;
    }
    return TPW_OK;
}

/* Gives every group one rank, then each further rank to the group with most cores a rank, the first one if equal. Needs
 * group_count <= ranks <= unit_count. */
static void share_groups(usable *machine, int ranks)
{
    for (int g = 0; g < machine->group_count; g++)
        machine->groups[g].ranks = 1;
    for (int given = machine->group_count; given < ranks; given++) {
        core_group *best = NULL;
        for (int g = 0; g < machine->group_count; g++) {
            core_group *group = &machine->groups[g];
            if (group->ranks < group->cores &&
                (best == NULL || (int64_t)group->cores * best->ranks > (int64_t)best->cores * group->ranks))
                best = group;
        }
        if (best == NULL)
            return;
        best->ranks++;
    }
}

/* The units [*first, *end) of one of `ranks` ranks. */
static void cut(usable *machine, int rank, int ranks, int *first, int *end)
{
    int groups = machine->group_count;
    if (ranks < groups) { /* whole groups, so that the borders between ranks are borders of memory nodes */
        int begin = (int)((int64_t)rank * groups / ranks), stop = (int)((int64_t)(rank + 1) * groups / ranks) - 1;
        *first = machine->groups[begin].first;
        *end = machine->groups[stop].first + machine->groups[stop].cores;
        return;
    }
    share_groups(machine, ranks);
    const core_group *group = machine->groups;
    while (rank >= group->ranks)
        rank -= group++->ranks;
    *first = group->first + (int)((int64_t)rank * group->cores / group->ranks);
    *end = group->first + (int)((int64_t)(rank + 1) * group->cores / group->ranks);
}

tpw_status tpw_place_cpus(const tpw_topology *topology, int node_rank, int node_size, char cpus[TPW_MASK_TEXT_MAX],
                          tpw_error *err)
{
    if (topology == NULL || cpus == NULL || node_size < 1 || node_rank < 0 || node_rank >= node_size)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cannot place local rank %d of %d", node_rank, node_size);
    usable machine;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    tpw_status st;
    TPW_TRY_GOTO(st, find_usable(topology, &machine, err), done);
    if (set == NULL) {
        st = no_memory(err);
        goto done;
    }
    if (machine.unit_count < node_size) {
        (void)hwloc_bitmap_copy(set, topology->allowed);
    } else {
        int first, end;
        cut(&machine, node_rank, node_size, &first, &end);
        for (int i = first; i < end; i++)
            (void)hwloc_bitmap_or(set, set, machine.units[i]->cpuset);
        (void)hwloc_bitmap_and(set, set, topology->allowed);
    }
    if (hwloc_bitmap_list_snprintf(cpus, TPW_MASK_TEXT_MAX, set) >= TPW_MASK_TEXT_MAX)
        st = tpw_fail(err, TPW_ERR_LIMIT,
                      "the CPU list of local rank %d is longer than %d characters: run without binding", node_rank,
                      TPW_MASK_TEXT_MAX - 1);
done:
    free(machine.units);
    free(machine.groups);
    hwloc_bitmap_free(set);
    return st;
}

/* A list text cut at the end if it must be: for reports only. */
static void show(char text[TPW_MASK_TEXT_MAX], hwloc_const_bitmap_t set)
{
    if (hwloc_bitmap_list_snprintf(text, TPW_MASK_TEXT_MAX, set) >= TPW_MASK_TEXT_MAX)
        memcpy(text + TPW_MASK_TEXT_MAX - 4, "...", 4);
}

static bool parse_index(const char **at, unsigned *out)
{
    unsigned value = 0;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        value = value * 10 + (unsigned)(**at - '0');
        if (value > CPU_INDEX_MAX)
            return false;
    }
    *out = value;
    return true;
}

/* "0-3,8" to a set. hwloc's own reader also takes open ranges and stops silently at what it does not know. */
static tpw_status parse_list(const char *text, hwloc_bitmap_t set, tpw_error *err)
{
    const char *at = text;
    bool good = at != NULL && *at != '\0';
    while (good) {
        unsigned first, last;
        good = parse_index(&at, &first);
        last = first;
        if (good && *at == '-') {
            at++;
            good = parse_index(&at, &last) && last >= first;
        }
        good = good && hwloc_bitmap_set_range(set, first, (int)last) == 0;
        if (!good || *at == '\0')
            break;
        good = *at == ',';
        at++;
    }
    if (!good)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "\"%.100s\" is not a list of CPUs such as 0-3,8 (largest index %d)",
                        text != NULL ? text : "", CPU_INDEX_MAX);
    return TPW_OK;
}

/* Fills what is said about the set that the thread has in the end. */
static void describe_obtained(const tpw_topology *topology, hwloc_const_bitmap_t obtained, tpw_binding *out)
{
    hwloc_obj_type_t type = unit_type(topology->hwloc);
    show(out->obtained, obtained);
    out->cores = 0;
    for (hwloc_obj_t unit = NULL; (unit = hwloc_get_next_obj_by_type(topology->hwloc, type, unit)) != NULL;)
        if (hwloc_bitmap_intersects(unit->cpuset, obtained))
            out->cores++;
    hwloc_obj_t node = memory_of(topology->hwloc, obtained);
    out->numa_node = node != NULL ? (int32_t)node->os_index : -1;
}

static tpw_status read_thread(const tpw_topology *topology, hwloc_bitmap_t set, tpw_error *err)
{
    if (hwloc_get_cpubind(topology->hwloc, set, HWLOC_CPUBIND_THREAD) != 0)
        return tpw_fail(err, TPW_ERR_RESOURCE, "cannot read the CPU mask of the calling thread: %s", strerror(errno));
    return TPW_OK;
}

/* The sets of one binding. */
typedef struct bind_sets {
    hwloc_bitmap_t requested, wanted, before, obtained;
} bind_sets;

/* Acts on this system and reads back. STRICT leaves the thread as it was when it returns an error. */
static tpw_status act(const tpw_topology *topology, const bind_sets *sets, tpw_bind_mode mode, tpw_binding *out,
                      tpw_error *err)
{
    bool strict = mode == TPW_BIND_STRICT;
    TPW_TRY(read_thread(topology, sets->before, err));
    if (strict && !hwloc_bitmap_isincluded(sets->requested, topology->allowed))
        return tpw_fail(err, TPW_ERR_RESOURCE, "cannot bind to CPUs %s: this process may use %s only", out->requested,
                        out->allowed);
    int failed = 0;
    if (mode != TPW_BIND_NONE && !hwloc_bitmap_iszero(sets->wanted))
        failed = hwloc_set_cpubind(topology->hwloc, sets->wanted, HWLOC_CPUBIND_THREAD) != 0 ? errno : 0;
    TPW_TRY(read_thread(topology, sets->obtained, err));
    out->changed = !hwloc_bitmap_isequal(sets->before, sets->obtained);
    describe_obtained(topology, sets->obtained, out);
    if (strict && !hwloc_bitmap_isequal(sets->requested, sets->obtained)) {
        (void)hwloc_set_cpubind(topology->hwloc, sets->before, HWLOC_CPUBIND_THREAD);
        return tpw_fail(err, TPW_ERR_RESOURCE, "asked to bind to CPUs %s but obtained %s%s%s", out->requested,
                        out->obtained, failed != 0 ? ": " : "", failed != 0 ? strerror(failed) : "");
    }
    return TPW_OK;
}

tpw_status tpw_bind_cpus(const tpw_topology *topology, const char *cpus, tpw_bind_mode mode, tpw_binding *out,
                         tpw_error *err)
{
    if (topology == NULL || out == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tpw_bind_cpus: topology or out is NULL");
    if (!topology->this_system && mode != TPW_BIND_NONE)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "the topology describes another machine: threads of this one cannot be bound by it");
    memset(out, 0, sizeof *out);
    bind_sets sets = {hwloc_bitmap_alloc(), hwloc_bitmap_alloc(), hwloc_bitmap_alloc(), hwloc_bitmap_alloc()};
    tpw_status st = TPW_OK;
    if (sets.requested == NULL || sets.wanted == NULL || sets.before == NULL || sets.obtained == NULL) {
        st = no_memory(err);
        goto done;
    }
    TPW_TRY_GOTO(st, parse_list(cpus, sets.requested, err), done);
    (void)hwloc_bitmap_and(sets.wanted, sets.requested, topology->allowed);
    show(out->requested, sets.requested);
    show(out->allowed, topology->allowed);
    if (topology->this_system)
        st = act(topology, &sets, mode, out, err);
    else /* no thread runs there; what a rank of that machine could use is the best that can be said */
        describe_obtained(topology, topology->allowed, out);
done:
    hwloc_bitmap_free(sets.requested);
    hwloc_bitmap_free(sets.wanted);
    hwloc_bitmap_free(sets.before);
    hwloc_bitmap_free(sets.obtained);
    return st;
}

static int count_of(const tpw_topology *topology, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology->hwloc, type);
    return count > 0 ? count : 0;
}

void tpw_topology_describe(const tpw_topology *topology, char *text, int bytes)
{
    int packages = count_of(topology, HWLOC_OBJ_PACKAGE), cores = count_of(topology, HWLOC_OBJ_CORE);
    int nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
    if (bytes > 0)
        (void)snprintf(text, (size_t)bytes, "%d package%s, %d core%s, %d NUMA node%s", packages,
                       packages == 1 ? "" : "s", cores, cores == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s");
}
