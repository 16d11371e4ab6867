#include "reproduce/cell.h"

#include "base/err.h"
#include "bench/report.h"

#include <stdio.h>
#include <string.h>

#define MODEL_NODE_SIZE "4g" /* of each node, like mem: */

struct measuring {
    const struct plan_cell *cell;
    const struct cell_setting *setting;
    const struct bench_config *config;
    json_t *runs;
    bool no_memory;
    char failure[ERR_DETAIL_BYTES]; /* the first that is not expected */
};

const char *cell_uri(const struct plan_cell *cell, const char *testbed, char uri[CELL_URI_BYTES])
{
    const struct plan_network *n = &cell->network;
    if (!n->nic)
        snprintf(uri, CELL_URI_BYTES, "mem:");
    else if (testbed)
        snprintf(uri, CELL_URI_BYTES, "%s", testbed);
    else
        snprintf(uri, CELL_URI_BYTES,
                 "sim:?nic=%s&machines=%u&threads=%u&depth=%u&nodes=%u&size=" MODEL_NODE_SIZE,
                 n->nic, n->machines, n->threads, n->depth, n->nodes);
    if (n->lease_ms > 0 && !testbed) { /* clients that died keep their places for some leases */
        size_t used = strlen(uri);
        snprintf(uri + used, CELL_URI_BYTES - used, "&lease=%u&clients=4096", n->lease_ms);
    }
    return uri;
}

json_t *cell_configuration(const struct plan_cell *cell, const char *testbed)
{
    const struct plan_network *n = &cell->network;
    char uri[CELL_URI_BYTES];
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:b, s:f, s:i, s:i, s:i, s:i, s:i}",
                     "pool", cell_uri(cell, testbed, uri), "index", cell->index, "tuning",
                     cell->tuning, "workloads", cell->workloads, "keys", (json_int_t)cell->keys,
                     "ops", (json_int_t)cell->ops, "key_size", (int)cell->key_size, "value_size",
                     (int)cell->value_size, "uniform", cell->uniform, "theta", cell->theta, "seed",
                     (int)bench_defaults.seed, "machines", (int)n->machines, "threads",
                     (int)n->threads, "depth", (int)n->depth, "deaths", (int)n->deaths);
}

static void on_progress(void *arg, const char *index, const char *what, uint64_t done,
                        uint64_t total)
{
    const struct measuring *m = arg;
    (void)index;
    if (m->setting->progress)
        m->setting->progress(m->setting->arg, m->cell, what, done, total);
}

static void on_index(void *arg, const char *index)
{
    (void)arg;
    (void)index;
}

/* Notes errors that make the numbers worthless. */
static void note_errors(struct measuring *m, const struct bench_run *run)
{
    uint64_t errors = 0, wrong = 0;
    bool full = m->cell->until_full && run->halted_by == FAR_TABLE_FULL;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
        errors += bench_op_errors(&run->op[k]);
        wrong += run->op[k].wrong;
    }
    if (errors == 0 || (full && wrong == 0) || *m->failure)
        return;
    snprintf(m->failure, sizeof m->failure, "workload %s: %llu operations failed (%s%s%.120s)",
             run->workload, (unsigned long long)errors,
             wrong > 0 ? "wrong answers" : far_strerror(run->first_error), *run->detail ? ": " : "",
             run->detail);
}

static void on_run(void *arg, const struct bench_run *run)
{
    struct measuring *m = arg;
    note_errors(m, run);
    if (json_array_append_new(m->runs, report_json_run(m->config, run)) != 0)
        m->no_memory = true;
}

int cell_config(const struct plan_cell *cell, const char *testbed, char uri[CELL_URI_BYTES],
                struct bench_config *config)
{
    struct bench_config c = bench_defaults;
    c.pool = cell_uri(cell, testbed, uri);
    c.index = cell->index;
    c.tuning = *cell->tuning ? cell->tuning : NULL;
    c.keys = cell->keys;
    c.ops = cell->ops;
    c.sizes.key = (struct bench_range){cell->key_size, cell->key_size};
    c.sizes.value = (struct bench_range){cell->value_size, cell->value_size};
    c.dist_given = cell->uniform;
    if (cell->uniform)
        c.dist = BENCH_DIST_UNIFORM;
    c.theta = cell->theta;
    c.deaths = testbed ? 0 : cell->network.deaths;
    if (cell->network.nic && testbed) { /* the model has its clients in the URI */
        c.threads = plan_clients(&cell->network);
        c.depth = cell->network.depth;
    }
    int rc = workload_parse(cell->workloads, &c.workloads);
    if (rc == FAR_OK)
        rc = bench_take_shape(&c);
    if (rc == FAR_OK)
        *config = c;
    return rc;
}

/* Errors of operations on the cell's own table. */
static bool of_this_cell(int status)
{
    return status == FAR_TABLE_FULL || status == FAR_POOL_FULL || status == FAR_CONTENTION;
}

int cell_measure(const struct plan_cell *cell, const struct cell_setting *setting,
                 struct cell_outcome *outcome)
{
    char uri[CELL_URI_BYTES];
    struct bench_config config;
    *outcome = (struct cell_outcome){.runs = NULL};
    int rc = cell_config(cell, setting->testbed, uri, &config);
    if (rc != FAR_OK)
        return rc;
    config.stop = setting->stop;
    struct measuring m = {
        .cell = cell, .setting = setting, .config = &config, .runs = json_array()};
    struct bench_observer observer = {
        .arg = &m,
        .progress = on_progress,
        .index_begin = on_index,
        .run = on_run,
        .index_done = on_index,
    };
    rc = bench_suite(&config, &observer);
    if (of_this_cell(rc)) {
        snprintf(m.failure, sizeof m.failure, "%s", far_error_detail());
        rc = FAR_OK;
    }
    if (rc == FAR_OK && setting->stop && atomic_load(setting->stop))
        rc = FAR_STOPPED;
    if (rc == FAR_OK && (m.no_memory || !m.runs))
        rc = err_fail(FAR_NO_MEMORY, "no memory for the results");
    if (rc == FAR_OK)
        snprintf(outcome->failure, sizeof outcome->failure, "%s", m.failure);
    if (rc == FAR_OK && !*m.failure)
        outcome->runs = json_incref(m.runs);
    json_decref(m.runs);
    return rc;
}
