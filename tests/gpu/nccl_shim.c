/* Preloaded in front of NCCL: init, destroy and abort first make another device current, then succeed or fail, as some versions do.
 * SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include "nccl_shim.h"

static tpw_shim_mode mode = TPW_SHIM_PASS;
static int calls;

__attribute__((visibility("default"))) int tpw_shim_set(tpw_shim_mode wanted)
{
    int before = calls;
    mode = wanted;
    calls = 0;
    return before;
}

static void wander(void)
{
    int count = 0, now = 0;
    if (mode == TPW_SHIM_PASS)
        return;
    calls++;
    if (cudaGetDeviceCount(&count) == cudaSuccess && cudaGetDevice(&now) == cudaSuccess && count > 1)
        (void)cudaSetDevice((now + 1) % count);
}

__attribute__((visibility("default"))) ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                                                           int rank, ncclConfig_t *config)
{
    ncclResult_t (*real)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *) =
        (ncclResult_t(*)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))dlsym(RTLD_NEXT,
                                                                                     "ncclCommInitRankConfig");
    ncclResult_t result = mode == TPW_SHIM_FAIL ? ncclSystemError : real(comm, size, id, rank, config);
    wander();
    return result;
}

__attribute__((visibility("default"))) ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t (*real)(ncclComm_t) = (ncclResult_t(*)(ncclComm_t))dlsym(RTLD_NEXT, "ncclCommDestroy");
    ncclResult_t result = real(comm);
    wander();
    return mode == TPW_SHIM_FAIL ? ncclSystemError : result;
}

__attribute__((visibility("default"))) ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclResult_t (*real)(ncclComm_t) = (ncclResult_t(*)(ncclComm_t))dlsym(RTLD_NEXT, "ncclCommAbort");
    ncclResult_t result = real(comm);
    wander();
    return mode == TPW_SHIM_FAIL ? ncclSystemError : result;
}
