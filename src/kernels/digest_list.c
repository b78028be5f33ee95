/* A list of digests that are wanted together. SPDX-License-Identifier: Apache-2.0 */
#include "kernels/digest_list.h"

#include <stdlib.h>

tpw_status tpw_digest_list_add(tpw_digest_list *list, const tpw_digest_args *job, tpw_error *err)
{
    if (job->x.rows == 0 || job->x.cols == 0)
        return TPW_OK;
    if (list->count == list->room) {
        int32_t room = list->room == 0 ? 256 : 2 * list->room;
        tpw_digest_args *more = list->room > INT32_MAX / 2 ? NULL : realloc(list->jobs, (size_t)room * sizeof *more);

        if (more == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a list of %d digests", list->count);
        list->jobs = more;
        list->room = room;
    }
    list->jobs[list->count++] = *job;
    return TPW_OK;
}

tpw_status tpw_digest_list_run(tpw_digest_list *list, const tpw_exec *exec, tpw_error *err)
{
    const tpw_digest_list_args args = {.jobs = list->jobs, .count = list->count};

    list->count = 0;
    return args.count == 0 ? TPW_OK : exec->ops->digest_list(exec, &args, err);
}

void tpw_digest_list_fini(tpw_digest_list *list)
{
    free(list->jobs);
    *list = (tpw_digest_list){0};
}
