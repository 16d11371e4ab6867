#include "report/csv.h"

#include <stdbool.h>
#include <string.h>

#define END "\r\n"

void csv_field(FILE *out, const char *text)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

/* The value at a path such as "space/splits", or NULL. */
static const json_t *lookup(const json_t *at, const char *path)
{
    const char *slash = strchr(path, '/');
    if (!slash)
        return json_object_get(at, path);
    return lookup(json_object_getn(at, path, (size_t)(slash - path)), slash + 1);
}

static const char *lookup_text(const json_t *at, const char *path)
{
    const char *text = json_string_value(lookup(at, path));
    return text ? text : "";
}

/* Where the value of a column comes from. */
struct column {
    const char *name, *path;
};

static const struct column of_run[] = {
    {"index", "index"},
    {"tuning", "tuning"},
    {"workload", "workload"},
    {"repeat", "repeat"},
    {"dist", "dist"},
    {"processes", "processes"},
    {"threads", "threads"},
    {"depth", "depth"},
    {"keys", "keys"},
    {"ops", "ops"},
    {"seconds", "seconds"},
    {"ops_per_s", "ops_per_s"},
    {"raw_ops_per_s", "raw_ops_per_s"},
    {"load_factor", "space/load_factor"},
    {"index_bytes", "space/index_bytes"},
    {"block_bytes", "space/block_bytes"},
    {"client_cache_bytes", "space/client_cache_bytes"},
    {"splits", "space/splits"},
    {"interrupted", "interrupted"},
    {"first_error", "first_error"},
    {"stopped_by", "stopped_by"},
};

static const struct column of_op[] = {
    {"count", "count"},
    {"rtts", "rtts"},
    {"rtts_p99", "rtts_p99"},
    {"rtts_p999", "rtts_p999"},
    {"verbs", "verbs"},
    {"bytes_read", "bytes_read"},
    {"bytes_written", "bytes_written"},
    {"p50_us", "p50_us"},
    {"p99_us", "p99_us"},
    {"p999_us", "p999_us"},
    {"not_found", "not_found"},
    {"errors", "errors"},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* What a row is about, besides the run. */
struct row {
    const char *experiment, *cell; /* NULL: the results are of a benchmark */
    const char *pool;
};

static void put_value(FILE *out, const json_t *value)
{
    if (json_is_string(value))
        csv_field(out, json_string_value(value));
    else if (json_is_integer(value))
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        fprintf(out, "%.9g", json_real_value(value));
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "true" : "false", out);
}

static void put_row(FILE *out, const struct row *row, const json_t *run, const char *op,
                    const json_t *cost)
{
    if (row->experiment) {
        csv_field(out, row->experiment);
        fputc(',', out);
        csv_field(out, row->cell);
        fputc(',', out);
    }
    csv_field(out, row->pool);
    for (unsigned i = 0; i < COUNT(of_run); i++) {
        fputc(',', out);
        put_value(out, lookup(run, of_run[i].path));
    }
    fputc(',', out);
    csv_field(out, op);
    for (unsigned i = 0; i < COUNT(of_op); i++) {
        fputc(',', out);
        put_value(out, lookup(cost, of_op[i].path));
    }
    fputs(END, out);
}

static void put_runs(FILE *out, const struct row *row, const json_t *runs)
{
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        json_t *ops = json_object_get(run, "per_op"), *cost;
        const char *op;
        if (json_object_size(ops) == 0) /* verbs without an index, or nothing was done */
            put_row(out, row, run, "", NULL);
        json_object_foreach(ops, op, cost) put_row(out, row, run, op, cost);
    }
}

static void put_experiments(FILE *out, const json_t *experiments)
{
    for (size_t i = 0; i < json_array_size(experiments); i++) {
        const json_t *e = json_array_get(experiments, i), *cells = json_object_get(e, "cells");
        for (size_t k = 0; k < json_array_size(cells); k++) {
            const json_t *cell = json_array_get(cells, k);
            struct row row = {.experiment = lookup_text(e, "name"),
                              .cell = lookup_text(cell, "name"),
                              .pool = lookup_text(cell, "configuration/pool")};
            put_runs(out, &row, json_object_get(cell, "runs"));
        }
    }
}

static void put_head(FILE *out, bool experiments)
{
    fputs(experiments ? "experiment,cell,pool" : "pool", out);
    for (unsigned i = 0; i < COUNT(of_run); i++)
        fprintf(out, ",%s", of_run[i].name);
    fputs(",op", out);
    for (unsigned i = 0; i < COUNT(of_op); i++)
        fprintf(out, ",%s", of_op[i].name);
    fputs(END, out);
}

void csv_write(FILE *out, const json_t *results)
{
    bool experiments = false;
    for (size_t i = 0; i < json_array_size(results); i++)
        experiments |= json_object_get(json_array_get(results, i), "experiments") != NULL;
    put_head(out, experiments);
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *one = json_array_get(results, i);
        struct row row = {
            .experiment = experiments ? "" : NULL, .cell = "", .pool = lookup_text(one, "pool")};
        put_runs(out, &row, json_object_get(one, "runs"));
        put_experiments(out, json_object_get(one, "experiments"));
    }
}
