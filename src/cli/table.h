/* A table for people: titles over rows of text, each column as wide as its widest cell. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_TABLE_H
#define TPW_CLI_TABLE_H

#include "cli/sink.h"

#define TPW_TABLE_COLUMNS_MAX 15
#define TPW_TABLE_CELL        136

typedef char tpw_table_row[TPW_TABLE_COLUMNS_MAX][TPW_TABLE_CELL];

typedef struct tpw_table {
    int columns;
    const char *titles[TPW_TABLE_COLUMNS_MAX];
    bool right[TPW_TABLE_COLUMNS_MAX];                            /* aligned so: numbers */
    void (*fill)(const void *data, int index, tpw_table_row row); /* every cell of one row; asked twice for each */
} tpw_table;

void tpw_table_print(tpw_sink *sink, const tpw_table *table, const void *data, int rows);

#endif
