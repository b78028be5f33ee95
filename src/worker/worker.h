/* The inside of a worker: the one struct that holds every handle. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_WORKER_H
#define TPW_WORKER_WORKER_H

#include "tpworker/worker.h"

#include "base/log.h"
#include "kernels/ops.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/partition.h"
#include "model/pass.h"
#include "model/state.h"
#include "model/weights.h"
#include "tp/boot.h"
#include "tp/comm.h"
#include "tp/place.h"
#include "tp/ring.h"
#include "tp/topology.h"
#include "worker/accept.h"
#include "worker/carry.h"
#include "worker/control.h"
#include "worker/events.h"
#include "worker/options.h"
#include "worker/schedule.h"
#include "worker/sequence.h"

typedef enum tpw_worker_stage { TPW_CREATED, TPW_LOADED, TPW_FINALIZED, TPW_FAILED } tpw_worker_stage;

/* A sequence that ends with this step. */
typedef struct tpw_over {
    tpw_sequence *sequence;
    tpw_finish why;
} tpw_over;

/* Rows whose hidden digests are summed into one number a layer: a whole prompt chunk, or one row of a verified run. */
typedef struct tpw_hidden_group {
    int32_t row0;
    int32_t rows;
    int64_t pos; /* absolute position of the first row */
} tpw_hidden_group;

/* Arrays of one step, sized at load. */
typedef struct tpw_step_buffers {
    tpw_candidate *candidates;   /* [sequences_max] */
    tpw_planned *planned;        /* [sequences_max] */
    tpw_segment *segments;       /* [sequences_max] */
    tpw_segment *chain_segments; /* [TPW_K_MAX * sequences_max] of the MTP chain */
    tpw_batch chain[TPW_K_MAX];  /* by draft; of the first only rows count, since it runs no pass */
    int32_t chain_length;
    int32_t *ids;              /* [rows_max] as run, known after the step */
    int32_t *drafts;           /* [sequences_max * TPW_K_MAX] by planned entry; of the MTP chain known after the step */
    int32_t *who;              /* [sequences_max]: planned entries still drafting */
    int32_t *taken;            /* [sequences_max]: rows that the step commits, by planned entry */
    tpw_hidden_group *groups;  /* [rows_max] */
    tpw_over *over;            /* [sequences_max] */
    uint64_t *hidden;          /* [rows_max * layers], by group */
    uint64_t *scopes;          /* [scope_count]: local sums of a finished sequence */
    uint64_t *scopes_all;      /* [size * scope_count] */
    tpw_scope_digest *traced;  /* [scope_count] */
    tpw_scope_digest objected; /* the traced one that was not expected */
} tpw_step_buffers;

struct tpw_worker {
    tpw_worker_stage stage;
    tpw_settings settings;
    tpw_log log;
    tpw_boot *boot;
    tpw_comm *comm;      /* of host memory */
    tpw_comm *gpu_comm;  /* of the GPUs' memory; NULL on the host backend */
    tpw_comm *gpu_noted; /* the same with the ring around it, which owns it once it is there */
    bool on_gpu;
    tpw_seat seat; /* on_gpu: which GPU, and what is near it */
    tpw_memory_binding memory;
    tpw_exec *exec;
    tpw_pool *pool; /* of exec: weights, state, workspace, what is pinned */
    tpw_topology *topology;
    tpw_binding binding;
    tpw_config config;
    tpw_partition part;
    int32_t context_max;
    tpw_state_bytes state_bytes;
    size_t workspace_bytes;
    int64_t file_bytes;
    tpw_weight_sums weights;
    tpw_weight_digest *weight_digests; /* [weight_count]; names are those of weights */
    int32_t weight_count;
    tpw_model *model;
    tpw_state *state;
    tpw_pass *pass;
    tpw_sequences sequences;
    tpw_carry carry;
    tpw_digest_list digests; /* of scopes, while they are listed */
    tpw_ring ring;
    tpw_control control;   /* rank 0: what the next step will announce */
    unsigned char *record; /* body of the control record being applied */
    size_t record_capacity;
    tpw_events events;
    tpw_step_buffers buf;
    int32_t scope_count;
    tpw_rank_info *ranks; /* [size] */
    tpw_stats stats;
    int64_t step;
    bool stopped;
    tpw_error rest; /* what this rank found wrong in state at rest in this step; status OK: nothing */
    bool poison;    /* tests: what is free is NaN */
};

/* Tests: fills every free slot and page with 0xFF (NaN) now and whenever one becomes free, so that a read of what was not
 * written shows. Local. */
tpw_status tpw_worker_poison(tpw_worker *worker, tpw_error *err) TPW_MUST_CHECK;

/* Parts of load (load.c) and of the step (step.c, finish.c). */
tpw_status tpw_worker_gather_ranks(tpw_worker *worker, tpw_error *err) TPW_MUST_CHECK; /* collective */
/* Collective, after gather_ranks. Compares copies of weights and, when asked for, adds up the digests of all tensors. */
tpw_status tpw_worker_compare_weights(tpw_worker *worker, tpw_error *err) TPW_MUST_CHECK;

/* Collective. Ends a sequence: digests over all ranks, the FINISHED event, slot and pages back. */
tpw_status tpw_worker_finish(tpw_worker *worker, tpw_sequence *sequence, tpw_finish finish,
                             tpw_error *err) TPW_MUST_CHECK;

#endif
