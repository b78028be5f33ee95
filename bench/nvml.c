/* Asks the driver's management library, if there is one. SPDX-License-Identifier: Apache-2.0 */
#include "nvml.h"

#include <dlfcn.h>
#include <string.h>

/* Of NVML's stable interface, as documented; 0 is success. */
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2 };
typedef int init_fn(void);
typedef int version_fn(char *text, unsigned length);
typedef int handle_fn(const char *bus, void **device);
typedef int clock_fn(void *device, int type, unsigned *mhz);

/* A function pointer from dlsym's object pointer, as POSIX has it. False when there is no such symbol. */
static int find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);

    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void read_clocks(void *library, const char *bus, bench_nvml *out)
{
    handle_fn *handle = NULL;
    clock_fn *clock = NULL;
    void *device = NULL;

    if (!find(library, "nvmlDeviceGetHandleByPciBusId_v2", &handle) ||
        !find(library, "nvmlDeviceGetClockInfo", &clock) || handle(bus, &device) != 0)
        return;
    if (clock(device, CLOCK_SM, &out->sm_mhz) != 0)
        out->sm_mhz = 0;
    if (clock(device, CLOCK_MEMORY, &out->memory_mhz) != 0)
        out->memory_mhz = 0;
}

bench_nvml bench_nvml_read(const char *bus)
{
    bench_nvml out = {.driver = ""};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    init_fn *begin = NULL, *end = NULL;
    version_fn *version = NULL;

    if (library == NULL)
        return out;
    if (find(library, "nvmlInit_v2", &begin) && find(library, "nvmlShutdown", &end) && begin() == 0) {
        if (!find(library, "nvmlSystemGetDriverVersion", &version) || version(out.driver, sizeof out.driver) != 0)
            out.driver[0] = '\0';
        read_clocks(library, bus, &out);
        (void)end();
    }
    (void)dlclose(library);
    return out;
}
