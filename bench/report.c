/* Writes the table and the JSON Lines. SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

tpw_status bench_report_open(bench_report *report, const char *json_path, tpw_error *err)
{
    const bool both = json_path != NULL && strcmp(json_path, "-") == 0;

    *report = (bench_report){.table = both ? stderr : stdout, .json_path = json_path};
    if (json_path != NULL)
        report->json = both ? stdout : fopen(json_path, "w");
    if (json_path != NULL && report->json == NULL)
        return tpw_fail(err, TPW_ERR_IO, "%s: cannot be written: %s", json_path, strerror(errno));
    return TPW_OK;
}

static tpw_status flushed(FILE *file, const char *name, tpw_error *err)
{
    if (fflush(file) != 0 || ferror(file))
        return tpw_fail(err, TPW_ERR_IO, "%s: cannot be written: %s", name, strerror(errno));
    return TPW_OK;
}

static tpw_status table_flushed(bench_report *report, tpw_error *err)
{
    return flushed(report->table, "the table", err);
}

/* Steals `line`, which is NULL when there was no memory, or text that is not UTF-8. */
static tpw_status json_line(bench_report *report, json_t *line, tpw_error *err)
{
    char *text = line != NULL ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(7)) : NULL;

    json_decref(line);
    if (text == NULL)
        return tpw_fail(err, TPW_ERR_MEMORY, "a JSON line could not be made");
    fprintf(report->json, "%s\n", text);
    free(text);
    return flushed(report->json, report->json_path, err);
}

static json_t *known(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? json_string(text) : json_null();
}

static void clocks_text(const bench_header *h, char out[64])
{
    if (h->sm_mhz == 0 || h->memory_mhz == 0)
        snprintf(out, 64, "clocks unknown");
    else
        snprintf(out, 64, "SM %u MHz and memory %u MHz under load", h->sm_mhz, h->memory_mhz);
}

tpw_status bench_report_header(bench_report *report, const bench_header *h, tpw_error *err)
{
    char clocks[64];

    if (report->table == NULL)
        return TPW_OK;
    clocks_text(h, clocks);
    fprintf(report->table, "%s (%s), driver %s, %s, NCCL %d (loaded %d), commit %s, %s, %d rank%s%s\n", h->gpu, h->bus,
            h->driver[0] != '\0' ? h->driver : "unknown", h->cuda, h->nccl_compiled, h->nccl_loaded,
            h->commit[0] != '\0' ? h->commit : "unknown", clocks, h->ranks, h->ranks == 1 ? "" : "s",
            h->quick ? ", quick" : "");
    TPW_TRY(table_flushed(report, err));
    if (report->json == NULL)
        return TPW_OK;
    return json_line(report,
                     json_pack("{s:s, s:i, s:s, s:s, s:o, s:s, s:i, s:i, s:o, s:o, s:o, s:i, s:b}", "type",
                               "bench_header", "schema", BENCH_SCHEMA, "gpu", h->gpu, "bus", h->bus, "driver",
                               text_or_null(h->driver), "cuda", h->cuda, "nccl_compiled", h->nccl_compiled,
                               "nccl_loaded", h->nccl_loaded, "commit", text_or_null(h->commit), "sm_mhz",
                               known(h->sm_mhz), "memory_mhz", known(h->memory_mhz), "ranks", h->ranks, "quick",
                               (int)h->quick),
                     err);
}

tpw_status bench_report_section(bench_report *report, const char *title, tpw_error *err)
{
    if (report->table == NULL)
        return TPW_OK;
    fprintf(report->table, "\n%s\n%-26s %-18s %6s %9s %9s %7s %7s %8s\n", title, "name", "shape", "rows", "us", "MB",
            "GB/s", "share", "TFLOP/s");
    return table_flushed(report, err);
}

tpw_status bench_report_note(bench_report *report, const char *text, tpw_error *err)
{
    if (report->table == NULL)
        return TPW_OK;
    fprintf(report->table, "%s\n", text);
    return table_flushed(report, err);
}

/* A number of the table, or "-". */
static const char *number(char out[16], const char *format, double x)
{
    if (!(x > 0))
        return "-";
    snprintf(out, 16, format, x);
    return out;
}

tpw_status bench_report_cell(bench_report *report, const bench_cell *c, tpw_error *err)
{
    const double gb_s = c->bytes / c->us / 1e3, share = c->read_us / c->us, tflops = c->flops / c->us / 1e6;
    char mb_text[16], gb_text[16], share_text[16], tflops_text[16];

    if (report->table == NULL)
        return TPW_OK;
    if (!(c->us > 0))
        return tpw_fail(err, TPW_ERR_INTERNAL, "%s %s, %d rows: took no time", c->name, c->shape, (int)c->rows);
    fprintf(report->table, "%-26s %-18s %6d %9.2f %9s %7s %7s %8s\n", c->name, c->shape, (int)c->rows, c->us,
            number(mb_text, "%.2f", c->bytes / 1e6), number(gb_text, "%.0f", gb_s),
            number(share_text, "%.1f %%", share * 100), number(tflops_text, "%.1f", tflops));
    report->cells++;
    TPW_TRY(table_flushed(report, err));
    if (report->json == NULL)
        return TPW_OK;
    return json_line(report,
                     json_pack("{s:s, s:i, s:s, s:s, s:i, s:f, s:o, s:o, s:o, s:o}", "type", "bench_kernel", "schema",
                               BENCH_SCHEMA, "name", c->name, "shape", c->shape, "rows", (int)c->rows, "us", c->us,
                               "bytes", c->bytes > 0 ? json_integer((json_int_t)c->bytes) : json_null(), "gb_s",
                               known(gb_s), "share", known(share), "tflops", known(tflops)),
                     err);
}

tpw_status bench_report_end(bench_report *report, double seconds, tpw_status status, tpw_error *err)
{
    if (report->table == NULL)
        return TPW_OK;
    fprintf(report->table, "\n%lld cells in %.1f s, %s\n", (long long)report->cells, seconds, tpw_status_name(status));
    TPW_TRY(table_flushed(report, err));
    if (report->json == NULL)
        return TPW_OK;
    return json_line(report,
                     json_pack("{s:s, s:i, s:I, s:f, s:s}", "type", "bench_end", "schema", BENCH_SCHEMA, "cells",
                               (json_int_t)report->cells, "seconds", seconds, "status", tpw_status_name(status)),
                     err);
}

tpw_status bench_report_close(bench_report *report, tpw_error *err)
{
    FILE *json = report->json;

    report->json = NULL;
    if (json == NULL || json == stdout)
        return TPW_OK;
    if (fclose(json) != 0)
        return tpw_fail(err, TPW_ERR_IO, "%s: cannot be written: %s", report->json_path, strerror(errno));
    return TPW_OK;
}
