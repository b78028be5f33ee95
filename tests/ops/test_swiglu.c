/* The gate product by its definition, over odd sizes, strides and types.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/elementary.h"
#include "ops_test.h"

static void check(const tpw_exec *exec, tpw_dtype act, int32_t rows, int32_t cols)
{
    ops_random r = {31};
    tpw_mat gate = ops_mat(TPW_F32, rows, cols, 3), up = ops_mat(TPW_F32, rows, cols, 1),
            y = ops_mat(act, rows, cols, 9);
    tpw_error err = {0};
    ops_fill(&gate, &r, 40.0f);
    ops_fill(&up, &r, 4.0f);
    tpw_swiglu_args args = {gate, up, y};
    cr_assert_eq(exec->ops->swiglu(exec, &args, &err), TPW_OK, "%s", err.text);
    for (int32_t m = 0; m < rows; m++)
        for (int32_t c = 0; c < cols; c++) {
            float g = ops_get(&gate, m, c), u = ops_get(&up, m, c), got = ops_get(&y, m, c);
            float want = tpw_silu(g) * u;
            if (act == TPW_BF16)
                want = tpw_bf16_to_f32(tpw_bf16_from_f32(want));
            cr_assert_eq(tpw_f32_bits(got), tpw_f32_bits(want), "row %d column %d", (int)m, (int)c);
            double exact = (double)g / (1.0 + exp(-(double)g)) * u;
            cr_assert_float_eq(got, exact, (act == TPW_BF16 ? 0x1.1p-8 : 2e-7) * fabs(exact) + 1e-44);
        }
    cr_assert_eq(ops_padding_touched(&y), 0);
    free(gate.data);
    free(up.data);
    free(y.data);
}

Test(swiglu, definition_on_every_isa)
{
    const int32_t cols[] = {1, 16, 44, 352, 768, 1024, 1031, 2176};
    int checked = 0;
    for (int isa = 0; isa < OPS_ISAS; isa++) {
        tpw_exec *exec = ops_exec(isa);
        if (!exec)
            continue;
        for (int i = 0; i < 16; i++, checked++)
            check(exec, i & 1 ? TPW_BF16 : TPW_F32, 1 + i % 5, cols[i / 2]);
        tpw_host_destroy(exec);
    }
    cr_assert_geq(checked, 16);
}

Test(swiglu, other_types_are_refused_by_name)
{
    tpw_exec *exec = ops_exec(0);
    float cells[4] = {0};
    tpw_error err = {0};
    tpw_swiglu_args args = {{cells, TPW_BF16, 1, 2, 2}, {cells, TPW_F32, 1, 2, 2}, {cells, TPW_F32, 1, 2, 2}};
    cr_assert_eq(exec->ops->swiglu(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "BF16") != NULL, "%s", err.text);
    args.gate.dtype = TPW_F32;
    args.y.dtype = TPW_E4M3;
    cr_assert_eq(exec->ops->swiglu(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    tpw_host_destroy(exec);
}
