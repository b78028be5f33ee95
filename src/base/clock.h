/* Monotonic time and deadlines. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BASE_CLOCK_H
#define TPW_BASE_CLOCK_H

#include <stdint.h>

int64_t tpw_clock_ns(void); /* CLOCK_MONOTONIC */

/* Waits politely inside a polling loop: spins at first, then yields, then sleeps 50 us. Zero-initialise. */
typedef struct tpw_backoff {
    uint32_t polls;
} tpw_backoff;
void tpw_backoff_wait(tpw_backoff *backoff);

#endif
