/* Tests of placement on made-up machines, and of binding on this one. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tp/topology.h"

static tpw_topology *load(const char *name)
{
    char path[1024];
    tpw_topology *topology = NULL;
    tpw_error err = {0};
    (void)snprintf(path, sizeof path, "%s/topology/%s", TPW_TEST_DATA, name);
    cr_assert_eq(tpw_topology_load(path, &topology, &err), TPW_OK, "%s", err.text);
    return topology;
}

static void expect_place(const char *machine, int size, const char *const *cpus)
{
    tpw_topology *topology = load(machine);
    for (int rank = 0; rank < size; rank++) {
        char got[TPW_MASK_TEXT_MAX] = "";
        tpw_error err = {0};
        cr_assert_eq(tpw_place_cpus(topology, rank, size, got, &err), TPW_OK, "%s", err.text);
        cr_assert_str_eq(got, cpus[rank], "%s, rank %d of %d: %s instead of %s", machine, rank, size, got, cpus[rank]);
    }
    tpw_topology_destroy(topology);
}

#define PLACE(machine, size, ...) expect_place(machine, size, (const char *const[]){__VA_ARGS__})

Test(topology, place_two_packages)
{
    PLACE("two-packages.xml", 1, "0-31");
    PLACE("two-packages.xml", 2, "0-15", "16-31");
    PLACE("two-packages.xml", 3, "0-7", "8-15", "16-31");
    PLACE("two-packages.xml", 4, "0-7", "8-15", "16-23", "24-31");
    PLACE("two-packages.xml", 5, "0-3", "4-9", "10-15", "16-23", "24-31");
    PLACE("two-packages.xml", 16, "0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15", "16-17", "18-19",
          "20-21", "22-23", "24-25", "26-27", "28-29", "30-31");
    PLACE("two-packages.xml", 17, "0-31", "0-31", "0-31", "0-31", "0-31", "0-31", "0-31", "0-31", "0-31", "0-31",
          "0-31", "0-31", "0-31", "0-31", "0-31", "0-31", "0-31");
}

/* Allowed: five cores of the first node, and of the second one core and one thread of another. */
Test(topology, place_in_a_part)
{
    PLACE("two-packages-part.xml", 1, "4-13,16-17,20");
    PLACE("two-packages-part.xml", 2, "4-13", "16-17,20");
    PLACE("two-packages-part.xml", 3, "4-7", "8-13", "16-17,20");
    PLACE("two-packages-part.xml", 7, "4-5", "6-7", "8-9", "10-11", "12-13", "16-17", "20");
    PLACE("two-packages-part.xml", 8, "4-13,16-17,20", "4-13,16-17,20", "4-13,16-17,20", "4-13,16-17,20",
          "4-13,16-17,20", "4-13,16-17,20", "4-13,16-17,20", "4-13,16-17,20");
}

Test(topology, place_elsewhere)
{
    PLACE("four-nodes.xml", 1, "0-11");
    PLACE("four-nodes.xml", 2, "0-5", "6-11");
    PLACE("four-nodes.xml", 3, "0-2", "3-5", "6-11");
    PLACE("four-nodes.xml", 4, "0-2", "3-5", "6-8", "9-11");
    PLACE("four-nodes.xml", 8, "0", "1-2", "3", "4-5", "6", "7-8", "9", "10-11");
    /* the two threads of core i are i and i + 8 */
    PLACE("interleaved.xml", 2, "0-3,8-11", "4-7,12-15");
    PLACE("interleaved.xml", 8, "0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15");
    /* a virtual machine that shows hardware threads only */
    PLACE("no-cores.xml", 4, "0", "1-2", "3", "4-5");
}

Test(topology, every_cpu_once)
{
    const char *const machines[] = {"two-packages.xml", "four-nodes.xml", "interleaved.xml", "no-cores.xml"};
    const int cpus[] = {32, 12, 16, 6}, cores[] = {16, 12, 8, 6};
    for (int m = 0; m < 4; m++) {
        tpw_topology *topology = load(machines[m]);
        for (int size = 1; size <= cores[m]; size++) {
            int seen[64] = {0};
            for (int rank = 0; rank < size; rank++) {
                char text[TPW_MASK_TEXT_MAX];
                cr_assert_eq(tpw_place_cpus(topology, rank, size, text, NULL), TPW_OK);
                for (char *at = text; *at != '\0'; at += *at == ',') {
                    long first = strtol(at, &at, 10), last = *at == '-' ? strtol(at + 1, &at, 10) : first;
                    for (long cpu = first; cpu <= last; cpu++)
                        seen[cpu]++;
                }
            }
            for (int cpu = 0; cpu < cpus[m]; cpu++)
                cr_assert_eq(seen[cpu], 1, "%s by %d: CPU %d is given %d times", machines[m], size, cpu, seen[cpu]);
        }
        tpw_topology_destroy(topology);
    }
}

Test(topology, place_refusals)
{
    tpw_topology *topology = load("even-only.xml");
    char cpus[TPW_MASK_TEXT_MAX];
    tpw_error err = {0};
    cr_assert_eq(tpw_place_cpus(topology, 0, 1, cpus, &err), TPW_ERR_LIMIT, "%s", cpus); /* "0,2,4,...,126" */
    cr_assert_eq(tpw_place_cpus(topology, 63, 64, cpus, &err), TPW_OK, "%s", err.text);
    cr_assert_str_eq(cpus, "126");
    cr_assert_eq(tpw_place_cpus(topology, 1, 1, cpus, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_cpus(topology, -1, 1, cpus, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_cpus(topology, 0, 0, cpus, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_place_cpus(NULL, 0, 1, cpus, &err), TPW_ERR_ARGUMENT);
    tpw_topology_destroy(topology);
    tpw_topology_destroy(NULL);
}

Test(topology, describe)
{
    char text[64];
    tpw_topology *topology = load("two-packages.xml");
    tpw_topology_describe(topology, text, sizeof text);
    cr_assert_str_eq(text, "2 packages, 16 cores, 2 NUMA nodes");
    tpw_topology_describe(topology, text, 11);
    cr_assert_str_eq(text, "2 packages");
    tpw_topology_destroy(topology);
    topology = load("no-cores.xml");
    tpw_topology_describe(topology, text, sizeof text);
    cr_assert_str_eq(text, "1 package, 0 cores, 1 NUMA node");
    tpw_topology_destroy(topology);
}

Test(topology, bad_files)
{
    char path[] = "/tmp/tpw-topology-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    const char *const texts[] = {"", "not a topology\n", "<?xml version=\"1.0\"?><topology version=\"2.0\">",
                                 "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0xzz\"></topology>"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        cr_assert_eq(ftruncate(fd, 0), 0);
        cr_assert_eq(pwrite(fd, texts[i], strlen(texts[i]), 0), (ssize_t)strlen(texts[i]));
        tpw_topology *topology = NULL;
        tpw_error err = {0};
        tpw_status st = tpw_topology_load(path, &topology, &err);
        cr_assert_eq(st, TPW_ERR_ARGUMENT, "text %zu: %s", i, tpw_status_name(st));
        cr_assert(strstr(err.text, path), "%s", err.text);
        cr_assert_null(topology);
    }
    close(fd);
    unlink(path);
    tpw_topology *topology = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_topology_load(path, &topology, &err), TPW_ERR_MISSING);
    cr_assert(strstr(err.text, path), "%s", err.text);
    cr_assert_eq(tpw_topology_load(path, NULL, &err), TPW_ERR_ARGUMENT);
}

Test(topology, another_machine_binds_nobody)
{
    tpw_topology *topology = load("two-packages-part.xml");
    tpw_binding binding;
    tpw_error err = {0};
    cr_assert_eq(tpw_bind_cpus(topology, "4", TPW_BIND_AUTO, &binding, &err), TPW_ERR_UNSUPPORTED);
    cr_assert_eq(tpw_bind_cpus(topology, "4", TPW_BIND_STRICT, &binding, &err), TPW_ERR_UNSUPPORTED);
    cr_assert_eq(tpw_bind_cpus(topology, "4", TPW_BIND_NONE, &binding, &err), TPW_OK, "%s", err.text);
    cr_assert_str_eq(binding.requested, "4");
    cr_assert_str_eq(binding.allowed, "4-13,16-17,20");
    cr_assert_str_eq(binding.obtained, "4-13,16-17,20");
    cr_assert(binding.cores == 7 && binding.numa_node == -1 && !binding.changed);
    tpw_topology_destroy(topology);
}

/* This machine. Each test is a process of its own, so masks may be changed freely. */

static void thread_mask(char text[TPW_MASK_TEXT_MAX])
{
    cpu_set_t set;
    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    size_t used = 0;
    text[0] = '\0';
    for (int cpu = 0; cpu < CPU_SETSIZE && used < TPW_MASK_TEXT_MAX - 16; cpu++)
        if (CPU_ISSET(cpu, &set)) {
            int last = cpu;
            while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
                last++;
            used += (size_t)snprintf(text + used, TPW_MASK_TEXT_MAX - used, last > cpu ? "%s%d-%d" : "%s%d",
                                     used > 0 ? "," : "", cpu, last);
            cpu = last;
        }
}

static int first_cpu(void)
{
    cpu_set_t set;
    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            return cpu;
    return -1;
}

static void *mask_of_new_thread(void *text)
{
    thread_mask(text);
    return NULL;
}

Test(topology, bind_here_and_read_back)
{
    char before[TPW_MASK_TEXT_MAX], one[16], inherited[TPW_MASK_TEXT_MAX], now[TPW_MASK_TEXT_MAX];
    thread_mask(before);
    int cpu = first_cpu();
    (void)snprintf(one, sizeof one, "%d", cpu);
    bool more = strcmp(before, one) != 0;
    tpw_topology *topology = NULL;
    tpw_error err = {0};
    tpw_binding b;
    cr_assert_eq(tpw_topology_load(NULL, &topology, &err), TPW_OK, "%s", err.text);

    cr_assert_eq(tpw_bind_cpus(topology, one, TPW_BIND_NONE, &b, &err), TPW_OK, "%s", err.text);
    cr_assert_str_eq(b.obtained, before);
    cr_assert_str_eq(b.allowed, before);
    cr_assert_not(b.changed);

    cr_assert_eq(tpw_bind_cpus(topology, one, TPW_BIND_STRICT, &b, &err), TPW_OK, "%s", err.text);
    thread_mask(now);
    cr_assert_str_eq(now, one);
    cr_assert_str_eq(b.obtained, one);
    cr_assert_str_eq(b.allowed, before);
    cr_assert_eq(b.changed, more);
    cr_assert_eq(b.cores, 1);
    cr_assert_geq(b.numa_node, 0);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, mask_of_new_thread, inherited), 0);
    pthread_join(thread, NULL);
    cr_assert_str_eq(inherited, one);

    /* outside of what is allowed: strict refuses and changes nothing, auto takes what there is or leaves it */
    cr_assert_eq(tpw_bind_cpus(topology, "60000", TPW_BIND_STRICT, &b, &err), TPW_ERR_RESOURCE);
    cr_assert(strstr(err.text, "60000") && strstr(err.text, before), "%s", err.text);
    cr_assert_eq(tpw_bind_cpus(topology, "60000", TPW_BIND_AUTO, &b, &err), TPW_OK);
    cr_assert(strcmp(b.obtained, one) == 0 && !b.changed, "%s", b.obtained);
    char wide[TPW_MASK_TEXT_MAX + 16];
    (void)snprintf(wide, sizeof wide, "%s,60000", before);
    cr_assert_eq(tpw_bind_cpus(topology, wide, TPW_BIND_AUTO, &b, &err), TPW_OK);
    cr_assert_str_eq(b.obtained, before);
    cr_assert_eq(b.changed, more);
    tpw_topology_destroy(topology);
}

/* As a launcher does it: every thread, the test framework's too. */
static void mask_process(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    DIR *tasks = opendir("/proc/self/task");
    cr_assert_not_null(tasks);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;)
        if (task->d_name[0] != '.')
            cr_assert_eq(sched_setaffinity((pid_t)atoi(task->d_name), sizeof set, &set), 0);
    closedir(tasks);
}

Test(topology, the_launchers_mask_counts)
{
    int cpu = first_cpu();
    mask_process(cpu);
    char one[16], cpus[TPW_MASK_TEXT_MAX];
    (void)snprintf(one, sizeof one, "%d", cpu);
    tpw_topology *topology = NULL;
    tpw_error err = {0};
    cr_assert_eq(tpw_topology_load(NULL, &topology, &err), TPW_OK, "%s", err.text);
    for (int rank = 0; rank < 2; rank++) {
        cr_assert_eq(tpw_place_cpus(topology, rank, 2, cpus, &err), TPW_OK, "%s", err.text);
        cr_assert_str_eq(cpus, one);
    }
    tpw_topology_destroy(topology);
}

Test(topology, malformed_lists)
{
    tpw_topology *topology = NULL;
    tpw_error err = {0};
    tpw_binding b;
    cr_assert_eq(tpw_topology_load(NULL, &topology, &err), TPW_OK, "%s", err.text);
    const char *const bad[] = {"",     ",",           "0,",   ",0",    "3-1",   "0-", "-3",      "a",   "0 1", "0x1",
                               "0--1", "99999999999", "0,,1", "65536", "1-2-3", " 0", "0-65536", "0\n", "+1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_eq(tpw_bind_cpus(topology, bad[i], TPW_BIND_AUTO, &b, &err), TPW_ERR_ARGUMENT, "\"%s\"", bad[i]);
    cr_assert_eq(tpw_bind_cpus(topology, NULL, TPW_BIND_AUTO, &b, &err), TPW_ERR_ARGUMENT);
    cr_assert_eq(tpw_bind_cpus(NULL, "0", TPW_BIND_AUTO, &b, &err), TPW_ERR_ARGUMENT);
    tpw_topology_destroy(topology);
}
