/* Tests of the boot tables without MPI, and of agreement and host finding over them. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "local_ranks.h"
#include "tp/agree.h"
#include "tp/node.h"

static tpw_status exchange_all(local_rank *self)
{
    tpw_boot *boot = self->boot;
    const size_t sizes[] = {1, 0, 3, 4096, 100001, 7};
    for (int round = 0; round < 18; round++) {
        size_t bytes = sizes[round % 6];
        int root = round % boot->size;
        unsigned char *all = malloc(bytes * (size_t)boot->size + 1), *mine = malloc(bytes + 1);
        memset(mine, boot->rank * 16 + round % 16, bytes + 1);
        tpw_status st = boot->ops->allgather(boot, mine, all, bytes, &self->err);
        for (size_t i = 0; st == TPW_OK && i < bytes * (size_t)boot->size; i++)
            if (all[i] != (int)(i / bytes) * 16 + round % 16)
                st = tpw_fail(&self->err, TPW_ERR_INTERNAL, "round %d: allgather byte %zu is %d", round, i, all[i]);
        if (st == TPW_OK)
            st = boot->ops->broadcast(boot, mine, bytes, root, &self->err);
        for (size_t i = 0; st == TPW_OK && i < bytes; i++)
            if (mine[i] != root * 16 + round % 16)
                st = tpw_fail(&self->err, TPW_ERR_INTERNAL, "round %d: broadcast byte %zu is %d", round, i, mine[i]);
        if (st == TPW_OK && mine[bytes] != boot->rank * 16 + round % 16)
            st = tpw_fail(&self->err, TPW_ERR_INTERNAL, "round %d: wrote past the end", round);
        free(all);
        free(mine);
        TPW_TRY(st);
        TPW_TRY(boot->ops->barrier(boot, &self->err));
    }
    return TPW_OK;
}

Test(boot_local, exchanges)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    for (int n = 1; n <= 8; n++) { /* a boot takes any number of ranks */
        run_local(n, 5000, exchange_all, NULL, ranks);
        expect_all_ok(ranks, n);
    }
}

static tpw_status hold_back(local_rank *self)
{
    int *arrived = self->data;
    if (self->rank == 2)
        sleep_ms(100);
    __atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST);
    TPW_TRY(self->boot->ops->barrier(self->boot, &self->err));
    int seen = __atomic_load_n(arrived, __ATOMIC_SEQ_CST);
    return seen == self->boot->size ? TPW_OK : tpw_fail(&self->err, TPW_ERR_INTERNAL, "passed with %d arrived", seen);
}

Test(boot_local, barrier_holds)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    int arrived = 0;
    run_local(4, 5000, hold_back, &arrived, ranks);
    expect_all_ok(ranks, 4);
}

static tpw_status sleeper(local_rank *self)
{
    TPW_TRY(self->boot->ops->barrier(self->boot, &self->err)); /* tells all host names */
    self->boot->step = 12;
    self->boot->phase = "decode";
    if (self->rank == 3) {
        sleep_ms(700);
        return TPW_OK;
    }
    tpw_status st = self->boot->ops->barrier(self->boot, &self->err);
    double start = seconds_now(); /* a later call repeats the failure at once */
    tpw_error again = {0};
    if (self->boot->ops->barrier(self->boot, &again) != st || strcmp(again.text, self->err.text) != 0 ||
        seconds_now() - start > 0.1)
        return tpw_fail(&self->err, TPW_ERR_INTERNAL, "second call: %s", again.text);
    return st;
}

Test(boot_local, timeout_names_the_sleeper)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    run_local(4, 200, sleeper, NULL, ranks);
    for (int r = 0; r < 3; r++) {
        char start[128];
        (void)snprintf(start, sizeof start,
                       "rank %d (host%c) waited 0.2 s in barrier of step 12 (decode) for rank 3 (hostD): no answer", r,
                       'A' + r);
        cr_assert_eq(ranks[r].status, TPW_ERR_PEER, "rank %d: %s", r, ranks[r].err.text);
        cr_assert_eq(strncmp(ranks[r].err.text, start, strlen(start)), 0, "rank %d: %s", r, ranks[r].err.text);
        cr_assert(ranks[r].seconds >= 0.2 && ranks[r].seconds < 0.6, "rank %d took %f s", r, ranks[r].seconds);
    }
}

static tpw_status raiser(local_rank *self)
{
    if (self->rank == 1) {
        sleep_ms(100);
        self->boot->phase = "load";
        self->boot->ops->raise(self->boot, TPW_ERR_CHECKPOINT, "tensor lm_head.weight is torn");
        self->boot->ops->raise(self->boot, TPW_ERR_IO, "a second one is ignored");
        return self->boot->ops->barrier(self->boot, &self->err);
    }
    if (self->rank == 2)
        sleep_ms(300); /* comes later */
    uint64_t x = 0;
    return self->boot->ops->broadcast(self->boot, &x, sizeof x, 0, &self->err);
}

Test(boot_local, raise_ends_waits)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    run_local(3, 20000, raiser, NULL, ranks);
    for (int r = 0; r < 3; r += 2) {
        cr_assert_eq(ranks[r].status, TPW_ERR_PEER, "rank %d: %s", r, tpw_status_name(ranks[r].status));
        cr_assert_str_eq(ranks[r].err.text, "rank 1 (hostB) failed (load): tensor lm_head.weight is torn");
        cr_assert_lt(ranks[r].seconds, 1.0);
    }
    cr_assert_eq(ranks[1].status, TPW_ERR_CHECKPOINT, "the rank itself: %s", ranks[1].err.text);
    cr_assert(strstr(ranks[1].err.text, "lm_head"), "%s", ranks[1].err.text);
}

/* Who waits for something else looks now and then. */
static tpw_status looker(local_rank *self)
{
    tpw_status st = TPW_OK;
    if (self->rank == 1) {
        sleep_ms(100);
        self->boot->ops->raise(self->boot, TPW_ERR_DEVICE, "GPU 3 fell off the bus");
        return self->boot->ops->look(self->boot, &self->err);
    }
    for (int i = 0; st == TPW_OK && i < 1000; i++) {
        sleep_ms(5);
        st = self->boot->ops->look(self->boot, &self->err);
    }
    return st;
}

Test(boot_local, look_hears_of_a_failure)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    run_local(3, 20000, looker, NULL, ranks);
    for (int r = 0; r < 3; r += 2) {
        cr_assert_eq(ranks[r].status, TPW_ERR_PEER, "rank %d: %s", r, tpw_status_name(ranks[r].status));
        cr_assert(strstr(ranks[r].err.text, "rank 1 (hostB) failed") != NULL, "%s", ranks[r].err.text);
        cr_assert_lt(ranks[r].seconds, 1.0);
    }
    cr_assert_eq(ranks[1].status, TPW_ERR_DEVICE, "the rank itself: %s", ranks[1].err.text);
}

static tpw_status different(local_rank *self)
{
    uint64_t x[2] = {0, 0};
    if (self->data != NULL) /* the same sizes, other roots */
        return self->boot->ops->broadcast(self->boot, x, 8, self->rank, &self->err);
    return self->boot->ops->broadcast(self->boot, x, self->rank == 1 ? 16 : 8, 0, &self->err);
}

Test(boot_local, different_calls_are_refused)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    for (int roots = 0; roots < 2; roots++) {
        run_local(2, 2000, different, roots ? &roots : NULL, ranks);
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(ranks[r].status, TPW_ERR_DIVERGED, "rank %d: %s", r, ranks[r].err.text);
            cr_assert(strstr(ranks[r].err.text, roots ? "(root 1)" : "16 bytes"), "%s", ranks[r].err.text);
        }
    }
}

Test(boot_local, arguments)
{
    tpw_boot *boots[2];
    tpw_error err = {0};
    cr_assert_eq(tpw_boot_local_create(0, 100, boots, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_boot_local_create(TPW_RANKS_MAX + 1, 100, boots, &err), TPW_ERR_ARGUMENT);
    cr_assert(strstr(err.text, "1025"), "%s", err.text);
    cr_assert_eq(tpw_boot_local_create(2, 0, boots, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_boot_local_create(2, 100, NULL, NULL), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_boot_local_create(2, 100, boots, &err), TPW_OK);
    tpw_boot *boot = boots[0];
    char byte = 0;
    cr_assert_eq(boot->ops->broadcast(boot, &byte, 1, 2, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(boot->ops->broadcast(boot, &byte, 1, -1, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(boot->ops->broadcast(boot, NULL, 1, 0, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(boot->ops->allgather(boot, &byte, NULL, 1, &err), TPW_ERR_ARGUMENT);
    tpw_boot_destroy(boots[1]);
    tpw_boot_destroy(boots[0]);
    tpw_boot_destroy(NULL);
}

Test(boot_local, most_ranks)
{
    static tpw_boot *boots[TPW_RANKS_MAX];
    tpw_error err = {0};
    cr_assert_eq(tpw_boot_local_create(TPW_RANKS_MAX, INT64_MAX, boots, &err), TPW_OK, "%s", err.text);
    boots[1000]->ops->raise(boots[1000], TPW_OK, NULL); /* a failure without a reason is still one */
    cr_assert_eq(boots[3]->ops->barrier(boots[3], &err), TPW_ERR_PEER);
    cr_assert(strstr(err.text, "rank 1000 (") && strstr(err.text, "internal error"), "%s", err.text);
    for (int r = 0; r < TPW_RANKS_MAX; r++)
        tpw_boot_destroy(boots[r]);
}

Test(boot_solo, all_calls)
{
    tpw_boot *boot = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_boot_solo_create(NULL, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_boot_solo_create(&boot, &err), TPW_OK);
    cr_assert(boot->rank == 0 && boot->size == 1 && boot->step == -1 && boot->host[0] != '\0');
    int32_t in = 42, out = 0;
    cr_assert_eq(boot->ops->allgather(boot, &in, &out, sizeof in, &err), TPW_OK);
    cr_assert_eq(out, 42);
    cr_assert_eq(boot->ops->broadcast(boot, &in, sizeof in, 0, &err), TPW_OK);
    cr_assert_eq(boot->ops->broadcast(boot, &in, sizeof in, 1, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(boot->ops->barrier(boot, &err), TPW_OK);
    boot->ops->raise(boot, TPW_ERR_IO, "nobody hears it");
    cr_assert_eq(boot->ops->look(boot, &err), TPW_OK);
    cr_assert_eq(tpw_agree_status(boot, TPW_OK, &err), TPW_OK);
    tpw_node node;
    cr_assert_eq(tpw_node_find(boot, &node, &err), TPW_OK);
    cr_assert(node.rank == 0 && node.size == 1 && node.hosts == 1);
    tpw_boot_destroy(boot);
}

static tpw_status agree(local_rank *self)
{
    const tpw_status *mine = self->data;
    tpw_status st = mine[self->rank];
    if (st != TPW_OK && self->rank != 0) /* rank 0 brings a bare status */
        (void)tpw_fail(&self->err, st, "text of %d", self->rank);
    return tpw_agree_status(self->boot, st, &self->err);
}

Test(agree, worst_status_wins)
{
    const struct {
        tpw_status mine[4];
        tpw_status status;
        const char *text;
    } cases[] = {
        {{TPW_OK, TPW_OK, TPW_OK, TPW_OK}, TPW_OK, ""},
        {{TPW_OK, TPW_OK, TPW_ERR_IO, TPW_OK}, TPW_ERR_IO, "rank 2 (hostC): text of 2"},
        {{TPW_ERR_ARGUMENT, TPW_ERR_MEMORY, TPW_ERR_IO, TPW_ERR_IO}, TPW_ERR_IO, "rank 2 (hostC): text of 2"},
        {{TPW_ERR_MEMORY, TPW_OK, TPW_OK, TPW_ERR_MEMORY}, TPW_ERR_MEMORY, "rank 0 (hostA): out of memory"},
        {{TPW_ERR_LIMIT, TPW_OK, TPW_OK, TPW_ERR_DIVERGED}, TPW_ERR_DIVERGED, "rank 3 (hostD): text of 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        local_rank ranks[LOCAL_RANKS_MAX];
        run_local(4, 5000, agree, (void *)(uintptr_t)cases[i].mine, ranks);
        for (int r = 0; r < 4; r++) {
            cr_assert_eq(ranks[r].status, cases[i].status, "case %zu rank %d: %s", i, r, ranks[r].err.text);
            cr_assert_str_eq(ranks[r].err.text, cases[i].text, "case %zu rank %d: \"%s\"", i, r, ranks[r].err.text);
            cr_assert_eq(ranks[r].err.status, cases[i].status);
        }
    }
}

static tpw_status agree_alone(local_rank *self)
{
    if (self->rank == 1)
        return TPW_OK;
    (void)tpw_fail(&self->err, TPW_ERR_IO, "disk full");
    return tpw_agree_status(self->boot, TPW_ERR_IO, &self->err);
}

Test(agree, without_an_answer_both_causes_are_told)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    run_local(2, 100, agree_alone, NULL, ranks);
    cr_assert_eq(ranks[0].status, TPW_ERR_PEER);
    cr_assert(strstr(ranks[0].err.text, "rank 0 (hostA) failed (disk full), and then: rank 0 (hostA) waited 0.1 s"),
              "%s", ranks[0].err.text);
}

static tpw_status agree_digest(local_rank *self)
{
    const uint64_t *digests = self->data;
    return tpw_agree_digest(self->boot, digests[self->rank], "config", &self->err);
}

Test(agree, digests)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    uint64_t same[4] = {7, 7, 7, 7};
    run_local(4, 5000, agree_digest, same, ranks);
    expect_all_ok(ranks, 4);
    uint64_t other[4] = {0x12, 0x12, 0xFEDCBA9876543210, 0x13};
    run_local(4, 5000, agree_digest, other, ranks);
    const char *start = "config differs between ranks: rank 2 (hostC) has fedcba9876543210, rank 0 (hostA) has "
                        "0000000000000012";
    for (int r = 0; r < 4; r++) {
        cr_assert_eq(ranks[r].status, TPW_ERR_DIVERGED);
        cr_assert_eq(strncmp(ranks[r].err.text, start, strlen(start)), 0, "%s", ranks[r].err.text);
    }
}

static tpw_status find_node(local_rank *self)
{
    const char *const hosts[6] = {"b", "a", "b", "bb", "a", "b"};
    const tpw_node expected[6] = {{0, 3, 3}, {0, 2, 3}, {1, 3, 3}, {0, 1, 3}, {1, 2, 3}, {2, 3, 3}};
    memset(self->boot->host, self->rank, sizeof self->boot->host); /* bytes after the end must not matter */
    strcpy(self->boot->host, hosts[self->rank]);
    tpw_node node, want = expected[self->rank];
    TPW_TRY(tpw_node_find(self->boot, &node, &self->err));
    if (node.rank != want.rank || node.size != want.size || node.hosts != want.hosts)
        return tpw_fail(&self->err, TPW_ERR_INTERNAL, "%d of %d on %d hosts", node.rank, node.size, node.hosts);
    return TPW_OK;
}

Test(node, ranks_by_host)
{
    local_rank ranks[LOCAL_RANKS_MAX];
    run_local(6, 5000, find_node, NULL, ranks);
    expect_all_ok(ranks, 6);
}
