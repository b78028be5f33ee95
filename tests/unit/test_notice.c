/* Tests of the out-of-band notices: what is refused, and how peers are named. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tp/notice.h"

static tpw_boot boot_of(int rank, const char *host, int64_t step, const char *phase)
{
    tpw_boot boot = {.rank = rank, .size = 8, .timeout_ms = 1000, .step = step, .phase = phase};
    (void)snprintf(boot.host, sizeof boot.host, "%s", host);
    return boot;
}

static void expect_text(const tpw_error *err, const char *text)
{
    cr_assert_str_eq(err->text, text, "\"%s\" instead of \"%s\"", err->text, text);
}

Test(notice, round_trip_and_malformed)
{
    tpw_boot boot = boot_of(3, "hostB", 12, "decode");
    tpw_notice good, n;
    memset(&good, 0xAA, sizeof good);
    tpw_notice_fill(&good, TPW_NOTICE_FAILED, &boot, 77, TPW_ERR_MEMORY, "no room");
    cr_assert(tpw_notice_check(&good, sizeof good, 3));
    cr_assert_eq(good.exchange, 77);
    cr_assert_eq(good.reserved, 0);
    for (size_t i = strlen("no room"); i < sizeof good.text; i++)
        cr_assert_eq(good.text[i], 0, "byte %zu is left from before", i);

    cr_assert(!tpw_notice_check(&good, sizeof good - 1, 3));
    cr_assert(!tpw_notice_check(&good, 0, 3));
    cr_assert(!tpw_notice_check(&good, sizeof good, 2), "another sender");
    n = good, n.bytes -= 8;
    cr_assert(!tpw_notice_check(&n, sizeof n, 3));
    n = good, n.version++;
    cr_assert(!tpw_notice_check(&n, sizeof n, 3));
    n = good, n.kind = 0;
    cr_assert(!tpw_notice_check(&n, sizeof n, 3));
    n = good, n.kind = 4;
    cr_assert(!tpw_notice_check(&n, sizeof n, 3));

    n = good; /* texts without an end */
    memset(n.host, 'h', sizeof n.host);
    memset(n.phase, 'p', sizeof n.phase);
    memset(n.text, 't', sizeof n.text);
    cr_assert(tpw_notice_check(&n, sizeof n, 3));
    tpw_error err;
    cr_assert_eq(tpw_notice_fail(&n, &err), TPW_ERR_PEER);
    cr_assert_lt(strlen(err.text), sizeof err.text);
}

Test(notice, long_texts_are_cut)
{
    tpw_boot boot = boot_of(0, "h", -1, "a phase whose name is much longer than thirty-two bytes");
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    tpw_notice n;
    tpw_notice_fill(&n, TPW_NOTICE_FAILED, &boot, 0, TPW_ERR_IO, text);
    cr_assert_eq(strlen(n.text), sizeof n.text - 1);
    cr_assert_eq(strlen(n.phase), sizeof n.phase - 1);
    tpw_notice_fill(&n, TPW_NOTICE_HELLO, &boot, 0, TPW_OK, NULL);
    cr_assert_eq(strlen(n.text), 0);
}

Test(notice, failures_are_worded)
{
    tpw_error err;
    tpw_notice n;
    tpw_boot boot = boot_of(3, "hostB", 12, "decode");
    tpw_notice_fill(&n, TPW_NOTICE_FAILED, &boot, 0, TPW_ERR_MEMORY, "no room for pages");
    cr_assert_eq(tpw_notice_fail(&n, &err), TPW_ERR_PEER);
    cr_assert_eq(err.status, TPW_ERR_PEER);
    expect_text(&err, "rank 3 (hostB) failed in step 12 (decode): no room for pages");
    boot = boot_of(1, "a", -1, "load");
    tpw_notice_fill(&n, TPW_NOTICE_FAILED, &boot, 0, TPW_ERR_MEMORY, "");
    (void)tpw_notice_fail(&n, &err);
    expect_text(&err, "rank 1 (a) failed (load): out of memory");
    boot = boot_of(1, "a", 0, NULL);
    tpw_notice_fill(&n, TPW_NOTICE_FAILED, &boot, 0, TPW_ERR_MEMORY, "x");
    (void)tpw_notice_fail(&n, &err);
    expect_text(&err, "rank 1 (a) failed in step 0: x");
    boot = boot_of(1, "a", -1, "");
    tpw_notice_fill(&n, TPW_NOTICE_FAILED, &boot, 0, TPW_ERR_MEMORY, "x");
    (void)tpw_notice_fail(&n, &err);
    expect_text(&err, "rank 1 (a) failed: x");
}

Test(notice, timeouts_are_worded)
{
    static const tpw_host_name hosts[8] = {"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"};
    const int missing[7] = {3, 1, 2, 4, 5, 6, 7};
    tpw_boot boot = boot_of(0, "hostA", 12, "decode");
    tpw_error err;
    cr_assert_eq(tpw_notice_timeout(&boot, "allreduce", 10040000000, missing, 1, hosts, &err), TPW_ERR_PEER);
    const char *start = "rank 0 (hostA) waited 10.0 s in allreduce of step 12 (decode) for rank 3 (h3): no answer; ";
    cr_assert_eq(strncmp(err.text, start, strlen(start)), 0, "%s", err.text);
    (void)tpw_notice_timeout(&boot, "barrier", 1, missing, 7, hosts, &err);
    cr_assert(strstr(err.text, "for rank 3 (h3), rank 1 (h1), rank 2 (h2), rank 4 (h4) and 3 more: no answer"), "%s",
              err.text);
    (void)tpw_notice_timeout(&boot, "barrier", 1, NULL, 0, NULL, &err);
    cr_assert(strstr(err.text, "for a peer: no answer"), "%s", err.text);
}
