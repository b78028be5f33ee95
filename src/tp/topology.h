/* The hwloc door: what this machine looks like to this process, what is near a GPU, and binding of CPUs and memory that
 * is read back. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_TOPOLOGY_H
#define TPW_TP_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define TPW_MASK_TEXT_MAX 128

typedef struct tpw_topology tpw_topology;

typedef enum tpw_bind_mode {
    TPW_BIND_NONE,  /* leave it as the launcher made it */
    TPW_BIND_AUTO,  /* bind if it can be done, report either way */
    TPW_BIND_STRICT /* ERR_RESOURCE when the obtained mask is not the requested one */
} tpw_bind_mode;

/* What was asked for and what came out, as hwloc list texts ("0-3,8"). */
typedef struct tpw_binding {
    char requested[TPW_MASK_TEXT_MAX];
    char obtained[TPW_MASK_TEXT_MAX];
    char allowed[TPW_MASK_TEXT_MAX]; /* this process's allowed set before binding */
    int32_t cores;                   /* cores in the obtained set */
    int32_t numa_node;               /* the one that holds the whole obtained set, or -1 */
    bool changed;
} tpw_binding;

/* The same for memory nodes ("0", "0-1"). */
typedef struct tpw_memory_binding {
    char requested[TPW_MASK_TEXT_MAX]; /* "": no node is known to be near */
    char obtained[TPW_MASK_TEXT_MAX];  /* where the thread's new pages go, "" when that cannot be read */
    char allowed[TPW_MASK_TEXT_MAX];
    char reason[TPW_MASK_TEXT_MAX]; /* why it is not what was asked for, "" if it is or nothing was asked for */
    bool bound;                     /* the thread prefers (AUTO) or takes only (STRICT) the obtained nodes */
    bool changed;
} tpw_memory_binding;

/* How well the place of a PCI device is known. */
typedef enum tpw_locality {
    TPW_NEAR_KNOWN,   /* CPUs near it may be used */
    TPW_NEAR_NO_CPUS, /* its place is known, but the CPUs there may not be used or there are none */
    TPW_NEAR_UNKNOWN, /* hwloc sees it, but not near which of several memory nodes */
    TPW_NEAR_UNSEEN   /* hwloc does not see it: a container without PCI view, or a bus that is not there */
} tpw_locality;

/* What is near a PCI device, inside what this process may use, as list texts. */
typedef struct tpw_near {
    tpw_locality locality;
    char cpus[TPW_MASK_TEXT_MAX];  /* never empty; the whole allowed set unless TPW_NEAR_KNOWN */
    char nodes[TPW_MASK_TEXT_MAX]; /* memory nodes with host memory; "" when none is known or allowed */
    int32_t numa_node;             /* OS index of the only one of `nodes`, or -1 */
    int32_t cpus_left_out; /* CPUs at the end of the set for which the text has no room: 0 but for odd numberings */
} tpw_near;

/* xml: path of a recorded machine, or NULL for this one. */
tpw_status tpw_topology_load(const char *xml, tpw_topology **out, tpw_error *err) TPW_MUST_CHECK;
void tpw_topology_destroy(tpw_topology *topology);

/* Pure decision: the CPUs (hwloc list text) for local rank `node_rank` of `node_size` without a GPU: the allowed set's
 * cores in order, cut into node_size neighbouring parts that do not cross a NUMA node when that is possible; all ranks share
 * the whole allowed set when there are fewer cores than ranks. */
tpw_status tpw_place_cpus(const tpw_topology *topology, int node_rank, int node_size, char cpus[TPW_MASK_TEXT_MAX],
                          tpw_error *err) TPW_MUST_CHECK;

/* Binds the calling thread (new threads inherit) to `cpus` intersected with the allowed set, then reads back. Local. */
tpw_status tpw_bind_cpus(const tpw_topology *topology, const char *cpus, tpw_bind_mode mode, tpw_binding *out,
                         tpw_error *err) TPW_MUST_CHECK;

/* Pure decision: what is near the PCI device `bus` ("0000:3b:00.0"), of whose CPUs the caller is share `part` of
 * `parts`: cut as by tpw_place_cpus, whole when there are fewer cores than parts. Without a known place nothing is
 * cut. ERR_ARGUMENT for parts < 1 or part outside [0, parts). */
tpw_status tpw_topology_near_gpu(const tpw_topology *topology, const char *bus, int part, int parts, tpw_near *out,
                                 tpw_error *err) TPW_MUST_CHECK;

/* True if the CPUs near both devices are known and the same: then those who use them should share. False without
 * memory. */
bool tpw_topology_near_same(const tpw_topology *topology, const char *bus, const char *other);

/* A digest of this process's allowed CPUs, for the question whether another process of this host has the same. */
uint64_t tpw_topology_allowed_key(const tpw_topology *topology);

/* Lets the calling thread (new threads inherit) take new pages from `nodes` (list text, "" for none known) and reads
 * back; pages that exist stay where they are. AUTO makes the nodes preferred, stays inside a set that the launcher
 * bound to (numactl --membind), and puts into `reason` what kept it from more. STRICT takes the nodes and no others,
 * ERR_RESOURCE if that cannot be had, also for "". Local. */
tpw_status tpw_bind_memory(const tpw_topology *topology, const char *nodes, tpw_bind_mode mode, tpw_memory_binding *out,
                           tpw_error *err) TPW_MUST_CHECK;

/* "2 packages, 16 cores, 2 NUMA nodes" into a caller's buffer. */
void tpw_topology_describe(const tpw_topology *topology, char *text, int bytes);

#endif
