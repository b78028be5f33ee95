/* The queue of events between a step and the caller's poll. SPDX-License-Identifier: Apache-2.0 */
#include "worker/events.h"

#include <stdlib.h>

static tpw_status grow(tpw_events *events, tpw_error *err)
{
    size_t capacity = events->capacity == 0 ? 64 : events->capacity * 2;
    tpw_event *ring = malloc(capacity * sizeof *ring);

    if (ring == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for %zu events: poll more often", capacity);
    for (size_t i = 0; i < events->count; i++)
        ring[i] = events->ring[(events->first + i) % events->capacity];
    free(events->ring);
    events->ring = ring;
    events->capacity = capacity;
    events->first = 0;
    return TPW_OK;
}

tpw_status tpw_events_push(tpw_events *events, const tpw_event *event, tpw_error *err)
{
    if (events->count == events->capacity) {
        tpw_status st = grow(events, err);

        if (st != TPW_OK) {
            free((void *)event->digests);
            return st;
        }
    }
    events->ring[(events->first + events->count) % events->capacity] = *event;
    events->count++;
    return TPW_OK;
}

bool tpw_events_pop(tpw_events *events, tpw_event *out)
{
    free(events->polled);
    events->polled = NULL;
    if (events->count == 0)
        return false;
    *out = events->ring[events->first];
    events->polled = (tpw_scope_digest *)out->digests;
    events->first = (events->first + 1) % events->capacity;
    events->count--;
    return true;
}

void tpw_events_fini(tpw_events *events)
{
    tpw_event event;

    while (tpw_events_pop(events, &event))
        continue;
    free(events->ring);
    *events = (tpw_events){0};
}
