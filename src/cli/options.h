/* From argv, environment and configuration file to one checked set of values. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_OPTIONS_H
#define TPW_CLI_OPTIONS_H

#include <stdio.h>

#include "base/error.h"
#include "cli/launcher.h"
#include "cli/settings.h"

typedef enum tpw_action {
    TPW_ACTION_RUN,
    TPW_ACTION_BENCH,
    TPW_ACTION_PROBE,
    TPW_ACTION_VERIFY,
    TPW_ACTION_DOCTOR,
    TPW_ACTION_DIFF,
    TPW_ACTION_PLAN,
    TPW_ACTION_PRINT_CONFIG,
    TPW_ACTION_VERSION,
    TPW_ACTION_HELP /* what comes later wins when several are asked for */
} tpw_action;

#define TPW_WORDS_MAX 2

typedef struct tpw_command {
    tpw_action action;
    const char *words[TPW_WORDS_MAX]; /* what stands behind the command and is no flag; borrowed from argv */
    int word_count;
    tpw_values values; /* only defaults with HELP and VERSION, which must work with a broken environment, too */
} tpw_command;

/* Flags > environment > --config FILE > defaults. Never prints, never exits. ERR_ARGUMENT names the flag, variable or key;
 * ERR_UNSUPPORTED for what this version does not have; ERR_MISSING, ERR_IO about the configuration file. Give back with
 * tpw_command_fini, also after an error. */
tpw_status tpw_command_parse(int argc, char **argv, tpw_getenv_fn *getenv_fn, tpw_command *out,
                             tpw_error *err) TPW_MUST_CHECK;
void tpw_command_fini(tpw_command *command);

/* The text of --help: every setting with its unit and default, the other ways to set it, and the exit codes. */
void tpw_command_help(FILE *out);

#endif
