/* The host exec: chooses the instruction set, owns the scratch, and gives the ops and device tables.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/host.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/host/host_ops.h"
#include "kernels/host/scratch.h"
#include "kernels/host/vec.h"

#define BLOCK_ALIGN 256

#if !TPW_HOST_X86
const tpw_vec *tpw_vec_avx2(void)
{
    return NULL;
}

const tpw_vec *tpw_vec_avx512(void)
{
    return NULL;
}
#endif

/* Stands before every allocated block, in BLOCK_ALIGN bytes of its own. */
typedef struct block_head {
    size_t bytes;
} block_head;

static tpw_status device_alloc(const tpw_exec *exec, size_t bytes, void **out, tpw_error *err)
{
    tpw_host *host = exec->impl;
    size_t whole;
    if (!tpw_add_size(bytes, BLOCK_ALIGN, &whole) || !tpw_align_size(whole, BLOCK_ALIGN, &whole))
        return tpw_fail(err, TPW_ERR_MEMORY, "host memory: %zu bytes exceed the address space", bytes);
    unsigned char *base = aligned_alloc(BLOCK_ALIGN, whole);
    if (!base)
        return tpw_fail(err, TPW_ERR_MEMORY, "host memory: %zu bytes could not be allocated (%zu in use)", bytes,
                        host->bytes_now);
    memset(base, 0, whole);
    ((block_head *)base)->bytes = bytes;
    host->bytes_now += bytes;
    if (host->bytes_now > host->bytes_peak)
        host->bytes_peak = host->bytes_now;
    *out = base + BLOCK_ALIGN;
    return TPW_OK;
}

static void device_free(const tpw_exec *exec, void *data)
{
    tpw_host *host = exec->impl;
    if (!data)
        return;
    unsigned char *base = (unsigned char *)data - BLOCK_ALIGN;
    host->bytes_now -= ((block_head *)base)->bytes;
    free(base);
}

static tpw_status device_upload(const tpw_exec *exec, void *to, const void *from_host, size_t bytes, tpw_error *err)
{
    (void)exec;
    (void)err;
    if (bytes > 0)
        memmove(to, from_host, bytes);
    return TPW_OK;
}

static tpw_status device_download(const tpw_exec *exec, void *to_host, const void *from, size_t bytes, tpw_error *err)
{
    return device_upload(exec, to_host, from, bytes, err);
}

static tpw_status device_fill(const tpw_exec *exec, void *to, int byte, size_t bytes, tpw_error *err)
{
    (void)exec;
    (void)err;
    if (bytes > 0)
        memset(to, byte, bytes);
    return TPW_OK;
}

/* Ops have computed before they returned: nothing is under way. */
static tpw_status device_send(const tpw_exec *exec, void *to, const void *from_host, size_t bytes, tpw_error *err)
{
    return device_upload(exec, to, from_host, bytes, err);
}

static tpw_status device_fetch(const tpw_exec *exec, void *to_host, const void *from, size_t bytes,
                               const tpw_watch *watch, tpw_error *err)
{
    (void)watch;
    return device_upload(exec, to_host, from, bytes, err);
}

static size_t device_bytes_now(const tpw_exec *exec)
{
    return ((const tpw_host *)exec->impl)->bytes_now;
}

static size_t device_bytes_peak(const tpw_exec *exec)
{
    return ((const tpw_host *)exec->impl)->bytes_peak;
}

static const tpw_device host_device = {
    .name = "host",
    .alloc = device_alloc,
    .free = device_free,
    .upload = device_upload,
    .download = device_download,
    .fill = device_fill,
    .send = device_send,
    .fetch = device_fetch,
    .bytes_now = device_bytes_now,
    .bytes_peak = device_bytes_peak,
};

static const tpw_ops host_ops = {.name = "host",
#define TPW_HOST_SLOT(op) .op = tpw_host_##op,
                                 TPW_OP_MAP(TPW_HOST_SLOT)
#undef TPW_HOST_SLOT
};

static tpw_status choose_vec(const char *isa, const tpw_vec **out, tpw_error *err)
{
    if (!isa || strcmp(isa, "auto") == 0) {
        *out = tpw_vec_avx512();
        if (!*out)
            *out = tpw_vec_avx2();
        if (!*out)
            *out = tpw_vec_baseline();
        return TPW_OK;
    }
    if (strcmp(isa, "baseline") == 0)
        *out = tpw_vec_baseline();
    else if (strcmp(isa, "avx2") == 0)
        *out = tpw_vec_avx2();
    else if (strcmp(isa, "avx512") == 0)
        *out = tpw_vec_avx512();
    else
        return tpw_fail(err, TPW_ERR_ARGUMENT, "unknown instruction set \"%s\": use auto, baseline, avx2 or avx512",
                        isa);
    if (!*out)
        return tpw_fail(err, TPW_ERR_RESOURCE, "instruction set %s is not on this CPU or not in this build: use auto",
                        isa);
    return TPW_OK;
}

tpw_status tpw_host_reserve(tpw_exec *exec, size_t bytes, tpw_error *err)
{
    tpw_host *host = exec->impl;
    size_t whole;
    if (bytes <= host->scratch_bytes)
        return TPW_OK;
    if (!tpw_align_size(bytes, BLOCK_ALIGN, &whole))
        return tpw_fail(err, TPW_ERR_MEMORY, "host scratch: %zu bytes exceed the address space", bytes);
    unsigned char *scratch = aligned_alloc(BLOCK_ALIGN, whole);
    if (!scratch)
        return tpw_fail(err, TPW_ERR_MEMORY, "host scratch: %zu bytes could not be allocated", whole);
    memset(scratch, 0, whole); /* touched here, so that no step pays for the first page faults */
    free(host->scratch);
    host->scratch = scratch;
    host->scratch_bytes = whole;
    return TPW_OK;
}

size_t tpw_host_scratch_bytes(int32_t rows_max, int32_t cols_max)
{
    const int64_t factors[] = {rows_max, (int64_t)cols_max + TPW_SLICES_ROW_PARALLEL * TPW_PIECE,
                               (int64_t)sizeof(float)};
    size_t bytes = 1;
    for (int i = 0; i < 3; i++)
        if (factors[i] < 0 || !tpw_mul_size(bytes, (size_t)factors[i], &bytes))
            return SIZE_MAX;
    if (!tpw_add_size(bytes, 1u << 20, &bytes))
        return SIZE_MAX;
    return bytes > TPW_HOST_SCRATCH_BYTES ? bytes : TPW_HOST_SCRATCH_BYTES;
}

tpw_status tpw_host_create(const char *isa, tpw_exec **out, tpw_error *err)
{
    const tpw_vec *vec;
    TPW_TRY(choose_vec(isa, &vec, err));
    tpw_host *host = calloc(1, sizeof *host);
    if (!host)
        return tpw_fail(err, TPW_ERR_MEMORY, "host backend: %zu bytes could not be allocated", sizeof *host);
    host->exec = (tpw_exec){&host_ops, &host_device, host};
    host->vec = vec;
    tpw_status status;
    TPW_TRY_GOTO(status, tpw_host_reserve(&host->exec, TPW_HOST_SCRATCH_BYTES, err), free_host);
    *out = &host->exec;
    return TPW_OK;

free_host:
    tpw_host_destroy(&host->exec);
    return status;
}

void tpw_host_destroy(tpw_exec *exec)
{
    if (!exec)
        return;
    tpw_host *host = exec->impl;
    free(host->scratch);
    free(host);
}

const char *tpw_host_isa(const tpw_exec *exec)
{
    return tpw_host_vec(exec)->isa;
}
