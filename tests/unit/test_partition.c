/* Which heads, channels and rows belong to a rank: covered exactly once, refusals by name. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "model/partition.h"

static const char *const SHAPES[] = {"qwen3.5-0.8b", "qwen3.5-4b", "qwen3.5-9b", "qwen3.5-27b"};

/* Every element of an axis is held by exactly one rank. */
static void covered(const tpw_span *spans, int size, int32_t total)
{
    int32_t next = 0;

    for (int r = 0; r < size; r++) {
        cr_assert(spans[r].count == 0 || spans[r].begin == next);
        next += spans[r].count;
    }
    cr_assert_eq(next, total);
}

Test(partition, every_axis_once)
{
    for (size_t s = 0; s < 4; s++)
        for (int size = 1; size <= 8; size *= 2) {
            tpw_span heads[8], keys[8], values[8], inter[8], vocab[8];
            int owners[64] = {0};
            tpw_config c;
            tpw_error err = {0};

            cr_assert_eq(tpw_config_dummy(SHAPES[s], 4, 1003, &c, &err), TPW_OK, "%s", err.text);
            for (int r = 0; r < size; r++) {
                tpw_partition p;

                cr_assert_eq(tpw_partition_make(&c, r, size, &p, &err), TPW_OK, "%s", err.text);
                heads[r] = p.heads;
                keys[r] = p.k_heads;
                values[r] = p.v_heads;
                inter[r] = p.inter;
                vocab[r] = p.vocab;
                for (int32_t h = 0; h < p.kv_heads.count; h++)
                    owners[p.kv_heads.begin + h] += p.kv_owner;
                cr_assert_eq(p.v_heads.begin * c.linear_k_heads, p.k_heads.begin * c.linear_v_heads,
                             "value heads sit with their key head");
                cr_assert_leq(p.kv_heads.begin, p.heads.begin / (c.heads / c.kv_heads));
                cr_assert_gt(p.kv_heads.begin + p.kv_heads.count,
                             (p.heads.begin + p.heads.count - 1) / (c.heads / c.kv_heads));
            }
            covered(heads, size, c.heads);
            covered(keys, size, c.linear_k_heads);
            covered(values, size, c.linear_v_heads);
            covered(inter, size, c.intermediate);
            covered(vocab, size, c.vocab);
            for (int32_t h = 0; h < c.kv_heads; h++)
                cr_assert_eq(owners[h], 1, "kv head %d has %d owners", h, owners[h]);
        }
}

Test(partition, qkv_spans_cover_channels_once)
{
    tpw_config c;
    tpw_error err = {0};
    unsigned char *seen;

    cr_assert_eq(tpw_config_dummy("qwen3.5-27b", 0, 0, &c, &err), TPW_OK);
    seen = calloc(10240, 1);
    for (int r = 0; r < 4; r++) {
        tpw_partition p;
        tpw_span spans[3];

        cr_assert_eq(tpw_partition_make(&c, r, 4, &p, &err), TPW_OK);
        tpw_qkv_spans(&c, &p, spans);
        cr_assert(spans[0].count == 512 && spans[1].count == 512 && spans[2].count == 1536);
        cr_assert_eq(tpw_conv_channels(&c, &p), 2560);
        for (int i = 0; i < 3; i++)
            for (int32_t k = 0; k < spans[i].count; k++)
                seen[spans[i].begin + k]++;
    }
    for (int i = 0; i < 10240; i++)
        cr_assert_eq(seen[i], 1);
    free(seen);
}

Test(partition, refusals_name_the_dimension)
{
    tpw_config c;
    tpw_partition p;
    tpw_error err = {0};
    const int bad_sizes[] = {0, 3, 5, 6, 7, 16, -1};

    cr_assert_eq(tpw_config_dummy("qwen3.5-27b", 4, 1003, &c, &err), TPW_OK);
    for (size_t i = 0; i < sizeof bad_sizes / sizeof bad_sizes[0]; i++)
        cr_assert_eq(tpw_partition_make(&c, 0, bad_sizes[i], &p, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_partition_make(&c, 2, 2, &p, &err), TPW_ERR_ARGUMENT);
    c.heads = 20;
    cr_assert_eq(tpw_partition_make(&c, 0, 8, &p, &err), TPW_ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "num_attention_heads = 20") != NULL, "%s", err.text);
    cr_assert_eq(tpw_partition_make(&c, 0, 4, &p, &err), TPW_OK);
    c.intermediate = 17404; /* divisible by 4, not by 8 */
    cr_assert_eq(tpw_partition_make(&c, 0, 2, &p, &err), TPW_ERR_UNSUPPORTED);
    cr_assert(strstr(err.text, "intermediate_size = 17404") != NULL, "%s", err.text);
    cr_assert_eq(tpw_partition_make(&c, 0, 1, &p, &err), TPW_OK, "one rank needs no slices");
    c.kv_heads = 5;
    cr_assert_eq(tpw_partition_make(&c, 0, 2, &p, &err), TPW_ERR_UNSUPPORTED);
}
