#include "base/err.h"
#include "base/status.h"
#include "bench/keys.h"
#include "bench/meet.h"
#include "bench/pace.h"
#include "bench/replay.h"
#include "bench/runner.h"
#include "bench/tables.h"
#include "bench/workers.h"
#include "model/model.h"
#include "store/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run that adds no keys does the same from beginning to end, so a part of it is a good sample;
 * one operation at a time would take long on a network. */
#define SAMPLED_OPS 16384u

#define MODEL_WINDOW_NS 10000000 /* virtual time: much happens in it */

const struct bench_config bench_defaults = {
    .pool = "mem:",
    .keys = 200000,
    .ops = 200000,
    .processes = 1,
    .threads = 1,
    .machines = 1,
    .depth = 1,
    .sizes = {.key = {16, 16}, .value = {32, 32}},
    .dist = BENCH_DIST_ZIPFIAN,
    .theta = 0.99,
    .repeat = 1,
    .seed = 1,
    .window_ns = 100000000,
};

/* A table under test: the measured one, or its twin for the recorder. */
struct subject {
    far_pool *pool;
    struct fab *model; /* NULL: real time */
    far_table *table;
    struct workload_span keys;
    struct bench_dist dist; /* keeps its sums from run to run */
};

struct subjects {
    struct subject measured, twin; /* without --raw, there is no twin */
    bool empty;                    /* nothing was loaded yet */
};

struct suite {
    const struct bench_config *config;
    const struct bench_observer *observer;
    struct bench_run *run;     /* too large for the stack; reused */
    struct workers_team *team; /* NULL: this process does all the work */
};

/* Does this machine make the tables, and drop them? */
static bool leads(const struct bench_config *c)
{
    return !c->meet || c->rank == 0;
}

static bool interrupted(const struct suite *s)
{
    return (s->config->stop && atomic_load(s->config->stop)) ||
           (s->observer->enough && s->observer->enough(s->observer->arg));
}

/* Was the last run ended by an error? */
static bool halted(const struct suite *s)
{
    return s->run->halted_by != FAR_OK;
}

/* The error of a run that is not reported. */
static int failure(const struct suite *s, const char *what)
{
    const struct bench_run *r = s->run;
    if (r->first_error == FAR_OK)
        return FAR_OK;
    return err_fail(r->first_error, "%s, after %llu of %llu operations%s%s", what,
                    (unsigned long long)r->ops, (unsigned long long)r->ops_planned,
                    *r->detail ? ": " : "", r->detail);
}

/* A session for what is not measured. Seeds must not be 0, which means the clock. */
static int open_session(const struct bench_config *config, far_pool *pool, far_session **session)
{
    struct far_session_options options = {.depth = 1, .seed = bench_mix(config->seed) | 1};
    return far_session_open(pool, &options, session);
}

/* Drops the table if it was created and is not to be kept, and closes the pool. */
static void subject_close(const struct suite *s, struct subject *subject, bool drop)
{
    const struct bench_observer *o = s->observer;
    far_session *session = NULL;
    struct err_detail kept; /* of what ended the benchmark */
    err_keep(&kept);
    if (subject->table && drop && leads(s->config)) {
        int rc = open_session(s->config, subject->pool, &session);
        if (rc == FAR_OK)
            tables_drop(session, far_table_name(subject->table), false, o);
        else if (o->dropped)
            o->dropped(o->arg,
                       &(struct bench_drop){.table = far_table_name(subject->table), .status = rc});
        far_session_close(session);
    }
    far_pool_close(subject->pool);
    err_restore(&kept);
}

static int open_model(const char *uri, far_pool **pool, struct fab **model)
{
    int rc = model_open(uri, model);
    if (rc != FAR_OK)
        return rc;
    rc = store_open(*model, NULL, pool);
    if (rc == FAR_OK)
        (*pool)->owns_fab = (*pool)->pool.evicts = true;
    else
        fab_close(*model);
    return rc;
}

/* Makes the table. With other machines, machine 0 does, and the others open it. */
static int make_table(const struct bench_config *config, far_session *session, const char *index,
                      const char *suffix, far_table **table)
{
    char name[FAR_NAME_MAX + 1] = "";
    struct far_table_options options = {.hash_seed = bench_mix(config->seed + 1) | 1,
                                        .tuning = config->tuning,
                                        .expected_keys = config->expected_keys};
    tables_name(config, index, suffix, name);
    int rc = leads(config) ? far_table_create(session, name, index, &options, table) : FAR_OK;
    if (!config->meet)
        return rc;
    bool made = rc == FAR_OK && leads(config);
    rc = meet_share(config->meet, rc, name, sizeof name);
    if (rc == FAR_OK && !leads(config))
        return far_table_open(session, name, index, table);
    if (rc != FAR_OK && made) {
        struct err_detail kept;
        err_keep(&kept);
        (void)far_table_drop(session, *table);
        err_restore(&kept);
    }
    return rc;
}

/* Unless FAR_OK, there is nothing to close. */
static int subject_open(const struct bench_config *config, const char *index, const char *suffix,
                        struct subject *subject)
{
    struct subject s = {.pool = NULL};

    int rc = model_named(config->pool) ? open_model(config->pool, &s.pool, &s.model)
                                       : far_pool_open(config->pool, &s.pool);
    if (rc != FAR_OK)
        return rc;
    far_session *session = NULL;
    rc = open_session(config, s.pool, &session);
    if (rc == FAR_OK)
        rc = make_table(config, session, index, suffix, &s.table);
    /* An idle session holds up the epoch until it is parked, which goes by the clock. */
    far_session_close(session);
    if (rc != FAR_OK)
        far_pool_close(s.pool);
    else
        *subject = s;
    return rc;
}

/* Drops what earlier benchmarks left in the pool. */
static int drop_left(const struct suite *s)
{
    far_pool *pool = NULL;
    far_session *session = NULL;
    if (!tables_dropped(s->config) || !leads(s->config))
        return FAR_OK;
    int rc = far_pool_open(s->config->pool, &pool);
    if (rc == FAR_OK)
        rc = open_session(s->config, pool, &session);
    if (rc == FAR_OK)
        rc = tables_drop_left(session, s->observer);
    far_session_close(session);
    far_pool_close(pool);
    return rc;
}

static int plan_for(const struct suite *s, struct subject *subject, const struct workload *w,
                    unsigned place, bool recorded, unsigned threads, struct workload_plan *plan)
{
    const struct bench_config *c = s->config;
    bool part = recorded && !workload_adds(w) && c->ops > SAMPLED_OPS;
    bool timed = c->least_ns > 0 && place < WORKLOAD_LIST_MAX && !workload_deletes(w);
    struct workload_plan_options options = {
        .keys = subject->keys,
        .load = c->keys,
        .ops = part    ? SAMPLED_OPS
               : timed ? BENCH_COUNT_MAX
                       : c->ops,
        .warm = recorded ? 0 : c->warmup,
        .least_ops = timed ? c->ops : 0,
        .least_ns = timed ? c->least_ns : 0,
        .threads = threads,
        .rate = c->rate,
        .seed = bench_mix(c->seed ^ bench_mix(place + 1)),
        .dist = w->latest && !c->dist_given ? BENCH_DIST_LATEST : c->dist,
        .theta = c->theta,
    };
    return workload_plan_init(plan, w, &options, &subject->dist);
}

/* Runs one workload on the subject. Because of `place`, its index in the list, a workload that is
 * listed twice has other tasks the second time. */
static int run_plan(const struct suite *s, struct subject *subject, const struct workload *w,
                    unsigned place, struct replay_recorder *recorder, const char *what,
                    struct bench_run *run)
{
    const struct bench_config *c = s->config;
    struct workload_plan plan;
    /* What is not measured takes no virtual time: one thread does it from outside of the model. */
    bool outside = subject->model && what != w->name;
    bool alone = recorder || outside;
    int rc =
        plan_for(s, subject, w, place, recorder != NULL, alone ? 1 : bench_worker_total(c), &plan);
    if (rc != FAR_OK)
        return rc;
    if (recorder)
        rc = replay_recorder_init(recorder, plan.ops);
    if (rc == FAR_OK) {
        struct bench_target target = {
            .pool = subject->pool,
            .table = subject->table,
            .depth = alone ? 1 : c->depth,
            .recorder = recorder,
            .team = recorder ? NULL : s->team,
            .model = outside ? NULL : subject->model,
            .what = what,
        };
        rc = bench_measure(c, &target, &plan, s->observer, run);
        subject->keys = workload_plan_leaves(&plan);
        if (rc != FAR_OK && recorder)
            replay_recorder_free(recorder);
    }
    workload_plan_free(&plan);
    return rc;
}

/* Loads the keys for the first measured workload. */
static int load_unmeasured(const struct suite *s, struct subject *subject)
{
    int rc =
        run_plan(s, subject, workload_find("load"), WORKLOAD_LIST_MAX, NULL, "loading", s->run);
    return rc == FAR_OK ? failure(s, "loading the keys") : rc;
}

/* Replays what was recorded of the workload, without an index. */
static int measure_raw(const struct suite *s, const struct subject *twin,
                       const struct replay_recorder *recorder)
{
    const struct bench_config *c = s->config;
    far_session *session = NULL;
    int rc = open_session(c, twin->pool, &session);
    if (rc != FAR_OK)
        return rc;
    struct replay_load load = {
        .session = session,
        .team = s->team,
        .processes = c->processes,
        .threads = c->threads,
        .depth = c->depth,
        .ops = s->run->ops,
        .footprint = s->run->space.index_bytes + s->run->space.block_bytes,
        .seed = c->seed,
        .stop = c->stop,
    };
    const struct far_op_stats *iterate = &s->run->op[FAR_OP_ITERATE].stats;
    if (iterate->count > 0) /* calls were recorded, but entries are counted */
        load.ops = iterate->count;
    rc = replay_run(&load, recorder, &s->run->raw_ops_per_s);
    far_session_close(session);
    if (iterate->count > 0)
        s->run->raw_ops_per_s *= (double)iterate->entries / (double)iterate->count;
    return interrupted(s) ? FAR_OK : rc; /* show what was measured before */
}

/* Runs one workload of the list. With a twin, it is recorded there first, so that the measurements
 * with and without an index follow right after one another. */
static int run_workload(const struct suite *s, struct subjects *on, unsigned place, unsigned repeat)
{
    const struct workload *w = &s->config->workloads.item[place];
    struct replay_recorder recorder;
    bool raw = s->config->raw;
    int rc = FAR_OK;

    if (raw) {
        rc = run_plan(s, &on->twin, w, place, &recorder, "sampling", s->run);
        if (rc != FAR_OK)
            return rc;
        rc = halted(s) ? failure(s, "recording the verbs for --raw") : recorder.status;
    }
    if (rc == FAR_OK && !interrupted(s)) {
        rc = run_plan(s, &on->measured, w, place, NULL, w->name, s->run);
        bool measured = rc == FAR_OK;
        s->run->place = place;
        s->run->repeat = repeat;
        if (measured && raw && !interrupted(s) && !halted(s) && s->run->ops > 0)
            rc = measure_raw(s, &on->twin, &recorder);
        if (measured)
            s->observer->run(s->observer->arg, s->run);
    }
    if (raw)
        replay_recorder_free(&recorder);
    return rc;
}

static int run_list(const struct suite *s, struct subjects *on, unsigned repeat)
{
    const struct workload_list *list = &s->config->workloads;
    int rc = FAR_OK;

    if (on->empty && !workload_is_load(&list->item[0])) {
        rc = load_unmeasured(s, &on->measured);
        if (rc == FAR_OK && s->config->raw)
            rc = load_unmeasured(s, &on->twin);
    }
    on->empty = false;
    for (unsigned i = 0; i < list->count && rc == FAR_OK && !interrupted(s) && !halted(s); i++)
        rc = run_workload(s, on, i, repeat);
    return rc;
}

static void subjects_close(const struct suite *s, struct subjects *on, bool drop)
{
    subject_close(s, &on->twin, drop);
    subject_close(s, &on->measured, drop);
    *on = (struct subjects){.empty = true};
}

/* Unless FAR_OK, there is nothing to close. */
static int subjects_open(const struct suite *s, const char *index, struct subjects *on)
{
    *on = (struct subjects){.empty = true};
    int rc = subject_open(s->config, index, "", &on->measured);
    if (rc == FAR_OK && s->config->raw)
        rc = subject_open(s->config, index, "-twin", &on->twin);
    if (rc != FAR_OK)
        subjects_close(s, on, tables_dropped(s->config));
    return rc;
}

/* Do all runs find the same keys, whatever ran before? */
static bool keeps_keys(const struct workload_list *list)
{
    bool kept = true;
    for (unsigned i = 0; i < list->count; i++)
        kept &= !workload_adds(&list->item[i]) && !workload_deletes(&list->item[i]);
    return kept;
}

static int run_repeats(const struct suite *s, const char *index, struct subjects *on)
{
    int rc = run_list(s, on, 0);
    for (unsigned i = 1; i < s->config->repeat; i++) {
        if (rc != FAR_OK || interrupted(s) || halted(s))
            return rc;
        if (!keeps_keys(&s->config->workloads)) {
            subjects_close(s, on, tables_last(s->config));
            rc = subjects_open(s, index, on);
        }
        if (rc == FAR_OK)
            rc = run_list(s, on, i);
    }
    return rc;
}

static int run_index(const struct suite *s, const char *index)
{
    struct subjects on;
    s->run->halted_by = FAR_OK;
    int rc = subjects_open(s, index, &on);
    if (rc != FAR_OK)
        return rc;
    s->observer->index_begin(s->observer->arg, index);
    rc = run_repeats(s, index, &on);
    s->observer->index_done(s->observer->arg, index);
    subjects_close(s, &on, tables_dropped(s->config));
    return rc;
}

/* Do all measured indexes know the tuning? */
static int check_tuning(const struct bench_config *c)
{
    const struct index_ops *ops = NULL;
    uint64_t value[TUNING_MAX];
    int rc = FAR_OK;
    if (c->index) {
        ops = index_find(c->index);
        return ops ? tuning_parse(ops->name, ops->tuning, c->tuning, value) : FAR_OK;
    }
    for (unsigned i = 0; (ops = index_at(i)) != NULL && rc == FAR_OK; i++)
        rc = tuning_parse(ops->name, ops->tuning, c->tuning, value);
    return rc;
}

/* The error for a workload that scans, with an index that keeps no order. */
static int refuse_scan(const struct workload *w, const char *index)
{
    char names[INDEX_NAMES_BYTES];
    return err_fail(
        FAR_INVALID,
        "workload '%s' scans ranges of keys, but index %s keeps no order (ordered indexes in this "
        "build: %s)",
        w->name, index, index_ordered_names(names));
}

/* Can the index run the workloads? An index that does not exist is refused later. */
static int check_index(const struct bench_config *c, const char *index)
{
    const struct index_ops *ops = index_find(index);
    for (unsigned i = 0; ops && i < c->workloads.count; i++)
        if (workload_scans(&c->workloads.item[i]) && !ops->ordered)
            return refuse_scan(&c->workloads.item[i], index);
    return FAR_OK;
}

static int check_indexes(const struct bench_config *c)
{
    int rc = c->index ? check_index(c, c->index) : FAR_OK;
    for (unsigned i = 0; !c->index && rc == FAR_OK && far_index_name(i); i++)
        rc = check_index(c, far_index_name(i));
    return rc;
}

static int check_sizes(const struct bench_sizes *s)
{
    if (s->key.min > s->key.max || s->value.min > s->value.max)
        return err_fail(FAR_INVALID, "a range of sizes must not end before it begins");
    if (s->key.min < BENCH_KEY_MIN || s->key.max > FAR_KEY_MAX)
        return err_fail(FAR_INVALID, "keys must have %u to %u bytes", BENCH_KEY_MIN, FAR_KEY_MAX);
    if (s->value.max > FAR_VALUE_MAX)
        return err_fail(FAR_INVALID, "values must not have more than %u bytes", FAR_VALUE_MAX);
    if (s->value.min < s->value.max && s->value.min < BENCH_VALUE_VARIED_MIN)
        return err_fail(FAR_INVALID,
                        "values of different sizes must have at least %u bytes, by which their "
                        "sizes are checked, not %u",
                        BENCH_VALUE_VARIED_MIN, s->value.min);
    return FAR_OK;
}

int bench_take_shape(struct bench_config *c)
{
    struct model_shape shape;
    if (!model_named(c->pool))
        return FAR_OK;
    int rc = model_shape(c->pool, &shape);
    if (rc != FAR_OK)
        return rc;
    if (c->processes > 1 || c->threads > 1 || c->depth > 1)
        return err_fail(FAR_INVALID,
                        "the clients of " MODEL_SCHEME
                        ": are in its URI (machines=, threads=, depth=), not in options");
    c->threads = shape.machines * shape.threads;
    c->depth = shape.depth;
    c->window_ns = MODEL_WINDOW_NS;
    return FAR_OK;
}

int bench_check(const struct bench_config *c)
{
    if (c->keys == 0 || c->ops == 0 || c->processes == 0 || c->threads == 0 || c->depth == 0 ||
        c->repeat == 0 || c->workloads.count == 0)
        return err_fail(FAR_INVALID,
                        "keys, operations, processes, threads, depth, repeats and workloads must "
                        "not be 0");
    if (c->keys > BENCH_COUNT_MAX || c->ops > BENCH_COUNT_MAX || c->warmup > BENCH_COUNT_MAX ||
        c->depth > FAR_DEPTH_MAX)
        return err_fail(FAR_INVALID,
                        "at most %u keys and operations and a depth of %u are possible",
                        BENCH_COUNT_MAX, FAR_DEPTH_MAX);
    if (c->processes > BENCH_THREADS_MAX || c->threads > BENCH_THREADS_MAX / c->processes ||
        bench_worker_total(c) > BENCH_THREADS_MAX)
        return err_fail(FAR_INVALID, "too many threads: at most %u in all processes%s together",
                        BENCH_THREADS_MAX, c->machines > 1 ? " of all machines" : "");
    if (c->machines > 1 && c->processes > 1)
        return err_fail(FAR_INVALID, "--machines has one process for each rank: leave --processes "
                                     "out, and start several ranks on a machine");
    if (c->machines > 1 && c->raw)
        return err_fail(FAR_INVALID, "--raw compares with the verbs of one machine: leave it out, "
                                     "or --machines");
    if (c->processes > 1 && strncmp(c->pool, "mem:", 4) == 0)
        return err_fail(FAR_INVALID, "mem: is memory of one process; for several use shm:, ucx: or "
                                     "verbs:");
    if (c->raw && model_named(c->pool))
        return err_fail(FAR_INVALID, "--raw measures real time, which " MODEL_SCHEME
                                     ": does not have: leave it out, or use another pool");
    if (c->deaths > 0 && !model_named(c->pool))
        return err_fail(FAR_INVALID,
                        "--deaths needs clients that are modelled: use it with --pool " MODEL_SCHEME
                        ":, or leave it out");
    if (c->least_ns > 0 && c->workloads.count > 1)
        return err_fail(FAR_INVALID, "a run that lasts for a time must be the only one");
    if (c->counters && model_named(c->pool))
        return err_fail(FAR_INVALID, "--counters is about real threads, which " MODEL_SCHEME
                                     ": does not have: leave it out, or use another pool");
    if (c->raw && c->rate > 0)
        return err_fail(FAR_INVALID, "--raw compares throughputs, but --rate sets it: leave one of "
                                     "them out");
    if (c->batch && (c->depth == 1 || c->rate > 0))
        return err_fail(FAR_INVALID, "--batch executes --depth operations at a time: %s",
                        c->rate > 0 ? "leave it out, or --rate" : "say how many");
    if (c->rate > PACE_RATE_MAX)
        return err_fail(FAR_INVALID, "a rate of at most %u operations per second is possible",
                        PACE_RATE_MAX);
    if (!(c->theta > 0 && isfinite(c->theta)))
        return err_fail(FAR_INVALID, "theta must be greater than 0, not %g", c->theta);
    int rc = check_sizes(&c->sizes);
    if (rc == FAR_OK)
        rc = check_tuning(c);
    if (rc == FAR_OK)
        rc = check_indexes(c);
    return rc == FAR_OK ? workload_check(&c->workloads, c->keys, c->ops + c->warmup) : rc;
}

/* What a process of the team does for each order. Nothing stays open in between. */
static int serve(void *arg, struct workers_process *process)
{
    const struct bench_config *config = arg;
    enum bench_order order = *(const enum bench_order *)process->memory;
    far_pool *pool = NULL;
    int rc = far_pool_open(config->pool, &pool);
    if (rc == FAR_OK)
        rc = order == BENCH_MEASURE ? bench_measure_serve(config, process, pool)
                                    : replay_serve(process, pool);
    far_pool_close(pool);
    return rc;
}

static int start_team(const struct bench_config *config, struct workers_team **team)
{
    size_t measure = bench_measure_shared_bytes(bench_worker_count(config));
    size_t replay = replay_shared_bytes(bench_worker_count(config));
    return workers_team_start(config->processes, config->threads,
                              measure > replay ? measure : replay, config->stop, serve,
                              (void *)(uintptr_t)config, team);
}

static int run_indexes(const struct suite *s)
{
    const char *name = NULL;
    int rc = FAR_OK;
    if (s->config->index)
        return run_index(s, s->config->index);
    for (unsigned i = 0; (name = far_index_name(i)) != NULL; i++) {
        rc = run_index(s, name);
        if (rc != FAR_OK || interrupted(s) || status_means(s->run->halted_by, STATUS_FABRIC))
            break;
    }
    return rc;
}

int bench_suite(const struct bench_config *config, const struct bench_observer *observer)
{
    int rc = bench_check(config);
    if (rc != FAR_OK)
        return rc;

    struct suite suite = {.config = config, .observer = observer};
    if (config->processes > 1) /* before anything that does not survive a fork */
        rc = start_team(config, &suite.team);
    if (rc != FAR_OK)
        return rc;
    suite.run = calloc(1, sizeof *suite.run);
    rc = suite.run ? drop_left(&suite)
                   : err_fail(FAR_NO_MEMORY, "no memory for the results of a run");
    if (rc == FAR_OK)
        rc = run_indexes(&suite);
    free(suite.run);
    workers_team_end(suite.team);
    if (config->meet && rc == FAR_STOPPED) { /* by another machine */
        meet_set_stop(config->meet);
        rc = FAR_OK;
    }
    return rc;
}
