/* Tests of what the command finds out about its ranks. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "cli/session.h"

static tpw_rank_info rank_on(const char *host, const char *device)
{
    tpw_rank_info r = {0};
    (void)snprintf(r.host, sizeof r.host, "%s", host);
    (void)snprintf(r.device, sizeof r.device, "%s", device);
    return r;
}

Test(session, gpu_is_shared)
{
    tpw_rank_info r[4] = {rank_on("a", "0000:0f:00.0 NVIDIA H200"), rank_on("a", "0000:2d:00.0 NVIDIA H200"),
                          rank_on("b", "0000:0f:00.0 NVIDIA H200"), rank_on("b", "0000:2d:00.0 NVIDIA H200")};
    cr_assert_not(tpw_session_gpu_is_shared(r, 4), "the same bus on two hosts");
    cr_assert_not(tpw_session_gpu_is_shared(r, 1));
    r[3] = r[2];
    cr_assert(tpw_session_gpu_is_shared(r, 4));
    cr_assert_not(tpw_session_gpu_is_shared(r, 3));
    for (int i = 0; i < 4; i++)
        r[i] = rank_on("a", "host (avx2)");
    cr_assert_not(tpw_session_gpu_is_shared(r, 4), "a host is shared, but no GPU");
}
