/* Tests of which GPU a rank takes, and of what is near it on made-up machines. SPDX-License-Identifier: Apache-2.0 */
#include "place_ranks.h"

#define BUS_A "0000:0f:00.0"
#define BUS_B "0000:2d:00.0"
#define BUS_C "0000:44:00.0"
#define BUS_D "0000:5b:00.0"
#define BUS_E "0000:89:00.0"
#define BUS_F "0000:a8:00.0"
#define BUS_G "0000:c0:00.0"
#define BUS_H "0000:d8:00.0"
#define EIGHT BUS_A " " BUS_B " " BUS_C " " BUS_D " " BUS_E " " BUS_F " " BUS_G " " BUS_H

/* Rank r takes the GPU at the r-th of `buses`. */
static void expect_buses(const tpw_place_rank *ranks, int size, int ranks_per_gpu, const char *const *buses)
{
    int32_t chosen[RANKS_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
    tpw_error err = {0};
    cr_assert_eq(tpw_place_gpus(ranks, size, ranks_per_gpu, chosen, &err), TPW_OK, "%s", err.text);
    for (int r = 0; r < size; r++) {
        cr_assert(chosen[r] >= 0 && chosen[r] < ranks[r].gpu_count, "rank %d: %d", r, chosen[r]);
        cr_assert_str_eq(ranks[r].gpus[chosen[r]].bus, buses[r], "rank %d takes %s instead of %s", r,
                         ranks[r].gpus[chosen[r]].bus, buses[r]);
    }
}

#define TAKE(ranks, size, ...)           expect_buses(ranks, size, 1, (const char *const[]){__VA_ARGS__})
#define SHARE(ranks, size, per_gpu, ...) expect_buses(ranks, size, per_gpu, (const char *const[]){__VA_ARGS__})

/* ERR_RESOURCE with all of the `parts` in the text, whole. */
static void expect_refusal(const tpw_place_rank *ranks, int size, int ranks_per_gpu, const char *const *parts)
{
    int32_t chosen[RANKS_MAX];
    tpw_error err = {0};
    tpw_status st = tpw_place_gpus(ranks, size, ranks_per_gpu, chosen, &err);
    cr_assert_eq(st, TPW_ERR_RESOURCE, "%s: %s", tpw_status_name(st), err.text);
    cr_assert_lt(strlen(err.text), TPW_ERROR_TEXT_MAX - 1, "cut: %s", err.text);
    for (; *parts != NULL; parts++)
        cr_assert(strstr(err.text, *parts), "\"%s\" is not in: %s", *parts, err.text);
}

#define REFUSE(ranks, size, ...) expect_refusal(ranks, size, 1, (const char *const[]){__VA_ARGS__, NULL})

static tpw_place_rank ranks[RANKS_MAX]; /* each test is a process of its own */

Test(place, all_see_all)
{
    show_all(ranks, 8, EIGHT);
    TAKE(ranks, 8, BUS_A, BUS_B, BUS_C, BUS_D, BUS_E, BUS_F, BUS_G, BUS_H);
    TAKE(ranks, 2, BUS_A, BUS_B);
    TAKE(ranks, 1, BUS_A);
}

Test(place, order_is_that_of_the_bus)
{
    int32_t chosen[2];
    show_all(ranks, 4, BUS_D " " BUS_C " " BUS_B " " BUS_A);
    TAKE(ranks, 4, BUS_A, BUS_B, BUS_C, BUS_D);
    /* each its own order: CUDA_VISIBLE_DEVICES=0,1 and =1,0 */
    show_gpus(&ranks[0], "hostA", BUS_A " " BUS_B);
    show_gpus(&ranks[1], "hostA", BUS_B " " BUS_A);
    TAKE(ranks, 2, BUS_A, BUS_B);
    cr_assert_eq(tpw_place_gpus(ranks, 2, 1, chosen, NULL), TPW_OK);
    cr_assert(chosen[0] == 0 && chosen[1] == 0, "%d %d", chosen[0], chosen[1]);
}

Test(place, one_visible_each)
{
    const char *const buses[] = {BUS_H, BUS_B, BUS_A, BUS_E};
    for (int r = 0; r < 4; r++)
        show_gpus(&ranks[r], "hostA", buses[r]);
    TAKE(ranks, 4, BUS_H, BUS_B, BUS_A, BUS_E);
}

Test(place, lists_that_differ)
{
    /* enough that both see: those */
    show_gpus(&ranks[0], "hostA", BUS_A " " BUS_B " " BUS_C);
    show_gpus(&ranks[1], "hostA", BUS_C " " BUS_B);
    TAKE(ranks, 2, BUS_B, BUS_C);
    /* srun --gpus-per-task=2 */
    show_gpus(&ranks[0], "hostA", BUS_C " " BUS_D);
    show_gpus(&ranks[1], "hostA", BUS_A " " BUS_B);
    TAKE(ranks, 2, BUS_C, BUS_A);
    /* rank 0 gives way twice removed */
    show_gpus(&ranks[0], "hostA", BUS_A " " BUS_B);
    show_gpus(&ranks[1], "hostA", BUS_A " " BUS_C);
    show_gpus(&ranks[2], "hostA", BUS_A);
    TAKE(ranks, 3, BUS_B, BUS_C, BUS_A);
    show_gpus(&ranks[0], "hostA", BUS_A " " BUS_B);
    show_gpus(&ranks[1], "hostA", BUS_B " " BUS_C);
    show_gpus(&ranks[2], "hostA", BUS_A " " BUS_B);
    TAKE(ranks, 3, BUS_A, BUS_C, BUS_B);
    /* a list with one GPU twice, and one without UUIDs */
    show_all(ranks, 2, BUS_A " " BUS_A " " BUS_B);
    TAKE(ranks, 2, BUS_A, BUS_B);
    show_all(ranks, 2, BUS_A " " BUS_B);
    for (int r = 0; r < 2; r++)
        for (int g = 0; g < 2; g++)
            ranks[r].gpus[g].uuid[0] = '\0';
    TAKE(ranks, 2, BUS_A, BUS_B);
}

/* Lists that no machine has: a GPU without UUID is alike to two that have one. Any outcome, but no end of the lists. */
Test(place, lists_that_contradict)
{
    int32_t chosen[4];
    for (int limit = 1; limit <= 8; limit++) {
        show_all(ranks, 4, BUS_A " " BUS_A " " BUS_B);
        for (int r = 0; r < 4; r++) {
            ranks[r].gpus[1].uuid[8] = (char)('a' + r);
            ranks[r].gpus[r % 2].uuid[0] = '\0';
        }
        (void)!tpw_place_gpus(ranks, 4, limit, chosen, NULL);
    }
}

Test(place, several_hosts)
{
    show_all(ranks, 4, BUS_A " " BUS_B);
    for (int r = 1; r < 4; r += 2) { /* dealt out in turn; the same buses, other GPUs */
        (void)snprintf(ranks[r].host, sizeof ranks[r].host, "hostB");
        for (int g = 0; g < 2; g++)
            ranks[r].gpus[g].uuid[4] = 'b';
    }
    TAKE(ranks, 4, BUS_A, BUS_A, BUS_B, BUS_B);
    ranks[1].gpus[1] = ranks[3].gpus[1] =
        ranks[2].gpus[1]; /* two containers of one machine: each host alone has enough */
    REFUSE(ranks, 4, "rank 2 (hostA) and rank 3 (hostB) would share GPU " BUS_B, ranks[2].gpus[1].uuid, "containers");
}

Test(place, two_ranks_on_one_gpu)
{
    show_all(ranks, 2, BUS_A); /* CUDA_VISIBLE_DEVICES=0 mpirun -np 2 */
    REFUSE(ranks, 2, "ranks 0-1 on hostA see only 1 GPU between them (" BUS_A, ranks[0].gpus[0].uuid,
           "CUDA_VISIBLE_DEVICES");
    show_gpus(&ranks[0], "hostA", BUS_A);
    show_gpus(&ranks[1], "hostA", BUS_B);
    show_gpus(&ranks[2], "hostA", BUS_C " " BUS_D);
    show_gpus(&ranks[3], "hostA", BUS_A);
    REFUSE(ranks, 4, "ranks 0, 3 on hostA see only 1 GPU between them (" BUS_A, ranks[0].gpus[0].uuid);
    show_gpus(&ranks[0], "hostA", BUS_C " " BUS_D " " BUS_E); /* enough in all, but not for three of four */
    show_gpus(&ranks[1], "hostA", BUS_A " " BUS_B);
    show_gpus(&ranks[2], "hostA", BUS_B);
    show_gpus(&ranks[3], "hostA", BUS_A);
    REFUSE(ranks, 4, "ranks 1-3 on hostA see only 2 GPUs between them (", BUS_A, BUS_B, ranks[1].gpus[0].uuid,
           ranks[1].gpus[1].uuid);
}

Test(place, more_ranks_than_gpus)
{
    show_all(ranks, 3, BUS_A " " BUS_B);
    REFUSE(ranks, 3, "ranks 0-2 on hostA see only 2 GPUs between them (" BUS_A, BUS_B, ranks[0].gpus[1].uuid,
           "start fewer ranks there");
    show_all(ranks, 8, BUS_A " " BUS_B " " BUS_C " " BUS_D " " BUS_E);
    for (int r = 0; r < 8; r++) /* the longest text */
        memset(ranks[r].host, 'h', sizeof ranks[r].host - 1);
    REFUSE(ranks, 8, "ranks 0-7", "see only 5 GPUs between them", "2 more)", "srun --gpus-per-task=1");
    show_all(ranks, 4, BUS_A " " BUS_B);
    (void)snprintf(ranks[3].host, sizeof ranks[3].host, "hostB");
    REFUSE(ranks, 4, "ranks 0-2 on hostA");
}

Test(place, no_gpu)
{
    show_all(ranks, 4, EIGHT);
    ranks[1].gpu_count = 0;
    REFUSE(ranks, 4, "rank 1 of 4 (first on hostA) sees no GPU", "CUDA_VISIBLE_DEVICES", "host backend");
    ranks[3].gpu_count = 0;
    REFUSE(ranks, 4, "ranks 1, 3 of 4 (first on hostA) see no GPU");
    ranks[0].gpu_count = 0;
    REFUSE(ranks, 1, "rank 0 of 1");
}

Test(place, ranks_that_share)
{
    /* nobody shares while there are enough */
    show_all(ranks, 4, BUS_A " " BUS_B " " BUS_C " " BUS_D);
    SHARE(ranks, 4, 8, BUS_A, BUS_B, BUS_C, BUS_D);
    SHARE(ranks, 2, 2, BUS_A, BUS_B);
    show_all(ranks, 8, BUS_A);
    SHARE(ranks, 8, 8, BUS_A, BUS_A, BUS_A, BUS_A, BUS_A, BUS_A, BUS_A, BUS_A);
    show_all(ranks, 8, BUS_B " " BUS_A);
    SHARE(ranks, 8, 4, BUS_A, BUS_B, BUS_A, BUS_B, BUS_A, BUS_B, BUS_A, BUS_B);
    show_all(ranks, 4, BUS_A " " BUS_B " " BUS_C); /* no more on one than is needed */
    SHARE(ranks, 4, 4, BUS_A, BUS_B, BUS_C, BUS_A);
    /* lists that differ: rank 1 has no choice, rank 0 gives way */
    show_gpus(&ranks[0], "hostA", BUS_A " " BUS_B);
    show_gpus(&ranks[1], "hostA", BUS_A);
    SHARE(ranks, 2, 2, BUS_B, BUS_A);
    show_gpus(&ranks[2], "hostA", BUS_A);
    show_gpus(&ranks[3], "hostA", BUS_B);
    SHARE(ranks, 4, 2, BUS_B, BUS_A, BUS_A, BUS_B);
    /* hosts each for themselves */
    show_all(ranks, 4, BUS_A);
    for (int r = 2; r < 4; r++) {
        (void)snprintf(ranks[r].host, sizeof ranks[r].host, "hostB");
        ranks[r].gpus[0].uuid[4] = 'b';
    }
    SHARE(ranks, 4, 2, BUS_A, BUS_A, BUS_A, BUS_A);
}

Test(place, ranks_that_would_share_too_much)
{
    int32_t chosen[1];
    show_all(ranks, 4, BUS_A " " BUS_B);
    expect_refusal(ranks, 4, 1, (const char *const[]){"see only 2 GPUs", "takes 1 rank:", "(ranks_per_gpu)", NULL});
    show_all(ranks, 5, BUS_A " " BUS_B);
    expect_refusal(
        ranks, 5, 2,
        (const char *const[]){"ranks 0-4 on hostA see only 2 GPUs between them (" BUS_A, "takes 2 ranks:", NULL});
    show_gpus(&ranks[0], "hostA", BUS_A); /* enough places in all, but not on A */
    show_gpus(&ranks[1], "hostA", BUS_A);
    show_gpus(&ranks[2], "hostA", BUS_B);
    show_gpus(&ranks[3], "hostA", BUS_A);
    expect_refusal(ranks, 4, 2,
                   (const char *const[]){"ranks 0-1, 3 on hostA see only 1 GPU between them (" BUS_A, NULL});
    /* containers of one machine: two hosts, one GPU */
    show_all(ranks, 4, BUS_A);
    for (int r = 2; r < 4; r++)
        (void)snprintf(ranks[r].host, sizeof ranks[r].host, "hostB");
    SHARE(ranks, 4, 4, BUS_A, BUS_A, BUS_A, BUS_A);
    expect_refusal(ranks, 4, 2,
                   (const char *const[]){"rank 0 (hostA) and rank 2 (hostB) would share GPU " BUS_A,
                                         "takes 2 and would have 4", NULL});
    cr_assert_eq(tpw_place_gpus(ranks, 1, 0, chosen, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_gpus(ranks, 1, TPW_RANKS_PER_GPU_MAX + 1, chosen, NULL), TPW_ERR_ARGUMENT);
}

static void make_slice(tpw_gpu *gpu, int n)
{
    gpu->slice = true;
    (void)snprintf(gpu->name, sizeof gpu->name, "NVIDIA H200 MIG 3g.71gb");
    (void)snprintf(gpu->uuid, sizeof gpu->uuid, "MIG-11111111-2222-4333-8444-00000000000%d", n);
}

Test(place, slices)
{
    int32_t chosen[2];
    tpw_seat seat;
    tpw_topology *topology = load_machine("one-gpu.xml");
    show_all(ranks, 2, "0000:01:00.0");
    make_slice(&ranks[0].gpus[0], 0);
    make_slice(&ranks[1].gpus[0], 1);
    REFUSE(ranks, 2, "rank 0 on hostA sees only MIG slices (MIG-11111111-2222-4333-8444-000000000000", "0000:01:00.0",
           "peer access", "NCCL");
    ranks[0].gpus[0] = made_gpu(0, "0000:01:00.0");
    ranks[1].gpus[0].slice = false; /* the UUID says it too */
    REFUSE(ranks, 2, "rank 1 on hostA sees only MIG slices");
    ranks[0].gpus[0].slice = true; /* and so does the flag alone */
    REFUSE(ranks, 2, "rank 0 on hostA sees only MIG slices (GPU-");
    /* alone it may, with a warning */
    cr_assert_eq(tpw_place_gpus(&ranks[1], 1, 1, chosen, NULL), TPW_OK);
    cr_assert_eq(tpw_place_seat(topology, &ranks[1], 1, chosen, 0, &seat, NULL), TPW_OK);
    cr_assert(strstr(seat.warnings, "MIG slice (MIG-11111111-2222-4333-8444-000000000001)"), "%s", seat.warnings);
    cr_assert_str_eq(seat.cpus, "0-3");
    /* a whole one goes first */
    show_all(ranks, 2, BUS_A " " BUS_B " " BUS_C);
    make_slice(&ranks[0].gpus[0], 0);
    make_slice(&ranks[1].gpus[0], 0);
    TAKE(ranks, 2, BUS_B, BUS_C);
    TAKE(ranks, 1, BUS_B);
    tpw_topology_destroy(topology);
}

Test(place, mixed_models)
{
    show_all(ranks, 2, BUS_A " " BUS_B);
    for (int r = 0; r < 2; r++)
        (void)snprintf(ranks[r].gpus[1].name, sizeof ranks[r].gpus[1].name, "NVIDIA H100 80GB HBM3");
    REFUSE(ranks, 2, "rank 0 (hostA) has NVIDIA H200 (9.0", "rank 1 (hostA) has NVIDIA H100 80GB HBM3 (9.0",
           ranks[0].gpus[0].uuid, ranks[0].gpus[1].uuid, "not promised");
    show_all(ranks, 2, BUS_A " " BUS_B);
    ranks[0].gpus[1].major = ranks[1].gpus[1].major = 10;
    REFUSE(ranks, 2, "NVIDIA H200 (9.0", "NVIDIA H200 (10.0");
    show_all(ranks, 2, BUS_A " " BUS_B);
    ranks[0].gpus[1].minor = ranks[1].gpus[1].minor = 1;
    REFUSE(ranks, 2, "NVIDIA H200 (9.1");
    /* another one that nobody takes does no harm */
    show_all(ranks, 2, BUS_A " " BUS_B " " BUS_C);
    ranks[0].gpus[2].major = ranks[1].gpus[2].major = 7;
    TAKE(ranks, 2, BUS_A, BUS_B);
    /* the longest text */
    for (int r = 0; r < 2; r++) {
        memset(ranks[r].host, 'h', sizeof ranks[r].host - 1);
        for (int g = 0; g < 2; g++)
            memset(ranks[r].gpus[g].name, 'n' + g, sizeof ranks[r].gpus[g].name - 1);
    }
    REFUSE(ranks, 2, "choose equal ones with CUDA_VISIBLE_DEVICES");
}

/* How evenly the ranks from `rank` on can be spread at best: the least sum of squares of the ranks on each of 5 GPUs, 99 if nowhere
 * more than `limit` is not possible. */
static int spread(int size, const unsigned *sees, int limit, int rank, int *load)
{
    int best = 99, sum = 0;
    if (rank == size) {
        for (int g = 0; g < 5; g++)
            sum += load[g] * load[g];
        return sum;
    }
    for (int g = 0; g < 5; g++) {
        if ((sees[rank] & 1u << g) == 0 || load[g] == limit)
            continue;
        load[g]++;
        sum = spread(size, sees, limit, rank + 1, load);
        load[g]--;
        best = sum < best ? sum : best;
    }
    return best;
}

Test(place, shared_as_evenly_as_can_be)
{
    const char *const buses[] = {BUS_A, BUS_B, BUS_C, BUS_D, BUS_E};
    uint32_t seed = 7;
    int shared = 0, refused = 0;
    for (int round = 0; round < 3000; round++) {
        unsigned sees[6];
        int size = 1 + round % 6, limit = 1 + round / 6 % 3, none[5] = {0}, load[5] = {0}, sum = 0;
        for (int r = 0; r < size; r++) {
            seed = seed * 1664525 + 1013904223;
            sees[r] = (seed >> 24) & (seed >> 16) & 31;
            sees[r] |= sees[r] == 0 ? 1u << (seed >> 12) % 5 : 0;
            show_gpus(&ranks[r], "hostA", "");
            for (int g = 0; g < 5; g++)
                if (sees[r] & 1u << g)
                    ranks[r].gpus[ranks[r].gpu_count++] = made_gpu(g, buses[g]);
        }
        int32_t chosen[6];
        const tpw_status st = tpw_place_gpus(ranks, size, limit, chosen, NULL);
        const int best = spread(size, sees, limit, 0, none);
        cr_assert_eq(st, best < 99 ? TPW_OK : TPW_ERR_RESOURCE, "round %d", round);
        for (int r = 0; st == TPW_OK && r < size; r++)
            load[ranks[r].gpus[chosen[r]].index]++;
        for (int g = 0; g < 5; g++)
            sum += load[g] * load[g];
        cr_assert(st != TPW_OK || sum == best, "round %d: %d instead of %d", round, sum, best);
        shared += st == TPW_OK && sum > size;
        refused += st != TPW_OK;
    }
    cr_assert(shared > 300 && refused > 100, "%d shared, %d refused", shared, refused);
}

/* The first way, in order of GPUs, to give the ranks from `rank` on what is left. */
static bool try_all(int size, const unsigned *sees, int rank, unsigned taken, int *gives)
{
    if (rank == size)
        return true;
    for (gives[rank] = 0; gives[rank] < 6; gives[rank]++)
        if ((sees[rank] & ~taken & (1u << gives[rank])) != 0 &&
            try_all(size, sees, rank + 1, taken | 1u << gives[rank], gives))
            return true;
    return false;
}

Test(place, as_good_as_trying_everything)
{
    const char *const buses[] = {BUS_A, BUS_B, BUS_C, BUS_D, BUS_E, BUS_F};
    uint32_t seed = 1;
    int placed = 0, refused = 0, apart = 0;
    for (int round = 0; round < 2000; round++) {
        unsigned sees[6], common = 63;
        int size = 1 + round % 6, gives[6];
        for (int r = 0; r < size; r++) {
            seed = seed * 1664525 + 1013904223;
            sees[r] = (seed >> 24) & (seed >> 16) & 63;
            sees[r] |= sees[r] == 0 ? 1u << (seed >> 12) % 6 : 0;
            common &= sees[r];
            show_gpus(&ranks[r], "hostA", "");
            for (int i = 0; i < 6; i++) {
                int g = (i + (int)(seed >> 8)) % 6; /* any order */
                if (sees[r] & 1u << g)
                    ranks[r].gpus[ranks[r].gpu_count++] = made_gpu(i, buses[g]);
            }
        }
        bool shared = __builtin_popcount(common) >= size;
        for (int r = 0; shared && r < size; r++)
            sees[r] = common;
        int32_t chosen[6];
        tpw_status st = tpw_place_gpus(ranks, size, 1, chosen, NULL);
        cr_assert_eq(st, try_all(size, sees, 0, 0, gives) ? TPW_OK : TPW_ERR_RESOURCE, "round %d", round);
        for (int r = 0; st == TPW_OK && r < size; r++)
            cr_assert_str_eq(ranks[r].gpus[chosen[r]].bus, buses[gives[r]], "round %d, rank %d of %d", round, r, size);
        placed += st == TPW_OK;
        refused += st != TPW_OK;
        apart += st == TPW_OK && !shared && size > 2;
    }
    cr_assert(placed > 500 && refused > 300 && apart > 100, "%d placed (%d apart), %d refused", placed, apart, refused);
}

Test(place, bad_counts)
{
    int32_t chosen[2] = {0, 0};
    tpw_seat seat;
    tpw_topology *topology = load_machine("one-gpu.xml");
    show_all(ranks, 2, BUS_A " " BUS_B);
    cr_assert_eq(tpw_place_gpus(ranks, 0, 1, chosen, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_gpus(ranks, TPW_RANKS_MAX + 1, 1, chosen, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_gpus(NULL, 1, 1, chosen, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_gpus(ranks, 1, 1, NULL, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_seat(topology, ranks, 2, chosen, 2, &seat, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_seat(topology, ranks, 2, chosen, -1, &seat, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_seat(NULL, ranks, 2, chosen, 0, &seat, NULL), TPW_ERR_ARGUMENT);
    chosen[1] = 2;
    cr_assert_eq(tpw_place_seat(topology, ranks, 2, chosen, 0, &seat, NULL), TPW_ERR_ARGUMENT);
    ranks[1].gpu_count = TPW_PLACE_GPUS_MAX + 1;
    cr_assert_eq(tpw_place_gpus(ranks, 2, 1, chosen, NULL), TPW_ERR_ARGUMENT);
    ranks[1].gpu_count = -1;
    cr_assert_eq(tpw_place_gpus(ranks, 2, 1, chosen, NULL), TPW_ERR_ARGUMENT);
    tpw_topology_destroy(topology);
}

/* Where a rank should sit. */
typedef struct expected {
    const char *bus, *cpus, *nodes;
    int32_t numa_node;
    const char *warning; /* a part of it; NULL: none */
} expected;

static void expect_seats(const char *machine, int size, const expected *want)
{
    tpw_topology *topology = load_machine(machine);
    int32_t chosen[RANKS_MAX];
    tpw_error err = {0};
    cr_assert_eq(tpw_place_gpus(ranks, size, TPW_RANKS_PER_GPU_MAX, chosen, &err), TPW_OK, "%s", err.text);
    for (int r = 0; r < size; r++) {
        tpw_seat seat;
        cr_assert_eq(tpw_place_seat(topology, ranks, size, chosen, r, &seat, &err), TPW_OK, "%s", err.text);
        cr_assert_eq(seat.choice, chosen[r]);
        cr_assert_str_eq(seat.gpu.bus, want[r].bus, "%s, rank %d: %s", machine, r, seat.gpu.bus);
        cr_assert_str_eq(seat.cpus, want[r].cpus, "%s, rank %d: CPUs %s instead of %s", machine, r, seat.cpus,
                         want[r].cpus);
        cr_assert_str_eq(seat.nodes, want[r].nodes, "%s, rank %d: nodes %s", machine, r, seat.nodes);
        cr_assert_eq(seat.numa_node, want[r].numa_node, "%s, rank %d: node %d", machine, r, seat.numa_node);
        if (want[r].warning == NULL)
            cr_assert_str_empty(seat.warnings, "%s, rank %d: %s", machine, r, seat.warnings);
        else
            cr_assert(strstr(seat.warnings, want[r].warning) && strstr(seat.warnings, want[r].bus), "%s, rank %d: %s",
                      machine, r, seat.warnings);
    }
    tpw_topology_destroy(topology);
}

#define SEATS(machine, size, ...) expect_seats(machine, size, (const expected[]){__VA_ARGS__})

Test(place, seats_on_one_gpu)
{
    show_all(ranks, 4, BUS_A);
    SEATS("eight-gpus.xml", 4, {BUS_A, "0-1", "0", 0, "shared by 4 ranks"}, {BUS_A, "2-3", "0", 0, "shared by 4 ranks"},
          {BUS_A, "4-5", "0", 0, "shared by 4 ranks"}, {BUS_A, "6-7", "0", 0, "shared by 4 ranks"});
    show_all(ranks, 4, BUS_A " " BUS_E);
    SEATS("eight-gpus.xml", 4, {BUS_A, "0-3", "0", 0, "shared by 2 ranks"},
          {BUS_E, "8-11", "1", 1, "shared by 2 ranks"}, {BUS_A, "4-7", "0", 0, "shared by 2 ranks"},
          {BUS_E, "12-15", "1", 1, "shared by 2 ranks"});
}

Test(place, two_packages_of_four)
{
    show_all(ranks, 8, EIGHT);
    SEATS("eight-gpus.xml", 8, {BUS_A, "0-1", "0", 0, NULL}, {BUS_B, "2-3", "0", 0, NULL}, {BUS_C, "4-5", "0", 0, NULL},
          {BUS_D, "6-7", "0", 0, NULL}, {BUS_E, "8-9", "1", 1, NULL}, {BUS_F, "10-11", "1", 1, NULL},
          {BUS_G, "12-13", "1", 1, NULL}, {BUS_H, "14-15", "1", 1, NULL});
    SEATS("eight-gpus.xml", 2, {BUS_A, "0-3", "0", 0, NULL}, {BUS_B, "4-7", "0", 0, NULL});
    SEATS("eight-gpus.xml", 1, {BUS_A, "0-7", "0", 0, NULL});
    const char *const far_apart[] = {BUS_H, BUS_A, BUS_E};
    for (int r = 0; r < 3; r++)
        show_gpus(&ranks[r], "hostA", far_apart[r]);
    SEATS("eight-gpus.xml", 3, {BUS_H, "8-11", "1", 1, NULL}, {BUS_A, "0-7", "0", 0, NULL},
          {BUS_E, "12-15", "1", 1, NULL});
}

Test(place, only_equals_share)
{
    show_all(ranks, 4, EIGHT);
    ranks[1].allowed_key = 2; /* the launcher has given it other CPUs */
    (void)snprintf(ranks[3].host, sizeof ranks[3].host, "hostB");
    for (int g = 0; g < 8; g++)
        ranks[3].gpus[g].uuid[4] = 'b';
    SEATS("eight-gpus.xml", 4, {BUS_A, "0-3", "0", 0, NULL}, {BUS_B, "0-7", "0", 0, NULL}, {BUS_C, "4-7", "0", 0, NULL},
          {BUS_A, "0-7", "0", 0, NULL});
}

Test(place, cut_cpuset)
{
    show_all(ranks, 8, EIGHT); /* CPUs 2-5 and 8-11 */
    SEATS("eight-gpus-part.xml", 8, {BUS_A, "2", "0", 0, NULL}, {BUS_B, "3", "0", 0, NULL}, {BUS_C, "4", "0", 0, NULL},
          {BUS_D, "5", "0", 0, NULL}, {BUS_E, "8", "1", 1, NULL}, {BUS_F, "9", "1", 1, NULL},
          {BUS_G, "10", "1", 1, NULL}, {BUS_H, "11", "1", 1, NULL});
}

/* The near node has memory, but no CPU that may be used. */
Test(place, near_node_without_cpus)
{
    const char *const far_apart[] = {BUS_A, BUS_E, BUS_F};
    for (int r = 0; r < 3; r++)
        show_gpus(&ranks[r], "hostA", far_apart[r]);
    SEATS("eight-gpus-one-package.xml", 3, {BUS_A, "0-7", "0", 0, NULL},
          {BUS_E, "0-7", "1", 1, "none of the CPUs near GPU"}, {BUS_F, "0-7", "1", 1, "all allowed CPUs"});
}

Test(place, one_package)
{
    show_all(ranks, 2, "0000:17:00.0 0000:65:00.0");
    SEATS("two-gpus.xml", 2, {"0000:17:00.0", "0-5", "0", 0, NULL}, {"0000:65:00.0", "6-11", "0", 0, NULL});
    SEATS("two-gpus.xml", 1, {"0000:17:00.0", "0-11", "0", 0, NULL});
    ranks[1].gpus[1].bytes = 80ull << 30;
    SEATS("two-gpus.xml", 2, {"0000:17:00.0", "0-5", "0", 0, NULL},
          {"0000:65:00.0", "6-11", "0", 0, "has 80.0 GiB of memory, that of rank 0 has 150.0"});
    show_all(ranks, 1, "0000:01:00.0"); /* hangs on the root, which is one node: all is near */
    SEATS("one-gpu.xml", 1, {"0000:01:00.0", "0-3", "0", 0, NULL});
}

Test(place, more_ranks_than_cores)
{
    show_all(ranks, 8, EIGHT);
    tpw_near near;
    tpw_topology *topology = load_machine("eight-gpus-part.xml");
    for (int part = 0; part < 5; part++) {
        cr_assert_eq(tpw_topology_near_gpu(topology, BUS_A, part, 5, &near, NULL), TPW_OK);
        cr_assert_str_eq(near.cpus, "2-5");
    }
    tpw_topology_destroy(topology);
}

/* A container: hwloc shows CPUs and memory, and no PCI device. */
Test(place, no_pci_view)
{
    show_all(ranks, 2, BUS_A " " BUS_E);
    SEATS("two-packages.xml", 2, {BUS_A, "0-31", "", -1, "hwloc shows no PCI device"},
          {BUS_E, "0-31", "", -1, "container"});
    SEATS("two-packages-part.xml", 2, {BUS_A, "4-13,16-17,20", "", -1, "hwloc shows no PCI device"},
          {BUS_E, "4-13,16-17,20", "", -1, "all allowed CPUs"});
    SEATS("no-cores.xml", 2, {BUS_A, "0-5", "0", 0, "hwloc shows no PCI device"},
          {BUS_E, "0-5", "0", 0, "hwloc shows no PCI device"});
    tpw_near near; /* what is not known to be near is not cut either */
    tpw_topology *topology = load_machine("two-packages.xml");
    cr_assert_eq(tpw_topology_near_gpu(topology, BUS_A, 1, 2, &near, NULL), TPW_OK);
    cr_assert(near.locality == TPW_NEAR_UNSEEN && strcmp(near.cpus, "0-31") == 0, "%s", near.cpus);
    tpw_topology_destroy(topology);
    show_all(ranks, 1, "nonsense"); /* a bus that nothing has */
    SEATS("eight-gpus.xml", 1, {"nonsense", "0-15", "", -1, "hwloc shows no PCI device"});
}

Test(place, unknown_locality)
{
    show_all(ranks, 2, "0000:00:06.0 0000:00:07.0"); /* a virtual machine of two nodes */
    SEATS("gpus-at-the-root.xml", 2, {"0000:00:06.0", "0-3", "", -1, "does not say which memory node"},
          {"0000:00:07.0", "0-3", "", -1, "does not say which memory node"});
}

Test(place, four_nodes)
{
    show_all(ranks, 4, "0000:11:00.0 0000:21:00.0 0000:91:00.0 0000:a1:00.0");
    SEATS("four-nodes-gpus.xml", 4, {"0000:11:00.0", "0-2", "0", 0, NULL}, {"0000:21:00.0", "3-5", "1", 1, NULL},
          {"0000:91:00.0", "6-8", "2", 2, NULL}, {"0000:a1:00.0", "9-11", "3", 3, NULL});
    show_all(ranks, 1, "0000:31:00.0"); /* near a package of two nodes */
    SEATS("four-nodes-gpus.xml", 1, {"0000:31:00.0", "0-5", "0-1", -1, NULL});
}

/* GPUs that show their memory as nodes, and a large node for all CPUs: neither is near a rank's host memory. */
Test(place, memory_nodes_of_other_kinds)
{
    show_all(ranks, 2, "0009:01:00.0 0019:01:00.0");
    for (int r = 0; r < 2; r++)
        ranks[r].gpus[1].uuid[4] = '9';
    SEATS("gpu-memory.xml", 2, {"0009:01:00.0", "0-1", "0", 0, NULL}, {"0019:01:00.0", "2-3", "1", 1, NULL});
}

/* Numbered by turns, 48 CPUs make a list without a range, for which there is no room. */
Test(place, odd_numbering)
{
    tpw_near near;
    tpw_topology *topology = load_machine("odd-and-even.xml");
    show_all(ranks, 2, "0000:17:00.0 0000:ca:00.0");
    int32_t chosen[2];
    tpw_seat seat;
    cr_assert_eq(tpw_place_gpus(ranks, 2, 1, chosen, NULL), TPW_OK);
    cr_assert_eq(tpw_place_seat(topology, ranks, 2, chosen, 1, &seat, NULL), TPW_OK);
    cr_assert(strstr(seat.warnings, "4 of the CPUs are left out"), "%s", seat.warnings);
    cr_assert_eq(tpw_topology_near_gpu(topology, "0000:ca:00.0", 0, 1, &near, NULL), TPW_OK);
    cr_assert_str_eq(near.cpus, seat.cpus);
    cr_assert_eq(near.cpus_left_out, 4);
    size_t length = strlen(near.cpus);
    cr_assert(length < TPW_MASK_TEXT_MAX && strcmp(near.cpus + length - 6, ",85,87") == 0, "%s", near.cpus);
    cr_assert_eq(tpw_topology_near_gpu(topology, "0000:ca:00.0", 1, 2, &near, NULL), TPW_OK);
    cr_assert(strncmp(near.cpus, "49,51,", 6) == 0 && near.cpus_left_out == 0, "%s", near.cpus);
    tpw_topology_destroy(topology);
}

Test(place, near_arguments)
{
    tpw_near near;
    tpw_topology *topology = load_machine("two-gpus.xml");
    cr_assert_eq(tpw_topology_near_gpu(NULL, BUS_A, 0, 1, &near, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_topology_near_gpu(topology, NULL, 0, 1, &near, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_topology_near_gpu(topology, BUS_A, 0, 1, NULL, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_topology_near_gpu(topology, BUS_A, 1, 1, &near, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_topology_near_gpu(topology, BUS_A, -1, 1, &near, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_topology_near_gpu(topology, BUS_A, 0, 0, &near, NULL), TPW_ERR_ARGUMENT);
    cr_assert_not(tpw_topology_near_same(topology, BUS_A, BUS_A)); /* not of this machine */
    cr_assert(tpw_topology_near_same(topology, "0000:17:00.0", "0000:65:00.0"));
    cr_assert_not(tpw_topology_near_same(topology, "0000:17:00.0", NULL));
    cr_assert_not(tpw_topology_near_same(NULL, "0000:17:00.0", "0000:65:00.0"));
    tpw_topology *part = load_machine("eight-gpus-part.xml"), *whole = load_machine("eight-gpus.xml");
    cr_assert_neq(tpw_topology_allowed_key(part), tpw_topology_allowed_key(whole));
    cr_assert_not(tpw_topology_near_same(whole, BUS_A, BUS_E));
    tpw_topology_destroy(part);
    part = load_machine("eight-gpus-part.xml");
    tpw_topology *again = load_machine("eight-gpus-part.xml");
    cr_assert_eq(tpw_topology_allowed_key(part), tpw_topology_allowed_key(again));
    tpw_topology_destroy(again);
    tpw_topology_destroy(part);
    tpw_topology_destroy(whole);
    tpw_topology_destroy(topology);
}
