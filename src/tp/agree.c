/* Makes one outcome of many: the worst status of all ranks, and equality of digests. SPDX-License-Identifier: Apache-2.0 */
#include "tp/agree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

/* One rank's outcome on the wire. */
typedef struct outcome {
    int32_t status;
    int32_t reserved;
    char host[TPW_HOST_NAME_MAX];
    char text[TPW_ERROR_TEXT_MAX];
} outcome;

typedef struct digest_of {
    uint64_t digest;
    char host[TPW_HOST_NAME_MAX];
} digest_of;

static tpw_status records_new(const tpw_boot *boot, size_t bytes, void **out, tpw_error *err)
{
    size_t total;
    *out = tpw_mul_size((size_t)boot->size, bytes, &total) ? calloc(1, total) : NULL;
    if (*out == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "out of memory for the records of %d ranks", boot->size);
    return TPW_OK;
}

/* What this rank brings. Its text is kept: err is overwritten by whatever comes next. */
static outcome outcome_of(const tpw_boot *boot, tpw_status mine, const tpw_error *err)
{
    outcome out;
    memset(&out, 0, sizeof out);
    out.status = (int32_t)mine;
    memcpy(out.host, boot->host, strnlen(boot->host, sizeof out.host - 1));
    if (mine != TPW_OK) {
        const char *text =
            err != NULL && err->status == mine && err->text[0] != '\0' ? err->text : tpw_status_text(mine);
        memcpy(out.text, text, strnlen(text, sizeof out.text - 1));
    }
    return out;
}

tpw_status tpw_agree_status(tpw_boot *boot, tpw_status mine, tpw_error *err)
{
    outcome own = outcome_of(boot, mine, err);
    void *block = NULL;
    tpw_status st;
    TPW_TRY_GOTO(st, records_new(boot, sizeof own, &block, err), failed);
    TPW_TRY_GOTO(st, boot->ops->allgather(boot, &own, block, sizeof own, err), failed);

    outcome *all = block;
    int worst = 0;
    for (int r = 0; r < boot->size; r++) {
        all[r].host[sizeof all[r].host - 1] = '\0';
        all[r].text[sizeof all[r].text - 1] = '\0';
        if (all[r].status > 0) /* no status is positive: that rank runs something else */
            all[r].status = TPW_ERR_INTERNAL;
        if (all[r].status < all[worst].status)
            worst = r;
    }
    st = (tpw_status)all[worst].status;
    if (st != TPW_OK)
        st = tpw_fail(err, st, "rank %d (%s): %s", worst, all[worst].host, all[worst].text);
    free(block);
    return st;

failed:
    /* the peers cannot be reached; what went wrong here is then the better half of the story */
    if (mine != TPW_OK)
        tpw_error_prefix(err, "rank %d (%s) failed (%.200s), and then", boot->rank, boot->host, own.text);
    free(block);
    return st;
}

tpw_status tpw_agree_digest(tpw_boot *boot, uint64_t digest, const char *what, tpw_error *err)
{
    digest_of own;
    memset(&own, 0, sizeof own);
    own.digest = digest;
    memcpy(own.host, boot->host, strnlen(boot->host, sizeof own.host - 1));

    void *block = NULL;
    tpw_status st;
    TPW_TRY_GOTO(st, records_new(boot, sizeof own, &block, err), done);
    TPW_TRY_GOTO(st, boot->ops->allgather(boot, &own, block, sizeof own, err), done);
    digest_of *all = block;
    for (int r = 1; r < boot->size; r++) {
        if (all[r].digest == all[0].digest)
            continue;
        all[0].host[sizeof all[0].host - 1] = '\0';
        all[r].host[sizeof all[r].host - 1] = '\0';
        st = tpw_fail(err, TPW_ERR_DIVERGED,
                      "%s differs between ranks: rank %d (%s) has %016" PRIx64 ", rank 0 (%s) has %016" PRIx64
                      "; start all ranks with the same input",
                      what, r, all[r].host, all[r].digest, all[0].host, all[0].digest);
        break;
    }
done:
    free(block);
    return st;
}
