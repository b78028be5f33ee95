/* Which GPUs this process sees, and what they are. SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/exec.h"

int32_t tpw_cuda_count(char *reason, int bytes)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);

    (void)cudaGetLastError();
    if (code != cudaSuccess)
        count = 0;
    if (reason != NULL && bytes > 0)
        snprintf(reason, (size_t)bytes, "%s", code == cudaSuccess ? "" : cudaGetErrorString(code));
    return count;
}

static void uuid_text(const cudaUUID_t *uuid, bool slice, char out[TPW_GPU_UUID_MAX])
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;

    snprintf(out, TPW_GPU_UUID_MAX, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             slice ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
             b[13], b[14], b[15]);
}

tpw_status tpw_cuda_gpu(int32_t index, tpw_gpu *out, tpw_error *err)
{
    struct cudaDeviceProp prop;
    char reason[160];
    int32_t count = tpw_cuda_count(reason, sizeof reason);
    cudaError_t code;

    if (index < 0 || index >= count)
        return tpw_fail(err, TPW_ERR_RESOURCE, "GPU %d is not there: %d visible%s%s", (int)index, (int)count,
                        reason[0] != '\0' ? ": " : "", reason);
    code = cudaGetDeviceProperties(&prop, index);
    (void)cudaGetLastError();
    if (code != cudaSuccess)
        return tpw_fail(err, TPW_ERR_DEVICE, "GPU %d: properties: %s", (int)index, cudaGetErrorString(code));
    *out = (tpw_gpu){.index = index,
                     .bytes = prop.totalGlobalMem,
                     .major = prop.major,
                     .minor = prop.minor,
                     .processors = prop.multiProcessorCount,
                     .slice = strstr(prop.name, " MIG ") != NULL};
    snprintf(out->name, sizeof out->name, "%.63s", prop.name);
    uuid_text(&prop.uuid, out->slice, out->uuid);
    snprintf(out->bus, sizeof out->bus, "%04x:%02x:%02x.0", (unsigned)prop.pciDomainID & 0xFFFFu,
             (unsigned)prop.pciBusID & 0xFFu, (unsigned)prop.pciDeviceID & 0xFFu);
    return TPW_OK;
}

const char *tpw_cuda_version(void)
{
    static char text[96];
    int runtime = 0, driver = 0;

    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    (void)cudaGetLastError();
    snprintf(text, sizeof text, "CUDA %d.%d (runtime %d, driver %d)", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
             runtime, driver);
    return text;
}
