/* The caller's current device survives an NCCL that changes it, on success and on failure; without the guard it does not, which shows
 * that the test can fail. Runs with nccl_shim preloaded. SPDX-License-Identifier: Apache-2.0 */
#include "mpi/mpi_test.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "gpu_test.h"
#include "nccl_shim.h"
#include "tp/boot_mpi.h"
#include "tp/comm_nccl.h"

TestSuite(gpu_shim, .init = mt_init, .fini = mt_fini, .timeout = 100);

static bool guard = true;
static int (*shim_set)(tpw_shim_mode);

/* Linked in place of the guard's second half (ld --wrap) wherever another file calls it. */
void __real_tpw_cuda_leave(int before);
void __wrap_tpw_cuda_leave(int before);
void __wrap_tpw_cuda_leave(int before)
{
    if (guard)
        __real_tpw_cuda_leave(before);
}

static void skip_without(void)
{
    char text[128];
    int count = tpw_cuda_count(NULL, 0);
    *(void **)&shim_set = dlsym(RTLD_DEFAULT, "tpw_shim_set");
    snprintf(text, sizeof text, "%d GPUs for %d ranks%s", count, mt_size,
             shim_set == NULL ? ", shim not preloaded" : "");
    mt_skip_if(count < 2 || count < mt_size || shim_set == NULL, text);
}

static int current_device(void)
{
    int d = -1;
    (void)cudaGetDevice(&d);
    return d;
}

typedef struct side {
    tpw_boot *boot;
    tpw_exec *exec;
    tpw_comm *comm;
} side;

static tpw_status side_open(side *s, tpw_error *err)
{
    tpw_cuda_options o = {.device = mt_rank, .spin_ms = 400};
    tpw_nccl_options options = {.rows_max = 8, .cols_max = 64};
    *s = (side){0};
    TPW_TRY(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &s->boot, err));
    TPW_TRY(tpw_cuda_create(&o, &s->exec, err));
    return tpw_comm_nccl_create(s->boot, s->exec, &options, &s->comm, err);
}

static void side_end(side *s)
{
    tpw_cuda_destroy(s->exec);
    tpw_boot_destroy(s->boot);
}

MPI_TEST(gpu_shim, device_stays)
{
    side s;
    skip_without();
    for (int start = 0; start < 2; start++) {
        cr_assert_eq(cudaSetDevice(start), cudaSuccess);
        /* all calls succeed */
        shim_set(TPW_SHIM_WANDER);
        GPU_OK(side_open(&s, err));
        cr_assert_eq(current_device(), start, "after creation");
        GPU_OK(tpw_comm_nccl_close(s.comm, err));
        cr_assert_eq(current_device(), start, "after destruction");
        cr_assert_geq(shim_set(TPW_SHIM_FAIL), 2, "the shim was not called");
        side_end(&s);
        /* init fails */
        tpw_error failure = {0};
        cr_assert_eq(side_open(&s, &failure), TPW_ERR_DEVICE, "%s", failure.text);
        cr_assert_eq(current_device(), start, "after a failed creation");
        cr_assert_geq(shim_set(TPW_SHIM_PASS), 1, "the shim was not called");
        side_end(&s);
        /* destroy fails */
        GPU_OK(side_open(&s, err));
        shim_set(TPW_SHIM_FAIL);
        cr_assert_eq(tpw_comm_nccl_close(s.comm, &failure), TPW_OK);
        cr_assert_eq(current_device(), start, "after a failed destruction");
        cr_assert_geq(shim_set(TPW_SHIM_PASS), 1, "the shim was not called");
        side_end(&s);
        /* abort, on rank 0, whose peer never sends */
        GPU_OK(side_open(&s, err));
        shim_set(TPW_SHIM_FAIL);
        if (mt_rank == 0) {
            float *x = gpu_alloc(s.exec, 256);
            GPU_OK(s.comm->ops->allreduce(s.comm, x, 64, err));
            gpu_free(s.exec, x);
            cr_assert_eq(tpw_comm_nccl_close(s.comm, &failure), TPW_ERR_PEER);
            cr_assert_eq(current_device(), start, "after an abort");
            cr_assert_geq(shim_set(TPW_SHIM_PASS), 1, "the shim was not called");
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (mt_rank != 0)
            (void)!tpw_comm_nccl_close(s.comm, &failure);
        cr_assert_eq(current_device(), start, "after a peer's abort");
        shim_set(TPW_SHIM_PASS);
        side_end(&s);
    }
}

MPI_TEST(gpu_shim, without_the_guard_it_does_not)
{
    side s;
    skip_without();
    cr_assert_eq(cudaSetDevice(mt_rank), cudaSuccess);
    GPU_OK(side_open(&s, err));
    shim_set(TPW_SHIM_WANDER);
    guard = false;
    GPU_OK(tpw_comm_nccl_close(s.comm, err));
    guard = true;
    cr_assert_neq(current_device(), mt_rank,
                  "the shim's change does not reach this runtime: the other test shows nothing");
    shim_set(TPW_SHIM_PASS);
    side_end(&s);
}
