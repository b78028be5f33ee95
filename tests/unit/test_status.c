/* Tests of the status list: every value, name and text, spelled out again by hand.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "tpworker/status.h"

static const struct {
    tpw_status status;
    int value;
    const char *name;
    const char *text;
} expected[] = {
    {TPW_OK, 0, "OK", "success"},
    {TPW_ERR_ARGUMENT, -1, "ERR_ARGUMENT", "invalid argument"},
    {TPW_ERR_LIMIT, -2, "ERR_LIMIT", "over a configured limit"},
    {TPW_ERR_UNSUPPORTED, -3, "ERR_UNSUPPORTED", "not supported here"},
    {TPW_ERR_BUSY, -4, "ERR_BUSY", "still in use"},
    {TPW_ERR_SEQUENCE, -20, "ERR_SEQUENCE", "sequence is unusable"},
    {TPW_ERR_MEMORY, -40, "ERR_MEMORY", "out of memory"},
    {TPW_ERR_CHECKPOINT, -41, "ERR_CHECKPOINT", "checkpoint is malformed or of an unsupported kind"},
    {TPW_ERR_MISSING, -42, "ERR_MISSING", "file is missing"},
    {TPW_ERR_RESOURCE, -43, "ERR_RESOURCE", "a needed resource is not there"},
    {TPW_ERR_DEVICE, -44, "ERR_DEVICE", "device or communicator failure"},
    {TPW_ERR_IO, -45, "ERR_IO", "input or output failed"},
    {TPW_ERR_PEER, -60, "ERR_PEER", "another rank failed or stalled"},
    {TPW_ERR_DIVERGED, -61, "ERR_DIVERGED", "ranks disagree"},
    {TPW_ERR_STOPPED, -62, "ERR_STOPPED", "stopped on request"},
    {TPW_ERR_INTERNAL, -63, "ERR_INTERNAL", "internal error"},
};
#define EXPECTED_COUNT (sizeof expected / sizeof expected[0])

Test(status, every_code_has_its_value_name_and_text)
{
    for (size_t i = 0; i < EXPECTED_COUNT; i++) {
        cr_expect_eq((int)expected[i].status, expected[i].value, "%s is %d", expected[i].name, expected[i].status);
        cr_expect_str_eq(tpw_status_name(expected[i].status), expected[i].name);
        cr_expect_str_eq(tpw_status_text(expected[i].status), expected[i].text);
    }
}

Test(status, the_table_above_is_complete)
{
    size_t listed = 0;
#define COUNT_ONE(name, value, text) listed++;
    TPW_STATUS_MAP(COUNT_ONE)
#undef COUNT_ONE
    cr_assert_eq(listed, EXPECTED_COUNT, "%zu codes are listed, %zu tested", listed, EXPECTED_COUNT);
}

Test(status, values_outside_the_list_are_unknown)
{
    size_t known = 0;
    for (int value = -1000; value <= 1000; value++) {
        bool in_list = false;
        for (size_t i = 0; i < EXPECTED_COUNT; i++)
            in_list |= expected[i].value == value;
        known += in_list;
        bool named = strcmp(tpw_status_name((tpw_status)value), "UNKNOWN") != 0;
        bool has_text = strcmp(tpw_status_text((tpw_status)value), "unknown status") != 0;
        cr_assert(named == in_list && has_text == in_list, "value %d", value);
    }
    cr_assert_eq(known, EXPECTED_COUNT, "two codes share a value");
}

/* Each group of values says what is lost; the exit-code table and callers rely on the ranges. */
Test(status, groups_do_not_mix)
{
    for (size_t i = 1; i < EXPECTED_COUNT; i++)
        cr_assert_lt(expected[i].value, expected[i - 1].value, "%s is out of order", expected[i].name);
    cr_assert(TPW_ERR_BUSY > -20 && TPW_ERR_SEQUENCE <= -20 && TPW_ERR_SEQUENCE > -40);
    cr_assert(TPW_ERR_MEMORY <= -40 && TPW_ERR_IO > -60 && TPW_ERR_PEER <= -60);
}
