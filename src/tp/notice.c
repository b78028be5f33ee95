/* Fills, checks and words the notices that ranks send each other out of band. SPDX-License-Identifier: Apache-2.0 */
#include "tp/notice.h"

#include <stdio.h>
#include <string.h>

#define NAMED_MAX 4 /* more missing ranks than this are only counted */

static void copy_text(char *out, size_t room, const char *text)
{
    size_t length = text == NULL ? 0 : strnlen(text, room - 1);
    if (length > 0)
        memcpy(out, text, length);
    memset(out + length, 0, room - length);
}

/* " of step 12 (decode)", " (load)", or nothing. */
static void place_text(int64_t step, const char *phase, char *out, size_t room)
{
    bool named = phase != NULL && phase[0] != '\0';
    if (step >= 0)
        (void)snprintf(out, room, " of step %lld%s%s%s", (long long)step, named ? " (" : "", named ? phase : "",
                       named ? ")" : "");
    else if (named)
        (void)snprintf(out, room, " (%s)", phase);
    else
        out[0] = '\0';
}

void tpw_notice_fill(tpw_notice *notice, tpw_notice_kind kind, const tpw_boot *boot, int64_t exchange,
                     tpw_status status, const char *text)
{
    memset(notice, 0, sizeof *notice);
    notice->bytes = (uint32_t)sizeof *notice;
    notice->version = TPW_NOTICE_VERSION;
    notice->kind = (int32_t)kind;
    notice->rank = boot->rank;
    notice->status = (int32_t)status;
    notice->step = boot->step;
    notice->exchange = exchange;
    copy_text(notice->host, sizeof notice->host, boot->host);
    copy_text(notice->phase, sizeof notice->phase, boot->phase);
    copy_text(notice->text, sizeof notice->text, text);
}

bool tpw_notice_check(tpw_notice *notice, size_t bytes, int source)
{
    if (bytes != sizeof *notice || notice->bytes != sizeof *notice || notice->version != TPW_NOTICE_VERSION)
        return false;
    if (notice->kind < TPW_NOTICE_HELLO || notice->kind > TPW_NOTICE_FAILED || notice->rank != source)
        return false;
    notice->host[sizeof notice->host - 1] = '\0';
    notice->phase[sizeof notice->phase - 1] = '\0';
    notice->text[sizeof notice->text - 1] = '\0';
    return true;
}

tpw_status tpw_notice_fail(const tpw_notice *notice, tpw_error *err)
{
    char place[96];
    place_text(notice->step, notice->phase, place, sizeof place);
    const char *text = notice->text[0] != '\0' ? notice->text : tpw_status_text((tpw_status)notice->status);
    /* " of step 12" would read as a part of the failure here; "in step 12" is when it happened */
    const char *when = strncmp(place, " of ", 4) == 0 ? place + 4 : place;
    /* a divergence is the job's finding, whoever leaves first: every rank ends with it */
    tpw_status status = notice->status == TPW_ERR_DIVERGED ? TPW_ERR_DIVERGED : TPW_ERR_PEER;
    return tpw_fail(err, status, "rank %d (%s) failed%s%s: %s", notice->rank, notice->host, when != place ? " in " : "",
                    when, text);
}

tpw_status tpw_notice_timeout(const tpw_boot *boot, const char *call, int64_t waited_ns, const int *missing, int count,
                              const tpw_host_name *hosts, tpw_error *err)
{
    char place[96], peers[NAMED_MAX * (TPW_HOST_NAME_MAX + 24) + 32];
    size_t used = 0;
    place_text(boot->step, boot->phase, place, sizeof place);
    (void)snprintf(peers, sizeof peers, "a peer");
    for (int i = 0; i < count && i < NAMED_MAX && used < sizeof peers; i++)
        used += (size_t)snprintf(peers + used, sizeof peers - used, "%srank %d (%s)", i == 0 ? "" : ", ", missing[i],
                                 hosts[missing[i]]);
    if (count > NAMED_MAX && used < sizeof peers)
        (void)snprintf(peers + used, sizeof peers - used, " and %d more", count - NAMED_MAX);
    return tpw_fail(err, TPW_ERR_PEER,
                    "rank %d (%s) waited %.1f s in %s%s for %s: no answer; see what it last reported, or raise the "
                    "timeout if it is only slow",
                    boot->rank, boot->host, (double)waited_ns * 1e-9, call, place, peers);
}
