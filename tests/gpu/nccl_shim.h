/* What the preloaded shim can be told. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_GPU_NCCL_SHIM_H
#define TPW_TESTS_GPU_NCCL_SHIM_H

typedef enum tpw_shim_mode {
    TPW_SHIM_PASS,
    TPW_SHIM_WANDER, /* another device is current after the call */
    TPW_SHIM_FAIL    /* the same, and the call reports an error */
} tpw_shim_mode;

/* Sets the mode; returns how many calls wandered since the last time. Found by dlsym: the shim is there only when preloaded. */
int tpw_shim_set(tpw_shim_mode wanted);

#endif
