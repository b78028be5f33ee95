/* Checks the options of a worker and freezes a copy. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_OPTIONS_H
#define TPW_WORKER_OPTIONS_H

#include "tpworker/worker.h"

#include "base/error.h"

/* A deep copy of valid options. Strings are owned. */
typedef struct tpw_settings {
    tpw_options options;
    char *model;
    char *dummy;
    char *isa;
} tpw_settings;

/* Local. ERR_ARGUMENT names the field and its range. Free with tpw_settings_fini, also after an error. */
tpw_status tpw_settings_init(tpw_settings *out, const tpw_options *options, tpw_error *err) TPW_MUST_CHECK;
void tpw_settings_fini(tpw_settings *settings);

/* What must be equal on all ranks, one by one: the name of item i and its value as a number (paths and the ISA may differ between
 * hosts and are left out; a name is represented by its digest). Pure. */
#define TPW_SETTINGS_COUNT 22
const char *tpw_settings_list(const tpw_settings *settings, int i, int64_t *value);

#endif
