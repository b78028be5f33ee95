/* Notices that a launcher started several tasks of which MPI sees only one. SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "tp/boot_mpi.h"

/* The value of a variable that holds a task count; 0 when it is unset or holds anything else. */
static long task_count(const char *name, const char *(*getenv_fn)(const char *))
{
    const char *text = getenv_fn(name);
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return 0;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return *end == '\0' && errno == 0 ? value : 0;
}

tpw_status tpw_boot_check_singleton(int world_size, const char *(*getenv_fn)(const char *), tpw_error *err)
{
    if (world_size != 1)
        return TPW_OK;

    /* The innermost launcher decides: an mpirun of one rank inside a larger Slurm job is no trap, although Slurm's own
     * variables still describe the job there. */
    long tasks = task_count("OMPI_COMM_WORLD_SIZE", getenv_fn);
    if (tasks > 1)
        return tpw_fail(
            err, TPW_ERR_RESOURCE,
            "MPI sees one rank but OMPI_COMM_WORLD_SIZE says %ld: the mpirun belongs to another Open MPI than "
            "this program; use the mpirun of the one it was built with, or `srun --mpi=pmix`",
            tasks);
    if (tasks == 1)
        return TPW_OK;

    tasks = task_count("PMI_SIZE", getenv_fn);
    if (tasks > 1)
        return tpw_fail(
            err, TPW_ERR_RESOURCE,
            "MPI sees one rank but PMI_SIZE says %ld: the launcher speaks PMI, which this MPI does not; start "
            "with `srun --mpi=pmix` or with Open MPI's mpirun",
            tasks);
    if (tasks == 1)
        return TPW_OK;

    tasks = task_count("SLURM_NTASKS", getenv_fn);
    if (tasks > 1 && getenv_fn("SLURM_PROCID") != NULL)
        return tpw_fail(
            err, TPW_ERR_RESOURCE,
            "MPI sees one rank but SLURM_NTASKS says %ld: start with `srun --mpi=pmix`, or with mpirun inside "
            "the allocation",
            tasks);
    return TPW_OK;
}
