/* The meeting place of ranks that are threads of one process. Private to this folder.
 *
 * An exchange is one meeting: each rank puts its bytes into its own slot, arrives, waits for all, and reads every slot. Two
 * sets of slots alternate: a rank that is one exchange ahead writes to the set that nobody reads any more, since it could
 * only get there after all ranks had arrived at the exchange before. So one meeting per exchange is enough, no rank ever
 * reads memory of another rank's caller, and a rank that gives up leaves nothing dangling. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_LOCAL_H
#define TPW_TP_LOCAL_H

#include <stddef.h>

#include "tp/boot.h"

typedef enum tpw_local_kind {
    TPW_LOCAL_BROADCAST = 1,
    TPW_LOCAL_GATHER,
    TPW_LOCAL_BARRIER,
    TPW_LOCAL_REDUCE,
    TPW_LOCAL_MERGE
} tpw_local_kind;

/* ERR_ARGUMENT when `boot` was not made by tpw_boot_local_create. */
tpw_status tpw_local_check(const tpw_boot *boot, tpw_error *err) TPW_MUST_CHECK;

/* What a rank wants of a meeting. All but `data` must be equal on all ranks. */
typedef struct tpw_local_call {
    tpw_local_kind kind;
    int root; /* the only rank whose bytes are taken, or -1 for all */
    const void *data;
    size_t bytes;
} tpw_local_call;

/* Collective. Meets, bringing a copy of the data. ERR_DIVERGED when the ranks want different things. */
tpw_status tpw_local_meet(tpw_boot *boot, const tpw_local_call *call, tpw_error *err) TPW_MUST_CHECK;

/* What `rank` brought to the meeting that this rank left last; valid until this rank meets again. */
const void *tpw_local_slot(const tpw_boot *boot, int rank);

#endif
