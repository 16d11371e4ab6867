#include "reproduce/cell.h"

#include "base/err.h"
#include "bench/bare.h"
#include "bench/json.h"
#include "reproduce/testbed.h"

#include <stdio.h>
#include <string.h>

#define MODEL_NODE_SIZE "4g"  /* of each node, like mem: */
#define VERBS_NODE_SIZE "64m" /* verbs at random places touch all of it, which takes real time */

struct measuring {
    const struct plan_cell *cell;
    const struct cell_setting *setting;
    const struct bench_config *config;
    json_t *runs;
    bool no_memory;
    char failure[ERR_DETAIL_BYTES]; /* the first that is not expected */
};

static bool on_testbed(const struct plan_cell *cell, const char *testbed)
{
    return testbed && cell->network.nic && !cell->network.model_only;
}

bool cell_measured(const struct plan_cell *cell, const struct cell_setting *setting)
{
    return cell_kept(setting) || on_testbed(cell, setting->testbed);
}

const char *cell_uri(const struct plan_cell *cell, const char *testbed, char uri[CELL_URI_BYTES])
{
    const struct plan_network *n = &cell->network;
    if (!n->nic) /* as on a network: nothing is done for a round trip's being free */
        snprintf(uri, CELL_URI_BYTES, "mem:?defer=1");
    else if (on_testbed(cell, testbed))
        snprintf(uri, CELL_URI_BYTES, "%s", testbed);
    else
        snprintf(uri, CELL_URI_BYTES,
                 "model:?nic=%s&machines=%u&threads=%u&depth=%u&nodes=%u&size=%s%s%s%s", n->nic,
                 n->machines, n->threads, n->depth, n->nodes,
                 cell->verbs.kind ? VERBS_NODE_SIZE : MODEL_NODE_SIZE,
                 n->model_only ? "&groups=0" : "",
                 n->untuned ? "&doorbells=shared&outstanding=0" : "",
                 n->locks_in_nic ? "&locks=nic" : "");
    if (n->gbits > 0 && n->nic && !on_testbed(cell, testbed)) {
        size_t used = strlen(uri);
        snprintf(uri + used, CELL_URI_BYTES - used, "&gbits=%u", n->gbits);
    }
    if (n->lease_ms > 0 && !testbed) { /* clients that died keep their places for some leases */
        size_t used = strlen(uri);
        snprintf(uri + used, CELL_URI_BYTES - used, "&lease=%u&clients=4096", n->lease_ms);
    }
    return uri;
}

static json_t *verbs_configuration(const struct plan_cell *cell)
{
    const struct plan_verbs *v = &cell->verbs;
    char uri[CELL_URI_BYTES];
    json_t *outstanding = json_array();
    for (unsigned i = 0; i < v->outstanding.count; i++)
        json_array_append_new(outstanding, json_integer(v->outstanding.value[i]));
    return json_pack("{s:s, s:s, s:i, s:b, s:i, s:o}", "pool", cell_uri(cell, NULL, uri), "verbs",
                     v->kind, "bytes", (int)v->bytes, "one_place", v->one_place, "rounds",
                     (int)v->rounds, "outstanding", outstanding);
}

json_t *cell_configuration(const struct plan_cell *cell, const char *testbed)
{
    const struct plan_network *n = &cell->network;
    char uri[CELL_URI_BYTES];
    if (cell->verbs.kind)
        return verbs_configuration(cell);
    json_t *all = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:b, s:f, s:i, s:i, s:i, s:i}",
        "pool", cell_uri(cell, testbed, uri), "index", cell->index, "tuning", cell->tuning,
        "workloads", cell->workloads, "keys", (json_int_t)cell->keys, "ops", (json_int_t)cell->ops,
        "seeds", (int)CELL_SEEDS, "least_ms", (int)CELL_LEAST_MS, "warm_ops", (int)CELL_WARM_OPS,
        "key_size", (int)cell->key_size, "value_size", (int)cell->value_size, "uniform",
        cell->uniform, "theta", cell->theta, "machines", (int)n->machines, "threads",
        (int)n->threads, "depth", (int)n->depth, "deaths", (int)n->deaths);
    int bad = 0;
    if (cell->window_us > 0)
        bad |= json_object_set_new(all, "window_us", json_integer(cell->window_us));
    if (cell->expected_keys > 0)
        bad |= json_object_set_new(all, "expected_keys",
                                   json_integer((json_int_t)cell->expected_keys));
    if (bad == 0)
        return all;
    json_decref(all);
    return NULL;
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
    /* Every key is there that is looked for. */
    uint64_t missed = run->op[FAR_OP_GET].stats.not_found + run->op[FAR_OP_UPDATE].stats.not_found;
    if (missed > 0 && !*m->failure)
        snprintf(m->failure, sizeof m->failure, "workload %s: %llu keys were not found",
                 run->workload, (unsigned long long)missed);
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
    json_t *object = bench_json_run(m->config, run);
    if (json_object_set_new(object, "seed", json_integer((json_int_t)m->config->seed)) != 0 ||
        json_array_append(m->runs, object) != 0)
        m->no_memory = true;
    json_decref(object);
}

unsigned cell_workloads(const struct plan_cell *cell)
{
    unsigned count = 1;
    for (const char *at = cell->workloads; *at; at++)
        count += *at == ',';
    return count;
}

/* Sets how long the run is, and what comes before. A run that only adds or deletes keys, or fills
 * its table, changes it all the time, so it warms up with a part of its operations at most. */
static void set_length(struct bench_config *c, const struct plan_cell *cell, bool real_time)
{
    const struct workload *w = &c->workloads.item[0];
    c->ops = cell->ops;
    if (!cell->network.nic || workload_is_load(w))
        return;
    c->warmup = (uint64_t)plan_clients(&cell->network) * CELL_WARM_OPS;
    if ((cell->until_full || !workload_draws(w)) && c->warmup > c->ops / 4)
        c->warmup = c->ops / 4;
    if (cell->until_full || workload_deletes(w))
        c->ops -= c->warmup;
    if (!cell->until_full)
        c->least_ns = (real_time ? CELL_TESTBED_LEAST_MS : CELL_LEAST_MS) * UINT64_C(1000000);
}

/* Leaves only the workload at that place. */
static void choose(struct workload_list *list, unsigned place)
{
    ASSERT(place < list->count);
    list->item[0] = list->item[place];
    list->count = 1;
}

int cell_config(const struct plan_cell *cell, unsigned place, unsigned seed, const char *testbed,
                char uri[CELL_URI_BYTES], struct bench_config *config)
{
    struct bench_config c = bench_defaults;
    c.pool = cell_uri(cell, testbed, uri);
    c.index = cell->index;
    c.tuning = *cell->tuning ? cell->tuning : NULL;
    c.seed = bench_defaults.seed + seed;
    c.keys = cell->keys;
    c.expected_keys = cell->expected_keys;
    c.sizes.key = (struct bench_range){cell->key_size, cell->key_size};
    c.sizes.value = (struct bench_range){cell->value_size, cell->value_size};
    c.dist_given = cell->uniform;
    if (cell->uniform)
        c.dist = BENCH_DIST_UNIFORM;
    c.theta = cell->theta;
    c.deaths = on_testbed(cell, testbed) ? 0 : cell->network.deaths;
    if (on_testbed(cell, testbed)) { /* the model has its clients in the URI */
        c.threads = plan_clients(&cell->network);
        c.depth = cell->network.depth;
    }
    int rc = workload_parse(cell->workloads, &c.workloads);
    if (rc == FAR_OK)
        rc = bench_take_shape(&c);
    if (rc != FAR_OK)
        return rc;
    choose(&c.workloads, place);
    set_length(&c, cell, on_testbed(cell, testbed));
    if (cell->window_us > 0) {
        c.timeline = true;
        c.window_ns = cell->window_us * UINT64_C(1000);
    }
    *config = c;
    return FAR_OK;
}

/* Errors of operations on the cell's own table. */
static bool of_this_cell(int status)
{
    return status == FAR_TABLE_FULL || status == FAR_POOL_FULL || status == FAR_CONTENTION;
}

static bool stopped(const struct cell_setting *setting)
{
    return setting->stop && atomic_load(setting->stop);
}

static enum fab_kind kind_of(const struct plan_verbs *v)
{
    return strcmp(v->kind, "read") == 0  ? FAB_READ
           : strcmp(v->kind, "cas") == 0 ? FAB_CAS
                                         : FAB_WRITE;
}

/* One run for each number of outstanding verbs. */
static int measure_verbs(const struct plan_cell *cell, const struct cell_setting *setting,
                         json_t *runs)
{
    const struct plan_verbs *v = &cell->verbs;
    struct bare_verbs verbs = {
        .kind = kind_of(v), .bytes = v->bytes, .rounds = v->rounds, .one_place = v->one_place};
    char uri[CELL_URI_BYTES];
    cell_uri(cell, NULL, uri);
    for (unsigned i = 0; i < v->outstanding.count; i++) {
        double rate = 0;
        if (stopped(setting))
            return FAR_STOPPED;
        verbs.outstanding = v->outstanding.value[i];
        int rc = bare_rate(uri, &verbs, &rate);
        if (rc != FAR_OK)
            return rc;
        json_t *run = json_pack("{s:s, s:i, s:f}", "workload", v->kind, "outstanding",
                                (int)v->outstanding.value[i], "ops_per_s", rate * 1e6);
        if (json_array_append_new(runs, run) != 0)
            return err_fail(FAR_NO_MEMORY, "no memory for the results");
        if (setting->progress)
            setting->progress(setting->arg, cell, v->kind, i + 1, v->outstanding.count);
    }
    return FAR_OK;
}

/* Measures the workload at that place with the n-th seed. */
static int measure_run(struct measuring *m, unsigned place, unsigned seed)
{
    char uri[CELL_URI_BYTES];
    struct bench_config config;
    int rc = cell_config(m->cell, place, seed, m->setting->testbed, uri, &config);
    if (rc != FAR_OK)
        return rc;
    config.stop = m->setting->stop;
    if (m->setting->meet && on_testbed(m->cell, m->setting->testbed))
        testbed_divide(m->setting->meet, &config);
    m->config = &config;
    struct bench_observer observer = {
        .arg = m,
        .progress = on_progress,
        .index_begin = on_index,
        .run = on_run,
        .index_done = on_index,
    };
    rc = bench_suite(&config, &observer);
    if (of_this_cell(rc)) {
        snprintf(m->failure, sizeof m->failure, "%s", far_error_detail());
        rc = FAR_OK;
    }
    if (rc == FAR_OK && stopped(m->setting))
        rc = FAR_STOPPED;
    return rc;
}

static int measure_index(const struct plan_cell *cell, const struct cell_setting *setting,
                         struct cell_outcome *outcome)
{
    struct measuring m = {.cell = cell, .setting = setting, .runs = json_array()};
    unsigned workloads = cell_workloads(cell);
    int rc = FAR_OK;
    for (unsigned i = 0; i < CELL_SEEDS * workloads && rc == FAR_OK && !*m.failure; i++)
        rc = measure_run(&m, i % workloads, i / workloads);
    if (rc == FAR_OK && (m.no_memory || !m.runs))
        rc = err_fail(FAR_NO_MEMORY, "no memory for the results");
    if (rc == FAR_OK)
        snprintf(outcome->failure, sizeof outcome->failure, "%s", m.failure);
    if (rc == FAR_OK && !*m.failure)
        outcome->runs = json_incref(m.runs);
    json_decref(m.runs);
    return rc;
}

int cell_measure(const struct plan_cell *cell, const struct cell_setting *setting,
                 struct cell_outcome *outcome)
{
    *outcome = (struct cell_outcome){.runs = NULL};
    if (!cell->verbs.kind)
        return measure_index(cell, setting, outcome);
    json_t *runs = json_array();
    int rc = measure_verbs(cell, setting, runs);
    if (rc == FAR_OK)
        outcome->runs = json_incref(runs);
    json_decref(runs);
    return rc;
}
