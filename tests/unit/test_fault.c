/* Tests of the text of --fault. What the faults do is tested end to end. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cli/fault.h"

Test(fault, good_ones_are_read)
{
    tpw_fault f;
    tpw_error err = {0};
    cr_assert_eq(tpw_fault_parse("conv@step=12,rank=1,layer=3", &f, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(f.kind, TPW_FAULT_CONV);
    cr_assert_eq(f.step, 12);
    cr_assert_eq(f.rank, 1);
    cr_assert_eq(f.layer, 3);
    cr_assert_eq(f.slot, 0);
    cr_assert_eq(f.bit, TPW_FAULT_BIT_TOP);
    cr_assert_eq(tpw_fault_parse("partial@bit=0,slot=7,layer=0,rank=0,step=0", &f, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(f.kind, TPW_FAULT_PARTIAL);
    cr_assert_eq(f.slot, 7);
    cr_assert_eq(f.bit, 0);
    static const char *const names[] = {"conv", "recurrent", "kv", "hidden", "partial"};
    for (int i = 0; i < 5; i++) {
        char spec[64];
        snprintf(spec, sizeof spec, "%s@step=1,rank=2,layer=3,bit=31", names[i]);
        cr_assert_eq(tpw_fault_parse(spec, &f, &err), TPW_OK, "%s", err.text);
        cr_assert_eq((int)f.kind, i);
    }
}

Test(fault, bad_ones_are_refused_with_the_form)
{
    static const char *const bad[] = {
        "",
        "conv",
        "conv@",
        "@step=1,rank=0,layer=0",
        "con@step=1,rank=0,layer=0",
        "convolution@step=1,rank=0,layer=0",
        "conv@step=1,rank=0",
        "conv@step=1,rank=0,layer=0,",
        "conv@step=1,,rank=0,layer=0",
        "conv@step=1,rank=0,layer=0,layer=1",
        "conv@step=-1,rank=0,layer=0",
        "conv@step=+1,rank=0,layer=0",
        "conv@step= 1,rank=0,layer=0",
        "conv@step=1x,rank=0,layer=0",
        "conv@step=99999999999999999999,rank=0,layer=0",
        "conv@step=2147483648,rank=0,layer=0",
        "conv@step=1,rank=0,layer=0,slot=0",
        "conv@step=1,rank=0,layer=0,bit=32",
        "conv@step=1,rank=0,layer=0,page=3",
        "conv@steps=1,rank=0,layer=0",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tpw_fault f;
        tpw_error err = {0};
        cr_assert_eq(tpw_fault_parse(bad[i], &f, &err), TPW_ERR_ARGUMENT, "%s", bad[i]);
        cr_assert_not_null(strstr(err.text, "KIND@step=S,rank=R,layer=L"), "%s", err.text);
    }
}
