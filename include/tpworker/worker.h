/* The worker: one rank of a tensor-parallel group that admits sequences, steps them all, and tells what came out.
 *
 * The life of a worker: create -> load -> (admit | cancel | step | poll)* -> finalize -> destroy.
 *   Collective calls must be made by every rank of the communicator, in the same order: create, load, step, finalize.
 *   Rank 0 leads: admit, cancel and stop are legal there only, and reach the other ranks with the next step.
 *   Local calls: everything else.
 * A worker is not thread-safe: one thread at a time may use it. Several workers may live in one process. The library never
 * exits, prints or reads the environment; MPI (thread level SERIALIZED or more) is initialised by its host, and a
 * worker only ever uses duplicates of the communicator that it was given. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPWORKER_WORKER_H
#define TPWORKER_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpworker/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tpw_worker tpw_worker;

typedef enum tpw_compute {
    TPW_COMPUTE_BF16, /* activations and KV are BF16; sums are FP32 */
    TPW_COMPUTE_F32   /* activations and KV are FP32 */
} tpw_compute;

/* Where the model runs. */
typedef enum tpw_backend {
    TPW_BACKEND_HOST, /* this machine's processors: the reference, and the default of the library */
    TPW_BACKEND_CUDA, /* NVIDIA GPUs, one a rank unless ranks_per_gpu says otherwise; compute BF16 only */
    TPW_BACKEND_AUTO /* GPUs if every rank gets one (see ranks_per_gpu) and compute is BF16, else the host; the same on all ranks */
} tpw_backend;

typedef enum tpw_binding_mode { TPW_BINDING_NONE, TPW_BINDING_AUTO, TPW_BINDING_STRICT } tpw_binding_mode;

/* One finished log line of level 0 error, 1 warning, 2 information, 3 debug. Called from within worker calls. */
typedef void tpw_log_function(void *data, int level, const char *line);
/* Loading progress of this rank, now and then. Bytes of its weights. */
typedef void tpw_progress_function(void *data, size_t bytes_done, size_t bytes_total);

/* Proposes up to k tokens to follow tokens[0..count): a drafter of the caller's in place of the MTP module. Must give the same on all ranks
 * for the same arguments, in [0, vocabulary). Returns how many it wrote, 0..k. Whatever it proposes changes speed only. */
typedef int32_t tpw_draft_function(void *data, uint64_t id, const int32_t *tokens, int32_t count, int32_t k,
                                   int32_t *drafts);

#define TPW_K_MAX 8

/* How much is compared. Comparison across ranks sees what differs between ranks; a fault inside one rank's arithmetic reaches all ranks
 * as the same wrong sum, and only another run (trace, probe, verify) shows it. */
typedef enum tpw_check {
    TPW_CHECK_STEP, /* replicated values after every step; state at rest every check_every steps; all at a sequence's end */
    TPW_CHECK_END, /* only at a sequence's end */
    TPW_CHECK_OFF  /* no digests at all */
} tpw_check;

/* The digest of one scope of one sequence at a committed position, as it stands on every rank. */
typedef struct tpw_trace_record {
    uint64_t id;
    int64_t position; /* committed tokens */
    int64_t step;
    const char *scope; /* as tpw_scope_digest */
    int32_t layer;
    uint64_t global;       /* replicated scopes: rank 0's; others: the sum */
    const uint64_t *ranks; /* [rank_count] each rank's own */
    int32_t rank_count;
} tpw_trace_record;

/* Called on rank 0 for every scope of every sequence whose mark a step moved, in the order of the scopes. False says that the record is
 * not what was expected: after the remaining records the step ends with ERR_DIVERGED on all ranks, naming the earliest of them in
 * the order of execution. Must not call into the worker. */
typedef bool tpw_trace_function(void *data, const tpw_trace_record *record);

/* All settings of a worker. Start from tpw_options_init or TPW_OPTIONS_INIT; must be equal on all ranks except for the
 * callbacks (compared at create). Strings are copied. */
typedef struct tpw_options {
    size_t size;          /* sizeof(tpw_options): the version of this struct */
    const char *model;    /* Hugging Face folder; NULL with `dummy` */
    const char *dummy;    /* "qwen3.5-0.8b", "-4b", "-9b", "-27b": hashed weights of that shape; NULL with `model` */
    int32_t dummy_layers; /* 0: as published */
    int32_t dummy_vocab;  /* 0: as published */
    tpw_compute compute;
    int32_t sequences_max; /* sequences that hold a state slot at once; 1..4096, default 8 */
    int32_t rows_max;      /* rows of one step; default 256. Must be at least sequences_max */
    int32_t chunk;         /* most prompt rows of one sequence in one step; default 256 */
    int32_t page_size;     /* KV positions a page: power of two, 1..256; default 64 */
    int32_t pages;         /* KV pages in all; 0: enough for sequences_max sequences of context_max */
    int32_t context_max;   /* positions of one sequence, prompt and output; 0: the model's limit, at most 4,096 */
    int32_t draft_max;     /* K: tokens drafted and verified a step beside the certain one; 0..TPW_K_MAX, default 0 */
    tpw_draft_function *drafter; /* NULL: the checkpoint's MTP module */
    void *drafter_data;
    tpw_check check;           /* default STEP */
    int32_t check_every;       /* steps between checks of state at rest; 0: never; default 64 */
    tpw_trace_function *trace; /* NULL: none. Set on all ranks or on none; called on rank 0 */
    void *trace_data;
    int32_t trace_every;      /* steps between traced ones; default 1 */
    int64_t timeout_ms;       /* deadline of every wait for a peer; default 30,000 */
    const char *isa;          /* host backend: "auto" (NULL), "baseline", "avx2", "avx512" */
    tpw_binding_mode binding; /* CPU binding of the calling thread; default NONE for a library */
    tpw_log_function *log;    /* NULL: silent */
    void *log_data;
    int log_level;                   /* most detailed level that is sent; default 1 */
    tpw_progress_function *progress; /* NULL: none */
    void *progress_data;
    bool weight_digests; /* load also digests every tensor: about 2 ns an element, see tpw_worker_weight_digests */
    tpw_backend backend; /* default HOST */
    /* Ranks that may share one GPU; 1..8, default 1. More are for tests on machines with fewer GPUs than ranks: the bits are the same, the
     * speed is not. NCCL takes such ranks only when it believes that they are on different hosts: start each process with its own
     * NCCL_HOSTID in its environment. Sums then go over NCCL's network transport. */
    int32_t ranks_per_gpu;
} tpw_options;

#define TPW_OPTIONS_INIT                                                                                               \
    {                                                                                                                  \
        sizeof(tpw_options), NULL, NULL, 0, 0, TPW_COMPUTE_BF16, 8, 256, 256, 64, 0, 0, 0, NULL, NULL, TPW_CHECK_STEP, \
            64, NULL, NULL, 1, 30000, NULL, TPW_BINDING_NONE, NULL, NULL, 1, NULL, NULL, false, TPW_BACKEND_HOST, 1    \
    }
TPW_API void tpw_options_init(tpw_options *options);

/* A sequence to generate. Copied by admit. */
typedef struct tpw_request {
    size_t size;        /* sizeof(tpw_request) */
    uint64_t id;        /* the caller's; unique among sequences not yet finished */
    const int32_t *ids; /* [count] prompt tokens, each in [0, vocabulary) */
    int32_t count;      /* >= 1 */
    int32_t max_tokens; /* >= 1 */
    bool ignore_eos;    /* go on past end tokens */
} tpw_request;

typedef enum tpw_event_type { TPW_EVENT_TOKEN, TPW_EVENT_FINISHED } tpw_event_type;

typedef enum tpw_finish {
    TPW_FINISH_LENGTH,    /* max_tokens reached */
    TPW_FINISH_STOP,      /* an end token came out (it is the last token event) */
    TPW_FINISH_CANCELLED, /* by tpw_worker_cancel */
    TPW_FINISH_ERROR      /* the logits of this sequence held no number */
} tpw_finish;

/* The digest of one scope of one sequence, summed over the shards of all ranks. */
typedef struct tpw_scope_digest {
    char scope
        [16]; /* "tokens", "hidden", "conv", "recurrent", "kv"; with K > 0 and the MTP module also "mtp" (its K/V) */
    int32_t layer; /* -1 for "tokens" and "mtp" */
    uint64_t global;
} tpw_scope_digest;

typedef struct tpw_event {
    tpw_event_type type;
    uint64_t id;
    int32_t token;     /* TOKEN */
    int64_t position;  /* TOKEN: absolute position of this token; FINISHED: prompt + emitted - 1, where the state stands
                 * (FINISH_ERROR: prompt + emitted; cancelled in its prompt: what had been run) */
    tpw_finish finish; /* FINISHED */
    int32_t prompt_tokens; /* FINISHED */
    int32_t output_tokens; /* FINISHED */
    const tpw_scope_digest
        *digests; /* FINISHED: [digest_count], borrowed until the next poll; none when cancelled while waiting */
    int32_t digest_count;
} tpw_event;

/* What this rank is, where it runs and what it holds. Same text on all ranks. */
typedef struct tpw_rank_info {
    int32_t rank;
    char host[64];
    int64_t pid;
    char device[64]; /* "host (avx2)" */
    char cpus_requested[128];
    char cpus_obtained[128];
    int32_t numa_node; /* -1: none or several */
    int64_t weight_bytes;
    int64_t kv_bytes;
    int64_t state_bytes; /* recurrent and conv */
    int64_t workspace_bytes;
    int64_t peak_bytes; /* device memory at its highest, as of the last collective call */
    int64_t file_bytes; /* read from the checkpoint */
} tpw_rank_info;

/* Facts of the loaded model. */
typedef struct tpw_model_info {
    char name[256]; /* folder or dummy shape */
    char model_type[64];
    int32_t layers;
    int32_t layers_linear;
    int32_t layers_attention;
    int32_t hidden;
    int32_t vocab;
    int32_t context_max;
    bool has_mtp;
    bool fp8;
    int32_t end_ids[16];
    int32_t end_count;
} tpw_model_info;

typedef struct tpw_stats {
    int64_t steps;
    int64_t prompt_tokens;
    int64_t output_tokens;
    int64_t step_ns;    /* sum of step times on this rank */
    int64_t prefill_ns; /* part spent in steps that held prompt rows */
    int32_t sequences_running;
    int32_t sequences_waiting;
    int32_t pages_free;
    int32_t pages_total;
    int32_t slots_free;
    int64_t drafts;                /* verified runs that held drafts */
    int64_t draft_tokens;          /* tokens drafted */
    int64_t accepted_tokens;       /* of them, accepted */
    int64_t drafted_at[TPW_K_MAX]; /* by position in the draft */
    int64_t accepted_at[TPW_K_MAX];
    int64_t checks; /* cross-rank comparisons made, all equal */
} tpw_stats;

/* One exchange of the data plane or one digest, of the last 256 on this rank: what a report of a lost or diverged job shows. */
typedef struct tpw_ring_entry {
    uint64_t seq;
    int64_t step;
    char op[16]; /* "allreduce", "merge", "allgather" */
    uint64_t bytes;
    uint64_t digest;  /* of an all-reduce's result, equal on all ranks; 0 when checks are off */
    int64_t begin_ns; /* monotonic */
    int64_t end_ns;   /* 0: not finished */
} tpw_ring_entry;

#define TPW_RING_ENTRIES 256

/* The digest of one tensor of the checkpoint, over all its stored elements: the same for every number of ranks. */
typedef struct tpw_weight_digest {
    const char *name;
    uint64_t global;
} tpw_weight_digest;

/* Collective. Reads this rank's shard and plans all device memory; later steps allocate none of it. What several ranks hold of the
 * checkpoint is compared: ERR_DIVERGED names the first tensor that is not the same and the ranks. Errors of any rank reach all:
 * ERR_MISSING, ERR_CHECKPOINT, ERR_IO, ERR_MEMORY, ERR_UNSUPPORTED, ERR_PEER, ERR_DIVERGED. */
TPW_API tpw_status tpw_worker_load(tpw_worker *worker, tpw_error *err);

/* Rank 0. Takes effect at the next step. ERR_ARGUMENT: not rank 0, duplicate id, a token outside the vocabulary, empty prompt.
 * ERR_LIMIT with the numbers: prompt + max_tokens can never fit. Waits in order when it does not fit now. */
TPW_API tpw_status tpw_worker_admit(tpw_worker *worker, const tpw_request *request, tpw_error *err);

/* Rank 0. The sequence ends with FINISH_CANCELLED at the next step. ERR_ARGUMENT: not rank 0, unknown id. */
TPW_API tpw_status tpw_worker_cancel(tpw_worker *worker, uint64_t id, tpw_error *err);

/* Rank 0. At the next step every rank's *busy becomes false and nothing more runs. */
TPW_API tpw_status tpw_worker_stop(tpw_worker *worker, tpw_error *err);

/* Collective. One step: takes the control record of rank 0, runs what is planned, commits. *busy tells whether sequences
 * remain and no stop came; the same on all ranks. After an error other than ERR_ARGUMENT the worker can only be destroyed.
 * ERR_PEER names the rank that failed or did not answer in time, ERR_DIVERGED the first rank whose digest differs. */
TPW_API tpw_status tpw_worker_step(tpw_worker *worker, bool *busy, tpw_error *err);

/* Local. Takes the next event, the same on all ranks; false when there is none. */
TPW_API bool tpw_worker_poll(tpw_worker *worker, tpw_event *event);

/* Local getters. rank_info: ERR_ARGUMENT outside [0, size). */
TPW_API int tpw_worker_rank(const tpw_worker *worker);
TPW_API int tpw_worker_size(const tpw_worker *worker);
TPW_API tpw_status tpw_worker_rank_info(const tpw_worker *worker, int rank, tpw_rank_info *out, tpw_error *err);
TPW_API void tpw_worker_model_info(const tpw_worker *worker, tpw_model_info *out);
/* The tensors of the model by name, borrowed from the worker; none unless it is loaded with the option weight_digests. The same on all
 * ranks. Vision tensors and the lm_head.weight of a tied model are not loaded and not among them. */
TPW_API void tpw_worker_weight_digests(const tpw_worker *worker, const tpw_weight_digest **list, int32_t *count);
TPW_API void tpw_worker_stats(const tpw_worker *worker, tpw_stats *out);

/* What a probe found on all ranks together. */
typedef struct tpw_probe_result {
    int64_t position; /* committed tokens of the sequence */
    int32_t k;        /* drafts beside the certain token */
    int64_t compared; /* (conv + recurrent + kv tensors + hidden vectors) * ranks */
    int64_t unequal;
    char scope[16]; /* of the first difference: "" when there is none */
    int32_t layer;
    int32_t rank;
    char op[16]; /* first operation whose output differs there, "" when only state does */
    int32_t op_layer;
    int32_t op_row; /* 0: the certain token */
} tpw_probe_result;

/* Collective, between steps. From the committed state of running sequence `id` it runs k + 1 tokens as one verified run and the same
 * tokens by one-token steps, and compares every conv, recurrent and KV tensor and every hidden vector of every layer on
 * every rank. The state is put back; the worker goes on as if nothing had happened. ERR_ARGUMENT: the sequence is not running, has not begun,
 * or k is not in 1..TPW_K_MAX; ERR_LIMIT: its pages do not hold k + 1 more positions. A difference is no error: it is in *out. */
TPW_API tpw_status tpw_worker_probe(tpw_worker *worker, uint64_t id, int32_t k, tpw_probe_result *out, tpw_error *err);

/* Local, legal also after a failure. Copies the newest entries, oldest first; returns how many (at most `max`). */
TPW_API int32_t tpw_worker_ring(const tpw_worker *worker, tpw_ring_entry *out, int32_t max);

/* Collective. Waits until every rank has come here and gathers the final rank_info. The worker can then only be destroyed. */
TPW_API tpw_status tpw_worker_finalize(tpw_worker *worker, tpw_error *err);

/* Local, waits for no one; NULL and half-made workers allowed. */
TPW_API void tpw_worker_destroy(tpw_worker *worker);

#ifdef __cplusplus
}
#endif
#endif
