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
    int error; /* the first of an operation that is not expected */
    char detail[ERR_DETAIL_BYTES];
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
    return uri;
}

json_t *cell_configuration(const struct plan_cell *cell, const char *testbed)
{
    const struct plan_network *n = &cell->network;
    char uri[CELL_URI_BYTES];
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:b, s:f, s:i, s:i, s:i, s:i}",
                     "pool", cell_uri(cell, testbed, uri), "index", cell->index, "tuning",
                     cell->tuning, "workloads", cell->workloads, "keys", (json_int_t)cell->keys,
                     "ops", (json_int_t)cell->ops, "key_size", (int)cell->key_size, "value_size",
                     (int)cell->value_size, "uniform", cell->uniform, "theta", cell->theta, "seed",
                     (int)bench_defaults.seed, "machines", (int)n->machines, "threads",
                     (int)n->threads, "depth", (int)n->depth);
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

/* Notes errors that would make the numbers worthless. */
static void note_errors(struct measuring *m, const struct bench_run *run)
{
    uint64_t errors = 0;
    bool full = m->cell->until_full && run->halted_by == FAR_TABLE_FULL;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        errors += bench_op_errors(&run->op[k]);
    if (errors == 0 || full || m->error != FAR_OK)
        return;
    m->error = run->first_error != FAR_OK ? run->first_error : FAR_INVALID;
    snprintf(m->detail, sizeof m->detail, "%llu operations of workload %s failed%s%.150s",
             (unsigned long long)errors, run->workload, *run->detail ? ": " : "", run->detail);
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
    if (cell->network.nic && testbed) { /* the model has its clients in the URI */
        c.threads = plan_clients(&cell->network);
        c.depth = cell->network.depth;
    }
    int rc = workload_parse(cell->workloads, &c.workloads);
    if (rc == FAR_OK)
        *config = c;
    return rc;
}

int cell_measure(const struct plan_cell *cell, const struct cell_setting *setting, json_t **runs)
{
    char uri[CELL_URI_BYTES];
    struct bench_config config;
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
    if (rc == FAR_OK && setting->stop && atomic_load(setting->stop))
        rc = FAR_STOPPED;
    if (rc == FAR_OK && m.error != FAR_OK)
        rc = err_fail(m.error, "%s", m.detail);
    if (rc == FAR_OK && (m.no_memory || !m.runs))
        rc = err_fail(FAR_NO_MEMORY, "no memory for the results");
    if (rc == FAR_OK)
        *runs = m.runs;
    else
        json_decref(m.runs);
    return rc;
}
