/* Made-up GPUs and ranks for the tests of placement. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_PLACE_RANKS_H
#define TPW_TESTS_PLACE_RANKS_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tp/place.h"

#define RANKS_MAX 8

static tpw_topology *load_machine(const char *name)
{
    char path[1024];
    tpw_topology *topology = NULL;
    tpw_error err = {0};
    (void)snprintf(path, sizeof path, "%s/topology/%s", TPW_TEST_DATA, name);
    cr_assert_eq(tpw_topology_load(path, &topology, &err), TPW_OK, "%s", err.text);
    return topology;
}

/* A whole H200 whose UUID ends with its bus and device number, so that messages can be checked. */
static tpw_gpu made_gpu(int index, const char *bus)
{
    tpw_gpu gpu = {.index = index, .bytes = 150ull << 30, .major = 9, .minor = 0, .processors = 132};
    (void)snprintf(gpu.name, sizeof gpu.name, "NVIDIA H200");
    (void)snprintf(gpu.bus, sizeof gpu.bus, "%.15s", bus);
    (void)snprintf(gpu.uuid, sizeof gpu.uuid, "GPU-5f0e6c1a-0000-4000-8000-00000000%.2s%.2s", bus + 5, bus + 8);
    return gpu;
}

/* buses: names separated by spaces, in the order of CUDA. */
static void show_gpus(tpw_place_rank *rank, const char *host, const char *buses)
{
    memset(rank, 0, sizeof *rank);
    (void)snprintf(rank->host, sizeof rank->host, "%s", host);
    rank->allowed_key = 1;
    for (const char *at = buses; *at != '\0'; at += strspn(at, " ")) {
        char bus[TPW_GPU_BUS_MAX] = "";
        size_t length = strcspn(at, " ");
        memcpy(bus, at, length < sizeof bus ? length : sizeof bus - 1);
        rank->gpus[rank->gpu_count] = made_gpu(rank->gpu_count, bus);
        rank->gpu_count++;
        at += length;
    }
}

static inline void show_all(tpw_place_rank *ranks, int size, const char *buses)
{
    for (int r = 0; r < size; r++)
        show_gpus(&ranks[r], "hostA", buses);
}

#endif
