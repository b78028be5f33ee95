/* The hwloc door: what this machine looks like to this process, and CPU binding that is read back.
 * SPDX-License-Identifier: Apache-2.0 */
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

/* "2 packages, 16 cores, 2 NUMA nodes" into a caller's buffer. */
void tpw_topology_describe(const tpw_topology *topology, char *text, int bytes);

#endif
