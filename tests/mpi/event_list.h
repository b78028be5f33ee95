/* Random calls to a worker as a list that can be run again, printed and made smaller. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_EVENT_LIST_H
#define TPW_TESTS_EVENT_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpworker/worker.h"

typedef enum call_kind { CALL_ADMIT, CALL_CANCEL, CALL_STEP, CALL_POLL } call_kind;
typedef enum call_fault { FAULT_NONE, FAULT_TOKEN, FAULT_EMPTY, FAULT_NO_OUTPUT, FAULT_NULL } call_fault;

/* Everything that a call needs is in it, so a list without some of its calls is a list again. */
typedef struct call {
    call_kind kind;
    call_fault fault;   /* ADMIT */
    uint64_t id;        /* ADMIT, CANCEL */
    int32_t prompt;     /* ADMIT: tokens; POLL: how often */
    int32_t max_tokens; /* ADMIT */
    bool ignore_eos;    /* ADMIT */
    uint64_t seed;      /* ADMIT: of the tokens */
} call;

typedef struct call_limits {
    int32_t ids; /* drawn from 0..ids - 1, so that duplicates and unknown ids come by themselves */
    int32_t prompt_max;
    int32_t max_tokens_max;
    int32_t vocab;
} call_limits;

uint64_t call_random(uint64_t *state);
void calls_fill(call *out, int32_t count, const call_limits *limits, uint64_t seed);

/* The request of an ADMIT; its tokens go to ids[prompt]. */
tpw_request call_request(const call *c, const call_limits *limits, int32_t *ids);

void calls_print(const call *list, int32_t count);

/* True when the list fails; *at is then the call with which it did. */
typedef bool calls_fail(void *data, const call *list, int32_t count, int32_t *at);

/* Removes calls, in ever smaller runs, as long as the list still fails; returns how many are left. Runs the list at most `runs`
 * times. The list given must fail. */
int32_t calls_shrink(call *list, int32_t count, calls_fail *fails, void *data, int32_t runs);

#endif
