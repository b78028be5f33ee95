/* Agreement over MPI: one outcome on all ranks. SPDX-License-Identifier: Apache-2.0 */
#include "mpi_ranks.h"
#include "tp/agree.h"

MPI_SUITE(agree);

MPI_TEST(agree, statuses_and_digests)
{
    tpw_boot *boot = NULL;
    tpw_error err = {0};
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &boot, &err_));
    char text[320];

    EXPECT_OK(tpw_agree_status(boot, TPW_OK, &err_));
    for (int bad = 0; bad < mt_size; bad++) { /* each rank in turn fails alone */
        tpw_status mine = TPW_OK;
        memset(&err, 0, sizeof err);
        if (mt_rank == bad)
            mine = tpw_fail(&err, TPW_ERR_MISSING, "no file on %d", bad);
        (void)snprintf(text, sizeof text, "rank %d (%s): no file on %d", bad, boot->host, bad);
        expect_error(tpw_agree_status(boot, mine, &err), TPW_ERR_MISSING, &err, text);
        cr_assert_str_eq(err.text, text);
        cr_assert_eq(tpw_agree_status(boot, mine, NULL), TPW_ERR_MISSING);
    }

    /* all fail: the worst is -41 on ranks 1 and up, the lowest of them speaks */
    tpw_status mine = mt_rank == 0 && mt_size > 1 ? TPW_ERR_ARGUMENT : TPW_ERR_CHECKPOINT;
    (void)tpw_fail(&err, mine, "bad on %d", mt_rank);
    int speaker = mt_size > 1 ? 1 : 0;
    (void)snprintf(text, sizeof text, "rank %d (%s): bad on %d", speaker, boot->host, speaker);
    expect_error(tpw_agree_status(boot, mine, &err), TPW_ERR_CHECKPOINT, &err, text);

    EXPECT_OK(tpw_agree_digest(boot, 0x0123456789ABCDEFull, "plan", &err_));
    if (mt_size > 1) {
        uint64_t digest = mt_rank == mt_size - 1 ? 0xF00ull : 0xABCull;
        (void)snprintf(
            text, sizeof text,
            "plan differs between ranks: rank %d (%s) has 0000000000000f00, rank 0 (%s) has 0000000000000abc",
            mt_size - 1, boot->host, boot->host);
        expect_error(tpw_agree_digest(boot, digest, "plan", &err), TPW_ERR_DIVERGED, &err, text);
    }
    EXPECT_OK(boot->ops->barrier(boot, &err_)); /* disagreement of inputs leaves the boot in order */
    tpw_boot_destroy(boot);
}
