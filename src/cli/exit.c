/* The exit code table: which status ends the command with which code. SPDX-License-Identifier: Apache-2.0 */
#include "cli/exit.h"

#include <stddef.h>

#define EXIT_CODE_INTERNAL 70

/* 1 and everything from 126 on stay free: mpirun and shells use them for themselves. */
static const struct {
    tpw_status status;
    int code;
} codes[] = {
    {TPW_OK, 0},
    {TPW_ERR_ARGUMENT, 2},
    {TPW_ERR_LIMIT, 2},
    {TPW_ERR_UNSUPPORTED, 2},
    {TPW_ERR_CHECKPOINT, 65},
    {TPW_ERR_MISSING, 66},
    {TPW_ERR_RESOURCE, 69},
    {TPW_ERR_MEMORY, 69},
    {TPW_ERR_INTERNAL, EXIT_CODE_INTERNAL},
    {TPW_ERR_SEQUENCE, EXIT_CODE_INTERNAL},
    {TPW_ERR_BUSY, EXIT_CODE_INTERNAL},
    {TPW_ERR_DIVERGED, 71},
    {TPW_ERR_PEER, 72},
    {TPW_ERR_DEVICE, 73},
    {TPW_ERR_IO, 74},
    {TPW_ERR_STOPPED, 75},
};

static const struct {
    int code;
    const char *meaning;
} meanings[] = {
    {0, "done, all ranks agree"},
    {2, "usage: a flag, a setting, or a prompt that cannot be taken"},
    {65, "bad checkpoint, or a malformed line in a trace"},
    {66, "a file is missing"},
    {69, "a needed resource is not there (memory, launcher, binding)"},
    {EXIT_CODE_INTERNAL, "internal error"},
    {71, "ranks, cells or traces disagree"},
    {72, "another rank was lost or stalled"},
    {73, "device or communicator fault"},
    {74, "input or output failed"},
    {75, "stopped on request: safe to start again"},
};

int tpw_exit_code(tpw_status status)
{
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].status == status)
            return codes[i].code;
    return EXIT_CODE_INTERNAL;
}

const char *tpw_exit_meaning(int code)
{
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (meanings[i].code == code)
            return meanings[i].meaning;
    return NULL;
}
