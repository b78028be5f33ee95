/* The hwloc door: loads a machine, decides which CPUs and memory a rank gets, binds and reads back. One file,
 * though long, because nothing else may know hwloc. SPDX-License-Identifier: Apache-2.0 */
#include "tp/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/digest.h"

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
    /* PCI devices only: hwloc's finders of OS devices may be plugins that start CUDA or NVML in this process */
    if (hwloc_topology_set_type_filter(hwloc, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0)
        return tpw_fail(err, TPW_ERR_RESOURCE, "hwloc cannot be told to look for PCI devices: %s", strerror(errno));
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

/* Lists the units with CPUs of `within` and groups them by memory node. Free both arrays, also after an error. */
static tpw_status find_usable(const tpw_topology *topology, hwloc_const_bitmap_t within, usable *out, tpw_error *err)
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
        if (!hwloc_bitmap_intersects(unit->cpuset, within))
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

/* Part `part` of `parts` of the CPUs `within`, all of them when there are too few cores to cut. */
static tpw_status take_part(const tpw_topology *topology, hwloc_const_bitmap_t within, int part, int parts,
                            hwloc_bitmap_t out, tpw_error *err)
{
    usable machine;
    tpw_status st;
    TPW_TRY_GOTO(st, find_usable(topology, within, &machine, err), done);
    if (machine.unit_count < parts) {
        (void)hwloc_bitmap_copy(out, within);
        goto done;
    }
    int first, end;
    cut(&machine, part, parts, &first, &end);
    hwloc_bitmap_zero(out);
    for (int i = first; i < end; i++)
        (void)hwloc_bitmap_or(out, out, machine.units[i]->cpuset);
    (void)hwloc_bitmap_and(out, out, within);
done:
    free(machine.units);
    free(machine.groups);
    return st;
}

tpw_status tpw_place_cpus(const tpw_topology *topology, int node_rank, int node_size, char cpus[TPW_MASK_TEXT_MAX],
                          tpw_error *err)
{
    if (topology == NULL || cpus == NULL || node_size < 1 || node_rank < 0 || node_rank >= node_size)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cannot place local rank %d of %d", node_rank, node_size);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL)
        return no_memory(err);
    tpw_status st;
    TPW_TRY_GOTO(st, take_part(topology, topology->allowed, node_rank, node_size, set, err), done);
    if (hwloc_bitmap_list_snprintf(cpus, TPW_MASK_TEXT_MAX, set) >= TPW_MASK_TEXT_MAX)
        st = tpw_fail(err, TPW_ERR_LIMIT,
                      "the CPU list of local rank %d is longer than %d characters: run without binding", node_rank,
                      TPW_MASK_TEXT_MAX - 1);
done:
    hwloc_bitmap_free(set);
    return st;
}

/* Memory nodes of `among` that hold host memory. Some GPUs show their own memory as a node: no place for a host's
 * pages. */
static void host_nodes(const tpw_topology *topology, hwloc_const_bitmap_t among, hwloc_bitmap_t out)
{
    hwloc_bitmap_zero(out);
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL;)
        if (hwloc_bitmap_isset(among, node->os_index) &&
            (node->subtype == NULL || strcmp(node->subtype, "GPUMemory") != 0))
            (void)hwloc_bitmap_set(out, node->os_index);
}

/* Leaves out nodes that also serve CPUs outside of `home` (a large one around small ones), unless none is left then. */
static void drop_wide_nodes(const tpw_topology *topology, hwloc_obj_t home, hwloc_bitmap_t nodes)
{
    int narrow = 0;
    for (int pass = 0; pass < 2 && (pass == 0 || narrow > 0); pass++)
        for (hwloc_obj_t node = NULL;
             (node = hwloc_get_next_obj_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL;) {
            bool inside = node->cpuset == NULL || hwloc_bitmap_isincluded(node->cpuset, home->cpuset) != 0;
            if (pass == 0)
                narrow += inside && hwloc_bitmap_isset(nodes, node->os_index);
            else if (!inside)
                (void)hwloc_bitmap_clr(nodes, node->os_index);
        }
}

/* Finds the object that a PCI device hangs on, and fills the usable CPUs and host memory nodes there; without a known
 * place: all CPUs, and the node if there is only one. */
static tpw_locality find_near(const tpw_topology *topology, const char *bus, hwloc_bitmap_t cpus, hwloc_bitmap_t nodes)
{
    hwloc_obj_t device = bus != NULL ? hwloc_get_pcidev_by_busidstring(topology->hwloc, bus) : NULL;
    hwloc_obj_t home = device != NULL ? hwloc_get_non_io_ancestor_obj(topology->hwloc, device) : NULL;
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_nodeset(topology->hwloc);
    host_nodes(topology, hwloc_topology_get_topology_nodeset(topology->hwloc), nodes);
    int all = hwloc_bitmap_weight(nodes);
    if (home != NULL)
        host_nodes(topology, home->nodeset, nodes);
    tpw_locality locality = home == NULL                                   ? TPW_NEAR_UNSEEN
                            : all > 1 && hwloc_bitmap_weight(nodes) == all ? TPW_NEAR_UNKNOWN
                                                                           : TPW_NEAR_KNOWN;
    (void)hwloc_bitmap_copy(cpus, topology->allowed);
    if (locality != TPW_NEAR_KNOWN) {
        if (all > 1)
            hwloc_bitmap_zero(nodes);
    } else {
        drop_wide_nodes(topology, home, nodes);
        if (hwloc_bitmap_intersects(cpus, home->cpuset))
            (void)hwloc_bitmap_and(cpus, cpus, home->cpuset);
        else
            locality = TPW_NEAR_NO_CPUS;
    }
    if (allowed != NULL)
        (void)hwloc_bitmap_and(nodes, nodes, allowed);
    return locality;
}

/* A list text without those of the last members for which it has no room. Returns how many are left out. */
static int fit(char text[TPW_MASK_TEXT_MAX], hwloc_bitmap_t set)
{
    int left_out = 0;
    for (; hwloc_bitmap_list_snprintf(text, TPW_MASK_TEXT_MAX, set) >= TPW_MASK_TEXT_MAX; left_out++)
        (void)hwloc_bitmap_clr(set, (unsigned)hwloc_bitmap_last(set));
    return left_out;
}

tpw_status tpw_topology_near_gpu(const tpw_topology *topology, const char *bus, int part, int parts, tpw_near *out,
                                 tpw_error *err)
{
    if (topology == NULL || bus == NULL || out == NULL || parts < 1 || part < 0 || part >= parts)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "cannot take share %d of %d of the CPUs near a GPU", part, parts);
    *out = (tpw_near){.numa_node = -1};
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc(), nodes = hwloc_bitmap_alloc(), share = hwloc_bitmap_alloc();
    tpw_status st = cpus != NULL && nodes != NULL && share != NULL ? TPW_OK : no_memory(err);
    if (st != TPW_OK)
        goto done;
    out->locality = find_near(topology, bus, cpus, nodes);
    bool whole = out->locality != TPW_NEAR_KNOWN;
    TPW_TRY_GOTO(st, take_part(topology, cpus, whole ? 0 : part, whole ? 1 : parts, share, err), done);
    out->cpus_left_out = fit(out->cpus, share);
    (void)fit(out->nodes, nodes);
    if (hwloc_bitmap_weight(nodes) == 1)
        out->numa_node = hwloc_bitmap_first(nodes);
done:
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(nodes);
    hwloc_bitmap_free(share);
    return st;
}

bool tpw_topology_near_same(const tpw_topology *topology, const char *bus, const char *other)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc(), others = hwloc_bitmap_alloc(), nodes = hwloc_bitmap_alloc();
    bool same = topology != NULL && cpus != NULL && others != NULL && nodes != NULL &&
                find_near(topology, bus, cpus, nodes) == TPW_NEAR_KNOWN &&
                find_near(topology, other, others, nodes) == TPW_NEAR_KNOWN && hwloc_bitmap_isequal(cpus, others);
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(others);
    hwloc_bitmap_free(nodes);
    return same;
}

uint64_t tpw_topology_allowed_key(const tpw_topology *topology)
{
    uint64_t sum = 0, key = tpw_digest_key("allowed");
    unsigned cpu;
    hwloc_bitmap_foreach_begin(cpu, topology->allowed) sum += tpw_digest_term(key, cpu, 1);
    hwloc_bitmap_foreach_end();
    return sum;
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
static tpw_status parse_list(const char *text, const char *what, hwloc_bitmap_t set, tpw_error *err)
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
        return tpw_fail(err, TPW_ERR_ARGUMENT, "\"%.100s\" is not a list of %s such as 0-3,8 (largest index %d)",
                        text != NULL ? text : "", what, CPU_INDEX_MAX);
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
    TPW_TRY_GOTO(st, parse_list(cpus, "CPUs", sets.requested, err), done);
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

/* A thread's memory policy. */
typedef struct policy {
    hwloc_bitmap_t nodes;
    hwloc_membind_policy_t kind;
} policy;

#define MEMORY_FLAGS (HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET)

/* The sets of one binding of memory. */
typedef struct memory_sets {
    hwloc_bitmap_t requested, wanted, allowed;
    policy before, now;
} memory_sets;

/* Returns errno, 0 when it worked. */
static int read_policy(const tpw_topology *topology, policy *out)
{
    return hwloc_get_membind(topology->hwloc, out->nodes, &out->kind, MEMORY_FLAGS) == 0 ? 0 : errno;
}

static void put_policy_back(const tpw_topology *topology, const policy *before)
{
    /* the kernel's default is read as first touch, and writing that would make it a policy of its own */
    bool plain = before->kind == HWLOC_MEMBIND_FIRSTTOUCH || before->kind == HWLOC_MEMBIND_DEFAULT;
    (void)hwloc_set_membind(topology->hwloc, before->nodes, plain ? HWLOC_MEMBIND_DEFAULT : before->kind, MEMORY_FLAGS);
}

/* Sets what is wanted and reads back. Returns errno of what failed, 0 if nothing did. */
static int set_policy(const tpw_topology *topology, memory_sets *sets, tpw_bind_mode mode, tpw_memory_binding *out)
{
    int failed = read_policy(topology, &sets->before);
    if (failed != 0)
        return failed;
    if (mode == TPW_BIND_AUTO && sets->before.kind == HWLOC_MEMBIND_BIND)
        (void)hwloc_bitmap_and(sets->wanted, sets->wanted, sets->before.nodes);
    if (mode != TPW_BIND_NONE && !hwloc_bitmap_iszero(sets->wanted) &&
        hwloc_set_membind(topology->hwloc, sets->wanted, HWLOC_MEMBIND_BIND,
                          MEMORY_FLAGS | (mode == TPW_BIND_STRICT ? HWLOC_MEMBIND_STRICT : 0)) != 0)
        failed = errno;
    int unread = read_policy(topology, &sets->now);
    if (unread != 0)
        return unread;
    show(out->obtained, sets->now.nodes);
    out->bound = sets->now.kind == HWLOC_MEMBIND_BIND;
    out->changed = sets->now.kind != sets->before.kind || !hwloc_bitmap_isequal(sets->now.nodes, sets->before.nodes);
    return failed;
}

/* Acts on this system. STRICT leaves the thread as it was when it returns an error. */
static tpw_status act_on_memory(const tpw_topology *topology, memory_sets *sets, tpw_bind_mode mode,
                                tpw_memory_binding *out, tpw_error *err)
{
    bool strict = mode == TPW_BIND_STRICT;
    if (strict && hwloc_bitmap_iszero(sets->requested))
        return tpw_fail(err, TPW_ERR_RESOURCE, "cannot bind memory: no allowed memory node is known to be near");
    if (strict && !hwloc_bitmap_isincluded(sets->requested, sets->allowed))
        return tpw_fail(err, TPW_ERR_RESOURCE, "cannot bind to memory nodes %s: this process may use %s only",
                        out->requested, out->allowed);
    int failed = set_policy(topology, sets, mode, out);
    bool had = failed == 0 && out->bound && hwloc_bitmap_isequal(sets->requested, sets->now.nodes);
    if (had || mode == TPW_BIND_NONE)
        return TPW_OK;
    const char *why = failed != 0                            ? strerror(failed)
                      : hwloc_bitmap_iszero(sets->requested) ? "no allowed memory node is known to be near"
                      : hwloc_bitmap_iszero(sets->wanted)    ? "outside of what this process may use"
                                                             : "only a part may be used";
    (void)snprintf(out->reason, sizeof out->reason, "%s", why);
    if (!strict)
        return TPW_OK;
    put_policy_back(topology, &sets->before);
    return tpw_fail(err, TPW_ERR_RESOURCE, "asked to bind to memory nodes %s but obtained %s: %s", out->requested,
                    out->obtained[0] != '\0' ? out->obtained : "none", why);
}

tpw_status tpw_bind_memory(const tpw_topology *topology, const char *nodes, tpw_bind_mode mode, tpw_memory_binding *out,
                           tpw_error *err)
{
    if (topology == NULL || nodes == NULL || out == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tpw_bind_memory: topology, nodes or out is NULL");
    if (!topology->this_system && mode != TPW_BIND_NONE)
        return tpw_fail(err, TPW_ERR_UNSUPPORTED,
                        "the topology describes another machine: memory of this one cannot be bound by it");
    memset(out, 0, sizeof *out);
    memory_sets sets = {hwloc_bitmap_alloc(),
                        hwloc_bitmap_alloc(),
                        hwloc_bitmap_dup(hwloc_topology_get_topology_nodeset(topology->hwloc)),
                        {hwloc_bitmap_alloc(), HWLOC_MEMBIND_DEFAULT},
                        {hwloc_bitmap_alloc(), HWLOC_MEMBIND_DEFAULT}};
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_nodeset(topology->hwloc);
    tpw_status st = TPW_OK;
    if (sets.requested == NULL || sets.wanted == NULL || sets.allowed == NULL || sets.before.nodes == NULL ||
        sets.now.nodes == NULL) {
        st = no_memory(err);
        goto done;
    }
    if (nodes[0] != '\0')
        TPW_TRY_GOTO(st, parse_list(nodes, "memory nodes", sets.requested, err), done);
    if (allowed != NULL)
        (void)hwloc_bitmap_and(sets.allowed, sets.allowed, allowed);
    (void)hwloc_bitmap_and(sets.wanted, sets.requested, sets.allowed);
    show(out->requested, sets.requested);
    show(out->allowed, sets.allowed);
    if (topology->this_system)
        st = act_on_memory(topology, &sets, mode, out, err);
    else /* no thread runs there; what a rank of that machine could use is the best that can be said */
        show(out->obtained, sets.allowed);
done:
    hwloc_bitmap_free(sets.requested);
    hwloc_bitmap_free(sets.wanted);
    hwloc_bitmap_free(sets.allowed);
    hwloc_bitmap_free(sets.before.nodes);
    hwloc_bitmap_free(sets.now.nodes);
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
