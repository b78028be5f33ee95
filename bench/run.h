/* What the parts of the kernel benchmark share: the GPU, its cold memory, blocks, and where cells go.
 *
 * All functions need the exec's GPU to be current. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BENCH_RUN_H
#define TPW_BENCH_RUN_H

#include "measure.h"
#include "report.h"

#define BENCH_HIDDEN     5120
#define BENCH_PARTS      8 /* slices of a row-parallel weight, all ranks together */
#define BENCH_READS_MAX  32
#define BENCH_BLOCKS_MAX 64

typedef struct bench_read_time {
    size_t bytes;
    double us;
} bench_read_time;

typedef struct bench_run {
    tpw_exec *exec;
    tpw_boot *boot;
    bench_report report;
    bool quick;
    int64_t deadline_ns;
    size_t l2_bytes;
    unsigned char *pool; /* filled; many times the L2, so that what lies there is cold when its turn comes again */
    size_t pool_bytes;
    bench_read_time reads[BENCH_READS_MAX];
    int read_count;
    void *blocks[BENCH_BLOCKS_MAX];
    int block_count;
} bench_run;

/* Takes the pool. ERR_MEMORY when the GPU has not enough left. */
tpw_status bench_run_pool(bench_run *run, tpw_error *err) TPW_MUST_CHECK;

/* Device memory that bench_release gives back down to a mark (a former block_count). */
tpw_status bench_alloc(bench_run *run, size_t bytes, void **out, tpw_error *err) TPW_MUST_CHECK;
void bench_release(bench_run *run, int mark);

/* Fills `count` elements with numbers: F32 and BF16 in [-1, 1), E4M3 finite codes, every seed others. Enqueued. */
tpw_status bench_fill(bench_run *run, tpw_dtype dtype, void *out, int64_t count, uint64_t seed,
                      tpw_error *err) TPW_MUST_CHECK;

/* Bytes from one copy to the next in the pool, how many launches a graph has over copies of that size so that none is
 * still in the L2 when its turn comes again, and of how many copies. ERR_LIMIT when the pool holds too few. */
typedef struct bench_copies {
    size_t stride;
    int32_t launches;
    int32_t copies;
} bench_copies;
tpw_status bench_copies_of(const bench_run *run, size_t bytes, bench_copies *out, tpw_error *err) TPW_MUST_CHECK;

/* Microseconds that a kernel needs to only read so many bytes of cold memory, rounded up to whole units, and the design
 * that was fastest (may be NULL; asking for it measures anew). Otherwise measured once a size. */
tpw_status bench_read_us(bench_run *run, size_t bytes, double *us, const char **design, tpw_error *err) TPW_MUST_CHECK;

/* The parts, in order. Each needs the pool, but for exchanges, which is collective. */
tpw_status bench_limits(bench_run *run, tpw_error *err) TPW_MUST_CHECK;
tpw_status bench_gemms(bench_run *run, tpw_error *err) TPW_MUST_CHECK;
tpw_status bench_ops(bench_run *run, tpw_error *err) TPW_MUST_CHECK;
tpw_status bench_exchanges(bench_run *run, tpw_error *err) TPW_MUST_CHECK;

#endif
