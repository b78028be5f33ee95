/* Measures the columns of a table and writes it line by line. SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

/* Row -1 holds the titles. */
static void get_row(const tpw_table *table, const void *data, int index, tpw_table_row row)
{
    if (index >= 0) {
        table->fill(data, index, row);
        return;
    }
    for (int c = 0; c < table->columns; c++)
        snprintf(row[c], TPW_TABLE_CELL, "%s", table->titles[c]);
}

static void print_row(tpw_sink *sink, const tpw_table *table, tpw_table_row row, const int *widths)
{
    char line[TPW_TABLE_COLUMNS_MAX * (TPW_TABLE_CELL + 2) + 2];
    size_t at = 0;
    for (int c = 0; c < table->columns; c++)
        at += (size_t)snprintf(line + at, sizeof line - at, table->right[c] ? "%s%*s" : "%s%-*s", c > 0 ? "  " : "",
                               widths[c], row[c]);
    while (at > 0 && line[at - 1] == ' ')
        at--;
    line[at++] = '\n';
    tpw_sink_push(sink, line, at);
}

void tpw_table_print(tpw_sink *sink, const tpw_table *table, const void *data, int rows)
{
    int widths[TPW_TABLE_COLUMNS_MAX] = {0};
    tpw_table_row row;
    for (int r = -1; r < rows; r++) {
        get_row(table, data, r, row);
        for (int c = 0; c < table->columns; c++) {
            int width = (int)strlen(row[c]);
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (int r = -1; r < rows; r++) {
        get_row(table, data, r, row);
        print_row(sink, table, row, widths);
    }
}
