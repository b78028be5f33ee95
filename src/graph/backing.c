/* The backing of a real exec. SPDX-License-Identifier: Apache-2.0 */
#include "graph/backing.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "graph/arena.h"

static tpw_status exec_alloc(void *data, size_t bytes, void **out, tpw_error *err)
{
    const tpw_exec *exec = data;

    return exec->device->alloc(exec, bytes, out, err);
}

static void exec_free(void *data, void *block)
{
    const tpw_exec *exec = data;

    exec->device->free(exec, block);
}

static tpw_status exec_fill(void *data, void *to, int byte, size_t bytes, tpw_error *err)
{
    const tpw_exec *exec = data;

    return exec->device->fill(exec, to, byte, bytes, err);
}

static tpw_status exec_alloc_host(void *data, size_t bytes, void **out, tpw_error *err)
{
    const tpw_exec *exec = data;

    return exec->device->alloc_host(exec, bytes, out, err);
}

static void exec_free_host(void *data, void *block)
{
    const tpw_exec *exec = data;

    exec->device->free_host(exec, block);
}

static tpw_status plain_alloc(void *data, size_t bytes, void **out, tpw_error *err)
{
    size_t whole;
    void *block;

    (void)data;
    if (!tpw_align_size(bytes > 0 ? bytes : 1, TPW_ARENA_ALIGN, &whole))
        return tpw_fail(err, TPW_ERR_MEMORY, "host memory: %zu bytes exceed the address space", bytes);
    block = aligned_alloc(TPW_ARENA_ALIGN, whole);
    if (block == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "host memory: %zu bytes could not be allocated", bytes);
    memset(block, 0, whole);
    *out = block;
    return TPW_OK;
}

static void plain_free(void *data, void *block)
{
    (void)data;
    free(block);
}

tpw_backing tpw_backing_of(const tpw_exec *exec)
{
    tpw_backing b = {
        .data = (void *)exec, .alloc_device = exec_alloc, .free_device = exec_free, .fill_device = exec_fill};

    if (exec->device->alloc_host != NULL && exec->device->free_host != NULL) {
        b.alloc_host = exec_alloc_host;
        b.free_host = exec_free_host;
    } else if (strcmp(exec->device->name, "host") == 0) {
        b.alloc_host = plain_alloc;
        b.free_host = plain_free;
    }
    return b;
}
