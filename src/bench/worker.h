/*
 * A worker: one thread that does its share of a workload and measures it.
 *
 * A worker draws a few thousand tasks at a time, with nothing in flight and the clock stopped, so
 * the time for drawing keys is not measured. At a fixed rate (see pace.h) it draws a few at a time
 * while the clock runs, because the schedule does not wait for it. A driver does the tasks:
 * session.c has the one for Farside, src/compare has one for other stores. It is called for all
 * tasks that were drawn together, so this costs an operation nothing.
 *
 * Each of these files calls only those above it, and drivers by their pointers:
 *
 *   worker.c   a worker's life
 *   lane.c     one operation of Farside
 *   session.c  Farside's driver
 *   runner.c   all workers together
 */
#ifndef BENCH_WORKER_H
#define BENCH_WORKER_H

#include "base/clock.h"
#include "bench/pace.h"
#include "bench/runner.h"
#include "model/model.h"

struct lane;
struct worker;

/* How workers reach a store. Functions that are not needed are NULL. */
struct worker_driver {
    unsigned tasks_min, tasks_per_lane; /* tasks to draw: at least, and for each in flight */
    int (*open)(struct worker *w);
    /* Makes the tasks ready that were drawn, before the clock runs. */
    void (*prepare)(struct worker *w);
    /* Does them while the clock runs, and counts them in tasks_done. */
    void (*work)(struct worker *w);
    /* Looks at the answers when the clock has stopped. */
    void (*check)(struct worker *w);
    /* What was done so far does not count. */
    void (*forget)(struct worker *w);
    /* The modelled client has died and is there again. */
    void (*revive)(struct worker *w);
    /* All is done, but others may still run. */
    void (*rest)(struct worker *w);
    /* Called also if open() failed or was not called. */
    void (*close)(struct worker *w);
};

extern const struct worker_driver session_driver; /* for tables of Farside, with a session each */

/* What one worker did in a window of time. */
struct worker_window {
    uint32_t ops;
    uint64_t rtts; /* of the session when it ended */
};

struct worker {
    const struct bench_config *config;
    const struct bench_target *target;
    const struct workload_plan *plan;
    const struct worker_driver *driver;
    unsigned thread;
    atomic_bool *halt; /* of all workers: set by one that cannot go on */

    void *client;         /* of a driver for other stores */
    far_session *session; /* this and the lanes are Farside's driver's */
    struct workload_source source;
    struct workload_task *tasks;
    unsigned tasks_max;
    unsigned drawn, next; /* of the tasks: how many there are, and the first that was not begun */
    struct lane *lanes;
    unsigned char *lane_memory;
    unsigned *idle, idle_count;
    struct far_result *results;
    struct far_op *batch; /* with far_execute_many() */

    struct pace pace;
    struct counters counters;
    uint64_t warmed; /* tasks done before measuring */
    uint64_t tasks_done;
    uint64_t inserted; /* new keys that exist */
    uint64_t busy;     /* nanoseconds, until the tasks of `started` began */
    uint64_t started;
    uint64_t ends;    /* when its time is over; 0: it does not last for a time */
    unsigned windows; /* the one that the worker is in */
    struct worker_window window[BENCH_WINDOWS_MAX];
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

/* The time of the worker: virtual on a modelled pool. */
static inline uint64_t worker_now(const struct worker *w)
{
    return w->target->model ? model_now(w->target->model) : clock_ns();
}

/* Has a run that lasts for a time lasted long enough? */
static inline bool worker_over(const struct worker *w)
{
    return w->ends > 0 && w->tasks_done * w->plan->threads >= w->plan->least_ops &&
           worker_now(w) >= w->ends;
}

/* Is the run to end now? */
static inline bool worker_stopped(const struct worker *w)
{
    return worker_over(w) || atomic_load_explicit(w->halt, memory_order_relaxed) ||
           (w->config->stop && atomic_load_explicit(w->config->stop, memory_order_relaxed));
}

/* Stops all workers because of an error. */
void worker_halt(struct worker *w, int status);

/* ---- what a job calls with a struct worker --------------------------------------------------- */

int worker_open(void *worker);
/* Does the tasks that are not measured. */
void worker_warm(void *worker);
void worker_run(void *worker);
void worker_close(void *worker);

#endif
