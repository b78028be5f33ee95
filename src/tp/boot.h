/* The boot table: who am I, how many are we, and the few slow exchanges of the control plane. Every wait has a deadline.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_BOOT_H
#define TPW_TP_BOOT_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define TPW_RANKS_MAX     1024
#define TPW_HOST_NAME_MAX 64

typedef struct tpw_boot tpw_boot;

typedef struct tpw_boot_ops {
    /* Collective. Root's bytes reach all. */
    tpw_status (*broadcast)(tpw_boot *boot, void *data, size_t bytes, int root, tpw_error *err);
    /* Collective. recv holds size blocks of `bytes`, by rank. */
    tpw_status (*allgather)(tpw_boot *boot, const void *send, void *recv, size_t bytes, tpw_error *err);
    /* Collective. */
    tpw_status (*barrier)(tpw_boot *boot, tpw_error *err);
    /* Local, never blocks: tells every peer that this rank fails with `status`; whoever waits, or waits later, in a call
     * of this boot or of a comm made from it returns ERR_PEER (ERR_DIVERGED when that is `status`) with this rank, its host and the
     * text. At most once. */
    void (*raise)(tpw_boot *boot, tpw_status status, const char *text);
    /* Local, never blocks: the failure that a peer has raised, as a wait in a call of this boot would return it; OK: none is known. For waits that
     * are not MPI's. */
    tpw_status (*look)(tpw_boot *boot, tpw_error *err);
    /* Local, frees. Communicators made from this boot must be gone. */
    void (*destroy)(tpw_boot *boot);
} tpw_boot_ops;

struct tpw_boot {
    const tpw_boot_ops *ops;
    int rank;
    int size;
    int64_t timeout_ms; /* deadline of every wait; may be changed between calls, the same on all ranks */
    char host[TPW_HOST_NAME_MAX];
    int64_t step;      /* what messages name: the step being run, -1 before the first */
    const char *phase; /* what messages name: "load", "step", ... static text */
    void *impl;
};

/* The fake that needs no cluster: rank 0 of 1. */
tpw_status tpw_boot_solo_create(tpw_boot **out, tpw_error *err) TPW_MUST_CHECK;

/* n ranks of one process, each to be used by its own thread: boots[0..n-1]. For tests. Destroy each. */
tpw_status tpw_boot_local_create(int n, int64_t timeout_ms, tpw_boot **boots, tpw_error *err) TPW_MUST_CHECK;

/* Local; NULL allowed. */
void tpw_boot_destroy(tpw_boot *boot);

#endif
