/* Makes a worker from an MPI communicator. Apart, so that the core header needs no MPI. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPWORKER_MPI_H
#define TPWORKER_MPI_H

#include <mpi.h>

#include "tpworker/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over `comm`, which is duplicated; any communicator with 1, 2, 4 or 8 ranks. Compares the options of all ranks, finds
 * the node, binds. On success *out is the caller's; on error *out is NULL on every rank. Errors: ERR_ARGUMENT (options,
 * rank count), ERR_RESOURCE (MPI not initialised or thread level too low, binding refused under STRICT, ISA not there),
 * ERR_DIVERGED (options differ), ERR_PEER. */
TPW_API tpw_status tpw_worker_create(const tpw_options *options, MPI_Comm comm, tpw_worker **out, tpw_error *err);

#ifdef __cplusplus
}
#endif
#endif
