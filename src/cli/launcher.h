/* What the launcher's environment says before MPI does: who speaks for the job, and what the job is called.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_LAUNCHER_H
#define TPW_CLI_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef const char *tpw_getenv_fn(const char *name);

#define TPW_JOB_NAME_MAX 64

/* Rank of this process as its launcher tells it, or 0. Open MPI's word goes first: under mpirun inside a Slurm job
 * SLURM_PROCID is the daemon's, 0 on every rank. Pure. */
int tpw_launcher_rank(tpw_getenv_fn *getenv_fn);

/* Name of the job for report files: the Slurm job, else mpirun's job id, else "" (the caller then uses the process id of
 * rank 0). Only letters, digits, '-', '_' and '.'; anything else becomes '_'. Pure. */
void tpw_launcher_job(tpw_getenv_fn *getenv_fn, char out[TPW_JOB_NAME_MAX]);

#endif
