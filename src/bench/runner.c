/*
 * The runner: workers that draw tasks and execute them.
 *
 * A lane is one operation in flight with its buffers. At depth 1, a worker has one lane and calls
 * the synchronous functions; at larger depths, it keeps its lanes filled through the ring. A worker
 * draws a few thousand tasks at a time, with nothing in flight and the clock stopped, so the time
 * for drawing keys is not measured.
 */
#include "bench/runner.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/status.h"
#include "bench/keys.h"
#include "bench/replay.h"
#include "bench/workers.h"
#include "model/model.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tasks drawn at a time: enough that draining the lanes before each draw costs nothing. */
#define DRAW_PER_LANE 256u
#define DRAW_LANES    16u

/* The buffer of an iteration: worth a round trip, and large enough for the longest entry. */
#define ITERATE_BYTES (1u << 20)

struct lane {
    struct workload_task task;
    uint64_t number;
    uint64_t started;
    uint64_t cursor; /* of an iteration */
    const struct bench_sizes *sizes;
    unsigned char *key, *value, *buf, *expected;
    size_t key_size;
    bool right; /* modify: the old value was one of that key */
};

#define WINDOWS_MIN 5u /* to tell the slowest from the others */

/* What one worker did in a window of time. */
struct window {
    uint32_t ops;
    uint64_t rtts; /* of the session when it ended */
};

struct worker {
    const struct bench_config *config;
    const struct bench_target *target;
    const struct workload_plan *plan;
    unsigned thread;
    atomic_bool *halt; /* of all workers: set by one that cannot go on */

    far_session *session;
    struct workload_source source;
    struct workload_task *tasks;
    unsigned tasks_max;
    unsigned drawn, next; /* of the tasks: how many there are, and the first that was not begun */
    struct lane *lanes;
    unsigned char *lane_memory;
    unsigned *idle, idle_count;
    struct far_result *results;

    uint64_t tasks_done;
    uint64_t inserted; /* new keys that exist */
    uint64_t busy;     /* nanoseconds, until the tasks of `started` began */
    uint64_t started;
    unsigned windows; /* the one that the worker is in */
    struct window window[BENCH_WINDOWS_MAX];
    int first_error; /* of an operation */
    int halted_by;   /* the error after which this worker set `halt` */
    char detail[ERR_DETAIL_BYTES];
    int info_status; /* of far_table_info() at the end */
    unsigned lives;
    struct far_stats of_dead; /* what its sessions did that died */
    struct far_stats before, after;
    struct far_table_info info;
    bool info_known;
    uint64_t wrong[FAR_OP_KINDS];
    struct hist latency[FAR_OP_KINDS];
    _Alignas(64) _Atomic uint64_t done; /* on its own cache line: the leader reads it */
};

static uint64_t now_ns(const struct worker *w)
{
    return w->target->model ? model_now(w->target->model) : clock_ns();
}

/* ---- one operation --------------------------------------------------------------------------- */

static bool stopped(const struct worker *w)
{
    return atomic_load_explicit(w->halt, memory_order_relaxed) ||
           (w->config->stop && atomic_load_explicit(w->config->stop, memory_order_relaxed));
}

/* Stops all workers because of an error. */
static void halt(struct worker *w, int status)
{
    if (w->halted_by != FAR_OK)
        return;
    w->halted_by = status;
    snprintf(w->detail, sizeof w->detail, "%s", far_error_detail());
    atomic_store(w->halt, true);
}

/* Notes an error of an operation. After some, all that follow would fail like it: then the workers
 * stop. */
static void note_error(struct worker *w, int status)
{
    bool hopeless =
        status == FAR_POOL_FULL || status == FAR_TABLE_FULL || status_means(status, STATUS_FABRIC);
    if (w->first_error == FAR_OK)
        w->first_error = status;
    if (hopeless)
        halt(w, status);
}

/* The bytes that the buffer of an operation must have. */
static size_t buf_bytes(const struct bench_config *c, const struct workload *w)
{
    size_t key = c->sizes.key.max, value = c->sizes.value.max;
    size_t entry = 16 + key + value; /* 16: the lengths, and some more */
    if (workload_scans(w))
        return WORKLOAD_SCAN_MAX * entry;
    if (workload_iterates(w))
        return entry > ITERATE_BYTES ? entry : ITERATE_BYTES;
    return value;
}

static void lane_begin(struct worker *w, struct lane *l, const struct workload_task *task,
                       uint64_t now)
{
    l->task = *task;
    l->number = workload_task_number(w->plan, task);
    l->started = now;
    l->cursor = 0;
    if (w->target->model)
        model_operation(w->target->model);
    l->key_size = bench_key_size(l->sizes, l->number);
    bench_key_write(l->number, l->key, l->key_size);
}

static enum far_decision count_one(void *arg, const void *old, size_t old_len, const void **value,
                                   size_t *value_len)
{
    struct lane *l = arg;
    l->right = old && bench_value_right(l->sizes, l->number, old, old_len);
    if (!l->right)
        return FAR_KEEP;
    *value = l->value;
    *value_len = bench_value_next(l->sizes, l->number, old, old_len, l->value);
    return FAR_STORE;
}

static struct far_op lane_op(struct worker *w, struct lane *l)
{
    struct far_op op = {
        .kind = l->task.kind,
        .table = w->target->table,
        .key = l->key,
        .key_len = l->key_size,
        .user_data = (uint64_t)(l - w->lanes),
    };
    if (op.kind == FAR_OP_GET || op.kind == FAR_OP_SCAN || op.kind == FAR_OP_ITERATE) {
        op.buf = l->buf;
        op.cap =
            op.kind == FAR_OP_GET ? l->sizes->value.max : buf_bytes(w->config, w->plan->workload);
        op.limit = l->task.limit;
        op.cursor = l->cursor;
    } else if (op.kind == FAR_OP_MODIFY) {
        op.modify = count_one;
        op.modify_arg = l;
    } else if (op.kind != FAR_OP_DELETE) {
        op.value = l->value;
        op.value_len = bench_value_size(l->sizes, l->number, w->tasks_done);
        bench_value_write(l->number, w->tasks_done, l->value, op.value_len);
    }
    return op;
}

/* Does the entry of a scan come after the key before it, or is it the first? That is the key of the
 * task, which exists. The first bytes of any two keys differ. */
static bool entry_in_order(const struct lane *l, const struct far_entry *e, const void *before)
{
    if (before)
        return memcmp(e->key, before, BENCH_KEY_MIN) > 0;
    return e->key_len == l->key_size && memcmp(e->key, l->key, e->key_len) == 0;
}

/* Are these entries of the table, the right number of them, and in order if it is a scan? */
static bool entries_right(const struct lane *l, const struct far_result *r)
{
    bool scan = l->task.kind == FAR_OP_SCAN;
    const void *before = NULL;
    unsigned count = 0;
    struct far_entry e;
    for (size_t pos = 0; far_entry_next(l->buf, r->len, &pos, &e); count++) {
        if (!bench_entry_right(l->sizes, &e, l->expected) ||
            (scan && !entry_in_order(l, &e, before)))
            return false;
        before = e.key;
    }
    return count == r->count && (!scan || (count > 0 && count <= l->task.limit));
}

static bool answer_right(const struct lane *l, const struct far_result *r)
{
    switch (l->task.kind) {
    case FAR_OP_GET:
        return bench_value_right(l->sizes, l->number, l->buf, r->len);
    case FAR_OP_MODIFY:
        return l->right;
    case FAR_OP_SCAN:
    case FAR_OP_ITERATE:
        return entries_right(l, r);
    default:
        return true;
    }
}

static uint64_t rtts_between(const struct far_stats *before, const struct far_stats *after)
{
    uint64_t rtts = 0;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        rtts += after->op[k].rtts - before->op[k].rtts;
    return rtts;
}

/* The round trips of all sessions of the worker, of which the last has these statistics. */
static uint64_t rtts_so_far(const struct worker *w, const struct far_stats *stats)
{
    static const struct far_stats none;
    return rtts_between(&none, &w->of_dead) + rtts_between(&w->before, stats);
}

/* Counts tasks in their window of time. */
static void count_window(struct worker *w, unsigned tasks, uint64_t now)
{
    uint64_t at = (w->busy + now - w->started) / w->config->window_ns;
    if (at > w->windows && w->windows + 1 < BENCH_WINDOWS_MAX) {
        struct far_stats stats;
        far_stats(w->session, w->target->table, &stats);
        uint64_t rtts = rtts_so_far(w, &stats);
        while (w->windows < at && w->windows + 1 < BENCH_WINDOWS_MAX)
            w->window[w->windows++].rtts = rtts;
    }
    w->window[w->windows].ops += tasks;
}

/* Records a result. True if the task goes on with another operation, which starts now. */
static bool lane_end(struct worker *w, struct lane *l, const struct far_result *r, uint64_t now)
{
    hist_record(&w->latency[l->task.kind], now - l->started);
    if (r->status == FAR_OK)
        w->wrong[l->task.kind] += !answer_right(l, r);
    else if (r->status != FAR_NOT_FOUND)
        note_error(w, r->status);
    bool iterates = l->task.kind == FAR_OP_ITERATE, goes_on = false;
    if (l->task.then_update && r->status == FAR_OK) {
        l->task.then_update = false;
        l->task.kind = FAR_OP_UPDATE;
        l->started = now;
        return true;
    }
    if (iterates && r->status == FAR_OK) {
        l->cursor = r->cursor;
        l->started = now;
        goes_on = r->cursor != 0 && !stopped(w);
    }
    w->inserted += l->task.kind == FAR_OP_INSERT;
    w->tasks_done += iterates ? r->count : 1;
    count_window(w, iterates ? r->count : 1, now);
    atomic_store_explicit(&w->done, w->tasks_done, memory_order_relaxed);
    return goes_on;
}

/* Call with nothing in flight: then all keys that were added exist, and others may draw them. */
static void publish_inserted(struct worker *w)
{
    atomic_store_explicit(&w->plan->added[w->thread].count, w->inserted, memory_order_release);
}

/* ---- depth 1: synchronous calls -------------------------------------------------------------- */

static void work_sync(struct worker *w)
{
    struct lane *l = &w->lanes[0];
    uint64_t now = now_ns(w);

    while (w->next < w->drawn && !stopped(w)) {
        bool more = true, first = true;
        /* The end of one operation is the start of the next: one look at the clock serves both. */
        lane_begin(w, l, &w->tasks[w->next++], now);
        while (more) {
            struct far_op op = lane_op(w, l);
            struct far_result result = {.status = FAR_OK};
            if (w->target->recorder && (first || op.kind == FAR_OP_ITERATE))
                replay_recorder_next(w->target->recorder);
            first = false;
            (void)far_execute(w->session, &op, &result);
            now = now_ns(w);
            more = lane_end(w, l, &result, now);
        }
        if (l->task.kind == FAR_OP_INSERT)
            publish_inserted(w);
    }
}

/* ---- deeper: the ring ------------------------------------------------------------------------ */

static void submit(struct worker *w, struct lane *l)
{
    struct far_op op = lane_op(w, l);
    int rc = far_submit(w->session, &op);
    ASSERT(rc == FAR_OK); /* warm_up() made the ring, and it is as deep as there are lanes */
}

static void work_ring(struct worker *w)
{
    unsigned depth = w->target->depth;

    for (;;) {
        while (w->next < w->drawn && w->idle_count > 0 && !stopped(w)) {
            struct lane *l = &w->lanes[w->idle[--w->idle_count]];
            lane_begin(w, l, &w->tasks[w->next++], now_ns(w));
            submit(w, l);
        }
        unsigned n = far_reap(w->session, w->results, depth, 1);
        if (n == 0) /* nothing is in flight: all done, or stopped */
            break;
        uint64_t now = now_ns(w);
        for (unsigned i = 0; i < n; i++) {
            const struct far_result *r = &w->results[i];
            ASSERT(r->user_data < depth);
            struct lane *l = &w->lanes[r->user_data];
            if (lane_end(w, l, r, now))
                submit(w, l);
            else
                w->idle[w->idle_count++] = (unsigned)r->user_data;
        }
    }
    ASSERT(w->idle_count == depth);
    publish_inserted(w);
}

/* ---- a worker's life ------------------------------------------------------------------------- */

static int lanes_alloc(struct worker *w)
{
    size_t key = w->config->sizes.key.max, value = w->config->sizes.value.max;
    size_t bytes = 2 * key + value + buf_bytes(w->config, w->plan->workload);
    unsigned depth = w->target->depth;

    w->lanes = calloc(depth, sizeof *w->lanes);
    w->lane_memory = malloc(depth * bytes);
    w->idle = calloc(depth, sizeof *w->idle);
    w->results = calloc(depth, sizeof *w->results);
    w->tasks_max = DRAW_PER_LANE * (depth > DRAW_LANES ? depth : DRAW_LANES);
    w->tasks = calloc(w->tasks_max, sizeof *w->tasks);
    if (!w->lanes || !w->lane_memory || !w->idle || !w->results || !w->tasks)
        return err_fail(FAR_NO_MEMORY, "no memory for the buffers of %u operations", depth);

    for (unsigned i = 0; i < depth; i++) {
        struct lane *l = &w->lanes[i];
        l->sizes = &w->config->sizes;
        l->key = w->lane_memory + i * bytes;
        l->value = l->key + key;
        l->expected = l->value + value;
        l->buf = l->expected + key;
        bench_value_init(l->value, value);
        w->idle[w->idle_count++] = i;
    }
    return FAR_OK;
}

/* The first operation of a session makes its ring and fills its caches; neither is measured. */
static int warm_up(struct worker *w)
{
    struct far_result result;
    struct far_op op = {.kind = FAR_OP_EXISTS, .table = w->target->table, .key = "", .key_len = 1};

    if (w->target->depth == 1) {
        (void)far_execute(w->session, &op, &result);
    } else {
        int rc = far_submit(w->session, &op);
        if (rc != FAR_OK)
            return rc;
        unsigned n = far_reap(w->session, &result, 1, 1);
        ASSERT(n == 1);
    }
    return result.status == FAR_NOT_FOUND ? FAR_OK : result.status;
}

static void stats_add(struct far_op_stats *sum, const struct far_op_stats *before,
                      const struct far_op_stats *after)
{
    sum->count += after->count - before->count;
    sum->not_found += after->not_found - before->not_found;
    sum->exists += after->exists - before->exists;
    sum->errors += after->errors - before->errors;
    sum->rtts += after->rtts - before->rtts;
    sum->verbs += after->verbs - before->verbs;
    sum->bytes_read += after->bytes_read - before->bytes_read;
    sum->bytes_written += after->bytes_written - before->bytes_written;
    sum->entries += after->entries - before->entries;
    for (unsigned i = 0; i < FAR_RTTS_TOLD; i++)
        sum->took[i] += after->took[i] - before->took[i];
}

static int open_session(struct worker *w)
{
    struct far_session_options options = {
        .depth = w->target->depth,
        .seed = bench_mix(w->plan->seed + w->thread + ((uint64_t)w->lives << 32)) | 1,
    };
    int rc = far_session_open(w->target->pool, &options, &w->session);
    if (rc == FAR_OK)
        rc = warm_up(w);
    if (rc == FAR_OK)
        far_stats(w->session, w->target->table, &w->before);
    return rc;
}

static int worker_open(void *arg)
{
    struct worker *w = arg;
    workload_source_init(&w->source, w->plan, w->thread);
    int rc = lanes_alloc(w);
    if (rc == FAR_OK)
        rc = open_session(w);
    if (rc == FAR_OK && w->target->recorder)
        replay_recorder_attach(w->target->recorder, w->session);
    return rc;
}

/* Adds up what the session of a client that died has done. The session is left as it is: nobody
 * closes the session of a client that has died. */
static void leave_session(struct worker *w)
{
    struct far_stats last;
    far_stats(w->session, w->target->table, &last);
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        stats_add(&w->of_dead.op[k], &w->before.op[k], &last.op[k]);
    __atomic_fetch_sub(&w->target->model->sharers, 1, __ATOMIC_RELAXED);
    w->before = (struct far_stats){0};
    w->session = NULL;
}

/* The modelled client has died and is there again. What it had begun is lost. */
static void live_again(struct worker *w)
{
    if (w->session) /* else it died while it opened one */
        leave_session(w);
    w->idle_count = 0;
    for (unsigned i = 0; i < w->target->depth; i++)
        w->idle[w->idle_count++] = i;
    int rc = open_session(w);
    if (rc != FAR_OK)
        halt(w, rc);
}

static void worker_run(void *arg)
{
    struct worker *w = arg;
    if (w->lives++ > 0)
        live_again(w);
    while (!stopped(w)) {
        if (w->next == w->drawn) {
            w->drawn = workload_source_draw(&w->source, w->tasks, w->tasks_max);
            w->next = 0;
            w->started = now_ns(w);
        }
        if (w->drawn == 0)
            break;
        if (w->target->depth == 1)
            work_sync(w);
        else
            work_ring(w);
        w->busy += now_ns(w) - w->started;
    }
    if (w->target->model && w->session) /* there is no keeper that does this for idle sessions */
        (void)client_park(&w->session->op);
}

static void worker_close(void *arg)
{
    struct worker *w = arg;
    if (w->session) {
        if (w->target->recorder)
            replay_recorder_detach(w->target->recorder, w->session);
        far_stats(w->session, w->target->table, &w->after);
        /* Sessions differ only in the splits they made, so the others need not walk the table. It
         * cannot be walked if a node is lost. */
        if (!status_means(w->halted_by, STATUS_FABRIC) &&
            (w->thread == 0 || workload_adds(w->plan->workload)))
            w->info_status = far_table_info(w->session, w->target->table, &w->info);
        w->info_known = w->info.slots > 0;
        far_session_close(w->session);
    }
    w->window[w->windows].rtts = rtts_so_far(w, &w->after);
    free(w->tasks);
    free(w->results);
    free(w->idle);
    free(w->lane_memory);
    free(w->lanes);
}

/* ---- the whole ------------------------------------------------------------------------------- */

uint64_t bench_op_errors(const struct bench_op *op)
{
    /* Inserts are of new keys, so "exists" is an error. */
    return op->stats.errors + op->stats.exists + op->wrong;
}

void bench_add_splits(struct far_table_info *space, const struct far_table_info *more)
{
    uint64_t splits = space->splits + more->splits;
    if (splits == 0)
        return;
    space->split_load_mean = (space->split_load_mean * (double)space->splits +
                              more->split_load_mean * (double)more->splits) /
                             (double)splits;
    if (more->split_load_max > space->split_load_max)
        space->split_load_max = more->split_load_max;
    space->splits = splits;
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The least of them, as a part of the median. */
static double least_of_median(double *number, unsigned count)
{
    qsort(number, count, sizeof *number, compare_numbers);
    return number[count / 2] > 0 ? number[0] / number[count / 2] : 0;
}

/* Finds the slowest of the first windows, which all workers have filled. */
static void find_slowest(struct bench_run *run, unsigned windows)
{
    double number[BENCH_WINDOWS_MAX];
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
    find_slowest(run, filled_by_all);
}

static int sum_up(struct bench_run *run, const struct worker *workers, unsigned count)
{
    uint64_t busy = 0;
    int rc = FAR_OK;
    for (unsigned i = 0; i < count; i++) {
        const struct worker *w = &workers[i];
        run->ops += w->tasks_done;
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
            stats_add(&run->op[k].stats, &w->before.op[k], &w->after.op[k]);
            stats_add(&run->op[k].stats, &(struct far_op_stats){0}, &w->of_dead.op[k]);
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
};

static void report_progress(void *arg)
{
    const struct onlooker *watch = arg;
    uint64_t done = 0;
    for (unsigned i = 0; i < watch->run->count; i++)
        done += atomic_load_explicit(&watch->run->worker[i].done, memory_order_relaxed);
    watch->observer->progress(watch->observer->arg, watch->index, watch->what, done,
                              watch->run->plan.ops);
}

static void let_die(void *arg)
{
    const struct onlooker *watch = arg;
    const struct worker *w = &watch->run->worker[0];
    model_let_die(w->target->model, w->config->deaths, w->config->seed);
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
        .run = worker_run,
        .close = worker_close,
        .begin = target->model ? let_die : NULL,
        .tick = watch && watch->observer->progress ? report_progress : NULL,
        .arg = watch,
        .first = workers,
        .size = sizeof *workers,
        .count = count,
    };
    for (unsigned i = 0; i < count; i++) {
        workers[i].config = config;
        workers[i].target = target;
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

static void measurement_init(struct measurement *r, const struct bench_target *target,
                             const struct workload_plan *plan)
{
    memset(r, 0, measurement_bytes(plan->threads));
    r->order = BENCH_MEASURE;
    r->plan = *plan;
    r->depth = target->depth;
    r->count = plan->threads;
    snprintf(r->table, sizeof r->table, "%s", far_table_name(target->table));
    if (target->team) {
        r->plan.added = (struct workload_added *)(void *)&r->worker[r->count];
        memset(r->plan.added, 0, r->count * sizeof *r->plan.added);
    }
    for (unsigned i = 0; i < r->count; i++) {
        r->worker[i].plan = &r->plan;
        r->worker[i].thread = i;
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
    void *own = NULL;
    if (!target->team)
        own = aligned_alloc(_Alignof(struct measurement), measurement_bytes(plan->threads));
    struct measurement *r = target->team ? workers_team_memory(target->team) : own;
    if (!r)
        return err_fail(FAR_NO_MEMORY, "no memory for %u threads", plan->threads);
    measurement_init(r, target, plan);

    struct onlooker watch = {
        .observer = observer,
        .index = far_table_index(target->table),
        .what = target->what,
        .run = r,
    };
    int rc = target->team ? workers_team_run(target->team,
                                             observer->progress ? report_progress : NULL, &watch)
                          : run_workers(r->worker, r->count, config, target, &watch, NULL);
    if (rc != FAR_OK)
        goto free_workers;

    memset(run, 0, sizeof *run);
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        hist_clear(&run->op[k].latency);
    run->index = watch.index;
    run->workload = plan->workload->name;
    run->draws_keys = workload_draws(plan->workload);
    run->dist = plan->dist.kind;
    run->ops_planned = plan->ops;
    rc = sum_up(run, r->worker, r->count);
    /* A run has fewer operations also if an iteration failed, or if clients died. */
    run->interrupted = run->ops < run->ops_planned && run->halted_by == FAR_OK && config->stop &&
                       atomic_load(config->stop);
    if (observer->progress)
        observer->progress(observer->arg, watch.index, watch.what, plan->ops, plan->ops);

free_workers:
    free(own);
    return rc;
}
