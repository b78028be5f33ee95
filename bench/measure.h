/* Times work that is captured into a CUDA graph: the median of its replays, on one rank or the slowest of all.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BENCH_MEASURE_H
#define TPW_BENCH_MEASURE_H

#include "kernels/cuda/cuda.h"
#include "tp/boot.h"

#define BENCH_LAUNCHES 64 /* of a graph, at least */
#define BENCH_REPLAYS  15 /* that are timed; odd, so that there is one in the middle */
#define BENCH_WARM     2  /* replays before those */

/* Enqueues launch number `launch` of a graph on the exec's stream. */
typedef tpw_status bench_enqueue(const tpw_exec *exec, void *data, int32_t launch, tpw_error *err);

typedef struct bench_work {
    const tpw_exec *exec;
    tpw_boot *boot; /* for exchanges: all ranks measure together and the slowest counts; NULL: this rank alone */
    bench_enqueue *enqueue;
    void *data;
    int32_t launches;
    int64_t deadline_ns; /* by tpw_clock_ns: nothing is begun after it */
} bench_work;

/* Microseconds of one launch: launch 0 once without a graph, a graph of all launches, BENCH_WARM replays, then the
 * median of BENCH_REPLAYS. With the exec's GPU current. Collective with a boot. ERR_LIMIT past the deadline, ERR_DEVICE
 * for CUDA faults, ERR_PEER when an exchange gave up, and what enqueue returns. */
tpw_status bench_time(const bench_work *work, double *us, tpw_error *err) TPW_MUST_CHECK;

/* How often bench_time runs launch number `launch` of a graph: 0 once more than the others. */
int64_t bench_runs(int32_t launch);

#endif
