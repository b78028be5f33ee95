/* Tests of the exit code table. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "cli/exit.h"

/* Every status has a code of the documented set, and only success is 0. */
Test(exit, every_status_has_a_code_with_a_meaning)
{
    static const int legal[] = {2, 65, 66, 69, 70, 71, 72, 73, 74, 75};
    int seen = 0;
#define CHECK(name, value, text)                                                              \
    do {                                                                                      \
        int code = tpw_exit_code(TPW_##name);                                                 \
        bool known = TPW_##name == TPW_OK ? code == 0 : false;                                \
        for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++)                           \
            known = known || (TPW_##name != TPW_OK && code == legal[i]);                      \
        cr_assert(known, "%s has code %d", #name, code);                                      \
        cr_assert_not_null(tpw_exit_meaning(code), "code %d of %s has no text", code, #name); \
        seen++;                                                                               \
    } while (0);
    TPW_STATUS_MAP(CHECK)
#undef CHECK
    cr_assert_eq(seen, 16);
}

Test(exit, codes_are_the_documented_ones)
{
    static const struct {
        tpw_status status;
        int code;
    } expected[] = {{TPW_OK, 0},
                    {TPW_ERR_ARGUMENT, 2},
                    {TPW_ERR_LIMIT, 2},
                    {TPW_ERR_UNSUPPORTED, 2},
                    {TPW_ERR_CHECKPOINT, 65},
                    {TPW_ERR_MISSING, 66},
                    {TPW_ERR_RESOURCE, 69},
                    {TPW_ERR_MEMORY, 69},
                    {TPW_ERR_INTERNAL, 70},
                    {TPW_ERR_SEQUENCE, 70},
                    {TPW_ERR_BUSY, 70},
                    {TPW_ERR_DIVERGED, 71},
                    {TPW_ERR_PEER, 72},
                    {TPW_ERR_DEVICE, 73},
                    {TPW_ERR_IO, 74},
                    {TPW_ERR_STOPPED, 75}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        cr_assert_eq(tpw_exit_code(expected[i].status), expected[i].code, "%s: %d, not %d",
                     tpw_status_name(expected[i].status), tpw_exit_code(expected[i].status), expected[i].code);
}

Test(exit, a_status_outside_the_list_is_internal)
{
    cr_assert_eq(tpw_exit_code((tpw_status)-999), 70);
    cr_assert_eq(tpw_exit_code((tpw_status)1), 70);
}

Test(exit, codes_that_launchers_use_have_no_meaning_of_ours)
{
    cr_assert_null(tpw_exit_meaning(1));
    for (int code = 126; code < 256; code++)
        cr_assert_null(tpw_exit_meaning(code), "%d", code);
}
