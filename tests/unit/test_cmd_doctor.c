/* Tests of what doctor shows: the table, alike and unlike findings, and lines that programs can read, with GPUs made up.
 * SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

#include "cli/cmd_doctor.h"

/* Takes what is queued out of the sink, as text. */
static void taken(tpw_sink *sink, char *out, size_t bytes)
{
    cr_assert_lt(sink->bytes, bytes);
    memcpy(out, sink->data + sink->start, sink->bytes);
    out[sink->bytes] = '\0';
    tpw_sink_fini(sink);
}

/* Two ranks with a GPU each, of which the second is far and computes something else. */
static void make_ranks(tpw_doctor_rank ranks[2])
{
    memset(ranks, 0, 2 * sizeof *ranks);
    for (int r = 0; r < 2; r++) {
        ranks[r] = (tpw_doctor_rank){
            .rank = r,
            .hosts = 1,
            .pid = 100 + r,
            .host = "n\0331",
            .machine = "2 packages, 16 cores, 2 NUMA nodes",
            .isa = "avx512",
            .cpus =
                {.requested = "0-7", .obtained = "0-7", .allowed = "0-15", .cores = 8, .numa_node = r == 0 ? 0 : -1},
            .memory = {.requested = "0", .obtained = "0", .allowed = "0-1", .bound = true},
            .gpus_visible = 2,
            .seated = true,
            .nearness = r == 0 ? TPW_NEARNESS_NEAR : TPW_NEARNESS_FAR,
            .gpu =
                {.index = r, .name = "GPU X", .uuid = "GPU-1", .bus = "0000:3b:00.0", .bytes = 1ull << 37, .major = 9},
            .cuda = "CUDA 13.0",
            .nccl_compiled = 22809,
            .nccl_loaded = 22809};
        snprintf(ranks[r].driver, sizeof ranks[r].driver, "%s", r == 0 ? "580.1" : "570.2");
        for (int id = 0; id < TPW_DOCTOR_CHECKS; id++) {
            ranks[r].checks[id].result = TPW_DOCTOR_OK;
            snprintf(ranks[r].checks[id].text, sizeof ranks[r].checks[id].text, "fine");
        }
        ranks[r].checks[TPW_DOCTOR_PACKETS].compared = 1000;
    }
    tpw_doctor_check *bad = &ranks[1].checks[TPW_DOCTOR_PACKETS];
    bad->result = TPW_DOCTOR_FAILED;
    bad->status = TPW_ERR_DIVERGED;
    snprintf(bad->text, sizeof bad->text, "other\nbits");
}

Test(cmd_doctor, people_see_rows_and_findings)
{
    tpw_doctor_rank ranks[2];
    tpw_sink sink;
    char text[8192];
    make_ranks(ranks);
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_doctor_print(&sink, ranks, 2);
    taken(&sink, text, sizeof text);
    char *second = strchr(text, '\n') + 1;
    char *third = strchr(second, '\n') + 1;
    cr_assert_eq(strncmp(text, "rank  host", 10), 0);
    cr_assert_eq(strstr(text, "UUID") - text, strstr(second, "GPU-1") - second, "the columns stand under each other");
    cr_assert_eq(strstr(second, "GPU-1") - second, strstr(third, "GPU-1") - third);
    cr_assert_null(strchr(text, '\033'), "a terminal must not obey a host name");
    static const char *const parts[] = {
        "  near  ",
        "  far  ",
        "\nversions  rank 0: CUDA 13.0, NCCL 2.28.9 compiled, 2.28.9 loaded, kernel driver 580.1\n",
        "\nversions  rank 1: CUDA 13.0, NCCL 2.28.9 compiled, 2.28.9 loaded, kernel driver 570.2\n",
        "\nwarning   rank 1: does not run near its GPU",
        "\ntopology  ok       fine\n",
        "\npackets   ok       rank 0: fine\n",
        "\npackets   FAILED   rank 1: other bits\n",
        "\n13 checks on 2 ranks: 25 ok, 0 skipped, 1 FAILED; 2000 values compared by bits\n"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        cr_assert_not_null(strstr(text, parts[i]), "no \"%s\" in\n%s", parts[i], text);
    cr_assert_null(strstr(text, "warning   rank 0"));
}

static json_t *next_line(const char **at)
{
    const char *end = strchr(*at, '\n');
    json_error_t error;
    cr_assert_not_null(end);
    json_t *line = json_loadb(*at, (size_t)(end - *at), JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(line, "%s", error.text);
    *at = end + 1;
    return line;
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "(none)";
}

Test(cmd_doctor, programs_read_a_line_a_rank_and_a_verdict)
{
    tpw_doctor_rank ranks[2];
    tpw_sink sink;
    char text[16384];
    const char *at = text;
    make_ranks(ranks);
    ranks[0].seated = false;
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_doctor_push(&sink, ranks, 2, TPW_ERR_DIVERGED);
    cr_assert_eq(sink.error, 0);
    taken(&sink, text, sizeof text);
    for (int r = 0; r < 2; r++) {
        json_t *line = next_line(&at);
        json_t *gpu = json_object_get(line, "gpu");
        json_t *checks = json_object_get(line, "checks");
        cr_assert_str_eq(text_at(line, "type"), "doctor");
        cr_assert_eq(json_integer_value(json_object_get(line, "schema")), 1);
        cr_assert_eq(json_integer_value(json_object_get(line, "rank")), r);
        cr_assert_str_eq(text_at(line, "nccl_loaded"), "2.28.9");
        cr_assert_str_eq(text_at(json_object_get(line, "cpus"), "obtained"), "0-7");
        cr_assert(json_is_null(json_object_get(line, "warnings")));
        cr_assert_eq(json_array_size(checks), (size_t)TPW_DOCTOR_CHECKS);
        cr_assert(r == 0 ? json_is_null(gpu) : strcmp(text_at(gpu, "bus"), "0000:3b:00.0") == 0);
        cr_assert(r == 0 || strcmp(text_at(gpu, "place"), "far") == 0);
        json_t *packets = json_array_get(checks, TPW_DOCTOR_PACKETS);
        cr_assert_str_eq(text_at(packets, "name"), "packets");
        cr_assert_str_eq(text_at(packets, "result"), r == 0 ? "ok" : "failed");
        cr_assert_str_eq(text_at(packets, "status"), r == 0 ? "OK" : "ERR_DIVERGED");
        cr_assert_eq(json_integer_value(json_object_get(packets, "compared")), 1000);
        json_decref(line);
    }
    json_t *verdict = next_line(&at);
    cr_assert_str_eq(text_at(verdict, "type"), "verdict");
    cr_assert_str_eq(text_at(verdict, "command"), "doctor");
    cr_assert_eq(json_integer_value(json_object_get(verdict, "exit")), 71);
    cr_assert_eq(json_integer_value(json_object_get(verdict, "ok")), 25);
    cr_assert_eq(json_integer_value(json_object_get(verdict, "failed")), 1);
    cr_assert_eq(json_integer_value(json_object_get(verdict, "compared")), 2000);
    cr_assert_eq(*at, '\0');
    json_decref(verdict);
}

/* Every text as long as it can be. */
Test(cmd_doctor, the_longest_texts_fit)
{
    static tpw_doctor_rank ranks[1];
    tpw_sink sink;
    char *const texts[] = {ranks->host,     ranks->machine, ranks->isa,   ranks->no_gpu,
                           ranks->warnings, ranks->cuda,    ranks->driver};
    const size_t rooms[] = {sizeof ranks->host,     sizeof ranks->machine, sizeof ranks->isa,   sizeof ranks->no_gpu,
                            sizeof ranks->warnings, sizeof ranks->cuda,    sizeof ranks->driver};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        memset(texts[i], 'x', rooms[i] - 1);
    memset(ranks->cpus.allowed, '1', sizeof ranks->cpus.allowed - 1);
    memset(ranks->cpus.requested, '2', sizeof ranks->cpus.requested - 1);
    memset(ranks->cpus.obtained, '3', sizeof ranks->cpus.obtained - 1);
    memset(ranks->memory.obtained, '4', sizeof ranks->memory.obtained - 1);
    memset(ranks->gpu.uuid, 'u', sizeof ranks->gpu.uuid - 1);
    ranks->seated = true;
    ranks->nearness = 99; /* from a rank that runs something else */
    ranks->nccl_compiled = ranks->nccl_loaded = INT32_MAX;
    ranks->gpu.index = ranks->cpus.numa_node = INT32_MAX;
    ranks->pid = INT64_MAX;
    for (int id = 0; id < TPW_DOCTOR_CHECKS; id++)
        memset(ranks->checks[id].text, 't', sizeof ranks->checks[id].text - 1);
    tpw_sink_init_fd(&sink, 1, "x");
    tpw_doctor_print(&sink, ranks, 1);
    tpw_doctor_push(&sink, ranks, 1, TPW_OK);
    cr_assert_eq(sink.error, 0);
    cr_assert_gt(sink.bytes, (size_t)2 * TPW_DOCTOR_CHECKS * (TPW_ERROR_TEXT_MAX - 1));
    tpw_sink_fini(&sink);
    /* a sink that drops everything */
    tpw_sink none = {.fd = -1};
    tpw_doctor_print(&none, ranks, 1);
    tpw_doctor_push(&none, ranks, 1, TPW_OK);
    cr_assert_eq(none.bytes, 0u);
}
