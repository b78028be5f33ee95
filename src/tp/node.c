/* Finds which ranks share this host, by host name. SPDX-License-Identifier: Apache-2.0 */
#include "tp/node.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

/* One host name on the wire: every byte after the end is zero. */
typedef struct host_record {
    char name[TPW_HOST_NAME_MAX];
} host_record;

static bool same_host(const host_record *a, const host_record *b)
{
    return memcmp(a->name, b->name, sizeof a->name) == 0;
}

tpw_status tpw_node_find(tpw_boot *boot, tpw_node *out, tpw_error *err)
{
    host_record own;
    memset(&own, 0, sizeof own);
    memcpy(own.name, boot->host, strnlen(boot->host, sizeof own.name - 1));

    size_t bytes;
    host_record *all = tpw_mul_size((size_t)boot->size, sizeof own, &bytes) ? malloc(bytes) : NULL;
    if (all == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for the host names of %d ranks", boot->size);
    tpw_status st;
    TPW_TRY_GOTO(st, boot->ops->allgather(boot, &own, all, sizeof own, err), done);

    tpw_node node = {0, 0, 0};
    for (int r = 0; r < boot->size; r++) {
        bool first = true; /* of its host */
        for (int before = 0; before < r && first; before++)
            first = !same_host(&all[before], &all[r]);
        if (first)
            node.hosts++;
        if (same_host(&all[r], &own)) {
            if (r < boot->rank)
                node.rank++;
            node.size++;
        }
    }
    *out = node;
done:
    free(all);
    return st;
}
