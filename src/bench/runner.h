/* Runs one plan on one table, or another store, and measures it. */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "bench/bench.h"

struct replay_recorder;
struct worker_driver;
struct workers_process;
struct workers_team;

struct bench_target {
    far_pool *pool;
    far_table *table;
    unsigned depth;
    struct replay_recorder *recorder; /* records the verbs; then one thread, depth 1; may be NULL */
    struct workers_team *team;        /* whose processes run it; NULL: threads of this one */
    struct fab *model; /* whose clients run it, in virtual time; NULL: real threads */
    const char *what;  /* name of the work, for the observer's progress */
    /* Of another store than a table of Farside: how workers reach it, what the driver needs for
     * that, and its name, which takes the place of an index. */
    const struct worker_driver *driver;
    const void *store;
    const char *name;
};

/* The bytes that bench_measure() needs of a team's memory. */
size_t bench_measure_shared_bytes(unsigned workers);

/*
 * Runs the plan with its threads, those of all processes together, each with a session of its own.
 * Fills `run` except for raw_ops_per_s. Operations that fail are counted; they do not make it fail.
 * If the pool or the table is full, or a node is lost, the run ends early (run->halted_by).
 * FAR_NO_CLIENT_SLOT, FAR_NO_MEMORY, FAR_SYSTEM, FAR_UNREACHABLE
 */
int bench_measure(const struct bench_config *config, const struct bench_target *target,
                  const struct workload_plan *plan, const struct bench_observer *observer,
                  struct bench_run *run);

/* What a process of a team does for it, with its own handle of the pool. */
int bench_measure_serve(const struct bench_config *config, struct workers_process *process,
                        far_pool *pool);

#endif
