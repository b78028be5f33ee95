/* Random calls to a worker as a list. SPDX-License-Identifier: Apache-2.0 */
#include "event_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t call_random(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15ull;

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)(call_random(state) % (uint64_t)n);
}

/* Mostly short: long ones alone would leave no time for anything to happen. */
static int32_t length(uint64_t *state, int32_t max)
{
    switch (below(state, 4)) {
    case 0:
        return 1 + below(state, max);
    case 1:
        return 1 + below(state, max < 4 ? max : 4);
    default:
        return 1 + below(state, max < 40 ? max : max / 4);
    }
}

static call_fault some_fault(uint64_t *state)
{
    int32_t roll = below(state, 60);

    return roll <= FAULT_NULL ? (call_fault)roll : FAULT_NONE;
}

void calls_fill(call *out, int32_t count, const call_limits *limits, uint64_t seed)
{
    uint64_t state = seed;

    for (int32_t i = 0; i < count; i++) {
        int32_t roll = below(&state, 100);
        call *c = &out[i];

        *c = (call){.id = (uint64_t)below(&state, limits->ids), .seed = call_random(&state)};
        if (roll < 26) {
            c->kind = CALL_ADMIT;
            c->fault = some_fault(&state);
            c->prompt = length(&state, limits->prompt_max);
            c->max_tokens = length(&state, limits->max_tokens_max);
            c->ignore_eos = below(&state, 2) == 0;
        } else if (roll < 35) {
            c->kind = CALL_CANCEL;
        } else if (roll < 86) {
            c->kind = CALL_STEP;
        } else {
            c->kind = CALL_POLL;
            c->prompt = 1 + below(&state, 24);
        }
    }
}

tpw_request call_request(const call *c, const call_limits *limits, int32_t *ids)
{
    tpw_request r = {.size = sizeof r,
                     .id = c->id,
                     .ids = ids,
                     .count = c->prompt,
                     .max_tokens = c->max_tokens,
                     .ignore_eos = c->ignore_eos};
    uint64_t state = c->seed;

    for (int32_t i = 0; i < c->prompt; i++)
        ids[i] = below(&state, limits->vocab);
    if (c->fault == FAULT_TOKEN)
        ids[c->seed % (uint64_t)c->prompt] = (c->seed >> 40) % 2 == 0 ? -1 : limits->vocab;
    if (c->fault == FAULT_EMPTY)
        r.count = 0;
    if (c->fault == FAULT_NO_OUTPUT)
        r.max_tokens = -(int32_t)((c->seed >> 40) % 2);
    if (c->fault == FAULT_NULL)
        r.ids = NULL;
    return r;
}

void calls_print(const call *list, int32_t count)
{
    static const char *const faults[] = {"", " (bad token)", " (no token)", " (no output)", " (NULL)"};

    for (int32_t i = 0; i < count; i++) {
        const call *c = &list[i];

        switch (c->kind) {
        case CALL_ADMIT:
            printf("%4d admit %llu: %d tokens of seed %016llx, at most %d out%s%s\n", i, (unsigned long long)c->id,
                   c->prompt, (unsigned long long)c->seed, c->max_tokens, c->ignore_eos ? ", past end tokens" : "",
                   faults[c->fault]);
            break;
        case CALL_CANCEL:
            printf("%4d cancel %llu\n", i, (unsigned long long)c->id);
            break;
        case CALL_STEP:
            printf("%4d step\n", i);
            break;
        case CALL_POLL:
            printf("%4d poll %d\n", i, c->prompt);
            break;
        }
    }
    fflush(stdout);
}

/* One try: the list without [from, from + width). On success the shorter list replaces the old one. */
static bool try_without(call *list, int32_t *count, int32_t from, int32_t width, call *scratch, calls_fail *fails,
                        void *data)
{
    int32_t left = *count - width, at = 0;

    memcpy(scratch, list, (size_t)from * sizeof *list);
    memcpy(scratch + from, list + from + width, (size_t)(left - from) * sizeof *list);
    if (!fails(data, scratch, left, &at))
        return false;
    *count = at < left ? at + 1 : left; /* what follows the failure has no part in it */
    memcpy(list, scratch, (size_t)*count * sizeof *list);
    return true;
}

int32_t calls_shrink(call *list, int32_t count, calls_fail *fails, void *data, int32_t runs)
{
    call *scratch = malloc((size_t)count * sizeof *scratch);
    int32_t at = 0;

    if (scratch == NULL || !fails(data, list, count, &at)) {
        free(scratch);
        return count;
    }
    count = at < count ? at + 1 : count;
    for (int32_t width = (count + 1) / 2; width >= 1 && runs > 0;) {
        bool smaller = false;

        for (int32_t from = 0; from + width <= count && runs > 0; runs--) {
            if (try_without(list, &count, from, width, scratch, fails, data))
                smaller = true;
            else
                from += width;
        }
        if (width > 1)
            width = (width + 1) / 2;
        else if (!smaller)
            break;
    }
    free(scratch);
    return count;
}
