/* All ranks tell which GPUs they see, and get one seat each or one refusal for all.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_GPUS_H
#define TPW_TP_GPUS_H

#include "tp/place.h"

/* Collective, before any communicator of GPUs is made. Gathers the visible GPUs of all ranks (gpus[0..count), as a
 * backend lists them; count may be 0 and differ between ranks), decides with tpw_place_gpus and tpw_place_seat, and
 * agrees: either every rank has its seat, or all return the same status and text, ERR_RESOURCE for what place
 * refuses. `ranks_per_gpu` must be the same on all ranks. Three exchanges; waits as long as the boot does. ERR_LIMIT
 * when a rank sees more than TPW_PLACE_GPUS_MAX. Touches no GPU and binds nothing. The caller that cannot list its GPUs
 * agrees on that first (tpw_agree_status). */
tpw_status tpw_gpus_agree(tpw_boot *boot, const tpw_topology *topology, const tpw_gpu *gpus, int count,
                          int ranks_per_gpu, tpw_seat *out, tpw_error *err) TPW_MUST_CHECK;

#endif
