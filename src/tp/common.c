/* Makes and ends boots and comms of every kind, and refuses arguments that no kind can serve.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tp/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "tp/shard.h"

#define NS_PER_MS 1000000

static void host_name(char out[TPW_HOST_NAME_MAX])
{
    char name[256];
    if (gethostname(name, sizeof name) != 0 || name[0] == '\0')
        (void)snprintf(name, sizeof name, "unknown-host");
    name[sizeof name - 1] = '\0'; /* a cut name need not be terminated */
    memset(out, 0, TPW_HOST_NAME_MAX);
    memcpy(out, name, strnlen(name, TPW_HOST_NAME_MAX - 1));
}

tpw_status tpw_boot_new(const tpw_boot_ops *ops, int rank, int size, int64_t timeout_ms, void *impl, tpw_boot **out,
                        tpw_error *err)
{
    tpw_boot *boot = calloc(1, sizeof *boot);
    if (boot == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for the boot table of rank %d", rank);
    boot->ops = ops;
    boot->rank = rank;
    boot->size = size;
    boot->timeout_ms = timeout_ms;
    boot->step = -1;
    boot->phase = "start";
    boot->impl = impl;
    host_name(boot->host);
    *out = boot;
    return TPW_OK;
}

void tpw_boot_destroy(tpw_boot *boot)
{
    if (boot != NULL)
        boot->ops->destroy(boot);
}

tpw_status tpw_comm_new(const tpw_comm_ops *ops, tpw_boot *boot, void *impl, tpw_comm **out, tpw_error *err)
{
    tpw_comm *comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for the %s communicator of rank %d", ops->name, boot->rank);
    comm->ops = ops;
    comm->rank = boot->rank;
    comm->size = boot->size;
    comm->boot = boot;
    comm->impl = impl;
    *out = comm;
    return TPW_OK;
}

void tpw_comm_destroy(tpw_comm *comm)
{
    if (comm != NULL)
        comm->ops->destroy(comm);
}

tpw_status tpw_comm_check_size(int size, tpw_error *err)
{
    if (!tpw_tp_size_ok(size))
        return tpw_fail(err, TPW_ERR_ARGUMENT,
                        "a tensor-parallel group of %d ranks is not possible: use 1, 2, 4 or 8 ranks", size);
    return TPW_OK;
}

tpw_status tpw_boot_check_buffer(const void *data, size_t bytes, const char *call, tpw_error *err)
{
    if (data == NULL && bytes > 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "%s: the buffer of %zu bytes is NULL", call, bytes);
    return TPW_OK;
}

tpw_status tpw_boot_check_root(const tpw_boot *boot, int root, tpw_error *err)
{
    if (root < 0 || root >= boot->size)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "broadcast: root %d is not one of the ranks 0..%d", root,
                        boot->size - 1);
    return TPW_OK;
}

tpw_status tpw_boot_check_timeout(int64_t timeout_ms, tpw_error *err)
{
    if (timeout_ms <= 0)
        return tpw_fail(err, TPW_ERR_ARGUMENT, "the timeout of %lld ms must be positive", (long long)timeout_ms);
    return TPW_OK;
}

int64_t tpw_boot_deadline(const tpw_boot *boot, int64_t now_ns)
{
    int64_t wait_ns, deadline;
    if (!tpw_mul_i64(boot->timeout_ms, NS_PER_MS, &wait_ns) || !tpw_add_i64(now_ns, wait_ns, &deadline))
        return INT64_MAX;
    return deadline;
}
