/* Tests of the trap "N tasks started, MPI sees one", with made-up environments. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "tp/boot_mpi.h"

/* "NAME=value" lines, NULL at the end. */
static const char *const *environment;

static const char *fake_getenv(const char *name)
{
    size_t length = strlen(name);
    for (const char *const *line = environment; *line != NULL; line++)
        if (strncmp(*line, name, length) == 0 && (*line)[length] == '=')
            return *line + length + 1;
    return NULL;
}

#define LINES(...) ((const char *const[]){__VA_ARGS__ NULL})

static void expect(int world, const char *const *lines, tpw_status status, const char *part)
{
    tpw_error err = {0};
    environment = lines;
    tpw_status got = tpw_boot_check_singleton(world, fake_getenv, &err);
    cr_assert_eq(got, status, "%s (first line %s): %s, expected %s: %s", tpw_status_name(got),
                 lines[0] != NULL ? lines[0] : "none", tpw_status_name(got), tpw_status_name(status), err.text);
    if (part != NULL)
        cr_assert(strstr(err.text, part) != NULL, "\"%s\" does not say \"%s\"", err.text, part);
    cr_assert_eq(tpw_boot_check_singleton(world, fake_getenv, NULL), status);
}

Test(singleton, innocent)
{
    expect(1, LINES(), TPW_OK, NULL);
    expect(1, LINES("SLURM_NTASKS=1", "SLURM_PROCID=0", ), TPW_OK, NULL);
    /* inside an allocation, started by hand */
    expect(1, LINES("SLURM_NTASKS=4", ), TPW_OK, NULL);
    /* mpirun -np 1 inside a job of four tasks: Slurm's variables are the daemon's */
    expect(1, LINES("OMPI_COMM_WORLD_SIZE=1", "SLURM_NTASKS=4", "SLURM_PROCID=0", ), TPW_OK, NULL);
    expect(1, LINES("PMI_SIZE=1", "SLURM_NTASKS=4", "SLURM_PROCID=0", ), TPW_OK, NULL);
    /* MPI sees more than one: whatever the scheduler says */
    expect(2, LINES("SLURM_NTASKS=4", "SLURM_PROCID=1", "OMPI_COMM_WORLD_SIZE=8", ), TPW_OK, NULL);
    /* not numbers */
    expect(1, LINES("SLURM_NTASKS=", "SLURM_PROCID=0", ), TPW_OK, NULL);
    expect(1, LINES("SLURM_NTASKS=4x", "SLURM_PROCID=0", ), TPW_OK, NULL);
    expect(1, LINES("SLURM_NTASKS=-4", "SLURM_PROCID=0", ), TPW_OK, NULL);
    expect(1, LINES("PMI_SIZE= 4", ), TPW_OK, NULL);
    expect(1, LINES("OMPI_COMM_WORLD_SIZE=99999999999999999999", ), TPW_OK, NULL);
    /* a name that only begins like one of ours */
    expect(1, LINES("PMI_SIZES=4", "SLURM_NTASKS_PER_NODE=4", "SLURM_PROCID=0", ), TPW_OK, NULL);
}

Test(singleton, trapped)
{
    expect(1, LINES("SLURM_NTASKS=4", "SLURM_PROCID=3", ), TPW_ERR_RESOURCE, "srun --mpi=pmix");
    expect(1, LINES("SLURM_NTASKS=2", "SLURM_PROCID=0", ), TPW_ERR_RESOURCE, "SLURM_NTASKS says 2");
    expect(1, LINES("PMI_SIZE=8", ), TPW_ERR_RESOURCE, "srun --mpi=pmix");
    expect(1, LINES("PMI_SIZE=8", ), TPW_ERR_RESOURCE, "PMI_SIZE says 8");
    expect(1, LINES("OMPI_COMM_WORLD_SIZE=2", ), TPW_ERR_RESOURCE, "OMPI_COMM_WORLD_SIZE says 2");
    /* a broken value of one does not hide the next */
    expect(1, LINES("OMPI_COMM_WORLD_SIZE=x", "PMI_SIZE=3", ), TPW_ERR_RESOURCE, "PMI_SIZE says 3");
}
