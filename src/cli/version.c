/* Asks every library for its version. The one place outside their doors that includes their headers, since a compiled
 * version is a macro of the header. SPDX-License-Identifier: Apache-2.0 */
#include "cli/version.h"

#define PCRE2_CODE_UNIT_WIDTH 8

#include <hwloc.h>
#include <jansson.h>
#include <mpi.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "tp/comm_nccl.h"
#include "tpworker/version.h"

static void mpi_version(tpw_version_entry *out)
{
    out->name = "MPI";
    snprintf(out->compiled, sizeof out->compiled, "MPI-%d.%d", MPI_VERSION, MPI_SUBVERSION);
#ifdef OMPI_MAJOR_VERSION
    snprintf(out->compiled, sizeof out->compiled, "Open MPI %d.%d.%d", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION,
             OMPI_RELEASE_VERSION);
#endif
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0'; /* "Open MPI v4.1.4, package: ..." */
    snprintf(out->loaded, sizeof out->loaded, "%.60s", text);
}

static void hwloc_version(tpw_version_entry *out)
{
    out->name = "hwloc";
    snprintf(out->compiled, sizeof out->compiled, "%s", HWLOC_VERSION);
    unsigned api = hwloc_get_api_version(); /* hwloc tells no more than this of what is loaded */
    snprintf(out->loaded, sizeof out->loaded, "API %u.%u.%u", api >> 16, (api >> 8) & 0xFFu, api & 0xFFu);
}

static void jansson_version(tpw_version_entry *out)
{
    out->name = "jansson";
    snprintf(out->compiled, sizeof out->compiled, "%s", JANSSON_VERSION);
#if JANSSON_VERSION_HEX >= 0x020d00
    snprintf(out->loaded, sizeof out->loaded, "%s", jansson_version_str());
#else
    snprintf(out->loaded, sizeof out->loaded, "unknown");
#endif
}

static void pcre2_version(tpw_version_entry *out)
{
    out->name = "PCRE2";
    snprintf(out->compiled, sizeof out->compiled, "%d.%d", PCRE2_MAJOR, PCRE2_MINOR);
    char text[64] = ""; /* pcre2_config needs 24 bytes or so and cannot be told how many there are */
    if (pcre2_config(PCRE2_CONFIG_VERSION, text) < 0)
        snprintf(text, sizeof text, "unknown");
    text[strcspn(text, " ")] = '\0'; /* a date follows */
    snprintf(out->loaded, sizeof out->loaded, "%s", text);
}

static void absent(tpw_version_entry *out, const char *name)
{
    out->name = name;
    snprintf(out->compiled, sizeof out->compiled, "not built");
    out->loaded[0] = '\0';
}

/* 13000, as CUDA writes 13.0. */
static void cuda_number(int number, const char *missing, char *out, size_t bytes)
{
    if (number > 0)
        snprintf(out, bytes, "%d.%d", number / 1000, number % 1000 / 10);
    else
        snprintf(out, bytes, "%s", missing);
}

/* The driver's number is that of the newest CUDA that it takes. */
static void cuda_version(tpw_version_entry *out)
{
    int major = 0, minor = 0, runtime = 0, driver = 0;
    char first[24], second[24];
    absent(out, "CUDA");
    if (sscanf(tpw_cuda_version(), "CUDA %d.%d (runtime %d, driver %d)", &major, &minor, &runtime, &driver) != 4)
        return;
    cuda_number(runtime, "none", first, sizeof first);
    cuda_number(driver, "none", second, sizeof second);
    snprintf(out->compiled, sizeof out->compiled, "%d.%d", major, minor);
    snprintf(out->loaded, sizeof out->loaded, "runtime %s, driver %s", first, second);
}

static void nccl_version(tpw_version_entry *out)
{
    int compiled = 0, loaded = 0;
    absent(out, "NCCL");
    tpw_nccl_versions(&compiled, &loaded);
    if (compiled == 0)
        return;
    snprintf(out->compiled, sizeof out->compiled, "%d.%d.%d", compiled / 10000, compiled / 100 % 100, compiled % 100);
    snprintf(out->loaded, sizeof out->loaded, "%d.%d.%d", loaded / 10000, loaded / 100 % 100, loaded % 100);
}

void tpw_version_collect(tpw_version_entry out[TPW_VERSION_ENTRIES])
{
    mpi_version(&out[0]);
    hwloc_version(&out[1]);
    jansson_version(&out[2]);
    pcre2_version(&out[3]);
    cuda_version(&out[4]);
    nccl_version(&out[5]);
}

void tpw_version_print(FILE *out)
{
    tpw_version_entry entries[TPW_VERSION_ENTRIES];
    tpw_version_collect(entries);
    fprintf(out, "tpworker %s\n\n%-8s  %-18s  %s\n", TPW_VERSION, "", "compiled", "loaded");
    for (int i = 0; i < TPW_VERSION_ENTRIES; i++)
        fprintf(out, "%-8s  %-18s  %s\n", entries[i].name, entries[i].compiled, entries[i].loaded);
}
