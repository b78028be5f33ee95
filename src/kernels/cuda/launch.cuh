// Launches a kernel on the exec's stream, with programmatic dependent launch where it is on, and the device-side pair.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_LAUNCH_CUH
#define TPW_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include "kernels/cuda/exec.h"

// Lets the next kernel of the stream start its own beginning (loads of constant data only).
static __device__ __forceinline__ void tpw_pdl_trigger()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until all earlier kernels have ended and their writes are visible. Every kernel calls it on every path: the
// order of kernels is transitive only through those that wait.
static __device__ __forceinline__ void tpw_pdl_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Makes the exec's device current for the life of the object.
struct tpw_cuda_here {
    int before;
    explicit tpw_cuda_here(const tpw_cuda *cuda) : before(tpw_cuda_enter(cuda->gpu.index))
    {
    }
    ~tpw_cuda_here()
    {
        tpw_cuda_leave(before);
    }
    tpw_cuda_here(const tpw_cuda_here &) = delete;
    tpw_cuda_here &operator=(const tpw_cuda_here &) = delete;
};

// Enqueues kernel<<<grid, block, shared>>>(args...) on the exec's stream. `what` names it in an error. cluster > 1: CTAs
// along x that share memory.
template <class... P, class... A>
static inline tpw_status tpw_cuda_launch(const tpw_exec *exec, const char *what, tpw_error *err, void (*kernel)(P...),
                                         dim3 grid, dim3 block, size_t shared, unsigned cluster, A... args)
{
    const tpw_cuda *cuda = tpw_cuda_of(exec);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2];
    tpw_cuda_here here(cuda);

    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return TPW_OK;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = cuda->stream;
    config.attrs = attributes;
    if (cuda->pdl) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = cluster;
        attributes[config.numAttrs].val.clusterDim.y = 1;
        attributes[config.numAttrs++].val.clusterDim.z = 1;
    }
    return tpw_cuda_check(cuda, cudaLaunchKernelEx(&config, kernel, P(args)...), what, err);
}

#endif
