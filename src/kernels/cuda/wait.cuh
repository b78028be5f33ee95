// Bounded waiting inside a kernel: a spin that asks the clock now and then, and the fault word that ends this and all later waits.
// SPDX-License-Identifier: Apache-2.0
#ifndef TPW_KERNELS_CUDA_WAIT_CUH
#define TPW_KERNELS_CUDA_WAIT_CUH

#include "kernels/cuda/exec.h"

// What a kernel that waits for a peer is told.
struct tpw_wait_limit {
    uint32_t *local; // fault word in device memory, read by every waiting kernel
    uint32_t *host;  // the same for the host, pinned
    uint64_t ns;
};

static inline tpw_wait_limit tpw_wait_limit_of(const tpw_cuda *cuda)
{
    return {cuda->fault_local, cuda->fault_device, cuda->spin_ns};
}

// One wait of one thread. again() is false once the time is up or another wait has failed: then give up.
struct tpw_spin {
    const tpw_wait_limit limit;
    uint64_t begin;
    uint32_t turns;

    __device__ explicit tpw_spin(const tpw_wait_limit &l) : limit(l), begin(0), turns(0)
    {
    }

    static __device__ uint64_t now()
    {
        uint64_t t;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
        return t;
    }

    __device__ bool again()
    {
        if (++turns % 256 != 0)
            return true;
        const uint64_t t = now();
        if (begin == 0)
            begin = t;
        if (*(volatile uint32_t *)limit.local != TPW_FAULT_NONE)
            return false;
        // the host's word lies behind the bus: it is asked seldom, for a host that has given up
        const bool given_up = turns % 8192 == 0 && *(volatile uint32_t *)limit.host != TPW_FAULT_NONE;
        if (!given_up && t - begin <= limit.ns)
            return true;
        *(volatile uint32_t *)limit.local = TPW_FAULT_WAIT;
        *(volatile uint32_t *)limit.host = TPW_FAULT_WAIT;
        __threadfence_system();
        return false;
    }
};

#endif
