/* Embedding rows: owners copy bits, everyone else writes zeros, conversions round once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops_test.h"

static const int32_t ids[] = {0, 9, 10, 14, 15, 22, 23, -1, INT32_MAX, INT32_MIN, 15};
#define ROWS ((int32_t)(sizeof ids / sizeof *ids))

/* Every pair of types, odd sizes, padded strides, vocabulary rows 10..22. */
static void check_pair(const tpw_exec *exec, tpw_dtype table_type, tpw_dtype out_type, int32_t cols)
{
    ops_random r = {11};
    tpw_mat table = ops_mat(table_type, 13, cols, 3), out = ops_mat(out_type, ROWS, cols, 5);
    tpw_error err = {0};
    ops_fill(&table, &r, 2.0f);
    ops_set(&table, 5, 0, -0.0f);
    tpw_embed_args args = {ids, table, 10, out};
    cr_assert_eq(exec->ops->embed(exec, &args, &err), TPW_OK, "%s", err.text);
    for (int32_t m = 0; m < ROWS; m++)
        for (int32_t c = 0; c < cols; c++) {
            bool mine = ids[m] >= 10 && ids[m] < 23;
            float want = mine ? ops_get(&table, ids[m] - 10, c) : 0.0f;
            if (out_type == TPW_BF16)
                want = tpw_bf16_to_f32(tpw_bf16_from_f32(want));
            cr_assert_eq(tpw_f32_bits(ops_get(&out, m, c)), tpw_f32_bits(want), "row %d column %d", (int)m, (int)c);
        }
    cr_assert_eq(tpw_f32_bits(ops_get(&out, 4, 0)), 0x80000000u, "-0 of the owner must stay -0");
    cr_assert_eq(ops_padding_touched(&out), 0);
    free(table.data);
    free(out.data);
}

Test(embed, every_pair_of_types_on_every_isa)
{
    const tpw_dtype types[] = {TPW_BF16, TPW_F32};
    const int32_t cols[] = {1, 160, 256, 1023, 2500};
    int checked = 0;
    for (int isa = 0; isa < OPS_ISAS; isa++) {
        tpw_exec *exec = ops_exec(isa);
        if (!exec)
            continue;
        for (int t = 0; t < 4; t++)
            for (int i = 0; i < 5; i++, checked++)
                check_pair(exec, types[t / 2], types[t % 2], cols[i]);
        tpw_host_destroy(exec);
    }
    cr_assert_geq(checked, 20);
}

/* The rows of two ranks, joined by a bitwise OR, are those of one. */
Test(embed, parts_join_by_or)
{
    tpw_exec *exec = ops_exec(0);
    ops_random r = {12};
    int32_t rows[20];
    tpw_mat table = ops_mat(TPW_BF16, 31, 37, 0), whole = ops_mat(TPW_F32, 20, 37, 0), part[2];
    ops_fill(&table, &r, 1.0f);
    for (int i = 0; i < 20; i++)
        rows[i] = (int32_t)(ops_next(&r) % 31);
    tpw_embed_args args = {rows, table, 0, whole};
    cr_assert_eq(exec->ops->embed(exec, &args, NULL), TPW_OK);
    for (int p = 0; p < 2; p++) {
        part[p] = ops_mat(TPW_F32, 20, 37, 0);
        tpw_mat local = table;
        local.rows = p ? 15 : 16;
        local.data = (uint16_t *)table.data + (p ? 16 * 37 : 0);
        args = (tpw_embed_args){rows, local, p ? 16 : 0, part[p]};
        cr_assert_eq(exec->ops->embed(exec, &args, NULL), TPW_OK);
    }
    for (int i = 0; i < 20 * 37; i++)
        ((uint32_t *)part[0].data)[i] |= ((uint32_t *)part[1].data)[i];
    cr_assert_eq(ops_diff("joined", &part[0], 0, &whole, 0, 20), 0);
    free(table.data);
    free(whole.data);
    free(part[0].data);
    free(part[1].data);
    tpw_host_destroy(exec);
}

Test(embed, other_types_are_refused_by_name)
{
    tpw_exec *exec = ops_exec(0);
    uint8_t cells[64] = {0};
    int32_t id = 0;
    tpw_error err = {0};
    tpw_embed_args args = {&id, {cells, TPW_E4M3, 1, 4, 4}, 0, {cells, TPW_F32, 1, 4, 4}};
    cr_assert_eq(exec->ops->embed(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "E4M3") != NULL, "%s", err.text);
    args.table.dtype = TPW_F32;
    args.out.dtype = TPW_F16;
    cr_assert_eq(exec->ops->embed(exec, &args, &err), TPW_ERR_UNSUPPORTED);
    tpw_host_destroy(exec);
}
