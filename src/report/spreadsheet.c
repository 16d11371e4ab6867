#include "report/spreadsheet.h"
#include "out/csv.h"

#include <string.h>

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

/* The columns of a run, and of the operations of one kind. Without the folder, a path is the name
 * of its column. */
static const char *const of_run[] = {"index",
                                     "tuning",
                                     "workload",
                                     "repeat",
                                     "dist",
                                     "machines",
                                     "processes",
                                     "threads",
                                     "depth",
                                     "keys",
                                     "ops",
                                     "seconds",
                                     "ops_per_s",
                                     "raw_ops_per_s",
                                     "space/load_factor",
                                     "space/index_bytes",
                                     "space/block_bytes",
                                     "space/client_cache_bytes",
                                     "space/splits",
                                     "interrupted",
                                     "first_error",
                                     "stopped_by"};
static const char *const of_op[] = {"count",  "rtts",       "rtts_p99",      "rtts_p999",
                                    "verbs",  "bytes_read", "bytes_written", "p50_us",
                                    "p99_us", "p999_us",    "not_found",     "errors"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* What a row is about, besides the run. */
struct row {
    const char *experiment, *cell; /* NULL: the results are of a benchmark */
    const char *pool;
};

static void put_row(struct csv *c, const struct row *row, const json_t *run, const char *op,
                    const json_t *cost)
{
    if (row->experiment) {
        csv_text(c, row->experiment);
        csv_text(c, row->cell);
    }
    csv_text(c, row->pool);
    for (unsigned i = 0; i < COUNT(of_run); i++)
        csv_value(c, lookup(run, of_run[i]));
    csv_text(c, op);
    for (unsigned i = 0; i < COUNT(of_op); i++)
        csv_value(c, lookup(cost, of_op[i]));
    csv_end(c);
}

static void put_runs(struct csv *c, const struct row *row, const json_t *runs)
{
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        json_t *ops = json_object_get(run, "per_op"), *cost;
        const char *op;
        if (json_object_size(ops) == 0) /* verbs without an index, or nothing was done */
            put_row(c, row, run, "", NULL);
        json_object_foreach(ops, op, cost) put_row(c, row, run, op, cost);
    }
}

static void put_experiments(struct csv *c, const json_t *experiments)
{
    for (size_t i = 0; i < json_array_size(experiments); i++) {
        const json_t *e = json_array_get(experiments, i), *cells = json_object_get(e, "cells");
        for (size_t k = 0; k < json_array_size(cells); k++) {
            const json_t *cell = json_array_get(cells, k);
            struct row row = {.experiment = lookup_text(e, "name"),
                              .cell = lookup_text(cell, "name"),
                              .pool = lookup_text(cell, "configuration/pool")};
            put_runs(c, &row, json_object_get(cell, "runs"));
        }
    }
}

static void put_names(struct csv *c, const char *const *paths, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const char *slash = strchr(paths[i], '/');
        csv_text(c, slash ? slash + 1 : paths[i]);
    }
}

static void put_head(struct csv *c, bool experiments)
{
    static const char *const first[] = {"experiment", "cell", "pool"}, *const op[] = {"op"};
    put_names(c, experiments ? first : first + 2, experiments ? 3 : 1);
    put_names(c, of_run, COUNT(of_run));
    put_names(c, op, COUNT(op));
    put_names(c, of_op, COUNT(of_op));
    csv_end(c);
}

void spreadsheet_write(FILE *out, const json_t *results)
{
    struct csv c = {.out = out};
    bool experiments = false;
    for (size_t i = 0; i < json_array_size(results); i++)
        experiments |= json_object_get(json_array_get(results, i), "experiments") != NULL;
    put_head(&c, experiments);
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *one = json_array_get(results, i);
        struct row row = {
            .experiment = experiments ? "" : NULL, .cell = "", .pool = lookup_text(one, "pool")};
        put_runs(&c, &row, json_object_get(one, "runs"));
        put_experiments(&c, json_object_get(one, "experiments"));
    }
}
