/* What a worker must do, written down a second time and as simply as possible: the scheduler of the public contract over a
 * token function. Tests compare a worker with it, call by call and event by event. Nothing here looks at worker code.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_MODEL_SCHEDULER_H
#define TPW_TESTS_MODEL_SCHEDULER_H

#include "tpworker/worker.h"

#define MODEL_SEQUENCES 64  /* at once, in all states */
#define MODEL_TOKENS    400 /* of one sequence */
#define MODEL_EVENTS    4096

/* Things that happened. A test asserts that each of them did. */
/* clang-format off */
#define MODEL_SEEN_MAP(X)                                                                                        \
    X(admitted) X(refused_duplicate) X(refused_token) X(refused_empty) X(refused_context) X(refused_pages)       \
    X(cancelled_running) X(cancelled_in_prefill) X(cancelled_waiting) X(cancelled_at_once) X(cancelled_twice)    \
    X(cancel_unknown) X(finished_length) X(finished_stop) X(finished_error) X(error_behind_drafts)               \
    X(waited_for_pages) X(waited_for_slot) X(not_overtaken) X(chunked_prompt) X(shared_step) X(idle_step)        \
    X(draft_accepted) X(draft_rejected) X(draft_short)
/* clang-format on */
typedef enum model_seen {
#define MODEL_SEEN_ENUM(name) SEEN_##name,
    MODEL_SEEN_MAP(MODEL_SEEN_ENUM)
#undef MODEL_SEEN_ENUM
        SEEN_COUNT
} model_seen;
const char *model_seen_name(int seen);

typedef int32_t model_next(int32_t token, int64_t pos, int32_t vocab);

typedef struct model_limits {
    int32_t slots;
    int32_t pages;
    int32_t page_size;
    int32_t rows;
    int32_t chunk;
    int32_t context;
    int32_t vocab;
    int32_t end_id;
    int32_t k;
    tpw_draft_function *drafter;
    model_next *next;
    bool overtakes; /* a wrong model on purpose: starts whatever fits */
} model_limits;

typedef struct model_sequence {
    uint64_t id;
    int32_t tokens[MODEL_TOKENS];
    int32_t prompt;
    int32_t max_tokens;
    int32_t emitted;
    int32_t pos;
    int32_t pages;
    bool ignore_eos;
    bool cancel; /* announced */
    bool over;
    tpw_finish why;
} model_sequence;

typedef struct model_scheduler {
    model_limits limits;
    model_sequence *announced[MODEL_SEQUENCES]; /* admitted since the last step */
    model_sequence *waiting[MODEL_SEQUENCES];
    model_sequence *running[MODEL_SEQUENCES];
    int32_t announced_count;
    int32_t waiting_count;
    int32_t running_count;
    int32_t pages_free;
    int64_t output_tokens;
    uint64_t cancels[MODEL_SEQUENCES]; /* announced, in order, of sequences that run or wait */
    int32_t cancel_count;
    tpw_event events[MODEL_EVENTS]; /* ring; digest_count: 1 when there must be digests, 0 when none */
    int32_t event_first;
    int32_t event_count;
    int64_t seen[SEEN_COUNT];
} model_scheduler;

void model_init(model_scheduler *m, const model_limits *limits);
void model_fini(model_scheduler *m);

/* The status that the call must return. Of a request with several faults either status is right: *also is the second one. */
tpw_status model_admit(model_scheduler *m, const tpw_request *request, tpw_status *also);
tpw_status model_cancel(model_scheduler *m, uint64_t id);

/* One step; what *busy must be. */
bool model_step(model_scheduler *m);

/* The next event, false when there is none. */
bool model_poll(model_scheduler *m, tpw_event *event);

#endif
