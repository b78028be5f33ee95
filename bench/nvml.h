/* What only the driver's management library tells: its version, and the clocks as they are. Never sets anything.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BENCH_NVML_H
#define TPW_BENCH_NVML_H

typedef struct bench_nvml {
    char driver[80];
    unsigned sm_mhz;
    unsigned memory_mhz;
} bench_nvml;

/* Reads them for the GPU at PCI address `bus`. What cannot be read is "" or 0: the library is opened, not linked. */
bench_nvml bench_nvml_read(const char *bus);

#endif
