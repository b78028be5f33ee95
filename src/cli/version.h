/* Versions of the command and of the libraries that it runs with. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_VERSION_H
#define TPW_CLI_VERSION_H

#include <stddef.h>
#include <stdio.h>

/* One library: what it was compiled against and what is loaded now. */
typedef struct tpw_version_entry {
    const char *name;
    char compiled[64];
    char loaded[64];
} tpw_version_entry;

#define TPW_VERSION_ENTRIES 6

/* Local; MPI need not be initialised. */
void tpw_version_collect(tpw_version_entry out[TPW_VERSION_ENTRIES]);

/* The text of --version. */
void tpw_version_print(FILE *out);

#endif
