/* Opens the boot table and the reference communicator over MPI. The only headers that see MPI's types end here.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_BOOT_MPI_H
#define TPW_TP_BOOT_MPI_H

#include <mpi.h>

#include "tp/boot.h"
#include "tp/comm.h"

/* Collective over `comm`, which is duplicated and otherwise left alone; its error handler becomes "return" on the
 * duplicates. MPI must be initialised with MPI_THREAD_SERIALIZED or more, else ERR_RESOURCE. The caller's library never
 * calls MPI_Init or MPI_Finalize. */
tpw_status tpw_boot_mpi_create(MPI_Comm comm, int64_t timeout_ms, tpw_boot **out, tpw_error *err) TPW_MUST_CHECK;

/* Collective over the boot's ranks. The boot must be an MPI boot and must outlive the comm. */
tpw_status tpw_comm_mpi_create(tpw_boot *boot, tpw_comm **out, tpw_error *err) TPW_MUST_CHECK;

/* The usual trap: a scheduler started N tasks but MPI sees one. Local. Looks at SLURM_NTASKS, PMI_SIZE and
 * OMPI_COMM_WORLD_SIZE through `getenv_fn` (the command passes getenv; tests pass a fake). ERR_RESOURCE with the flag to
 * use (`srun --mpi=pmix`) when world_size is 1 and one of them says more. Inside an allocation without srun
 * (SLURM_PROCID unset) SLURM_NTASKS alone is no error. */
tpw_status tpw_boot_check_singleton(int world_size, const char *(*getenv_fn)(const char *),
                                    tpw_error *err) TPW_MUST_CHECK;

#endif
