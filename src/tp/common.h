/* What every boot and every comm has in common: how they are made, what they refuse. Private to this folder.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_COMMON_H
#define TPW_TP_COMMON_H

#include <stdbool.h>

#include "tp/boot.h"
#include "tp/comm.h"

/* A boot of this host with step -1 and phase "start". ERR_MEMORY. Local. */
tpw_status tpw_boot_new(const tpw_boot_ops *ops, int rank, int size, int64_t timeout_ms, void *impl, tpw_boot **out,
                        tpw_error *err) TPW_MUST_CHECK;

/* A comm with the rank and size of `boot`. ERR_MEMORY. Local. */
tpw_status tpw_comm_new(const tpw_comm_ops *ops, tpw_boot *boot, void *impl, tpw_comm **out,
                        tpw_error *err) TPW_MUST_CHECK;

/* ERR_ARGUMENT naming `call` for what no exchange can do: a missing buffer of bytes > 0, a root outside the ranks. */
tpw_status tpw_boot_check_buffer(const void *data, size_t bytes, const char *call, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_boot_check_root(const tpw_boot *boot, int root, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_boot_check_timeout(int64_t timeout_ms, tpw_error *err) TPW_MUST_CHECK;

/* The monotonic time, in ns, at which a wait that starts at `now_ns` ends. Never overflows. */
int64_t tpw_boot_deadline(const tpw_boot *boot, int64_t now_ns);

#endif
