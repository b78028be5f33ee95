/* Preflight of a job: what every rank has, and whether its parts work together, without a model and without weights.
 *
 * Examines each rank's machine, binding, GPU and communicators, prints nothing and sends what it found to all ranks. What
 * is looked at and what that means for a job is in docs/CLI.md. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_DOCTOR_H
#define TPW_WORKER_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "kernels/gpu.h"
#include "tp/comm.h"
#include "tp/topology.h"

/* X(id, name), in the order in which they are made. */
#define TPW_DOCTOR_MAP(X)                                                               \
    X(TOPOLOGY, "topology") /* hwloc can tell what machine this is */                   \
    X(HOST, "host")         /* the host backend has the instructions asked for */       \
    X(RANKS, "ranks")       /* so many ranks can share a model */                       \
    X(GPU, "gpu")           /* every rank gets a GPU, none too many ranks */            \
    X(CPUS, "cpus")         /* bound as asked for, and read back */                     \
    X(MEMORY, "memory")     /* the same for memory nodes */                             \
    X(MPI, "mpi")           /* an all-reduce of the host's communicator, bit for bit */ \
    X(CUDA, "cuda")         /* stream and memory of the rank's GPU */                   \
    X(SELFTEST, "selftest") /* instructions that have to agree bit for bit */           \
    X(NCCL, "nccl")         /* the GPUs' communicator can be made */                    \
    X(PACKETS, "packets")   /* an all-reduce by each of its transports, bit for bit */  \
    X(COPIES, "copies")                                                                 \
    X(GATHER, "gather")

typedef enum tpw_doctor_id {
#define TPW_DOCTOR_ENUM(id, name) TPW_DOCTOR_##id,
    TPW_DOCTOR_MAP(TPW_DOCTOR_ENUM)
#undef TPW_DOCTOR_ENUM
        TPW_DOCTOR_CHECKS
} tpw_doctor_id;

typedef enum tpw_doctor_result { TPW_DOCTOR_SKIPPED, TPW_DOCTOR_OK, TPW_DOCTOR_FAILED } tpw_doctor_result;

/* One check on one rank. */
typedef struct tpw_doctor_check {
    int32_t result;                /* tpw_doctor_result */
    int32_t status;                /* tpw_status; OK unless it failed */
    int64_t compared;              /* values compared by bits, 0 in checks that compare none */
    char text[TPW_ERROR_TEXT_MAX]; /* what is there, what is wrong, or why it was skipped; never empty */
} tpw_doctor_check;

/* Is the rank's thread near its GPU? */
typedef enum tpw_nearness { TPW_NEARNESS_UNKNOWN, TPW_NEARNESS_NEAR, TPW_NEARNESS_FAR } tpw_nearness;

/* What one rank has. Plain data that goes over the wire; texts end with a zero byte. */
typedef struct tpw_doctor_rank {
    int32_t rank;
    int32_t hosts; /* of the job */
    int64_t pid;
    char host[TPW_HOST_NAME_MAX];
    char machine[96]; /* "2 packages, 16 cores, 2 NUMA nodes" */
    char isa[16];     /* of the host backend */
    tpw_binding cpus;
    tpw_memory_binding memory;
    int32_t gpus_visible;
    char no_gpu[160]; /* why there are none, "" if there are */
    int32_t seated;   /* `gpu` and `nearness` are set; the same on all ranks */
    int32_t nearness; /* tpw_nearness */
    tpw_gpu gpu;
    char warnings[TPW_ERROR_TEXT_MAX]; /* one line, "" for none */
    char cuda[96];                     /* versions compiled against and loaded, or why there are none */
    char driver[32];                   /* of the kernel, "" for none */
    int32_t nccl_compiled;             /* 22809 is 2.28.9; 0 in builds without it */
    int32_t nccl_loaded;
    tpw_doctor_check checks[TPW_DOCTOR_CHECKS];
} tpw_doctor_rank;

typedef struct tpw_doctor_options {
    tpw_bind_mode binding; /* AUTO and STRICT bind the calling thread, as a worker would, and leave it so */
    const char *isa;       /* as for tpw_host_create */
    bool gpus_needed;  /* it fails if no rank sees a GPU, with ERR_RESOURCE; else that is why GPUs are passed over */
    bool gpus_ignored; /* the job runs on the host: no GPU is looked for */
    int ranks_per_gpu; /* as tpw_options says, and with what it says of NCCL_HOSTID */
    /* Collective: makes the host's communicator. NULL: tpw_comm_mpi_create, for which `boot` must be of MPI. */
    tpw_status (*make_comm)(tpw_boot *boot, tpw_comm **out, tpw_error *err);
} tpw_doctor_options;

/* Collective. Makes all checks; ranks[0..boot->size) then holds what each rank found, the same on all ranks. OK also when
 * checks failed: tpw_doctor_verdict says so. ERR_PEER (or what the boot says) when the ranks cannot reach each other any
 * more, ERR_MEMORY; `ranks` is then undefined. Every wait ends after the boot's timeout, except that of NCCL's own
 * all-gather kernel for a peer that stops in the middle of it. Leaves the thread's current CUDA device as it was. A
 * process that has NCCL must set NCCL_NVLS_ENABLE=0 before: NVLink multicast sums in no fixed order. */
tpw_status tpw_doctor_run(tpw_boot *boot, const tpw_doctor_options *options, tpw_doctor_rank *ranks,
                          tpw_error *err) TPW_MUST_CHECK;

/* Pure. OK when no check failed on any rank; else the worst status of those that did, with the first rank that has it, its
 * host, the check and its text. The same on all ranks. */
tpw_status tpw_doctor_verdict(const tpw_doctor_rank *ranks, int size, tpw_error *err) TPW_MUST_CHECK;

/* "topology", ... Static storage. */
const char *tpw_doctor_name(tpw_doctor_id id);

/* Pure. A thread is near when what is near the GPU is known and its CPUs are those asked for, or in the same memory node. */
tpw_nearness tpw_doctor_nearness(const tpw_near *near, const tpw_binding *cpus);

#endif
