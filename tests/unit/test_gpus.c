/* Tests of the agreement on GPUs over ranks that are threads, and of memory binding on this machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "local_ranks.h"
#include "place_ranks.h"
#include "tp/gpus.h"

/* What the ranks of one test see and get. */
typedef struct job {
    tpw_topology *topology;
    tpw_place_rank sees[RANKS_MAX];
    int counts[RANKS_MAX]; /* of GPUs, as told to tpw_gpus_agree */
    int ranks_per_gpu;
    tpw_seat seats[RANKS_MAX];
} job;

static tpw_status take_seat(local_rank *self)
{
    job *all = self->data;
    tpw_place_rank *own = &all->sees[self->rank];
    (void)snprintf(self->boot->host, sizeof self->boot->host, "%s", own->host);
    return tpw_gpus_agree(self->boot, all->topology, own->gpus, all->counts[self->rank], all->ranks_per_gpu,
                          &all->seats[self->rank], &self->err);
}

static void run_job(job *all, int size, local_rank *ranks)
{
    for (int r = 0; r < size; r++)
        all->counts[r] = all->counts[r] != 0 ? all->counts[r] : all->sees[r].gpu_count;
    run_local(size, 5000, take_seat, all, ranks);
}

/* The same status and text on all ranks, within 3 s; returns the text. */
static const char *expect_one_verdict(const local_rank *ranks, int size, tpw_status status)
{
    for (int r = 0; r < size; r++) {
        cr_assert_eq(ranks[r].status, status, "rank %d: %s: %s", r, tpw_status_name(ranks[r].status),
                     ranks[r].err.text);
        cr_assert_str_eq(ranks[r].err.text, ranks[0].err.text, "rank %d: %s", r, ranks[r].err.text);
        cr_assert_lt(ranks[r].seconds, 3.0);
    }
    return ranks[0].err.text;
}

#define FOUR "0000:0f:00.0 0000:2d:00.0 0000:89:00.0 0000:a8:00.0"

static job all = {.ranks_per_gpu = 1}; /* each test is a process of its own */
static local_rank ranks[LOCAL_RANKS_MAX];

Test(gpus, seats_that_are_shared)
{
    all.topology = load_machine("eight-gpus.xml");
    for (int r = 0; r < 4; r++)
        show_gpus(&all.sees[r], "hostA", "0000:0f:00.0 0000:89:00.0");
    run_job(&all, 4, ranks);
    cr_assert(strstr(expect_one_verdict(ranks, 4, TPW_ERR_RESOURCE), "ranks_per_gpu"));
    all.ranks_per_gpu = 2;
    run_job(&all, 4, ranks);
    expect_all_ok(ranks, 4);
    const int32_t choices[] = {0, 1, 0, 1};
    for (int r = 0; r < 4; r++)
        cr_assert(all.seats[r].choice == choices[r] && all.seats[r].sharers == 2, "rank %d", r);
    tpw_topology_destroy(all.topology);
}

Test(gpus, seats)
{
    all.topology = load_machine("eight-gpus.xml");
    for (int r = 0; r < 4; r++)
        show_gpus(&all.sees[r], "hostA", r % 2 == 0 ? FOUR : "0000:a8:00.0 0000:89:00.0 0000:2d:00.0 0000:0f:00.0");
    run_job(&all, 4, ranks);
    expect_all_ok(ranks, 4);
    const char *const cpus[] = {"0-3", "4-7", "8-11", "12-15"};
    const int32_t choices[] = {0, 2, 2, 0}, index[] = {0, 2, 2, 0};
    for (int r = 0; r < 4; r++) {
        cr_assert_str_eq(all.seats[r].cpus, cpus[r], "rank %d: %s", r, all.seats[r].cpus);
        cr_assert_eq(all.seats[r].choice, choices[r]);
        cr_assert_eq(all.seats[r].gpu.index, index[r]);
        cr_assert_eq(all.seats[r].numa_node, r / 2);
        cr_assert(all.seats[r].shares == 2 && all.seats[r].share == r % 2);
        cr_assert_str_empty(all.seats[r].warnings);
    }
    tpw_topology_destroy(all.topology);
}

Test(gpus, two_hosts)
{
    all.topology = load_machine("eight-gpus.xml");
    for (int r = 0; r < 4; r++) {
        show_gpus(&all.sees[r], r < 2 ? "hostA" : "hostB", FOUR);
        for (int g = 0; r >= 2 && g < 4; g++)
            all.sees[r].gpus[g].uuid[4] = 'b';
    }
    run_job(&all, 4, ranks);
    expect_all_ok(ranks, 4);
    for (int r = 0; r < 4; r++)
        cr_assert_eq(all.seats[r].choice, r % 2);
    tpw_topology_destroy(all.topology);
}

Test(gpus, one_refusal_for_all)
{
    all.topology = load_machine("eight-gpus.xml");
    for (int r = 0; r < 4; r++)
        show_gpus(&all.sees[r], r < 1 ? "hostA" : "hostB", r < 1 ? "0000:0f:00.0" : "0000:2d:00.0 0000:89:00.0");
    run_job(&all, 4, ranks);
    const char *text = expect_one_verdict(ranks, 4, TPW_ERR_RESOURCE);
    const char *start = "ranks 1-3 on hostB see only 2 GPUs between them (0000:2d:00.0 GPU-";
    cr_assert_eq(strncmp(text, start, strlen(start)), 0, "%s", text);

    all.sees[2].gpu_count = 0;
    memset(all.counts, 0, sizeof all.counts);
    run_job(&all, 3, ranks);
    text = expect_one_verdict(ranks, 3, TPW_ERR_RESOURCE);
    cr_assert_eq(strncmp(text, "rank 2 of 3 (first on hostB) sees no GPU", 40), 0, "%s", text);
    tpw_topology_destroy(all.topology);
}

Test(gpus, one_rank_cannot_tell)
{
    all.topology = load_machine("eight-gpus.xml");
    for (int r = 0; r < 3; r++)
        show_gpus(&all.sees[r], "hostA", FOUR);
    all.counts[1] = TPW_PLACE_GPUS_MAX + 1;
    run_job(&all, 3, ranks);
    const char *text = expect_one_verdict(ranks, 3, TPW_ERR_LIMIT);
    cr_assert_str_eq(text,
                     "rank 1 (hostA): 33 GPUs are visible, of which 32 can be compared: set CUDA_VISIBLE_DEVICES");
    all.counts[1] = -1;
    run_job(&all, 3, ranks);
    text = expect_one_verdict(ranks, 3, TPW_ERR_ARGUMENT);
    cr_assert_eq(strncmp(text, "rank 1 (hostA): ", 16), 0, "%s", text);
    tpw_topology_destroy(all.topology);
}

/* Texts without an end would be read past it. */
Test(gpus, torn_texts)
{
    all.topology = load_machine("eight-gpus.xml");
    for (int r = 0; r < 2; r++) {
        show_gpus(&all.sees[r], "hostA", FOUR);
        for (int g = 0; g < 4; g++) {
            tpw_gpu *gpu = &all.sees[r].gpus[g];
            memset(gpu->name, 'n', sizeof gpu->name);
            memset(gpu->uuid, '0' + g, sizeof gpu->uuid);
            memset(gpu->bus, 'a' + g, sizeof gpu->bus);
        }
    }
    run_job(&all, 2, ranks);
    expect_all_ok(ranks, 2);
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(strlen(all.seats[r].gpu.uuid), TPW_GPU_UUID_MAX - 1);
        cr_assert_eq(all.seats[r].choice, r);
        cr_assert(strstr(all.seats[r].warnings, "hwloc shows no PCI device"), "%s", all.seats[r].warnings);
    }
    tpw_topology_destroy(all.topology);
}

static tpw_status come_late(local_rank *self)
{
    TPW_TRY(self->boot->ops->barrier(self->boot, &self->err));
    if (self->rank == 1) {
        sleep_ms(600);
        return TPW_OK;
    }
    return take_seat(self);
}

Test(gpus, waits_no_longer_than_the_boot)
{
    all.topology = load_machine("eight-gpus.xml");
    for (int r = 0; r < 2; r++) {
        show_gpus(&all.sees[r], "hostA", FOUR);
        all.counts[r] = 4;
    }
    run_local(2, 200, come_late, &all, ranks);
    cr_assert_eq(ranks[0].status, TPW_ERR_PEER, "%s", ranks[0].err.text);
    cr_assert(strstr(ranks[0].err.text, "rank 1"), "%s", ranks[0].err.text);
    cr_assert(ranks[0].seconds < 0.6, "%f s", ranks[0].seconds);
    tpw_topology_destroy(all.topology);
}

Test(gpus, alone)
{
    tpw_boot *boot = NULL;
    tpw_place_rank sees;
    tpw_seat seat;
    tpw_error err = {0};
    tpw_topology *topology = load_machine("four-nodes-gpus.xml");
    cr_assert_eq(tpw_boot_solo_create(&boot, &err), TPW_OK, "%s", err.text);
    show_gpus(&sees, "hostA", "0000:a1:00.0 0000:91:00.0");
    cr_assert_eq(tpw_gpus_agree(boot, topology, sees.gpus, 2, 1, &seat, &err), TPW_OK, "%s", err.text);
    cr_assert(strcmp(seat.gpu.bus, "0000:91:00.0") == 0 && seat.choice == 1 && seat.gpu.index == 1);
    cr_assert(strcmp(seat.cpus, "6-8") == 0 && seat.numa_node == 2);
    cr_assert_eq(tpw_gpus_agree(boot, topology, NULL, 0, 1, &seat, &err), TPW_ERR_RESOURCE);
    cr_assert(strstr(err.text, "sees no GPU"), "%s", err.text);
    cr_assert_eq(tpw_gpus_agree(boot, NULL, sees.gpus, 2, 1, &seat, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_gpus_agree(boot, topology, NULL, 2, 1, &seat, NULL), TPW_ERR_ARGUMENT);
    tpw_boot_destroy(boot);
    tpw_topology_destroy(topology);
}

/* Memory of this machine, read with the system call itself. */

#define NODE_WORDS 16

/* The policy of this thread and the lowest node in its mask, -1 for none. False where the system has no such thing. */
static bool read_policy(int *policy, int *node)
{
    unsigned long mask[NODE_WORDS] = {0};
    *node = -1;
    if (syscall(SYS_get_mempolicy, policy, mask, sizeof mask * 8, NULL, 0) != 0)
        return false;
    for (int n = 0; n < (int)sizeof mask * 8 && *node < 0; n++)
        if (mask[n / 64] >> (n % 64) & 1)
            *node = n;
    return true;
}

static bool can_set_policy(void)
{
    return syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0) == 0;
}

Test(memory_binding, here_and_read_back)
{
    tpw_topology *topology = NULL;
    tpw_memory_binding b;
    tpw_error err = {0};
    int policy, node;
    cr_assert_eq(tpw_topology_load(NULL, &topology, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_bind_memory(topology, "0", TPW_BIND_NONE, &b, &err), TPW_OK, "%s", err.text);
    cr_assert(!b.bound && !b.changed && b.reason[0] == '\0');
    int first = (int)strtol(b.allowed, NULL, 10);
    char one[16];
    (void)snprintf(one, sizeof one, "%d", first);
    bool able = read_policy(&policy, &node) && can_set_policy();
    if (!able) { /* a container that forbids it: said under auto, refused under strict */
        cr_assert_eq(tpw_bind_memory(topology, one, TPW_BIND_AUTO, &b, &err), TPW_OK, "%s", err.text);
        cr_assert(!b.bound && b.reason[0] != '\0');
        cr_assert_eq(tpw_bind_memory(topology, one, TPW_BIND_STRICT, &b, &err), TPW_ERR_RESOURCE);
        tpw_topology_destroy(topology);
        return;
    }
    cr_assert_eq(tpw_bind_memory(topology, one, TPW_BIND_AUTO, &b, &err), TPW_OK, "%s", err.text);
    cr_assert(b.bound && b.changed && strcmp(b.obtained, one) == 0 && b.reason[0] == '\0', "%s %s", b.obtained,
              b.reason);
    cr_assert(read_policy(&policy, &node) && node == first && (policy == MPOL_PREFERRED || policy == 5), "%d %d",
              policy, node); /* 5: MPOL_PREFERRED_MANY */
    cr_assert_eq(tpw_bind_memory(topology, one, TPW_BIND_AUTO, &b, &err), TPW_OK, "%s", err.text);
    cr_assert(b.bound && !b.changed && b.reason[0] == '\0');
    cr_assert_eq(tpw_bind_memory(topology, one, TPW_BIND_STRICT, &b, &err), TPW_OK, "%s", err.text);
    cr_assert(b.bound && strcmp(b.obtained, one) == 0);
    cr_assert(read_policy(&policy, &node) && node == first && policy == MPOL_BIND, "%d %d", policy, node);
    tpw_topology_destroy(topology);
}

Test(memory_binding, what_cannot_be_had)
{
    tpw_topology *topology = NULL;
    tpw_memory_binding b;
    tpw_error err = {0};
    int policy = -1, node, after = -1;
    cr_assert_eq(tpw_topology_load(NULL, &topology, &err), TPW_OK, "%s", err.text);
    bool able = read_policy(&policy, &node);
    const char *const far_nodes[] = {"900", ""};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(tpw_bind_memory(topology, far_nodes[i], TPW_BIND_AUTO, &b, &err), TPW_OK, "%s", err.text);
        cr_assert(!b.changed && !b.bound && b.reason[0] != '\0', "%s", b.reason);
        cr_assert_eq(tpw_bind_memory(topology, far_nodes[i], TPW_BIND_STRICT, &b, &err), TPW_ERR_RESOURCE);
        cr_assert(strstr(err.text, i == 0 ? "cannot bind to memory nodes 900: this process may use"
                                          : "cannot bind memory: no allowed memory node is known"),
                  "%s", err.text);
    }
    cr_assert_eq(read_policy(&after, &node), able);
    cr_assert_eq(after, policy);
    char wide[TPW_MASK_TEXT_MAX + 8]; /* auto takes the part that there is */
    (void)snprintf(wide, sizeof wide, "%s,900", b.allowed);
    cr_assert_eq(tpw_bind_memory(topology, wide, TPW_BIND_AUTO, &b, &err), TPW_OK, "%s", err.text);
    cr_assert(b.reason[0] != '\0');
    if (able && can_set_policy()) { /* which also took back what auto had set */
        cr_assert_str_eq(b.reason, "only a part may be used");
        cr_assert(b.bound && strcmp(b.obtained, b.allowed) == 0, "%s", b.obtained);
    }
    const char *const bad[] = {",", "0-", "a", "3-1", "0x1", "65536"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(tpw_bind_memory(topology, bad[i], TPW_BIND_AUTO, &b, &err), TPW_ERR_ARGUMENT, "\"%s\"", bad[i]);
        cr_assert(strstr(err.text, "memory nodes"), "%s", err.text);
    }
    cr_assert_eq(tpw_bind_memory(topology, NULL, TPW_BIND_AUTO, &b, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_bind_memory(NULL, "0", TPW_BIND_AUTO, &b, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_bind_memory(topology, "0", TPW_BIND_AUTO, NULL, &err), TPW_ERR_ARGUMENT);
    tpw_topology_destroy(topology);
}

Test(memory_binding, another_machine)
{
    tpw_topology *topology = load_machine("four-nodes-gpus.xml");
    tpw_memory_binding b;
    tpw_error err = {0};
    cr_assert_eq(tpw_bind_memory(topology, "2", TPW_BIND_AUTO, &b, &err), TPW_ERR_UNSUPPORTED);
    cr_assert_eq(tpw_bind_memory(topology, "2", TPW_BIND_STRICT, &b, &err), TPW_ERR_UNSUPPORTED);
    cr_assert_eq(tpw_bind_memory(topology, "2", TPW_BIND_NONE, &b, &err), TPW_OK, "%s", err.text);
    cr_assert(strcmp(b.requested, "2") == 0 && strcmp(b.allowed, "0-3") == 0 && strcmp(b.obtained, "0-3") == 0);
    cr_assert(!b.bound && !b.changed);
    tpw_topology_destroy(topology);
}
