/* All workers together: starting them, and summing up what they did. */
#include "bench/runner.h"
#include "base/err.h"
#include "bench/keys.h"
#include "bench/meet.h"
#include "bench/merge.h"
#include "bench/summary.h"
#include "bench/worker.h"
#include "bench/workers.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOWS_MIN 5u /* to tell the slowest from the others */

/* The least of them, as a part of the median. */
static double least_of_median(double *number, unsigned count)
{
    summary_sort(number, count);
    return number[count / 2] > 0 ? number[0] / number[count / 2] : 0;
}

/* Finds the slowest of the first windows, which all workers have filled. */
static void find_slowest(struct bench_run *run)
{
    double number[BENCH_WINDOWS_MAX];
    unsigned windows = run->windows_filled;
    if (windows < WINDOWS_MIN)
        return;
    for (unsigned n = 0; n < windows; n++)
        number[n] = (double)run->window[n].ops;
    run->slowest_ops = least_of_median(number, windows);
    for (unsigned n = 0; n < windows; n++) {
        const struct bench_window *at = &run->window[n];
        number[n] = at->rtts > 0 ? (double)at->ops / (double)at->rtts : 0;
    }
    run->slowest_ops_per_rtt = least_of_median(number, windows);
}

static void sum_windows(struct bench_run *run, const struct worker *workers, unsigned count)
{
    unsigned filled_by_all = BENCH_WINDOWS_MAX;
    for (unsigned i = 0; i < count; i++) {
        const struct worker *w = &workers[i];
        uint64_t before = 0;
        for (unsigned n = 0; n <= w->windows; n++) {
            run->window[n].ops += w->window[n].ops;
            run->window[n].rtts += w->window[n].rtts - before;
            before = w->window[n].rtts;
        }
        if (w->windows > run->windows)
            run->windows = w->windows;
        if (w->windows < filled_by_all)
            filled_by_all = w->windows;
    }
    run->windows_filled = filled_by_all;
}

#define BEHIND_PART 100 /* of the planned time */

static void sum_pace(struct bench_run *run, const struct worker *workers, unsigned count)
{
    struct bench_pace *sum = &run->pace;
    for (unsigned i = 0; i < count && workers[i].pace.rate > 0; i++) {
        const struct pace *p = &workers[i].pace;
        sum->rate = p->rate;
        sum->late_max = p->late_max > sum->late_max ? p->late_max : sum->late_max;
        sum->late_last = p->late > sum->late_last ? p->late : sum->late_last;
        sum->fell_behind |= p->late > (pace_due(p) - p->start) / BEHIND_PART;
    }
}

static int sum_up(struct bench_run *run, const struct worker *workers, unsigned count)
{
    uint64_t busy = 0;
    int rc = FAR_OK;
    for (unsigned i = 0; i < count; i++) {
        const struct worker *w = &workers[i];
        run->ops += w->tasks_done;
        run->warmup += w->warmed;
        counters_add(&run->counters, &w->counters.sum);
        run->deaths += w->lives > 0 ? w->lives - 1 : 0;
        if (w->busy > busy)
            busy = w->busy;
        if (run->first_error == FAR_OK)
            run->first_error = w->first_error;
        if (run->halted_by == FAR_OK && w->halted_by != FAR_OK) {
            run->halted_by = w->halted_by;
            snprintf(run->detail, sizeof run->detail, "%s", w->detail);
        }
        for (unsigned k = 0; k < FAR_OP_KINDS; k++) {
            run->op[k].wrong += w->wrong[k];
            bench_stats_add(&run->op[k].stats, &w->before.op[k], &w->after.op[k]);
            bench_stats_add(&run->op[k].stats, &(struct far_op_stats){0}, &w->of_dead.op[k]);
            hist_merge(&run->op[k].latency, &w->latency[k]);
        }
        run->space_known |= i == 0 && w->info_known;
        if (i == 0)
            run->space = w->info;
        else
            bench_add_splits(&run->space, &w->info);
        if (rc == FAR_OK)
            rc = w->info_status;
    }
    sum_windows(run, workers, count);
    sum_pace(run, workers, count);
    run->seconds = (double)busy / 1e9;
    run->ops_per_s = busy > 0 ? (double)run->ops / run->seconds : 0;
    return run->halted_by == FAR_OK ? rc : FAR_OK; /* what was measured is worth showing */
}

/* A plan that runs. Processes share it, and what it points to. */
struct measurement {
    enum bench_order order;
    struct workload_plan plan;
    unsigned depth;
    char table[FAR_NAME_MAX + 1];
    atomic_bool halt;
    unsigned count;
    _Alignas(64) struct worker worker[];
};

struct onlooker {
    const struct bench_observer *observer;
    const char *index, *what;
    const struct measurement *run;
    struct model_load load;
    uint64_t ops; /* of these workers */
    struct meet *meet;
};

static void show_progress(void *arg)
{
    const struct onlooker *watch = arg;
    uint64_t done = 0;
    for (unsigned i = 0; i < watch->run->count; i++)
        done += atomic_load_explicit(&watch->run->worker[i].done, memory_order_relaxed);
    watch->observer->progress(watch->observer->arg, watch->index, watch->what, done, watch->ops);
}

/* All workers of this machine have come to the next part of a run. Machines that wait for long look
 * seldom, so after the first step they are some milliseconds apart; after the second, one at
 * most. */
static int meet_others(void *arg, int status)
{
    const struct onlooker *watch = arg;
    status = meet_agree(watch->meet, status);
    return status == FAR_OK ? meet_agree(watch->meet, FAR_OK) : status;
}

/* From here on, the network's load counts, and clients die. */
static void begin_modelled(void *arg)
{
    const struct onlooker *watch = arg;
    const struct worker *w = &watch->run->worker[0];
    model_load_begin(w->target->model);
    model_let_die(w->target->model, w->config->deaths, w->config->seed);
}

static void end_modelled(void *arg)
{
    struct onlooker *watch = arg;
    model_load(watch->run->worker[0].target->model, &watch->load);
}

static size_t measurement_bytes(unsigned workers)
{
    return sizeof(struct measurement) + workers * sizeof(struct worker);
}

size_t bench_measure_shared_bytes(unsigned workers)
{
    return measurement_bytes(workers) + workers * sizeof(struct workload_added);
}

/* Runs the workers of one process, with its own handles of the pool and the table. */
static int run_workers(struct worker *workers, unsigned count, const struct bench_config *config,
                       const struct bench_target *target, struct onlooker *watch,
                       struct workers_process *process)
{
    struct workers_job job = {
        .open = worker_open,
        .warm = worker_warm,
        .run = worker_run,
        .close = worker_close,
        .begin = target->model ? begin_modelled : NULL,
        .end = target->model ? end_modelled : NULL,
        .tick = watch && watch->observer->progress ? show_progress : NULL,
        .meet = watch && config->meet ? meet_others : NULL,
        .arg = watch,
        .first = workers,
        .size = sizeof *workers,
        .count = count,
    };
    for (unsigned i = 0; i < count; i++) {
        workers[i].config = config;
        workers[i].target = target;
        workers[i].driver = target->driver ? target->driver : &session_driver;
    }
    return target->model ? workers_run_modelled(&job, target->model) : workers_run(&job, process);
}

int bench_measure_serve(const struct bench_config *config, struct workers_process *process,
                        far_pool *pool)
{
    struct measurement *r = process->memory;
    struct bench_config mine = *config;
    struct bench_target target = {.pool = pool, .depth = r->depth};
    struct far_session_options options = {.depth = 1, .seed = bench_mix(config->seed) | 1};
    far_session *session = NULL;

    mine.stop = process->stop;
    int rc = far_session_open(pool, &options, &session);
    if (rc == FAR_OK)
        rc = far_table_open(session, r->table, NULL, &target.table);
    far_session_close(session);
    if (rc != FAR_OK)
        return rc;
    return run_workers(r->worker + process->number * mine.threads, mine.threads, &mine, &target,
                       NULL, process);
}

/* Workers `first` to `first + count - 1` of the plan. */
static void measurement_init(struct measurement *r, const struct bench_target *target,
                             const struct workload_plan *plan, unsigned first, unsigned count)
{
    memset(r, 0, measurement_bytes(count));
    r->order = BENCH_MEASURE;
    r->plan = *plan;
    r->depth = target->depth;
    r->count = count;
    if (target->team) {
        snprintf(r->table, sizeof r->table, "%s", far_table_name(target->table));
        r->plan.added = (struct workload_added *)(void *)&r->worker[r->count];
        memset(r->plan.added, 0, plan->threads * sizeof *r->plan.added);
    }
    for (unsigned i = 0; i < r->count; i++) {
        r->worker[i].plan = &r->plan;
        r->worker[i].thread = first + i;
        r->worker[i].halt = &r->halt;
        for (unsigned k = 0; k < FAR_OP_KINDS; k++)
            hist_clear(&r->worker[i].latency[k]);
    }
}

int bench_measure(const struct bench_config *config, const struct bench_target *target,
                  const struct workload_plan *plan, const struct bench_observer *observer,
                  struct bench_run *run)
{
    ASSERT(plan->threads <= BENCH_THREADS_MAX && config->window_ns > 0);
    ASSERT(!target->recorder || (plan->threads == 1 && target->depth == 1 && !target->team));
    /* Those of other machines are measured there. */
    unsigned first = config->meet ? bench_workers_before(config) : 0;
    unsigned count = config->meet ? bench_worker_count(config) : plan->threads;
    void *own = NULL;
    if (!target->team)
        own = aligned_alloc(_Alignof(struct measurement), measurement_bytes(count));
    struct measurement *r = target->team ? workers_team_memory(target->team) : own;
    if (!r)
        return err_fail(FAR_NO_MEMORY, "no memory for %u threads", count);
    measurement_init(r, target, plan, first, count);

    struct onlooker watch = {
        .observer = observer,
        .index = target->driver ? target->name : far_table_index(target->table),
        .what = target->what,
        .run = r,
        .ops = plan->ops * count / plan->threads,
        .meet = config->meet,
    };
    if (config->meet)
        meet_watch_added(config->meet, r->plan.added, plan->threads, first, count);
    int rc = target->team
                 ? workers_team_run(target->team, observer->progress ? show_progress : NULL, &watch)
                 : run_workers(r->worker, r->count, config, target, &watch, NULL);
    if (config->meet)
        meet_watch_added(config->meet, NULL, 0, 0, 0);
    if (rc != FAR_OK)
        goto free_workers;

    memset(run, 0, sizeof *run);
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        hist_clear(&run->op[k].latency);
    run->index = watch.index;
    run->workload = plan->workload->name;
    run->draws_keys = workload_draws(plan->workload);
    run->dist = plan->dist.kind;
    run->ops_planned = plan->ops - plan->warm;
    run->load = watch.load;
    rc = sum_up(run, r->worker, r->count);
    if (plan->least_ns > 0)
        run->ops_planned = run->ops;
    run->interrupted = config->stop && atomic_load(config->stop);
    if (config->meet)
        rc = merge_runs(config->meet, rc, run);
    /* A run has fewer operations also if an iteration failed, or if clients died. */
    run->interrupted &= run->ops < run->ops_planned && run->halted_by == FAR_OK;
    if (config->meet && run->interrupted)
        meet_set_stop(config->meet);
    find_slowest(run);
    if (observer->progress)
        observer->progress(observer->arg, watch.index, watch.what, plan->ops, plan->ops);

free_workers:
    free(own);
    return rc;
}
