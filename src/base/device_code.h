/* Marks an inline function that kernels on a device call too: one source, hence the same bits in both places.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BASE_DEVICE_CODE_H
#define TPW_BASE_DEVICE_CODE_H

#ifdef __CUDACC__
#define TPW_HD static inline __host__ __device__
#else
#define TPW_HD static inline
#endif

#endif
