/* The command tpworker: the place where MPI begins and ends, and where exit codes are given. SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cmd_bench.h"
#include "cli/cmd_diff.h"
#include "cli/cmd_doctor.h"
#include "cli/cmd_inspect.h"
#include "cli/cmd_plan.h"
#include "cli/cmd_probe.h"
#include "cli/cmd_run.h"
#include "cli/cmd_verify.h"
#include "cli/exit.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/stop.h"
#include "cli/version.h"

/* A launcher ends all ranks about a second after the first left with an error; the others need a part of it to report. */
#define GRACE_NS 500000000L

#define MULTICAST "NCCL_NVLS_ENABLE"

static const char *get_environment(const char *name)
{
    return getenv(name);
}

/* A closed standard stream must not become the next file that is opened: something takes its place on which writing fails. */
static void keep_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        while (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            if (open("/dev/null", O_RDONLY) < 0)
                return;
}

/* One line with one write, so that the lines of several ranks do not mix. */
static void complain(const char *text)
{
    char line[TPW_ERROR_TEXT_MAX + 16];
    snprintf(line, sizeof line, "tpworker: %s", text);
    tpw_log_to_fd((void *)(intptr_t)STDERR_FILENO, TPW_LOG_ERROR, line);
}

static int print_and_leave(const tpw_command *command)
{
    if (command->action == TPW_ACTION_HELP)
        tpw_command_help(stdout);
    else if (command->action == TPW_ACTION_VERSION)
        tpw_version_print(stdout);
    else
        tpw_values_print(&command->values, stdout);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        complain("standard output: cannot be written");
        return tpw_exit_code(TPW_ERR_IO);
    }
    return 0;
}

static void write_report(const tpw_values *values, const tpw_outcome *o)
{
    tpw_error err;
    tpw_report report = {.rank = o->rank,
                         .size = o->size,
                         .host = o->host,
                         .step = o->step,
                         .status = o->status,
                         .text = o->error.text,
                         .ring = o->ring,
                         .ring_count = o->ring_count};
    memcpy(report.job, o->job, sizeof report.job);
    if (tpw_report_write(values->report_dir, &report, &err) != TPW_OK)
        complain(err.text);
}

/* The queues of rank 0 have waited for nobody so far; now all others are done. */
static tpw_status drain(tpw_outcome *o, tpw_error *err)
{
    tpw_status st = tpw_sink_drain(&o->json, -1, err);
    tpw_error ignored;
    tpw_status people = tpw_sink_drain(&o->people, -1, &ignored);
    if (st == TPW_OK && people != TPW_OK && o->people.fd == STDOUT_FILENO) {
        *err = ignored;
        st = people;
    }
    tpw_sink_fini(&o->json);
    tpw_sink_fini(&o->people);
    return st;
}

/* The command of a job. */
static void dispatch(const tpw_command *command, tpw_outcome *outcome)
{
    const tpw_values *values = &command->values;
    if (command->action == TPW_ACTION_BENCH)
        tpw_cmd_bench(values, outcome);
    else if (command->action == TPW_ACTION_PROBE)
        tpw_cmd_probe(values, outcome);
    else if (command->action == TPW_ACTION_VERIFY)
        tpw_cmd_verify(values, outcome);
    else if (command->action == TPW_ACTION_DOCTOR)
        tpw_cmd_doctor(values, outcome);
    else
        tpw_cmd_run(values, outcome);
}

/* `speaks` is what the launcher said before MPI_Init, which sets the variables of a lone rank itself. */
static int run(const tpw_command *command, bool speaks)
{
    const tpw_values *values = &command->values;
    int provided = 0;
    tpw_outcome outcome;
    tpw_stop_install();
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    dispatch(command, &outcome);
    if (outcome.status != TPW_OK) {
        if (tpw_report_wanted(outcome.status))
            write_report(values, &outcome);
        if (outcome.size > 1 ? tpw_report_speaks(outcome.rank, outcome.status, outcome.error.text) : speaks)
            complain(outcome.error.text);
    }
    if (outcome.broken) {
        nanosleep(&(struct timespec){.tv_nsec = GRACE_NS}, NULL);
        _exit(tpw_exit_code(outcome.status));
    }
    MPI_Finalize();
    tpw_error err;
    tpw_status drained = drain(&outcome, &err);
    if (outcome.status == TPW_OK && drained != TPW_OK) {
        complain(err.text);
        outcome.status = drained;
    }
    return tpw_exit_code(outcome.status);
}

/* A command with flags of its own. Without MPI. */
static int inspect(int argc, char **argv)
{
    tpw_error err;
    tpw_status st = tpw_cmd_inspect(argc, argv, stdout, &err);
    if ((fflush(stdout) != 0 || ferror(stdout)) && st == TPW_OK)
        st = tpw_fail(&err, TPW_ERR_IO, "standard output: cannot be written");
    if (st != TPW_OK)
        complain(err.text);
    return tpw_exit_code(st);
}

/* Without MPI. Of several ranks one does it. */
static int alone(const tpw_command *command, bool speaks)
{
    tpw_error err;
    tpw_status st;
    if (!speaks)
        return 0;
    if (command->action == TPW_ACTION_PLAN)
        st = tpw_cmd_plan(&command->values, &err);
    else
        st = tpw_cmd_diff(&command->values, command->words[0], command->words[1], &err);
    if (st != TPW_OK)
        complain(err.text);
    return tpw_exit_code(st);
}

/* What is wrong on every rank, rank 0 says, and the launcher ends the others within a second or so. Who is still here then knows
 * something that rank 0 does not: another environment, or a file that this host lacks. */
static void complain_of_words(bool speaks, tpw_error *err)
{
    if (!speaks) {
        sleep(2);
        tpw_error_prefix(err, "rank %d", tpw_launcher_rank(get_environment));
    }
    complain(err->text);
}

/* NVLink multicast sums in no fixed order. NCCL reads the variable when it is first used, and the library does not touch the
 * environment of its host: so this is done here, and early. What somebody switched on is not overruled in silence. */
static tpw_status keep_multicast_off(tpw_error *err)
{
#if TPW_HAVE_CUDA
    const char *text = getenv(MULTICAST);
    if (text && text[0] != '\0' && strcmp(text, "0") != 0)
        return tpw_fail(err, TPW_ERR_RESOURCE,
                        MULTICAST "=%.40s is set, and NVLink multicast does not sum in a fixed order: unset it", text);
    if (setenv(MULTICAST, "0", 1) != 0)
        return tpw_fail(err, TPW_ERR_MEMORY, "no memory for " MULTICAST "=0");
#else
    (void)err;
#endif
    return TPW_OK;
}

/* NCCL refuses two ranks of one host on one GPU; with an id each it takes them for hosts. Read and set as the one above. */
static tpw_status part_hosts(const tpw_values *values, tpw_error *err)
{
    char id[HOST_NAME_MAX + 32] = "";
    if (values->ranks_per_gpu == 1)
        return TPW_OK;
    (void)gethostname(id, HOST_NAME_MAX);
    size_t used = strnlen(id, HOST_NAME_MAX);
    (void)snprintf(id + used, sizeof id - used, ".%lld", (long long)getpid());
    return setenv("NCCL_HOSTID", id, 0) == 0 ? TPW_OK : tpw_fail(err, TPW_ERR_MEMORY, "no memory for NCCL_HOSTID");
}

/* What a rank does before MPI begins, and the job. */
static int begin(const tpw_command *command, bool speaks)
{
    tpw_error err;
    tpw_status st = keep_multicast_off(&err);
    if (st == TPW_OK)
        st = part_hosts(&command->values, &err);
    if (st == TPW_OK)
        return run(command, speaks);
    complain_of_words(speaks, &err);
    return tpw_exit_code(st);
}

int main(int argc, char **argv)
{
    keep_streams();
    bool speaks = tpw_launcher_rank(get_environment) == 0;
    if (argc > 1 && strcmp(argv[1], "inspect") == 0)
        return speaks ? inspect(argc - 2, argv + 2) : 0;
    tpw_command command;
    tpw_error err;
    int code;
    tpw_status st = tpw_command_parse(argc, argv, get_environment, &command, &err);
    if (st != TPW_OK) {
        complain_of_words(speaks, &err);
        code = tpw_exit_code(st);
    } else if (command.action == TPW_ACTION_DIFF || command.action == TPW_ACTION_PLAN) {
        code = alone(&command, speaks);
    } else if (command.action < TPW_ACTION_DIFF) {
        code = begin(&command, speaks);
    } else {
        code = speaks ? print_and_leave(&command) : 0;
    }
    tpw_command_fini(&command);
    return code;
}
