/* The planned arena: measuring and carving agree, sizes overflow safely. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdint.h>

#include "graph/arena.h"
#include "kernels/host/host.h"

/* Carves a mixed plan and returns the pointers. */
static void carve(tpw_arena *a, void *out[4])
{
    size_t mark;

    out[0] = tpw_arena_take(a, 3, 5);
    out[1] = tpw_arena_mat(a, TPW_BF16, 7, 9).data;
    mark = a->used;
    out[2] = tpw_arena_take(a, 1000, 4);
    a->used = mark;
    out[3] = tpw_arena_take(a, 10, 4);
    a->used = a->peak;
}

Test(arena, measure_equals_use)
{
    tpw_arena plan = tpw_arena_measure(), real;
    tpw_exec *exec = NULL;
    tpw_error err = {0};
    void *p[4];

    carve(&plan, p);
    for (int i = 0; i < 4; i++)
        cr_assert_null(p[i]);
    cr_assert_eq(tpw_arena_check(&plan, "plan", &err), TPW_OK);
    cr_assert_eq(plan.peak, 256 + 256 + 4000);
    cr_assert_eq(tpw_host_create("auto", &exec, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_arena_init(&real, exec, plan.peak, &err), TPW_OK);
    carve(&real, p);
    cr_assert_eq(tpw_arena_check(&real, "use", &err), TPW_OK, "%s", err.text);
    cr_assert_eq(real.used, plan.used);
    for (int i = 0; i < 4; i++)
        cr_assert(p[i] != NULL && (uintptr_t)p[i] % TPW_ARENA_ALIGN == 0);
    cr_assert_eq(p[2], p[3], "both carves from the mark share memory");
    cr_assert_null(tpw_arena_take(&real, 1, 1), "one byte past the plan");
    cr_assert_eq(tpw_arena_check(&real, "use", &err), TPW_ERR_INTERNAL);
    tpw_arena_fini(&real, exec);
    cr_assert_eq(exec->device->bytes_now(exec), 0);
    tpw_host_destroy(exec);
}

Test(arena, overflow_is_sticky)
{
    const int64_t bad[][2] = {{INT64_MAX, 8}, {-1, 1}, {(int64_t)1 << 40, (int64_t)1 << 40}};

    for (size_t i = 0; i < 3; i++) {
        tpw_arena a = tpw_arena_measure();
        tpw_error err = {0};

        tpw_arena_take(&a, bad[i][0], (size_t)bad[i][1]);
        tpw_arena_take(&a, 1, 1);
        cr_assert_eq(tpw_arena_check(&a, "weights", &err), TPW_ERR_LIMIT);
        cr_assert(strstr(err.text, "weights") != NULL);
    }
    {
        tpw_arena a = tpw_arena_measure();

        tpw_arena_mat(&a, TPW_F32, (int64_t)INT32_MAX + 1, 1);
        cr_assert(a.overflow);
    }
}
