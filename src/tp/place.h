/* Which GPU each rank of a job takes, and the CPUs and memory near it: pure decisions over what all ranks have told.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_PLACE_H
#define TPW_TP_PLACE_H

#include "kernels/gpu.h"
#include "tp/boot.h"
#include "tp/topology.h"

#define TPW_PLACE_GPUS_MAX    32 /* visible to one rank */
#define TPW_RANKS_PER_GPU_MAX 8

/* What one rank tells. Texts end with a zero byte. */
typedef struct tpw_place_rank {
    char host[TPW_HOST_NAME_MAX];
    uint64_t allowed_key; /* tpw_topology_allowed_key: ranks of a host with equal masks share their CPUs */
    int32_t gpu_count;
    tpw_gpu gpus[TPW_PLACE_GPUS_MAX]; /* those that it sees, in its own order */
} tpw_place_rank;

/* Where one rank sits. */
typedef struct tpw_seat {
    int32_t choice; /* of the rank's list; gpu.index is what the CUDA backend calls it */
    tpw_gpu gpu;
    char cpus[TPW_MASK_TEXT_MAX];  /* for tpw_bind_cpus */
    char nodes[TPW_MASK_TEXT_MAX]; /* for tpw_bind_memory; "" when no memory node is known to be near */
    int32_t numa_node;             /* the only one of `nodes`, or -1 */
    int32_t share; /* this rank's number among the `shares` ranks that divide the CPUs near their GPUs */
    int32_t shares;
    int32_t sharers;                   /* ranks on this GPU, this one among them */
    char warnings[TPW_ERROR_TEXT_MAX]; /* one line, "; " between several, "" for none */
} tpw_seat;

/* Pure. Chooses chosen[r], an index into ranks[r].gpus, for all `size` ranks of the job. GPUs are told apart by UUID
 * (by bus where there is none). On each host: the ranks take the GPUs that all of them see, in order of PCI bus; if
 * those are too few, each in turn takes the lowest bus that leaves every later rank one. A rank that sees a whole GPU
 * takes no MIG slice. A GPU takes up to `ranks_per_gpu` ranks (1..TPW_RANKS_PER_GPU_MAX); on each host they are spread as
 * evenly as what they see allows. ERR_RESOURCE, naming ranks, buses, UUIDs and a remedy: a rank without GPU, more
 * ranks than places, too many ranks on one GPU (also from two hosts), only slices with more than one rank, different
 * models. ERR_ARGUMENT for counts out of range. */
tpw_status tpw_place_gpus(const tpw_place_rank *ranks, int size, int ranks_per_gpu, int32_t *chosen,
                          tpw_error *err) TPW_MUST_CHECK;

/* Pure. The seat of `rank` on the machine `topology`, after tpw_place_gpus. CPUs near the GPU are divided between the
 * ranks of the host that have the same mask and whose GPUs are near the same CPUs. What is not known is warned of,
 * and then the whole allowed set is the rank's. */
tpw_status tpw_place_seat(const tpw_topology *topology, const tpw_place_rank *ranks, int size, const int32_t *chosen,
                          int rank, tpw_seat *out, tpw_error *err) TPW_MUST_CHECK;

#endif
