/* The boot table of a job of one rank: nobody to wait for. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "tp/common.h"

#define TIMEOUT_MS 10000 /* never waited for, but copied by whoever reads it */

static tpw_status solo_broadcast(tpw_boot *boot, void *data, size_t bytes, int root, tpw_error *err)
{
    TPW_TRY(tpw_boot_check_root(boot, root, err));
    return tpw_boot_check_buffer(data, bytes, "broadcast", err);
}

static tpw_status solo_allgather(tpw_boot *boot, const void *send, void *recv, size_t bytes, tpw_error *err)
{
    (void)boot;
    TPW_TRY(tpw_boot_check_buffer(send, bytes, "allgather", err));
    TPW_TRY(tpw_boot_check_buffer(recv, bytes, "allgather", err));
    if (bytes > 0)
        memmove(recv, send, bytes);
    return TPW_OK;
}

static tpw_status solo_barrier(tpw_boot *boot, tpw_error *err)
{
    (void)boot;
    (void)err;
    return TPW_OK;
}

/* There is no peer to tell. */
static void solo_raise(tpw_boot *boot, tpw_status status, const char *text)
{
    (void)boot;
    (void)status;
    (void)text;
}

static tpw_status solo_look(tpw_boot *boot, tpw_error *err)
{
    (void)boot;
    (void)err;
    return TPW_OK;
}

static void solo_destroy(tpw_boot *boot)
{
    free(boot);
}

static const tpw_boot_ops solo_ops = {
    .broadcast = solo_broadcast,
    .allgather = solo_allgather,
    .barrier = solo_barrier,
    .raise = solo_raise,
    .look = solo_look,
    .destroy = solo_destroy,
};

tpw_status tpw_boot_solo_create(tpw_boot **out, tpw_error *err)
{
    if (out == NULL)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "tpw_boot_solo_create: out is NULL");
    return tpw_boot_new(&solo_ops, 0, 1, TIMEOUT_MS, NULL, out, err);
}
