/* Who shares a host, over MPI: against MPI's own split by shared memory, and with made-up hosts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mpi_ranks.h"
#include "tp/node.h"

MPI_SUITE(node);

MPI_TEST(node, by_host)
{
    tpw_boot *boot = NULL;
    tpw_node node = {-1, -1, -1};
    EXPECT_OK(tpw_boot_mpi_create(MPI_COMM_WORLD, 20000, &boot, &err_));
    EXPECT_OK(tpw_node_find(boot, &node, &err_));
    MPI_Comm shared;
    int rank, size, leader, hosts;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, mt_rank, MPI_INFO_NULL, &shared);
    MPI_Comm_rank(shared, &rank);
    MPI_Comm_size(shared, &size);
    leader = rank == 0;
    MPI_Allreduce(&leader, &hosts, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_free(&shared);
    cr_assert(node.rank == rank && node.size == size && node.hosts == hosts,
              "%d of %d on %d hosts, MPI says %d of %d on %d", node.rank, node.size, node.hosts, rank, size, hosts);

    /* ranks 0, 2 and 1, 3 on two hosts */
    (void)snprintf(boot->host, sizeof boot->host, "host%d", mt_rank % 2);
    EXPECT_OK(tpw_node_find(boot, &node, &err_));
    int even = (mt_size + 1) / 2, odd = mt_size / 2;
    cr_assert_eq(node.rank, mt_rank / 2);
    cr_assert_eq(node.size, mt_rank % 2 == 0 ? even : odd);
    cr_assert_eq(node.hosts, mt_size > 1 ? 2 : 1);
    tpw_boot_destroy(boot);
}
