/* The command doctor: what every rank of a job has and whether its parts work together, before anything is loaded.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_CMD_DOCTOR_H
#define TPW_CLI_CMD_DOCTOR_H

#include "cli/session.h"
#include "cli/sink.h"
#include "worker/doctor.h"

/* Collective over MPI_COMM_WORLD, which is initialised. *out is set in every case; its status is OK when no check failed on
 * any rank, else that of tpw_doctor_verdict. */
void tpw_cmd_doctor(const tpw_values *values, tpw_outcome *out);

/* The text for people: a row a rank, versions, warnings, a line a check, and a count. Text of the ranks' machines is not
 * trusted: control characters become spaces. */
void tpw_doctor_print(tpw_sink *sink, const tpw_doctor_rank *ranks, int size);

/* One line "doctor" a rank, and the line "verdict" with what `status` came to. */
void tpw_doctor_push(tpw_sink *sink, const tpw_doctor_rank *ranks, int size, tpw_status status);

#endif
