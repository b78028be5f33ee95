/* What a backend tells about one GPU before anything is allocated on it. Plain data: tests make up their own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_GPU_H
#define TPW_KERNELS_GPU_H

#include <stdbool.h>
#include <stdint.h>

#define TPW_GPU_NAME_MAX 64
#define TPW_GPU_UUID_MAX 48 /* "GPU-8-4-4-4-12" or "MIG-..." */
#define TPW_GPU_BUS_MAX  16 /* "0000:3b:00.0", lower case */

typedef struct tpw_gpu {
    int32_t index; /* among the devices that this process sees */
    char name[TPW_GPU_NAME_MAX];
    char uuid[TPW_GPU_UUID_MAX];
    char bus[TPW_GPU_BUS_MAX];
    uint64_t bytes; /* total memory */
    int32_t major;  /* compute capability */
    int32_t minor;
    int32_t processors; /* multiprocessors */
    bool slice;         /* a MIG slice, not a whole GPU */
} tpw_gpu;

#endif
