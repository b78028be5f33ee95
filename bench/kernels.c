/* bench_kernels: every kernel's time on this GPU in one run, and with several ranks the exchanges' too.
 * SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/exit.h"
#include "kernels/cuda/exec.h"
#include "nvml.h"
#include "read_rate.h"
#include "run.h"
#include "tp/agree.h"
#include "tp/boot_mpi.h"
#include "tp/comm_nccl.h"

#define NS_PER_S      1000000000
#define LIMIT_S       90 /* no cell is begun later: the run ends within 100 s */
#define LIMIT_QUICK_S 25
#define ALONE_MS      130000 /* that ranks wait for rank 0, which measures what one GPU does */
#define EXCHANGE_MS   30000
#define SPIN_MS       5000
#define WARM_BYTES    ((size_t)1 << 30)
#define WARM_LAUNCHES 1500 /* a second half of 0.4 s is still under way when the clocks are read */
#define COMMIT_MAX    64

typedef struct settings {
    bool help;
    bool quick;
    const char *json;
    const char *commit;
    const char *only;
} settings;

typedef struct part {
    const char *name;
    tpw_status (*measure)(bench_run *run, tpw_error *err);
} part;

static const part parts[] = {{"limits", bench_limits}, {"gemm", bench_gemms}, {"ops", bench_ops}};
static const char exchanges[] = "exchanges";

static const char usage[] =
    "Usage: bench_kernels [--quick] [--only=PART] [--json=FILE] [--commit=TEXT]\n"
    "       mpirun -np 2 bench_kernels ...        the same, and the exchanges between two GPUs\n"
    "Times kernels on GPU 0 at the shapes of Qwen3.5-27B on two ranks. NCCL_NVLS_ENABLE=0 must be set.\n\n"
    "  --quick        fewer shapes and rows: under 30 s instead of 100 s\n"
    "  --only=PART    limits, gemm, ops or exchanges\n"
    "  --json=FILE    JSON Lines, too; - is standard output, the table then goes to standard error\n"
    "  --commit=TEXT  what was built, for the header\n"
    "  --help         this text\n";

static void complain(const char *text)
{
    fprintf(stderr, "bench-kernels: %s\n", text);
}

static tpw_status check_only(const char *only, tpw_error *err)
{
    bool known = only == NULL || strcmp(only, exchanges) == 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts && !known; i++)
        known = strcmp(only, parts[i].name) == 0;
    return known ? TPW_OK
                 : tpw_fail(err, TPW_ERR_ARGUMENT, "--only=%.40s: limits, gemm, ops and exchanges are there", only);
}

static tpw_status check_commit(const char *commit, tpw_error *err)
{
    for (size_t i = 0; commit[i] != '\0'; i++)
        if (i >= COMMIT_MAX || commit[i] < ' ' || commit[i] > '~')
            return tpw_fail(err, TPW_ERR_ARGUMENT, "--commit: at most %d printable characters", COMMIT_MAX);
    return TPW_OK;
}

static tpw_status parse(int argc, char **argv, settings *out, tpw_error *err)
{
    static const struct option options[] = {
        {"quick", no_argument, NULL, 'q'},      {"only", required_argument, NULL, 'o'},
        {"json", required_argument, NULL, 'j'}, {"commit", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};

    *out = (settings){.commit = ""};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'q':
            out->quick = true;
            break;
        case 'o':
            out->only = optarg;
            break;
        case 'j':
            out->json = optarg;
            break;
        case 'c':
            out->commit = optarg;
            break;
        case 'h':
            out->help = true;
            break;
        default:
            return tpw_fail(err, TPW_ERR_ARGUMENT, "%.80s: not an option, or its value is wrong; see --help",
                            argv[optind - 1]);
        }
    }
    if (optind < argc)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%.80s: an option is needed; see --help", argv[optind]);
    TPW_TRY(check_only(out->only, err));
    return check_commit(out->commit, err);
}

static const char *get_environment(const char *name)
{
    return getenv(name);
}

/* What must hold before a GPU is touched. */
static tpw_status check_world(const settings *s, const tpw_boot *boot, tpw_error *err)
{
    const char *nvls = getenv("NCCL_NVLS_ENABLE");

    if (nvls == NULL || strcmp(nvls, "0") != 0)
        return tpw_fail(
            err, TPW_ERR_ARGUMENT,
            "NCCL_NVLS_ENABLE is %.20s: it must be 0, since multicast fixes no order of sums; set it and start again",
            nvls != NULL ? nvls : "not set");
    TPW_TRY(tpw_boot_check_singleton(boot->size, get_environment, err));
    TPW_TRY(tpw_comm_check_size(boot->size, err));
    if (boot->size == 1 && s->only != NULL && strcmp(s->only, exchanges) == 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "--only=exchanges with one rank: start with mpirun -np 2");
    return TPW_OK;
}

/* The GPU of this rank: as many as there are ranks, or the only one that a launcher left visible. */
static tpw_status open_gpu(bench_run *run, tpw_error *err)
{
    char reason[160];
    const int32_t count = tpw_cuda_count(reason, sizeof reason);
    tpw_cuda_options options = {.device = count >= run->boot->size ? run->boot->rank : 0, .spin_ms = SPIN_MS};

    if (count < 1)
        return tpw_fail(err, TPW_ERR_RESOURCE, "no GPU is visible%s%s", reason[0] != '\0' ? ": " : "", reason);
    if (count > 1 && count < run->boot->size)
        return tpw_fail(err, TPW_ERR_RESOURCE, "%d GPUs are visible for %d ranks: start fewer ranks", (int)count,
                        run->boot->size);
    return tpw_cuda_create(&options, &run->exec, err);
}

/* Loads the GPU for a moment, so that clocks are up, and reads them while it is at work. */
static tpw_status warm_up(bench_run *run, bench_nvml *found, tpw_error *err)
{
    const int mark = run->block_count;
    const size_t places = run->pool_bytes / WARM_BYTES;
    void *sum = NULL;
    tpw_status st = bench_alloc(run, sizeof(uint32_t), &sum, err);
    int design = 0;

    while (bench_read_design(design) != NULL && !bench_read_possible(run->exec, design))
        design++;
    for (size_t i = 0; i < WARM_LAUNCHES && st == TPW_OK; i++)
        st = bench_read(run->exec, design, run->pool + i % places * WARM_BYTES, WARM_BYTES, sum, err);
    *found = bench_nvml_read(tpw_cuda_gpu_of(run->exec)->bus);
    if (st == TPW_OK)
        st = tpw_cuda_sync(run->exec, err);
    bench_release(run, mark);
    return st;
}

static tpw_status write_header(bench_run *run, const settings *s, const bench_nvml *found, tpw_error *err)
{
    const tpw_gpu *gpu = tpw_cuda_gpu_of(run->exec);
    bench_header header = {.gpu = gpu->name,
                           .bus = gpu->bus,
                           .driver = found->driver,
                           .cuda = tpw_cuda_version(),
                           .commit = s->commit,
                           .sm_mhz = found->sm_mhz,
                           .memory_mhz = found->memory_mhz,
                           .ranks = run->boot->size,
                           .quick = run->quick};

    tpw_nccl_versions(&header.nccl_compiled, &header.nccl_loaded);
    return bench_report_header(&run->report, &header, err);
}

/* What one GPU does alone: rank 0's part. */
static tpw_status alone(bench_run *run, const settings *s, tpw_error *err)
{
    bench_nvml found;

    TPW_TRY(bench_run_pool(run, err));
    TPW_TRY(warm_up(run, &found, err));
    TPW_TRY(write_header(run, s, &found, err));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (s->only == NULL || strcmp(s->only, parts[i].name) == 0)
            TPW_TRY(parts[i].measure(run, err));
    if (run->boot->size == 1 && s->only == NULL)
        TPW_TRY(bench_report_note(&run->report, "\none rank: no exchanges; mpirun -np 2 measures them, too", err));
    return TPW_OK;
}

static tpw_status measure(bench_run *run, const settings *s, tpw_error *err)
{
    tpw_status st = run->boot->rank == 0 ? bench_report_open(&run->report, s->json, err) : TPW_OK;

    TPW_TRY(tpw_agree_status(run->boot, st, err));
    TPW_TRY(tpw_agree_status(run->boot, open_gpu(run, err), err));
    (void)tpw_cuda_enter(tpw_cuda_gpu_of(run->exec)->index);
    st = run->boot->rank == 0 ? alone(run, s, err) : TPW_OK;
    bench_release(run, 0);
    TPW_TRY(tpw_agree_status(run->boot, st, err));
    run->boot->timeout_ms = EXCHANGE_MS;
    if (run->boot->size > 1 && (s->only == NULL || strcmp(s->only, exchanges) == 0))
        return bench_exchanges(run, err);
    return TPW_OK;
}

/* The last line and the end of the files. The first failure stays. */
static tpw_status finish(bench_run *run, int64_t begin_ns, tpw_status st, tpw_error *err)
{
    tpw_error late = {0};
    tpw_status ended, closed;

    if (run->report.table == NULL)
        return st;
    ended = bench_report_end(&run->report, (double)(tpw_clock_ns() - begin_ns) / NS_PER_S, st, &late);
    if (st == TPW_OK && ended != TPW_OK)
        *err = late;
    closed = bench_report_close(&run->report, &late);
    if (st == TPW_OK && ended == TPW_OK && closed != TPW_OK)
        *err = late;
    return st != TPW_OK ? st : ended != TPW_OK ? ended : closed;
}

static tpw_status run_ranks(const settings *s, tpw_boot *boot, tpw_error *err)
{
    const int64_t begin_ns = tpw_clock_ns();
    bench_run run = {.boot = boot,
                     .quick = s->quick,
                     .deadline_ns = begin_ns + (int64_t)(s->quick ? LIMIT_QUICK_S : LIMIT_S) * NS_PER_S};
    tpw_status st = tpw_agree_status(boot, check_world(s, boot, err), err);

    if (st == TPW_OK)
        st = measure(&run, s, err);
    st = finish(&run, begin_ns, st, err);
    tpw_cuda_destroy(run.exec);
    return st;
}

static tpw_status with_boot(const settings *s, tpw_error *err)
{
    tpw_boot *boot = NULL;
    tpw_status st;

    TPW_TRY(tpw_boot_mpi_create(MPI_COMM_WORLD, ALONE_MS, &boot, err));
    st = run_ranks(s, boot, err);
    if (st != TPW_OK) {
        boot->ops->raise(boot, st, err->text); /* whoever did not fail alike */
        if (boot->rank == 0 || st == TPW_ERR_PEER)
            complain(err->text);
    }
    tpw_boot_destroy(boot);
    return st;
}

int main(int argc, char **argv)
{
    tpw_error err = {0};
    settings s;
    int provided = 0, rank = 0;
    tpw_status st;

    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
        complain("MPI did not start");
        return tpw_exit_code(TPW_ERR_RESOURCE);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    st = parse(argc, argv, &s, &err);
    if (st != TPW_OK && rank == 0)
        complain(err.text);
    if (st == TPW_OK && s.help && rank == 0)
        fputs(usage, stdout);
    if (st == TPW_OK && !s.help)
        st = with_boot(&s, &err);
    MPI_Finalize();
    return tpw_exit_code(st);
}
