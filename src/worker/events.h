/* The queue of events between a step and the caller's poll. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_EVENTS_H
#define TPW_WORKER_EVENTS_H

#include "tpworker/worker.h"

#include "base/error.h"

/* A ring that grows when the caller polls less than it should; digests of a queued event are owned by the queue. */
typedef struct tpw_events {
    tpw_event *ring;
    size_t capacity;
    size_t first;
    size_t count;
    tpw_scope_digest *polled; /* digests of the event given last */
} tpw_events;

/* Takes ownership of event->digests (malloc'ed or NULL), also on error. */
tpw_status tpw_events_push(tpw_events *events, const tpw_event *event, tpw_error *err) TPW_MUST_CHECK;
bool tpw_events_pop(tpw_events *events, tpw_event *out);
void tpw_events_fini(tpw_events *events);

#endif
