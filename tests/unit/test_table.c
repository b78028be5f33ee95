/* Tests of the table for people, byte by byte. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cli/table.h"

static void fill(const void *data, int index, tpw_table_row row)
{
    static const char *const names[] = {"a", "longer than its title", ""};
    snprintf(row[0], TPW_TABLE_CELL, "%d", ((const int *)data)[index]);
    snprintf(row[1], TPW_TABLE_CELL, "%s", names[index]);
    snprintf(row[2], TPW_TABLE_CELL, "%s", index == 0 ? "x" : "");
}

static const tpw_table table = {.columns = 3, .titles = {"n", "name", "last"}, .right = {[0] = true}, .fill = fill};

static void expect_text(const int *numbers, int rows, const char *text)
{
    tpw_sink sink;
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_table_print(&sink, &table, numbers, rows);
    cr_assert_eq(sink.bytes, strlen(text));
    cr_assert_eq(memcmp(sink.data + sink.start, text, sink.bytes), 0, "%.*s", (int)sink.bytes, sink.data + sink.start);
    tpw_sink_fini(&sink);
}

/* Numbers stand right, text left, and no line ends in spaces. */
Test(table, columns_are_as_wide_as_their_widest_cell)
{
    const int numbers[] = {7, 1234, -5};
    expect_text(numbers, 3,
                "   n  name                   last\n"
                "   7  a                      x\n"
                "1234  longer than its title\n"
                "  -5\n");
}

Test(table, no_rows_leave_the_titles)
{
    expect_text(NULL, 0, "n  name  last\n");
}
