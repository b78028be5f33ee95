/* What ranks tell each other out of band, and the sentences that name a peer. Private to this folder.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_NOTICE_H
#define TPW_TP_NOTICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tp/boot.h"

#define TPW_NOTICE_VERSION   1
#define TPW_NOTICE_PHASE_MAX 32
#define TPW_NOTICE_TEXT_MAX  384

typedef enum tpw_notice_kind {
    TPW_NOTICE_HELLO = 1, /* I am here: opens the way between two ranks and names the host */
    TPW_NOTICE_WAITING,   /* I wait too, in exchange N: it is not me whom you miss */
    TPW_NOTICE_FAILED     /* I fail: do not wait for me */
} tpw_notice_kind;

/* The message itself: fixed size, no pointers, length and version first. Ranks run the same build on the same kind of CPU. */
typedef struct tpw_notice {
    uint32_t bytes; /* sizeof(tpw_notice) */
    uint32_t version;
    int32_t kind;
    int32_t rank;
    int32_t status; /* of a failure */
    int32_t reserved;
    int64_t step;
    int64_t exchange; /* how many exchanges the sender has begun */
    char host[TPW_HOST_NAME_MAX];
    char phase[TPW_NOTICE_PHASE_MAX];
    char text[TPW_NOTICE_TEXT_MAX];
} tpw_notice;

/* Every byte is set. `text` may be NULL. */
void tpw_notice_fill(tpw_notice *notice, tpw_notice_kind kind, const tpw_boot *boot, int64_t exchange,
                     tpw_status status, const char *text);

/* True when `bytes` received bytes are a notice that `source` may have sent. Ends its texts. */
bool tpw_notice_check(tpw_notice *notice, size_t bytes, int source);

/* ERR_PEER: "rank 3 (hostB) failed in step 12 (decode): ...". */
tpw_status tpw_notice_fail(const tpw_notice *notice, tpw_error *err);

typedef char tpw_host_name[TPW_HOST_NAME_MAX];

/* ERR_PEER: "rank 0 (hostA) waited 10.0 s in allreduce of step 12 (decode) for rank 3 (hostB): no answer; ...". `missing`
 * lists `count` ranks; none means that nobody knows whom the wait was for. hosts: by rank. */
tpw_status tpw_notice_timeout(const tpw_boot *boot, const char *call, int64_t waited_ns, const int *missing, int count,
                              const tpw_host_name *hosts, tpw_error *err);

#endif
