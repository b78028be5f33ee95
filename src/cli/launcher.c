/* Reads the launcher's variables: rank and job name. SPDX-License-Identifier: Apache-2.0 */
#include "cli/launcher.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first variable that is set and not empty. */
static const char *first_of(tpw_getenv_fn *getenv_fn, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *text = getenv_fn(names[i]);
        if (text && text[0] != '\0')
            return text;
    }
    return NULL;
}

int tpw_launcher_rank(tpw_getenv_fn *getenv_fn)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    const char *text = first_of(getenv_fn, names, sizeof names / sizeof names[0]);
    if (!text || !isdigit((unsigned char)text[0]))
        return 0;
    char *end;
    errno = 0;
    long rank = strtol(text, &end, 10);
    return errno != 0 || *end != '\0' || rank > INT_MAX ? 0 : (int)rank;
}

void tpw_launcher_job(tpw_getenv_fn *getenv_fn, char out[TPW_JOB_NAME_MAX])
{
    static const char *const names[] = {"SLURM_JOB_ID", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"};
    const char *text = first_of(getenv_fn, names, sizeof names / sizeof names[0]);
    snprintf(out, TPW_JOB_NAME_MAX, "%s", text ? text : "");
    for (char *at = out; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr("-_.", *at) == NULL)
            *at = '_';
}
