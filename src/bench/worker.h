/*
 * A worker and its lanes: what the files of the runner share.
 *
 * A lane is one operation in flight with its buffers. At depth 1, a worker has one lane and calls
 * the synchronous functions; at larger depths, it keeps its lanes filled through the ring. A worker
 * draws a few thousand tasks at a time, with nothing in flight and the clock stopped, so the time
 * for drawing keys is not measured. At a fixed rate (see pace.h) it draws a few at a time while the
 * clock runs, because the schedule does not wait for it.
 *
 * Each of these files calls only those above it:
 *
 *   lane.c    one operation
 *   worker.c  a worker's life
 *   runner.c  all workers together
 */
#ifndef BENCH_WORKER_H
#define BENCH_WORKER_H

#include "base/clock.h"
#include "bench/pace.h"
#include "bench/runner.h"
#include "model/model.h"

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

/* What one worker did in a window of time. */
struct worker_window {
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

    struct pace pace;
    struct counters counters;
    uint64_t warmed; /* tasks done before measuring */
    uint64_t tasks_done;
    uint64_t inserted; /* new keys that exist */
    uint64_t busy;     /* nanoseconds, until the tasks of `started` began */
    uint64_t started;
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

/* Is the run to end now? */
static inline bool worker_stopped(const struct worker *w)
{
    return atomic_load_explicit(w->halt, memory_order_relaxed) ||
           (w->config->stop && atomic_load_explicit(w->config->stop, memory_order_relaxed));
}

/* ---- lane.c ---------------------------------------------------------------------------------- */

/* Notes an error of an operation. After some, all that follow would fail like it: then the workers
 * stop. */
void lane_note_error(struct worker *w, int status);
/* Stops all workers because of an error. */
void lane_halt(struct worker *w, int status);
/* The bytes that the buffer of an operation must have. */
size_t lane_buf_bytes(const struct bench_config *c, const struct workload *w);
/* A task begins. `since`: its latency counts from then. */
void lane_begin(struct worker *w, struct lane *l, const struct workload_task *task, uint64_t since);
/* The operation that the lane's task is at. */
struct far_op lane_op(struct worker *w, struct lane *l);
/* Records a result. True if the task goes on with another operation, which starts now. */
bool lane_end(struct worker *w, struct lane *l, const struct far_result *r, uint64_t now);
/* The round trips of all sessions of the worker, of which the last has these statistics. */
uint64_t lane_rtts_so_far(const struct worker *w, const struct far_stats *stats);

/* ---- worker.c: what a job calls with a struct worker ----------------------------------------- */

int worker_open(void *worker);
/* Does the tasks that are not measured. */
void worker_warm(void *worker);
void worker_run(void *worker);
void worker_close(void *worker);

#endif
